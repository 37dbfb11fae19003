"""What all estimators of the PCA family share: transform, impute, score and sample from a posterior."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import NetworkEstimator, generator_of
from dmfvi.export import Pointwise
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.pca.posterior import PcaPosterior
from dmfvi.models.pca.response import ResponsePredictions, latent_deviations
from dmfvi.models.pointwise import of_gaussians
from dmfvi.shard_lists import joined
from dmfvi.validation import (
    check_choice,
    check_level,
    check_n_components,
    check_observed,
    check_whole,
)

#: what the deviations of predictions are from
Method = Literal["mean-field", "linear-response"]


@dataclass(eq=False, repr=False)
class FactorEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NetworkEstimator):
    """Transform, impute, score and sample from ``posterior_``; subclasses fit it."""

    n_components: int = 2
    _: KW_ONLY
    fit_mean: bool = True
    _takes_missing = True
    _one_noise = True

    def transform(
        self, X: ArrayLike, return_std: bool = False, *, uncertainty: Method = "mean-field"
    ) -> Any:
        """Posterior mean of z for each row, NaN allowed; with ``return_std`` also its standard deviations.

        ``uncertainty="linear-response"`` adds what is not known of the parameters, but for a rotation of the components: for small samples
        (docs/uncertainty.md).
        """
        check_choice("uncertainty", uncertainty, ["mean-field", "linear-response"])
        if uncertainty == "linear-response" and not return_std:
            raise ValueError(
                "uncertainty='linear-response' is about deviations: add return_std=True"
            )
        data = self._checked_rows(X)
        mean, covariance = self.posterior_.latent(data)
        if not return_std:
            return mean
        if uncertainty == "linear-response":
            return mean, latent_deviations(self, data)
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

    def impute(
        self,
        X: ArrayLike,
        return_std: bool = False,
        *,
        n_draws: int | None = None,
        random_state: Any = None,
        uncertainty: Method = "mean-field",
    ) -> Any:
        """X with missing entries replaced by their predictive means.

        With ``return_std`` also the predictive standard deviations, zero where X is observed. With ``n_draws`` multiple
        imputations (n_draws, n, D): missing entries are drawn, jointly within a draw, from the predictive distribution.
        ``uncertainty="linear-response"`` is for small samples with many gaps, where the deviations of mean field are too
        small: what is not known of the parameters is that of ``uncertainty`` (docs/uncertainty.md).
        """
        check_choice("uncertainty", uncertainty, ["mean-field", "linear-response"])
        data = self._checked_rows(X)
        if n_draws is not None:
            check_whole("n_draws", n_draws, 1)
            if return_std:
                raise ValueError(
                    "n_draws gives draws, which have no return_std: ask for one of them"
                )
            rng = generator_of(random_state)
            if uncertainty == "linear-response":
                drawn = self._response(data).draws(int(n_draws), rng)
            else:
                drawn = self.posterior_.draws(data, int(n_draws), rng)
            return np.where(np.isnan(data), drawn, data)
        if uncertainty == "linear-response" and return_std:
            mean, variance = self._response(data).predict()
        else:
            mean, variance = self.posterior_.predict(data)
        missing = np.isnan(data)
        filled = np.where(missing, mean, data)
        return (filled, np.where(missing, np.sqrt(variance), 0.0)) if return_std else filled

    def impute_interval(
        self, X: ArrayLike, level: float = 0.9, *, uncertainty: Method = "mean-field"
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of central predictive intervals; equal to X where it is observed."""
        check_level(level)
        filled, std = self.impute(X, return_std=True, uncertainty=uncertainty)
        width = ndtri(0.5 + 0.5 * level) * std
        return filled - width, filled + width

    def plot_components(self, ax: Any = None, level: float = 0.9) -> Any:
        """Draw the strongest components' loadings with their intervals; returns the matplotlib Axes."""
        from dmfvi.report.figures import plot_components

        check_is_fitted(self)
        check_level(level)
        return plot_components(self, ax, level)

    def plot_calibration(self, X: ArrayLike, truth: ArrayLike, ax: Any = None) -> Any:
        """Draw the share of missing entries of X whose true value lies in its interval, against the interval's level.

        ``truth`` is X without gaps, or with some; entries that are missing in both are left out. Returns the matplotlib Axes.
        """
        from dmfvi.report.figures import plot_calibration

        gaps = self._checked_rows(X)
        known = np.asarray(truth, dtype=np.float64)
        if known.shape != gaps.shape:
            raise ValueError(
                f"truth must have the shape of X, {gaps.shape}, received {known.shape}"
            )
        asked = np.isnan(gaps) & ~np.isnan(known)
        if not asked.any():
            raise ValueError(
                "no entry is missing in X and known in truth: give X with gaps, and truth with what belongs there"
            )
        filled, std = self.impute(X, return_std=True)
        filled, std = np.asarray(filled)[asked], np.asarray(std)[asked]

        def interval(level: float) -> tuple[FloatArray, FloatArray]:
            half = ndtri(0.5 + 0.5 * level) * std
            return filled - half, filled + half

        return plot_calibration(known[asked], interval, ax)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> FloatArray:
        """New rows from the posterior predictive distribution."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        return np.asarray(self.posterior_.sample(n_samples, generator_of(random_state)))

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Log-density of the observed part of each row at the posterior mean of the parameters.

        What is uncertain of the loadings widens the noise of each feature.
        """
        data = self._checked_rows(X)
        return np.asarray(self.posterior_.log_likelihood(data))

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log-density of the rows."""
        return float(joined(self.score_samples(X)).mean())

    def get_covariance(self) -> FloatArray:
        """The covariance of the data that the model implies: W W' + noise variance."""
        check_is_fitted(self)
        noise = self.noise_variance_ * np.eye(self.components_.shape[1])
        return np.asarray(self.components_.T @ self.components_ + noise)

    def _response(self, data: FloatArray) -> ResponsePredictions:
        return ResponsePredictions.of(self, data)

    # -- for subclasses -----------------------------------------------------------------------

    def _draws(self, rng: np.random.Generator, n_draws: int) -> dict[str, FloatArray]:
        posterior: PcaPosterior = self.posterior_
        family = posterior.family()  # refuses a point estimate
        rows, m = np.asarray(family["rows"].sample(rng, n_draws)), posterior.n_latent
        found = {"loadings": rows[..., :m]}
        if rows.shape[-1] > m:
            found["location"] = rows[..., m]
        return found | {"noise_precision": np.asarray(family["noise"].sample(rng, n_draws))}

    def _pointwise(
        self, draws: dict[str, FloatArray], seed: Any, X: Any, y: Any, **row_values: Any
    ) -> Pointwise:
        """Rows are N(location, W W' + noise) given a draw."""
        self._refuse_row_values(row_values)
        loadings, noise = draws["loadings"], 1.0 / draws["noise_precision"]
        location = draws.get("location", np.zeros(loadings.shape[:2]))
        # one noise for all features, or one for each
        diagonal = np.broadcast_to(noise.reshape(len(noise), -1), location.shape)
        covariance = loadings @ np.swapaxes(loadings, 1, 2)
        covariance = covariance + diagonal[:, :, None] * np.eye(location.shape[1])
        rows, rng = self._checked_rows(X), np.random.default_rng([seed, 1])
        share = np.zeros((len(location), 1))
        return of_gaussians(rows, location[:, None], covariance[:, None], share, rng)

    def _factor_shards(self, X: Any, session: Session) -> list[FloatArray]:
        """Checked rows of the nodes of this process, for a first fit."""
        shards = self._row_shards(X, session, least=2, stacklevel=5)
        check_n_components(self.n_components, shards[0].shape[1])
        if session.whole:
            check_observed(shards, getattr(self, "feature_names_in_", None))
        return shards

    def _take(self, node: int) -> None:
        posterior: PcaPosterior = self.posterior_
        self.components_ = posterior.loadings.T.copy()
        self.mean_ = posterior.location.copy()
        self.n_components_ = len(self.components_)
        self.noise_precision_ = posterior.noise_precision
        self.noise_variance_ = posterior.noise_variance
        squares = posterior.loadings**2
        self.explained_variance_ = _along_components(squares, posterior.noise_precision)
        self._n_features_out = len(self.components_)


def _along_components(squares: FloatArray, precision: Any) -> FloatArray:
    """Variance along each component, noise included, for squared loadings (D, M).

    With one noise for each feature it is counted in noise variances, 1 + sum_d tau_d w_d^2, whatever the features' units are.
    """
    if np.ndim(precision) == 0:
        return np.asarray(squares.sum(0) + 1.0 / precision)
    return np.asarray(1.0 + precision @ squares)
