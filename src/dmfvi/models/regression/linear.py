"""Bayesian linear regression with unknown noise: exact, closed form.

    y_n ~ N(x_n . w, 1/t)        w | t ~ N(0, (t P)^-1)        t ~ Gamma(a, b)

q(w, t) is the NormalGamma posterior itself, and the bound is the log evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dmfvi.families import NormalGamma
from dmfvi.families.normal import HALF_LOG_2PI
from dmfvi.inference.model import ConjugateModel, Statistics, Update
from dmfvi.inference.starts import FeatureUnits
from dmfvi.linalg import FloatArray, inverse

#: degrees of freedom that coefficients leave to the noise
LEAST_FREEDOM = 3.0


@dataclass(frozen=True)
class RegressionShard:
    """One node's rows: design (n, p), a column of ones included where there is an intercept, and targets (n,)."""

    design: FloatArray
    target: FloatArray
    weight: FloatArray | None = None  # (n,); a row of weight two counts as two rows
    earlier: NormalGamma | None = None  # statistics of rows that are not kept


@dataclass(frozen=True)
class LinearRegression(ConjugateModel):
    """Conjugate linear regression; prior precisions are in units of the noise precision.

    The conjugate prior ties the noise to the size of the coefficients: with p vague precisions P it weighs noise precisions by t^(p/2), as
    if p rows more had been seen, and the posterior of the noise is far too certain where columns are not few. ``untied`` takes that off:

        p(w, t) = N(w; 0, (t P)^-1) Gamma(t; a, b) t^(-g / 2),    g = tr((P + X'X)^-1 X'X)    (MacKay 1992: well-determined parameters)

    As P goes to 0, the posterior is that of p(w, t) = 1 / t, with n - p degrees of freedom, as in least squares. At least
    ``LEAST_FREEDOM`` are left, or half of the rows.
    """

    prior_precision: FloatArray  # (p,)
    noise_shape: float = 1e-3
    noise_rate: float = 1e-3
    untied: bool = False

    @property
    def prior(self) -> NormalGamma:
        p = len(self.prior_precision)
        return NormalGamma.from_parameters(
            np.zeros(p), np.diag(self.prior_precision), self.noise_shape, self.noise_rate
        )

    def well_determined(self, precision: FloatArray, n: float) -> float:
        """g, from the posterior precision P + X'X and the number of rows."""
        if not self.untied or n <= 0.0:
            return 0.0
        try:
            share = self.prior_precision * np.diag(inverse(precision))
        except (
            np.linalg.LinAlgError
        ):  # singular to rounding: such a posterior is refused in the end
            return 0.0
        most = max(n - LEAST_FREEDOM, 0.5 * n)
        return float(np.clip(len(share) - share.sum(), 0.0, most))

    def from_statistics(self, total: FloatArray) -> NormalGamma:
        linear, half_precision, excess, raw_rate = super().from_statistics(total).natural
        return NormalGamma(linear, half_precision, excess - 0.5 * self._taken(total), raw_rate)

    def absorb(self, total: FloatArray, own: FloatArray, belief: Any) -> Update:
        update = super().absorb(total, own, belief)
        taken = self._taken(total[:-1])
        factor = 0.5 * taken * float(belief.mean()[2]) if taken else 0.0  # E_q log t^(-g / 2)
        return update._replace(objective=update.objective - factor)

    def implied_total(self, belief: Any) -> FloatArray | None:
        if self.untied:  # g depends on the number of rows
            return None
        return super().implied_total(belief)

    def _taken(self, total: FloatArray) -> float:
        """g of the packed sum of all statistics."""
        if not self.untied or not np.isfinite(total).all():
            return 0.0
        sums = self._prior.unpack(total)
        precision = np.diag(self.prior_precision) + sums.precision
        return self.well_determined(precision, 2.0 * float(sums.shape_excess))

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
