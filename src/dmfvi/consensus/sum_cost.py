"""What one exact sum costs by each transport: the model by which ``transport="auto"`` chooses."""

from __future__ import annotations

from typing import NamedTuple, Protocol

#: seconds that a round and a byte take
ROUND_SECONDS, BYTE_SECONDS = 1e-3, 1e-8
#: digits of a partial sum, with eight bytes each
TYPICAL_DIGITS = 5
#: shorter vectors count as this long: a few rounds less are not worth many times the bytes
LEAST_LENGTH = 1000


class Graph(Protocol):
    """What the cost depends on; a ``Network``, or a node's view of it."""

    @property
    def n_nodes(self) -> int: ...
    @property
    def n_edges(self) -> int: ...
    @property
    def n_inner(self) -> int: ...
    @property
    def diameter(self) -> int: ...
    @property
    def radius(self) -> int: ...


class Cost(NamedTuple):
    """Rounds, bytes and seconds of one sum by one transport."""

    rounds: float
    bytes: float
    seconds: float


def cost(transport: str, graph: Graph, length: int, loss: float = 0.0) -> Cost:
    """What one sum of ``length`` numbers costs: a round takes a millisecond, a link carries 100 MB a second.

    A lost message holds a tree up, and a flood less: it has other ways. Factors of the rounds as measured on grids,
    scale-free and random regular graphs of 20 to 50 nodes with up to half of the messages lost.
    """
    v, rounds = graph.n_nodes, 0.0
    if transport == "tree":
        rounds = 2 * graph.radius / (1.0 - loss) ** 1.6
        up = 8.0 * (v - graph.n_inner) + 8.0 * TYPICAL_DIGITS * graph.n_inner
        sent = length * (up + 8.0 * (v - 1))
        busiest = 8.0 * length * TYPICAL_DIGITS
    else:
        rounds = graph.diameter * (1.0 + loss)
        sent = 16.0 * length * v * graph.n_edges
        busiest = 8.0 * length * v
    return Cost(rounds, sent, rounds * ROUND_SECONDS + busiest * BYTE_SECONDS)


def cheapest(graph: Graph, length: int, loss: float = 0.0) -> str:
    """The transport that takes the least time; the same at all nodes, who have the same length."""
    counted = max(length, LEAST_LENGTH)
    return min(("flood", "tree"), key=lambda way: cost(way, graph, counted, loss).seconds)
