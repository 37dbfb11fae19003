"""BayesianPCA: the scikit-learn face of decentralized Bayesian PCA."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dmfvi.consensus import (
    RULES,
    AllReduce,
    BregmanADMM,
    ConsensusRule,
    MomentsADMM,
    StatisticsTracking,
)
from dmfvi.engines.links import Links
from dmfvi.engines.local import LocalEngine, RoundRecord
from dmfvi.estimators.pca_fit import (
    PcaFit,
    PcaSettings,
    PosteriorObserver,
    continue_pca,
    fit_pca,
)
from dmfvi.estimators.validation import (
    check_choice,
    check_observed,
    check_one_shard_per_node,
    check_shards,
    is_shard_list,
    split_evenly,
)
from dmfvi.families.base import FloatArray
from dmfvi.models.pca_belief import PcaPrior
from dmfvi.models.pca_posterior import PcaPosterior
from dmfvi.network import Network
from dmfvi.progress import live_rounds


class BayesianPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
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
        One noise precision for all, or each node its own.
    shares : {"exact", "replicated"}
        Each node holds 1/V of prior and entropy (exact), or all of both as the paper writes it,
        which makes variances V times too wide.
    consensus : str or ConsensusRule
        "bregman-admm" (default), "moments-admm" (the paper's form), "statistics-tracking", "all-reduce".
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

    Attributes
    ----------
    components_ : (n_components, n_features) posterior mean loadings, strongest first.
    mean_ : (n_features,) posterior mean of the location.
    noise_precision_, explained_variance_, posterior_, node_posteriors_, lower_bound_,
    history_ (dict of arrays per round), n_rounds_, n_start_rounds_, converged_.

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

    def fit(self, X: Any, y: Any = None, *, observer: PosteriorObserver | None = None) -> Self:
        """Fit to X (n_samples, n_features), split evenly over the nodes, or to one array per node."""
        shards, network = self._shards(X, first=True)
        self._check_parameters(shards[0].shape[1])
        check_observed(shards, getattr(self, "feature_names_in_", None))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        rng = np.random.default_rng(seed)
        rule, engine, settings = self._rule(shards[0].shape[1]), self._engine(), self._settings()
        with self._watching(network, observer) as watch:
            fit = fit_pca(shards, network, rule, engine, settings, rng, watch)
        return self._keep(fit)

    def partial_fit(self, X: Any, y: Any = None, *, forgetting: float = 1.0) -> Self:
        """Learn from one more batch; the posterior so far is its prior.

        X as for ``fit``, or a list in which some nodes have no rows in this batch. ``forgetting`` in
        (0, 1] tempers what earlier batches said. The first batch is fitted as by ``fit``.
        """
        if not hasattr(self, "_fit"):
            return self.fit(X)
        if not 0 < forgetting <= 1:
            raise ValueError(f"forgetting must lie in (0, 1], received {forgetting!r}")
        if self.consensus == MomentsADMM.name or isinstance(self.consensus, MomentsADMM):
            raise ValueError(
                "partial_fit needs statistics that can be carried over: "
                "use consensus='bregman-admm' instead of 'moments-admm'"
            )
        shards, network = self._shards(X, first=False)
        rule, engine, settings = self._rule(shards[0].shape[1]), self._engine(), self._settings()
        with self._watching(network, None) as watch:
            fit = continue_pca(
                self._fit, shards, network, rule, engine, settings, forgetting, watch
            )
        return self._keep(fit)

    # -- predictions ----------------------------------------------------------------------

    def transform(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Posterior mean of z for each row, NaN allowed; with ``return_std`` also its standard deviations."""
        mean, covariance = self.posterior_.latent(self._checked(X))
        if not return_std:
            return mean
        return mean, np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))

    def inverse_transform(self, Z: ArrayLike) -> FloatArray:
        """Rows of data for latent rows Z (n, n_components)."""
        check_is_fitted(self)
        latent = np.asarray(Z, dtype=np.float64)
        if latent.ndim != 2 or latent.shape[1] != len(self.components_):
            raise ValueError(
                f"expected latent rows of {len(self.components_)} components, "
                f"received shape {latent.shape}"
            )
        return np.asarray(latent @ self.components_ + self.mean_)

    def impute(self, X: ArrayLike, return_std: bool = False) -> Any:
        """X with missing entries replaced by their predictive means.

        With ``return_std`` also the predictive standard deviations, zero where X is observed.
        """
        data = self._checked(X)
        mean, variance = self.posterior_.predict(data)
        missing = np.isnan(data)
        filled = np.where(missing, mean, data)
        return (filled, np.where(missing, np.sqrt(variance), 0.0)) if return_std else filled

    def impute_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of central predictive intervals; equal to X where it is observed."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), received {level!r}")
        filled, std = self.impute(X, return_std=True)
        width = norm.ppf(0.5 + 0.5 * level) * std
        return filled - width, filled + width

    def sample(self, n_samples: int = 1, random_state: Any = None) -> FloatArray:
        """New rows from the posterior predictive distribution."""
        check_is_fitted(self)
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        return self.posterior_.sample(n_samples, np.random.default_rng(seed))

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Log-density of the observed part of each row."""
        return self.posterior_.log_likelihood(self._checked(X))

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log-density of the rows."""
        return float(self.score_samples(X).mean())

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

    def _engine(self) -> LocalEngine:
        return LocalEngine(self.links, self.n_jobs)

    @contextmanager
    def _watching(
        self, network: Network, observer: PosteriorObserver | None
    ) -> Iterator[PosteriorObserver]:
        """An observer that shows progress and passes records on."""
        label = "pooled fit" if network.n_nodes == 1 else network.name
        with live_rounds(label, self.tol, int(self.max_rounds), self.verbose > 0) as show:

            def watch(record: RoundRecord, posteriors: Any) -> bool | None:
                show(record)
                return observer(record, posteriors) if observer is not None else None

            yield watch

    def _shards(self, X: Any, first: bool) -> tuple[list[FloatArray], Network]:
        network = self.network if self.network is not None else Network.complete(1)
        if not isinstance(network, Network):
            raise TypeError(
                f"network must be a dmfvi.Network or None, received {type(network).__name__}: "
                "wrap a graph with Network.from_networkx"
            )
        if is_shard_list(X):
            shards = check_shards(X, allow_empty=not first)
            if first:
                validate_data(self, X[0], ensure_all_finite="allow-nan", dtype=np.float64)
            elif shards[0].shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {shards[0].shape[1]} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input"
                )
            if self.network is None:
                return [np.concatenate(shards)], network
            check_one_shard_per_node(shards, network)
            return shards, network
        data = validate_data(
            self,
            X,
            ensure_all_finite="allow-nan",
            dtype=np.float64,
            ensure_min_samples=2 if first else 1,
            reset=first,
        )
        return split_evenly(data, network, allow_empty=not first), network

    def _check_parameters(self, n_features: int) -> None:
        m = self.n_components
        if not isinstance(m, int | np.integer) or m < 1:
            raise ValueError(f"n_components must be a positive integer, received {m!r}")
        if m > n_features:
            raise ValueError(
                f"n_components={m} is larger than n_features={n_features}: "
                f"choose at most {n_features}"
            )
        if not self.tol > 0:
            raise ValueError(f"tol must be positive, received {self.tol!r}")
        if self.max_rounds < 1:
            raise ValueError(f"max_rounds must be at least 1, received {self.max_rounds!r}")
        check_choice("covariance", self.covariance, ["full", "diagonal"])
        check_choice("noise", self.noise, ["shared", "per_node"])
        check_choice("shares", self.shares, ["exact", "replicated"])
        check_choice("init", self.init, ["spectral", "random"])
        self._check_prior(n_features)

    def _check_prior(self, n_features: int) -> None:
        if self.prior is None:
            return
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
        if isinstance(self.consensus, ConsensusRule):
            return self.consensus
        check_choice("consensus", self.consensus, sorted(RULES))
        if self.consensus == MomentsADMM.name and self.covariance != "diagonal":
            raise ValueError(
                "consensus='moments-admm' works on scalar Gaussians: set covariance='diagonal' "
                f"(received {self.covariance!r})"
            )
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

    def _keep(self, fit: PcaFit) -> Self:
        self._fit = fit
        posterior = fit.posteriors[0]
        history = fit.run.history
        self.posterior_: PcaPosterior = posterior
        self.node_posteriors_ = fit.posteriors
        self.components_ = posterior.loadings.T.copy()
        self.mean_ = posterior.location.copy()
        self.noise_precision_ = posterior.noise_precision
        strength = (posterior.loadings**2).sum(0)
        self.explained_variance_ = strength + 1.0 / posterior.noise_precision
        self.lower_bound_ = fit.lower_bound
        self.n_rounds_ = fit.run.n_rounds
        self.n_iter_ = fit.run.n_rounds
        self.n_start_rounds_ = fit.start_rounds
        self.converged_ = fit.run.converged
        self.history_ = {
            name: np.array([getattr(record, name) for record in history])
            for name in (
                "round",
                "objective",
                "change",
                "disagreement",
                "bytes_sent",
                "limited_steps",
            )
        }
        self.history_["objective"] += fit.log_scale_term
        self._n_features_out = len(self.components_)
        if not self.converged_:
            last = history[-1]
            warnings.warn(
                f"not converged after {last.round} rounds: relative change {last.change:.2e}, "
                f"disagreement {last.disagreement:.2e}, tol {self.tol:.1e}, "
                f"{int(self.history_['limited_steps'].sum())} limited steps; "
                "raise max_rounds or loosen tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _checked(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        return validate_data(self, X, ensure_all_finite="allow-nan", dtype=np.float64, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
