"""Dirichlet: arrays of probability vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, gammaln, polygamma, psi

from dmfvi.families.base import VECTOR, Family
from dmfvi.linalg import FloatArray, max_step_positive


def inverse_digamma(value: FloatArray) -> FloatArray:
    """x with psi(x) = value (Minka 2000, appendix C: Newton from his start)."""
    x = np.where(value >= -2.22, np.exp(value) + 0.5, -1.0 / (value - psi(1.0)))
    for _ in range(6):
        x = x - (psi(x) - value) / polygamma(1, x)
    return np.asarray(x)


def concentration_from_mean_log(mean_log: FloatArray) -> FloatArray:
    """Dirichlet concentration with E[log x_k] = mean_log, by Newton (Minka 2000, eq. 18)."""
    alpha = np.ones_like(mean_log)
    for _ in range(1000):  # fixed point: slow but always inside the domain
        updated = inverse_digamma(psi(alpha.sum(-1, keepdims=True)) + mean_log)
        done = np.max(np.abs(updated - alpha) / alpha) < 1e-4
        alpha = updated
        if done:
            break
    for _ in range(20):
        gradient = psi(alpha.sum(-1, keepdims=True)) - psi(alpha) + mean_log
        diagonal = -polygamma(1, alpha)
        constant = polygamma(1, alpha.sum(-1, keepdims=True))
        offset = (gradient / diagonal).sum(-1, keepdims=True) / (
            1 / constant + (1 / diagonal).sum(-1, keepdims=True)
        )
        move = (gradient - offset) / diagonal
        # halve a step that would leave the positive orthant
        alpha = np.where(alpha - move > 0, alpha - move, 0.5 * alpha)
        if np.max(np.abs(move) / alpha) < 1e-14:
            break
    return alpha


class Dirichlet(Family):
    """Dirichlet(alpha): eta = alpha - 1, T(x) = log x.

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = ("concentration_minus_one",)
    statistic_names = ("log",)
    event_axes = (VECTOR,)

    @classmethod
    def from_parameters(cls, concentration: ArrayLike) -> Self:
        """From the concentration alpha (..., K)."""
        return cls(np.asarray(concentration, dtype=np.float64) - 1.0)

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[log x]."""
        return cls.from_parameters(
            concentration_from_mean_log(np.asarray(mean[0], dtype=np.float64))
        )

    @property
    def concentration(self) -> FloatArray:
        """alpha."""
        return self.concentration_minus_one + 1.0

    def parameters(self) -> dict[str, FloatArray]:
        return {"concentration": self.concentration}

    def mean(self) -> tuple[FloatArray, ...]:
        return (self._mean_log,)

    def log_partition(self) -> FloatArray:
        return self._log_partition

    # kept once computed: of topics over a large vocabulary these are as costly as a sweep over the documents
    @cached_property
    def _mean_log(self) -> FloatArray:
        alpha = self.concentration
        return np.asarray(psi(alpha) - psi(alpha.sum(-1, keepdims=True)))

    @cached_property
    def _log_partition(self) -> FloatArray:
        alpha = self.concentration
        return np.asarray(gammaln(alpha).sum(-1) - gammaln(alpha.sum(-1)))

    def statistics(self, x: ArrayLike) -> tuple[FloatArray, ...]:
        return (np.log(np.asarray(x, dtype=np.float64)),)

    def in_domain(self) -> NDArray[np.bool_]:
        return np.asarray(
            (self.concentration > 0).all(-1) & np.isfinite(self.concentration_minus_one).all(-1)
        )

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        return np.asarray(max_step_positive(self.concentration, np.asarray(direction[0])).min(-1))

    def mean_value(self) -> FloatArray:
        return self.concentration / self.concentration.sum(-1, keepdims=True)

    def variance(self) -> FloatArray:
        m, total = self.mean_value(), self.concentration.sum(-1, keepdims=True)
        return m * (1.0 - m) / (total + 1.0)

    def quantile(self, probability: float) -> FloatArray:
        a = self.concentration
        return np.asarray(betaincinv(a, a.sum(-1, keepdims=True) - a, probability))

    def draw(self, rng: np.random.Generator, size: int | None = None) -> FloatArray:
        shape = (
            self.concentration_minus_one.shape
            if size is None
            else (size, *self.concentration_minus_one.shape)
        )
        draws = rng.standard_gamma(self.concentration, size=shape)
        return np.asarray(draws / draws.sum(-1, keepdims=True))
