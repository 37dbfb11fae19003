"""Graphs that real networks have: long, dense, uneven."""

from __future__ import annotations

import networkx as nx

GRAPHS = {
    "lollipop 12, 12": nx.lollipop_graph(12, 12),
    "barbell 6, 8": nx.barbell_graph(6, 8),
    "binary tree of 15": nx.balanced_tree(2, 3),
    "3-regular of 20": nx.random_regular_graph(3, 20, seed=1),
    "Barabasi-Albert of 50": nx.barabasi_albert_graph(50, 2, seed=1),
    "grid 6 x 6": nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6)),
    "random geometric of 40": nx.random_geometric_graph(40, 0.3, seed=3),
    "broom 8, 12": nx.convert_node_labels_to_integers(
        nx.compose(nx.path_graph(8), nx.star_graph([7, *range(8, 20)]))
    ),
}
