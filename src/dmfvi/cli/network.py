"""Networks by name, for the command line."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmfvi.network import Network


class Topology(StrEnum):
    """Graphs that need only a number of nodes."""

    ring = "ring"
    chain = "chain"
    star = "star"
    complete = "complete"
    random_geometric = "random-geometric"
    small_world = "small-world"
    grid = "grid"


def make_network(topology: Topology, nodes: int) -> Network:
    """The network of that kind; a grid is as square as the number of nodes allows."""
    from dmfvi.network import Network

    if topology is Topology.grid:
        rows = max(r for r in range(1, int(nodes**0.5) + 1) if nodes % r == 0)
        return Network.grid(rows, nodes // rows)
    network: Network = getattr(Network, topology.value.replace("-", "_"))(nodes)
    return network
