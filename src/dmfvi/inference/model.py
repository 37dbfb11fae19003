"""The contract of a model: what a node learns from its own data.

A model knows nothing of graphs or messages. Its belief about the global variables follows from a flat vector of
statistics that is a plain sum over all data; the consensus rule supplies that sum. One iteration (a sweep) is

    s_i = local_step(shard_i, belief)        total = sum_i s_i        belief <- absorb(total, s_i, belief)

``ConjugateModel`` is what to write for a new model: a prior, and one local step; the rest is derived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dmfvi.families.base import MATRIX, Family
from dmfvi.inference.sensitivity import family_tilts, packed_mean
from dmfvi.linalg import FloatArray, relative_norm

#: q(global variables) of a conjugate model: one family; named blocks are a ``Product``, a family too
Belief = Family

#: part of the way to the domain's edge that a limited step goes
EDGE_FRACTION = 0.9


class Sum(NamedTuple):
    """What a coroutine yields to get the sum over all nodes; a plain array means ``Sum(array)``."""

    vector: FloatArray
    accuracy: float | None = None  # relative; None is the default of the session


class Broadcast(NamedTuple):
    """What a coroutine yields to get node 0's vector, the same bits at every node."""

    vector: FloatArray


#: a computation that needs sums over all nodes: ``total = yield vector`` hands in this node's vector and receives the
#: sum of all nodes' vectors; what is yielded is all that leaves a node
Coroutine = Generator[Any, FloatArray, Any]


class Statistics(NamedTuple):
    """A shard's statistics: natural parameters to add to the prior, and its part of the evidence lower bound.

    ``values`` is a belief of the prior's shapes (it need not be proper), or the same numbers packed. ``bound`` is
    E[log p(x, z | global)] + H[q(z)] at the q of the step, with all constants.

    Parameters
    ----------
    values : Belief or array
        What is added to the natural parameters of the prior.
    bound : float
        The shard's part of the bound.
    """

    values: Belief | FloatArray
    bound: float


class Update(NamedTuple):
    """A new belief, the bound at the belief before it, and whether the step was cut short at the domain's edge."""

    belief: Any
    objective: float
    limited: bool = False


class Model(ABC):
    """Conjugate-exponential given its local variables: a start and two pure steps."""

    @property
    def improper_hint(self) -> str:
        """What to look for where the prior and the statistics give no proper distribution."""
        return (
            "most likely the data leave no noise for the model to learn; look for targets that are an exact function of "
            "the features"
        )

    @property
    def memoryless(self) -> bool:
        """Whether the sum of statistics depends on the belief only; otherwise sweeps are not extrapolated."""
        return True

    @property
    def beliefs_alike(self) -> bool:
        """Whether the belief follows from the sum of statistics alone, so that all nodes hold the same."""
        return True

    @abstractmethod
    def start(self, shard: Any, rng: np.random.Generator) -> Any:
        """The belief to begin with, the same at all nodes: ``rng`` is seeded alike everywhere.

        Write it as a generator (``total = yield vector``) where it needs sums over all data.
        """

    @abstractmethod
    def local_step(self, shard: Any, belief: Any) -> Any:
        """Update q(local variables) and return this shard's expected statistics, one flat vector, the bound last."""

    @abstractmethod
    def absorb(self, total: FloatArray, own: FloatArray, belief: Any) -> Update:
        """The belief that the sum of all statistics implies; ``own`` is this node's part of it."""

    @abstractmethod
    def change(self, new: Any, old: Any) -> float:
        """Relative difference of two beliefs in natural parameters."""

    def posterior(self, belief: Any) -> Any:
        """What a user gets of a belief; it has ``distance(other)`` and ``sample(rng, n)``."""
        return belief

    def posteriors(self, beliefs: Sequence[Any]) -> list[Any]:
        """Every node's posterior; a model with interchangeable components puts them in the same order."""
        return [self.posterior(belief) for belief in beliefs]

    def gaussian_scalars(self, belief: Any) -> tuple[int, float] | None:
        """Number of scalar Gaussians at the front of the statistics, and the deviation that counts as one."""
        return None

    def describe(self, position: int) -> str:
        """What a number of the statistics is, for messages."""
        return f"statistic {position}"

    def restarted(self, number: int) -> Model:
        """The model that makes start ``number`` of ``n_init`` (from 0), for models that have several kinds of starts."""
        return self

    def starts(self) -> Sequence[Model]:
        """The usual start (first) and others, which short runs compare (``n_init="auto"``), as models; their beliefs are this model's."""
        return [self]

    def refreshed(self, shard: Any) -> Any:
        """The shard as if it had never been visited, for models whose local step keeps state in it."""
        return shard

    def statistics(self, shard: Any, belief: Any) -> FloatArray:
        """``local_step`` as the flat vector that nodes exchange."""
        return np.asarray(self.local_step(shard, belief))

    # -- what extrapolation needs to know -----------------------------------------------------

    def extrapolates(self, belief: Any) -> bool:
        """Whether sweeps may be extrapolated from this belief on."""
        return True

    def blocks(self, total: FloatArray) -> Sequence[slice]:
        """Parts of the total whose relative changes count alike; entries in no part do not count."""
        return [slice(0, -1)]

    def block_sizes(self, total: FloatArray) -> list[float]:
        """The size that makes a change of each block relative: its norm, where rounding alone cannot make it small."""
        return [float(np.linalg.norm(total[block])) for block in self.blocks(total)]

    def implied_total(self, belief: Any) -> FloatArray | None:
        """Statistics from which this belief would follow, if there are any."""
        return None

    def is_usable(self, belief: Any) -> bool:
        """Whether a belief made from extrapolated statistics is a proper one."""
        return True

    # -- what linear response needs to know ---------------------------------------------------

    def for_response(self) -> Model:
        """The model whose sweeps are plain updates: one that also changes coordinates leaves that out."""
        return self

    def belief_from(self, total: FloatArray, own: FloatArray, belief: Any) -> Any:
        """The belief that a total near the fitted one implies."""
        return self.absorb(total, own, belief).belief

    def derivative(self, shard: Any, belief: Any) -> Any:
        """The derivative of a sweep at a fitted belief (``response.Derivative``), or None: by differences."""
        return None

    def named_tilts(self, belief: Any, name: str) -> FloatArray | None:
        """``tilts`` of a quantity that is asked for by name, where they are known in closed form."""
        return None

    def expected(self, belief: Any) -> FloatArray:
        """Expectations of the statistics that the entries of the total are natural parameters of, (n,)."""
        raise NotImplementedError(f"{type(self).__name__} has no linear response")

    def tilts(self, belief: Any, values: Callable[[Any], FloatArray]) -> FloatArray:
        """Gradients of quantities of a belief in ``expected``, (r, n)."""
        raise NotImplementedError(
            f"{type(self).__name__} has no linear response: it does not say how its beliefs depend on the total"
        )


class ConjugateModel(Model):
    """A model whose global variable is conjugate given the rest: posterior = prior + sum of statistics."""

    @property
    @abstractmethod
    def prior(self) -> Belief:
        """p(global variables)."""

    @abstractmethod
    def local_step(self, shard: Any, q: Any) -> Statistics:
        """Find the best q(z) for this shard under q(global), and return its statistics of the global variables."""

    def start(self, shard: Any, rng: np.random.Generator) -> Belief | Coroutine:
        """The prior, unless a model has a better idea."""
        return self.prior

    @cached_property
    def _prior(self) -> Belief:
        """The prior, worked out once."""
        return self.prior

    def from_statistics(self, total: FloatArray) -> Belief:
        """q(global) for the packed sum of all statistics."""
        return self._prior.unpack(self._prior.pack() + total)

    def divergence(self, q: Any) -> float:
        """KL(q || prior), what the bound loses to the global variables."""
        return float(np.sum(q.kl(self._prior)))

    # -- derived ------------------------------------------------------------------------------

    def statistics(self, shard: Any, belief: Any) -> FloatArray:
        made = self.local_step(shard, belief)
        name = f"{type(self).__name__}.local_step"
        if not isinstance(made, Statistics):
            raise TypeError(
                f"{name} must return Statistics(values, bound), received {type(made).__name__}"
            )
        if np.ndim(made.bound) != 0 or not np.isfinite(made.bound):
            raise ValueError(
                f"{name} must give one finite bound, received {made.bound!r}: add it up"
            )
        values = made.values if isinstance(made.values, np.ndarray) else made.values.pack()
        if values.size != self._prior.packed_size:
            raise ValueError(
                f"{name} gave {values.size} numbers of statistics, expected {self._prior.packed_size}: "
                "one for each natural parameter of the prior"
            )
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} gave statistics that are not finite: look for NaN in the shard"
            )
        return np.append(values, float(made.bound))

    def absorb(self, total: FloatArray, own: FloatArray, belief: Any) -> Update:
        if not np.isfinite(total).all():
            return Update(belief, float("nan"), True)
        objective = float(total[-1]) - self.divergence(belief)
        try:
            target = self.from_statistics(total[:-1])
        except np.linalg.LinAlgError:  # not usable yet: wait for more agreement
            return Update(belief, objective, True)
        if np.all(target.in_domain()):
            return Update(target, objective)
        goal = target.pack()
        if not np.isfinite(goal).all():
            return Update(belief, objective, True)
        here = belief.pack()
        try:
            reach = min(1.0, float(np.min(belief.max_step(belief.unpack(goal - here).natural))))
        except np.linalg.LinAlgError:  # the belief is as good as singular itself
            return Update(belief, objective, True)
        return Update(belief.unpack(here + EDGE_FRACTION * reach * (goal - here)), objective, True)

    def change(self, new: Any, old: Any) -> float:
        """Largest relative change of a block."""
        return float(new.distance(old))

    def blocks(self, total: FloatArray) -> Sequence[slice]:
        return self._prior.block_slices()

    def describe(self, position: int) -> str:
        prior, at = self._prior, 0
        names = prior.natural_names
        for name, part, axes in zip(names, prior.natural, prior.event_axes, strict=True):
            width = part.shape[-1] if axes == MATRIX else 0
            at += part.size // (width * width) * (width * (width + 1) // 2) if width else part.size
            if position < at:
                return f"statistic {position} (of {name})"
        return "the bound"

    def implied_total(self, belief: Any) -> FloatArray | None:
        return np.append(belief.pack() - self._prior.pack(), 0.0)

    def belief_from(self, total: FloatArray, own: FloatArray, belief: Any) -> Any:
        return self.from_statistics(total[:-1])

    def expected(self, belief: Any) -> FloatArray:
        return packed_mean(belief)

    def tilts(self, belief: Any, values: Callable[[Any], FloatArray]) -> FloatArray:
        return family_tilts(belief, values)


class Average(Model):
    """The trivial model: statistics are given vectors and the belief is their sum."""

    def start(self, shard: FloatArray, rng: np.random.Generator) -> None:
        return None

    def local_step(self, shard: FloatArray, belief: Any) -> FloatArray:
        return shard

    def absorb(self, total: FloatArray, own: FloatArray, belief: Any) -> Update:
        return Update(total, float("nan"))

    def change(self, new: FloatArray, old: FloatArray | None) -> float:
        return np.inf if old is None else relative_norm(new - old, new)
