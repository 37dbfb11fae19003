"""StatisticsTracking: dynamic average consensus with Chebyshev mixing.

x_i <- x_i + t_i(new) - t_i(old) after each local sweep keeps the average of x equal to the average
of t (Zhu & Martinez 2010); between sweeps the nodes mix x with their neighbours. Needs
every message: a lost one changes the average for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dmfvi.consensus.base import ConsensusRule, Incoming, Progress
from dmfvi.consensus.mixing import DEFAULT_DAMPING, Mixing, SpectralView, design_mixing
from dmfvi.linalg import FloatArray, relative_norm
from dmfvi.network import Network
from dmfvi.tags import stored_as


@stored_as("tracking-state")
@dataclass(frozen=True)
class TrackingState:
    """One node's running average and the value before it."""

    view: SpectralView
    mixing: Mixing
    target: FloatArray
    value: FloatArray
    previous: FloatArray
    phase: int = 0
    round: int = 0


class StatisticsTracking(ConsensusRule):
    """Dynamic average consensus; ``rounds`` between sweeps, or "auto" from the spectrum.

    Parameters
    ----------
    rounds : int or "auto"
        Rounds between two sweeps; "auto": from the spectrum of the graph.
    damping : float
        Factor to which the mixing of one sweep reduces the largest error.
    """

    name = "statistics-tracking"

    def __init__(
        self, rounds: int | Literal["auto"] = "auto", damping: float = DEFAULT_DAMPING
    ) -> None:
        if rounds != "auto" and not (int(rounds) == rounds and rounds >= 1):
            raise ValueError(f"rounds must be 'auto' or a positive integer, received {rounds!r}")
        self.rounds = rounds
        self.damping = damping

    def local_view(self, network: Network, node: int) -> SpectralView:
        return SpectralView.of(network, node)

    def start(self, view: SpectralView, target: FloatArray) -> TrackingState:
        return TrackingState(view, self._mixing(view), target, target, target)

    def advance(
        self, state: TrackingState, inbox: Mapping[int, Incoming]
    ) -> tuple[TrackingState, Progress]:
        mixing = state.mixing
        gap = np.zeros_like(state.value)
        for j in state.view.neighbours:
            if j not in inbox or inbox[j].round != state.round:
                raise RuntimeError(
                    f"statistics-tracking at node {state.view.node} misses a message from node {j}: "
                    "this rule needs reliable links, use consensus='bregman-admm'"
                )
            gap += state.value - inbox[j].payload
        a, b = mixing.gradient[state.phase], mixing.momentum[state.phase]
        value = state.value + b * (state.value - state.previous) - a * gap
        lowest = state.view.lowest
        progress = Progress(
            ready=state.phase + 1 == mixing.rounds,
            disagreement=relative_norm(gap, state.value) / float(lowest),
        )
        state = replace(
            state, value=value, previous=state.value, phase=state.phase + 1, round=state.round + 1
        )
        return state, progress

    def retarget(self, state: TrackingState, target: FloatArray) -> TrackingState:
        value = state.value + target - state.target
        return replace(state, target=target, value=value, previous=value, phase=0)

    def payload(self, state: TrackingState) -> FloatArray:
        return state.value

    def estimate(self, state: TrackingState) -> FloatArray:
        return state.value

    def rounds_per_sweep(self, view: SpectralView) -> int:
        return self._mixing(view).rounds

    def _mixing(self, view: SpectralView) -> Mixing:
        rounds = None if self.rounds == "auto" else self.rounds
        return design_mixing(view.eigenvalues, rounds, self.damping)
