"""NormalGamma: arrays of (coefficient vector, noise precision) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from dmfvi.families.base import MATRIX, SCALAR, VECTOR, Family
from dmfvi.families.gamma import Gamma
from dmfvi.families.normal import HALF_LOG_2PI
from dmfvi.linalg import (
    FloatArray,
    inverse,
    is_positive_definite,
    log_det,
    max_step_definite,
    max_step_positive,
    symmetrize,
)


class NormalGamma(Family):
    """N(w; m, (t P)^-1) Gamma(t; a, b), b a rate.

    eta = (P m, -P/2, a - 1 + p/2, -(b + m'Pm/2)), T = (t w, t w w', log t, t).

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = (
        "mean_times_precision",
        "negative_half_precision",
        "shape_excess",
        "negative_raw_rate",
    )
    statistic_names = (
        "precision_times_value",
        "precision_times_outer",
        "log_precision",
        "precision",
    )
    event_axes = (VECTOR, MATRIX, SCALAR, SCALAR)

    @classmethod
    def from_parameters(
        cls, mean: ArrayLike, precision: ArrayLike, shape: ArrayLike, rate: ArrayLike
    ) -> Self:
        """From m (..., p), P (..., p, p), a and b."""
        m = np.asarray(mean, dtype=np.float64)
        matrix = np.asarray(precision, dtype=np.float64)
        linear = np.einsum("...ij,...j->...i", matrix, m)
        half_energy = 0.5 * np.einsum("...i,...i->...", m, linear)
        excess = np.asarray(shape, dtype=np.float64) - 1.0 + 0.5 * m.shape[-1]
        return cls(linear, -0.5 * matrix, excess, -(np.asarray(rate) + half_energy))

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[t w], E[t w w'], E[log t], E[t]."""
        linear, matrix, log_mean, scale = (np.asarray(v, dtype=np.float64) for v in mean)
        noise = Gamma.from_mean(log_mean, scale)
        m = linear / scale[..., None]
        spread = matrix - m[..., :, None] * linear[..., None, :]
        return cls.from_parameters(m, symmetrize(inverse(spread)), noise.shape, noise.rate)

    @property
    def dimension(self) -> int:
        """p."""
        return int(self.mean_times_precision.shape[-1])

    @property
    def precision(self) -> FloatArray:
        """P."""
        return -2.0 * self.negative_half_precision

    @property
    def noise(self) -> Gamma:
        """The marginal of t."""
        linear = self.mean_times_precision
        energy = np.einsum("...i,...i->...", self._location(), linear)
        shape = self.shape_excess + 1.0 - 0.5 * self.dimension
        return Gamma.from_parameters(shape, -self.negative_raw_rate - 0.5 * energy)

    def _location(self) -> FloatArray:
        return np.asarray(
            np.linalg.solve(self.precision, self.mean_times_precision[..., None])[..., 0]
        )

    def parameters(self) -> dict[str, FloatArray]:
        noise = self.noise
        return {
            "mean": self._location(),
            "precision": self.precision,
            "shape": noise.shape,
            "rate": noise.rate,
        }

    def mean(self) -> tuple[FloatArray, ...]:
        log_mean, scale = self.noise.mean()
        m = self._location()
        linear = scale[..., None] * m
        return (
            linear,
            symmetrize(inverse(self.precision)) + linear[..., :, None] * m[..., None, :],
            log_mean,
            scale,
        )

    def log_partition(self) -> FloatArray:
        return self.noise.log_partition() - 0.5 * log_det(self.precision)

    def statistics(self, x: tuple[ArrayLike, ArrayLike]) -> tuple[FloatArray, ...]:
        w, t = (np.asarray(value, dtype=np.float64) for value in x)
        linear = t[..., None] * w
        return linear, linear[..., :, None] * w[..., None, :], np.log(t), t

    def log_base_measure(self, x: tuple[ArrayLike, ArrayLike]) -> float:
        return -HALF_LOG_2PI * self.dimension

    def expected_log_base_measure(self) -> FloatArray:
        return np.full(self.batch_shape, -HALF_LOG_2PI * self.dimension)

    def in_domain(self) -> NDArray[np.bool_]:
        finite = np.isfinite(self.mean_times_precision).all(-1) & is_positive_definite(
            self.precision
        )
        safe = np.where(
            finite[..., None, None], self.negative_half_precision, -0.5 * np.eye(self.dimension)
        )
        member = self.replace(self.mean_times_precision, safe, *self.natural[2:])
        return np.asarray(finite & member.noise.in_domain())

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        """P and b are positive iff the linear block [[P, Pm], [(Pm)', 2b + m'Pm]] is definite."""
        pairs = zip(direction, self.natural, strict=True)
        d = [np.broadcast_to(np.asarray(v), eta.shape) for v, eta in pairs]
        shape = self.shape_excess + 1.0 - 0.5 * self.dimension
        definite = max_step_definite(_bordered(self.natural), _bordered(d))
        return np.minimum(max_step_positive(shape, d[2]), definite)

    def mean_value(self) -> tuple[FloatArray, FloatArray]:
        return self._location(), self.noise.mean_value()

    def variance(self) -> tuple[FloatArray, FloatArray]:
        noise = self.noise
        with np.errstate(divide="ignore"):
            unit = np.where(noise.shape > 1.0, noise.rate / (noise.shape - 1.0), np.inf)
        spread = np.diagonal(inverse(self.precision), axis1=-2, axis2=-1)
        return unit[..., None] * spread, noise.variance()

    def quantile(self, probability: float) -> tuple[FloatArray, FloatArray]:
        noise = self.noise
        spread = np.diagonal(inverse(self.precision), axis1=-2, axis2=-1)
        scale = np.sqrt((noise.rate / noise.shape)[..., None] * spread)
        steps = np.asarray(stdtrit(2.0 * noise.shape, probability))
        return self._location() + scale * steps[..., None], noise.quantile(probability)

    def draw(
        self, rng: np.random.Generator, size: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        t = self.noise.draw(rng, size)
        factor = np.linalg.cholesky(self.precision)
        draws = rng.standard_normal((*t.shape, self.dimension))
        offset = np.linalg.solve(np.swapaxes(factor, -1, -2), draws[..., None])[..., 0]
        return self._location() + offset / np.sqrt(t)[..., None], t


def _bordered(natural: Sequence[FloatArray]) -> FloatArray:
    linear, half_precision, _, raw_rate = natural
    p = linear.shape[-1]
    whole = np.empty((*raw_rate.shape, p + 1, p + 1))
    whole[..., :p, :p] = -2.0 * half_precision
    whole[..., :p, p] = linear
    whole[..., p, :p] = linear
    whole[..., p, p] = -2.0 * raw_rate
    return whole
