"""Figures of experiments: box plots in groups, PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = ("#8d99a6", "#e0a13f", "#e07a3f", "#7fb3d5", "#33658a", "#4f9d69")


def box_groups(
    ax: Any, labels: Sequence[str], series: Mapping[str, Sequence[Sequence[float]]]
) -> None:
    """One box per label and series; crosses are outliers."""
    width = 0.8 / len(series)
    for place, (samples, colour) in enumerate(zip(series.values(), COLOURS, strict=False)):
        where = np.arange(len(labels)) + (place - 0.5 * (len(series) - 1)) * width
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
    ax.set_xticks(np.arange(len(labels)), labels)
    for name, colour in zip(series, COLOURS, strict=False):
        ax.plot([], [], "s", color=colour, label=name)
    ax.legend(frameon=False, fontsize=8)
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
        figure.savefig(path, dpi=140)
    return paths
