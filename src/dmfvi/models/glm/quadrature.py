"""Points at which expectations under Gaussians are taken: the same at all nodes."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

from dmfvi.linalg import FloatArray, cholesky, inverse

#: Gauss-Hermite points, and the variances up to which each rule is used; the last is for all others
SIZES, LIMITS = (5, 9, 20, 32, 64), (1e-3, 0.05, 0.3, 4.0)
#: points for each dimension of a product rule, by the number of dimensions; beyond it a quasi-random rule is used
PRODUCT_SIZES = {1: 20, 2: 12, 3: 7}
#: quasi-random points, half of them mirrored
QUASI_RANDOM = 512


class Rules(NamedTuple):
    """Gauss-Hermite rules of several sizes one after the other: rule i is at starts[i] : starts[i + 1]."""

    nodes: FloatArray
    shares: FloatArray
    starts: NDArray[np.int64]
    limits: FloatArray


def hermite(size: int) -> tuple[FloatArray, FloatArray]:
    """Points and shares for N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(size)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=1)
def rules() -> Rules:
    """All one-dimensional rules."""
    made = [hermite(size) for size in SIZES]
    starts = np.concatenate([[0], np.cumsum(SIZES)]).astype(np.int64)
    nodes, shares = (np.concatenate([part[i] for part in made]) for i in (0, 1))
    return Rules(nodes, shares, starts, np.array(LIMITS))


@lru_cache(maxsize=16)
def cubature(dimension: int, size: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Points (J, dimension) and shares for N(0, I): a product rule, or mirrored Sobol points with exact second moments."""
    if dimension in PRODUCT_SIZES:
        nodes, shares = hermite(size or PRODUCT_SIZES[dimension])
        grid = np.stack(np.meshgrid(*[nodes] * dimension, indexing="ij"), -1)
        product = np.ones(len(nodes) ** dimension)
        for axis in np.meshgrid(*[shares] * dimension, indexing="ij"):
            product *= axis.ravel()
        return grid.reshape(-1, dimension), product
    return quasi_random(dimension, QUASI_RANDOM)


@lru_cache(maxsize=16)
def quasi_random(dimension: int, size: int) -> tuple[FloatArray, FloatArray]:
    """Mirrored Sobol points (size, dimension) with exact second moments, and equal shares, for N(0, I)."""
    uniform = stats.qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(0))
    half = ndtri(uniform.random(size // 2))
    half = half @ inverse(cholesky(half.T @ half / len(half))).T
    points = np.concatenate([half, -half])
    return points, np.full(len(points), 1.0 / len(points))


def size_for(variance: float) -> int:
    """Gauss-Hermite points that one dimension of this variance needs."""
    return SIZES[int(np.searchsorted(LIMITS, variance))]
