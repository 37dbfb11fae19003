"""MixtureOfPCA: decentralized mixtures of Bayesian PCAs with missing data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import generator_of
from dmfvi.inference.result import InferenceObserver
from dmfvi.inference.starts import FeatureUnits, agree_on_units
from dmfvi.linalg import FloatArray
from dmfvi.models.mixture.base import ClusterEstimator, overlaps
from dmfvi.models.mixture.gaps import mixture_quantile
from dmfvi.models.pca.belief import PcaPrior
from dmfvi.models.pca.mixture_model import (
    MixtureOfPcaModel,
    MixtureRows,
)
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.start import Units
from dmfvi.models.pca.statistics import Layout
from dmfvi.validation import (
    check_at_most,
    check_instance,
    check_level,
    check_n_components,
    check_positive,
    check_whole,
)


@dataclass(eq=False, repr=False)
class MixtureOfPCA(ClusterEstimator):
    """Mixture of Bayesian PCAs: clusters with their own low-dimensional linear structure, pooled or over a network.

    Missing entries are NaN.

    Parameters
    ----------
    n_clusters : int
        Largest number of clusters. Clusters that the data do not support end without weight.
    n_components : int
        Latent dimensions of each cluster. Unused ones are switched off (ARD).
    weight_concentration_prior : float or None
        Concentration of the symmetric Dirichlet prior of the weights; None is 1 / n_clusters.
    prior : PcaPrior or None
        Prior of every cluster, in the units of the data; None is a vague prior.
    n_init : int
        Number of starts. The one with the highest bound is kept.
    {shared parameters}

    Attributes
    ----------
    weights_ : array (n_clusters,)
        Posterior mean of the weights.
    means_ : array (n_clusters, n_features)
        Posterior mean of the location of each cluster.
    components_ : array (n_clusters, n_components, n_features)
        Posterior mean of the loadings of each cluster.
    noise_variance_ : array (n_clusters,)
        Posterior mean of the noise variance of each cluster.
    noise_precision_ : array (n_clusters,)
        Posterior mean of the noise precision of each cluster.
    {shared attributes}
    """

    _uncertain = MappingProxyType(
        {"weights": "weights_", "means": "means_", "noise": "noise_variance_"}
    )
    _summarised = ("weights", "means", "noise")
    _one_noise = True

    n_clusters: int = 2
    n_components: int = 1
    _: KW_ONLY
    weight_concentration_prior: float | None = None
    prior: PcaPrior | None = None
    n_init: int = 1

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
        """
        session = self._open()
        shards, weights = self._informative_shards(X, session, sample_weight)
        self._check_settings(shards[0].shape[1])
        pairs = list(zip(shards, weights, strict=True))
        units: FeatureUnits = session.agree(lambda pair: agree_on_units(*pair), pairs)[0]
        check_at_most("n_clusters", self.n_clusters, "n_samples", int(units.n_samples))
        variance = float(np.mean(units.scale**2 * np.diag(units.covariance)))
        scale = float(np.sqrt(variance)) if variance > 0 else 1.0
        n_observed = float(units.n_observed.sum())
        self._units = Units(units.shift, scale, units.complete, n_observed)
        spread = units.covariance * np.outer(units.scale, units.scale) / scale**2
        return self._fit(
            session,
            self._make_model(spread),
            [MixtureRows.of(self._units.apply(x), w) for x, w in pairs],
            n_init=self.n_init,
            log_volume=self._units.log_volume,
            observer=observer,
        )

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each cluster for each row (n, K), from what is observed of it."""
        data = self._checked_rows(X)
        rows = MixtureRows.of(self._units.apply(data))
        return np.asarray(self._model.responsibilities(rows, self._belief)[1])

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of the observed part of each row; uncertain loadings widen the noise."""
        data = self._checked_rows(X)
        logs = np.column_stack([c.log_likelihood(data) for c in self.posterior_.clusters])
        return np.asarray(logsumexp(logs + np.log(self.weights_), axis=1))

    def impute(self, X: Any, return_std: bool = False) -> Any:
        """X with missing entries replaced by their predictive means; optionally their deviations too."""
        data = self._checked_rows(X)
        share, means, variances = self._predictive(data)
        first = np.einsum("nk,nkd->nd", share, means)
        between = (means - first[:, None, :]) ** 2
        missing = np.isnan(data)
        filled = np.where(missing, first, data)
        spread = np.einsum("nk,nkd->nd", share, variances + between)
        return (filled, np.where(missing, np.sqrt(spread), 0.0)) if return_std else filled

    def impute_interval(self, X: Any, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of central predictive intervals; equal to X where it is observed."""
        check_level(level)
        data = self._checked_rows(X)
        share, means, variances = self._predictive(data)
        low, high = (
            np.where(np.isnan(data), mixture_quantile(share, means, np.sqrt(variances), end), data)
            for end in (0.5 - 0.5 * level, 0.5 + 0.5 * level)
        )
        return low, high

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[FloatArray, Any]:
        """New rows and their clusters from the posterior predictive distribution."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        rng = generator_of(random_state)
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        rows = np.empty((n_samples, self.means_.shape[1]))
        for k, cluster in enumerate(self.posterior_.clusters):
            chosen = np.flatnonzero(labels == k)
            if len(chosen):
                rows[chosen] = cluster.sample(len(chosen), rng)
        return rows, labels

    # -- helpers --------------------------------------------------------------------------

    def _draws(self, rng: np.random.Generator, n_draws: int) -> dict[str, FloatArray]:
        """Weights, and locations, loadings and noise precisions of the clusters."""
        found = {"weights": np.asarray(self.posterior_.weights.sample(rng, n_draws))}
        families = [cluster.family() for cluster in self.posterior_.clusters]
        rows = np.stack([np.asarray(q["rows"].sample(rng, n_draws)) for q in families], axis=1)
        m = int(self.n_components)
        noise = [np.asarray(q["noise"].sample(rng, n_draws)) for q in families]
        found |= {"means": rows[..., m], "loadings": rows[..., :m]}
        return found | {"noise_precision": np.stack(noise, axis=1)}

    def _predictive(self, data: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Probabilities of the clusters (n, K), and every entry's mean and variance under each (n, K, D)."""
        made = [cluster.predict(data) for cluster in self.posterior_.clusters]
        means, variances = (np.stack(parts, axis=1) for parts in zip(*made, strict=True))
        return self.predict_proba(data), means, variances

    def _doubts(self) -> Iterable[str]:
        """Clusters without rows, and those that overlap."""
        yield from super()._doubts()
        q = self.posterior_.weights.concentration_minus_one
        rows = q - self.posterior_.prior_weights.concentration_minus_one
        noise = self.noise_variance_[:, None, None] * np.eye(self.means_.shape[1])
        spread = np.swapaxes(self.components_, 1, 2) @ self.components_ + noise
        yield from overlaps(self.means_, spread, rows)

    def _check_settings(self, n_features: int) -> None:
        check_whole("n_clusters", self.n_clusters, 1)
        check_n_components(self.n_components, n_features)
        check_positive("weight_concentration_prior", self.weight_concentration_prior, optional=True)
        check_instance("prior", self.prior, PcaPrior)
        if self.prior is not None and self.prior.component_location is not None:
            raise ValueError("prior.component_location is for BayesianPCA: clusters have none")

    def _make_model(self, start_covariance: FloatArray | None = None) -> MixtureOfPcaModel:
        """``start_covariance`` is needed for a fit only."""
        units, m = self._units, int(self.n_components)
        prior = PcaPrior() if self.prior is None else self.prior.rescaled(units.scale, units.shift)
        layout = Layout(len(units.shift), m + 1, units.complete)
        component = BayesianPcaModel(layout, m, prior=prior, data_units=units)
        weight = self.weight_concentration_prior
        return MixtureOfPcaModel(
            int(self.n_clusters),
            component,
            1.0 / self.n_clusters if weight is None else float(weight),
            np.eye(len(units.shift)) if start_covariance is None else start_covariance,
        )

    def _saved(self) -> dict[str, Any]:
        """Without the statistics that beliefs were made from: only a fit needs them."""
        content = super()._saved()
        content["node_beliefs"] = [
            replace(q, components=tuple(replace(b, total=None) for b in q.components))
            for q in self._node_beliefs
        ]
        return content

    def _take(self, node: int) -> None:
        concentration = self.posterior_.weights.parameters()["concentration"]
        self.weights_ = concentration / concentration.sum()
        clusters = self.posterior_.clusters
        self.means_ = np.stack([c.location for c in clusters])
        self.components_ = np.stack([c.loadings.T for c in clusters])
        self.noise_precision_ = np.array([c.noise_precision for c in clusters])
        self.noise_variance_ = np.array([c.noise_variance for c in clusters])
