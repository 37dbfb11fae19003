"""MultivariateNormal: arrays of Gaussian vectors with full covariance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dmfvi.families.base import MATRIX, VECTOR, Family
from dmfvi.families.normal import HALF_LOG_2PI
from dmfvi.linalg import (
    FloatArray,
    inverse,
    is_positive_definite,
    log_det,
    max_step_definite,
    symmetrize,
)


class MultivariateNormal(Family):
    """N(m, P^-1): eta = (P m, -P/2), T(x) = (x, x x').

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = ("mean_times_precision", "negative_half_precision")
    statistic_names = ("value", "outer")
    event_axes = (VECTOR, MATRIX)

    @classmethod
    def from_parameters(cls, mean: ArrayLike, covariance: ArrayLike) -> Self:
        """From mean (..., p) and covariance (..., p, p)."""
        precision = symmetrize(inverse(np.asarray(covariance, dtype=np.float64)))
        linear = np.einsum("...ij,...j->...i", precision, np.asarray(mean, dtype=np.float64))
        return cls(linear, -0.5 * precision)

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[x] and E[x x']."""
        first, second = (np.asarray(value, dtype=np.float64) for value in mean)
        return cls.from_parameters(first, second - first[..., :, None] * first[..., None, :])

    @property
    def precision(self) -> FloatArray:
        """Inverse covariance."""
        return -2.0 * self.negative_half_precision

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return int(self.mean_times_precision.shape[-1])

    def parameters(self) -> dict[str, FloatArray]:
        covariance = symmetrize(inverse(self.precision))
        mean = np.einsum("...ij,...j->...i", covariance, self.mean_times_precision)
        return {"mean": mean, "covariance": covariance}

    def mean(self) -> tuple[FloatArray, ...]:
        p = self.parameters()
        first = p["mean"]
        return first, p["covariance"] + first[..., :, None] * first[..., None, :]

    def log_partition(self) -> FloatArray:
        mean = self.parameters()["mean"]
        quadratic = np.einsum("...i,...i->...", mean, self.mean_times_precision)
        return np.asarray(0.5 * quadratic - 0.5 * log_det(self.precision))

    def statistics(self, x: ArrayLike) -> tuple[FloatArray, ...]:
        value = np.asarray(x, dtype=np.float64)
        return value, value[..., :, None] * value[..., None, :]

    def log_base_measure(self, x: ArrayLike) -> float:
        return -HALF_LOG_2PI * self.dimension

    def expected_log_base_measure(self) -> FloatArray:
        return np.full(self.batch_shape, -HALF_LOG_2PI * self.dimension)

    def in_domain(self) -> NDArray[np.bool_]:
        return np.isfinite(self.mean_times_precision).all(-1) & is_positive_definite(self.precision)

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        return max_step_definite(self.precision, -2.0 * np.asarray(direction[1]))

    def mean_value(self) -> FloatArray:
        return self.parameters()["mean"]

    def variance(self) -> FloatArray:
        return np.diagonal(self.parameters()["covariance"], axis1=-2, axis2=-1).copy()

    def quantile(self, probability: float) -> FloatArray:
        return np.asarray(self.mean_value() + np.sqrt(self.variance()) * ndtri(probability))

    def draw(self, rng: np.random.Generator, size: int | None = None) -> FloatArray:
        p = self.parameters()
        shape = (
            self.mean_times_precision.shape
            if size is None
            else (size, *self.mean_times_precision.shape)
        )
        factor = np.linalg.cholesky(p["covariance"])
        noise = np.einsum("...ij,...j->...i", factor, rng.standard_normal(shape))
        return np.asarray(p["mean"] + noise)
