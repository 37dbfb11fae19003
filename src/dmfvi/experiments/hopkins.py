"""Hopkins155, single objects: complete and 10 % missing at random (the paper's second table)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.experiments.base import (
    Experiment,
    Outcome,
    Params,
    ResultTable,
    Summary,
    select,
    values,
)
from dmfvi.experiments.protocol import data_files, tracks_case
from dmfvi.experiments.report import colour_of

SYSTEM_NAMES = ("PPCA", "D-PPCA", "BPCA", "D-BPCA")
RATE = 0.1
#: mean angles in the paper, 90 objects: D-PPCA, D-BPCA
PAPER = {"complete": (3.9523, 0.7975), "MAR": (13.4753, 6.4372)}
#: --quick takes every so many-th object
QUICK_STEP = 9


def cases(full: bool, data: Path | None) -> list[dict[str, Any]]:
    """Each object complete and with masks."""
    files = data_files(data, "hopkins", "*.mat")[:: 1 if full else QUICK_STEP]
    return [
        {"file": str(file), "object": file.stem, "kind": kind, "run": run}
        for kind in PAPER
        for file in files
        for run in range(5 if full and kind == "MAR" else 1)
    ]


def run(params: Params) -> dict[str, Any]:
    """All systems on one object."""
    return tracks_case(
        params["file"], params["kind"], RATE, "known", SYSTEM_NAMES, int(params["run"])
    )


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Means over objects."""
    figures: dict[str, float] = {}
    rows = []
    for kind, paper in PAPER.items():
        group = select(outcomes, kind=kind)
        cells = []
        for system in SYSTEM_NAMES:
            found = values(group, system)
            figures[f"{system}/{kind}/mean_angle"] = float(np.mean(found))
            figures[f"{system}/{kind}/median_angle"] = float(np.median(found))
            figures[f"{system}/{kind}/variance"] = float(np.var(found))
            figures[f"{system}/{kind}/converged"] = float(
                np.mean(values(group, f"{system} converged"))
            )
            cells.append(f"{np.mean(found):.4f}")
        apart = np.abs(np.subtract(values(group, "D-BPCA"), values(group, "BPCA")))
        figures[f"D-BPCA/{kind}/largest_difference_to_BPCA"] = float(apart.max())
        rows.append([kind, *(f"{p:.4f}" for p in paper), *cells, f"{apart.max():.4f}"])
    columns = (
        "missing",
        "paper D-PPCA",
        "paper D-BPCA",
        *SYSTEM_NAMES,
        "D-BPCA to BPCA, largest",
    )
    n_objects = len({o.params["object"] for o in outcomes})
    title = f"Mean angle (degrees), {n_objects} objects (paper: 90), worst node"
    return Summary(figures, [ResultTable(title, columns, rows)])


def draw(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """Part of the objects below each angle."""
    for ax, kind in zip(figure.subplots(1, 2), PAPER, strict=True):
        for style, system in zip(("-", "--", "-", "--"), SYSTEM_NAMES, strict=True):
            found = np.sort(np.maximum(values(select(outcomes, kind=kind), system), 1e-6))
            part = np.arange(1, len(found) + 1) / len(found)
            ax.step(found, part, style, where="post", color=colour_of(system), label=system, lw=1.3)
        for style, label, value in zip(
            (":", "-."), ("paper D-PPCA, mean", "paper D-BPCA, mean"), PAPER[kind], strict=True
        ):
            ax.axvline(value, color="0.4", ls=style, lw=1, label=label)
        title = "complete" if kind == "complete" else "10 % MAR"
        ax.set(title=title, xlabel="angle (degrees)", ylabel="part of the objects", xscale="log")
        ax.legend(frameon=False, fontsize=8)
        ax.spines[["top", "right"]].set_visible(False)


EXPERIMENT = Experiment(
    "hopkins",
    "Hopkins155 single objects",
    cases,
    run,
    summarise,
    draw,
    size=(11.0, 4.2),
    needs="hopkins",
)
