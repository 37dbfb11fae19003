"""BayesianPCA: the scikit-learn face of decentralized Bayesian PCA."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils import check_random_state

from dmfvi.agreement import Meeting
from dmfvi.consensus import (
    RULES,
    AllReduce,
    BregmanADMM,
    ConsensusRule,
    MomentsADMM,
    StatisticsTracking,
)
from dmfvi.engines import open_engine
from dmfvi.engines.base import Engine, Run
from dmfvi.engines.links import Links
from dmfvi.estimators.factor_estimator import FactorEstimator
from dmfvi.estimators.pca_fit import (
    PcaFit,
    PcaSettings,
    PosteriorObserver,
    continue_pca,
    fit_pca,
    make_model,
    posteriors_of,
)
from dmfvi.estimators.validation import (
    check_choice,
    check_n_components,
    check_observed,
    check_positive,
    check_whole,
)
from dmfvi.models.pca_belief import PcaPrior
from dmfvi.network import Network


class BayesianPCA(FactorEstimator):
    """Bayesian PCA with missing data, pooled or over a network of nodes.

    Every node sees its own rows only and ends with the posterior that one machine holding
    all rows would have computed. Missing entries are NaN.

    Parameters
    ----------
    n_components : int
        Number of latent dimensions; unused ones are switched off by the prior (ARD).
    network : Network or None
        Who talks to whom; None is the pooled fit.
    penalty : "auto" or float
        Of Bregman ADMM: "auto" follows the graph's spectrum.
    rounds_per_sweep : "auto" or int
        Consensus rounds between local sweeps.
    covariance : {"full", "diagonal"}
        Of each row of W: full (default), or fully factorised as in the paper.
    noise : {"shared", "per_node"}
        One noise precision for all (features and nodes: standardise columns of different units
        first), or each node its own; predictions then use node 0's, ``at_node(i)`` another's.
    shares : {"exact", "replicated"}
        Each node holds 1/V of prior and entropy (exact), or all of both as the paper writes it,
        which makes variances of the loadings V times too wide.
    consensus : str or ConsensusRule
        "bregman-admm" (default), "statistics-tracking", "all-reduce", or "moments-admm", the
        paper's form, which needs covariance="diagonal".
    tol : float
        Relative accuracy of the posterior's natural parameters at which the nodes stop.
    max_rounds : int
        Message rounds at most; reaching it warns.
    fit_mean : bool
        Whether the mean is part of the model.
    n_jobs : int or None
        Threads over nodes.
    random_state : int, RandomState or None
        Seed of the shared start.
    verbose : int
        1 shows progress.
    prior : PcaPrior or None
        None is vague in the data's own units.
    init : {"spectral", "random"}
        The shared start.
    links : Links or None
        Simulated loss, delay and pauses.
    engine : str or Engine
        "local": all nodes in this process. "mpi": one node a rank, ``fit`` takes the rank's own rows.

    Attributes
    ----------
    components_ : (n_components, n_features) posterior mean loadings, strongest first.
    mean_ : (n_features,) posterior mean of the location.
    noise_precision_ : float, posterior mean.
    explained_variance_ : (n_components,) model variance along each component, noise included, as PCA's;
        a component that is switched off shows the noise alone.
    posterior_ : PcaPosterior of node 0; ``family()`` gives it in natural parameters.
    node_posteriors_ : one PcaPosterior per node, in the order of the shards.
    lower_bound_ : float, evidence lower bound with all constants.
    history_ : dict of arrays per round: objective, change, disagreement, bytes_sent, limited_steps.
    n_rounds_ (= n_iter_) : message rounds of the run.
    n_start_rounds_, n_start_bytes_ : rounds and bytes spent before it, on agreeing on the start.
    converged_ : bool.

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

    _kept = ("lower_bound_", "n_start_rounds_", "n_start_bytes_")

    def __init__(
        self,
        n_components: int = 2,
        *,
        network: Network | None = None,
        penalty: float | Literal["auto"] = "auto",
        rounds_per_sweep: int | Literal["auto"] = "auto",
        covariance: Literal["full", "diagonal"] = "full",
        noise: Literal["shared", "per_node"] = "shared",
        shares: Literal["exact", "replicated"] = "exact",
        consensus: str | ConsensusRule = "bregman-admm",
        tol: float = 1e-6,
        max_rounds: int = 5000,
        fit_mean: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        prior: PcaPrior | None = None,
        init: Literal["spectral", "random"] = "spectral",
        links: Links | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.n_components = n_components
        self.network = network
        self.penalty = penalty
        self.rounds_per_sweep = rounds_per_sweep
        self.covariance = covariance
        self.noise = noise
        self.shares = shares
        self.consensus = consensus
        self.tol = tol
        self.max_rounds = max_rounds
        self.fit_mean = fit_mean
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.prior = prior
        self.init = init
        self.links = links
        self.engine = engine

    def fit(self, X: Any, y: Any = None, *, observer: PosteriorObserver | None = None) -> Self:
        """Fit to X (n_samples, n_features), split evenly over the nodes, or to one array per node.

        ``observer(record, posteriors)`` is called after every round; ``posteriors()`` gives the nodes'
        posteriors, and returning True ends the run.
        """
        shards, network = self._shards(X, first=True)
        self._check_parameters(shards[0].shape[1])
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rule, settings, where = self._rule(shards[0].shape[1]), self._settings(), self._engine()
        if len(shards) == network.n_nodes:
            check_observed(shards, getattr(self, "feature_names_in_", None))
        else:  # each process has drawn its own seed
            agreed = Meeting(network, where, rule.collective).broadcast(np.array([float(seed)]))
            seed = int(agreed[0][0])
        rng = np.random.default_rng(seed)
        with self._watching(network, observer) as watch:
            fit = fit_pca(shards, network, rule, where, settings, rng, watch)
        return self._keep(fit)

    def partial_fit(self, X: Any, y: Any = None, *, forgetting: float = 1.0) -> Self:
        """Learn from one more batch; the posterior so far is its prior.

        X as for ``fit``, or a list in which some nodes have no rows in this batch. ``forgetting`` in
        (0, 1] tempers what earlier batches said. The first batch is fitted as by ``fit``.
        """
        if not isinstance(forgetting, Real) or not 0 < forgetting <= 1:
            raise ValueError(f"forgetting must lie in (0, 1], received {forgetting!r}")
        if not hasattr(self, "_fit"):
            return self.fit(X)
        if self.consensus == MomentsADMM.name or isinstance(self.consensus, MomentsADMM):
            raise ValueError(
                "partial_fit needs statistics that can be carried over: "
                "use consensus='bregman-admm' instead of 'moments-admm'"
            )
        shards, network = self._shards(X, first=False)
        rule, settings = self._rule(shards[0].shape[1]), self._settings()
        with self._watching(network, None) as watch:
            fit = continue_pca(
                self._fit, shards, network, rule, self._engine(), settings, forgetting, watch
            )
        return self._keep(fit)

    # -- helpers --------------------------------------------------------------------------

    def _settings(self) -> PcaSettings:
        return PcaSettings(
            n_components=int(self.n_components),
            fit_mean=self.fit_mean,
            covariance=self.covariance,
            noise=self.noise,
            prior=self.prior,
            init=self.init,
            replicated=self.shares == "replicated",
            tol=self.tol,
            max_rounds=int(self.max_rounds),
        )

    def _engine(self) -> Engine:
        made: Engine = open_engine(self.engine, self.links, self.n_jobs)
        return made

    def _check_parameters(self, n_features: int) -> None:
        check_n_components(self.n_components, n_features)
        check_positive("tol", self.tol)
        check_whole("max_rounds", self.max_rounds, 1)
        if self.rounds_per_sweep != "auto":
            check_whole("rounds_per_sweep", self.rounds_per_sweep, 1)
        if self.network is None and self.links is not None:
            raise ValueError("links are for a network, received network=None: pass a network")
        if self.network is None and self.noise == "per_node":
            raise ValueError("noise='per_node' needs nodes, received network=None: pass a network")
        check_choice("covariance", self.covariance, ["full", "diagonal"])
        check_choice("noise", self.noise, ["shared", "per_node"])
        check_choice("shares", self.shares, ["exact", "replicated"])
        check_choice("init", self.init, ["spectral", "random"])
        self._check_prior(n_features)

    def _check_prior(self, n_features: int) -> None:
        if self.prior is None:
            return
        if not isinstance(self.prior, PcaPrior):
            raise TypeError(
                f"prior must be dmfvi.PcaPrior or None, received {type(self.prior).__name__}"
            )
        if self.prior.component_location is not None and self.covariance == "diagonal":
            raise ValueError(
                "prior.component_location needs covariance='full', received 'diagonal': "
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

    def _rule(self, n_features: int) -> ConsensusRule:
        chosen = self.consensus
        if not isinstance(chosen, ConsensusRule):
            check_choice("consensus", chosen, sorted(RULES))
        moments = isinstance(chosen, MomentsADMM) or chosen == MomentsADMM.name
        if moments and self.covariance != "diagonal":
            raise ValueError(
                "consensus='moments-admm' works on scalar Gaussians: set covariance='diagonal' "
                f"(received {self.covariance!r})"
            )
        if isinstance(chosen, ConsensusRule):
            return chosen
        # settings are checked even where a pooled fit does not use them
        admm = BregmanADMM(self.penalty, self.rounds_per_sweep)
        if self.network is None or self.network.n_nodes == 1 or self.consensus == AllReduce.name:
            return AllReduce()
        if self.consensus == StatisticsTracking.name:
            return StatisticsTracking(self.rounds_per_sweep)
        if self.consensus == MomentsADMM.name:
            n_scalars = n_features * (self.n_components + int(self.fit_mean))
            return MomentsADMM(n_scalars, self.penalty, self.rounds_per_sweep)
        return admm

    def _saved(self) -> dict[str, Any]:
        """The nodes' beliefs and units; ``_fit`` and all posteriors follow from them."""
        content = super()._saved()
        del content["node_posteriors"]
        beliefs = [replace(belief, carried=None) for belief in self._fit.run.beliefs]
        return content | {
            "node_beliefs": beliefs,
            "units": self._fit.units,
            "shared_rows": self._fit.model.layout.shared_rows,
            "log_scale_term": self._fit.log_scale_term,
        }

    def _restore(self, content: dict[str, Any]) -> None:
        units, beliefs = content["units"], content["node_beliefs"]
        model = make_model(units, self._settings(), content["shared_rows"])
        self.node_posteriors_ = posteriors_of(beliefs, model, units)
        self._fit = PcaFit(
            self.node_posteriors_,
            Run(beliefs, converged=content["converged"]),
            content["n_start_rounds"],
            content["n_start_bytes"],
            content["log_scale_term"],
            model,
            units,
        )
        super()._restore(content)

    def _keep(self, fit: PcaFit) -> Self:
        self._fit = fit
        self.lower_bound_ = fit.lower_bound
        self.n_start_rounds_ = fit.start_rounds
        self.n_start_bytes_ = fit.start_bytes
        self._keep_run(fit.posteriors, fit.run, fit.log_scale_term)
        return self
