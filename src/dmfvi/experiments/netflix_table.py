"""The Netflix table as an experiment: one case a data set, real files or generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.experiments import netflix
from dmfvi.experiments.base import Experiment, Outcome, Params, ResultTable, Summary
from dmfvi.experiments.report import colour_of

QUICK_SIZES = (1_000_000,)
#: what the files of the Netflix Prize are called
PATTERNS = ("combined_data_*.txt", "mv_*.txt", "training_set/mv_*.txt")


def cases(full: bool, data: Path | None) -> list[dict[str, Any]]:
    """The real files if ``data`` or ``data/netflix`` has them, else generated sets."""
    for folder in (data / "netflix", data) if data is not None else ():
        if any(next(folder.glob(pattern), None) for pattern in PATTERNS):
            return [{"files": str(folder), "run": 0}]
    return [{"size": size, "run": 0} for size in (netflix.SIZES if full else QUICK_SIZES)]


def run(params: Params) -> dict[str, Any]:
    """All systems on one data set."""
    if "files" in params:
        return netflix.run(Path(params["files"]), seed=int(params["run"]))
    return netflix.run(None, [int(params["size"])], int(params["run"]))


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """RMSE and coverage of every system on every set."""
    figures = {
        name.removeprefix("netflix/"): float(value)
        for outcome in outcomes
        for name, value in outcome.found.items()
    }
    rows = []
    for case in _cases(figures):
        for system in _systems(figures):
            rmse = figures[f"{system}/{case}/rmse"]
            cover = figures[f"{system}/{case}/coverage"]
            paper = netflix.PAPER.get(system)
            rows.append(
                [
                    case,
                    system,
                    "" if paper is None else f"{paper:.4f}",
                    f"{rmse:.4f}",
                    "" if np.isnan(cover) else f"{cover:.1%}",
                ]
            )
    columns = ("ratings", "system", "paper (its probe set)", "RMSE", "90 % intervals cover")
    title = "Held-out ratings, 12 components, 10 nodes"
    return Summary(figures, [ResultTable(title, columns, rows)])


def draw(figure: Any, outcomes: Sequence[Outcome]) -> None:
    """RMSE of every system, one group a data set."""
    figures = summarise(outcomes).figures
    ax = figure.subplots()
    names, systems = _cases(figures), _systems(figures)
    width = 0.8 / len(systems)
    for position, system in enumerate(systems):
        heights = [figures[f"{system}/{name}/rmse"] for name in names]
        ax.bar(
            np.arange(len(names)) + (position - len(systems) / 2 + 0.5) * width,
            heights,
            width,
            label=system,
            color=colour_of(system),
        )
    ax.set_xticks(np.arange(len(names)), names)
    ax.set(ylabel="RMSE of held-out ratings (stars)", ylim=(0, None))
    ax.legend(frameon=False, fontsize=8, ncols=2)
    ax.spines[["top", "right"]].set_visible(False)


def _cases(figures: dict[str, float]) -> list[str]:
    return list(dict.fromkeys(key.split("/")[1] for key in figures))


def _systems(figures: dict[str, float]) -> list[str]:
    return list(dict.fromkeys(key.split("/")[0] for key in figures))


EXPERIMENT = Experiment(
    "netflix", "Rating matrices: the Netflix table", cases, run, summarise, draw, size=(9.0, 4.5)
)
