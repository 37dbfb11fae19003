"""A thousand nodes in one process: small world, 20 features, 3 components."""

from __future__ import annotations

import time

import numpy as np

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank


def main() -> None:
    """Fit and compare with the pooled posterior."""
    n_nodes = 1000
    network = Network.small_world(n_nodes, k=4, rewire=0.2, seed=0)
    data = make_low_rank(n_nodes * 10, 20, 3, noise=0.5, seed=0).data
    shards = np.array_split(data, n_nodes)
    pooled = BayesianPCA(3, tol=1e-10, random_state=0).fit(data)
    begin = time.perf_counter()
    model = BayesianPCA(3, network=network, random_state=0, verbose=1).fit(shards)
    seconds = time.perf_counter() - begin
    worst = max(p.distance(pooled.posterior_) for p in model.node_posteriors_)
    print(f"{network}: diameter {network.diameter}")
    print(
        f"{model.n_rounds_} rounds (+ {model.n_start_rounds_} for the start) in {seconds:.1f} s, "
        f"worst node {worst:.1e} from pooled"
    )


if __name__ == "__main__":
    main()
