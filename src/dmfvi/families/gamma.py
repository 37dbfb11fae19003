"""Gamma: arrays of positive scalars (precisions, rates)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, gammaln, polygamma, psi

from dmfvi.families.base import SCALAR, Family
from dmfvi.linalg import FloatArray, max_step_positive


class Gamma(Family):
    """Gamma(a, b), b a rate: eta = (a - 1, -b), T(x) = (log x, x); E[x] = a/b.

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = ("shape_minus_one", "negative_rate")
    statistic_names = ("log", "value")
    event_axes = (SCALAR, SCALAR)

    @classmethod
    def from_parameters(cls, shape: ArrayLike, rate: ArrayLike) -> Self:
        """From shape and rate."""
        return cls(np.asarray(shape, dtype=np.float64) - 1.0, -np.asarray(rate, dtype=np.float64))

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[log x] and E[x]: Newton on log a - psi(a) = log E[x] - E[log x]."""
        log_mean, mean_value = (np.asarray(value, dtype=np.float64) for value in mean)
        gap = np.log(mean_value) - log_mean
        # Minka's start, good to 2 % everywhere; generalised Newton steps finish it
        shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
        for _ in range(8):
            slope = 1 / shape - polygamma(1, shape)
            shape = 1 / (1 / shape + (np.log(shape) - psi(shape) - gap) / (shape**2 * slope))
        return cls.from_parameters(shape, shape / mean_value)

    @property
    def shape(self) -> FloatArray:
        """a."""
        return self.shape_minus_one + 1.0

    @property
    def rate(self) -> FloatArray:
        """b."""
        return -self.negative_rate

    def parameters(self) -> dict[str, FloatArray]:
        return {"shape": self.shape, "rate": self.rate}

    def mean(self) -> tuple[FloatArray, ...]:
        return psi(self.shape) - np.log(self.rate), self.shape / self.rate

    def log_partition(self) -> FloatArray:
        return np.asarray(gammaln(self.shape) - self.shape * np.log(self.rate))

    def statistics(self, x: ArrayLike) -> tuple[FloatArray, ...]:
        value = np.asarray(x, dtype=np.float64)
        return np.log(value), value

    def in_domain(self) -> NDArray[np.bool_]:
        return (self.shape > 0) & (self.rate > 0) & np.isfinite(self.shape + self.rate)

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        return np.minimum(
            max_step_positive(self.shape, np.asarray(direction[0])),
            max_step_positive(self.rate, -np.asarray(direction[1])),
        )

    def mean_value(self) -> FloatArray:
        return self.shape / self.rate

    def variance(self) -> FloatArray:
        return self.shape / self.rate**2

    def quantile(self, probability: float) -> FloatArray:
        return np.asarray(gammaincinv(self.shape, probability) / self.rate)

    def draw(self, rng: np.random.Generator, size: int | None = None) -> FloatArray:
        shape = self.batch_shape if size is None else (size, *self.batch_shape)
        return np.asarray(rng.gamma(self.shape, 1.0 / self.rate, size=shape))
