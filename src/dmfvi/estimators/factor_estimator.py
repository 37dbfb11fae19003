"""What all estimators of the PCA family share: shards in, posteriors kept, predictions out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dmfvi.engines.base import Engine, RoundRecord, Run
from dmfvi.engines.local import LocalEngine
from dmfvi.estimators.kept import Kept
from dmfvi.estimators.pca_fit import PosteriorObserver
from dmfvi.estimators.validation import (
    check_one_shard_per_node,
    check_shards,
    check_whole,
    is_shard_list,
    split_evenly,
    unmasked,
)
from dmfvi.families.base import FloatArray
from dmfvi.inference import history_of, warn_unless_converged
from dmfvi.models.pca_posterior import PcaPosterior
from dmfvi.network import Network
from dmfvi.progress import live_rounds


class FactorEstimator(Kept, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Transform, impute, score and sample from ``posterior_``; subclasses fit it."""

    network: Network | None
    tol: float
    max_rounds: int
    verbose: int
    _kept: ClassVar[tuple[str, ...]] = ("node_posteriors_", "history_", "n_iter_", "converged_")

    def transform(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Posterior mean of z for each row, NaN allowed; with ``return_std`` also its standard deviations."""
        data = self._checked(X)
        mean, covariance = self.posterior_.latent(data)
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
        check_whole("n_samples", n_samples, 1)
        seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
        return self.posterior_.sample(n_samples, np.random.default_rng(seed))

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Log-density of the observed part of each row at the posterior mean of the parameters.

        What is uncertain of the loadings widens the noise of each feature.
        """
        data = self._checked(X)
        return self.posterior_.log_likelihood(data)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log-density of the rows."""
        return float(self.score_samples(X).mean())

    def _shards(self, X: Any, first: bool) -> tuple[list[FloatArray], Network]:
        network = self.network if self.network is not None else Network.complete(1)
        if not isinstance(network, Network):
            raise TypeError(
                f"network must be a dmfvi.Network or None, received {type(network).__name__}: "
                "make one with Network.ring(5) and the like, or wrap a graph with Network.from_networkx"
            )
        here = self._engine().owned(network)
        if is_shard_list(X):
            if len(here) < network.n_nodes:
                raise ValueError(
                    f"received {len(X)} shards, but this process runs node {here[0]} only: "
                    "pass its own rows as one array"
                )
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
            unmasked(X),
            ensure_all_finite="allow-nan",
            dtype=np.float64,
            ensure_min_samples=2 if first else 1,
            reset=first,
        )
        if len(here) < network.n_nodes:
            return [data], network
        return split_evenly(data, network, allow_empty=not first), network

    def _engine(self) -> Engine:
        """Where the nodes run; made anew for every fit, since an engine counts its phases."""
        return LocalEngine()

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

    def _keep_run(self, posteriors: list[PcaPosterior], run: Run, log_scale_term: float) -> None:
        """Fitted attributes of one run; warns when it did not converge."""
        self._take(posteriors[0])
        self.node_posteriors_ = posteriors
        self.n_rounds_ = self.n_iter_ = run.n_rounds
        self.converged_ = run.converged
        self.history_ = history_of(run)
        self.history_["objective"] += log_scale_term
        self._n_features_out = len(self.components_)
        warn_unless_converged(run, self.tol, stacklevel=5)

    def _restore(self, content: dict[str, Any]) -> None:
        super()._restore(content)
        if hasattr(self, "history_"):  # a message round is an iteration, where there are messages
            self.n_rounds_ = self.n_iter_
        self._take(self.node_posteriors_[content["node"]])
        self._n_features_out = len(self.components_)

    def at_node(self, node: int) -> Self:
        """The same model as one node sees it: its own posterior, with its own noise if that is per node."""
        check_is_fitted(self)
        check_whole("node", node, 0)
        if node >= len(self.node_posteriors_):
            raise ValueError(f"node must be below {len(self.node_posteriors_)}, received {node}")
        seen = copy.copy(self)
        seen._take(self.node_posteriors_[node])
        return seen

    def _take(self, posterior: PcaPosterior) -> None:
        self.posterior_ = posterior
        self.components_ = posterior.loadings.T.copy()
        self.mean_ = posterior.location.copy()
        self.noise_precision_ = posterior.noise_precision
        strength = (posterior.loadings**2).sum(0)
        self.explained_variance_ = strength + 1.0 / posterior.noise_precision

    def _checked(self, X: Any) -> FloatArray:
        """One validated array; a list of shards is stacked."""
        check_is_fitted(self)
        if is_shard_list(X):
            X = np.concatenate(check_shards(X, allow_empty=True))
        X = unmasked(X)
        return validate_data(self, X, ensure_all_finite="allow-nan", dtype=np.float64, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
