"""dmfvi ratings: fit, predict, recommend, interruption and bad input from the shell."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sessions
from dmfvi import load
from dmfvi.cli.app import app
from dmfvi.datasets import make_ratings

RUN = CliRunner()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMFVI_CACHE", str(tmp_path / "cache"))


def write_ratings(path: Path, n: int = 20_000, n_users: int = 400) -> Path:
    R = make_ratings(n, n_users=n_users, n_items=300, rank=3, noise=0.5, seed=4).ratings.tocoo()
    lines = ["user,item,rating"]
    lines += [f"{u + 100},{i + 5},{r:g}" for u, i, r in zip(R.row, R.col, R.data, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def fit(data: Path, *options: str):
    base = ["ratings", "fit", str(data), "--components", "3", "--sweeps", "5"]
    return RUN.invoke(app, [*base, *options])


def test_fit_predict_recommend(tmp_path: Path) -> None:
    data, out = write_ratings(tmp_path / "r.csv"), tmp_path / "model"
    held = tmp_path / "held.csv"
    options = ["--nodes", "10", "--holdout", "0.1", "--out", str(out), "--predictions", str(held)]
    with pytest.warns(UserWarning, match="1 items have no rating"):
        result = fit(data, *options)
    assert result.exit_code == 0, result.output
    assert "held-out RMSE" in result.output
    assert [p.name for p in out.iterdir()] == ["model.npz"]
    rows = list(csv.DictReader(held.open()))
    assert len(rows) > 1500
    assert all(1 <= float(row["low"]) <= float(row["high"]) <= 5 for row in rows)
    assert min(int(row["user"]) for row in rows) >= 100
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\n101,7\n101,8\n", encoding="utf-8")
    result = RUN.invoke(app, ["ratings", "predict", str(pairs), "--model", str(out)])
    assert result.exit_code == 0, result.output
    (first, _) = csv.DictReader((tmp_path / "pairs.predicted.csv").open())
    model = load(out)
    assert float(first["rating"]) == pytest.approx(model.predict([101], [7])[0], abs=1e-3)
    asked = ["ratings", "recommend", "--model", str(out), "--user", "101", "--n", "3"]
    for strategy in ("mean", "ucb", "thompson"):
        result = RUN.invoke(app, [*asked, "--strategy", strategy])
        assert result.exit_code == 0, result.output
        assert strategy in result.output


def test_a_probe_is_held_out(tmp_path: Path) -> None:
    data, out = write_ratings(tmp_path / "r.csv"), tmp_path / "model"
    lines = data.read_text().splitlines()[1:400:4]
    probe = tmp_path / "probe.csv"
    probe.write_text("\n".join(",".join(line.split(",")[:2]) for line in lines), encoding="utf-8")
    result = fit(data, "--probe", str(probe), "--out", str(out))
    assert result.exit_code == 0, result.output
    assert f"{len(lines)} ratings" in result.output


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        (["--holdout", "1.5"], None, "--holdout must lie in"),
        (["--nodes", "0"], None, "--nodes must be at least 1"),
        (["--low", "1"], None, "--low and --high go together"),
        (["--low", "1", "--high", "3"], None, "outside the scale 1..3"),
        (["--probe", "missing.txt"], None, "does not exist"),
        (["--predictions", "p.csv"], None, "needs --holdout or --probe"),
        (["--resume"], None, "does not exist"),
        ([], "user,item,rating\n1,2,3\n1,3", "line 3"),
        ([], "user,item,rating\n-1,2,3\n", "negative"),
        ([], "user,item,rating\n1,2,nan\n", "no number"),
    ],
)
def test_bad_input_leaves_no_model(
    tmp_path: Path, options: list[str], content: str | None, message: str
) -> None:
    data, out = tmp_path / "r.csv", tmp_path / "model"
    if content is None:
        write_ratings(data, 3_000, 100)
    else:
        data.write_text(content, encoding="utf-8")
    result = fit(data, "--out", str(out), *options)
    assert result.exit_code != 0
    assert message in str(result.exception)
    assert not out.exists() or not list(out.iterdir())


def test_an_empty_probe_is_refused(tmp_path: Path) -> None:
    data, probe = write_ratings(tmp_path / "r.csv", 3_000, 100), tmp_path / "probe.txt"
    probe.write_text("", encoding="utf-8")
    result = fit(data, "--probe", str(probe), "--out", str(tmp_path / "model"))
    assert "is empty" in str(result.exception)


def test_control_c_leaves_a_checkpoint_and_resume_goes_on(tmp_path: Path) -> None:
    data, out = write_ratings(tmp_path / "r.csv"), tmp_path / "model"
    whole = tmp_path / "whole"
    environment = os.environ | {"NUMBA_NUM_THREADS": "1", "COLUMNS": "200"}
    # a checkpoint after every sweep shows when the first is done
    code = (
        "import dmfvi.cli.ratings as c; c.CHECKPOINT_EVERY = 0; from dmfvi.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "ratings", "fit"]
    command += [str(data), "--components", "3", "--holdout", "0.1", "--out"]
    with sessions.started(
        [*command, str(out), "--sweeps", "100000"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not (out / "checkpoint.npz").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=sessions.HUNG)
    assert process.returncode == 130, complaint
    assert "--resume goes on" in complaint
    assert sorted(p.name for p in out.iterdir()) == ["checkpoint.npz", "model.npz"]
    stopped = load(out)
    assert stopped.n_iter_ >= 1
    wanted = str(stopped.n_iter_ + 5)
    for extra in ([str(out), "--sweeps", wanted, "--resume"], [str(whole), "--sweeps", wanted]):
        assert sessions.run([*command, *extra], env=environment).returncode == 0
    resumed, straight = load(out), load(whole)
    assert resumed.n_iter_ == straight.n_iter_ == int(wanted)
    np.testing.assert_allclose(resumed.item_bias_, straight.item_bias_, atol=1e-4)
    assert not (out / "checkpoint.npz").exists()
    other = sessions.run([*command, str(out), "--resume"], env=environment)
    assert other.returncode == 1
    assert "does not exist" in other.stderr
