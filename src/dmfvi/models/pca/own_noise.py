"""Linear response of Bayesian PCA where every node has a noise level of its own.

A node's q(tau) is then a local variable, as q(Z) is: for a given q(W~) the local step settles both, so that the sum of
statistics follows from q(W~) alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.models.pca.belief import PcaBelief
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.shard import Shard
from dmfvi.models.pca.statistics import PcaStatistics

#: alternations of q(Z) and q(tau) at most, and the relative change at which they have settled
MOST_STEPS, SETTLED = 500, 1e-13


@dataclass(frozen=True)
class OwnNoiseResponse(BayesianPcaModel):
    """The model with ``noise="per_node"`` as a function of q(W~)."""

    @classmethod
    def of(cls, model: BayesianPcaModel) -> Self:
        """In fixed coordinates."""
        known = {each.name: getattr(model, each.name) for each in fields(model)}
        return cls(**{**known, "expansion": False})

    def for_response(self) -> BayesianPcaModel:
        return self

    @property
    def memoryless(self) -> bool:
        return True

    def local_step(self, shard: Shard, belief: PcaBelief) -> FloatArray:
        statistics = super().local_step(shard, belief)
        for _ in range(MOST_STEPS):
            noise = self._noise_posterior(PcaStatistics.unpack(statistics, self.layout))
            moved = replace(belief, noise=noise)
            change = np.max(np.abs(moved.noise_precision / belief.noise_precision - 1.0))
            belief, statistics = moved, super().local_step(shard, moved)
            if change < SETTLED:
                break
        return statistics

    def derivative(self, shard: Shard, belief: PcaBelief) -> None:  # type: ignore[override]
        return None  # by differences

    def expected(self, belief: PcaBelief) -> FloatArray:
        found = np.zeros(self.layout.size)
        found[self.layout.blocks[1]] = belief.mean.ravel()
        return found

    def tilts(self, belief: PcaBelief, values: Callable[[PcaBelief], FloatArray]) -> FloatArray:
        tilts = super().tilts(belief, values)
        if tilts[:, self.layout.half_counts.start : self.layout.half_residuals.stop].any():
            raise ValueError(
                "the quantity depends on the noise level, of which every node has its own with noise='per_node': ask for "
                "'location' or for a function of the location and the components, for predictions with uncertainty='mean-field', "
                "or fit with noise='shared'"
            )
        return tilts
