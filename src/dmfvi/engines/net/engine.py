"""The network engine: this machine's node, its neighbours elsewhere, over links that may fail.

Asynchronous: a node never waits longer than ``patience`` for a neighbour and goes on with what it has; a
message supersedes all earlier ones. Rounds of different phases, epochs or models are told apart by the frame. When
the membership changes, ``run`` raises ``MembershipChanged`` and the fit begins anew with who is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dmfvi.checkpoint import Journal
from dmfvi.consensus.base import Place
from dmfvi.engines.base import Observer, Run, check_links, record_round
from dmfvi.engines.links import Links
from dmfvi.engines.net.compression import SHARE, SHRINKING
from dmfvi.engines.net.endpoint import HELP_AGAIN, NetworkNode
from dmfvi.network import Network
from dmfvi.node import Job, Message, NodeState, Settled, message_of, start_node, step_node

#: own message is repeated after this part of the patience
REPEAT_AFTER = 0.25
#: absorbing the same statistics again, until the belief stands still
SETTLING_STEPS, STANDS_STILL = 200, 1e-10


class NetworkEngine:
    """Runs this machine's node by the frames of a ``NetworkNode``."""

    name = "net"

    def __init__(self, node: NetworkNode, journal: Journal | None = None) -> None:
        # sums are agreed on by the calm of all, not by a number of rounds
        self.links = Links(loss=1e-12)
        self.node = node
        self.journal = journal

    def owned(self, network: Network) -> Sequence[int]:
        """This node's place in its component."""
        return [self.node.view.component.index(self.node.node)]

    def run(
        self,
        job: Job,
        network: Network,
        shards: Sequence[Any],
        beliefs: Sequence[Any],
        max_rounds: int,
        observer: Observer | None = None,
    ) -> Run:
        """All rounds of one phase."""
        check_links(self.links, job.rule)
        node = self.node
        node.check_epoch()
        (index,) = self.owned(network)
        ids = node.view.component
        phase = node.phase
        if self.journal is not None and phase in self.journal.finished:
            belief, final, known = self.journal.finished[phase]
            node.finals[phase] = bytes(final)
            node.phase += 1
            return Run([belief], [known], True)
        place = Place.of(network, index)
        state = self._start(job, phase, place, shards[0], beliefs[0])
        run = Run([state.belief])
        disagreement = np.inf
        while not state.done and len(run.history) < max_rounds:
            message = message_of(job, state)
            allowed = self._allowed(job, state, disagreement)
            data, arriving = node.frame_of(message, allowed, job.rule.header)
            if arriving is not message.payload:
                state = state._replace(rule=job.rule.sent(state.rule, arriving))
            node.round = max(node.round, message.round)
            node.sizes[phase] = _sizes(job, state)
            inbox = self._exchange(state, data, {ids[j]: j for j in place.neighbours})
            state, report = step_node(job, state, inbox)
            disagreement = report.disagreement
            sent = len(data) * place.degree
            run.history.append(record_round(job, len(run.history) + 1, [state], [report], sent))
            run.beliefs = [state.belief]
            if observer is not None:
                observer(run.history[-1], run.beliefs)
            if self.journal is not None and self.journal.due(len(run.history)) and not state.done:
                self.journal.note(phase, state.round, state)
        if state.done and not state.calm:
            state = self._caught_up(job, state, [ids[j] for j in place.neighbours])
            run.beliefs = [state.belief]
            run.history[-1] = replace(run.history[-1], objective=job.model.objective(state.belief))
        run.converged = state.done and state.calm
        final, _ = node.frame_of(_farewell(job, state), final=True)
        node.finals[phase] = final
        node.say(final)
        node.phase += 1
        if self.journal is not None and run.converged:
            kept = (state.belief, np.frombuffer(final, dtype=np.uint8), run.history[-1])
            self.journal.finish(phase, kept)
        return run

    @staticmethod
    def _allowed(job: Job, state: NodeState, disagreement: float) -> float:
        """The error that a message may have: a small part of what the nodes still disagree by."""
        if not job.rule.forgives:
            return 0.0
        size = float(np.linalg.norm(job.rule.estimate(state.rule)))
        return SHARE * SHRINKING**state.rule.round * min(disagreement, 1.0) * size

    def _start(self, job: Job, phase: int, place: Place, shard: Any, belief: Any) -> NodeState:
        if self.journal is not None and self.journal.rounds(phase):
            known = self.journal.at(phase, self.journal.rounds(phase)[-1])
            assert known is not None
            return known._replace(shard=shard)
        return start_node(job, place, shard, belief)

    def _caught_up(self, job: Job, state: NodeState, peers: list[int]) -> NodeState:
        """A node that was away while the others agreed takes over what they agreed on."""
        like = job.rule.estimate(state.rule)
        deadline = self.node.clock() + self.node.timing.silence
        while self.node.clock() < deadline:
            for peer in peers:
                for frame in self.node.mail.get((peer, self.node.phase), {}).values():
                    if not (frame.final and frame.quiet):  # not agreed on by its sender either
                        continue
                    agreed = job.rule.told(frame.payload, like)
                    if agreed is not None:
                        return _absorbed(job, state, agreed)
            self.node.say(self.node.frame_of(message_of(job, state))[0])  # ask for it
            self.node.listen(HELP_AGAIN)
            self.node.check_epoch()
        return state

    def _exchange(
        self, state: NodeState, data: bytes, indices: dict[int, int]
    ) -> dict[int, Message]:
        """Say the message of a round, and wait for the neighbours' of the same round, not for ever."""
        node = self.node
        node.say(data)
        began = node.clock()
        repeated = False
        while True:
            missing = [peer for peer in indices if not self._has(peer, state.rule.round)]
            waited = node.clock() - began
            if not missing or waited > node.timing.patience:
                break
            if waited > REPEAT_AFTER * node.timing.patience and not repeated:
                node.say(data)  # it may have been lost
                repeated = True
            node.listen(0.05 if waited > 0.05 else 0.01)
            node.check_epoch()
        if missing:
            node.counts.waited += 1
            node.compressor.missed()
        return self._inbox(state.rule.round, indices)

    def _has(self, peer: int, number: int) -> bool:
        """Whether the neighbour's message of this round, or a later one, is there."""
        box = self.node.mail.get((peer, self.node.phase), {})
        return any(known >= number for known in box)

    def _inbox(self, number: int, indices: dict[int, int]) -> dict[int, Message]:
        """Of each neighbour the message of this round, else the newest one."""
        inbox = {}
        for peer, index in indices.items():
            box = self.node.mail.get((peer, self.node.phase), {})
            if not box:
                continue
            chosen = number if number in box else max(box)
            frame = box[chosen]
            if frame.payload.size not in self.node.sizes[self.node.phase]:
                del box[chosen]  # it came before this phase was known
                self.node.counts.refused["size"] += 1
                continue
            inbox[index] = Message(index, frame.round, frame.payload, frame.quiet, frame.stop_at)
            for old in [k for k in box if k < chosen]:
                del box[old]
        return inbox


def _sizes(job: Job, state: NodeState) -> set[int]:
    """Payload sizes that a neighbour may send in this phase: with and without what late links need."""
    farewell = job.rule.farewell(state.rule, job.rule.estimate(state.rule))
    return {job.rule.payload(state.rule).size, farewell.size, job.rule.shortest(state.rule)}


def _farewell(job: Job, state: NodeState) -> Message:
    """A node's last message of a phase; calm only if it knows what was agreed on."""
    held = state.settled if state.done and state.calm else None
    agreed = job.rule.estimate(state.rule) if held is None else held.estimate
    message = replace(message_of(job, state), payload=job.rule.farewell(state.rule, agreed))
    return replace(message, quiet=0 if held is None else max(1, state.quiet))


def _absorbed(job: Job, state: NodeState, agreed: Any) -> NodeState:
    """The belief that agreed statistics imply, settled."""
    for _ in range(SETTLING_STEPS):
        absorbed = job.model.absorb(agreed, state.own, state.belief)
        change = job.model.change(absorbed.belief, state.belief)
        state = state._replace(belief=absorbed.belief)
        if change < STANDS_STILL:
            break
    return state._replace(calm=True, settled=Settled(state.belief, agreed, state.round))
