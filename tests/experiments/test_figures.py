"""Figures of experiments: labelled axes, one colour a system, bars from zero, runs and doubts in the picture."""

from __future__ import annotations

import matplotlib as mpl
import pytest

mpl.use("Agg")

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dmfvi.experiments.base import Outcome
from dmfvi.experiments.report import COLOURS, colour_of, note_runs


@pytest.mark.parametrize(
    ("label", "system"),
    [
        ("D-BPCA", "D-BPCA"),
        ("batch BPCA, one machine", "BPCA"),
        ("online D-BPCA, worst node", "D-BPCA"),
        ("D-BPCA affine", "D-BPCA affine"),
        ("paper D-PPCA, mean", "D-PPCA"),
    ],
)
def test_a_system_has_one_colour_under_every_label(label: str, system: str) -> None:
    assert colour_of(label) == COLOURS[system]


def test_systems_of_the_table_of_ratings_can_be_told_apart() -> None:
    systems = ["film-mean", "bias", "C-PPCA", "D-PPCA", "C-BPCA", "D-BPCA", "ratings"]
    assert len({colour_of(name) for name in systems}) == len(systems)
    assert colour_of("C-BPCA") == colour_of("BPCA")


def test_runs_and_those_that_have_not_converged_are_in_the_picture() -> None:
    figure = Figure()
    found = [{"D-PPCA converged": 0.0}, {"D-PPCA converged": 1.0}, {"converged": 0.0}]
    note_runs(figure, [Outcome({"system": "PPCA"}, each) for each in found])
    assert figure.get_supxlabel() == "3 runs; NOT converged: D-PPCA 1, PPCA 1"
    note_runs(figure, [Outcome({}, {"converged": 1.0})])
    assert figure.get_supxlabel() == "1 run"


def test_bars_start_at_zero() -> None:
    figure = Figure()
    found = {"BPCA rmse": 0.9, "BPCA coverage": 0.9}
    from dmfvi.experiments import netflix_table

    with pytest.MonkeyPatch.context() as patch:
        figures = {f"BPCA/set/{name}": value for name, value in (("rmse", 0.9), ("coverage", 0.9))}
        patch.setattr(
            netflix_table, "summarise", lambda outcomes: type("S", (), {"figures": figures})
        )
        netflix_table.draw(figure, [Outcome({}, found)])
    (ax,) = figure.axes
    assert ax.get_ylim()[0] == 0
    bars = [p for p in ax.patches if isinstance(p, Rectangle)]
    assert [bar.get_height() for bar in bars] == [0.9]
    assert ax.get_ylabel().endswith("(stars)")
