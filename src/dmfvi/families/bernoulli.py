"""Bernoulli: arrays of coins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from dmfvi.families.base import SCALAR, Family
from dmfvi.linalg import FloatArray


class Bernoulli(Family):
    """Bernoulli(p): eta = log p/(1-p), T(x) = x.

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = ("log_odds",)
    statistic_names = ("value",)
    event_axes = (SCALAR,)

    @classmethod
    def from_parameters(cls, probability: ArrayLike) -> Self:
        """From P(x = 1)."""
        return cls(logit(np.asarray(probability, dtype=np.float64)))

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[x] = p."""
        return cls.from_parameters(mean[0])

    def parameters(self) -> dict[str, FloatArray]:
        return {"probability": np.asarray(expit(self.log_odds))}

    def mean(self) -> tuple[FloatArray, ...]:
        return (np.asarray(expit(self.log_odds)),)

    def log_partition(self) -> FloatArray:
        return np.logaddexp(0.0, self.log_odds)

    def statistics(self, x: ArrayLike) -> tuple[FloatArray, ...]:
        return (np.asarray(x, dtype=np.float64),)

    def in_domain(self) -> NDArray[np.bool_]:
        return np.isfinite(self.log_odds)

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        return np.full(self.batch_shape, np.inf)

    def mean_value(self) -> FloatArray:
        return self.parameters()["probability"]

    def variance(self) -> FloatArray:
        p = self.mean_value()
        return p * (1.0 - p)

    def quantile(self, probability: float) -> FloatArray:
        return (np.asarray(probability) > 1.0 - self.mean_value()).astype(np.float64)

    def draw(self, rng: np.random.Generator, size: int | None = None) -> FloatArray:
        shape = self.batch_shape if size is None else (size, *self.batch_shape)
        return (rng.random(shape) < expit(self.log_odds)).astype(np.float64)
