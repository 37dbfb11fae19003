"""Points at which expectations under Gaussians are taken: the same at all nodes."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

from dmfvi.linalg import FloatArray, cholesky, inverse

#: Gauss-Hermite points, and the variances up to which each rule is used; the last is for all others. With k points the error of E f is
#: k! / (2k)! v^k f^(2k): below 1e-14 of f's size, whose derivatives here grow as (2k)! / pi^2k
SIZES, LIMITS = (3, 5, 9, 20, 32, 64), (1e-4, 1e-3, 0.05, 0.3, 4.0)
#: the same along each axis of a product rule in two and three dimensions
PRODUCT_RULES = {2: (3, 5, 9, 12, 20, 32), 3: (3, 5, 7, 7, 12, 16)}
#: points along each axis where they are the same for all rows, at most; beyond three dimensions a quasi-random rule is used
PRODUCT_SIZES = {1: 20, 2: 12, 3: 7}
#: with more dimensions: the variance up to which the rule of degree five is used. For log probabilities of classes it is the more accurate
#: one there (at 0.05 errors are 2e-6 and 7e-6, at 0.001 2e-11 and 5e-9), at 0.3 both are alike
FIFTH_DEGREE_LIMIT = 0.05
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
def cubatures(dimension: int) -> Rules:
    """All rules for N(0, I), points (J, dimension); limits are those of the arguments' largest variance."""
    sizes = SIZES if dimension == 1 else PRODUCT_RULES.get(dimension)
    if sizes is not None:
        made = [product_rule(dimension, size) for size in sizes]
    else:
        made = [fifth_degree(dimension), quasi_random(dimension, QUASI_RANDOM)]
    limits = LIMITS if sizes is not None else (FIFTH_DEGREE_LIMIT,)
    points, shares = (np.concatenate([part[i] for part in made]) for i in (0, 1))
    starts = np.cumsum([0, *(len(share) for _, share in made)])
    return Rules(points, shares, starts.astype(np.int64), np.array(limits))


def cubature(dimension: int, variance: float | None = None) -> tuple[FloatArray, FloatArray]:
    """Points (J, dimension) and shares for N(0, I), of which arguments have at most this variance; None is for any."""
    most = PRODUCT_SIZES.get(dimension)
    if most is not None:
        if variance is None:
            return product_rule(dimension, most)
        size = SIZES[int(np.searchsorted(LIMITS, variance))]
        return product_rule(dimension, size if dimension == 1 else min(size, most))
    narrow = variance is not None and variance <= FIFTH_DEGREE_LIMIT
    return fifth_degree(dimension) if narrow else quasi_random(dimension, QUASI_RANDOM)


@lru_cache(maxsize=16)
def product_rule(dimension: int, size: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Hermite points of this size along each axis."""
    nodes, shares = hermite(size)
    grid = np.stack(np.meshgrid(*[nodes] * dimension, indexing="ij"), -1)
    product = np.ones(size**dimension)
    for axis in np.meshgrid(*[shares] * dimension, indexing="ij"):
        product *= axis.ravel()
    return grid.reshape(-1, dimension), product


@lru_cache(maxsize=16)
def fifth_degree(dimension: int) -> tuple[FloatArray, FloatArray]:
    """2 d^2 + 1 points exact for polynomials of degree five (McNamee & Stenger 1967); some shares are negative."""
    root, d = np.sqrt(3.0), dimension
    axes = np.concatenate([root * np.eye(d), -root * np.eye(d)])
    pairs = [
        a * axes[i] + b * axes[j]
        for i, j in combinations(range(d), 2)
        for a in (1, -1)
        for b in (1, -1)
    ]
    points = np.concatenate([np.zeros((1, d)), axes, np.array(pairs)])
    shares = [1.0 + d * (d - 7) / 18.0, *[(4.0 - d) / 18.0] * (2 * d), *[1.0 / 36.0] * len(pairs)]
    return points, np.array(shares)


@lru_cache(maxsize=16)
def quasi_random(dimension: int, size: int) -> tuple[FloatArray, FloatArray]:
    """Mirrored Sobol points (size, dimension) with exact second moments, and equal shares, for N(0, I)."""
    uniform = stats.qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(0))
    half = ndtri(uniform.random(size // 2))
    half = half @ inverse(cholesky(half.T @ half / len(half))).T
    points = np.concatenate([half, -half])
    return points, np.full(len(points), 1.0 / len(points))
