"""Figures of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.network import Network

BLUE, ORANGE, GREY, GREEN = "#33658a", "#e07a3f", "#8d99a6", "#4f9d69"
#: colours that people with any kind of colour vision can tell apart (Okabe & Ito 2008)
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def fit_figure(
    path: str | Path,
    network: Network,
    distances: Sequence[tuple[int, float]],
    disagreement: FloatArray,
    truth: FloatArray,
    predicted: FloatArray,
    deviation: FloatArray,
    level: float,
    coverage: float,
) -> Path:
    """Network, convergence to the pooled posterior, and predictive intervals, side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, width_ratios=[0.8, 1.2, 1.2])
    network.draw(left)
    _convergence(middle, distances, disagreement)
    _intervals(right, truth, predicted, deviation, level, coverage)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    return target


def _convergence(ax: Any, distances: Sequence[tuple[int, float]], disagreement: FloatArray) -> None:
    seen = np.asarray(disagreement) > 0.0
    if seen.any():
        rounds = np.arange(1, len(disagreement) + 1)[seen]
        ax.semilogy(
            rounds, disagreement[seen], color=GREY, lw=1, label="disagreement, as nodes see it"
        )
    else:
        ax.plot([], [], " ", label="all nodes hold the same bits")
    where, values = zip(*distances, strict=True)
    ax.semilogy(where, values, "o-", color=BLUE, ms=3, label="worst node to pooled posterior")
    ax.axhline(1e-6, color=ORANGE, ls="--", lw=1, label="1e-6")
    ax.set_xlabel("message round")
    ax.set_ylabel("relative distance")
    ax.set_title("Every node reaches the pooled posterior")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def _intervals(
    ax: Any,
    truth: FloatArray,
    predicted: FloatArray,
    deviation: FloatArray,
    level: float,
    coverage: float,
) -> None:
    from scipy.stats import norm

    half = norm.ppf(0.5 + 0.5 * level) * deviation
    order = np.argsort(predicted)
    shown = order[np.linspace(0, len(order) - 1, min(90, len(order))).astype(int)]
    position = np.arange(len(shown))
    ax.errorbar(
        position,
        predicted[shown],
        yerr=half[shown],
        fmt="none",
        ecolor=GREY,
        elinewidth=2,
        label=f"{level:.0%} interval",
    )
    inside = np.abs(truth - predicted) <= half
    good, bad = inside[shown], ~inside[shown]
    ax.plot(position[good], truth[shown][good], ".", color=GREEN, ms=5, label="true value, inside")
    ax.plot(position[bad], truth[shown][bad], "x", color=ORANGE, ms=5, label="true value, outside")
    ax.set_ylabel("value (data units)")
    ax.set_xlabel("missing entries of one node, by prediction (a selection)")
    ax.set_title(f"{level:.0%} intervals cover {coverage:.1%} of all missing entries")
    ax.legend(frameon=False, fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def plot_convergence(model: Any, ax: Any = None) -> Any:
    """Relative change of a sweep and disagreement of the nodes by message round, on a log axis."""
    history = model.history_
    axes = ax if ax is not None else _new_axes()
    rounds = np.asarray(history.get("round", np.arange(1, len(history["change"]) + 1)))
    for name, colour in (("change", BLUE), ("disagreement", ORANGE)):
        values = np.asarray(history[name], dtype=float)
        shown = np.isfinite(values) & (values > 0)
        if shown.any():
            axes.semilogy(rounds[shown], values[shown], color=colour, marker=".", label=name)
    if model.tol:
        axes.axhline(model.tol, color=GREY, linestyle=":", label="tol")
    end = "" if model.converged_ else ", NOT converged"
    nodes = int(getattr(model, "consensus_", {}).get("nodes", 1))
    axes.set(
        # ratings are recorded by sweep, and one machine sends no messages
        xlabel="message round" if "round" in history and nodes > 1 else "sweep",
        ylabel="relative change and disagreement",
        title=f"{type(model).__name__}{end}",
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    return axes


def plot_network(model: Any, ax: Any = None) -> Any:
    """The graph of nodes that a model was fitted on."""
    given = getattr(model, "network", None)
    graph = getattr(given, "network", given)
    if graph is None:
        raise ValueError(
            f"this {type(model).__name__} was fitted on one machine: give it a network=Network.ring(5), for example"
        )
    axes = ax if ax is not None else _new_axes()
    graph.draw(axes)
    return axes


def plot_components(model: Any, ax: Any = None, level: float = 0.9, n_shown: int = 4) -> Any:
    """Loadings of the strongest components with intervals, feature by feature."""
    from scipy.stats import norm

    axes = ax if ax is not None else _new_axes()
    loadings = np.asarray(model.components_)
    count, n_features = loadings.shape
    shown = min(count, n_shown)
    variances = np.diagonal(model.posterior_.covariance, axis1=1, axis2=2).T
    half = norm.ppf(0.5 + 0.5 * level) * np.sqrt(variances[:count])
    width = 0.7 / max(1, shown)
    for k in range(shown):
        axes.errorbar(
            np.arange(n_features) + (k - 0.5 * (shown - 1)) * width,
            loadings[k],
            yerr=half[k],
            fmt="o",
            markersize=3,
            color=PALETTE[k % len(PALETTE)],
            label=f"component {k + 1}",
        )
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    names = getattr(model, "feature_names_in_", None)
    if names is not None and n_features <= 30:
        axes.set_xticks(np.arange(n_features), [str(name) for name in names], rotation=90)
    left_out = f" (the {shown} strongest of {count})" if shown < count else ""
    axes.set(
        xlabel="feature",
        ylabel="loading (data units)",
        title=f"Components{left_out}, {level:.0%} intervals",
    )
    axes.legend(frameon=False)
    return axes


def plot_calibration(truth: FloatArray, interval: Any, ax: Any = None) -> Any:
    """Share of true values inside ``interval(level)`` against the level: on the diagonal where intervals hold."""
    axes = ax if ax is not None else _new_axes()
    levels = np.linspace(0.1, 0.95, 18)
    held = []
    for level in levels:
        low, high = interval(float(level))
        held.append(float(np.mean((truth >= low) & (truth <= high))))
    axes.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linestyle=":", label="as promised")
    axes.plot(levels, held, color=BLUE, marker=".", label="held")
    axes.set(
        xlim=(0.0, 1.0),
        ylim=(0.0, 1.0),
        xlabel="level of the interval",
        ylabel="share of true values inside",
        title=f"Calibration on {np.size(truth):,} values",
        aspect="equal",
    )
    axes.legend(frameon=False)
    return axes


def _new_axes() -> Any:
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]
