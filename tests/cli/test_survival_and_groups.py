"""Survival curves, hazards and groups from the shell and node files: columns by name, tables that can be read, errors that help."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi import CoxRegression, KaplanMeier, MixedModel, PiecewiseExponentialRegression
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.readers.tables import Table

TIMES = ["--time", "time", "--event", "event"]


@pytest.fixture
def wards(tmp_path: Path) -> list[Path]:
    """Two files with ids, words, gaps beside the times, and wards."""
    rng = np.random.default_rng(0)
    files = []
    for site in range(2):
        made = pd.DataFrame(
            {
                "patient": [f"p{site}{n}" for n in range(40)],
                "time": np.ceil(rng.exponential(50, 40)),
                "event": np.where(rng.random(40) < 0.6, "true", "false"),
                "age": rng.normal(60, 9, 40).round(1),
                "ward": [f"w{site}{n % 5}" for n in range(40)],
                "falls": rng.poisson(1.0, 40),
                "bmi": np.where(rng.random(40) < 0.2, np.nan, 27.0),
            }
        )
        files.append(tmp_path / f"site{site}.csv")
        made.to_csv(files[-1], index=False)
    return files


def whole(files: list[Path]) -> pd.DataFrame:
    return pd.concat([pd.read_csv(file, dtype={"ward": str}) for file in files])


def test_a_survival_curve_takes_its_two_columns_by_name(wards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "km"
    said = dmfvi_command("fit", *wards, "--model", "kaplan-meier", *TIMES, "--out", out)
    assert said.code == 0, said.err
    pooled = KaplanMeier().fit(whole(wards), time="time", event="event")
    np.testing.assert_array_equal(dmfvi.load(out).survival_function_, pooled.survival_function_)
    shown = json.loads(dmfvi_command("show", out, "--json").out)["survival"]
    assert [row["time"] for row in shown] == pooled.timeline_.tolist()
    assert [row["at risk"] for row in shown] == pooled.at_risk_.tolist()
    (tmp_path / "asked.csv").write_text("time\n10\n60\n")
    predicted = tmp_path / "p.csv"
    first = pd.read_csv(wards[0]).time.to_numpy()
    for file, times in ((tmp_path / "asked.csv", np.array([10.0, 60.0])), (wards[0], first)):
        said = dmfvi_command("predict", file, "--model", out, "--out", predicted)
        assert said.code == 0, said.err
        np.testing.assert_allclose(pd.read_csv(predicted).prediction, pooled.predict(times))
    lacking = dmfvi_command("fit", wards[0], "--model", "kaplan-meier", "--time", "time")
    assert "needs --time and event" in lacking.err


@pytest.mark.parametrize("columns", [{}, {"time": "time", "event": "event"}])
def test_nodes_know_times_from_events(columns: dict[str, str]) -> None:
    rows = np.array([[5.0, 1.0], [8.0, 0.0], [9.0, 1.0]])
    settings = ModelSettings.of("kaplan-meier", **columns)
    ordered = settings.in_agreed_order(Table(rows, ["time", "event"]))
    settings.check(ordered)
    np.testing.assert_array_equal(settings.fit(ordered).timeline_, [5.0, 8.0, 9.0])
    other = Table(rows[:, ::-1], ["event", "time"])
    if columns:  # named columns may stand in any order
        found = settings.fit(settings.in_agreed_order(other))
        np.testing.assert_array_equal(found.timeline_, [5.0, 8.0, 9.0])


def test_show_has_the_hazard_ratios_of_a_cox_model(wards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "cox"
    words = ["--model", "cox", "--formula", "~ age", *TIMES, "--out", out]
    assert dmfvi_command("fit", *wards, *words).code == 0
    assert "hazard ratio" in dmfvi_command("show", out).out
    said = dmfvi_command("show", out, "--json")
    assert said.code == 0, said.err
    (row,) = json.loads(said.out)["coefficients"]
    assert row["feature"] == "age"
    assert row["mean"] == pytest.approx(dmfvi.load(out).coef_[0])


def test_settings_that_name_terms_take_one_or_a_list(wards: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "m"
    mixed = ["fit", *wards, "--model", "mixed-model", "--formula", "falls ~ age", "--groups", "ward", "--set", "family=poisson", "--set", "approximation=laplace", "--out", out]  # fmt: skip
    for given in ("age", '["age"]'):
        said = dmfvi_command(*mixed, "--set", f"random_slopes={given}")
        assert said.code == 0, said.err
        assert dmfvi.load(out).effects_std_.shape == (2,)
    said = dmfvi_command(*mixed, "--set", "random_slopes=3")
    assert 'must be a name or a list of names, ["a", "b"], received 3' in said.err
    hazards = ["fit", *wards, "--model", "piecewise-exponential", "--formula", "~ age", *TIMES, "--set", "n_intervals=2", "--set", "time_varying=age", "--out", out]  # fmt: skip
    assert dmfvi_command(*hazards).code == 0
    assert len(dmfvi.load(out).coef_) == 2


def test_settings_that_name_terms_take_columns_without_a_formula(
    wards: list[Path], tmp_path: Path
) -> None:
    out, few = tmp_path / "m", ["--columns", "age", "--out", tmp_path / "m"]
    hazards = ["--model", "piecewise-exponential", *TIMES, "--set", "n_intervals=2", *few]
    assert dmfvi_command("fit", *wards, *hazards).code == 0
    assert dmfvi.load(out).summary_frame().index[0] == "age"
    said = dmfvi_command("fit", *wards, *hazards, "--set", "time_varying=age")
    assert said.code == 0, said.err
    assert all(term.startswith("age (") for term in dmfvi.load(out).summary_frame().index[:2])
    mixed = ["--model", "mixed-model", "--target", "falls", "--groups", "ward", *few]
    fast = ["--set", "family=poisson", "--set", "approximation=laplace"]
    said = dmfvi_command("fit", *wards, *mixed, *fast, "--set", "random_slopes=age")
    assert said.code == 0, said.err
    model = dmfvi.load(out)
    assert model.effects_std_.shape == (2,)
    predicted = tmp_path / "p.csv"
    said = dmfvi_command("predict", wards[0], "--model", out, "--out", predicted)
    assert said.code == 0, said.err
    rows = pd.read_csv(wards[0])[["age"]]
    np.testing.assert_allclose(pd.read_csv(predicted).prediction, model.predict(rows))
    table = Table(np.array([[1.0, 5.0, 1.0], [2.0, 7.0, 0.0], [3.0, 8.0, 1.0]]), ["a", "t", "e"])
    settings = ModelSettings.of(
        "piecewise-exponential-regression", time="t", event="e", time_varying="a", n_intervals=2
    )
    settings.check(table)
    assert settings.fit(table).converged_


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cox", "--formula", "time ~ age", *TIMES], "has a left-hand side: write ~ a + b"),
        (
            ["cox", "--formula", "~ age", "--time", "patient", "--event", "event"],
            "--time = 'patient' holds 'p00': times are numbers",
        ),
        (
            ["mixed-model", "--formula", "falls ~ age + (1 | ward)", "--groups", "ward"],
            "takes the groups of random effects beside the formula (groups=, --groups), and random_slopes",
        ),
    ],
)
def test_errors_say_what_to_write_instead(
    words: list[str], message: str, wards: list[Path], tmp_path: Path
) -> None:
    said = dmfvi_command("fit", *wards, "--model", *words, "--out", tmp_path / "m")
    assert said.code == 1
    assert message in said.err


def test_a_column_may_be_a_term_and_a_label_of_groups_too(
    wards: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "m"
    words = ["--formula", "falls ~ age + C(ward)", "--groups", "ward", "--set", "family=poisson", "--set", "approximation=laplace", "--out", out]  # fmt: skip
    said = dmfvi_command("fit", *wards, "--model", "mixed-model", *words)
    assert said.code == 0, said.err
    direct = MixedModel(
        formula="falls ~ age + C(ward)", family="poisson", approximation="laplace"
    ).fit(whole(wards), groups="ward")
    assert dmfvi.load(out).posterior_.distance(direct.posterior_) < 1e-9


def test_predictions_take_times_that_are_numbers() -> None:
    rng = np.random.default_rng(0)
    x, time, event = rng.normal(size=(40, 1)), rng.exponential(size=40), np.ones(40)
    curves = [
        CoxRegression().fit(x, time, event).predict_survival_function,
        PiecewiseExponentialRegression().fit(x, time, event).predict_survival_function,
    ]
    ask = [KaplanMeier().fit(time, event).predict]
    ask += [lambda at, curve=curve: curve(x, at) for curve in curves]  # type: ignore[misc]
    for each in ask:
        each([0.0, 2.0])
        with pytest.raises(ValueError, match="times must be numbers that are not negative"):
            each([np.nan, 1.0])
        with pytest.raises(ValueError, match="holds 'a': times are numbers"):
            each(["a"])
