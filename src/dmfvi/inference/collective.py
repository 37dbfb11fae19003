"""Sums, broadcasts and gathers over the network, by the same node loop as a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmfvi import consensus
from dmfvi.consensus.base import ConsensusRule
from dmfvi.engines.base import Task
from dmfvi.inference.model import Average, Broadcast, Coroutine, Sum
from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.node import Job

#: relative error of an agreed sum
SUM_ACCURACY = 1e-9
MAX_SUM_ROUNDS = 20_000


@dataclass
class Collective:
    """A network, an engine, and a count of the rounds and bytes that sums have cost."""

    network: Network
    engine: Any
    rule: ConsensusRule  # of the session: sums are made by it if it is exact
    n_rounds: int = 0
    bytes_sent: int = 0

    def sum(
        self, vectors: Sequence[FloatArray], accuracy: float = SUM_ACCURACY
    ) -> list[FloatArray]:
        """Every node's estimate of the sum of all vectors."""
        if self.rule.bitwise:
            return self._run(self.rule, vectors, 1, accuracy)
        if self.rule.collective or self.network.n_nodes == 1:
            return self._run(consensus.make("all-reduce", self.network), vectors, 1, accuracy)
        rule = consensus.make("bregman-admm", self.network, damping=accuracy)
        return self._run(rule, vectors, 1 if self.engine.reliable else None, accuracy)

    def broadcast(self, vector: FloatArray) -> list[FloatArray]:
        """Node 0's vector, at every node; what other nodes pass counts only for its size."""
        if self.network.n_nodes == 1:
            return [vector]
        owned = self.engine.owned(self.network)
        vectors = [vector if i == 0 else np.zeros_like(vector) for i in owned]
        if self.rule.collective or self.rule.bitwise:  # all others add zeros
            return self.sum(vectors)
        rounds = self.network.diameter if self.engine.reliable else None
        return self._run(consensus.make("flood", self.network), vectors, rounds, 1.0)

    def gather(self, vectors: Sequence[FloatArray]) -> list[FloatArray]:
        """Every node's vector, in the order of the nodes, and the same to the last bit at all of them.

        They may differ in length. It is a sum of vectors in which each node fills entries of its own, and as accurate
        as a sum: whole numbers must be rounded.
        """
        owned, n_nodes = self.engine.owned(self.network), self.network.n_nodes
        if len(owned) == n_nodes:
            return list(vectors)
        sizes = [_in_slot(i, n_nodes, [len(v)]) for i, v in zip(owned, vectors, strict=True)]
        lengths = np.rint(self.sum(sizes)[0])
        longest = int(lengths.max())
        padded = [np.pad(v, (0, longest - len(v))) for v in vectors]
        total = self.sum([_in_slot(i, n_nodes, v) for i, v in zip(owned, padded, strict=True)])[0]
        slots = self.broadcast(total)[0].reshape(n_nodes, longest)
        return [row[: int(length)] for row, length in zip(slots, lengths, strict=True)]

    def run(self, coroutines: Sequence[Coroutine]) -> list[Any]:
        """Run one coroutine per node in step: what each yields is summed, and each receives the sum.

        ``total = yield vector`` inside a coroutine is all that leaves a node; ``yield Broadcast(vector)`` receives node
        0's vector instead.
        """
        received: list[Any] = [None] * len(coroutines)
        while True:
            yielded: list[Any] = []
            returned: list[Any] = []
            for coroutine, total in zip(coroutines, received, strict=True):
                try:
                    yielded.append(coroutine.send(total))
                except StopIteration as end:
                    returned.append(end.value)
            if returned:
                if yielded:
                    raise RuntimeError(
                        f"{len(returned)} of {len(coroutines)} nodes returned while the others go on: "
                        "let what is yielded depend on agreed sums only"
                    )
                return returned
            received = self._exchanged(yielded)

    def _exchanged(self, yielded: list[Any]) -> list[FloatArray]:
        if isinstance(yielded[0], Broadcast):
            whole = len(self.engine.owned(self.network)) == self.network.n_nodes
            if self.rule.bitwise and whole:  # what follows from exact sums is the same everywhere
                return [part.vector for part in yielded]
            return self.broadcast(yielded[0].vector)
        sums = [part if isinstance(part, Sum) else Sum(part) for part in yielded]
        vectors = [np.asarray(part.vector, dtype=np.float64) for part in sums]
        return self.sum(vectors, sums[0].accuracy or SUM_ACCURACY)

    def _run(
        self,
        rule: ConsensusRule,
        vectors: Sequence[FloatArray],
        fixed_sweeps: int | None,
        accuracy: float,
    ) -> list[FloatArray]:
        # a broadcast hands a vector on as it is; only sums count every node's share
        job = Job(
            Average(),
            rule,
            tol=accuracy,
            fixed_sweeps=fixed_sweeps,
            replicated=rule.name == "flood",
        )
        task = Task(job, self.network, vectors, [None] * len(vectors), MAX_SUM_ROUNDS)
        run = self.engine.run(task)
        if not run.converged:
            raise RuntimeError(
                f"no agreement on a sum after {run.n_rounds} rounds (disagreement "
                f"{run.history[-1].disagreement:.1e}; at most {MAX_SUM_ROUNDS} rounds): the links are too bad, or the "
                "others have agreed and gone while this node was away; run it again"
            )
        self.n_rounds += run.n_rounds
        self.bytes_sent += sum(record.bytes_sent for record in run.history)
        return list(run.beliefs)


def _in_slot(node: int, n_nodes: int, content: Sequence[float] | FloatArray) -> FloatArray:
    slots = np.zeros((n_nodes, len(content)))
    slots[node] = content
    return slots.ravel()
