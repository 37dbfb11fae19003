"""One node's endpoint on a network: frames in and out, membership, messages by phase and round.

Frames of other phases, epochs, models or senders are recognised and refused with a reason that is counted. Nothing
here depends on the content of a message. What a node does with its endpoint from joining the others to leaving them is in ``epochs``.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmfvi.consensus.stopping import NO_STOP
from dmfvi.engines.net.clock import REAL, Clock
from dmfvi.engines.net.compression import Compressor, References
from dmfvi.engines.net.differences import difference, read_settings
from dmfvi.engines.net.frames import (
    ROUND,
    SETTINGS,
    VIEW,
    Frame,
    Malformed,
    pack_bytes,
    unpack,
)
from dmfvi.engines.net.membership import NO_SHARE, Entry, Share, View, read_entries
from dmfvi.engines.net.signatures import UNSIGNED, Signer
from dmfvi.engines.net.transport import Transport
from dmfvi.linalg import FloatArray
from dmfvi.node import Message

logger = logging.getLogger(__name__)

#: an old phase's last frame is not repeated sooner than this, in seconds
HELP_AGAIN = 0.02
#: a neighbour may be this far ahead; what claims more is refused
PHASES_AHEAD, ROUNDS_AHEAD = 1, 10_000_000
#: numbers in a message at most
LARGEST_MESSAGE = 2**27
#: larger magnitudes are no sums of data
LARGEST_NUMBER = 1e300
#: a node that comes back meets a newer entry of itself once or twice; a second node with its id makes that endless
MOST_CONFLICTS = 20
#: rounds of a neighbour that are kept until they are needed
AHEAD = 8
#: reasons for refusing frames that are counted separately, and what the rest is counted as
MOST_REASONS, OTHER_REASONS = 64, "other reasons"
#: times that the last frame is sent: it may be lost
REPEATS = 3


class Twin(ValueError):
    """Somebody else runs under this node's id."""


@dataclass(frozen=True)
class Timing:
    """How long to wait, in seconds."""

    patience: float = 2.0  # for a neighbour's message of a round
    silence: float = 60.0  # until a silent neighbour counts as gone
    settle: float = 1.0  # without a change of membership before a fit begins
    linger: float = 30.0  # for others to finish
    heartbeat: float = 0.5  # between two views at most


@dataclass
class Counts:
    """Counts of frames that were received, and of those that were refused."""

    sent_bytes: int = 0
    received: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    waited: int = 0  # rounds that continued without a neighbour's message


class Endpoint:
    """One node's endpoint: frames in and out, membership, messages by phase and round."""

    def __init__(
        self,
        node: int,
        neighbours: Sequence[int],
        transport: Transport,
        fingerprint: bytes,
        version: int,
        timing: Timing | None = None,
        compression: str = "none",
        clock: Clock = REAL,
        share: Share = NO_SHARE,
        signer: Signer = UNSIGNED,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.node = node
        self.neighbours = tuple(neighbours)
        self.transport = transport
        self.fingerprint = fingerprint
        self.timing = timing or Timing()
        self.compressor = Compressor(compression)
        self.references = References()
        self.clock = clock
        self.view = View.first(node, version, share, signer, neighbours)
        self.counts = Counts()
        self.conflicts = 0  # times that others knew a later entry of this node than its own
        self.settings = dict(settings or {})
        self.differences: dict[int, str] = {}  # neighbours that answer, but with another model
        self.described_at = -np.inf
        self.received_at: dict[int, float] = {}
        self.oldest_received = (
            clock()
        )  # no neighbour that is received from sent its last frame before this moment
        self.changed_at = clock()
        self.announced_at = -np.inf
        self.announced: tuple[View, bytes] | None = None  # the view that was sent last, as a frame
        self.unannounced: set[int] = set()  # nodes whose entries have changed since
        self.merged: dict[int, bytes] = {}  # neighbour -> its last view that held no mistake
        self.epoch = -1
        self.members: dict[int, Share] = {node: share}  # of the epoch
        self.took_part = False  # has signed the epoch of a fit with others
        self.gone_since: dict[int, float] = {}  # nodes that were members and cannot be reached now
        self.phase = 0
        self.round = 0
        self.sizes: dict[int, set[int]] = {}  # payload sizes that a phase may have
        self.mail: dict[tuple[int, int], dict[int, Frame]] = {}  # (sender, phase) -> round -> frame
        self.finals: dict[int, bytes] = {}  # own last frame of finished phases
        self.helped_at: dict[int, float] = {}

    # -- out ----------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """To all neighbours, after what they should know before it."""
        if self.unannounced:
            self.say_changes()
        self.counts.sent_bytes += len(data)
        self.transport.send(data)

    def say_changes(self) -> None:
        """Send those entries of the view that are new."""
        nodes, self.unannounced = self.unannounced, set()
        self.send(pack_bytes(VIEW, self.fingerprint, self.node, self.view.pack(nodes)))

    def say_view(self) -> None:
        """Send this node's view of the membership."""
        self.unannounced.clear()
        self.announced_at = self.clock()
        if (
            self.announced is None or self.announced[0] is not self.view
        ):  # a heartbeat repeats the last frame
            frame = pack_bytes(VIEW, self.fingerprint, self.node, self.view.pack())
            self.announced = self.view, frame
        self.send(self.announced[1])

    def frame_of(
        self,
        message: Message,
        allowed: float = 0.0,
        head: int = 0,
        final: bool = False,
        asked: bool = False,
    ) -> tuple[bytes, FloatArray]:
        """A round's message as bytes, with an error of at most ``allowed``, and its payload as it arrives.

        final : the sender's last one of this phase.
        asked : an observer has asked for the round in which all stop.
        """
        frame = Frame(
            ROUND,
            self.fingerprint,
            self.node,
            self.epoch,
            self.phase,
            message.round,
            message.converged_rounds,
            message.stop_at,
            message.payload,
            final,
            asked=asked,
        )
        coarse = message.stop_at == NO_STOP and not final
        return self.compressor.pack(frame, allowed if coarse else 0.0, head)

    # -- in -----------------------------------------------------------------------------

    def listen(self, timeout: float) -> bool:
        """Read one frame, or wait; keeps the view and the heartbeat going. Whether something was read."""
        self.tick()
        got = self.transport.receive(max(0.0, min(timeout, self.timing.heartbeat)))
        if got is not None:
            self.handle(*got)
        self.tick()
        return got is not None

    def tick(self) -> None:
        """What is due by the clock: the heartbeat, and neighbours that have been silent for too long."""
        now = self.clock()
        if now - self.announced_at >= self.timing.heartbeat:
            self.say_view()
        elif self.unannounced:
            self.say_changes()
        if now - self.oldest_received > self.timing.silence:
            self._miss(now)

    def _miss(self, now: float) -> None:
        """Neighbours that have been silent for too long are received from no more."""
        receives_from, silence = self.view.own.receives_from, self.timing.silence
        gone = {j for j in receives_from if now - self.received_at[j] > silence}
        self.oldest_received = min(
            (self.received_at[j] for j in receives_from if j not in gone), default=now
        )
        if gone:
            logger.warning(
                "node %d: neighbours %s were silent for %g seconds",
                self.node,
                sorted(gone),
                silence,
            )
            self._see(self.view.receiving_from(set(receives_from) - gone))
            self.say_changes()

    def handle(self, peer: int, data: bytes) -> None:
        """A frame of a neighbour; one that is not to be used is refused."""
        try:
            self._take(peer, data)
        except Malformed as reason:
            self.refuse(str(reason), peer)

    def refuse(self, reason: str, peer: int) -> None:
        """Count a frame that is not used; the first of its reason is logged."""
        known = self.counts.refused
        if reason not in known and len(known) >= MOST_REASONS:
            reason = OTHER_REASONS  # some name what a neighbour has made up
        if reason not in self.counts.refused:
            logger.warning("node %d refused a frame of node %d: %s", self.node, peer, reason)
        self.counts.refused[reason] += 1

    def _take(self, peer: int, data: bytes) -> None:
        if data == self.merged.get(peer):
            self._alive(peer)  # entries only grow newer: there is nothing to learn
            return
        frame = unpack(data)
        if frame.sender != peer or peer not in self.neighbours:
            raise Malformed("another sender")
        if frame.fingerprint != self.fingerprint:
            self._compare(peer, frame)
            raise Malformed("another model")
        if frame.kind == VIEW:
            self._merge(peer, frame)
            self.merged[peer] = data
            return
        self._alive(peer)
        if frame.epoch != self.epoch:
            raise Malformed("another epoch")
        if frame.phase < self.phase:
            self._help(frame)
            return
        if frame.phase > self.phase + PHASES_AHEAD:
            raise Malformed("phase")
        if frame.round > self.round + ROUNDS_AHEAD:
            raise Malformed("round")
        known = self.sizes.get(frame.phase)
        if frame.difference is None:  # before anything is kept of it
            _check_payload(frame)
            self.references.whole(frame, known)
        else:
            frame = self.references.whole(frame, known)
            _check_payload(frame)
        if known is not None and frame.payload.size not in known:
            raise Malformed("size")
        self._put(peer, frame)

    def _put(self, peer: int, frame: Frame) -> None:
        """Keep a round's message until it is needed."""
        self.counts.received += 1
        box = self.mail.setdefault((peer, frame.phase), {})
        box[frame.round] = frame
        if len(box) > AHEAD:
            for number in sorted(box)[:-AHEAD]:
                del box[number]

    def _merge(self, peer: int, frame: Frame) -> None:
        """What a neighbour knows of the members."""
        entries = read_entries(frame.payload.tobytes(), self.view.entries)
        self._alive(peer)
        self.differences.pop(peer, None)
        if not entries:  # all is known
            return
        self._check_twin(entries.get(self.node))
        view, forged = self.view.merged(entries)
        self._see(view, peer)
        if forged:
            raise Malformed(f"entry of node {forged[0]} without its signature")

    def _compare(self, peer: int, frame: Frame) -> None:
        """Find out, and log, in which settings a neighbour's model differs from this one's."""
        self.merged.pop(peer, None)  # should it come back with this model, it has to be noticed
        now = self.clock()
        if now - self.described_at >= self.timing.heartbeat:
            self.described_at = now
            text = json.dumps(self.settings).encode()
            self.send(pack_bytes(SETTINGS, self.fingerprint, self.node, text))
        if frame.kind == SETTINGS:
            words = difference(self.settings, read_settings(frame.payload.tobytes()))
            problem = f"node {peer} has another model: {words}"
        else:
            problem = f"node {peer} has another model: compare [model] and the columns of the data"
            problem = self.differences.get(peer, problem)
        if self.differences.get(peer) != problem:
            self.differences[peer] = problem
            logger.warning("node %d: %s", self.node, problem)

    def _check_twin(self, mine: Entry | None) -> None:
        """Exceed an entry of this node that it has not made: of an earlier run, or of a second node with this id.

        Two nodes with one id would outbid each other's version for ever, and no fit could begin.
        """
        own = self.view.own
        if mine is None or mine.version < own.version or mine.same_as(own):
            return
        same_life = mine.share.start == own.share.start and mine.version == own.version
        if same_life and mine.news < own.news:  # an earlier entry of this node itself
            return
        if not mine.believed(self.node, self.view.signer):
            return
        self.conflicts += 1
        if self.conflicts > MOST_CONFLICTS:
            raise Twin(
                f"somebody else runs as node {self.node}: others keep receiving newer entries of it than its own. "
                "Give every machine an id of its own in [node], and stop the other one"
            )
        if same_life:  # before it went on from its checkpoint
            self._see(self.view.repeated(mine.news))
        else:
            self._see(self.view.exceeding(mine.version))

    def _help(self, frame: Frame) -> None:
        """A neighbour is still in a phase that is over here: send it the final message."""
        final = self.finals.get(frame.phase)
        now = self.clock()
        due = now - self.helped_at.get(frame.phase, -np.inf) > HELP_AGAIN
        if final is not None and due and not frame.final:
            self.helped_at[frame.phase] = now
            self.send(final)

    def _alive(self, peer: int) -> None:
        self.received_at[peer] = self.clock()
        receives_from = self.view.own.receives_from
        if peer not in receives_from:
            self._see(self.view.receiving_from({*receives_from, peer}))

    def _see(self, view: View, peer: int | None = None) -> None:
        """Go on with that view, which may be new by a neighbour's frame; ``tick`` sends what has changed."""
        if view is self.view:
            return
        changed = view.epoch != self.view.epoch
        old, self.view = self.view, view
        if changed:
            self.changed_at = self.clock()
        if view.component != old.component:
            logger.info("node %d: members are now %s", self.node, list(view.component))
            for node in view.component:
                self.gone_since.pop(node, None)
            for node in set(old.component) - set(view.component):
                self.gone_since[node] = self.clock()
        if self.neighbours != (peer,):  # it knows what it has sent
            known = old.entries
            self.unannounced.update([n for n, e in view.entries.items() if known.get(n) is not e])

    def come_back(self, known: Mapping[str, Any]) -> bool:
        """Take up the entry that the others still hold (``View.remembered``); False where data or settings have changed."""
        view = self.view.restored(known, self.neighbours)
        if view is None:
            return False
        self.view = view
        self.received_at = dict.fromkeys(view.own.receives_from, self.clock())
        return True

    def rejoin(self) -> None:
        """Ask for a new fit: it begins anew for all."""
        self._see(self.view.renewed())

    def leave(self) -> None:
        """Inform the neighbours that this node leaves for good."""
        self.view = self.view.leaving(self.took_part)
        for _ in range(REPEATS):
            self.say_view()
            self.clock.sleep(0.05)


def _check_payload(frame: Frame) -> None:
    if frame.payload.size > LARGEST_MESSAGE or not _plausible(frame):
        raise Malformed("payload")


def _plausible(frame: Frame) -> bool:
    """Whether a message has numbers, all of them finite and small enough to be sums of data."""
    payload = frame.payload
    return bool(payload.size and np.abs(payload).max() < LARGEST_NUMBER)
