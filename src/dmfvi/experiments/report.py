"""Figures of experiments: box plots in groups, PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.storage.files import replacing

#: one colour a system, in all figures
COLOURS = {
    "SVD": "#8d99a6",
    "PPCA": "#e8c07a",
    "D-PPCA": "#e07a3f",
    "BPCA": "#7fb3d5",
    "D-BPCA": "#33658a",
    "D-BPCA affine": "#4f9d69",
}
OTHER_COLOURS = ("#7fb3d5", "#33658a", "#8d99a6")


def box_groups(
    ax: Any, labels: Sequence[str], series: Mapping[str, Sequence[Sequence[float]]]
) -> None:
    """One box per label and series; crosses are outliers."""
    width = 0.8 / len(series)
    for place, (name, samples) in enumerate(series.items()):
        colour = COLOURS.get(name, OTHER_COLOURS[place % len(OTHER_COLOURS)])
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
