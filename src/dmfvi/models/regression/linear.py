"""Bayesian linear regression with unknown noise: exact, closed form.

    y_n ~ N(x_n . w, 1/t)        w | t ~ N(0, (t P)^-1)        t ~ Gamma(a, b)

q(w, t) is the NormalGamma posterior itself, and the bound is the log evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmfvi.families import NormalGamma
from dmfvi.families.normal import HALF_LOG_2PI
from dmfvi.inference.model import ConjugateModel, Statistics
from dmfvi.inference.starts import FeatureUnits
from dmfvi.linalg import FloatArray


@dataclass(frozen=True)
class RegressionShard:
    """One node's rows: design (n, p), a column of ones included where there is an intercept, and targets (n,)."""

    design: FloatArray
    target: FloatArray
    weight: FloatArray | None = None  # (n,); a row of weight two counts as two rows
    earlier: NormalGamma | None = None  # statistics of rows that are not kept


@dataclass(frozen=True)
class LinearRegression(ConjugateModel):
    """Conjugate linear regression; prior precisions are in units of the noise precision."""

    prior_precision: FloatArray  # (p,)
    noise_shape: float = 1e-3
    noise_rate: float = 1e-3

    @property
    def prior(self) -> NormalGamma:
        p = len(self.prior_precision)
        return NormalGamma.from_parameters(
            np.zeros(p), np.diag(self.prior_precision), self.noise_shape, self.noise_rate
        )

    def local_step(self, shard: RegressionShard, q: NormalGamma) -> Statistics:
        x, y, n = shard.design, shard.target, float(len(shard.target))
        if shard.weight is not None:
            root, n = np.sqrt(shard.weight), float(shard.weight.sum())
            x, y = root[:, None] * x, root * y
        statistics = NormalGamma(x.T @ y, -0.5 * x.T @ x, 0.5 * n, -0.5 * y @ y)
        if shard.earlier is not None:
            both = zip(statistics.natural, shard.earlier.natural, strict=True)
            statistics = NormalGamma(*(own + before for own, before in both))
            n = 2.0 * float(statistics.shape_excess)
        bound = float(q.inner(statistics.natural, q.mean())) - HALF_LOG_2PI * n
        return Statistics(statistics, bound)


def statistics_of(
    moments: FeatureUnits, units: FeatureUnits, intercept: bool, share: float
) -> NormalGamma:
    """Statistics of rows whose moments are known, the target in the last column, in the units of a design.

    Sum of (x - s)(x - s)' = scatter about the mean m + n (m - s)(m - s)': centred forms, so that columns far from zero cost no digits.
    """
    n, d = moments.n_samples, len(moments.shift) - 1
    gap = (moments.shift - units.shift if intercept else moments.shift) / units.scale
    second = moments.scatter / np.outer(units.scale, units.scale) + n * np.outer(gap, gap)
    gram, cross = second[:d, :d], second[:d, d]
    if intercept:
        gram = np.block([[gram, n * gap[:d, None]], [n * gap[None, :d], np.full((1, 1), n)]])
        cross = np.append(cross, n * gap[d])
    return NormalGamma(
        share * cross, -0.5 * share * gram, 0.5 * share * n, -0.5 * share * second[d, d]
    )
