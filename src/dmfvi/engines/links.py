"""Simulated links: loss, delay and pauses, seeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Links:
    """Simulated loss, delay and pauses of messages in the local engine.

    Parameters
    ----------
    loss : float or mapping of (sender, receiver) to float
        Probability that a message is lost, for every message or by link.
    delay : int
        Messages take 0 to ``delay`` extra rounds, uniformly; they may overtake each other.
    pauses : mapping of node to list of (first round, last round)
        Rounds in which a node neither steps nor sends, counted from the beginning of the fit, its start included.
    seed : int
        Seed of loss and delay.
    """

    loss: float | Mapping[tuple[int, int], float] = 0.0
    delay: int = 0
    pauses: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        values = self.loss.values() if isinstance(self.loss, Mapping) else [self.loss]
        for value in values:
            if not 0 <= value < 1:
                raise ValueError(f"loss must lie in [0, 1), received {value!r}")
        if int(self.delay) != self.delay or self.delay < 0:
            raise ValueError(
                f"delay must be a whole number of rounds >= 0, received {self.delay!r}"
            )
        for node, spans in self.pauses.items():
            if not all(np.ndim(span) == 1 and len(span) == 2 for span in spans):
                raise ValueError(
                    f"pauses of node {node} must be a list of (first, last) rounds, "
                    f"received {spans!r}: write {{{node}: [(10, 40)]}}"
                )

    def check_nodes(self, n_nodes: int) -> None:
        """Refuse nodes and links that the network does not have."""
        named = set(self.pauses)
        if isinstance(self.loss, Mapping):
            named |= {node for link in self.loss for node in link}
        unknown = sorted(node for node in named if node not in range(n_nodes))
        if unknown:
            raise ValueError(f"links name nodes {unknown}, the network has 0..{n_nodes - 1}")

    @property
    def reliable(self) -> bool:
        """Whether every message arrives in the next round."""
        return not self.highest_loss and self.delay == 0 and not self.pauses

    @property
    def highest_loss(self) -> float:
        """Loss probability of the worst link."""
        losses = self.loss.values() if isinstance(self.loss, Mapping) else [self.loss]
        return max(losses, default=0.0)

    def loss_of(self, sender: int, receiver: int) -> float:
        """Loss probability of one directed link."""
        if isinstance(self.loss, Mapping):
            return self.loss.get((sender, receiver), 0.0)
        return self.loss

    def paused(self, node: int, round_number: int) -> bool:
        """Whether the node stands still in this round."""
        return any(a <= round_number <= b for a, b in self.pauses.get(node, ()))

    def travel_time(self, rng: np.random.Generator, sender: int, receiver: int) -> int | None:
        """Rounds until delivery, or None for a lost message."""
        loss = self.loss_of(sender, receiver)
        if loss and rng.random() < loss:
            return None
        return int(rng.integers(0, self.delay + 1)) if self.delay else 0
