"""Stochastic: natural-gradient steps on minibatches, for any conjugate model (Hoffman et al. 2013).

    lambda <- (1 - r_t) lambda + r_t (eta_0 + N / n_t  sum of the minibatches' statistics)      r_t = (offset + t)^-decay

Every node takes its own minibatch; the number of samples in it travels with the statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmfvi.inference.model import (
    Belief,
    Broadcast,
    ConjugateModel,
    Coroutine,
    Model,
    Update,
)
from dmfvi.linalg import FloatArray, relative_norm
from dmfvi.tags import stored_as


@stored_as("stochastic-belief")
@dataclass(frozen=True)
class StochasticBelief:
    """q(global) after so many steps."""

    q: Belief
    step: int = 0


@dataclass(frozen=True)
class Minibatches:
    """A node's samples and the way to take some of them."""

    shard: Any
    n_samples: int
    take: Callable[[Any, np.ndarray], Any]
    batch_size: int
    seed: int

    def at(self, step: int) -> tuple[Any, int]:
        """The minibatch of a step: each pass is in a new, seeded order."""
        size = min(self.batch_size, self.n_samples)
        per_pass = -(-self.n_samples // size)
        rng = np.random.default_rng([self.seed, step // per_pass])
        order = rng.permutation(self.n_samples)
        chosen = np.sort(order[(step % per_pass) * size : (step % per_pass + 1) * size])
        return self.take(self.shard, chosen), len(chosen)


@dataclass(frozen=True)
class Stochastic(Model):
    """The node loop's view of stochastic steps."""

    model: ConjugateModel
    n_samples: float  # at all nodes together
    offset: float = 10.0
    decay: float = 0.7

    def start(self, shard: Minibatches, rng: np.random.Generator) -> StochasticBelief | Coroutine:
        """The other model's start from all samples."""
        made = self.model.start(shard.shard, rng)
        return self._begin(made) if isinstance(made, Generator) else StochasticBelief(made)

    def _begin(self, coroutine: Coroutine) -> Coroutine:
        q = yield from coroutine
        return StochasticBelief(q.unpack((yield Broadcast(q.pack()))))

    def local_step(self, shard: Minibatches, belief: StochasticBelief) -> FloatArray:
        batch, size = shard.at(belief.step)
        made = self.model.statistics(batch, belief.q)
        return np.concatenate([made[:-1], [float(size), made[-1]]])

    def absorb(self, total: FloatArray, own: FloatArray, belief: StochasticBelief) -> Update:
        size, bound = float(total[-2]), float(total[-1])
        if not np.isfinite(total).all() or size < 0.5:
            return Update(belief, float("nan"), True)
        factor = self.n_samples / size
        objective = factor * bound - self.model.divergence(belief.q)
        rate = (self.offset + belief.step + 1.0) ** -self.decay
        here = belief.q.pack()
        target = self.model.from_statistics(factor * total[:-2]).pack()
        q = belief.q.unpack((1.0 - rate) * here + rate * target)
        if not np.all(q.in_domain()):  # not enough agreement yet
            return Update(replace(belief, step=belief.step + 1), objective, True)
        return Update(StochasticBelief(q, belief.step + 1), objective)

    def change(self, new: StochasticBelief, old: StochasticBelief) -> float:
        natural = new.q.pack()
        return relative_norm(natural - old.q.pack(), natural)

    @property
    def memoryless(self) -> bool:
        return False  # another minibatch in every step

    def posterior(self, belief: StochasticBelief) -> Belief:
        return belief.q
