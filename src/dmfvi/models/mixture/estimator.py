"""BayesianGaussianMixture: decentralized Bayesian mixtures of Gaussians with missing data."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import generator_of
from dmfvi.export import Pointwise
from dmfvi.families import Product
from dmfvi.inference.result import InferenceObserver
from dmfvi.linalg import FloatArray, inverse
from dmfvi.models.mixture.base import ClusterEstimator, GaussianComponents
from dmfvi.models.mixture.model import DiagonalGaussianMixture, GaussianMixture
from dmfvi.models.mixture.prediction import log_predictive
from dmfvi.models.mixture.shard import MixtureShard
from dmfvi.models.pointwise import of_gaussians
from dmfvi.validation import check_positive, check_whole


@dataclass(eq=False, repr=False)
class BayesianGaussianMixture(ClusterEstimator, GaussianComponents):
    """Bayesian mixture of Gaussians, pooled or over a network of nodes, with missing entries (NaN).

    Every node sees its own rows only, possibly from some components only, and ends with the posterior that one machine
    holding all rows would have computed. Missing entries are marginalised, not filled in.

    Parameters
    ----------
    n_components : int
        Largest number of components. Components that the data do not support end without weight.
    covariance_type : {"full", "diag"}
        Whether the features of a component are correlated or independent.
    weight_concentration_prior : float or None
        Concentration of the symmetric Dirichlet prior of the weights; None is 1 / n_components. Small values empty
        components.
    mean_prior : array (n_features,) or None
        Prior mean of the components; None is the agreed mean of the data.
    mean_precision_prior : float
        Number of pseudo-rows behind ``mean_prior``.
    degrees_of_freedom_prior : float or None
        Degrees of freedom of the prior of the precisions, larger than n_features - 1; None is n_features.
    covariance_prior : array (n_features, n_features), (n_features,) for "diag", number or None
        Prior scatter matrix, as in scikit-learn; a number is that many times the agreed variances of the features, None the
        agreed covariance (variances where entries are missing).
    n_init : int or "auto"
        "auto" is a fit from clusters of k-means, and one from fewer: five sweeps are made from two thirds of the clusters, two
        thirds of those, ... and one, in the same messages, and the best of them is carried on unless it is far behind; not if the first fit has
        not converged. ``max_iter`` is that of each fit. A number is that of fits
        from clusters of k-means and, every second one, from memberships that look random. The fit with the highest bound is kept.
    {shared parameters}

    Attributes
    ----------
    weights_ : array (n_components,)
        Posterior mean of the weights.
    means_ : array (n_components, n_features)
        Posterior mean of each component's location.
    covariances_ : array (n_components, n_features, n_features), (n_components, n_features) for "diag"
        Inverse of the posterior mean of each component's precision.
    weight_concentration_ : array (n_components,)
        Dirichlet parameters of the weights.
    mean_precision_ : array (n_components,), (n_components, n_features) for "diag"
        Number of rows and pseudo-rows behind each mean.
    degrees_of_freedom_ : array (n_components,), (n_components, n_features) for "diag"
        Degrees of freedom of each precision.
    {shared attributes}

    Notes
    -----
    The posterior is a ``Product`` of ``weights`` (Dirichlet) and ``components`` (NormalWishart; NormalGamma by feature for
    "diag").
    """

    _uncertain = MappingProxyType(
        {"weights": "weights_", "means": "means_", "covariances": "covariances_"}
    )
    _summarised = ("weights", "means")

    n_components: int = 1
    _: KW_ONLY
    weight_concentration_prior: float | None = None
    n_init: int | Literal["auto"] = "auto"

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
        check_whole("n_components", self.n_components, 1)
        check_positive("weight_concentration_prior", self.weight_concentration_prior, optional=True)
        self._check_gaussians(shards[0].shape[1])
        units = self._agree_on_units(session, shards, self.n_components, weights)
        return self._fit(
            session,
            self._make_model(),
            [MixtureShard.of(units.apply(x), w) for x, w in zip(shards, weights, strict=True)],
            n_init=self.n_init,
            log_volume=units.log_volume,
            observer=observer,
        )

    def _pointwise(
        self, draws: dict[str, FloatArray], seed: Any, X: Any, y: Any, **row_values: Any
    ) -> Pointwise:
        self._refuse_row_values(row_values)
        precision = draws["components_precision"]
        if self.covariance_type == "diag":
            covariance = np.eye(precision.shape[-1]) / precision[..., None]
        else:
            covariance = inverse(precision)
        rows, rng = self._checked_rows(X), np.random.default_rng([seed, 1])
        share = np.log(np.maximum(draws["weights"], 1e-300))
        return of_gaussians(rows, draws["components_mean"], covariance, share, rng)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each component for each row (n, K), from what is observed of it."""
        return self._responsibilities(self._checked_rows(X))

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of the observed part of each row under the posterior predictive distribution.

        The parameters are integrated out: a mixture of Student distributions.
        """
        data = self._checked_rows(X)
        return np.asarray(logsumexp(log_predictive(self.posterior_, data), axis=1))

    def impute(
        self,
        X: Any,
        return_std: bool = False,
        *,
        n_draws: int | None = None,
        random_state: Any = None,
    ) -> Any:
        """X with missing entries replaced by their predictive means, parameters integrated out.

        With ``return_std`` also the predictive standard deviations, zero where X is observed. With ``n_draws`` multiple
        imputations (n_draws, n, D): missing entries are drawn, jointly for a row, from the predictive distribution.
        """
        data = self._checked_rows(X)
        share = self._predictive_shares(data)
        return self._filled(self._belief, data, share, return_std, n_draws, random_state)

    def impute_interval(self, X: Any, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of central predictive intervals; equal to X where it is observed."""
        data = self._checked_rows(X)
        return self._filled_interval(self._belief, data, self._predictive_shares(data), level)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[FloatArray, Any]:
        """New rows and their components from the posterior predictive distribution."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        rng = generator_of(random_state)
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        location, precision = self.posterior_["components"].sample(rng, n_samples)
        chosen = np.arange(n_samples), labels
        return self._draw(location[chosen], precision[chosen], rng), labels

    # -- helpers --------------------------------------------------------------------------

    def _predictive_shares(self, data: FloatArray) -> FloatArray:
        """p(component | observed part), parameters integrated out (n, K)."""
        return np.asarray(softmax(log_predictive(self._belief, self._units.apply(data)), axis=1))

    def _responsibilities(self, data: FloatArray) -> FloatArray:
        shard = MixtureShard.of(self._units.apply(data))
        out, _ = self._model.responsibilities(shard, self._belief)
        return np.asarray(out)

    def _rows_of_components(self) -> FloatArray:
        prior = self._model.prior["weights"].parameters()["concentration"]
        return np.asarray(self.weight_concentration_ - prior)

    def _make_model(self) -> GaussianMixture | DiagonalGaussianMixture:
        k, weight = int(self.n_components), self.weight_concentration_prior
        kind = GaussianMixture if self.covariance_type == "full" else DiagonalGaussianMixture
        return kind(k, 1.0 / k if weight is None else float(weight), *self._gaussian_prior())

    def _in_data_units(self, q: Product) -> Product:
        components = self._gaussians_in_data_units(q["components"])
        return Product(weights=q["weights"], components=components)

    def _take(self, node: int) -> None:
        weights, components = self.posterior_["weights"], self.posterior_["components"]
        self.weight_concentration_ = weights.parameters()["concentration"]
        self.weights_ = self.weight_concentration_ / self.weight_concentration_.sum()
        self._take_gaussians(components)
        p = components.parameters()
        full = self.covariance_type == "full"
        self.mean_precision_ = p["confidence"] if full else p["precision"][..., 0, 0]
        self.degrees_of_freedom_ = p["dof"] if full else 2.0 * p["shape"]
