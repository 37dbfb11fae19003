"""Sweeps of Bayesian PCA on one node, extrapolated.

    x_t: the statistics that made a belief        g(x_t): the statistics that the data make of that belief

The belief after g(x_t) is the plain sweep's; the combined images make another, which is tried. The bound, known one sweep later,
decides: if it has fallen, the plain sweep's belief, which cannot be worse, takes its place. The fixed point is that of
plain sweeps. What is missing in a pattern (tracks that end, tests that only some take) makes plain sweeps creep; there it
saves most.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from dmfvi.families.base import FloatArray
from dmfvi.models.base import Absorbed, Model
from dmfvi.models.extrapolation import (
    CALM_ENOUGH,
    CAUTION,
    MEMORY,
    combined,
    has_fallen,
    one_over_norm,
)
from dmfvi.models.pca import BayesianPcaModel
from dmfvi.models.pca_belief import PcaBelief
from dmfvi.models.pca_statistics import PcaStatistics
from dmfvi.tags import stored_as


@stored_as("accelerated-pca-belief")
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
        if before.plain is not None and has_fallen(objective, before.objective):
            back = replace(before.plain, objective=before.objective)
            return Absorbed(_remembering(back, before), False)
        belief = without_memory(belief)
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
            tried = None if candidate is None else self._tried(candidate, own, belief)
            if tried is not None:
                further = replace(tried, objective=objective)
                return Absorbed(_remembering(further, memory, swept.belief), False)
        return Absorbed(_remembering(swept.belief, memory), False)

    def change(self, new: PcaBelief, old: PcaBelief) -> float:
        """By this step, or by the plain sweep before it."""
        change = self.model.change(new, old)
        if isinstance(new, AcceleratedBelief) and np.isfinite(new.residual):
            return max(change, CAUTION * new.residual)
        return change

    def objective(self, belief: PcaBelief) -> float:
        return belief.objective

    def _tried(self, total: FloatArray, own: FloatArray, belief: PcaBelief) -> PcaBelief | None:
        """The belief that extrapolated statistics make, if they make one."""
        with np.errstate(all="ignore"):  # far out, rounding may leave no proper belief
            made = self.model.absorb(total, own, belief)
        new: PcaBelief = made.belief
        usable = np.isfinite(new.global_bound) and bool(np.all(new.hyper.in_domain()))
        return None if made.limited or not usable else new

    def _extrapolated(self, memory: AcceleratedBelief) -> FloatArray | None:
        """The combination of images whose residual is smallest; None where no belief follows from it."""
        weight = self._weights(memory.images[-1])
        candidate = combined(memory.points, memory.images, weight)
        return candidate if self.model._proper(candidate, memory) else None

    def _weights(self, total: FloatArray) -> FloatArray:
        """One over each block's size, so that a block of large numbers does not drown the others."""
        s = PcaStatistics.unpack(total, self.model.layout)
        rows, linear, latent, residual = (
            np.full_like(block, one_over_norm(block))
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


def _remembering(
    belief: PcaBelief, memory: AcceleratedBelief, plain: PcaBelief | None = None
) -> AcceleratedBelief:
    return replace(
        with_memory(belief),
        plain=plain,
        points=memory.points,
        images=memory.images,
        residual=memory.residual,
    )
