"""NormalWishart: arrays of (mean, precision matrix) pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmfvi.families.base import MATRIX, SCALAR, VECTOR, Family
from dmfvi.families.normal import HALF_LOG_2PI
from dmfvi.families.wishart import Wishart, dof_from_log_gap
from dmfvi.linalg import (
    FloatArray,
    inverse,
    log_det,
    max_step_definite,
    max_step_positive,
    symmetrize,
)


class NormalWishart(Family):
    """N(mu; m, (k L)^-1) Wishart(L; n, S).

    eta = (k m, -k/2, -(S^-1 + k m m')/2, (n-p)/2), T = (L mu, mu' L mu, L, log|L|).

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = (
        "scaled_mean",
        "negative_half_confidence",
        "negative_half_scatter",
        "half_excess_dof",
    )
    statistic_names = ("precision_times_mean", "quadratic", "precision", "log_det_precision")
    event_axes = (VECTOR, SCALAR, MATRIX, SCALAR)

    @classmethod
    def from_parameters(
        cls, mean: ArrayLike, confidence: ArrayLike, dof: ArrayLike, scale: ArrayLike
    ) -> Self:
        """From m (..., p), k, n and S (..., p, p)."""
        m = np.asarray(mean, dtype=np.float64)
        k = np.asarray(confidence, dtype=np.float64)
        outer = m[..., :, None] * m[..., None, :]
        scatter = (
            symmetrize(inverse(np.asarray(scale, dtype=np.float64))) + k[..., None, None] * outer
        )
        half_dof = 0.5 * (np.asarray(dof, dtype=np.float64) - m.shape[-1])
        return cls(k[..., None] * m, -0.5 * k, -0.5 * scatter, half_dof)

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[L mu], E[mu' L mu], E[L], E[log|L|]."""
        linear, quadratic, matrix, log_mean = (np.asarray(v, dtype=np.float64) for v in mean)
        p = linear.shape[-1]
        dof = dof_from_log_gap(log_mean - log_det(matrix), p)
        m = np.linalg.solve(matrix, linear[..., None])[..., 0]
        confidence = p / (quadratic - np.einsum("...i,...i->...", m, linear))
        return cls.from_parameters(m, confidence, dof, matrix / dof[..., None, None])

    @property
    def dimension(self) -> int:
        """p."""
        return int(self.scaled_mean.shape[-1])

    def parameters(self) -> dict[str, FloatArray]:
        confidence = -2.0 * self.negative_half_confidence
        m = self.scaled_mean / confidence[..., None]
        return {
            "mean": m,
            "confidence": confidence,
            "dof": 2.0 * self.half_excess_dof + self.dimension,
            "scale": inverse(self._inverse_scale()),
        }

    def _inverse_scale(self) -> FloatArray:
        """S^-1 = scatter - k m m'."""
        confidence = -2.0 * self.negative_half_confidence
        m = self.scaled_mean / confidence[..., None]
        outer = m[..., :, None] * m[..., None, :]
        return np.asarray(-2.0 * self.negative_half_scatter - confidence[..., None, None] * outer)

    def _wishart(self) -> Wishart:
        return Wishart(self.half_excess_dof - 0.5, -0.5 * self._inverse_scale())

    def mean(self) -> tuple[FloatArray, ...]:
        log_mean, matrix = self._wishart().mean()
        confidence = -2.0 * self.negative_half_confidence
        m = self.scaled_mean / confidence[..., None]
        linear = np.einsum("...ij,...j->...i", matrix, m)
        quadratic = self.dimension / confidence + np.einsum("...i,...i->...", m, linear)
        return linear, quadratic, matrix, log_mean

    def log_partition(self) -> FloatArray:
        confidence = -2.0 * self.negative_half_confidence
        return self._wishart().log_partition() - 0.5 * self.dimension * np.log(confidence)

    def statistics(self, x: tuple[ArrayLike, ArrayLike]) -> tuple[FloatArray, ...]:
        mu, precision = (np.asarray(value, dtype=np.float64) for value in x)
        linear = np.einsum("...ij,...j->...i", precision, mu)
        return linear, np.einsum("...i,...i->...", mu, linear), precision, log_det(precision)

    def log_base_measure(self, x: tuple[ArrayLike, ArrayLike]) -> float:
        return -HALF_LOG_2PI * self.dimension

    def expected_log_base_measure(self) -> FloatArray:
        return np.full(self.batch_shape, -HALF_LOG_2PI * self.dimension)

    def in_domain(self) -> NDArray[np.bool_]:
        positive = self.negative_half_confidence < 0
        safe = self.replace(
            self.scaled_mean,
            np.where(positive, self.negative_half_confidence, -1.0),
            *self.natural[2:],
        )
        return positive & safe._wishart().in_domain()

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        """S^-1 and k are positive iff the linear block [[scatter, k m], [k m', k]] is definite."""
        pairs = zip(direction, self.natural, strict=True)
        d = [np.broadcast_to(np.asarray(v), eta.shape) for v, eta in pairs]
        dof_limit = max_step_positive(2.0 * self.half_excess_dof + 1.0, 2.0 * d[3])
        return np.minimum(dof_limit, max_step_definite(_bordered(self.natural), _bordered(d)))

    def mean_value(self) -> tuple[FloatArray, FloatArray]:
        return self.parameters()["mean"], self._wishart().mean_value()

    def variance(self) -> tuple[FloatArray, FloatArray]:
        p = self.parameters()
        freedom = p["dof"] - self.dimension - 1.0
        with np.errstate(divide="ignore"):
            unit = np.where(freedom > 0, 1.0 / (p["confidence"] * freedom), np.inf)
        spread = np.diagonal(inverse(p["scale"]), axis1=-2, axis2=-1)
        return unit[..., None] * spread, self._wishart().variance()

    def draw(
        self, rng: np.random.Generator, size: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        p = self.parameters()
        precision = self._wishart().draw(rng, size)
        factor = np.linalg.cholesky(precision * p["confidence"][..., None, None])
        noise = rng.standard_normal(precision.shape[:-1])
        offset = np.linalg.solve(np.swapaxes(factor, -1, -2), noise[..., None])[..., 0]
        return p["mean"] + offset, precision


def _bordered(natural: Sequence[FloatArray]) -> FloatArray:
    """[[scatter, k m], [k m', k]], linear in the natural parameters."""
    linear, half_confidence, half_scatter = natural[:3]
    p = linear.shape[-1]
    whole = np.empty((*half_confidence.shape, p + 1, p + 1))
    whole[..., :p, :p] = -2.0 * half_scatter
    whole[..., :p, p] = linear
    whole[..., p, :p] = linear
    whole[..., p, p] = -2.0 * half_confidence
    return whole
