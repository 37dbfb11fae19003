"""Figures of experiments: box plots in groups, PNG and SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.experiments.base import Outcome
from dmfvi.storage.files import replacing

#: one colour a system, in all figures
COLOURS = {
    "SVD": "#8d99a6",
    "PPCA": "#e8c07a",
    "D-PPCA": "#e07a3f",
    "BPCA": "#7fb3d5",
    "D-BPCA": "#33658a",
    "D-BPCA affine": "#4f9d69",
    "film-mean": "#c9c9c9",
    "bias": "#6b705c",
    "ratings": "#a05195",
}
#: the systems on one machine, as the paper's table of ratings calls them
COLOURS |= {"C-PPCA": COLOURS["PPCA"], "C-BPCA": COLOURS["BPCA"]}
OTHER_COLOURS = ("#a05195", "#d45087", "#665191", "#2f4b7c", "#b5838d", "#6b705c")


def colour_of(label: str) -> str:
    """The colour of the system that a label names: the longest name in it; other labels have colours of their own."""
    named = [name for name in COLOURS if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", label)]
    if named:
        return COLOURS[max(named, key=len)]
    return OTHER_COLOURS[sum(label.encode()) % len(OTHER_COLOURS)]


def note_runs(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """Below the figure: how many runs it shows, and which systems had not converged in how many."""
    late: dict[str, int] = {}
    for outcome in outcomes:
        for key, value in outcome.found.items():
            if (key == "converged" or key.endswith(" converged")) and not value:
                who = key.removesuffix("converged").strip() or str(outcome.params.get("system", ""))
                late[who] = late.get(who, 0) + 1
    words = f"{len(outcomes)} {'run' if len(outcomes) == 1 else 'runs'}"
    if late:
        words += "; NOT converged: " + ", ".join(f"{who} {n}".strip() for who, n in late.items())
    figure.supxlabel(words, fontsize=8, color="0.3")


def box_groups(
    ax: Any, labels: Sequence[str], series: Mapping[str, Sequence[Sequence[float]]]
) -> None:
    """One box per label and series; crosses are outliers."""
    width = 0.8 / len(series)
    for position, (name, samples) in enumerate(series.items()):
        colour = colour_of(name)
        where = np.arange(len(labels)) + (position - 0.5 * (len(series) - 1)) * width
        kept = [(x, sample) for x, sample in zip(where, samples, strict=True) if len(sample)]
        if kept:
            ax.boxplot(
                [sample for _, sample in kept],
                positions=[x for x, _ in kept],
                widths=0.85 * width,
                patch_artist=True,
                manage_ticks=False,
                flierprops={"marker": "x", "markersize": 4, "markeredgecolor": colour},
                boxprops={"facecolor": colour, "edgecolor": "0.3", "linewidth": 0.7},
                medianprops={"color": "black", "linewidth": 1},
                whiskerprops={"linewidth": 0.7},
                capprops={"linewidth": 0.7},
            )
        ax.plot([], [], "s", color=colour, label=name)
    ax.set_xticks(np.arange(len(labels)), labels)
    ax.legend(fontsize=8, framealpha=0.9, edgecolor="none")
    ax.spines[["top", "right"]].set_visible(False)


def save_figure(
    folder: Path, name: str, size: tuple[float, float], draw: Callable[[Any], None]
) -> list[Path]:
    """Draw once, write ``name.png`` and ``name.svg``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path in paths:
        with replacing(path) as file:
            figure.savefig(file, dpi=140, format=path.suffix[1:])
    return paths
