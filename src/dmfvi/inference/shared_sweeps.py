"""SharedSweeps: nodes of one process that hold the same bits compute what follows from them once."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from dmfvi.inference.model import Model, Update
from dmfvi.linalg import FloatArray

#: nodes may be some sweeps apart where messages are lost
REMEMBERED = 4


class _Sweep(NamedTuple):
    total: FloatArray
    belief: Any
    update: Update


class SharedSweeps(Model):
    """Another model, for nodes whose beliefs follow from the sum alone.

    ``absorb`` and ``change`` are pure: for the same belief (the same object) and the same bits of the sum they give
    the same again. A node whose sum differs in a bit gets its own answer.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._sweeps: deque[_Sweep] = deque(maxlen=REMEMBERED)
        self._changes: deque[tuple[Any, Any, float]] = deque(maxlen=REMEMBERED)

    def start(self, shard: Any, rng: np.random.Generator) -> Any:
        return self.model.start(shard, rng)

    def local_step(self, shard: Any, belief: Any) -> Any:
        return self.model.local_step(shard, belief)

    def statistics(self, shard: Any, belief: Any) -> FloatArray:
        return self.model.statistics(shard, belief)

    def describe(self, position: int) -> str:
        return self.model.describe(position)

    def absorb(self, total: FloatArray, own: FloatArray, belief: Any) -> Update:
        for known in tuple(self._sweeps):
            if known.belief is belief and known.total.tobytes() == total.tobytes():
                return known.update
        update = self.model.absorb(total, own, belief)
        self._sweeps.appendleft(_Sweep(total, belief, update))
        return update

    def change(self, new: Any, old: Any) -> float:
        for known_new, known_old, value in tuple(self._changes):
            if known_new is new and known_old is old:
                return value
        value = self.model.change(new, old)
        self._changes.appendleft((new, old, value))
        return value
