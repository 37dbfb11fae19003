"""Sweeps of Bayesian PCA, extrapolated (Anderson 1965, Walker & Ni 2011).

    x_t: the agreed statistics that made a belief        g(x_t): the statistics that all shards make of that belief

The belief after g(x_t) is the plain sweep's. The combination of images whose residuals g - x cancel best makes another; it is
tried, and the bound, known one sweep later, decides: if it has fallen, the plain sweep's belief, which cannot be
worse, takes its place. Where g(x) = x both are the same, so the fixed point is that of plain sweeps. What is missing in a pattern
(tracks that end, tests that only some take) makes plain sweeps creep; there it saves most.

All is computed from agreed statistics: nodes that hold the same to the last bit (pooled, all-reduce) decide alike.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from dmfvi.families.base import FloatArray
from dmfvi.models.base import Absorbed, Model
from dmfvi.models.pca import BayesianPcaModel
from dmfvi.models.pca_belief import PcaBelief
from dmfvi.models.pca_statistics import PcaStatistics

#: sweeps that an extrapolation looks back on
MEMORY = 8
#: extrapolation begins when a plain sweep changes the belief by less than this part
CALM_ENOUGH = 0.1
#: directions weaker than this part of the strongest are not extrapolated along
WEAKEST_DIRECTION = 1e-6
#: rounding of a bound, relative: a fall by less is none
BOUND_ROUNDING = 1e-11
#: extrapolated sweeps shrink fast, plain ones need not: their last change counts so many times
CAUTION = 10.0


@dataclass(frozen=True)
class AcceleratedBelief(PcaBelief):
    """A belief, and what the next extrapolation needs."""

    plain: PcaBelief | None = None  # where the plain sweep led, if this one is extrapolated
    points: tuple[FloatArray, ...] = ()  # statistics that made earlier beliefs, oldest first
    images: tuple[FloatArray, ...] = ()  # statistics that those beliefs led to
    residual: float = np.inf  # relative change that the last plain sweep made


@dataclass(frozen=True)
class AcceleratedPcaModel(Model):
    """``BayesianPcaModel`` with extrapolated sweeps."""

    model: BayesianPcaModel

    def local_step(self, shard: object, belief: PcaBelief) -> FloatArray:
        return self.model.local_step(shard, belief)  # type: ignore[arg-type]

    def absorb(self, total: FloatArray, own: FloatArray, belief: PcaBelief) -> Absorbed:
        before = with_memory(belief)
        if not np.isfinite(total).all():
            return Absorbed(belief, True)
        objective = float(total[-1]) + belief.global_bound
        fallen = objective < before.objective - BOUND_ROUNDING * abs(before.objective)
        if before.plain is not None and fallen:
            back = replace(with_memory(before.plain), objective=before.objective)
            return Absorbed(_remembering(back, before), False)
        swept = self.model.absorb(total, own, belief)
        if swept.limited or belief.total is None or belief.held:
            return swept
        memory = replace(
            before,
            points=(*before.points, belief.total)[-MEMORY:],
            images=(*before.images, total)[-MEMORY:],
            residual=self.model.change(swept.belief, belief),
        )
        if memory.residual < CALM_ENOUGH and len(memory.points) > 1:
            candidate = self._extrapolated(memory)
            if candidate is not None:
                tried = self.model.absorb(candidate, own, belief)
                if not tried.limited:
                    further = replace(with_memory(tried.belief), plain=swept.belief)
                    further = replace(further, objective=objective)
                    return Absorbed(_remembering(further, memory), False)
        return Absorbed(_remembering(with_memory(swept.belief), memory), False)

    def change(self, new: PcaBelief, old: PcaBelief) -> float:
        """By this step, or by the plain sweep before it."""
        change = self.model.change(new, old)
        if isinstance(new, AcceleratedBelief) and np.isfinite(new.residual):
            return max(change, CAUTION * new.residual)
        return change

    def objective(self, belief: PcaBelief) -> float:
        return belief.objective

    def _extrapolated(self, memory: AcceleratedBelief) -> FloatArray | None:
        """The combination of images whose residual is smallest; None where no belief follows from it."""
        latest = memory.images[-1]
        weight = self._weights(latest)
        residuals = [weight * (g - x) for x, g in zip(memory.points, memory.images, strict=True)]
        differences = np.stack([residuals[-1] - r for r in residuals[:-1]], axis=1)
        share = np.linalg.lstsq(differences, residuals[-1], rcond=WEAKEST_DIRECTION)[0]
        moves = np.stack([latest - g for g in memory.images[:-1]], axis=1)
        candidate: FloatArray = latest - moves @ share
        return candidate if self.model._proper(candidate, memory) else None

    def _weights(self, total: FloatArray) -> FloatArray:
        """One over each block's size, so that a block of large numbers does not drown the others."""
        s = PcaStatistics.unpack(total, self.model.layout)
        rows, linear, latent, residual = (
            np.full_like(block, 1.0 / max(float(np.linalg.norm(block)), np.finfo(float).tiny))
            for block in (s.rows, s.linear, s.latent, np.array(s.half_residual))
        )
        weights = PcaStatistics(rows, linear, latent, 0.0, float(residual), 0.0, 0.0)
        return weights.pack(self.model.layout)


def with_memory(belief: PcaBelief) -> AcceleratedBelief:
    """The belief, with an empty memory if it had none."""
    if isinstance(belief, AcceleratedBelief):
        return belief
    return AcceleratedBelief(**{f.name: getattr(belief, f.name) for f in fields(PcaBelief)})


def without_memory(belief: PcaBelief) -> PcaBelief:
    """The belief alone."""
    return PcaBelief(**{f.name: getattr(belief, f.name) for f in fields(PcaBelief)})


def _remembering(belief: AcceleratedBelief, memory: AcceleratedBelief) -> AcceleratedBelief:
    return replace(belief, points=memory.points, images=memory.images, residual=memory.residual)
