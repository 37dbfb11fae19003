"""Wishart: arrays of positive-definite matrices (precision matrices)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import multigammaln, polygamma, psi

from dmfvi.families.base import MATRIX, SCALAR, Family
from dmfvi.linalg import (
    FloatArray,
    inverse,
    is_positive_definite,
    log_det,
    max_step_definite,
    max_step_positive,
    symmetrize,
)

LOG_2 = float(np.log(2.0))


def multi_digamma(value: FloatArray, dimension: int) -> FloatArray:
    """psi_p(x) = sum_j psi(x - j/2), the gradient of the multivariate log-gamma function."""
    return np.asarray(sum(psi(value - 0.5 * j) for j in range(dimension)))


def dof_from_log_gap(gap: FloatArray, dimension: int) -> FloatArray:
    """n with psi_p(n/2) + p log 2 - p log n = gap (gap < 0): Newton in log(n - p + 1)."""
    p = dimension
    free = np.ones_like(gap)  # n = p - 1 + free
    for _ in range(200):
        n = p - 1 + free
        value = multi_digamma(n / 2, p) + p * LOG_2 - p * np.log(n) - gap
        slope = 0.5 * sum(polygamma(1, n / 2 - 0.5 * j) for j in range(p)) - p / n
        move = np.clip(-value / (slope * free), -2.0, 2.0)
        free = free * np.exp(move)
        if np.max(np.abs(move)) < 1e-14:
            break
    return np.asarray(p - 1 + free)


class Wishart(Family):
    """Wishart(n, S) with E[X] = n S: eta = ((n-p-1)/2, -S^-1/2), T(X) = (log|X|, X).

    Parameters
    ----------
    *natural : array-like
        Natural parameters in the order of eta; ``from_parameters`` takes the usual ones.
    """

    natural_names = ("half_excess_dof", "negative_half_inverse_scale")
    statistic_names = ("log_det", "matrix")
    event_axes = (SCALAR, MATRIX)

    @classmethod
    def from_parameters(cls, dof: ArrayLike, scale: ArrayLike) -> Self:
        """From degrees of freedom n > p - 1 and scale matrix S."""
        matrix = np.asarray(scale, dtype=np.float64)
        p = matrix.shape[-1]
        return cls(
            0.5 * (np.asarray(dof, dtype=np.float64) - p - 1), -0.5 * symmetrize(inverse(matrix))
        )

    @classmethod
    def from_mean(cls, *mean: ArrayLike) -> Self:
        """From E[log|X|] and E[X]."""
        log_mean, matrix = (np.asarray(value, dtype=np.float64) for value in mean)
        p = matrix.shape[-1]
        dof = dof_from_log_gap(log_mean - log_det(matrix), p)
        return cls.from_parameters(dof, matrix / dof[..., None, None])

    @property
    def dimension(self) -> int:
        """p."""
        return int(self.negative_half_inverse_scale.shape[-1])

    @property
    def dof(self) -> FloatArray:
        """n."""
        return 2.0 * self.half_excess_dof + self.dimension + 1

    def parameters(self) -> dict[str, FloatArray]:
        return {"dof": self.dof, "scale": inverse(-2.0 * self.negative_half_inverse_scale)}

    def mean(self) -> tuple[FloatArray, ...]:
        n, p = self.dof, self.dimension
        inverse_scale = -2.0 * self.negative_half_inverse_scale
        log_mean = multi_digamma(n / 2, p) + p * LOG_2 - log_det(inverse_scale)
        return log_mean, n[..., None, None] * inverse(inverse_scale)

    def log_partition(self) -> FloatArray:
        n, p = self.dof, self.dimension
        return np.asarray(
            0.5 * n * p * LOG_2
            - 0.5 * n * log_det(-2.0 * self.negative_half_inverse_scale)
            + multigammaln_array(n / 2, p)
        )

    def statistics(self, x: ArrayLike) -> tuple[FloatArray, ...]:
        value = np.asarray(x, dtype=np.float64)
        return log_det(value), value

    def in_domain(self) -> NDArray[np.bool_]:
        return (self.dof > self.dimension - 1) & is_positive_definite(
            -2.0 * self.negative_half_inverse_scale
        )

    def max_step(self, direction: Sequence[ArrayLike]) -> FloatArray:
        return np.minimum(
            max_step_positive(self.dof - self.dimension + 1, 2.0 * np.asarray(direction[0])),
            max_step_definite(
                -2.0 * self.negative_half_inverse_scale, -2.0 * np.asarray(direction[1])
            ),
        )

    def mean_value(self) -> FloatArray:
        return self.dof[..., None, None] * self.parameters()["scale"]

    def variance(self) -> FloatArray:
        scale = self.parameters()["scale"]
        diagonal = np.diagonal(scale, axis1=-2, axis2=-1)
        squares = scale**2 + diagonal[..., :, None] * diagonal[..., None, :]
        return self.dof[..., None, None] * squares

    def draw(self, rng: np.random.Generator, size: int | None = None) -> FloatArray:
        """Bartlett's decomposition: X = (L A)(L A)', A lower triangular of chi and normal draws."""
        p = self.dimension
        shape = self.batch_shape if size is None else (size, *self.batch_shape)
        factor = np.zeros((*shape, p, p))
        for j in range(p):
            factor[..., j, j] = np.sqrt(rng.chisquare(self.dof - j, size=shape))
            for k in range(j):
                factor[..., j, k] = rng.standard_normal(shape)
        root = np.linalg.cholesky(self.parameters()["scale"]) @ factor
        return np.asarray(root @ np.swapaxes(root, -1, -2))


def multigammaln_array(value: FloatArray, dimension: int) -> FloatArray:
    """log Gamma_p elementwise (scipy's takes arrays but rejects empty batches)."""
    return np.asarray(multigammaln(value, dimension)) if np.size(value) else np.asarray(value)
