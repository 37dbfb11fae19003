"""Experiments: resumable, complete results by name, and the same answer however many at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dmfvi.experiments import EXPERIMENTS, convergence, runner
from dmfvi.experiments.base import Experiment, Outcome, ResultTable, Summary
from dmfvi.experiments.runner import run_experiment


def silent(done: int, total: int) -> None:
    """No progress."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A small experiment in the registry, and the cases it has really run."""
    ran: list[int] = []

    def run(params: Any) -> dict[str, Any]:
        ran.append(params["run"])
        if params["run"] == 2 and len(ran) == 3:
            raise KeyboardInterrupt
        return {"square": params["run"] ** 2}

    def summarise(outcomes: Any) -> Summary:
        figures = {f"S/run {o.params['run']}/square": o.found["square"] for o in outcomes}
        return Summary(figures, [ResultTable("squares", ("run",), [["1"]])])

    experiment = Experiment(
        "squares",
        "Squares",
        lambda full, data: [{"run": r} for r in range(6 if full else 4)],
        run,
        summarise,
        lambda figure, outcomes: figure.subplots().plot([o.found["square"] for o in outcomes]),
    )
    monkeypatch.setitem(EXPERIMENTS, "squares", experiment)
    return ran


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, counted: list[int]) -> None:
    settings = {"full": False, "data": None, "out": tmp_path, "jobs": 1, "on_case": silent}
    with pytest.raises(KeyboardInterrupt):
        run_experiment("squares", **settings)
    assert not (tmp_path / "results.json").exists()
    report = run_experiment("squares", **settings)
    assert counted == [0, 1, 2, 2, 3]
    assert report.n_reused == 2
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["figures"]["squares/S/run 3/square"] == 9
    assert content["experiments"]["squares"]["seeds"] == [0, 1, 2, 3]
    assert {"dmfvi", "numpy"} <= set(content["versions"])
    assert "squares,S,run 3,square,9.0" in (tmp_path / "results.csv").read_text()
    assert (tmp_path / "squares.png").exists()
    assert (tmp_path / "squares.svg").exists()


def test_a_torn_case_is_run_again(tmp_path: Path, counted: list[int]) -> None:
    counted += [9, 9, 9]  # beyond the interrupt
    settings = {"full": False, "data": None, "out": tmp_path, "jobs": 1, "on_case": silent}
    run_experiment("squares", **settings)
    file = sorted((tmp_path / "cases" / "squares").iterdir())[0]
    file.write_text(file.read_text()[:20])
    before = len(counted)
    run_experiment("squares", **settings)
    assert len(counted) == before + 1


def test_other_experiments_keep_their_figures(tmp_path: Path, counted: list[int]) -> None:
    counted += [9, 9, 9]
    foreign = {"format": runner.FORMAT, "figures": {"cube/a/b/c": 1.0, "squares/S/old/square": 2.0}}
    (tmp_path / "results.json").write_text(json.dumps(foreign))
    run_experiment("squares", full=False, data=None, out=tmp_path, jobs=1, on_case=silent)
    figures = json.loads((tmp_path / "results.json").read_text())["figures"]
    assert figures["cube/a/b/c"] == 1.0
    assert "squares/S/old/square" not in figures


def test_parallel_cases_say_the_same(tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        run_experiment(
            "online", full=False, data=None, out=tmp_path / str(jobs), jobs=jobs, on_case=silent
        )
        found.append(json.loads((tmp_path / str(jobs) / "results.json").read_text())["figures"])
    assert found[0] == pytest.approx(found[1], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_experiment_lists_distinct_plain_cases(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    if experiment.needs is not None:
        for file in ("001.mat", "dino.mat"):
            (tmp_path / file).touch()
    for full in (False, True):
        cases = experiment.cases(full, tmp_path)
        texts = [json.dumps(case, sort_keys=True) for case in cases]
        assert len(set(texts)) == len(texts) > 0


def test_data_that_are_needed_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give their directory with --data"):
        EXPERIMENTS["caltech"].cases(False, None)
    with pytest.raises(FileNotFoundError, match="check --data"):
        EXPERIMENTS["hopkins"].cases(False, tmp_path)


@pytest.mark.parametrize("penalty", ["auto", 1.0, 50.0])
def test_every_penalty_converges_to_the_pooled_posterior(penalty: Any) -> None:
    params = {"topology": "ring", "nodes": 5, "penalty": penalty, "start": 1}
    found = convergence.run(params)
    assert found["converged"] == 1.0
    assert found["distance"] < 1e-6
    assert found["bound_gap"] < 1e-8
    assert found["iterations_by_papers_rule"] < 100
    assert convergence.summarise([Outcome({"panel": "penalty", **params}, found)]).figures
