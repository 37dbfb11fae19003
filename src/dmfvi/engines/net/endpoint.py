"""One node's endpoint on a network: frames in and out, membership, messages by phase and round.

Frames of other phases, epochs, models or senders are recognised and refused with a reason that is counted. Nothing
here depends on the content of a message.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dmfvi.engines.net.clock import REAL, Clock
from dmfvi.engines.net.compression import Compressor, References
from dmfvi.engines.net.frames import INT64, ROUND, VIEW, Frame, Malformed, pack, unpack
from dmfvi.engines.net.membership import Entry, View, read_entries
from dmfvi.engines.net.transport import Transport
from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.node import NO_STOP, Message

logger = logging.getLogger(__name__)

#: a view is sent at least this often, in seconds: it is also the heartbeat
HEARTBEAT = 0.5
#: times settle that a fit waits for the link to a neighbour that is a member already
LINKS_COMING = 5.0
#: an old phase's last frame is not repeated sooner than this, in seconds
HELP_AGAIN = 0.02
#: a neighbour may be this far ahead; what claims more is refused
PHASES_AHEAD, ROUNDS_AHEAD = 1, 10_000_000
#: numbers in a message at most
LARGEST_MESSAGE = 2**27
#: larger magnitudes are no sums of data
LARGEST_NUMBER = 1e300
#: a node that comes back meets a newer entry of itself once or twice; a second node with its id makes that endless
MOST_LIVES = 20
#: rounds of a neighbour that are kept until they are needed
AHEAD = 8


class MembershipChanged(Exception):
    """A node has joined or left: what was agreed on so far belongs to another set of nodes."""


@dataclass(frozen=True)
class Timing:
    """How long to wait, in seconds."""

    patience: float = 2.0  # for a neighbour's message of a round
    silence: float = 60.0  # until a silent neighbour counts as gone
    settle: float = 1.0  # without a change of membership before a fit begins
    linger: float = 30.0  # for others to finish


@dataclass
class Counts:
    """Counts of frames that were received, and of those that were refused."""

    sent_bytes: int = 0
    received: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    waited: int = 0  # rounds that continued without a neighbour's message


class NetworkNode:
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
    ) -> None:
        self.node = node
        self.neighbours = tuple(neighbours)
        self.transport = transport
        self.fingerprint = fingerprint
        self.timing = timing or Timing()
        self.compressor = Compressor(compression)
        self.references = References()
        self.clock = clock
        self.view = View.first(node, version)
        self.counts = Counts()
        self.lives = 0  # times that others knew a later entry of this node than its own
        self.of_another_model: set[int] = set()  # neighbours that answer, but with another model
        self.heard_at: dict[int, float] = {}
        self.changed_at = clock()
        self.said_at = -np.inf
        self.epoch = -1
        self.members: tuple[int, ...] = (node,)  # of the epoch
        self.phase = 0
        self.round = 0
        self.sizes: dict[int, set[int]] = {}  # payload sizes that a phase may have
        self.mail: dict[tuple[int, int], dict[int, Frame]] = {}  # (sender, phase) -> round -> frame
        self.finals: dict[int, bytes] = {}  # own last frame of finished phases
        self.helped_at: dict[int, float] = {}

    # -- out ----------------------------------------------------------------------------

    def say(self, data: bytes) -> None:
        """To all neighbours."""
        self.counts.sent_bytes += len(data)
        self.transport.send(data)

    def say_view(self) -> None:
        """Send this node's view of the membership."""
        self.said_at = self.clock()
        frame = Frame(VIEW, self.fingerprint, self.node, 0, 0, 0, 0, 0, self.view.pack())
        self.say(pack(frame, INT64))

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
        now = self.clock()
        if now - self.said_at > HEARTBEAT:
            self.say_view()
        got = self.transport.receive(max(0.0, min(timeout, HEARTBEAT)))
        if got is not None:
            try:
                self._take(*got)
            except Malformed as reason:
                self.refuse(str(reason), got[0])
        self._watch_silence()
        return got is not None

    def refuse(self, reason: str, peer: int) -> None:
        """Count a frame that is not used; the first of its reason is logged."""
        if reason not in self.counts.refused:
            logger.warning("node %d refused a frame of node %d: %s", self.node, peer, reason)
        self.counts.refused[reason] += 1

    def _take(self, peer: int, data: bytes) -> None:
        frame = unpack(data)
        if frame.fingerprint != self.fingerprint:
            self.of_another_model.add(peer)
            raise Malformed("another model")
        if frame.sender != peer or peer not in self.neighbours:
            raise Malformed("another sender")
        if frame.kind == VIEW:
            entries = read_entries(frame.payload)
            self._alive(peer)
            self._check_twin(entries)
            self._see(self.view.merged(entries))
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
        frame = self.references.whole(frame, known)
        _check_payload(frame)
        if known is not None and frame.payload.size not in known:
            raise Malformed("size")
        self.counts.received += 1
        box = self.mail.setdefault((peer, frame.phase), {})
        box[frame.round] = frame
        for number in sorted(box)[:-AHEAD]:
            del box[number]

    def _check_twin(self, entries: dict[int, Entry]) -> None:
        """Detect a second node with this id: the two would outbid each other's version for ever, and no fit could begin."""
        mine = entries.get(self.node)
        if mine is None or mine.version <= self.view.own.version:
            return
        self.lives += 1
        if self.lives > MOST_LIVES:
            raise ValueError(
                f"somebody else runs as node {self.node}: others keep receiving newer entries of it than its own. "
                "Give every machine an id of its own in [node], and stop the other one"
            )

    def _help(self, frame: Frame) -> None:
        """A neighbour is still in a phase that is over here: send it the final message."""
        final = self.finals.get(frame.phase)
        now = self.clock()
        due = now - self.helped_at.get(frame.phase, -np.inf) > HELP_AGAIN
        if final is not None and due and not frame.final:
            self.helped_at[frame.phase] = now
            self.say(final)

    def _alive(self, peer: int) -> None:
        self.heard_at[peer] = self.clock()
        self._see(self.view.hearing(set(self.view.own.hears) | {peer}))

    def _watch_silence(self) -> None:
        now = self.clock()
        gone = {j for j in self.view.own.hears if now - self.heard_at[j] > self.timing.silence}
        if gone:
            logger.warning(
                "node %d: neighbours %s were silent for %g seconds",
                self.node,
                sorted(gone),
                self.timing.silence,
            )
            self._see(self.view.hearing(set(self.view.own.hears) - gone))

    def _see(self, view: View) -> None:
        if view is self.view or view.entries == self.view.entries:
            return
        changed = view.epoch != self.view.epoch
        before, self.view = self.view.component, view
        if changed:
            self.changed_at = self.clock()
        if view.component != before:
            logger.info("node %d: members are now %s", self.node, list(view.component))
        self.say_view()

    def rejoin(self) -> None:
        """Come as a new member: the fit begins anew for all."""
        self._see(self.view.renewed())

    def leave(self) -> None:
        """Inform the neighbours that this node leaves for good."""
        self.view = self.view.hearing(set())
        for _ in range(3):
            self.say_view()
            self.clock.sleep(0.05)

    # -- epochs -------------------------------------------------------------------------

    def gather(
        self,
        wait_for: int | None,
        timeout: float,
        watch: Callable[[], None] = lambda: None,
    ) -> Network:
        """Wait for enough members, and until the membership has not changed for a while; then begin an epoch."""
        deadline = self.clock() + timeout
        while True:
            self.listen(0.05)
            watch()
            unheard = set(self.neighbours) & set(self.view.component) - set(self.view.own.hears)
            # a member that is a neighbour will connect any moment, and its link would restart the fit
            patience = LINKS_COMING if unheard else 1.0
            converged = self.clock() - self.changed_at > patience * self.timing.settle
            enough = wait_for is None or len(self.view.component) >= wait_for
            if converged and enough:
                break
            if not enough and self.clock() > deadline:
                others = sorted(self.of_another_model & set(self.neighbours))
                silent = sorted(set(self.neighbours) - set(self.view.own.hears) - set(others))
                of_others = (
                    f"; nodes {others} have another model: compare [model], the columns of the data "
                    "and what `dmfvi --version` prints"
                    if others
                    else ""
                )
                raise TimeoutError(
                    f"node {self.node} waited {timeout:g} seconds for {wait_for} nodes and met "
                    f"{list(self.view.component)}; never heard: {silent}{of_others}; refused frames: "
                    f"{dict(self.counts.refused) or 'none'}. Start the others, check addresses, "
                    "certificates and that all have the same [model] and columns, or lower wait_for"
                )
        self.begin()
        return self.view.network()

    def begin(self, view: View | None = None, phase: int = 0) -> None:
        """Phases and messages from now on are those of the present members, or of those in ``view``."""
        if view is not None:
            self.view = view
            self.heard_at = dict.fromkeys(view.own.hears, self.clock())
        self.epoch = self.view.epoch
        self.members = self.view.component
        self.phase = phase
        self.mail.clear()
        self.references.clear()
        self.finals.clear()
        self.helped_at.clear()
        self.sizes.clear()

    def check_epoch(self) -> None:
        """Raise when the members are no longer those of this epoch."""
        if self.view.epoch != self.epoch:
            raise MembershipChanged(f"members are now {self.view.component}")

    def finish(self) -> None:
        """Announce that this node is done, and answer the others until they are; lost nodes may come back."""
        self.view = self.view.finished(self.epoch)
        self.say_view()
        deadline = self.clock() + self.timing.linger
        while (self.view.lost or not self.view.all_done) and self.clock() < deadline:
            self.listen(0.1)
            if self.all_finished and set(self.view.component) < set(self.members):
                break  # a node that is silent now has ended
            self.check_epoch()
        for _ in range(3):  # for nodes that have not received yet that all are done
            self.say_view()
            self.listen(0.05)

    @property
    def all_finished(self) -> bool:
        """Whether every member of this epoch has announced that it is done, also those that have gone since."""
        return all(self.view.entries[node].done_in == self.epoch for node in self.members)

    def left_behind_by(self, epoch: int, members: tuple[int, ...]) -> list[int]:
        """Members of an earlier epoch that finished it and are gone: their result includes this node's data."""
        here = self.view.component
        gone = [node for node in members if node not in here]
        return [node for node in gone if self.view.entries[node].done_in == epoch]


def _check_payload(frame: Frame) -> None:
    if frame.payload.size > LARGEST_MESSAGE or not _sober(frame):
        raise Malformed("payload")


def _sober(frame: Frame) -> bool:
    """Whether the numbers of a message can be what they claim to be."""
    payload = frame.payload
    return bool(payload.size and np.abs(payload).max() < LARGEST_NUMBER)
