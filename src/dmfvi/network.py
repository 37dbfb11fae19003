"""Network: an undirected connected graph, and the facts about it that consensus needs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from dmfvi.linalg import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: angles of the ends of a chain that is drawn on a circle: they are apart, at the bottom
CHAIN_ENDS = (-np.pi / 3, 4 * np.pi / 3)
#: radius of a circle that keeps nodes apart where a drawing begins
APART = 0.01
#: eigenvalues closer than this (relative to the largest) count as one: they differ by rounding only
EIGENVALUE_RESOLUTION = 1e-12


#: nodes up to which the distances of all pairs are worked out
MOST_PAIRS = 2000
#: nodes up to which breadth-first searches are faster than matrices
FEW_NODES = 20


class Network:
    """A connected undirected graph on nodes 0..n-1, with its spectral facts.

    Build one with ``ring``, ``chain``, ``star``, ``complete``, ``grid``,
    ``random_geometric``, ``small_world``, ``from_edges`` or ``from_networkx``.

    Parameters
    ----------
    graph : networkx.Graph
        Connected and undirected, with at least one node.
    name : str
        For messages and figures.
    """

    def __init__(self, graph: nx.Graph, name: str = "network") -> None:
        _check_graph(graph)
        # sorted where possible, so that shard i belongs to the i-th label
        try:
            labels = sorted(graph.nodes)
        except TypeError:
            labels = list(graph.nodes)
        self.labels: list[Any] = labels
        self.name = name
        index = {label: i for i, label in enumerate(labels)}
        edges = [(index[a], index[b]) for a, b in graph.edges]
        self.edges: tuple[tuple[int, int], ...] = tuple(sorted((min(e), max(e)) for e in edges))

    def __getstate__(self) -> dict[str, Any]:
        """What it is, without the facts worked out from it."""
        return {"labels": self.labels, "name": self.name, "edges": self.edges}

    @cached_property
    def graph(self) -> nx.Graph:
        """As a networkx graph on 0..n-1."""
        graph = nx.Graph()
        graph.add_nodes_from(range(len(self.labels)))
        graph.add_edges_from(self.edges)
        return graph

    # -- topologies -----------------------------------------------------------------

    @classmethod
    def ring(cls, n_nodes: int) -> Network:
        """Each node has two neighbours; two nodes share one edge."""
        n = _count(n_nodes)
        return cls(nx.cycle_graph(n) if n > 2 else nx.path_graph(n), f"ring of {n}")

    @classmethod
    def chain(cls, n_nodes: int) -> Network:
        """A line: the slowest graph for consensus."""
        n = _count(n_nodes)
        return cls(nx.path_graph(n), f"chain of {n}")

    @classmethod
    def star(cls, n_nodes: int) -> Network:
        """Node 0 is the neighbour of all the others."""
        n = _count(n_nodes)
        return cls(nx.star_graph(n - 1), f"star of {n}")

    @classmethod
    def complete(cls, n_nodes: int) -> Network:
        """Every node is a neighbour of every other."""
        n = _count(n_nodes)
        return cls(nx.complete_graph(n), f"complete graph of {n}")

    @classmethod
    def grid(cls, rows: int, columns: int) -> Network:
        """A rectangular lattice, numbered row by row."""
        _count(rows)
        _count(columns)
        graph = nx.convert_node_labels_to_integers(
            nx.grid_2d_graph(rows, columns), ordering="sorted"
        )
        return cls(graph, f"grid {rows}x{columns}")

    @classmethod
    def random_geometric(
        cls, n_nodes: int, radius: float | None = None, *, seed: int = 0
    ) -> Network:
        """Points in the unit square, neighbours within ``radius``; it grows until the graph is connected.

        Without a radius, the connectivity threshold sqrt(2 log n / (pi n)) is the start.
        """
        n = _count(n_nodes)
        reach = radius if radius is not None else float(np.sqrt(2 * np.log(n + 1) / (np.pi * n)))
        if not reach > 0:
            raise ValueError(f"radius must be positive, received {radius!r}")
        while True:
            graph = nx.random_geometric_graph(n, reach, seed=seed)
            if nx.is_connected(graph):
                return cls(graph, f"random geometric graph of {n}")
            reach *= 1.1

    @classmethod
    def small_world(
        cls, n_nodes: int, k: int = 4, rewire: float = 0.2, *, seed: int = 0
    ) -> Network:
        """Watts-Strogatz: a ring of k nearest neighbours with some edges rewired, connected."""
        n = _count(n_nodes)
        if k < 2:
            raise ValueError(f"k must be at least 2 neighbours, received {k!r}")
        k = min(k, n - 1)
        if n <= 2:
            return cls(nx.path_graph(n), f"small world of {n}")
        graph = nx.connected_watts_strogatz_graph(n, k, rewire, tries=1000, seed=seed)
        return cls(graph, f"small world of {n}")

    @classmethod
    def from_edges(cls, edges: Iterable[tuple[Any, Any]]) -> Network:
        """From pairs of node labels; the i-th shard belongs to the i-th label in sorted order."""
        graph = nx.Graph()
        graph.add_edges_from(edges)
        return cls(graph)

    @classmethod
    def of_component(cls, n_nodes: int, edges: Iterable[tuple[int, int]]) -> Network:
        """Of nodes 0..n-1 that are known to be connected by these edges; nothing is checked."""
        network = cls.__new__(cls)
        network.labels, network.name = list(range(n_nodes)), "network"
        network.edges = tuple(sorted({(min(e), max(e)) for e in edges}))
        return network

    @classmethod
    def from_networkx(cls, graph: nx.Graph, name: str = "network") -> Network:
        """From any undirected networkx graph; shards follow the sorted labels (``labels``)."""
        _check_type(graph)
        return cls(graph if graph.is_directed() else nx.Graph(graph), name)

    # -- facts ------------------------------------------------------------------------

    @property
    def n_nodes(self) -> int:
        """Number of nodes V."""
        return len(self.labels)

    @property
    def n_edges(self) -> int:
        """Number of undirected edges."""
        return len(self.edges)

    def neighbours(self, node: int) -> tuple[int, ...]:
        """The neighbours of ``node``, ascending."""
        return self._adjacent[node]

    @cached_property
    def _adjacent(self) -> tuple[tuple[int, ...], ...]:
        """The neighbours of every node, ascending."""
        found: list[list[int]] = [[] for _ in range(self.n_nodes)]
        for a, b in self.edges:
            found[a].append(b)
            found[b].append(a)
        return tuple(tuple(sorted(each)) for each in found)

    @cached_property
    def max_degree(self) -> int:
        """Neighbours of the best connected node."""
        return max(len(each) for each in self._adjacent)

    @cached_property
    def laplacian(self) -> FloatArray:
        """Graph Laplacian L = degrees - adjacency."""
        found = np.zeros((self.n_nodes, self.n_nodes))
        for a, b in self.edges:
            found[a, b] = found[b, a] = -1.0
        np.fill_diagonal(found, [len(each) for each in self._adjacent])
        return found

    @cached_property
    def spectrum(self) -> FloatArray:
        """Laplacian eigenvalues, ascending; the first is zero."""
        return np.asarray(np.linalg.eigvalsh(self.laplacian))

    @cached_property
    def distinct_eigenvalues(self) -> FloatArray:
        """Distinct non-zero Laplacian eigenvalues, ascending."""
        values = self.spectrum[1:]
        if not len(values):
            return values
        gaps = np.diff(values) > EIGENVALUE_RESOLUTION * values[-1]
        return values[np.concatenate([[True], gaps])]

    @cached_property
    def eccentricities(self) -> tuple[int, ...]:
        """Of each node, the hops to the node that is furthest from it; bounds from above on very large networks."""
        if self.n_nodes == 1:
            return (0,)
        if self.n_nodes > MOST_PAIRS:
            return self._bounded_eccentricities()
        if self.n_nodes <= FEW_NODES:
            return tuple(max(self._search(node)[1]) for node in range(self.n_nodes))
        rows, columns = np.array(self.edges).T
        ones, shape = np.ones(self.n_edges), (self.n_nodes, self.n_nodes)
        adjacency = csr_array((ones, (rows, columns)), shape=shape)
        hops = shortest_path(adjacency, unweighted=True, directed=False)
        return tuple(int(v) for v in hops.max(1))

    def _bounded_eccentricities(self) -> tuple[int, ...]:
        """Hops to the middle of a longest path, and from there to the furthest node: three searches instead of V."""
        _, hops = self._search(0)
        parents, hops = self._search(hops.index(max(hops)))
        length = max(hops)
        middle = hops.index(length)
        for _ in range(length - (length + 1) // 2):
            middle = parents[middle]
        _, hops = self._search(middle)
        height = max(hops)
        return tuple(each + height for each in hops)

    def _search(self, root: int) -> tuple[list[int], list[int]]:
        """Parents and hops of a breadth-first search; ties go to the lowest number."""
        parents, hops = [root] * self.n_nodes, [-1] * self.n_nodes
        hops[root] = 0
        queue = [root]
        for node in queue:  # which grows meanwhile
            for other in self._adjacent[node]:
                if hops[other] < 0:
                    hops[other], parents[other] = hops[node] + 1, node
                    queue.append(other)
        return parents, hops

    @cached_property
    def diameter(self) -> int:
        """Longest shortest path."""
        return max(self.eccentricities)

    @cached_property
    def radius(self) -> int:
        """Hops from a centre to the node that is furthest from it."""
        return min(self.eccentricities)

    @cached_property
    def n_inner(self) -> int:
        """Nodes that are somebody's parent in the tree."""
        return len({parent for child, parent in enumerate(self.tree) if parent != child})

    @cached_property
    def tree(self) -> tuple[int, ...]:
        """Parent of each node in the breadth-first tree around a centre; the root is its own parent.

        Ties go to the lowest number, so that all nodes find the same tree.
        """
        return tuple(self._search(int(np.argmin(self.eccentricities)))[0])

    def _positions(self, seed: int = 0) -> dict[int, Any]:
        """Where to draw nodes, in [-1, 1]: rings and chains on a circle, others by path lengths, large graphs by springs."""
        if self.n_nodes <= 60:
            if self.max_degree <= 2:
                return self._on_a_circle()
            # from a circle, where nodes are numbered row by row, grids would stay folded; from eigenvectors alone, two leaves
            # of a star may begin at one place, where the force between them has no direction
            circle = nx.circular_layout(self.graph, scale=APART)
            begin = {n: at + circle[n] for n, at in nx.spectral_layout(self.graph).items()}
            return dict(nx.kamada_kawai_layout(self.graph, pos=begin))
        return dict(nx.spring_layout(self.graph, seed=seed))

    def _on_a_circle(self) -> dict[int, Any]:
        """A ring in its order, and a chain with its ends apart."""
        degrees = dict(self.graph.degree)
        ends = [node for node in sorted(degrees) if degrees[node] < 2]
        order = list(nx.dfs_preorder_nodes(self.graph, ends[0] if ends else 0))
        angles = np.linspace(*(CHAIN_ENDS if ends else (0.0, 2.0 * np.pi)), len(order) + (not ends))
        return {
            node: np.array([np.cos(angle), np.sin(angle)])
            for node, angle in zip(order, angles, strict=False)
        }

    def _repr_html_(self) -> str:
        """What a notebook shows: the graph, and its name."""
        positions = {
            node: (140 + 115 * float(x), 140 - 115 * float(y))
            for node, (x, y) in self._positions().items()
        }
        few = self.n_nodes <= 40
        lines = [
            '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#9aa5b1"/>'.format(
                *positions[a], *positions[b]
            )
            for a, b in self.graph.edges
        ]
        for node, (x, y) in positions.items():
            lines.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{11 if few else 3}" fill="#4878a8"/>'
            )
            if few:
                words = escape(str(self.labels[node]))
                lines.append(
                    f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" font-size="11" fill="white">{words}</text>'
                )
        about = f"{escape(self.name)}: {self.n_nodes} nodes, {self.n_edges} links, diameter {self.diameter}"
        drawing = "".join(lines)
        return f'<svg width="280" height="280" role="img" aria-label="{about}">{drawing}</svg><div>{about}</div>'

    def draw(self, ax: Axes | None = None, *, seed: int = 0) -> Axes:
        """Draw the graph: rings and chains on a circle, others so that distances are path lengths; ``seed`` is of large graphs."""
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(figsize=(4, 4))
        nx.draw_networkx(
            self.graph,
            self._positions(seed),
            ax=ax,
            node_size=260 if self.n_nodes <= 40 else 20,
            with_labels=self.n_nodes <= 40,
            node_color="#4878a8",
            edge_color="#9aa5b1",
            font_color="white",
            font_size=9,
        )
        ax.set_title(f"{self.name}: diameter {self.diameter}")
        ax.set_axis_off()
        return ax

    def __repr__(self) -> str:
        return f"Network({self.name}, {self.n_nodes} nodes, {self.n_edges} edges)"


def _count(n_nodes: int) -> int:
    if int(n_nodes) != n_nodes or n_nodes < 1:
        raise ValueError(
            f"a network needs a whole number of nodes, at least 1, received {n_nodes!r}"
        )
    return int(n_nodes)


def _check_type(graph: Any) -> None:
    if not isinstance(graph, nx.Graph):
        raise TypeError(
            f"expected a networkx graph, received {type(graph).__name__}: use Network.ring(5), for example, or "
            "Network.from_edges([(0, 1), (1, 2)])"
        )


def _check_graph(graph: nx.Graph) -> None:
    _check_type(graph)
    if graph.is_directed():
        raise ValueError(
            "network is directed: messages go both ways on every link, "
            "so pass graph.to_undirected()"
        )
    if graph.number_of_nodes() == 0:
        raise ValueError("network has no nodes: add at least one")
    loops = [a for a, b in graph.edges if a == b]
    if loops:
        raise ValueError(f"network has self-loops at {loops[:5]}: remove them")
    components = [sorted(part, key=str) for part in nx.connected_components(graph)]
    if len(components) > 1:
        shown = " ".join("{" + ",".join(map(str, part[:8])) + "}" for part in components[:4])
        raise ValueError(
            f"network has {len(components)} components {shown}: "
            f"add an edge between {components[0][0]} and {components[1][0]}"
        )
