"""What carries bytes between neighbours; the network engine asks for no more."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """Carries bytes from a node to all of its neighbours, and theirs to it."""

    def send(self, data: bytes) -> None:
        """To every neighbour that is connected; may be lost."""

    def receive(self, timeout: float) -> tuple[int, bytes] | None:
        """The next (neighbour, bytes), or None after ``timeout`` seconds."""

    def close(self) -> None:
        """End all connections."""
