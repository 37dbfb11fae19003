"""Extrapolated sweeps for every model (Anderson 1965; Walker & Ni 2011), guarded by the bound.

    x_t: the total that made a belief        g(x_t): the total that the data make of that belief       at the end g(x) = x

The combination of the last totals whose residuals g - x cancel best is tried instead of the plain sweep. The bound,
known one sweep later, decides: if it has fallen, the plain sweep's belief, which cannot be worse, takes its place. The
fixed point is that of plain sweeps. Where the combination points against the last residual, residuals grow: the
iteration is leaving a saddle, to which Anderson's step would lead back; there it continues along the residual.

Extrapolation magnifies differences. Where nodes agree up to rounding only, they also send the total that
made their belief, and all use the mean: a message has (s_i, x_i, 1), and the sum of the 1s counts the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmfvi.inference.model import Model, Update
from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as

#: sweeps that an extrapolation looks back on
MEMORY = 8
#: extrapolation begins when a plain sweep changes the belief by less than this part: earlier, it could
#: carry the belief over to another optimum than plain sweeps find
SMALL_CHANGE = 0.1
#: changes of extrapolated sweeps shrink faster than the error: the last plain sweep's change is multiplied by this
CAUTION = 15.0
#: directions weaker than this part of the strongest are not extrapolated along
WEAKEST_DIRECTION = 1e-4
#: how many residuals further than the image to go while residuals grow
STRIDE = 4.0
#: rounding of a bound, relative: a fall by less is none
BOUND_ROUNDING = 1e-10
#: the same between nodes, who must all decide alike: agreed bounds on a chain of 20 differ by 2e-9
AGREED_ROUNDING = 1e-8


@stored_as("accelerated-belief")
@dataclass(frozen=True)
class AcceleratedBelief:
    """A belief, and what the next extrapolation needs."""

    belief: Any
    point: FloatArray | None = None  # the total that made it
    objective: float = float("nan")  # bound of the last belief that was kept
    residual: float = np.inf  # relative change that the last plain sweep made
    plain: Any = None  # where the plain sweep led, if this belief is extrapolated
    plain_point: FloatArray | None = None
    points: tuple[FloatArray, ...] = ()  # totals that made earlier beliefs, oldest first
    images: tuple[FloatArray, ...] = ()  # totals that those beliefs led to
    swept: bool = False


@dataclass(frozen=True)
class Accelerated(Model):
    """Another model with extrapolated sweeps; ``shared`` where nodes agree up to rounding only."""

    model: Model
    shared: bool = False

    @property
    def beliefs_alike(self) -> bool:
        return self.model.beliefs_alike

    def describe(self, position: int) -> str:
        return self.model.describe(position)

    def begin(self, belief: Any) -> AcceleratedBelief:
        """The belief of a node before its first sweep."""
        return AcceleratedBelief(belief, self.model.implied_total(belief))

    def start(self, shard: Any, rng: np.random.Generator) -> Any:
        return self.model.start(shard, rng)

    def local_step(self, shard: Any, belief: AcceleratedBelief) -> FloatArray:
        own = self.model.statistics(shard, belief.belief)
        if not self.shared:
            return own
        point = np.zeros_like(own) if belief.point is None else belief.point
        return np.concatenate([own, point, [1.0]])

    def absorb(self, total: FloatArray, own: FloatArray, belief: AcceleratedBelief) -> Update:
        if not np.isfinite(total).all():
            return Update(belief, belief.objective, True)
        point = belief.point
        if self.shared:
            size = (len(total) - 1) // 2
            if belief.swept:  # the start is the same everywhere, to the last bit
                point = total[size:-1] / total[-1]
            total, own = total[:size], own[:size]
        swept = self.model.absorb(total, own, belief.belief)
        rounding = AGREED_ROUNDING if self.shared else BOUND_ROUNDING
        if belief.plain is not None and has_fallen(swept.objective, belief.objective, rounding):
            back = AcceleratedBelief(
                belief.plain, belief.plain_point, belief.objective, belief.residual, swept=True
            )
            return Update(back, belief.objective)
        new = AcceleratedBelief(
            swept.belief,
            self.model.implied_total(swept.belief) if swept.limited else total,
            swept.objective,
            self.model.change(swept.belief, belief.belief),
            swept=True,
        )
        if swept.limited or point is None or not self.model.extrapolates(belief.belief):
            return Update(new, swept.objective, swept.limited)
        new = replace(
            new,
            points=(*belief.points, point)[-MEMORY:],
            images=(*belief.images, total)[-MEMORY:],
        )
        if new.residual < SMALL_CHANGE and len(new.points) > 1:
            new = self._further(new, own, belief.belief)
        return Update(new, swept.objective)

    def change(self, new: AcceleratedBelief, old: AcceleratedBelief) -> float:
        """Change by this step, or a multiple of the plain sweep's before it; the larger."""
        return max(self.model.change(new.belief, old.belief), CAUTION * new.residual)

    def _further(self, new: AcceleratedBelief, own: FloatArray, before: Any) -> AcceleratedBelief:
        """The extrapolated belief, or the plain one where no proper belief follows from the combination."""
        candidate = combined(new.points, new.images, self._weights(new.images[-1]))
        if not np.isfinite(candidate).all():
            return new
        with np.errstate(all="ignore"):  # far out, rounding may leave no proper belief
            tried = self.model.absorb(candidate, own, before)
        if tried.limited or not self.model.is_usable(tried.belief):
            return new
        return replace(
            new, belief=tried.belief, point=candidate, plain=new.belief, plain_point=new.point
        )

    def _weights(self, total: FloatArray) -> FloatArray:
        """One over each block's size, so that a block of large numbers does not drown the others."""
        weight = np.zeros_like(total)
        sizes = self.model.block_sizes(total)
        for block, size in zip(self.model.blocks(total), sizes, strict=True):
            weight[block] = 1.0 / max(size, float(np.finfo(float).tiny))
        return weight


def combined(
    points: tuple[FloatArray, ...], images: tuple[FloatArray, ...], weight: FloatArray
) -> FloatArray:
    """Anderson's step, with residuals weighed entry by entry."""
    latest = images[-1]
    residuals = [weight * (g - x) for x, g in zip(points, images, strict=True)]
    differences = np.stack([residuals[-1] - r for r in residuals[:-1]], axis=1)
    share = np.linalg.lstsq(differences, residuals[-1], rcond=WEAKEST_DIRECTION)[0]
    moves = np.stack([latest - g for g in images[:-1]], axis=1)
    candidate = latest - moves @ share
    if weight * (candidate - points[-1]) @ residuals[-1] < 0:
        candidate = latest + STRIDE * (latest - points[-1])
    return np.asarray(candidate)


def has_fallen(bound: float, before: float, rounding: float = BOUND_ROUNDING) -> bool:
    """Whether a bound is lower by more than rounding."""
    return bound < before - rounding * abs(before)
