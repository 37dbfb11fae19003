"""Gradients of quantities in the expected statistics of a belief, by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dmfvi.families.base import MATRIX, Family
from dmfvi.linalg import FloatArray, pack_symmetric

#: relative size of a step of differences of fourth order
SMALL_STEP = 1e-3
#: parameters of a posterior at most: the gradient of a quantity needs their covariance
MOST_PARAMETERS = 3000
#: variances below this are rounding of the differences
NO_VARIANCE = 1e-12


def gradient(function: Callable[[FloatArray], FloatArray], steps: FloatArray) -> FloatArray:
    """d function(x) / d x_i at x = 0 for every i, (n, r), by differences of fourth order."""
    rows = []
    for place, step in enumerate(steps):
        move = np.zeros_like(steps)
        move[place] = step
        near = function(move) - function(-move)
        far = function(2.0 * move) - function(-2.0 * move)
        rows.append((8.0 * near - far) / (12.0 * step))
    return np.array(rows)


def family_tilts(belief: Family, values: Callable[[Any], FloatArray]) -> FloatArray:
    """Gradients of quantities in the expected statistics of a family, (r, n), for its packed natural parameters.

    With natural parameters l, the statistics' covariance V = d mean / d l, and g as a function of l: V^-1 d g / d l.
    """
    here, steps = belief.pack(), SMALL_STEP * _natural_scale(belief)
    if here.size > MOST_PARAMETERS:
        raise ValueError(
            f"the posterior has {here.size} parameters, linear response takes at most {MOST_PARAMETERS}: fit fewer "
            "components or features, or use method='mean-field'"
        )
    n_values = len(values(belief))

    def both(move: FloatArray) -> FloatArray:
        moved = belief.unpack(here + move)
        return np.concatenate([values(moved), packed_mean(moved)])

    found = gradient(both, steps)
    slopes, covariance = found[:, :n_values], found[:, n_values:]
    matrix = 0.5 * (covariance + covariance.T)
    # statistics that cannot vary (the weight of the only component) have no part in it
    varies = np.diagonal(matrix) > NO_VARIANCE
    tilts = np.zeros_like(slopes.T)
    tilts[:, varies] = np.linalg.solve(matrix[np.ix_(varies, varies)], slopes[varies]).T
    return tilts


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
