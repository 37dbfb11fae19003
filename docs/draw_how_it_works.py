"""Draw the pictures of how_it_works.md from real fits: ``python docs/draw_how_it_works.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.patches import Ellipse, FancyArrowPatch

from dmfvi import BayesianGaussianMixture, BayesianLogisticRegression, Network

IMAGES = Path(__file__).parent / "images"
#: Okabe & Ito's colours, which readers with any colour vision can tell apart
SITES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def save(figure: Any, name: str) -> None:
    figure.savefig(IMAGES / name, dpi=110, bbox_inches="tight")
    plt.close(figure)


def ellipse(ax: Any, mean: np.ndarray, covariance: np.ndarray, **style: Any) -> None:
    """A 90 % region of two numbers."""
    values, vectors = np.linalg.eigh(covariance)
    width, height = 2 * np.sqrt(4.605 * values)
    angle = np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0]))
    ax.add_patch(Ellipse(tuple(mean), width, height, angle=angle, **style))


def tail(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)


def alone_and_together() -> None:
    """Three sites alone, three sites together, one machine: 90 % regions of two coefficients."""
    rng = np.random.default_rng(4)
    x = [
        rng.normal(size=(n, 2)) + shift
        for n, shift in ((40, (0.7, 0)), (60, (-0.5, 0.4)), (50, (0, -0.6)))
    ]
    y = [(rows @ [1.0, -0.7] + rng.logistic(size=len(rows)) > 0).astype(int) for rows in x]
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.0), sharex=True, sharey=True)
    for k, (rows, labels) in enumerate(zip(x, y, strict=True)):
        q = BayesianLogisticRegression().fit(rows, labels).uncertainty("coef")
        ellipse(axes[0], q.mean[0], q.covariance, fill=False, ec=SITES[k], lw=2)
        axes[0].plot(*q.mean[0], "o", color=SITES[k], ms=5, label=f"site {k}, {len(rows)} rows")
    together = BayesianLogisticRegression(network=Network.ring(3)).fit(x, y)
    pooled = BayesianLogisticRegression().fit(np.concatenate(x), np.concatenate(y))
    for k in range(3):
        q = together.at_node(k).uncertainty("coef")
        ellipse(axes[1], q.mean[0], q.covariance, fill=False, ec=SITES[k], lw=7 - 2.2 * k)
        axes[1].plot([], [], color=SITES[k], lw=7 - 2.2 * k, label=f"site {k}")
    q = pooled.uncertainty("coef")
    ellipse(axes[1], q.mean[0], q.covariance, fill=False, ec="black", lw=1.2, ls="--")
    axes[1].plot([], [], color="black", lw=1.2, ls="--", label="one machine")
    axes[0].set_title("Each site alone")
    axes[1].set_title("All sites together: one posterior")
    for ax in axes:
        ax.plot(1.0, -0.7, "k+", ms=10, label="true coefficients")
        ax.set_xlabel("coefficient of column 0")
        ax.legend(frameon=False, fontsize=8, loc="upper right")
        ax.set(xlim=(0, 2.9), ylim=(-2.4, 0.9))
        tail(ax)
    axes[0].set_ylabel("coefficient of column 1")
    save(figure, "how_together.png")


def one_sweep() -> None:
    """What a node does in a sweep, as a diagram."""
    figure, ax = plt.subplots(figsize=(9.5, 2.9))
    boxes = {
        0.0: ("belief q", "the same bits\nat every node"),
        2.6: ("local step", "own rows and q\n-> statistics"),
        5.2: ("sum", "statistics of all nodes,\nover the network"),
        7.8: ("new belief q", "prior + sum"),
    }
    for at, (name, text) in boxes.items():
        own = at == 2.6
        ax.text(
            at,
            0,
            f"{name}\n\n{text}",
            ha="center",
            va="center",
            fontsize=10,
            linespacing=1.25,
            bbox={
                "boxstyle": "round,pad=0.6",
                "fc": "#E8F1F8" if own else "white",
                "ec": SITES[0] if own else "0.4",
                "lw": 1.6,
            },
        )
    for begin, end in ((0.78, 1.75), (3.4, 4.05), (6.35, 7.0)):
        ax.add_patch(
            FancyArrowPatch((begin, 0), (end, 0), arrowstyle="-|>", mutation_scale=14, color="0.3")
        )
    ax.add_patch(
        FancyArrowPatch(
            (7.8, -0.62),
            (0.0, -0.62),
            connectionstyle="arc3,rad=-0.16",
            arrowstyle="-|>",
            mutation_scale=14,
            color="0.3",
        )
    )
    ax.text(3.9, -1.62, "until q no longer changes", ha="center", fontsize=10)
    ax.text(2.6, 0.92, "rows never leave this step", ha="center", fontsize=10, color=SITES[0])
    ax.set(xlim=(-1.2, 9.0), ylim=(-1.85, 1.15))
    ax.axis("off")
    save(figure, "how_sweep.png")


def a_sum() -> None:
    """Which statistics each node of a chain knows after each round, by flood."""
    graph = nx.path_graph(5)
    distance = dict(nx.all_pairs_shortest_path_length(graph))
    rounds = nx.diameter(graph)
    figure, axes = plt.subplots(1, rounds + 1, figsize=(9.5, 2.5), sharey=True)
    for number, ax in enumerate(axes):
        for node in graph:
            known = [k for k in graph if distance[node][k] <= number]
            for k in graph:
                ax.barh(
                    -node,
                    0.9,
                    left=k,
                    height=0.72,
                    color=SITES[k] if k in known else "white",
                    ec="0.8",
                    lw=0.8,
                )
        ax.set_title(f"after round {number}" if number else "before", fontsize=10)
        ax.set(xticks=[], xlim=(-0.1, 5.0))
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
    axes[0].set_yticks([-node for node in graph], [f"node {node}" for node in graph])
    save(figure, "how_sum.png")


def the_same_sweeps() -> None:
    """The bound by sweep: one machine, and nodes on three graphs."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [3.2, 0.0], [0.0, 3.2]])
    rows = np.concatenate([c + rng.normal(size=(80, 2)) for c in centres])  # sorted by cluster
    settings: dict[str, Any] = {"random_state": 0, "n_init": 1}
    pooled = BayesianGaussianMixture(3, **settings).fit(rows)
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.4))
    graphs = {
        "ring of 6": Network.ring(6),
        "star of 6": Network.star(6),
        "chain of 6": Network.chain(6),
    }
    best = pooled.history_["objective"]
    limit = float(np.max(best))

    def gap(objective: np.ndarray) -> np.ndarray:
        return np.maximum(limit - np.asarray(objective), 1e-9)

    axes[0].semilogy(gap(best), color="0.75", lw=7, label="one machine")
    for k, (name, network) in enumerate(graphs.items()):
        nodes = BayesianGaussianMixture(3, network=network, **settings).fit(rows)
        objective = nodes.history_["objective"]  # nan before the first sum
        known = objective[np.isfinite(objective)]
        swept = known[np.append(True, np.diff(known) != 0)]
        axes[0].semilogy(gap(swept), color=SITES[k], lw=2.6 - 0.8 * k, label=name)
        axes[1].semilogy(gap(objective), color=SITES[k], lw=1.6, label=name)
    axes[0].set(xlabel="sweep", ylabel="distance of the bound from its limit")
    axes[0].set_title("The same sweeps on every graph", fontsize=11)
    axes[1].set(xlabel="message round")
    axes[1].set_title("More rounds where the graph is wider", fontsize=11)
    for ax in axes:
        ax.legend(frameon=False, fontsize=9)
        tail(ax)
    save(figure, "how_rounds.png")


if __name__ == "__main__":
    alone_and_together()
    one_sweep()
    a_sum()
    the_same_sweeps()
