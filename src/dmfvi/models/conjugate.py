"""Conjugate: runs any ``ConjugateModel`` in the node loop.

    lambda <- eta_0 + sum_i s_i(lambda)        natural parameters of q(global)

The bound travels as one more number. Sweeps may be accelerated (Anderson 1965, Walker & Ni 2011): the last few
beliefs and what the plain sweep made of them give an extrapolation; it has the same fixed point, and a
step after which the bound turns out lower is taken back, so that the bound never falls.

Extrapolation magnifies differences, and rounding makes each node's belief a little different. So nodes that
extrapolate tell each other their beliefs too, and all of them go by the mean: (s_i, bound_i, lambda_i, 1) travel
together, and the 1 counts the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmfvi._numeric import relative_norm
from dmfvi.families.base import Family, FloatArray
from dmfvi.families.product import Product
from dmfvi.models.base import Absorbed, Belief, ConjugateModel, Learned, Model
from dmfvi.models.extrapolation import (
    AGREED_ROUNDING,
    BOUND_ROUNDING,
    CALM_ENOUGH,
    CAUTION,
    MEMORY,
    combined,
    has_fallen,
    one_over_norm,
)
from dmfvi.tags import stored_as

#: part of the way to the domain's edge that a limited step goes
EDGE_FRACTION = 0.9


@stored_as("conjugate-belief")
@dataclass(frozen=True)
class ConjugateBelief:
    """q(global), how it came about, and what the next extrapolation needs."""

    q: Belief
    natural: FloatArray  # q packed
    divergence: float
    objective: float = float("nan")  # bound of the last belief that was kept
    residual: float = np.inf  # relative change that the last plain sweep made
    swept: bool = False
    plain: FloatArray | None = None  # where the plain sweep led, if this belief is extrapolated
    points: tuple[FloatArray, ...] = ()  # earlier beliefs, oldest first
    images: tuple[FloatArray, ...] = ()  # what plain sweeps made of them
    carried: FloatArray | None = None  # this node's share of what earlier batches said


@dataclass(frozen=True)
class Conjugate(Model):
    """The node loop's view of a conjugate model."""

    model: ConjugateModel
    accelerated: bool = True
    alone: bool = True  # the only node

    def begin(self, q: Belief, carried: FloatArray | None = None) -> ConjugateBelief:
        """The belief of a node before its first sweep."""
        return ConjugateBelief(q, q.pack(), self.model.divergence(q), carried=carried)

    def local_step(self, shard: Any, belief: ConjugateBelief) -> FloatArray:
        learned = self.model.local_step(shard, belief.q)
        name = f"{type(self.model).__name__}.local_step"
        if not isinstance(learned, Learned):
            raise TypeError(
                f"{name} must return Learned(statistics, bound), received {type(learned).__name__}"
            )
        if np.ndim(learned.bound) != 0 or not np.isfinite(learned.bound):
            raise ValueError(
                f"{name} must give one finite bound, received {learned.bound!r}: add it up"
            )
        given = learned.statistics
        statistics = given if isinstance(given, np.ndarray) else given.pack()
        if statistics.size != self.model.statistics_size:
            raise ValueError(
                f"{type(self.model).__name__}.local_step gave {statistics.size} numbers of statistics, "
                f"expected {self.model.statistics_size}: one for each natural parameter of the prior"
            )
        if not np.isfinite(statistics).all():
            raise ValueError(
                f"{name} gave statistics that are not finite: look for NaN in the shard"
            )
        message = np.append(statistics, float(learned.bound))
        if belief.carried is not None:
            message = message + belief.carried
        return np.concatenate([message, belief.natural, [1.0]]) if self._tells_belief else message

    @property
    def _tells_belief(self) -> bool:
        return self.accelerated and not self.alone

    def absorb(self, total: FloatArray, own: FloatArray, belief: ConjugateBelief) -> Absorbed:
        if not np.isfinite(total).all():
            return Absorbed(belief, True)
        point = belief.natural
        if self._tells_belief:
            total, beliefs, count = np.split(total, [self.model.statistics_size + 1, -1])
            if belief.swept:  # the start is the same everywhere, to the last bit
                point = beliefs / count
        objective = float(total[-1]) - belief.divergence
        rounding = BOUND_ROUNDING if self.alone else AGREED_ROUNDING
        fallen = has_fallen(objective, belief.objective, rounding)
        if belief.plain is not None and fallen:
            # the plain sweep's result cannot have been worse: go back to it, and forget
            return Absorbed(self._at(belief.plain, replace(belief, points=(), images=())), False)
        image, limited = self._plain_sweep(total[:-1], belief)
        if image is None:
            return Absorbed(belief, True)
        residual = _distance(belief.q, image, point)
        kept = replace(belief, objective=objective, residual=residual, swept=True)
        if limited or not self.accelerated:
            return Absorbed(self._at(image, replace(kept, points=(), images=())), limited)
        kept = replace(
            kept,
            points=(*belief.points, point)[-MEMORY:],
            images=(*belief.images, image)[-MEMORY:],
        )
        if residual < CALM_ENOUGH and len(kept.points) > 1:
            further = extrapolated(kept.points, kept.images, belief.q)
            if further is not None:
                return Absorbed(replace(self._at(further, kept), plain=image), False)
        return Absorbed(self._at(image, kept), False)

    def change(self, new: ConjugateBelief, old: ConjugateBelief) -> float:
        """Largest relative change of a block, by this step or by the plain sweep before it."""
        if not old.swept:
            return np.inf
        residual = CAUTION * new.residual if self.accelerated else new.residual
        return max(_distance(old.q, new.natural, old.natural), residual)

    def objective(self, belief: ConjugateBelief) -> float:
        return belief.objective

    def _at(self, natural: FloatArray, belief: ConjugateBelief) -> ConjugateBelief:
        q = belief.q.unpack(natural)
        return replace(
            belief, q=q, natural=natural, divergence=self.model.divergence(q), plain=None
        )

    def _plain_sweep(
        self, total: FloatArray, belief: ConjugateBelief
    ) -> tuple[FloatArray | None, bool]:
        """The next belief, or the point on the way to it that stays proper."""
        try:
            target = self.model.posterior(total, belief.q).pack()
        except np.linalg.LinAlgError:  # nothing usable yet: wait for more agreement
            return None, True
        if is_proper(belief.q, target):
            return target, False
        if not np.isfinite(target).all():
            return None, True
        direction = target - belief.natural
        reach = min(1.0, _reach(belief.q, direction))
        return belief.natural + EDGE_FRACTION * reach * direction, True


def extrapolated(
    points: tuple[FloatArray, ...], images: tuple[FloatArray, ...], shapes: Belief
) -> FloatArray | None:
    """Anderson's step: the combination of images whose residual is smallest; None where it is no belief.

    Residuals are weighed by block, so that a block of large numbers does not drown the others.
    """
    weight = np.empty_like(images[-1])
    for part in block_slices(shapes):
        weight[part] = one_over_norm(images[-1][part])
    candidate = combined(points, images, weight)
    return candidate if is_proper(shapes, candidate) else None


def distance(one: Belief, other: Belief) -> float:
    """Largest relative difference of two beliefs' natural parameters, block by block."""
    return _distance(other, one.pack(), other.pack())


def block_slices(q: Belief) -> Iterator[slice]:
    """Where each named block lies in the packed vector."""
    at = 0
    for block in q.values() if isinstance(q, Product) else [q]:
        yield slice(at, at + block.packed_size)
        at += block.packed_size


def is_proper(shapes: Belief, natural: FloatArray) -> bool:
    """Whether packed natural parameters are those of a proper distribution."""
    if not np.isfinite(natural).all():
        return False
    return bool(np.all(shapes.unpack(natural).in_domain()))


def _reach(q: Belief, direction: FloatArray) -> float:
    along = q.unpack(direction)
    if isinstance(q, Product):
        assert isinstance(along, Product)
        return q.max_step(along)
    assert isinstance(along, Family)
    return float(np.min(q.max_step(along.natural)))


def _distance(shapes: Belief, new: FloatArray, old: FloatArray) -> float:
    return max(relative_norm(new[part] - old[part], new[part]) for part in block_slices(shapes))
