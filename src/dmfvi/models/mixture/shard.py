"""One node's rows for a Gaussian mixture, and sums over them under responsibilities.

Everything a Gaussian component needs of a row x is linear in the features (1, x, upper triangle of x x'), so that
expected log densities and expected statistics are two matrix products. With missing entries rows
are grouped by what is observed of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray, upper_triangle
from dmfvi.models.mixture.scattered import Scattered, scattered

#: rows that are worked on at a time: their features should stay in the processor's cache
BLOCK_NUMBERS = 100_000
#: patterns with fewer rows than this are worked on together, where there are as many patterns as that
FEW_ROWS, FEW_PATTERNS = 20, 4


@dataclass(frozen=True)
class PatternGroup:
    """Rows of which the same entries are observed."""

    observed: NDArray[np.bool_]  # (D,)
    rows: NDArray[np.intp]  # where they stand in the shard
    values: FloatArray  # (number observed, n): one column per row of data
    weight: FloatArray | None = None  # (n,): how many rows each counts for, one where None


@dataclass(frozen=True)
class MixtureShard:
    """Rows grouped by pattern; complete data are one group."""

    groups: tuple[PatternGroup, ...]
    n_samples: int
    weight: FloatArray | None = None  # (n_samples,)

    @classmethod
    def of(cls, data: FloatArray, weight: FloatArray | None = None) -> MixtureShard:
        """From rows with NaN for missing entries."""
        seen = np.isfinite(data)
        if seen.all():
            whole = PatternGroup(
                np.ones(data.shape[1], dtype=bool),
                np.arange(len(data)),
                np.ascontiguousarray(data.T),
                weight,
            )
            return cls((whole,), len(data), weight)
        patterns, which = np.unique(seen, axis=0, return_inverse=True)
        groups = []
        for i, pattern in enumerate(patterns):
            rows = np.flatnonzero(which.ravel() == i)
            values = np.ascontiguousarray(data[np.ix_(rows, pattern)].T)
            own = None if weight is None else weight[rows]
            groups.append(PatternGroup(pattern, rows, values, own))
        return cls(tuple(groups), len(data), weight)

    @cached_property
    def by_work(self) -> tuple[list[PatternGroup], list[Scattered]]:
        """Patterns of many rows, and the rows of the others, which are worked on together."""
        few = [g for g in self.groups if g.values.shape[1] < FEW_ROWS and not g.observed.all()]
        if len(few) < FEW_PATTERNS:
            return list(self.groups), []
        kept = {id(g) for g in few}
        return [g for g in self.groups if id(g) not in kept], scattered(few)


def quadratic_features(values: FloatArray) -> FloatArray:
    """(1, x, upper triangle of x x') of each column of ``values`` (p, n), as (P, n)."""
    p, n = values.shape
    out = np.empty((1 + p + p * (p + 1) // 2, n))
    out[0] = 1.0
    out[1 : 1 + p] = values
    at = 1 + p
    for i in range(p):
        np.multiply(values[i], values[i:], out=out[at : at + p - i])
        at += p - i
    return out


@lru_cache(maxsize=64)
def quadratic_weights(size: int) -> FloatArray:
    """-1/2 on the diagonal and -1 elsewhere in a packed triangle: x'Lx/2 counts each pair twice."""
    rows, columns = upper_triangle(size)
    return np.where(rows == columns, -0.5, -1.0)


def square_features(values: FloatArray) -> FloatArray:
    """(1, x, x^2) of each column, for diagonal components."""
    return np.concatenate([np.ones((1, values.shape[1])), values, values**2])


def blocks(n_rows: int, n_features: int) -> Iterator[slice]:
    """Slices of rows whose features fit the cache."""
    step = max(256, BLOCK_NUMBERS // n_features)
    for a in range(0, n_rows, step):
        yield slice(a, min(a + step, n_rows))


def normalise(scores: FloatArray) -> FloatArray:
    """Turn log scores (K, n) into responsibilities in place; returns log sums (n,)."""
    top = scores.max(0)
    scores -= top
    np.exp(scores, out=scores)
    total = scores.sum(0)
    scores /= total
    return np.asarray(top + np.log(total))
