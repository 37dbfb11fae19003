"""summary(): one table of estimates with intervals for every model that has named quantities."""

from __future__ import annotations

import itertools
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi import BayesianGaussianMixture, BayesianPCA, CategoricalHMM, GaussianHMM, Network
from dmfvi.parameters import MOST_ENTRIES
from dmfvi.summary_table import Row, SummaryTable

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(90, 1)) @ RNG.normal(size=(1, 3)) + 0.3 * RNG.normal(size=(90, 3))
TWO = np.concatenate([RNG.normal(size=(50, 2)), RNG.normal(size=(40, 2)) + 6.0])
SYMBOLS = np.repeat([0, 1, 2], 30)[:, None]
FITS: dict[str, Any] = {
    "pca": lambda **k: BayesianPCA(1, random_state=0, **k).fit(
        pd.DataFrame(ROWS, columns=[*"abc"])
    ),
    "mixture": lambda **k: BayesianGaussianMixture(2, random_state=0, **k).fit(TWO),
    "gaussian chain": lambda **k: GaussianHMM(2, random_state=0, **k).fit(TWO),
    "categorical chain": lambda **k: CategoricalHMM(2, random_state=0, **k).fit(SYMBOLS),
}
TERMS = {
    "pca": ["location a", "location b", "location c", "noise variance"],
    "mixture": ["weights 0", "weights 1", "means 0 x0", "means 0 x1", "means 1 x0", "means 1 x1"],
    "gaussian chain": ["transitions 0 -> 0", "transitions 0 -> 1", "means 1 x1"],
    "categorical chain": ["transitions 1 -> 0", "emissions 0 0", "emissions 1 2"],
}


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    model = FITS["pca"]()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"a frame needs pandas: pip install -e '.\[pandas\]'"):
        model.summary_frame()


def test_the_table_fits_a_terminal() -> None:
    """Eighty columns: with less space between columns, then with long terms on lines of their own."""
    odds = (1.2345e-05, 1.2345e-06, 1.2345e-04)
    for length in (5, 20, 21, 40, 70):
        rows = [Row(n * length, -0.01234, 0.01234, -0.1234, -0.001234, *odds) for n in ("a", "b")]
        table = SummaryTable("t", [], 0.9, "odds ratio", rows).text()
        assert max(map(len, table.splitlines())) <= 80
        assert "a" * length in table
        assert table.count("-0.0123  0.0123" if length == 5 else "-0.0123 0.0123") == 2


def cells_of(*rows: tuple[float | None, ...], ratio: str = "") -> list[list[str]]:
    made = [Row(f"t{n}", *row, *([None] * (7 - len(row)))) for n, row in enumerate(rows)]
    return SummaryTable("t", [], 0.9, ratio, made).cells()


def test_a_column_has_one_number_of_decimals() -> None:
    found = cells_of((0.026, 0.0123, 0.00576, 0.0462), (-3.5, 1.0, -5.145, -1.855))
    assert found[1] == ["t0", "0.0260", "0.0123", "0.0058", "0.0462"]
    assert found[2] == ["t1", "-3.5000", "1.0000", "-5.1450", "-1.8550"]


def test_rows_of_very_different_size_have_digits_of_their_own() -> None:
    nan = float("nan")
    found = cells_of(
        (1234.5, 123.4, 1000.0, 1500.0),
        (1.5e-3, 1.5e-4, 1e-3, 2e-3),
        (2.5e-9, 1.5e-9, 1e-9, 4e-9),
        (4.0, nan, nan, nan),
        (123456789012.0, 2.0, 0.0, float("inf")),
    )
    assert found[1:] == [
        ["t0", "1234", "123", "1000", "1500"],
        ["t1", "0.001500", "0.000150", "0.001000", "0.002000"],
        ["t2", "2.5e-09", "1.5e-09", "1e-09", "4e-09"],
        ["t3", "4.000", "", "", ""],
        ["t4", "123456789012", "2.00", "0.00", "inf"],
    ]


def test_a_limit_beside_zero_is_not_zero() -> None:
    assert cells_of((0.2, 0.12, 0.00024, 0.4))[1][3] == "0.0002"
    assert cells_of((-0.2, 0.12, -0.4, -0.00024))[1][4] == "-0.0002"
    assert cells_of((0.2, 0.12, 0.0, 0.4))[1][3] == "0.000"


@pytest.mark.parametrize("gap", [0.3, 0.04, 0.0024, 0.00024, 9.6e-5, 2e-6])
@pytest.mark.parametrize("other", [0.5, 20.0, 1e4, 1e-5, 1e-12])
def test_a_ratio_beside_one_is_not_one(gap: float, other: float) -> None:
    for lower in (1.0 + gap, 1.0 - gap):
        row = (1.0, 0.5, 0.2, 1.8, 2.7, lower, 5.1)
        found = cells_of(row, (1.0, 0.5, 0.2, 1.8, other, other / 2, other * 2), ratio="odds ratio")
        assert (float(found[1][6]) > 1) == (lower > 1)
        assert (float(found[1][6]) < 1) == (lower < 1)
        alone = cells_of((*row[:4], other, lower, 5.1), ratio="odds ratio")[1][6]
        assert (float(alone) > 1, float(alone) < 1) == (lower > 1, lower < 1)


@pytest.mark.parametrize(
    ("ratio", "short"),
    [
        ("odds ratio", "OR"),
        ("hazard ratio", "HR"),
        ("rate ratio", "RR"),
        ("ratio of means", "ratio"),
    ],
)
def test_columns_of_ratios_have_names_of_their_own(ratio: str, short: str) -> None:
    head = cells_of((1.0, 0.5, 0.2, 1.8, 2.7, 1.2, 6.0), ratio=ratio)[0]
    assert head[3:] == ["lower", "upper", ratio, f"{short} lower", f"{short} upper"]


@pytest.mark.parametrize("name", FITS)
def test_the_table_has_the_numbers_of_uncertainty(name: str) -> None:
    model = FITS[name]()
    frame = model.summary_frame(level=0.5)
    assert set(TERMS[name]) <= set(frame.index)
    for quantity in model._summarised:
        found = model.uncertainty(quantity, level=0.5)
        rows = frame[frame.index.str.startswith(quantity)]
        np.testing.assert_array_equal(rows["estimate"], found.mean.ravel())
        np.testing.assert_array_equal(rows["sd"], found.std.ravel())
        for column, end in zip(("lower", "upper"), found.interval, strict=True):
            np.testing.assert_array_equal(rows[column], end.ravel())
    text = model.summary()
    assert "90 % intervals" in text
    assert "deviations by linear response" in text
    assert "converged" in text
    assert TERMS[name][0] in unescape(model.summary_html())


def test_nodes_have_the_table_of_one_machine() -> None:
    one, many = (
        FITS["pca"](network=network).summary_frame() for network in (None, Network.ring(3))
    )
    np.testing.assert_allclose(many, one, rtol=1e-6)


def test_a_quantity_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FITS["pca"]()
    first = model.uncertainty("location", level=0.9)
    monkeypatch.setattr("dmfvi.uncertainty.linear_response", None)
    again = model.uncertainty("location", level=0.5)
    np.testing.assert_array_equal(again.std, first.std)
    assert (again.interval[1] < first.interval[1]).all()
    with pytest.raises(TypeError):  # another fit finds its own
        model.fit(ROWS).uncertainty("location")


def test_a_notebook_shows_tables_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Showing a model does not start a computation."""
    monkeypatch.setattr("dmfvi.uncertainty.linear_response", None)
    assert "1 node," in FITS["pca"]()._repr_html_()
    linear = dmfvi.BayesianLinearRegression().fit(ROWS[:, :2], ROWS[:, 2])
    assert "estimate" in linear._repr_html_()


def test_what_is_given_and_what_is_long_has_no_rows() -> None:
    rng = np.random.default_rng(0)
    fixed = BayesianPCA(1, fit_mean=False, random_state=0).fit(ROWS - ROWS.mean(0))
    assert list(fixed.summary_frame().index) == ["noise variance"]
    wide = BayesianPCA(1, random_state=0).fit(rng.normal(size=(80, MOST_ENTRIES + 1)))
    assert list(wide.summary_frame().index) == ["noise variance"]
    assert "location: 61 numbers, see uncertainty('location')" in wide.summary()


def test_rows_are_counted_when_they_have_been_fitted() -> None:
    model = FITS["pca"]()
    assert model.n_samples_ == 90
    with (
        pytest.warns(UserWarning, match="does not have valid feature names"),
        pytest.raises(ValueError, match="features"),
    ):
        model.partial_fit(ROWS[:, :2])
    assert model.n_samples_ == 90
    assert model.partial_fit(pd.DataFrame(ROWS, columns=[*"abc"])).n_samples_ == 180
    assert model.fit(ROWS[:50]).n_samples_ == 50


def test_a_short_table_of_a_large_posterior_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the parameters that a quantity depends on are varied: here weights, and not 40 x 40 covariances."""
    rng = np.random.default_rng(0)
    wide = np.concatenate([rng.normal(size=(60, 40)), rng.normal(size=(60, 40)) + 3.0])
    model = BayesianGaussianMixture(2, random_state=0).fit(wide)
    seen = []
    shown = type(model)._seen_with
    monkeypatch.setattr(
        type(model), "_seen_with", lambda self, belief: (seen.append(1), shown(self, belief))[1]
    )
    assert [*model.summary_frame().index] == ["weights 0", "weights 1"]
    assert len(seen) < 60


def test_components_that_overlap_are_named_below_the_table() -> None:
    rng = np.random.default_rng(0)
    close = np.concatenate([rng.normal(size=(60, 1)), rng.normal(size=(60, 1)) + 2.0])
    model = BayesianGaussianMixture(2, random_state=0).fit(close)
    assert "overlap" in model.summary()


def test_a_file_keeps_the_table_that_was_asked_for(tmp_path: Path) -> None:
    model = FITS["pca"]()
    frame = model.summary_frame(level=0.8)
    dmfvi.save(model, tmp_path / "model.npz")
    assert (tmp_path / "model.npz").stat().st_size < 20_000
    loaded = dmfvi.load(tmp_path / "model.npz")
    pd.testing.assert_frame_equal(loaded.summary_frame(level=0.8), frame)
    assert "location a" in loaded.summary()
    assert "location a" in loaded.at_node(0).summary()
    with pytest.raises(ValueError, match="loaded from a file"):
        loaded.uncertainty("covariance")
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        loaded.partial_fit(ROWS)  # what was kept belongs to another posterior
    assert "location a" not in loaded.summary()


def test_the_shell_keeps_it(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "rows.csv", ROWS, delimiter=",", header="a,b,c", comments="")
    command = ("fit", tmp_path / "rows.csv", "--components", 1, "--out", tmp_path / "model")
    assert dmfvi_command(*command).code == 0
    assert "location a" in dmfvi_command("show", tmp_path / "model").out


def test_a_model_from_a_file_says_how_the_fit_went(tmp_path: Path) -> None:
    dmfvi.save(FITS["pca"](), tmp_path / "model.npz")
    loaded = dmfvi.load(tmp_path / "model.npz")
    assert "location" not in loaded.summary()
    assert "1 node," in loaded.summary()
    with pytest.raises(ValueError, match="loaded from a file"):
        loaded.summary_frame()


def test_models_without_one_say_so() -> None:
    with pytest.raises(ValueError, match="a PPCA has no table of parameters"):
        dmfvi.PPCA(1, random_state=0).fit(ROWS).summary_frame()


def test_a_forest_of_any_table_is_drawn() -> None:
    """Quantities have Axes of their own; all of them are on the Axes that is given."""
    model = FITS["mixture"]()
    weights, means = model.plot_forest()
    assert terms_on(weights) == TERMS["mixture"][:2]
    assert terms_on(means) == TERMS["mixture"][2:]
    assert terms_on(model.plot_forest(ax=weights)) == TERMS["mixture"]


def terms_on(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()][::-1]


def forest(*rows: tuple[str, float, float], ratio: str = "odds ratio", **more: Any) -> Any:
    made = [
        Row(term, middle, reach, middle - reach, middle + reach, *np.exp([middle] * 3))
        for term, middle, reach in rows
    ]
    axes = SummaryTable("t", [], 0.9, ratio, made).plot(**more)
    axes.figure.canvas.draw()
    return axes


def test_the_intercept_is_no_ratio_of_a_forest_plot() -> None:
    rows = [("age", 0.1, 0.05), ("Intercept", -8.0, 2.0)]
    assert terms_on(forest(*rows)) == ["age"]
    assert terms_on(forest(*rows, intercept=True)) == ["age", "Intercept"]
    assert terms_on(forest(*rows, ratio="")) == ["age", "Intercept"]
    classes = [("yes: age", 0.1, 0.05), ("yes: Intercept", -8.0, 2.0)]
    assert terms_on(forest(*classes, ratio="", intercept=False)) == ["yes: age"]


@pytest.mark.parametrize("reach", [0.004, 0.1, 0.4, 1.0, 2.5, 6.0, 12.0])
def test_ticks_of_ratios_are_written_out_and_apart(reach: float) -> None:
    axes = forest(("age", 0.1, reach), ("dose", -0.1 * reach, reach))
    low, high = axes.get_xlim()
    ticks = [
        label
        for label, at in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True)
        if low <= at <= high
    ]
    assert len(ticks) >= 2
    assert any(label.get_text() == "1" for label in ticks)
    assert not any("$" in label.get_text() for label in [*ticks, *axes.get_xticklabels(minor=True)])
    ends = [label.get_window_extent() for label in ticks]
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(ends))


def test_points_of_a_forest_plot_are_off_the_frame() -> None:
    axes = forest(("age", 0.1, 0.1), ("dose", 0.2, 0.1))
    low, high = axes.get_ylim()
    assert (low, high) == pytest.approx((-0.6, 1.6))


def test_numbers_of_the_html_table_are_on_the_right_in_the_colours_of_the_page() -> None:
    row = Row("<age>", 1.0, 0.5, 0.2, 1.8, 2.7, 1.2, 6.0)
    table = SummaryTable("Cox & more", [("n", "9")], 0.8, "hazard ratio", [row], ("a <note>",))
    made = table.html()
    assert made.count('<td style="text-align:right') == 7
    assert made.count('<td style="text-align:left') == 1
    assert re.findall(r'(?:color|background):([^;"]*)', made) == ["inherit"]
    for word in ("Cox &amp; more", "n 9", "&lt;age&gt;", "80 % intervals", "a &lt;note&gt;"):
        assert word in made
