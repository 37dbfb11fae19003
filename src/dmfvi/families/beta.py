"""Beta: arrays of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, betaln, psi

from dmfvi.families.base import SCALAR, Family
from dmfvi.families.dirichlet import concentration_from_mean_log
from dmfvi.linalg import FloatArray, max_step_positive


class Beta(Family):
    """Beta(a, b): eta = (a - 1, b - 1), T(x) = (log x, log(1 - x)).

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = ("successes_minus_one", "failures_minus_one")
    statistic_names = ("log", "log_complement")
    event_axes = (SCALAR, SCALAR)

    @classmethod
    def from_parameters(cls, successes: ArrayLike, failures: ArrayLike) -> Self:
        """From the two shape parameters."""
        return cls(
            np.asarray(successes, dtype=np.float64) - 1.0,
            np.asarray(failures, dtype=np.float64) - 1.0,
        )

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[log x] and E[log(1 - x)]: a Dirichlet of two parts."""
        stacked = np.stack(np.broadcast_arrays(*mean), axis=-1).astype(np.float64)
        both = concentration_from_mean_log(stacked)
        return cls.from_parameters(both[..., 0], both[..., 1])

    def parameters(self) -> dict[str, FloatArray]:
        return {
            "successes": self.successes_minus_one + 1.0,
            "failures": self.failures_minus_one + 1.0,
        }

    def mean(self) -> tuple[FloatArray, ...]:
        a, b = self.parameters().values()
        return psi(a) - psi(a + b), psi(b) - psi(a + b)

    def log_partition(self) -> FloatArray:
        a, b = self.parameters().values()
        return np.asarray(betaln(a, b))

    def statistics(self, x: ArrayLike) -> tuple[FloatArray, ...]:
        value = np.asarray(x, dtype=np.float64)
        return np.log(value), np.log1p(-value)

    def in_domain(self) -> NDArray[np.bool_]:
        a, b = self.parameters().values()
        return (a > 0) & (b > 0) & np.isfinite(a + b)

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        a, b = self.parameters().values()
        return np.minimum(
            max_step_positive(a, np.asarray(direction[0])),
            max_step_positive(b, np.asarray(direction[1])),
        )

    def mean_value(self) -> FloatArray:
        a, b = self.parameters().values()
        return a / (a + b)

    def variance(self) -> FloatArray:
        a, b = self.parameters().values()
        return a * b / ((a + b) ** 2 * (a + b + 1.0))

    def quantile(self, probability: float) -> FloatArray:
        a, b = self.parameters().values()
        return np.asarray(betaincinv(a, b, probability))

    def draw(self, rng: np.random.Generator, size: int | None = None) -> FloatArray:
        a, b = self.parameters().values()
        shape = self.batch_shape if size is None else (size, *self.batch_shape)
        # a draw may round to the ends, where the density is not defined
        draws = rng.beta(a, b, size=shape)
        return np.clip(draws, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)
