"""The node loop: local step -> consensus step -> messages. The same on every engine.

Pure steps: ``start_node`` and ``step_node`` take state and inbox and give back state, message
and report. The nodes stop by themselves: after the same sweep where the rule gives all of them the same estimate, else by
``consensus/stopping.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from dmfvi.consensus.base import ConsensusRule, Incoming, LocalView, Progress
from dmfvi.consensus.stopping import NO_STOP, Agreement, StopDetection
from dmfvi.inference.model import Model
from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as

#: a node has converged when its estimated error is below this part of tol: neighbours may be worse off
SAFETY = 0.1
#: assumed contraction per sweep while it cannot be measured, and its cap
DEFAULT_RATE, MAX_RATE = 0.5, 0.98
#: absorbing the same statistics again, until the belief stands still
SETTLING_STEPS, STANDS_STILL = 200, 1e-10


@dataclass(frozen=True)
class Job:
    """What all nodes agree on before they start."""

    model: Model
    rule: ConsensusRule
    tol: float = 1e-6
    replicated: bool = False  # each node keeps the whole prior and entropy, as the paper writes it
    fixed_sweeps: int | None = None  # stop after so many sweeps, without detection
    max_sweeps: int | None = (
        None  # give up after so many; for rules by which all nodes sweep in step
    )

    def gave_up(self, state: NodeState) -> bool:
        """Whether a node stopped at ``max_sweeps`` without having converged."""
        return (
            self.fixed_sweeps is None
            and self.max_sweeps is not None
            and state.sweeps >= self.max_sweeps
            and not state.converged
        )


class Batch(NamedTuple):
    """A shard, and the statistics of earlier batches that are added to its own in every sweep."""

    shard: Any
    carried: FloatArray


class Message(NamedTuple):
    """What a node sends to each neighbour after a round; numbers only."""

    sender: int
    round: int
    payload: FloatArray
    converged_rounds: int
    stop_at: int
    recipients: tuple[int, ...] = ()  # neighbours that need it

    @property
    def n_bytes(self) -> int:
        """Size on a wire: payload and four header words."""
        return int(self.payload.nbytes) + 32


@stored_as("node-state", version=2)
class NodeState(NamedTuple):
    """Everything one node knows."""

    view: LocalView
    shard: Any
    rule: Any
    belief: Any
    own: FloatArray  # statistics of the last local step
    round: int = 0
    sweeps: int = 0
    objective: float = float("nan")  # bound at the belief before the last sweep
    change: float = np.inf
    rate: float = DEFAULT_RATE
    converged: bool = False
    stop_at: int = NO_STOP
    done: bool = False
    detection: StopDetection | None = None  # for rules by which nodes converge at different times


class NodeReport(NamedTuple):
    """What an observer may know of one round at one node."""

    swept: bool
    limited: bool
    disagreement: float
    late: bool = False
    known: float = 1.0  # share of the nodes whose data the present estimate includes


def start_node(job: Job, view: LocalView, shard: Any, belief: Any) -> NodeState:
    """First local step from the shared start."""
    own = _statistics(job, shard, belief)
    state = NodeState(view, shard, job.rule.start(view, _target(job, view, own)), belief, own)
    return state if job.rule.in_step else state._replace(detection=StopDetection())


def step_node(
    job: Job, state: NodeState, inbox: Mapping[int, Message]
) -> tuple[NodeState, NodeReport]:
    """One round: receive the messages of the neighbours, agree a little more, sweep when the estimate is ready."""
    rule_state, progress = job.rule.advance(
        state.rule, {j: Incoming(m.round, m.payload) for j, m in inbox.items()}
    )
    # a node that was away takes over its neighbours' count of rounds, or it would stop long after them
    number = max(state.round + 1, rule_state.round)
    state = state._replace(rule=rule_state, round=number)
    if state.detection is not None:
        counts = {j: m.converged_rounds for j, m in inbox.items()}
        state = state._replace(detection=state.detection.received(counts, progress.late))
    limited = False
    if progress.ready:
        state, limited = _sweep(job, state, progress)
    elif state.detection is not None and progress.disagreement > SAFETY * job.tol:
        state = state._replace(converged=False, detection=state.detection.disturbed())
    state = _stopping(job, state, min([state.stop_at, *(m.stop_at for m in inbox.values())]))
    report = NodeReport(
        progress.ready, limited, progress.disagreement, progress.late, progress.known
    )
    return state, report


def message_of(job: Job, state: NodeState) -> Message:
    """The message of the round just done."""
    return Message(
        state.view.node,
        state.rule.round,
        job.rule.payload(state.rule),
        0 if state.detection is None else state.detection.converged_rounds,
        state.stop_at,
        () if job.rule.collective else job.rule.recipients(state.rule),
    )


def final_message(job: Job, state: NodeState) -> Message:
    """A node's last message: what was agreed on, for a neighbour that missed it; converged only if the node knows it."""
    message = message_of(job, state)
    ended = state.done and state.converged
    detection = state.detection
    if detection is None:
        return message._replace(converged_rounds=int(ended))
    held = detection.agreed if ended else None
    agreed = job.rule.estimate(state.rule) if held is None else held.estimate
    return message._replace(
        payload=job.rule.final_payload(state.rule, agreed),
        converged_rounds=0 if held is None else max(1, message.converged_rounds),
    )


def take_over(job: Job, state: NodeState, agreed: FloatArray) -> NodeState:
    """The end of a node that was away while the others agreed on these statistics."""
    for _ in range(SETTLING_STEPS):
        update = job.model.absorb(agreed, state.own, state.belief)
        change = job.model.change(update.belief, state.belief)
        state = state._replace(belief=update.belief, objective=update.objective)
        if change < STANDS_STILL:
            break
    if state.detection is not None:
        held = Agreement(state.belief, agreed, state.round)
        state = state._replace(detection=state.detection._replace(agreed=held))
    return state._replace(converged=True)


def ask_to_stop(state: NodeState) -> NodeState:
    """An observer has seen enough: name a round far enough ahead for all nodes to know of it.

    The message of this round may be on its way already, so the wish leaves with the next one.
    """
    wished = state.round + 1 + state.view.diameter
    return state._replace(stop_at=min(state.stop_at, wished))


def _target(job: Job, view: LocalView, own: FloatArray) -> FloatArray:
    """t_i = V s_i, so that the average of targets is the sum of statistics.

    Replicated shares average the statistics themselves: the prior then counts V times too much.
    """
    return own if job.replicated or job.rule.sums else view.n_nodes * own


def _statistics(job: Job, shard: Any, belief: Any) -> FloatArray:
    """This node's statistics, finite where the rule needs them to be."""
    own = _with_carried(job, shard, belief)
    if job.rule.bitwise and not np.isfinite(own).all():
        where = int(np.flatnonzero(~np.isfinite(own))[0])
        raise OverflowError(
            f"{job.model.describe(where)} of a node is {own[where]}: it has no exact sum; look for overflow in the "
            "data's units, or for NaN"
        )
    return own


def _with_carried(job: Job, shard: Any, belief: Any) -> FloatArray:
    """Statistics of a batch on top of earlier ones are a plain sum."""
    if not isinstance(shard, Batch):
        return job.model.statistics(shard, belief)
    own = job.model.statistics(shard.shard, belief).copy()
    own[: len(shard.carried)] += shard.carried
    return own


def _sweep(job: Job, state: NodeState, progress: Progress) -> tuple[NodeState, bool]:
    estimate = job.rule.estimate(state.rule)
    if job.replicated and job.rule.sums:
        estimate = estimate / state.view.n_nodes
    update = job.model.absorb(estimate, state.own, state.belief)
    # the start is no result of a sweep: how far the first one leads from it says nothing
    change = job.model.change(update.belief, state.belief) if state.sweeps else np.inf
    rate = state.rate
    if isfinite(state.change) and state.change > 0:
        rate = float(min(max(change / state.change, 0.5 * rate), MAX_RATE))
    # steps that shrink by `rate` a sweep are still this far from their limit
    error = change * rate / (1.0 - rate)
    close = error < SAFETY * job.tol and progress.disagreement < SAFETY * job.tol
    converged, detection = close and not update.limited, state.detection
    if detection is not None:
        detection = detection.swept(converged, Agreement(update.belief, estimate, state.round))
        converged = detection.settled
    # after the last sweep nobody sums any more: statistics of its belief would be computed for nothing
    enough = converged if job.fixed_sweeps is None else state.sweeps + 1 >= job.fixed_sweeps
    last = enough and detection is None
    own = state.own if last else _statistics(job, state.shard, update.belief)
    rule_state = job.rule.retarget(state.rule, _target(job, state.view, own))
    state = state._replace(
        rule=rule_state,
        belief=update.belief,
        own=own,
        sweeps=state.sweeps + 1,
        objective=update.objective,
        change=change,
        rate=rate,
        converged=converged,
        detection=detection,
    )
    return state, update.limited


def _stopping(job: Job, state: NodeState, stop_at: int) -> NodeState:
    """Whether the round just done was the last; ``stop_at`` is the earliest round that anybody has named."""
    detection = state.detection
    if detection is None or job.fixed_sweeps is not None:
        # a given number of sweeps, or the same estimate everywhere: all are done after the same sweep
        enough = state.converged if job.fixed_sweeps is None else state.sweeps >= job.fixed_sweeps
        done = enough or job.gave_up(state) or state.round >= stop_at
        rule_state = job.rule.finish(state.rule) if done else state.rule
        return state._replace(stop_at=stop_at, done=done, rule=rule_state)
    view = state.view
    detection = detection.counted(state.converged, state.round, view.neighbours)
    stop_at = detection.stop_at(stop_at, state.round, view.diameter)
    state = state._replace(detection=detection, stop_at=stop_at, done=state.round >= stop_at)
    if state.done and not state.converged:
        agreed = detection.recent(stop_at, view.diameter)
        if agreed is not None:
            state = state._replace(belief=agreed.belief, converged=True)
    return state
