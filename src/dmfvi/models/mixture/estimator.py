"""BayesianGaussianMixture: decentralized Bayesian mixtures of Gaussians with missing data."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import NetworkEstimator, generator_of
from dmfvi.families import NormalGamma, NormalWishart, Product
from dmfvi.inference.federation import Federation
from dmfvi.inference.session import InferenceObserver
from dmfvi.inference.starts import FeatureUnits, agree_on_units
from dmfvi.linalg import FloatArray, inverse, is_positive_definite, symmetrize
from dmfvi.models.mixture.model import DiagonalGaussianMixture, GaussianMixture
from dmfvi.models.mixture.prediction import impute_mixture, log_predictive
from dmfvi.models.mixture.shard import MixtureShard
from dmfvi.network import Network
from dmfvi.validation import check_choice, check_positive, check_whole

#: smallest eigenvalue of the default prior scatter, in standardised units
LEAST_SCATTER = 1e-6


class BayesianGaussianMixture(DensityMixin, NetworkEstimator):
    """Bayesian mixture of Gaussians, pooled or over a network of nodes, with missing entries (NaN).

    Every node sees its own rows only, maybe of some components only, and ends with the posterior that one machine
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
    covariance_prior : array (n_features, n_features), (n_features,) for "diag", or None
        Prior scatter matrix, as in scikit-learn; None is the agreed covariance of the data.
    n_init : int
        Number of starts. The one with the highest bound is kept.
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

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: Literal["full", "diag"] = "full",
        weight_concentration_prior: float | None = None,
        mean_prior: ArrayLike | None = None,
        mean_precision_prior: float = 1.0,
        degrees_of_freedom_prior: float | None = None,
        covariance_prior: ArrayLike | None = None,
        n_init: int = 1,
        network: Network | Federation | None = None,
        tol: float = 1e-6,
        max_iter: int = 5000,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            network=network, tol=tol, max_iter=max_iter, random_state=random_state, verbose=verbose
        )
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.weight_concentration_prior = weight_concentration_prior
        self.mean_prior = mean_prior
        self.mean_precision_prior = mean_precision_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.n_init = n_init

    def fit(self, X: Any, y: Any = None, *, observer: InferenceObserver | None = None) -> Self:
        """Fit to X (n_samples, n_features), split evenly over the nodes, or to one array per node."""
        session = self._open()
        shards = self._row_shards(X, session)
        self._check_settings(shards[0].shape[1])
        units: FeatureUnits = session.agree(agree_on_units, shards)[0]
        if self.n_components > units.n_samples:
            raise ValueError(
                f"n_components={self.n_components} is larger than n_samples={int(units.n_samples)}: "
                f"choose at most {int(units.n_samples)}"
            )
        self._units = units
        return self._fit(
            session,
            self._make_model(units),
            [MixtureShard.of(units.apply(x)) for x in shards],
            n_init=self.n_init,
            log_volume=units.log_volume,
            observer=observer,
        )

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each component for each row (n, K), from what is observed of it."""
        return self._responsibilities(self._checked_rows(X))

    def predict(self, X: Any) -> FloatArray:
        """The most probable component of each row."""
        return np.asarray(self.predict_proba(X).argmax(1))

    def fit_predict(self, X: Any, y: Any = None) -> FloatArray:
        """Fit, then the most probable component of each row."""
        return self.fit(X).predict(X)

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of the observed part of each row under the posterior predictive distribution.

        The parameters are integrated out: a mixture of Student distributions.
        """
        data = self._checked_rows(X)
        return np.asarray(logsumexp(log_predictive(self.posterior_, data), axis=1))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(self.score_samples(X).mean())

    def impute(self, X: Any, return_std: bool = False) -> Any:
        """X with missing entries replaced by their predictive means; optionally their deviations too."""
        data = self._checked_rows(X)
        filled, std = impute_mixture(self._belief, self._units, data, self._responsibilities(data))
        return (filled, std) if return_std else filled

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[FloatArray, Any]:
        """New rows and their components from the posterior predictive distribution."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        rng = generator_of(random_state)
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        location, precision = self.posterior_["components"].sample(rng, n_samples)
        chosen = np.arange(n_samples), labels
        if self.covariance_type == "diag":
            mean, deviation = location[chosen][..., 0], 1.0 / np.sqrt(precision[chosen])
            return mean + deviation * rng.standard_normal(mean.shape), labels
        mean = location[chosen]
        factor = np.linalg.cholesky(symmetrize(inverse(precision[chosen])))
        noise = np.einsum("nij,nj->ni", factor, rng.standard_normal(mean.shape))
        return mean + noise, labels

    # -- helpers --------------------------------------------------------------------------

    def _responsibilities(self, data: FloatArray) -> FloatArray:
        shard = MixtureShard.of(self._units.apply(data))
        out, _ = self._model.responsibilities(shard, self._belief)
        return out

    def _check_settings(self, n_features: int) -> None:
        check_whole("n_components", self.n_components, 1)
        check_choice("covariance_type", self.covariance_type, ["full", "diag"])
        check_positive("mean_precision_prior", self.mean_precision_prior)
        if self.weight_concentration_prior is not None:
            check_positive("weight_concentration_prior", self.weight_concentration_prior)
        dof = self.degrees_of_freedom_prior
        least = n_features - 1 if self.covariance_type == "full" else 0
        if dof is not None and not dof > least:
            raise ValueError(
                f"degrees_of_freedom_prior must be larger than {least}, received {dof!r}"
            )
        if self.mean_prior is not None and np.shape(self.mean_prior) != (n_features,):
            raise ValueError(
                f"mean_prior must have shape ({n_features},), received {np.shape(self.mean_prior)}"
            )
        self._check_covariance_prior(n_features)

    def _check_covariance_prior(self, n_features: int) -> None:
        if self.covariance_prior is None:
            return
        given = np.asarray(self.covariance_prior, dtype=np.float64)
        wanted = (n_features, n_features) if self.covariance_type == "full" else (n_features,)
        if given.shape != wanted:
            raise ValueError(f"covariance_prior must have shape {wanted}, received {given.shape}")
        proper = (
            is_positive_definite(given) if self.covariance_type == "full" else (given > 0).all()
        )
        if not proper:
            raise ValueError(
                "covariance_prior must be positive definite, received "
                f"{np.array2string(given, threshold=9)}"
            )

    def _make_model(self, units: FeatureUnits) -> GaussianMixture | DiagonalGaussianMixture:
        k, d = int(self.n_components), len(units.shift)
        full = self.covariance_type == "full"
        weight = self.weight_concentration_prior
        mean = np.zeros(d)
        if self.mean_prior is not None:
            mean = units.apply(np.asarray(self.mean_prior, dtype=np.float64))
        if self.covariance_prior is not None:
            scale = np.outer(units.scale, units.scale) if full else units.scale**2
            scatter = np.asarray(self.covariance_prior, dtype=np.float64) / scale
        else:
            scatter = units.covariance
            if np.linalg.eigvalsh(scatter)[0] < LEAST_SCATTER:
                # constant or redundant features would make the prior improper
                scatter = scatter + LEAST_SCATTER * np.eye(d)
            scatter = scatter if full else np.diag(scatter)
        kind = GaussianMixture if full else DiagonalGaussianMixture
        return kind(
            k,
            1.0 / k if weight is None else float(weight),
            mean,
            float(self.mean_precision_prior),
            float(d if self.degrees_of_freedom_prior is None else self.degrees_of_freedom_prior),
            scatter,
            units.covariance,
        )

    def _in_data_units(self, q: Product) -> Product:
        shift, scale = self._units.shift, self._units.scale
        p = q["components"].parameters()
        if self.covariance_type == "diag":
            components: Any = NormalGamma.from_parameters(
                shift[:, None] + scale[:, None] * p["mean"],
                p["precision"],
                p["shape"],
                p["rate"] * scale**2,
            )
        else:
            components = NormalWishart.from_parameters(
                shift + scale * p["mean"],
                p["confidence"],
                p["dof"],
                p["scale"] / np.outer(scale, scale),
            )
        return Product(weights=q["weights"], components=components)

    def _rebuild(self) -> None:
        self._model = self._make_model(self._units)
        super()._rebuild()

    def _take(self, node: int) -> None:
        weights, components = self.posterior_["weights"], self.posterior_["components"]
        self.weight_concentration_ = weights.parameters()["concentration"]
        self.weights_ = self.weight_concentration_ / self.weight_concentration_.sum()
        p = components.parameters()
        if self.covariance_type == "diag":
            self.means_ = p["mean"][..., 0]
            self.mean_precision_ = p["precision"][..., 0, 0]
            self.degrees_of_freedom_ = 2.0 * p["shape"]
            self.covariances_ = p["rate"] / p["shape"]
            return
        self.means_ = p["mean"]
        self.mean_precision_ = p["confidence"]
        self.degrees_of_freedom_ = p["dof"]
        self.covariances_ = symmetrize(inverse(p["scale"])) / p["dof"][:, None, None]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
