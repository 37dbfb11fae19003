"""Groups, strata and events in tables: words, whole numbers beyond floats, gaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi import CoxRegression, MixedModel


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    ward = rng.integers(4, size=60)
    x = rng.normal(size=60)
    return pd.DataFrame(
        {
            "x": x,
            "ward": [f"w{number}" for number in ward],
            "y": x + ward + 0.3 * rng.normal(size=60),
            "days": np.ceil(100 * rng.exponential(np.exp(-x))),
            "died": rng.random(60) < 0.7,
        }
    )


def fitted(tmp_path: Path, data: pd.DataFrame, *words: object) -> Any:
    file, out = tmp_path / "b.csv", tmp_path / "model"
    data.to_csv(file, index=False)
    said = dmfvi_command("fit", file, *words, "--out", out)
    assert said.code == 0, said.err
    return dmfvi.load(out)


@pytest.mark.parametrize("formula", [False, True])
@pytest.mark.parametrize("kind", ["words", "large"])
def test_groups_are_words_or_large_numbers(
    tmp_path: Path, rows: pd.DataFrame, kind: str, formula: bool
) -> None:
    data = rows[["x", "ward", "y"]]
    if kind == "large":
        data = data.assign(ward=data.ward.str[1:].astype(int) + 2**60)
    words = ["--formula", "y ~ x"] if formula else ["--target", "y"]
    model = fitted(tmp_path, data, "--model", "mixed-model", *words, "--set", "groups=ward")
    expected = MixedModel().fit(data[["x"]], data.y, data.ward)
    assert model.n_groups_ == 4
    assert model.posterior_.distance(expected.posterior_) < 1e-9


def test_rows_without_a_group_are_dropped_or_refused(tmp_path: Path, rows: pd.DataFrame) -> None:
    data = rows[["x", "ward", "y"]].copy()
    data.loc[[3, 8], "ward"] = None
    words = ["--model", "mixed-model", "--set", "groups=ward"]
    model = fitted(tmp_path, data, *words, "--formula", "y ~ x")
    assert (model.n_groups_, model.n_dropped_) == (4, 2)
    said = dmfvi_command(
        "fit", tmp_path / "b.csv", *words, "--target", "y", "--out", tmp_path / "other"
    )
    assert said.code != 0
    assert "ward" in said.err


@pytest.mark.parametrize("formula", [False, True])
def test_strata_and_events_are_words(tmp_path: Path, rows: pd.DataFrame, formula: bool) -> None:
    data = rows[["x", "ward", "days", "died"]]
    words = ["--model", "cox", "--set", "time=days", "--set", "event=died", "--set", "strata=ward"]
    words += ["--formula", "~ x"] if formula else []
    model = fitted(tmp_path, data, *words)
    expected = CoxRegression(formula="~ x").fit(data, time="days", event="died", strata="ward")
    assert model.n_events_ == data.died.sum()
    assert model.posterior_.distance(expected.posterior_) < 1e-9
    data.assign(died=np.where(data.died, "yes", "no")).to_csv(tmp_path / "b.csv", index=False)
    said = dmfvi_command("fit", tmp_path / "b.csv", *words, "--out", tmp_path / "other")
    assert said.code != 0
    assert "event = 'died' holds" in said.err
    assert "Traceback" not in said.err


def test_rows_without_an_event_or_a_time_are_dropped(tmp_path: Path, rows: pd.DataFrame) -> None:
    data = rows[["x", "days", "died"]].astype({"died": object})
    data.loc[2, "died"] = None
    data.loc[5, "days"] = np.nan
    words = ["--model", "cox", "--set", "time=days", "--set", "event=died", "--formula", "~ x"]
    model = fitted(tmp_path, data, *words)
    assert (model.n_dropped_, model.n_subjects_) == (2, 58)
