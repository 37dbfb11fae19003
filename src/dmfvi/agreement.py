"""Sums and broadcasts over the network, by the same node loop as everything else."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmfvi._numeric import FloatArray
from dmfvi.consensus import AllReduce, BregmanADMM, ConsensusRule, Flood
from dmfvi.models.base import Average
from dmfvi.network import Network
from dmfvi.node import Job

#: relative error of an agreed sum
SUM_ACCURACY = 1e-9
MAX_SUM_ROUNDS = 20_000


@dataclass
class Meeting:
    """A network, an engine, and a count of the rounds that agreements have cost."""

    network: Network
    engine: Any
    collective: bool = False  # anyone may talk to anyone
    n_rounds: int = 0
    bytes_sent: int = 0

    def sum(
        self, vectors: Sequence[FloatArray], accuracy: float = SUM_ACCURACY
    ) -> list[FloatArray]:
        """Every node's estimate of the sum of all vectors."""
        alone = self.collective or self.network.n_nodes == 1
        rule: ConsensusRule = AllReduce() if alone else BregmanADMM(damping=accuracy)
        reliable = alone or self.engine.reliable
        return self._run(rule, vectors, 1 if reliable else None, accuracy)

    def broadcast(self, vector: FloatArray) -> list[FloatArray]:
        """Node 0's vector, at every node; what other nodes pass counts only for its size."""
        owned = self.engine.owned(self.network)
        if self.network.n_nodes == 1:
            return [vector]
        vectors = [vector if i == 0 else np.zeros_like(vector) for i in owned]
        if self.collective:  # all others add zeros
            return self.sum(vectors)
        reliable = self.engine.reliable
        return self._run(Flood(), vectors, self.network.diameter if reliable else None, 1.0)

    def gather(self, vectors: Sequence[FloatArray]) -> list[FloatArray]:
        """Every node's vector, in the order of the nodes, and the same to the last bit at all of them.

        They may differ in length. It is a sum of vectors in which each node fills a place of its own, and as accurate
        as a sum: whole numbers must be rounded.
        """
        owned, n_nodes = self.engine.owned(self.network), self.network.n_nodes
        if len(owned) == n_nodes:
            return list(vectors)
        lengths = np.rint(
            self.sum([_in_slot(i, n_nodes, [len(v)]) for i, v in zip(owned, vectors, strict=True)])[
                0
            ]
        )
        longest = int(lengths.max())
        padded = [np.pad(v, (0, longest - len(v))) for v in vectors]
        total = self.sum([_in_slot(i, n_nodes, v) for i, v in zip(owned, padded, strict=True)])[0]
        slots = self.broadcast(total)[0].reshape(n_nodes, longest)
        return [row[: int(length)] for row, length in zip(slots, lengths, strict=True)]

    def discuss(self, talks: Sequence[Generator[FloatArray, FloatArray, Any]]) -> list[Any]:
        """Run one talk per node in step: what each yields is summed, and each hears the sum.

        ``total = yield vector`` inside a talk is all that leaves a node.
        """
        heard: list[FloatArray | None] = [None] * len(talks)
        while True:
            said: list[FloatArray] = []
            concluded: list[Any] = []
            for talk, total in zip(talks, heard, strict=True):
                try:
                    said.append(np.asarray(talk.send(total), dtype=np.float64))  # type: ignore[arg-type]
                except StopIteration as end:
                    concluded.append(end.value)
            if concluded:
                if said:
                    raise RuntimeError(
                        f"{len(concluded)} of {len(talks)} nodes ended a talk that the others go on "
                        "with: let what is yielded depend on agreed sums only"
                    )
                return concluded
            heard = list(self.sum(said))

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
            replicated=isinstance(rule, Flood),
        )
        run = self.engine.run(job, self.network, vectors, [None] * len(vectors), MAX_SUM_ROUNDS)
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
