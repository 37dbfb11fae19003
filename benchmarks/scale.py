"""Networks of thousands of nodes in one process: rounds, bytes and seconds (docs/mathematics.md).

python benchmarks/scale.py [NODES ...]
"""

from __future__ import annotations

import resource
import sys
import time

import networkx as nx
import numpy as np

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank

NODES = (1_000, 10_000)
FEATURES, COMPONENTS, ROWS_A_NODE = 20, 3, 10


def networks(n_nodes: int) -> list[Network]:
    """A small world, and a binary tree."""
    tree = nx.full_rary_tree(2, n_nodes)
    return [
        Network.small_world(n_nodes, k=4, rewire=0.2, seed=0),
        Network.from_networkx(tree, f"binary tree of {n_nodes}"),
    ]


def main(sizes: tuple[int, ...]) -> None:
    """One line a network."""
    for n_nodes in sizes:
        data = make_low_rank(n_nodes * ROWS_A_NODE, FEATURES, COMPONENTS, noise=0.5, seed=0).data
        shards = np.array_split(data, n_nodes)
        pooled = BayesianPCA(COMPONENTS, random_state=0).fit(data)
        for network in networks(n_nodes):
            begin, cpu = time.perf_counter(), time.process_time()
            model = BayesianPCA(COMPONENTS, network=network, random_state=0).fit(shards)
            seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
            distinct = {id(p): p for p in model.node_posteriors_}
            apart = max(p.distance(pooled.posterior_) for p in distinct.values())
            sent = model.history_["bytes_sent"].sum() / 1e6
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{network.name:22} diameter {network.diameter:3}  {model.n_iter_} sweeps  {model.n_rounds_} rounds "
                f"(+ {model.n_start_rounds_})  {sent:.0f} MB sent, {1e3 * sent / n_nodes:.1f} kB a node  "
                f"{seconds:.1f} s ({cpu:.1f} s of CPU)  {memory:.0f} MB memory  {apart:.0e} from pooled",
                flush=True,
            )


if __name__ == "__main__":
    main(tuple(int(n) for n in sys.argv[1:]) or NODES)
