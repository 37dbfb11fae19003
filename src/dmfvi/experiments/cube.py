"""The rotating cube: noise, and missing points at random and by occlusion (the paper's section 4.2, figure 2a)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.datasets.cube import make_cube
from dmfvi.datasets.masks import mask_at_random
from dmfvi.experiments.base import (
    Experiment,
    Outcome,
    Params,
    ResultTable,
    Summary,
    distinct,
    select,
    values,
)
from dmfvi.experiments.protocol import angles
from dmfvi.experiments.report import box_groups

NOISE_SYSTEMS = ("SVD", "PPCA", "D-PPCA", "BPCA", "D-BPCA")
MISSING_SYSTEMS = ("PPCA", "D-PPCA", "BPCA", "D-BPCA", "D-BPCA affine")
FULL_NOISE = tuple(round(0.01 * k, 2) for k in range(1, 11))
QUICK_NOISE = (0.01, 0.05, 0.1)
MISSING_NOISE, MAR_RATE = 0.01, 0.2
#: mean angles of D-PPCA and D-BPCA in the paper
PAPER = {"MAR": ("1.41", "1.01"), "MNAR": ("17.66", "14.12")}


def cases(full: bool, data: Path | None) -> list[dict[str, Any]]:
    """Noise levels with complete tracks, then masks with centroids known and seen."""
    noise = [
        {"kind": "complete", "noise": level, "centre": "known", "run": run}
        for level in (FULL_NOISE if full else QUICK_NOISE)
        for run in range(20 if full else 2)
    ]
    masks = [
        {"kind": kind, "noise": MISSING_NOISE, "centre": centre, "run": run}
        for kind in ("MAR", "MNAR")
        for centre in ("known", "seen")
        for run in range(10 if full else 2)
    ]
    return noise + masks


def run(params: Params) -> dict[str, Any]:
    """One cube, one mask, all systems."""
    seed = int(params["run"])
    cube = make_cube(noise=params["noise"], seed=seed)
    complete = np.concatenate(cube.cameras)
    if params["kind"] == "complete":
        return angles(complete, complete, cube.structure, "known", NOISE_SYSTEMS, seed)
    hidden = np.concatenate(cube.hidden)
    if params["kind"] == "MAR":
        hidden = mask_at_random(complete, MAR_RATE, seed=seed)
    return angles(complete, hidden, cube.structure, params["centre"], MISSING_SYSTEMS, seed)


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Mean angles by noise level and by mask."""
    figures: dict[str, float] = {}
    rows = []
    for noise in distinct(select(outcomes, kind="complete"), "noise"):
        group = select(outcomes, kind="complete", noise=noise)
        means = {name: float(np.mean(values(group, name))) for name in NOISE_SYSTEMS}
        figures |= {f"{name}/noise {noise:g}/mean_angle": m for name, m in means.items()}
        rows.append([f"{noise:.0%}", *(f"{m:.3f}" for m in means.values())])
    tables = [ResultTable("Angle (degrees) by noise, complete", ("noise", *NOISE_SYSTEMS), rows)]
    rows = []
    for kind, (paper_ppca, paper_bpca) in PAPER.items():
        for centre in ("known", "seen"):
            group = select(outcomes, kind=kind, centre=centre)
            cells = []
            for name in MISSING_SYSTEMS:
                found = values(group, name)
                figures[f"{name}/{kind}, centroids {centre}/mean_angle"] = float(np.mean(found))
                figures[f"{name}/{kind}, centroids {centre}/worst_angle"] = float(np.max(found))
                cells.append(f"{np.mean(found):.3f}")
            label = "20 % MAR" if kind == "MAR" else "MNAR, occluded"
            rows.append([label, centre, paper_ppca, paper_bpca, *cells])
    columns = ("missing", "centroids", "paper D-PPCA", "paper D-BPCA", *MISSING_SYSTEMS)
    tables.append(ResultTable("Angle (degrees), 1 % noise, worst node", columns, rows))
    return Summary(figures, tables)


def draw(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """Box plots of the angle against noise; bars for the masks."""
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1.0])
    complete = select(outcomes, kind="complete")
    levels = distinct(complete, "noise")
    box_groups(
        left,
        [f"{100 * level:g}" for level in levels],
        {n: [values(select(complete, noise=v), n) for v in levels] for n in NOISE_SYSTEMS},
    )
    left.set(
        xlabel="noise (% of the cube's edge)", ylabel="subspace angle (degrees)", title="Complete"
    )
    labels = [(kind, centre) for kind in PAPER for centre in ("known", "seen")]
    box_groups(
        right,
        [f"{kind}\ncentroids {centre}" for kind, centre in labels],
        {
            n: [values(select(outcomes, kind=k, centre=c), n) for k, c in labels]
            for n in MISSING_SYSTEMS
        },
    )
    right.set(title="1 % noise, points missing", ylabel="subspace angle (degrees)", yscale="log")


EXPERIMENT = Experiment(
    "cube", "Rotating cube: noise and missing points", cases, run, summarise, draw, size=(13.0, 4.8)
)
