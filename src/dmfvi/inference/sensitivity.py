"""Gradients of quantities in the expected statistics of a belief, by differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from dmfvi.families.base import MATRIX, Family
from dmfvi.families.product import Product
from dmfvi.linalg import FloatArray, pack_symmetric

#: relative size of a step of differences of fourth order
SMALL_STEP = 1e-3
#: part of that by which a whole array is moved to see whether a quantity depends on it
NUDGE = 1e-3
#: parameters of a block at most: the gradient of a quantity needs their covariance
MOST_PARAMETERS = 3000
#: variances below this are rounding of the differences
NO_VARIANCE = 1e-12


def gradient(
    function: Callable[[FloatArray], FloatArray],
    steps: FloatArray,
    positions: Iterable[int] | None = None,
) -> FloatArray:
    """d function(x) / d x_i at x = 0 for these i, by default all, (positions, r), by differences of fourth order."""
    rows = []
    for position in range(len(steps)) if positions is None else positions:
        move = np.zeros_like(steps)
        move[position] = steps[position]
        near = function(move) - function(-move)
        far = function(2.0 * move) - function(-2.0 * move)
        rows.append((8.0 * near - far) / (12.0 * steps[position]))
    return np.array(rows)


def family_tilts(belief: Family, values: Callable[[Any], FloatArray]) -> FloatArray:
    """Gradients of quantities in the expected statistics of a family, (r, n), for its packed natural parameters.

    With natural parameters l, the statistics' covariance V = d mean / d l, and g as a function of l: V^-1 d g / d l. Blocks of a
    product are independent, so that V has blocks too.
    """
    if not isinstance(belief, Product):
        return _tilts(belief, values)
    found = []
    for name, block in belief.items():
        others = {other: part for other, part in belief.items() if other != name}

        def of_block(moved: Family, name: str = name, others: Any = others) -> FloatArray:
            blocks = {each: moved if each == name else others[each] for each in belief}
            return values(type(belief)(**blocks))

        found.append(_tilts(block, of_block))
    return np.concatenate(found, axis=1)


def _tilts(belief: Family, values: Callable[[Any], FloatArray]) -> FloatArray:
    """The same for one block."""
    here, steps = belief.pack(), SMALL_STEP * _natural_scale(belief)
    now = values(belief)

    def moved_values(move: FloatArray) -> FloatArray:
        return values(belief.unpack(here + move))

    slopes = np.zeros((here.size, len(now)))
    for part in _arrays(belief):
        if _matters(moved_values, now, steps, part):
            slopes[part] = gradient(moved_values, steps, range(part.start, part.stop))
    tilts = np.zeros_like(slopes.T)
    if not slopes.any():
        return tilts
    if here.size > MOST_PARAMETERS:
        raise ValueError(
            f"the posterior has {here.size} parameters, linear response takes at most {MOST_PARAMETERS}: fit fewer "
            "components or features, or use method='mean-field'"
        )

    def mean(move: FloatArray) -> FloatArray:
        return packed_mean(belief.unpack(here + move))

    covariance = gradient(mean, steps)
    matrix = 0.5 * (covariance + covariance.T)
    # statistics that cannot vary (the weight of the only component) have no part in it
    varies = np.diagonal(matrix) > NO_VARIANCE
    tilts[:, varies] = np.linalg.solve(matrix[np.ix_(varies, varies)], slopes[varies]).T
    return tilts


def _arrays(family: Family) -> list[slice]:
    """Where each array of natural parameters is in the packed vector."""
    sizes = []
    for array, axes in zip(family.natural, family.event_axes, strict=True):
        sizes.append(pack_symmetric(array).size if axes == MATRIX else array.size)
    ends = list(accumulate(sizes, initial=0))
    return [slice(a, b) for a, b in pairwise(ends)]


def _matters(
    function: Callable[[FloatArray], FloatArray], now: FloatArray, steps: FloatArray, part: slice
) -> bool:
    """Whether the function changes when all entries of an array are moved a little, each by another part of its step."""
    rng, size = np.random.default_rng(0), part.stop - part.start
    for _ in range(2):
        move = np.zeros_like(steps)
        # different sizes: weights of one half each stay so when both counts grow alike
        move[part] = NUDGE * steps[part] * rng.uniform(0.5, 1.0, size) * rng.choice([-1, 1], size)
        if not np.array_equal(function(move), now):
            return True
    return False


def packed_mean(family: Family) -> FloatArray:
    """Expected statistics as the derivative of the log-partition in the packed natural parameters."""
    parts = []
    for mean, axes in zip(family.mean(), family.event_axes, strict=True):
        if axes == MATRIX:
            both_halves = 2.0 * mean - mean * np.eye(mean.shape[-1])
            parts.append(pack_symmetric(both_halves).ravel())
        else:
            parts.append(np.asarray(mean).ravel())
    return np.concatenate(parts)


def _natural_scale(family: Family) -> FloatArray:
    """The size of each packed natural parameter: that of its array, or of all where that is zero up to rounding."""
    parts = []
    every = float(np.sqrt(np.mean(family.pack() ** 2))) or 1.0
    for array, axes in zip(family.natural, family.event_axes, strict=True):
        flat = pack_symmetric(array).ravel() if axes == MATRIX else array.ravel()
        size = np.abs(flat)
        typical = float(np.sqrt(np.mean(flat**2)))
        typical = every if typical < 1e-10 * every else typical
        parts.append(np.where(size > 0.01 * typical, size, 0.01 * typical))
    return np.concatenate(parts)
