"""The contract of a model: what a node learns from its own data.

A model knows nothing of graphs or messages. Its global belief follows from a flat vector of
statistics that is a plain sum over all data; the consensus rule supplies that sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from dmfvi._numeric import relative_norm
from dmfvi.families.base import FloatArray


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
