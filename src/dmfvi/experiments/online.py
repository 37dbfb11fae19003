"""Online learning on the cube: ten frames a camera, then five more at each step (the paper's figure 2b)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.datasets.cube import make_cube
from dmfvi.experiments.base import Experiment, Outcome, Params, ResultTable, Summary, values
from dmfvi.experiments.protocol import RANK, cameras_on_a_ring
from dmfvi.experiments.report import box_groups
from dmfvi.experiments.systems import Fitted
from dmfvi.linalg import FloatArray
from dmfvi.models.pca.estimator import BayesianPCA

FIRST, STEP, LAST = 10, 5, 50
FRAMES = tuple(range(FIRST, LAST + 1, STEP))
NOISE = 0.01


def cases(full: bool, data: Path | None) -> list[dict[str, Any]]:
    """One stream a run."""
    return [{"run": run} for run in range(10 if full else 3)]


def run(params: Params) -> dict[str, Any]:
    """After every step: the online posterior over the network against the batch fit on all frames so far."""
    seed = int(params["run"])
    cube = make_cube(noise=NOISE, seed=seed)
    rows = [camera - camera.mean(1, keepdims=True) for camera in cube.cameras]
    stream = BayesianPCA(RANK, network=cameras_on_a_ring(), fit_mean=False, random_state=seed)
    found: dict[str, Any] = {}
    before = 0
    for frames in FRAMES:
        stream.partial_fit([camera[2 * before : 2 * frames] for camera in rows])
        so_far = np.concatenate([camera[: 2 * frames] for camera in rows])
        batch = BayesianPCA(RANK, fit_mean=False, random_state=seed).fit(so_far)
        found[f"online {frames}"] = _angle(stream, cube.structure)
        found[f"batch {frames}"] = _angle(batch, cube.structure)
        before = frames
    return found


def _angle(model: BayesianPCA, truth: FloatArray) -> float:
    loadings = [p.loadings for p in model.node_posteriors_]
    return Fitted(loadings, model.n_rounds_, model.converged_).angle(truth)


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Mean angles at every step, and the largest difference of any run."""
    figures: dict[str, float] = {}
    rows = []
    for frames in FRAMES:
        online = np.array(values(outcomes, f"online {frames}"))
        batch = np.array(values(outcomes, f"batch {frames}"))
        apart = float(np.abs(online - batch).max())
        relative = float((np.abs(online - batch) / batch).max())
        figures[f"D-BPCA online/{frames} frames/mean_angle"] = float(online.mean())
        figures[f"BPCA batch/{frames} frames/mean_angle"] = float(batch.mean())
        figures[f"D-BPCA online/{frames} frames/largest_difference_degrees"] = apart
        figures[f"D-BPCA online/{frames} frames/largest_relative_difference"] = relative
        rows.append(
            [
                str(frames),
                f"{online.mean():.4f}",
                f"{batch.mean():.4f}",
                f"{apart:.4f}",
                f"{relative:.2%}",
            ]
        )
    columns = ("frames", "online D-BPCA", "batch BPCA", "apart, at most", "relative")
    return Summary(
        figures,
        [
            ResultTable(
                "Angle (degrees), worst node; the paper: online closely follows centralized",
                columns,
                rows,
            )
        ],
    )


def draw(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """Box plots over runs at every step."""
    ax = figure.subplots()
    box_groups(
        ax,
        [str(frames) for frames in FRAMES],
        {
            "batch BPCA, one machine": [values(outcomes, f"batch {f}") for f in FRAMES],
            "online D-BPCA, worst node": [values(outcomes, f"online {f}") for f in FRAMES],
        },
    )
    ax.set(xlabel="frames a camera", ylabel="subspace angle (degrees)", title="Learning online")


EXPERIMENT = Experiment("online", "Learning online on the cube", cases, run, summarise, draw)
