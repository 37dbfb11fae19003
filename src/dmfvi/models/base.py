"""The contracts of a model: what a node learns from its own data.

A model knows nothing of graphs or messages. Its global belief follows from a flat vector of
statistics that is a plain sum over all data; the consensus rule supplies that sum.

``ConjugateModel`` is what to write for a new model: a prior, and one local step. ``Model`` is what the
node loop runs; ``dmfvi.models.conjugate.Conjugate`` makes the second out of the first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dmfvi._numeric import relative_norm
from dmfvi.families.base import Family, FloatArray
from dmfvi.families.product import Product

#: q(global variables): one family, or named blocks
Belief = Family | Product
#: a start that needs to know more than one shard: ``total = yield vector`` hands in this node's vector
#: and gets back the sum of all nodes' vectors; the belief it returns in the end is the start
Agreement = Generator[FloatArray, FloatArray, Belief]


class Learned(NamedTuple):
    """What a shard says: statistics in natural coordinates, and its part of the bound.

    ``statistics`` is a Belief of the prior's shapes that is added to the prior (it need not be proper), or
    the same numbers packed. ``bound`` is E[log p(x, z | global)] + H[q(z)] at the q of the step, with all constants.
    """

    statistics: Belief | FloatArray
    bound: float


class ConjugateModel(ABC):
    """A model whose global variable is conjugate given the rest: posterior = prior + sum of statistics."""

    #: whether ``local_step`` depends on its arguments only; a model whose shards remember says no, and its
    #: sweeps are not extrapolated unless asked for
    memoryless: ClassVar[bool] = True

    @property
    @abstractmethod
    def prior(self) -> Belief:
        """p(global variables)."""

    @abstractmethod
    def local_step(self, shard: Any, q: Any) -> Learned:
        """Find the best q(z) for this shard under q(global), and say what it teaches about the global variables."""

    def start(self, shard: Any, rng: np.random.Generator) -> Belief | Agreement:
        """The q to begin with, the same at all nodes: ``rng`` is seeded alike everywhere.

        Write it as a generator (``total = yield vector``) where it needs sums over all data.
        """
        return self.prior

    def refreshed(self, shard: Any) -> Any:
        """The shard as if it had never been visited, for models whose local step remembers."""
        return shard

    @property
    def statistics_size(self) -> int:
        """How many numbers a shard's statistics have, packed."""
        return self.prior.packed_size

    def posterior(self, total: FloatArray, q: Any) -> Belief:
        """q(global) for the packed sum of all statistics; ``q`` is the belief they were made with."""
        return self.prior.unpack(self.prior.pack() + total)

    def divergence(self, q: Any) -> float:
        """KL(q || prior), what the bound loses to the global variables."""
        return float(np.sum(q.kl(self.prior)))


class Absorbed(NamedTuple):
    """A new belief, and whether the step towards it was cut short at the domain's edge."""

    belief: Any
    limited: bool


class Model(ABC):
    """Conjugate-exponential given its local variables: two pure steps."""

    @abstractmethod
    def local_step(self, shard: Any, belief: Any) -> FloatArray:
        """Update q(local variables) and return this shard's expected statistics, one flat vector."""

    @abstractmethod
    def absorb(self, total: FloatArray, own: FloatArray, belief: Any) -> Absorbed:
        """The belief that the sum of all statistics implies; ``own`` is this node's part of it."""

    @abstractmethod
    def change(self, new: Any, old: Any) -> float:
        """Relative difference of two beliefs in natural parameters."""

    def objective(self, belief: Any) -> float:
        """Evidence lower bound as far as this node knows it; nan where there is none."""
        return float("nan")


class Average(Model):
    """The trivial model: statistics are given vectors and the belief is their sum."""

    def local_step(self, shard: FloatArray, belief: Any) -> FloatArray:
        return shard

    def absorb(self, total: FloatArray, own: FloatArray, belief: Any) -> Absorbed:
        return Absorbed(total, False)

    def change(self, new: FloatArray, old: FloatArray | None) -> float:
        return np.inf if old is None else relative_norm(new - old, new)
