"""Message rounds until every node is within 1e-6 of the pooled posterior (docs/mathematics.md)."""

from __future__ import annotations

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table

from dmfvi import BayesianPCA, Federation, Links, Network
from dmfvi.consensus import make
from dmfvi.datasets import make_low_rank

#: network, rounds at most for exact sums (the default), rounds at most for tracking
CASES = [
    (Network.ring(5), 60, 26),
    (Network.chain(5), 104, 88),
    (Network.star(5), 68, 52),
    (Network.complete(5), 52, 11),
    (Network.grid(3, 3), 88, 44),
    (Network.small_world(16), 88, 64),
    (Network.from_networkx(nx.lollipop_graph(5, 3), "lollipop of 8"), 152, 104),
    (Network.ring(12), 176, 72),
    (Network.star(12), 96, 104),
    (Network.chain(10), 488, 144),
]
ACCURACY, SEEDS, GIVE_UP = 1e-6, (0, 1, 2), 2000


def rounds_to_accuracy(model: BayesianPCA, shards: list, reference: BayesianPCA) -> float:
    """The first sweep after which all nodes are within ACCURACY; inf when that never happens."""
    reached: list[int] = []

    def observe(record, so_far):
        if record.swept:
            worst = max(p.distance(reference.posterior_) for p in so_far.posteriors)
            if worst < ACCURACY:
                reached.append(record.round)
                return True
        return None

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the observer ends the run before it converges
        model.fit(shards, observer=observe)
    return reached[0] if reached else np.inf


def main() -> None:
    """D 30, M 4, 40 samples a node, noise 0.5; the worst of three data sets."""
    table = Table(
        title=f"Rounds until every node is within {ACCURACY:g} of pooled, worst of {len(SEEDS)}"
    )
    columns = (
        "network",
        "diameter",
        "pooled sweeps",
        "exact sum",
        "target",
        "tracking",
        "target",
        "fixed penalty",
        "30 % loss",
    )
    for name in columns:
        table.add_column(name, justify="left" if name == "network" else "right")
    for network, admm_target, tracking_target in CASES:
        values = network.distinct_eigenvalues
        penalty = float(2 / np.sqrt(values[0] * values[-1]))
        variants = {
            "admm": Federation(network),
            "tracking": Federation(network, consensus="statistics-tracking"),
            "fixed": Federation(network, make("bregman-admm", network, penalty=penalty)),
            "loss": Federation(network, links=Links(loss=0.3, seed=0)),
        }
        found: dict[str, list[float]] = {name: [] for name in (*variants, "pooled")}
        for seed in SEEDS:
            data = make_low_rank(40 * network.n_nodes, 30, 4, noise=0.5, seed=seed).data
            shards = list(np.array_split(data, network.n_nodes))
            reference = BayesianPCA(4, tol=1e-11, random_state=0).fit(data)
            found["pooled"].append(
                rounds_to_accuracy(BayesianPCA(4, random_state=0), [data], reference)
            )
            for name, federation in variants.items():
                model = BayesianPCA(4, network=federation, random_state=0, max_iter=GIVE_UP)
                found[name].append(rounds_to_accuracy(model, shards, reference))
        worst = {name: f"{max(values):g}" for name, values in found.items()}
        table.add_row(
            network.name,
            str(network.diameter),
            worst["pooled"],
            worst["admm"],
            str(admm_target),
            worst["tracking"],
            str(tracking_target),
            worst["fixed"],
            worst["loss"],
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
