"""Message rounds and bytes until every node is within 1e-6 of the pooled posterior (docs/mathematics.md)."""

from __future__ import annotations

import warnings

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table

from dmfvi import BayesianPCA, Federation, Links, Network
from dmfvi.consensus import make
from dmfvi.datasets import make_low_rank

#: network, rounds at most for ADMM, rounds at most for tracking
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
#: graphs on which the exact sum is compared with the diameter only
HARD = [
    Network.from_networkx(nx.lollipop_graph(12, 12), "lollipop 12, 12"),
    Network.from_networkx(nx.barbell_graph(6, 8), "barbell 6, 8"),
    Network.from_networkx(nx.balanced_tree(2, 3), "binary tree of 15"),
    Network.from_networkx(nx.random_regular_graph(3, 20, seed=1), "3-regular of 20"),
]
ACCURACY, SEEDS, GIVE_UP = 1e-6, (0, 1, 2), 500


def cost_to_accuracy(model: BayesianPCA, shards: list, reference: BayesianPCA) -> np.ndarray:
    """Rounds and kilobytes when all nodes are within ACCURACY for the first time; inf when that never happens."""
    reached: list[float] = []
    sent = [0.0]

    def observe(record, so_far):
        sent[0] += record.bytes_sent / 1024
        if record.swept:
            worst = max(p.distance(reference.posterior_) for p in so_far.posteriors)
            if worst < ACCURACY:
                reached.extend([record.round, sent[0]])
                return True
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the observer ends the run before it converges
        model.fit(shards, observer=observe)
    return np.array(reached[:2] or [np.inf, np.inf])


def measured(network: Network, variants: dict[str, Federation | None]) -> dict[str, np.ndarray]:
    """The worst of the data sets: D 30, M 4, 40 samples a node, noise 0.5."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in variants}
    for seed in SEEDS:
        data = make_low_rank(40 * network.n_nodes, 30, 4, noise=0.5, seed=seed).data
        shards = list(np.array_split(data, network.n_nodes))
        reference = BayesianPCA(4, tol=1e-11, random_state=0).fit(data)
        for name, federation in variants.items():
            model = BayesianPCA(4, network=federation, random_state=0, max_iter=GIVE_UP)
            given = [data] if federation is None else shards
            found[name].append(cost_to_accuracy(model, given, reference))
    return {name: np.max(values, axis=0) for name, values in found.items()}


def main() -> None:
    """One row a network, all rules in one run."""
    title = f"Rounds (kB) until every node is within {ACCURACY:g} of pooled, worst of {len(SEEDS)}"
    table = Table(title=title)
    for name in (
        "network",
        "diameter",
        "pooled sweeps",
        "exact sum",
        "by flood",
        "30 % loss",
        "ADMM",
        "target",
        "tracking",
        "target",
    ):
        table.add_column(name, justify="left" if name == "network" else "right")
    for network, admm_target, tracking_target in CASES + [(n, None, None) for n in HARD]:
        variants: dict[str, Federation | None] = {
            "pooled": None,
            "exact": Federation(network),
            "flood": Federation(network, make("exact-sum", network, transport="flood")),
            "loss": Federation(network, links=Links(loss=0.3, seed=0)),
        }
        if admm_target is not None:
            variants["admm"] = Federation(network, "bregman-admm")
            variants["tracking"] = Federation(network, "statistics-tracking")
        cost = measured(network, variants)

        def shown(name: str, cost: dict[str, np.ndarray] = cost) -> str:
            return f"{cost[name][0]:g} ({cost[name][1]:.0f})" if name in cost else ""

        table.add_row(
            network.name,
            str(network.diameter),
            f"{cost['pooled'][0]:g}",
            *(shown(name) for name in ("exact", "flood", "loss", "admm")),
            str(admm_target or ""),
            shown("tracking"),
            str(tracking_target or ""),
        )
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
