"""The network engine: this machine's node, its neighbours elsewhere, over links that may fail.

Asynchronous: a node never waits longer than ``patience`` for a neighbour and continues with what it has; a
message supersedes all earlier ones. The frame distinguishes rounds of different phases, epochs and models. When
the membership changes, ``run`` raises ``MembershipChanged`` and the fit restarts with the present members.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from dmfvi.consensus.base import LocalView, LostTrack
from dmfvi.consensus.stopping import NO_STOP
from dmfvi.engines.base import Run, Task, check_links, record_round
from dmfvi.engines.net.endpoint import HELP_AGAIN
from dmfvi.engines.net.epochs import MembershipChanged, NetworkNode, Steps, drive
from dmfvi.network import Network
from dmfvi.node import (
    Job,
    Message,
    NodeState,
    ask_to_stop,
    final_message,
    message_of,
    start_node,
    step_node,
    take_over,
)
from dmfvi.storage.journal import Journal

logger = logging.getLogger(__name__)

#: own message is repeated after this part of the patience
REPEAT_AFTER = 0.25
#: seconds at most for what the others agreed on to arrive
CATCHING_UP = 300.0


class NetworkEngine:
    """Runs this machine's node by the frames of a ``NetworkNode``."""

    name = "net"
    transport = "auto"
    #: messages may be lost or come after their round
    reliable = False

    def __init__(self, node: NetworkNode | None = None, journal: Journal | None = None) -> None:
        if node is None:
            raise ValueError(
                "engine='net' runs one node of a network and needs its endpoint: pass "
                "engine=NetworkEngine(endpoint), or run dmfvi node; engine='inproc' runs all nodes in this process"
            )
        self.node = node
        self.journal = journal

    def owned(self, network: Network) -> Sequence[int]:
        """This node's index among the members."""
        return [self._ids.index(self.node.node)]

    @property
    def _ids(self) -> tuple[int, ...]:
        """The members' ids by their index in the network."""
        return tuple(sorted(self.node.members))

    def run(self, task: Task) -> Run:
        """All rounds of one phase; an observer that returns True ends it at all nodes, a diameter of rounds later."""
        return drive(self.rounds(task), self.node.listen)

    def rounds(self, task: Task) -> Steps[Run]:
        """The steps of ``run``, which waits between them."""
        job, network, observer = task.job, task.network, task.observer
        check_links(self, job.rule)
        node = self.node
        node.check_epoch()
        (index,) = self.owned(network)
        ids = self._ids
        phase = node.phase
        if self.journal is not None and phase in self.journal.finished:
            belief, final, known = self.journal.finished[phase]
            node.finals[phase] = bytes(final)
            node.phase += 1
            return Run([belief], [known], True)
        view = job.rule.local_view(network, index)
        state, number = self._start(job, phase, view, task.shards[0], task.beliefs[0])
        run = Run([state.belief], vector_size=state.own.size)
        disagreement = np.inf
        asked = False  # an observer, of this node or another, has asked to stop
        while not state.done and number < task.max_rounds:
            message = message_of(job, state)
            allowed = job.rule.allowed_error(state.rule, disagreement)
            data, arriving = node.frame_of(message, allowed, job.rule.header, asked=asked)
            if arriving is not message.payload:
                state = state._replace(rule=job.rule.sent(state.rule, arriving))
            node.round = max(node.round, message.round)
            if job.rule.fixed_size:
                node.sizes[phase] = _sizes(job, state)
            inbox, others_asked = yield from self._exchange(
                state, data, {ids[j]: j for j in view.neighbours}
            )
            asked = asked or others_asked
            try:
                state, report = step_node(job, state, inbox)
            except LostTrack as reason:
                logger.warning("%s", reason)
                node.rejoin()
                raise MembershipChanged(str(reason)) from reason
            number += 1
            disagreement = report.disagreement
            sent = len(data) * view.degree
            run.history.append(record_round(job, number, [state], [report], sent))
            run.beliefs = [state.belief]
            if observer is not None and observer(run.history[-1], run.beliefs) and not state.done:
                asked, state = True, ask_to_stop(state)
            # neighbours keep the last result only: a node that comes back must know all before it
            due = self.journal is not None and (
                self.journal.due(number) or (job.rule.bitwise and report.swept)
            )
            if self.journal is not None and due and not state.done:
                self.journal.note(phase, number, state)
        if not run.history:  # resumed at its last round
            run.history.append(record_round(job, number, [state], [None], 0))
        return (yield from self._end(job, run, number, state, asked))

    def _end(self, job: Job, run: Run, number: int, state: NodeState, asked: bool) -> Steps[Run]:
        """After the last round: catch up if need be, send the final message, and note it in the journal."""
        node, phase = self.node, self.node.phase
        swept_all = job.fixed_sweeps is not None and state.sweeps >= job.fixed_sweeps
        ended = state.converged or swept_all or asked or job.gave_up(state)
        if state.done and not ended:
            peers = [self._ids[j] for j in state.view.neighbours]
            state = yield from self._caught_up(job, state, peers)
            run.beliefs = [state.belief]
            run.history[-1] = replace(run.history[-1], objective=state.objective)
        run.converged = state.done and (swept_all or (state.converged and not asked))
        final, _ = node.frame_of(final_message(job, state), final=True, asked=asked)
        node.finals[phase] = final
        node.send(final)
        node.phase += 1
        if self.journal is not None and run.converged:
            kept = (state.belief, np.frombuffer(final, dtype=np.uint8), run.history[-1])
            self.journal.finish(phase, kept)
        elif self.journal is not None:  # ended early: it may be resumed from here
            self.journal.note(phase, number, state._replace(done=False, stop_at=NO_STOP))
        return run

    def _start(
        self, job: Job, phase: int, view: LocalView, shard: Any, belief: Any
    ) -> tuple[NodeState, int]:
        """The state to begin with, and the number of its round: from the journal, if it has one."""
        if self.journal is not None and self.journal.rounds(phase):
            number = self.journal.rounds(phase)[-1]
            known = self.journal.at(phase, number)
            assert known is not None
            logger.info(
                "node %d resumes phase %d at round %d from its checkpoint",
                self.node.node,
                phase,
                number,
            )
            return known._replace(shard=shard), number
        return start_node(job, view, shard, belief), 0

    def _caught_up(self, job: Job, state: NodeState, peers: list[int]) -> Steps[NodeState]:
        """A node that was away while the others agreed takes over what they agreed on."""
        like = job.rule.estimate(state.rule)
        deadline = self.node.clock() + min(self.node.timing.silence, CATCHING_UP)
        while self.node.clock() < deadline:
            for peer in peers:
                for frame in self.node.mail.get((peer, self.node.phase), {}).values():
                    if not (
                        frame.final and frame.converged_rounds
                    ):  # not agreed on by its sender either
                        continue
                    agreed = job.rule.final_estimate(frame.payload, like)
                    if agreed is not None:
                        return take_over(job, state, agreed)
            self.node.send(self.node.frame_of(message_of(job, state))[0])  # ask for it
            yield from self.node.resting(HELP_AGAIN)
            self.node.check_epoch()
        return state

    def _exchange(
        self, state: NodeState, data: bytes, indices: dict[int, int]
    ) -> Steps[tuple[dict[int, Message], bool]]:
        """Send the message of a round and wait for the neighbours', not for ever: ``_inbox``."""
        node = self.node
        node.send(data)
        began = node.clock()
        repeat_at = began + REPEAT_AFTER * node.timing.patience
        give_up_at = began + node.timing.patience
        while True:
            missing = [peer for peer in indices if not self._has(peer, state.rule.round)]
            now = node.clock()
            if not missing or now >= give_up_at:
                break
            if now >= repeat_at:
                node.send(data)  # it may have been lost
                repeat_at = inf
            yield min(repeat_at, give_up_at) - now
            node.check_epoch()
        if missing:
            node.counts.waited += 1
            node.compressor.missed()
        return self._inbox(state.rule.round, indices)

    def _has(self, peer: int, number: int) -> bool:
        """Whether the neighbour's message of this round, or a later one, is there."""
        box = self.node.mail.get((peer, self.node.phase))
        return box is not None and max(box, default=-1) >= number

    def _inbox(self, number: int, indices: dict[int, int]) -> tuple[dict[int, Message], bool]:
        """Of each neighbour the message of this round, else the newest one, and whether one was asked to stop."""
        inbox, asked = {}, False
        for peer, index in indices.items():
            box = self.node.mail.get((peer, self.node.phase), {})
            if not box:
                continue
            chosen = number if number in box else max(box)
            frame = box[chosen]
            known = self.node.sizes.get(self.node.phase)
            if known is not None and frame.payload.size not in known:
                del box[chosen]  # it came before this phase was known
                self.node.refuse("size", peer)
                continue
            asked = asked or frame.asked
            inbox[index] = Message(
                index, frame.round, frame.payload, frame.converged_rounds, frame.stop_at
            )
            for old in [k for k in box if k < chosen]:
                del box[old]
        return inbox, asked


def _sizes(job: Job, state: NodeState) -> set[int]:
    """Payload sizes that a neighbour may send in this phase: with and without what late links need."""
    final_payload = job.rule.final_payload(state.rule, job.rule.estimate(state.rule))
    return {job.rule.payload(state.rule).size, final_payload.size, job.rule.shortest(state.rule)}
