"""Normal: arrays of independent scalar Gaussians."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dmfvi.families.base import SCALAR, Family
from dmfvi.linalg import FloatArray, max_step_positive

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


class Normal(Family):
    """N(m, v): eta = (m/v, -1/2v), T(x) = (x, x^2).

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = ("mean_times_precision", "negative_half_precision")
    statistic_names = ("value", "square")
    event_axes = (SCALAR, SCALAR)

    @classmethod
    def from_parameters(cls, mean: ArrayLike, variance: ArrayLike) -> Self:
        """From mean and variance."""
        precision = 1.0 / np.asarray(variance, dtype=np.float64)
        return cls(np.asarray(mean) * precision, -0.5 * precision)

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[x] and E[x^2]."""
        first, second = (np.asarray(value, dtype=np.float64) for value in mean)
        return cls.from_parameters(first, second - first**2)

    @property
    def precision(self) -> FloatArray:
        """1 / variance."""
        return -2.0 * self.negative_half_precision

    def parameters(self) -> dict[str, FloatArray]:
        variance = 1.0 / self.precision
        return {"mean": self.mean_times_precision * variance, "variance": variance}

    def mean(self) -> tuple[FloatArray, ...]:
        p = self.parameters()
        return p["mean"], p["mean"] ** 2 + p["variance"]

    def log_partition(self) -> FloatArray:
        return 0.5 * self.mean_times_precision**2 / self.precision - 0.5 * np.log(self.precision)

    def statistics(self, x: ArrayLike) -> tuple[FloatArray, ...]:
        value = np.asarray(x, dtype=np.float64)
        return value, value**2

    def log_base_measure(self, x: ArrayLike) -> float:
        return -HALF_LOG_2PI

    def expected_log_base_measure(self) -> FloatArray:
        return np.full(self.batch_shape, -HALF_LOG_2PI)

    def in_domain(self) -> NDArray[np.bool_]:
        return np.isfinite(self.mean_times_precision) & (self.precision > 0)

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        return max_step_positive(self.precision, -2.0 * np.asarray(direction[1]))

    def mean_value(self) -> FloatArray:
        return self.parameters()["mean"]

    def variance(self) -> FloatArray:
        return self.parameters()["variance"]

    def quantile(self, probability: float) -> FloatArray:
        p = self.parameters()
        return np.asarray(p["mean"] + np.sqrt(p["variance"]) * ndtri(probability))

    def draw(self, rng: np.random.Generator, size: int | None = None) -> FloatArray:
        p = self.parameters()
        shape = self.batch_shape if size is None else (size, *self.batch_shape)
        return p["mean"] + np.sqrt(p["variance"]) * rng.standard_normal(shape)
