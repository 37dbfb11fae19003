"""AllReduce: the exact sum in every round, where every node can reach every other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dmfvi.consensus.base import ConsensusRule, Incoming, LocalView, Progress
from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as

#: key under which a collective engine delivers the sum of all payloads
EVERYONE = -1


@stored_as("all-reduce-state")
@dataclass(frozen=True)
class ReduceState:
    """The node's own target and the last sum."""

    view: LocalView
    target: FloatArray
    total: FloatArray
    round: int = 0


class AllReduce(ConsensusRule):
    """One exchange a sweep: the pooled algorithm on distributed data, the honest baseline."""

    name = "all-reduce"
    collective = True
    sums = True

    def start(self, view: LocalView, target: FloatArray) -> ReduceState:
        return ReduceState(view, target, target)

    def advance(
        self, state: ReduceState, inbox: Mapping[int, Incoming]
    ) -> tuple[ReduceState, Progress]:
        if EVERYONE not in inbox:
            raise RuntimeError(
                "all-reduce received no total: it needs an engine with a reduction "
                "(local, mpi) or consensus='bregman-admm'"
            )
        return replace(state, total=inbox[EVERYONE].payload, round=state.round + 1), Progress(
            ready=True, disagreement=0.0
        )

    def retarget(self, state: ReduceState, target: FloatArray) -> ReduceState:
        return replace(state, target=target)

    def payload(self, state: ReduceState) -> FloatArray:
        return state.target

    def estimate(self, state: ReduceState) -> FloatArray:
        return state.total

    def rounds_per_sweep(self, view: LocalView) -> int:
        return 1
