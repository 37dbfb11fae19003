"""Categorical: arrays of dice, minimal (the last category is the reference)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from dmfvi.families.base import VECTOR, Family
from dmfvi.linalg import FloatArray


class Categorical(Family):
    """Categorical(p_1..p_K): eta_k = log p_k/p_K for k < K, T(x) = one-hot without its last entry.

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = ("log_odds_to_last",)
    statistic_names = ("one_hot",)
    event_axes = (VECTOR,)

    @classmethod
    def from_parameters(cls, probabilities: ArrayLike) -> Self:
        """From probabilities (..., K) that sum to one."""
        log = np.log(np.asarray(probabilities, dtype=np.float64))
        return cls(log[..., :-1] - log[..., -1:])

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From the first K - 1 probabilities."""
        first = np.asarray(mean[0], dtype=np.float64)
        last = 1.0 - first.sum(-1, keepdims=True)
        return cls.from_parameters(np.concatenate([first, last], axis=-1))

    def _log_probabilities(self) -> FloatArray:
        padded = np.concatenate([self.log_odds_to_last, np.zeros((*self.batch_shape, 1))], axis=-1)
        return np.asarray(padded - logsumexp(padded, axis=-1, keepdims=True))

    def parameters(self) -> dict[str, FloatArray]:
        return {"probabilities": np.exp(self._log_probabilities())}

    def mean(self) -> tuple[FloatArray, ...]:
        return (np.exp(self._log_probabilities())[..., :-1],)

    def log_partition(self) -> FloatArray:
        return -self._log_probabilities()[..., -1]

    def statistics(self, x: ArrayLike) -> tuple[FloatArray, ...]:
        label = np.asarray(x, dtype=np.intp)
        return (np.eye(self.log_odds_to_last.shape[-1] + 1)[label][..., :-1],)

    def in_domain(self) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(self.log_odds_to_last).all(-1))

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        return np.full(self.batch_shape, np.inf)

    def mean_value(self) -> FloatArray:
        """Of the indicators of the classes: their probabilities."""
        return self.parameters()["probabilities"]

    def variance(self) -> FloatArray:
        """Of the indicators of the classes."""
        p = self.mean_value()
        return p * (1.0 - p)

    def quantile(self, probability: float) -> FloatArray:
        raise ValueError("classes have no order, so that a Categorical has no quantiles")

    def draw(self, rng: np.random.Generator, size: int | None = None) -> NDArray[np.intp]:
        shape = self.batch_shape if size is None else (size, *self.batch_shape)
        cumulative = np.cumsum(self.parameters()["probabilities"], axis=-1)
        draws = rng.random((*shape, 1)) > cumulative[..., :-1]
        return np.asarray(draws.sum(-1), dtype=np.intp)
