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
    with pytest.raises(TypeError, match=r"received int: use Network.ring\(5\)"):
        Network(5)
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


@pytest.mark.parametrize("n", [1, 2, 5, 12, 20, 21, 40])
def test_facts_are_those_of_networkx(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5):
        graph = Network.small_world(n, seed=seed).graph if n > 2 else nx.path_graph(n)
        for network in (Network(graph), Network.of_component(n, list(graph.edges))):
            hops = dict(nx.all_pairs_shortest_path_length(graph))
            furthest = [max(hops[node].values()) for node in range(n)]
            assert network.eccentricities == tuple(furthest)
            assert [list(network.neighbours(i)) for i in range(n)] == [
                sorted(graph[i]) for i in range(n)
            ]
            assert network.max_degree == max(dict(graph.degree).values())
            np.testing.assert_array_equal(
                network.laplacian, nx.laplacian_matrix(graph, nodelist=range(n)).toarray()
            )
            root, parents = furthest.index(min(furthest)), dict(enumerate(network.tree))
            wanted = dict(nx.bfs_predecessors(graph, root, sort_neighbors=sorted))
            assert parents == {root: root} | wanted
        monkeypatch.setattr("dmfvi.network.MOST_PAIRS", 1)
        bounds = Network(graph).eccentricities
        monkeypatch.undo()
        assert all(bound >= exact for bound, exact in zip(bounds, furthest, strict=True))
