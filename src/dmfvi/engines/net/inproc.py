"""Frames between nodes of one process: every node a thread, every link a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dmfvi.engines.net.clock import REAL, Clock


class HubClosed(Exception):
    """The hub is closed: nodes that still listen must end."""


class Hub:
    """All inboxes of a process; a node has one while its transport is open."""

    def __init__(self, clock: Clock = REAL) -> None:
        self.clock = clock
        self.open: dict[int, InProcessTransport] = {}
        self.closed = False

    def close(self) -> None:
        """End every node's wait with ``HubClosed``."""
        with self.clock.lock:
            self.closed = True
            for transport in self.open.values():
                transport.arrived.notify_all()


class InProcessTransport:
    """One node's transport on a hub: loses nothing and keeps the order of frames."""

    def __init__(self, hub: Hub, node: int, neighbours: Sequence[int]) -> None:
        self.hub = hub
        self.node = node
        self.neighbours = tuple(neighbours)
        self.inbox: deque[tuple[int, bytes]] = deque()
        self.arrived = hub.clock.condition()
        with hub.clock.lock:
            hub.open[node] = self

    def send(self, data: bytes) -> None:
        with self.hub.clock.lock:
            for peer in self.neighbours:
                other = self.hub.open.get(peer)
                if other is not None:
                    other.inbox.append((self.node, data))
                    other.arrived.notify_all()

    def receive(self, timeout: float) -> tuple[int, bytes] | None:
        with self.hub.clock.lock:
            self.hub.clock.wait(self.arrived, lambda: bool(self.inbox) or self.hub.closed, timeout)
            if self.hub.closed:
                raise HubClosed
            return self.inbox.popleft() if self.inbox else None

    def close(self) -> None:
        with self.hub.clock.lock:
            if self.hub.open.get(self.node) is self:  # a node that came back has another one
                del self.hub.open[self.node]
