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
from dmfvi.linalg import FloatArray


@dataclass(frozen=True)
class RegressionShard:
    """One node's rows: design (n, p), a column of ones included where there is an intercept, and targets (n,)."""

    design: FloatArray
    target: FloatArray


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
        x, y = shard.design, shard.target
        statistics = NormalGamma(x.T @ y, -0.5 * x.T @ x, 0.5 * len(y), -0.5 * y @ y)
        bound = float(q.inner(statistics.natural, q.mean())) - HALF_LOG_2PI * len(y)
        return Statistics(statistics, bound)
