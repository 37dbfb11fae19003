"""Stratified Cox regression and hazards on a grid, as sums over nodes.

Cox: the log partial likelihood of stratum s is sum over events of x_i.w - log sum over its risk set of exp(x_j.w) (Cox 1972). A stratum lies in one
node, so value, gradient and curvature are plain sums over nodes.

Grid: of those at risk at the k-th time each has the event with probability h_k ~ Beta, independently; the events and survivors of all nodes
add up (Hjort 1990, on a grid).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmfvi.families import Beta
from dmfvi.inference.model import ConjugateModel, Statistics
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.model import SEPARATED
from dmfvi.models.laplace import Expansion, LaplaceModel


@dataclass(frozen=True)
class CoxShard:
    """One node's rows, sorted by stratum and falling time."""

    design: FloatArray
    time: FloatArray
    event: FloatArray
    weight: FloatArray
    stratum: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        design: FloatArray,
        time: FloatArray,
        event: FloatArray,
        weight: FloatArray,
        stratum: NDArray[np.int64],
    ) -> CoxShard:
        """From rows in any order."""
        order = np.lexsort((-time, stratum))
        rows = np.ascontiguousarray(design[order])
        return cls(rows, time[order], event[order], weight[order], stratum[order])


@dataclass(frozen=True)
class StratifiedCox(LaplaceModel):
    """Proportional hazards with a baseline hazard of its own for each stratum."""

    ties: str = "efron"

    @property
    def improper_hint(self) -> str:
        return SEPARATED

    def expand(self, shard: CoxShard, theta: FloatArray) -> Expansion:
        from dmfvi.models.survival._kernels_numba import partial_likelihood

        size = len(theta)
        gradient, curvature = np.zeros(size), np.zeros((size, size))
        value = partial_likelihood(
            shard.design,
            shard.design @ theta,
            shard.weight,
            shard.event,
            shard.time,
            shard.stratum,
            self.ties == "efron",
            gradient,
            curvature,
        )
        return Expansion(float(value), gradient, curvature)


@dataclass(frozen=True)
class GridShard:
    """One node's times as positions on the grid, and whether the event happened there."""

    position: NDArray[np.int64]
    event: FloatArray
    earlier: tuple[FloatArray, FloatArray] | None = None  # counts of rows that are not kept

    def counts(self, n_times: int) -> tuple[FloatArray, FloatArray]:
        """Events at each time of the grid, and those at risk just before it."""
        happened = np.bincount(self.position, self.event, minlength=n_times)[:n_times]
        leaving = np.bincount(self.position, minlength=n_times)[:n_times]
        beyond = float(np.sum(self.position >= n_times))
        at_risk = np.cumsum(leaving[::-1])[::-1] + beyond
        if self.earlier is not None:
            return happened + self.earlier[0], at_risk + self.earlier[1]
        return happened.astype(np.float64), at_risk.astype(np.float64)


@dataclass(frozen=True)
class GridHazard(ConjugateModel):
    """h_k ~ Beta(prior, prior) at each time of the grid."""

    n_times: int
    prior_count: float = 1e-3

    @property
    def prior(self) -> Beta:
        each = np.full(self.n_times, self.prior_count)
        return Beta.from_parameters(each, each)

    def local_step(self, shard: GridShard, q: Beta) -> Statistics:
        events, at_risk = shard.counts(self.n_times)
        statistics = Beta(events, at_risk - events)
        return Statistics(statistics, float(q.inner(statistics.natural, q.mean()).sum()))
