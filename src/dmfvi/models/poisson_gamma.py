"""Counts at unknown rates: the worked example of docs/write_your_own_model.md.

x_nd ~ Poisson(rate_d)        rate_d ~ Gamma(shape, rate)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from dmfvi.families import Gamma
from dmfvi.inference.model import ConjugateModel, Statistics
from dmfvi.linalg import FloatArray


@dataclass(frozen=True)
class PoissonGamma(ConjugateModel):
    """Independent Poisson counts with a Gamma prior on each rate; a shard is an array (n, D), NaN for missing."""

    n_features: int
    shape: float = 1.0
    rate: float = 1.0

    @property
    def prior(self) -> Gamma:
        every = np.ones(self.n_features)
        return Gamma.from_parameters(self.shape * every, self.rate * every)

    def local_step(self, shard: FloatArray, q: Gamma) -> Statistics:
        seen = np.isfinite(shard)
        counts = np.where(seen, shard, 0.0)
        log_rate, rate = q.mean()  # E[log rate], E[rate]
        statistics = Gamma(counts.sum(0), -seen.sum(0))  # added to (shape - 1, -rate)
        bound = counts.sum(0) @ log_rate - seen.sum(0) @ rate - gammaln(counts + 1.0).sum()
        return Statistics(statistics, float(bound))
