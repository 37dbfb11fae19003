"""BayesianPCA: the scikit-learn face of decentralized Bayesian PCA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from dmfvi.inference.model import Coroutine
from dmfvi.inference.result import InferenceObserver
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.pca.belief import GammaPrior, PcaPrior
from dmfvi.models.pca.factorised import FactorisedPcaModel
from dmfvi.models.pca.factors import FactorEstimator
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.shard import make_shard
from dmfvi.models.pca.start import Units, agree_on_scale
from dmfvi.models.pca.statistics import Layout
from dmfvi.models.pca.stream import share_of, widen
from dmfvi.validation import check_choice, check_instance

MOMENTS = "moments-admm"


#: the prior where none is given, in agreed units. Those units are centred, so that a precision of the mean that was
#: learned would learn that the mean is zero, which it is by construction, and make its variance too small
VAGUE = PcaPrior(mean=1e-3)
#: the same with a noise level for each feature, whose variance lies between zero and one in agreed units. The bound
#: pays for a prior that is vaguer than that once for every feature, which makes models hard to compare
VAGUE_PER_FEATURE = PcaPrior(noise=GammaPrior(0.5, 5e-4), mean=1e-3)
#: what ``uncertainty`` can be asked for by name
OF_LOADINGS: Mapping[str, str | Callable[[Any], ArrayLike]] = MappingProxyType(
    {"location": "mean_"}
)
OF_NOISE: Mapping[str, str | Callable[[Any], ArrayLike]] = MappingProxyType(
    {
        "noise": "noise_variance_",
        "noise_precision": "noise_precision_",
        "covariance": lambda fitted: fitted.get_covariance(),
    }
)


@dataclass(eq=False, repr=False)
class BayesianPCA(FactorEstimator):
    """Bayesian PCA with missing data, pooled or over a network of nodes.

    Every node sees its own rows only and ends with the posterior that one machine holding
    all rows would have computed. Missing entries are NaN.

    Parameters
    ----------
    n_components : int
        Number of latent dimensions. Unused ones are switched off by the prior (ARD).
    covariance_type : {"full", "diag"}
        Posterior covariance of each row of W: full, or fully factorised as in the paper.
    noise : {"shared", "feature", "per_node"}
        One noise precision for all features and nodes (standardise columns of different units first), one for each
        feature (factor analysis: for tables; the answer does not depend on the columns' units), or one for each
        node. With the last, predictions use node 0's; those of ``at_node(i)`` use node i's.
    shares : {"exact", "replicated"}
        Each of V nodes counts 1/V of prior and entropy ("exact"), or all of both as the paper writes it, which makes
        variances of the loadings V times too wide.
    fit_mean : bool
        Whether the mean is part of the model; otherwise it is zero.
    prior : PcaPrior or None
        Prior in the units of the data; None is a vague prior in agreed units (centred, one scale), with a fixed precision
        of 1e-3 for the mean. With ``noise="feature"`` each column has its own agreed scale: precisions are those of
        columns in units of their deviation, locations are in the data's units, and no location is the columns' means.
    init : {"spectral", "random"}
        Start: loadings from the agreed covariance of all nodes, or random ones, the same at all nodes.
    {shared parameters}

    Attributes
    ----------
    components_ : array (n_components, n_features)
        Posterior mean of the loadings, strongest first.
    mean_ : array (n_features,)
        Posterior mean of the location.
    n_components_ : int
        Number of components.
    noise_variance_ : float or array (n_features,)
        Posterior mean of the noise variance; of each feature with ``noise="feature"``.
    noise_precision_ : float or array (n_features,)
        Posterior mean of the noise precision.
    explained_variance_ : array (n_components,)
        Variance of the model along each component, noise included, as PCA's. A component that is switched off has
        the noise variance alone. With ``noise="feature"`` it is counted in noise variances, so that such a component has 1.
    {shared attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from dmfvi import BayesianPCA, Network
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(200, 8))
    >>> pca = BayesianPCA(3, network=Network.ring(4), random_state=0).fit(X)
    >>> pca.converged_
    True
    """

    _kept = ("_log_volume",)
    _table_defaults = MappingProxyType({"noise": "feature"})

    _: KW_ONLY
    covariance_type: Literal["full", "diag"] = "full"
    noise: Literal["shared", "feature", "per_node"] = "shared"
    shares: Literal["exact", "replicated"] = "exact"
    prior: PcaPrior | None = None
    init: Literal["spectral", "random"] = "spectral"

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to X (n_samples, n_features), split evenly over the nodes, or to one array per node.

        A row of ``sample_weight`` two counts as two rows, one of zero not at all.

        ``observer(record, inference)`` is called after every round; ``inference.posteriors`` are the nodes'
        posteriors so far, and returning True ends the run.
        """
        session = self._open()
        shards, weights = self._weighted_shards(X, self._factor_shards(X, session), sample_weight)
        pairs = list(zip(shards, weights, strict=True))
        self._check_parameters(shards[0].shape[1], session)
        each = self.noise == "feature"
        units = session.agree(
            lambda pair: agree_on_scale(pair[0], self.fit_mean, pair[1], each), pairs
        )[0]
        self._units, self._log_volume = units, units.log_volume
        model = self._make_model(units.complete)
        if session.rule.name == MOMENTS:
            share = 1.0 if self.shares == "replicated" else 1.0 / session.network.n_nodes
            known = {f.name: getattr(model, f.name) for f in fields(model)} | {"expansion": False}
            model = FactorisedPcaModel(**known, prior_share=share)
        return self._fit(
            session,
            model,
            [make_shard(units.apply(x), self.fit_mean, w) for x, w in pairs],
            log_volume=self._log_volume,
            replicated=self.shares == "replicated",
            observer=observer,
        )

    def partial_fit(self, X: Any, y: Any = None, *, forgetting: float = 1.0) -> Self:
        """Learn from one more batch; the posterior so far is its prior (streaming variational Bayes).

        X as for ``fit``, or a list in which some nodes have no rows in this batch. ``forgetting`` in
        (0, 1] tempers the statistics of earlier batches. The first batch is fitted as by ``fit``. The local variables of
        earlier batches are not visited again.
        """
        if not isinstance(forgetting, Real) or not 0 < forgetting <= 1:
            raise ValueError(f"forgetting must lie in (0, 1], received {forgetting!r}")
        if not hasattr(self, "_node_beliefs"):
            return self.fit(X)
        session = self._open()
        if session.rule.name == MOMENTS:
            raise ValueError(
                "partial_fit needs statistics that can be carried over: "
                "use consensus='bregman-admm' instead of 'moments-admm'"
            )
        shards = self._row_shards(X, session, reset=False)
        if len(self._node_beliefs) != len(shards):
            raise ValueError(
                f"the model so far has {len(self._node_beliefs)} nodes, now there are {len(shards)}: "
                "fit anew to change the network"
            )
        missing, observed = session.agree(_count_entries, shards)[0]
        model, beliefs = self._model, self._node_beliefs
        if model.layout.shared_rows and missing > 0.5:
            model, beliefs = widen(model, beliefs)
        # replicated shares average statistics instead of adding them up: so with what is carried
        parts = 1 if self.shares == "replicated" else session.network.n_nodes
        if self.noise != "feature":
            observed = float(observed.sum())
        added = replace(model.units, n_observed=observed).log_volume
        self._log_volume = float(forgetting) * self._log_volume + added
        return self._fit(
            session,
            model,
            self._prepared(shards, model.units),
            start=list(beliefs),
            carried=[share_of(model, belief, parts, float(forgetting)) for belief in beliefs],
            log_volume=self._log_volume,
            replicated=self.shares == "replicated",
        )

    @property
    def _uncertain(self) -> Mapping[str, str | Callable[[Any], ArrayLike]]:  # type: ignore[override]
        # a node's own noise is a local variable
        return OF_LOADINGS if self.noise == "per_node" else {**OF_LOADINGS, **OF_NOISE}

    @property
    def _summarised(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("location",) if self.noise == "per_node" else ("location", "noise")

    def _usual_consensus(self) -> str:
        # a node's own noise is not part of the sum: beliefs differ between nodes
        return "bregman-admm" if self.noise == "per_node" else super()._usual_consensus()

    @property
    def _one_noise(self) -> bool:  # type: ignore[override]
        return self.noise != "feature"

    # -- helpers --------------------------------------------------------------------------

    def _prepared(self, shards: list[FloatArray], units: Units) -> list[Any]:
        return [make_shard(units.apply(data), self.fit_mean) for data in shards]

    def _make_model(self, shared_rows: bool | None = None) -> BayesianPcaModel:
        """Whether all rows of W share one covariance is seen from the beliefs, unless given."""
        prior, m, units = self.prior, int(self.n_components), self._units
        if shared_rows is None:
            shared_rows = self._node_beliefs[0].precision.ndim == 2
        each = self.noise == "feature"  # rows of W then have precisions of their own
        vague = VAGUE_PER_FEATURE if each else VAGUE
        return BayesianPcaModel(
            Layout(len(units.shift), m + int(self.fit_mean), shared_rows and not each, each),
            m,
            self.covariance_type,
            self.noise,
            # a vague prior is vague in the data's own units; one that is given is in given units
            vague if prior is None else prior.rescaled(units.scale, units.shift),
            init=self.init,
            data_units=units,
        )

    def _check_parameters(self, n_features: int, session: Session) -> None:
        if session.pooled and self.noise == "per_node":
            raise ValueError("noise='per_node' needs nodes, received network=None: pass a network")
        check_choice("covariance_type", self.covariance_type, ["full", "diag"])
        check_choice("noise", self.noise, ["shared", "feature", "per_node"])
        check_choice("shares", self.shares, ["exact", "replicated"])
        check_choice("init", self.init, ["spectral", "random"])
        if session.rule.name == MOMENTS and self.covariance_type != "diag":
            raise ValueError(
                "consensus='moments-admm' works on scalar Gaussians: set covariance_type='diag' "
                f"(received {self.covariance_type!r})"
            )
        if session.rule.name == MOMENTS and self.noise == "feature":
            raise ValueError(
                "consensus='moments-admm' is for one noise level, received noise='feature': "
                "use another rule (consensus='auto')"
            )
        self._check_prior(n_features)

    def _check_prior(self, n_features: int) -> None:
        check_instance("prior", self.prior, PcaPrior)
        if self.prior is None:
            return
        if self.prior.component_location is not None and self.covariance_type == "diag":
            raise ValueError(
                "prior.component_location needs covariance_type='full', received 'diag': "
                "a factorised posterior cannot follow prior means in any practical number of rounds"
            )
        expected = {
            "component_location": (n_features, self.n_components),
            "mean_location": (n_features,),
        }
        for name, shape in expected.items():
            value = getattr(self.prior, name)
            if value is not None and np.shape(value) != shape:
                raise ValueError(
                    f"prior.{name} must have shape {shape}, received {np.shape(value)}"
                )


def _count_entries(data: FloatArray) -> Coroutine:
    """Missing entries, and observed ones of each feature, at all nodes."""
    seen = np.isfinite(data)
    total = yield np.append(float((~seen).sum()), seen.sum(0).astype(np.float64))
    return float(total[0]), np.round(total[1:])
