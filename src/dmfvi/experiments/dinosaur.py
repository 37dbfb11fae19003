"""The Oxford dinosaur, 77 % missing by real occlusion: points held out from those seen, rank 4. Not in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.experiments.base import Experiment, Outcome, Params, ResultTable, Summary, values
from dmfvi.experiments.protocol import by_camera, cameras_on_a_ring, data_files
from dmfvi.experiments.report import colour_of
from dmfvi.experiments.systems import estimator, fit_quietly
from dmfvi.linalg import FloatArray
from dmfvi.models.sfm.estimator import StructureFromMotion
from dmfvi.models.sfm.geometry import row_centres
from dmfvi.readers.tracks import read_tracks

RANK, HELD_OUT = 4, 0.1
SYSTEM_NAMES = ("BPCA", "D-BPCA", "D-BPCA affine")
#: the bound still rises slowly after this many; so many sweeps for each
ROUNDS = {"BPCA": 1500, "D-BPCA": 3000, "D-BPCA affine": 3000}


def cases(full: bool, data: Path | None) -> list[dict[str, Any]]:
    """Different points held out in each run."""
    file = data_files(data, "sfm", "dino*.mat")[0]
    return [
        {"file": str(file), "run": run, "system": system}
        for run in range(10 if full else 1)
        for system in SYSTEM_NAMES
    ]


def run(params: Params) -> dict[str, Any]:
    """Hide a tenth of what is seen (x and y together), fit, predict it."""
    seed = int(params["run"])
    tracks = read_tracks(params["file"]).data
    rng = np.random.default_rng(seed)
    seen = np.isfinite(tracks[0::2])
    hide = np.repeat(seen & (rng.random(seen.shape) < HELD_OUT), 2, axis=0)
    data = np.where(hide, np.nan, tracks)
    mean, deviation, model = _predict(params["system"], data, seed)
    error, deviation = (mean - tracks)[hide], deviation[hide]
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "median_error": float(np.median(np.abs(error))),
        "coverage_90": float(np.mean(np.abs(error) < 1.6449 * deviation)),
        "held_out": int(hide.sum()),
        "rounds": int(model.n_iter_),
        "converged": float(model.converged_),
    }


def _predict(system: str, data: FloatArray, seed: int) -> tuple[FloatArray, FloatArray, Any]:
    """Mean and deviation of every coordinate: four free factors, or three and a camera's offset."""
    network = cameras_on_a_ring()
    if system == "D-BPCA affine":
        affine = StructureFromMotion(
            network=network, metric=None, random_state=seed, max_iter=ROUNDS[system]
        )
        fit_quietly(affine, by_camera(data))
        mean, deviation = affine.reconstruct(return_std=True)
        return mean, deviation, affine
    middle = row_centres(data)
    model = estimator(system, RANK, network, seed, fit_mean=False)
    model.max_iter = ROUNDS[system]
    fit_quietly(model, by_camera(data - middle))
    mean, variance = model.posterior_.predict(data - middle)
    return mean + middle, np.sqrt(variance), model


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Means over runs."""
    figures: dict[str, float] = {}
    rows = []
    for system in SYSTEM_NAMES:
        group = [o for o in outcomes if o.params["system"] == system]
        names = ("rmse", "median_error", "coverage_90", "rounds", "converged")
        means = {name: float(np.mean(values(group, name))) for name in names}
        figures |= {f"{system}/held out/{name}": value for name, value in means.items()}
        rows.append(
            [
                system,
                f"{means['rmse']:.3f}",
                f"{means['median_error']:.3f}",
                f"{means['coverage_90']:.1%}",
                f"{means['rounds']:.0f}",
            ]
        )
    columns = ("system", "RMSE (pixels)", "median error", "90 % intervals cover", "rounds")
    return Summary(
        figures,
        [ResultTable("A tenth of the seen points held out (free factors: rank 4)", columns, rows)],
    )


def draw(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """RMSE and median error of every run."""
    ax = figure.subplots()
    for shift, system in enumerate(SYSTEM_NAMES):
        group = [o for o in outcomes if o.params["system"] == system]
        runs = [o.params["run"] + 0.12 * shift for o in group]
        ax.plot(runs, values(group, "rmse"), "o", color=colour_of(system), label=f"{system}, RMSE")
        ax.plot(
            runs,
            values(group, "median_error"),
            "x",
            color=colour_of(system),
            label=f"{system}, median",
        )
    ax.set(xlabel="run", ylabel="error of held-out coordinates (pixels)", ylim=(0, None))
    ax.set_title("Dinosaur, a tenth of the seen points held out")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)


EXPERIMENT = Experiment(
    "dinosaur",
    "Oxford dinosaur: held-out points",
    cases,
    run,
    summarise,
    draw,
    size=(8.0, 4.2),
    needs="sfm",
)
