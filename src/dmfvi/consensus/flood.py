"""Flood: every node takes over node 0's vector, hop by hop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dmfvi.consensus.base import ConsensusRule, Incoming, LocalView, Progress
from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as

LEADER = 0


@stored_as("flood-state")
@dataclass(frozen=True)
class FloodState:
    """The vector, if it has arrived."""

    view: LocalView
    value: FloatArray
    known: bool
    round: int = 0


class Flood(ConsensusRule):
    """Broadcast from node 0, so that all nodes share a start to the last bit."""

    name = "flood"
    tolerates_loss = True

    def start(self, view: LocalView, target: FloatArray) -> FloodState:
        return FloodState(view, target, view.node == LEADER)

    def advance(
        self, state: FloodState, inbox: Mapping[int, Incoming]
    ) -> tuple[FloodState, Progress]:
        state = replace(state, round=state.round + 1)
        for message in inbox.values():
            if not state.known and message.payload[0] == 1.0:
                state = replace(state, value=message.payload[1:], known=True)
        return state, Progress(ready=True, disagreement=0.0 if state.known else np.inf)

    def retarget(self, state: FloodState, target: FloatArray) -> FloodState:
        return state

    def payload(self, state: FloodState) -> FloatArray:
        return np.concatenate([[1.0 if state.known else 0.0], state.value])

    def final_estimate(self, payload: FloatArray, like: FloatArray) -> FloatArray | None:
        return payload[1:] if payload[0] == 1.0 else None

    def estimate(self, state: FloodState) -> FloatArray:
        return state.value

    def rounds_per_sweep(self, view: LocalView) -> int:
        return 1
