"""Graphs and their facts."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from dmfvi import Network


def test_ring_of_five_has_known_facts() -> None:
    ring = Network.ring(5)
    assert (ring.n_nodes, ring.n_edges, ring.diameter) == (5, 5, 2)
    np.testing.assert_allclose(ring.distinct_eigenvalues, [(5 - 5**0.5) / 2, (5 + 5**0.5) / 2])
    assert ring.neighbours(0) == (1, 4)


@pytest.mark.parametrize(
    ("network", "diameter", "edges"),
    [
        (Network.chain(6), 5, 5),
        (Network.star(6), 2, 5),
        (Network.complete(6), 1, 15),
        (Network.grid(2, 3), 3, 7),
        (Network.ring(2), 1, 1),
        (Network.complete(1), 0, 0),
    ],
    ids=str,
)
def test_topologies(network: Network, diameter: int, edges: int) -> None:
    assert network.diameter == diameter
    assert network.n_edges == edges
    assert len(network.spectrum) == network.n_nodes
    assert abs(network.spectrum[0]) < 1e-12


@pytest.mark.parametrize("n", [2, 3, 7, 20, 50])
def test_random_graphs_are_connected_and_seeded(n: int) -> None:
    for maker in (Network.random_geometric, Network.small_world):
        one, two = maker(n, seed=1), maker(n, seed=1)
        assert nx.is_connected(one.graph)
        assert set(one.graph.edges) == set(two.graph.edges)


def test_labels_are_kept_in_order() -> None:
    network = Network.from_edges([("north", "east"), ("east", "south")])
    assert network.labels == ["east", "north", "south"]
    assert network.neighbours(0) == (1, 2)


def test_a_disconnected_graph_is_refused_with_advice() -> None:
    with pytest.raises(
        ValueError, match=r"2 components \{0,1\} \{2,3\}: add an edge between 0 and 2"
    ):
        Network.from_edges([(0, 1), (2, 3)])


def test_directed_empty_and_looped_graphs_are_refused() -> None:
    with pytest.raises(ValueError, match="directed"):
        Network.from_networkx(nx.DiGraph([(0, 1)]))
    with pytest.raises(TypeError, match="from_edges"):
        Network.from_networkx([(0, 1)])
    with pytest.raises(ValueError, match="k must be"):
        Network.small_world(8, k=0)
    with pytest.raises(ValueError, match="no nodes"):
        Network.from_networkx(nx.Graph())
    with pytest.raises(ValueError, match="self-loops"):
        Network.from_edges([(0, 1), (1, 1)])
    with pytest.raises(ValueError, match="whole number of nodes, at least 1"):
        Network.ring(0)


def test_drawing_shows_every_node() -> None:
    from matplotlib.figure import Figure

    ax = Network.ring(5).draw(Figure().subplots())
    assert {text.get_text() for text in ax.texts} == set("01234")
