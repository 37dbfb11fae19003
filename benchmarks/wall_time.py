"""Wall time of fits on networks, here and in another checkout of dmfvi, as ratios of medians.

python benchmarks/wall_time.py OTHER/src [--repeats 7] [--models linear logistic] [--graphs "ring of 5"]

Both run at the same time of day: two processes, which take turns after every fit, so that what else the machine does
slows both down.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import median

import networkx as nx
import numpy as np

REPEATS = 7
GRAPHS = {
    "ring of 5": nx.cycle_graph(5),
    "binary tree of 15": nx.balanced_tree(2, 3),
    "3-regular of 20": nx.random_regular_graph(3, 20, seed=1),
    "grid 6 x 6": nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6)),
    "Barabasi-Albert of 50": nx.barabasi_albert_graph(50, 2, seed=1),
}
MODELS = ("linear", "logistic", "pca", "pca, missing", "mixture", "chain", "topics")


def fit_once(model: str, graph: str) -> tuple[float, int, bool]:
    """Seconds, rounds and whether it converged; rows in random order, equally many a node."""
    import dmfvi

    network = dmfvi.Network.from_networkx(GRAPHS[graph], graph)
    rng = np.random.default_rng(0)
    n_nodes = network.n_nodes
    x = rng.normal(size=(40 * n_nodes, 3)) @ rng.normal(size=(3, 8)) * 2
    x += rng.normal(size=x.shape)
    y = x[:, 0] - x[:, 1] + rng.normal(size=len(x))
    if model == "linear":
        made, data = dmfvi.BayesianLinearRegression(network=network), (x, y)
    elif model == "logistic":
        made, data = dmfvi.BayesianLogisticRegression(network=network), (x, (y > 0).astype(int))
    elif model == "pca":
        made, data = dmfvi.BayesianPCA(3, network=network, random_state=0), (x,)
    elif model == "pca, missing":
        holes = np.where(rng.random(x.shape) < 0.1, np.nan, x)
        made, data = dmfvi.BayesianPCA(3, network=network, random_state=0), (holes,)
    elif model == "mixture":
        x += 3 * rng.integers(3, size=(len(x), 1))
        made, data = dmfvi.BayesianGaussianMixture(3, network=network, random_state=0), (x,)
    elif model == "chain":
        sequences = [x[i : i + 20, :2] for i in range(0, len(x), 20)]
        made = dmfvi.GaussianHMM(2, network=network, random_state=0)
        data = ([sequences[i::n_nodes] for i in range(n_nodes)],)
    else:
        counts = rng.poisson(rng.gamma(0.3, 2.0, size=(len(x), 12))) + 1
        made, data = dmfvi.LatentDirichletAllocation(3, network=network, random_state=0), (counts,)
    parts = [p if isinstance(p, list) else np.array_split(p, n_nodes) for p in data]
    begin = time.perf_counter()
    made.fit(*parts)
    return time.perf_counter() - begin, made.n_rounds_, made.converged_


def work() -> None:
    """Answer lines "model|graph" with seconds, rounds and convergence."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        model, graph = line.rstrip("\n").split("|")
        print(*fit_once(model, graph), flush=True)


def worker(source: Path) -> subprocess.Popen[str]:
    """A process that fits with the dmfvi of that folder."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    command = [sys.executable, __file__, "--worker"]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def ask(process: subprocess.Popen[str], model: str, graph: str) -> tuple[float, int, bool]:
    """One fit there."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{model}|{graph}\n")
    process.stdin.flush()
    seconds, rounds, converged = process.stdout.readline().split()
    return float(seconds), int(rounds), converged == "True"


def main(other: Path, repeats: int, models: list[str], graphs: list[str]) -> None:
    """One line a model and graph: seconds here and there, their ratio, rounds here and there."""
    here = Path(__file__).parents[1] / "src"
    with worker(here) as new, worker(other) as old:
        for graph in graphs:
            for model in models:
                ask(new, model, graph), ask(old, model, graph)  # caches, imports
                pairs = [(ask(new, model, graph), ask(old, model, graph)) for _ in range(repeats)]
                (ours, rounds, ended), (theirs, their_rounds, they_ended) = (
                    (median(fit[0] for fit in fits), *fits[0][1:])
                    for fits in zip(*pairs, strict=True)
                )
                print(
                    f"{graph:22} {model:13} {ours:8.3f} s {theirs:8.3f} s  ratio {ours / theirs:5.2f}  rounds "
                    f"{rounds:5} {their_rounds:5}{'' if ended else '  NOT converged here'}"
                    f"{'' if they_ended else '  NOT converged there'}",
                    flush=True,
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work()
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("other", type=Path)
        parser.add_argument("--repeats", type=int, default=REPEATS)
        parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
        parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=list(GRAPHS))
        main(**vars(parser.parse_args()))
