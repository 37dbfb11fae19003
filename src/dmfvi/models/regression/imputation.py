"""Missing covariates by the joint Gaussian of all numeric columns, whose moments the sites agree on.

EM (Dempster, Laird & Rubin 1977): with x ~ N(m, S), a row's missing part has mean m_a + S_ab S_bb^-1 (x_b - m_b) and covariance
S_aa - S_ab S_bb^-1 S_ba given its observed part; every iteration is one agreed sum of d + d(d+1)/2 + 1 numbers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from dmfvi.inference.starts import FeatureUnits, agree_on_units
from dmfvi.linalg import FloatArray, pack_symmetric, symmetrize, unpack_symmetric
from dmfvi.tags import stored_as

#: iterations at most, change of a moment (in deviations) that is the last, and the least variance of a column
MOST_STEPS, ACCURACY, LEAST_VARIANCE = 2000, 1e-9, 1e-6


@stored_as("joint-gaussian")
@dataclass(frozen=True)
class JointGaussian:
    """Mean and covariance of columns in agreed units."""

    units: FeatureUnits
    mean: FloatArray
    covariance: FloatArray

    def filled(self, data: FloatArray) -> FloatArray:
        """Rows with the conditional means where an entry is missing."""
        rows = self.units.apply(data)
        made, _ = conditional(rows, self.mean, self.covariance)
        return np.where(np.isnan(data), self.units.shift + self.units.scale * made, data)


def agree_on_gaussian(
    data: FloatArray, weight: FloatArray | None = None
) -> Generator[FloatArray, FloatArray, JointGaussian]:
    """Maximum likelihood from incomplete rows (NaN); a row of weight two counts as two rows."""
    if weight is None:
        weight = np.ones(len(data))
    data, weight = data[weight > 0], weight[weight > 0]
    units: FeatureUnits = yield from agree_on_units(data, weight)
    rows, d = units.apply(data), data.shape[1]
    mean, covariance = np.zeros(d), np.eye(d)
    for _ in range(MOST_STEPS):
        filled, spread = conditional(rows, mean, covariance, weight)
        gap = filled - mean  # near zero: no digits are lost in the squares
        total = yield np.concatenate(
            [
                [weight.sum()],
                weight @ gap,
                pack_symmetric(symmetrize((gap * weight[:, None]).T @ gap + spread)),
            ]
        )
        move = total[1 : 1 + d] / total[0]
        second = unpack_symmetric(total[1 + d :]) / total[0] - np.outer(move, move)
        new = symmetrize(second) + LEAST_VARIANCE * np.eye(d)
        change = max(float(np.abs(move).max()), float(np.abs(new - covariance).max()))
        mean, covariance = mean + move, new
        if change < ACCURACY:
            break
    return JointGaussian(units, mean, covariance)


def conditional(
    rows: FloatArray,
    mean: FloatArray,
    covariance: FloatArray,
    weight: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Rows with conditional means for what is missing, and the weighted sum of the conditional covariances."""
    filled, spread = rows.copy(), np.zeros_like(covariance)
    gaps = np.isnan(rows)
    patterns, which = np.unique(gaps, axis=0, return_inverse=True)
    for position, gap in enumerate(patterns):
        if not gap.any():
            continue
        own = np.flatnonzero(which.ravel() == position)
        a, b = np.flatnonzero(gap), np.flatnonzero(~gap)
        pull = np.linalg.solve(covariance[np.ix_(b, b)], covariance[np.ix_(b, a)])
        filled[np.ix_(own, a)] = mean[a] + (rows[np.ix_(own, b)] - mean[b]) @ pull
        rest = covariance[np.ix_(a, a)] - covariance[np.ix_(a, b)] @ pull
        spread[np.ix_(a, a)] += (len(own) if weight is None else weight[own].sum()) * rest
    return filled, spread
