"""A transport with faults, for trials: loss, delay, duplicates, reordering and cut links. Seeded."""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass

from dmfvi.engines.net.clock import REAL, Clock
from dmfvi.engines.net.transport import Transport


@dataclass(frozen=True)
class Faults:
    """What goes wrong with frames that arrive at a node."""

    loss: float = 0.0  # probability that a frame is lost
    delay: float = 0.0  # seconds at most, uniformly; frames may overtake each other
    duplicates: float = 0.0  # probability that a frame comes twice
    seed: int = 0
    latency: float = 0.0  # seconds that every frame takes; by itself it changes no order

    def __post_init__(self) -> None:
        for name in ("loss", "duplicates"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), received {getattr(self, name)!r}")
        for name in ("delay", "latency"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, received {getattr(self, name)!r}")


class FaultyTransport:
    """Another transport, with faults in what arrives."""

    def __init__(self, inner: Transport, faults: Faults, clock: Clock = REAL) -> None:
        self.inner = inner
        self.faults = faults
        self.clock = clock
        self.rng = random.Random(faults.seed)
        self.waiting: list[tuple[float, int, tuple[int, bytes]]] = []
        self.order = itertools.count()
        self.cut: set[int] = set()  # neighbours whose frames do not arrive

    def send(self, data: bytes) -> None:
        self.inner.send(data)

    def receive(self, timeout: float) -> tuple[int, bytes] | None:
        deadline = self.clock() + timeout
        while True:
            now = self.clock()
            if self.waiting and self.waiting[0][0] <= now:
                return heapq.heappop(self.waiting)[2]
            left = deadline - now
            if self.waiting:
                left = min(left, self.waiting[0][0] - now)
            got = self.inner.receive(max(0.0, left))
            if got is not None:
                self._arrived(got)
            elif self.clock() >= deadline and not (
                self.waiting and self.waiting[0][0] <= self.clock()
            ):
                return None

    def close(self) -> None:
        self.inner.close()

    def _arrived(self, got: tuple[int, bytes]) -> None:
        if got[0] in self.cut or self.rng.random() < self.faults.loss:
            return
        copies = 2 if self.rng.random() < self.faults.duplicates else 1
        for _ in range(copies):
            late = self.faults.latency + self.rng.random() * self.faults.delay
            due = self.clock() + late
            heapq.heappush(self.waiting, (due, next(self.order), got))
