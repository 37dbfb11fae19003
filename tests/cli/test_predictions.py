"""dmfvi predict after dmfvi fit: classes, exposures, words as labels."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from cli_run import dmfvi_command
from dmfvi import BayesianPoissonRegression, load
from dmfvi.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["dmfvi", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def written(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = ["x,label,events,years"]
    for _ in range(60):
        x, years = rng.normal(), rng.uniform(1.0, 40.0)
        label = "yes" if x + rng.normal() > 0 else "no"
        lines.append(f"{x:.4f},{label},{rng.poisson(years * np.exp(0.5 * x))},{years:.3f}")
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    return tmp_path / "rows.csv"


@pytest.mark.parametrize(
    "kind",
    [
        ["bayesian-logistic-regression"],
        ["generalized-linear-model", "--set", "family=bernoulli"],
        ["generalized-linear-model", "--set", "family=multinomial"],
    ],
)
def test_classes_are_predicted_with_their_probabilities(
    table: Path, monkeypatch: pytest.MonkeyPatch, kind: list[str]
) -> None:
    out = str(table.parent / "model")
    target = ["--target", "label", "--columns", "x", "--out", out]
    assert run(monkeypatch, "fit", str(table), "--model", *kind, *target) == 0
    assert run(monkeypatch, "predict", str(table), "--model", out) == 0
    rows = written(table.with_name("rows.predicted.csv"))
    names = {f"p_{label}{end}" for end in ("", "_lower", "_upper") for label in ("no", "yes")}
    assert set(rows[0]) == {"prediction", *names}
    for row in rows:
        assert float(row["p_yes_lower"]) < float(row["p_yes"]) < float(row["p_yes_upper"])
    chance = np.array([[float(row["p_no"]), float(row["p_yes"])] for row in rows])
    np.testing.assert_allclose(chance.sum(1), 1.0, atol=1e-9)
    assert {row["prediction"] for row in rows} == {"no", "yes"}


def test_the_exposure_that_a_model_was_fitted_with_counts(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(table.parent / "model")
    fit = ["fit", str(table), "--model", "bayesian-poisson-regression", "--target", "events"]
    fit += ["--columns", "x", "--set", "exposure=years", "--out", out]
    assert run(monkeypatch, *fit) == 0
    assert run(monkeypatch, "predict", str(table), "--model", out) == 0
    rows, given = written(table.with_name("rows.predicted.csv")), written(table)
    found = np.array([float(row["prediction"]) for row in rows])
    x, years = (np.array([float(row[name]) for row in given]) for name in ("x", "years"))
    model: BayesianPoissonRegression = load(out)
    np.testing.assert_allclose(found, model.predict(x[:, None], exposure=years), rtol=1e-9)
    events = np.array([float(row["events"]) for row in given])
    assert abs(found.sum() / events.sum() - 1.0) < 0.1


@pytest.mark.parametrize("role", ["exposure", "offset"])
def test_rows_without_exposure_or_offset_are_predicted_empty(role: str, table: Path) -> None:
    out = table.parent / "model"
    fit = ["--model", "poisson", "--target", "events", "--columns", "x", "--set", f"{role}=years"]
    head, *rows = table.read_text().splitlines()
    assert dmfvi_command("fit", table, *fit, "--out", out).code in (0, 4)
    assert dmfvi_command("predict", table, "--model", out).code == 0
    before = written(table.with_name("rows.predicted.csv"))
    without = [row.rpartition(",")[0] + "," for row in rows]
    table.write_text("\n".join([head, *rows[:3], without[3], *rows[4:]]))
    said = dmfvi_command("predict", table, "--model", out)
    assert said.code == 0, said.err
    assert said.err.endswith("rows.csv: 1 row lacks values, its prediction is left empty")
    made = written(table.with_name("rows.predicted.csv"))
    assert set(made[3].values()) == {""}
    assert [*made[:3], *made[4:]] == [*before[:3], *before[4:]]
    table.write_text("\n".join([head, *without]))
    said = dmfvi_command("predict", table, "--model", out)
    assert said.code == 1
    assert f"rows.csv: no row has its features and {role}" in said.err
    table.write_text("\n".join([head, *rows[:3], without[3] + "inf"]))
    said = dmfvi_command("predict", table, "--model", out)
    assert said.code == 1
    assert "rows.csv, sample 4, column 'years' is infinite" in said.err


def test_show_has_every_coefficient_once(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(table.parent / "model")
    kind = ["--model", "bayesian-poisson-regression", "--target", "events", "--columns", "years"]
    assert dmfvi_command("fit", table, *kind, "--out", model).code == 0
    said = dmfvi_command("show", model)
    assert said.code == 0
    assert said.out.count("years") == 1
    assert "coefficients" in dmfvi_command("show", model, "--json").out
