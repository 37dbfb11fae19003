"""What one neighbour may send: a queue of its own, and limits of size and rate; what is beyond them is dropped and named."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from dmfvi.engines.net.clock import REAL, Clock

logger = logging.getLogger(__name__)

#: seconds of its rate that a neighbour may send at once
BURST = 2.0


@dataclass(frozen=True)
class Limits:
    """Of every neighbour. Dropped frames cost rounds, never the result."""

    frame_bytes: int = 64 * 2**20
    frames_per_second: float = 5000.0
    bytes_per_second: float = 256.0 * 2**20
    queued_frames: int = 256


class Inbox:
    """One queue per neighbour, read in turn, so that none can crowd out the others."""

    def __init__(self, peers: Iterable[int], limits: Limits, clock: Clock = REAL) -> None:
        self.limits = limits
        self.clock = clock
        self.queues: dict[int, deque[bytes]] = {peer: deque() for peer in peers}
        self.turns: deque[int] = deque(self.queues)
        self.frames = dict.fromkeys(self.queues, BURST * limits.frames_per_second)
        self.bytes = dict.fromkeys(self.queues, BURST * limits.bytes_per_second)
        self.filled_at = dict.fromkeys(self.queues, clock())
        self.dropped: Counter[tuple[int, str]] = Counter()
        self.arrived = clock.condition()

    def admits(self, peer: int, size: int) -> bool:
        """Whether a frame of this size may come in now; it counts against the neighbour's rates."""
        limits = self.limits
        with self.clock.lock:
            now = self.clock()
            passed, self.filled_at[peer] = now - self.filled_at[peer], now
            for rate, left in (
                (limits.frames_per_second, self.frames),
                (limits.bytes_per_second, self.bytes),
            ):
                left[peer] = min(BURST * rate, left[peer] + passed * rate)
            if size > limits.frame_bytes:
                return self._drop(peer, f"frames of more than {limits.frame_bytes} bytes")
            if self.frames[peer] < 1:
                return self._drop(peer, f"more than {limits.frames_per_second:g} frames a second")
            if self.bytes[peer] < size:
                return self._drop(peer, f"more than {limits.bytes_per_second:g} bytes a second")
            if len(self.queues[peer]) >= limits.queued_frames:
                return self._drop(peer, f"more than {limits.queued_frames} frames that wait")
            self.frames[peer] -= 1
            self.bytes[peer] -= size
            return True

    def put(self, peer: int, data: bytes) -> None:
        """Keep a frame until it is read."""
        with self.clock.lock:
            self.queues[peer].append(data)
            self.arrived.notify_all()

    def get(self, timeout: float) -> tuple[int, bytes] | None:
        """The next frame, of the neighbours in turn, or None after ``timeout`` seconds."""
        with self.clock.lock:
            self.clock.wait(self.arrived, lambda: any(self.queues.values()), max(timeout, 0.0))
            for _ in range(len(self.turns)):
                peer = self.turns[0]
                self.turns.rotate(-1)
                if self.queues[peer]:
                    return peer, self.queues[peer].popleft()
        return None

    def _drop(self, peer: int, why: str) -> bool:
        if not self.dropped[peer, why]:
            logger.warning("node %d sends %s: they are dropped", peer, why)
        self.dropped[peer, why] += 1
        return False
