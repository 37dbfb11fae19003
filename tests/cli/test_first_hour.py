"""What a newcomer does first works: examples, help, JSON, exit codes, places that cannot be written to."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

import dmfvi
from cli_run import dmfvi_command
from dmfvi.cli.app import app
from dmfvi.cli.exit_codes import ExitCode
from dmfvi.datasets import make_cube, make_ratings


def commands() -> list[tuple[str, ...]]:
    """Every command, with its group."""

    def below(command: Any, name: tuple[str, ...]) -> list[tuple[str, ...]]:
        if not hasattr(command, "commands"):
            return [name]
        return [each for k, c in command.commands.items() for each in below(c, (*name, k))]

    return below(get_command(app), ())


@pytest.mark.parametrize("what", ["hospital", "tracks", "ratings"])
def test_every_command_of_an_example_runs(what: str, tmp_path: Path) -> None:
    said = dmfvi_command("example", what, tmp_path / "trial")
    assert said.code == 0
    lines = re.findall(r"dmfvi [a-z]+ .*?(?= dmfvi |$)", said.out)
    assert lines
    for line in lines:
        ended = dmfvi_command(*shlex.split(line)[1:])
        assert ended.code == 0, (line, ended.err)
    assert dmfvi_command("example", what, tmp_path / "trial").code == 0  # the same files
    (next((tmp_path / "trial").glob("*.csv"))).write_text("mine")


def test_an_example_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "tracks.csv").write_text("mine")
    said = dmfvi_command("example", "tracks", tmp_path)
    assert (said.code, (tmp_path / "tracks.csv").read_text()) == (1, "mine")
    assert "is another file" in said.err


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_has_an_example_and_no_riddles(words: tuple[str, ...]) -> None:
    long, short = dmfvi_command(*words, "--help"), dmfvi_command(*words, "-h")
    assert long.code == short.code == 0
    assert long.out == short.out
    assert f"Example: dmfvi {' '.join(words)}" in re.sub(r"[│\s]+", " ", long.out)
    assert "Print it." not in long.out
    assert "default: look" not in long.out


def test_shell_completion_is_offered() -> None:
    assert "--install-completion" in dmfvi_command("--help").out


def test_results_as_json(tmp_path: Path) -> None:
    dmfvi_command("example", "hospital", tmp_path)
    columns = "age,blood_pressure,cholesterol,glucose,bmi"
    words = ["--columns", columns, "--components", 2, "--out", tmp_path / "m", "--json"]
    said = dmfvi_command("fit", tmp_path / "site0.csv", *words)
    found = json.loads(said.out)
    assert found["converged"] is True
    assert found["network"] == "pooled"
    assert isinstance(found["lower_bound"], float)
    assert len(found["component_deviations"]) == 2
    shown = json.loads(dmfvi_command("show", tmp_path / "m", "--json").out)
    assert [row["feature"] for row in shown["components"]] == columns.split(",")
    np.save(tmp_path / "cube.npy", np.concatenate(make_cube(n_frames=6).hidden))
    said = dmfvi_command("sfm", tmp_path / "cube.npy", "--out", tmp_path / "s", "--json")
    assert json.loads(said.out)["cameras"] == "pooled"
    for name in ("cameras.csv", "tracks.csv", "structure.csv"):
        assert (tmp_path / "s" / name).exists()
    filled = np.loadtxt(tmp_path / "s" / "tracks.csv", delimiter=",", skiprows=1)
    assert np.isfinite(filled).all()
    assert set(filled[:, 6]) == {0.0, 1.0}
    assert (filled[filled[:, 6] == 1, 4] == 0).all()


@pytest.mark.parametrize("kind", ["bayesian-pca", "bayesian-gaussian-mixture", "gaussian-hmm"])
def test_wide_tables_are_shown_whole(kind: str, tmp_path: Path) -> None:
    """No cell is cut off: features go down, and further columns below."""
    rows = np.random.default_rng(0).normal(size=(60, 20)) + 4 * (np.arange(60) > 30)[:, None]
    names = [f"measurement_{place}" for place in range(20)]
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header=",".join(names), comments="")
    words = ["--model", kind, "--components", 12 if "pca" in kind else 2, "--out", tmp_path / "m"]
    assert dmfvi_command("fit", tmp_path / "t.csv", *words).code in (0, 4)
    said = dmfvi_command("show", tmp_path / "m").out
    found = json.loads(dmfvi_command("show", tmp_path / "m", "--json").out)
    (table,) = (found[name] for name in ("components", "means") if name in found)
    numbers = [value for row in table for value in row.values() if isinstance(value, float)]
    assert len(numbers) >= 40
    assert all(f"{value:.5g} " in said for value in numbers)
    assert "…" not in said


def test_one_node_is_the_default(tmp_path: Path) -> None:
    dmfvi_command("example", "tracks", tmp_path)
    dmfvi_command("sfm", tmp_path / "tracks.csv", "--out", tmp_path / "s")
    assert dmfvi.load(tmp_path / "s").network is None


WRITERS: dict[str, list[str]] = {
    "fit": ["fit", "DATA", "--out", "OUT"],
    "impute": ["impute", "DATA", "--model", "MODEL", "--out", "OUT/x.csv"],
    "predict": ["predict", "DATA", "--model", "MODEL", "--out", "OUT/x.csv"],
    "sfm": ["sfm", "DATA", "--out", "OUT"],
    "ratings fit": ["ratings", "fit", "DATA", "--out", "OUT"],
    "ratings predict": ["ratings", "predict", "DATA", "--model", "MODEL", "--out", "OUT/x.csv"],
    "ratings recommend": [
        "ratings",
        "recommend",
        "--model",
        "MODEL",
        "--users",
        "all",
        "--out",
        "OUT/x.csv",
    ],
    "demo": ["demo", "--out", "OUT"],
    "reproduce": ["reproduce", "online", "--out", "OUT"],
    "example": ["example", "tracks", "OUT"],
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("place", ["below a file", "not writable"])
def test_where_results_go_is_tried_first(name: str, place: str, tmp_path: Path) -> None:
    """Nothing is read before: the data and the model do not even exist."""
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "x") if place == "below a file" else "/proc/dmfvi"
    words = [w.replace("OUT", out) for w in WRITERS[name]]
    said = dmfvi_command(*(w.replace("DATA", str(tmp_path / "none.csv")) for w in words))
    assert said.code == ExitCode.ERROR
    assert ("is a file" if place == "below a file" else "cannot be written") in said.err
    assert "none.csv does not exist" not in said.err


def test_a_model_that_cannot_be_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(20, 3)))
    out = tmp_path / "m"
    out.mkdir()
    (out / "model.npz").mkdir()  # a folder is where the file should be
    said = dmfvi_command("fit", tmp_path / "t.npy", "--components", 1, "--out", out)
    assert said.code == ExitCode.ERROR
    kept = re.search(r"The model is kept in (\S+)", said.err)
    assert kept is not None
    assert dmfvi.load(kept.group(1)).n_features_in_ == 3


def test_exit_codes_are_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(20, 3)))
    fit = ["fit", tmp_path / "t.npy", "--components", 1, "--out", tmp_path / "m"]
    assert dmfvi_command(*fit).code == ExitCode.DONE
    assert dmfvi_command(*fit, "--max-iter", 1).code == ExitCode.NOT_CONVERGED
    assert dmfvi_command("fit", tmp_path / "none.npy").code == ExitCode.ERROR
    assert dmfvi_command("fit", "--no-such-option").code == ExitCode.USAGE
    table = make_ratings(500, n_users=40, n_items=20, seed=0).ratings.tocoo()
    lines = [f"{u},{i},{r}" for u, i, r in zip(table.row, table.col, table.data, strict=True)]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *lines]))
    rate = [
        "ratings",
        "fit",
        tmp_path / "r.csv",
        "--components",
        1,
        "--out",
        tmp_path / "r",
        "--sweeps",
        2,
    ]
    assert dmfvi_command(*rate).code == ExitCode.DONE
    assert dmfvi_command(*rate, "--tol", "1e-9").code == ExitCode.NOT_CONVERGED

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dmfvi.deploy.kinds.ModelSettings.read", interrupt)
    assert dmfvi_command(*fit).code == ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("cryptography", ["keys", "init", "OUT"], "net"),
        ("zenoh", ["launch", "CLUSTER", "--insecure"], "net"),
        ("zenoh", ["node", "--config", "NODE", "--insecure"], "net"),
        ("mpi4py", ["fit", "part-{rank}.npy", "--engine", "mpi"], "mpi"),
        ("pyarrow", ["fit", "DATA.parquet"], "parquet"),
        ("pyarrow", ["ratings", "fit", "DATA.parquet"], "parquet"),
        ("openpyxl", ["fit", "DATA.xlsx"], "excel"),
    ],
)
def test_a_missing_extra_is_one_line(
    package: str, words: list[str], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    for suffix in ("parquet", "xlsx"):
        (tmp_path / f"t.{suffix}").write_text("x")
    np.save(tmp_path / "t.npy", np.random.default_rng(0).normal(size=(9, 2)))
    node = "[node]\nid = 0\nlisten = '127.0.0.1:7447'\ndata = 't.npy'\n[model]\nn_components = 1\n"
    (tmp_path / "node.toml").write_text(node)
    (tmp_path / "cluster.toml").write_text("nodes = ['node.toml']")
    names = {"OUT": "ca", "CLUSTER": "cluster.toml", "NODE": "node.toml", "DATA": "t"}
    given = []
    for word in words:
        for name, file in names.items():
            word = re.sub(rf"^{name}\b", str(tmp_path / file), word)  # noqa: PLW2901
        given.append(word)
    monkeypatch.chdir(tmp_path)
    said = dmfvi_command(*given)
    assert said.code == ExitCode.ERROR
    assert "Traceback" not in said.err
    assert f"pip install -e '.[{extra}]'" in said.err


def test_ratings_given_twice_are_counted_once(tmp_path: Path) -> None:
    rows = [f"u{u},i{i},{1 + u * i % 5}" for u in range(8) for i in range(6)]
    file = tmp_path / "r.csv"
    file.write_text("\n".join(["user,item,rating", *rows, rows[0]]))
    asked = ["--components", 1, "--sweeps", 2, "--no-cache", "--json"]
    said = dmfvi_command("ratings", "fit", file, *asked, "--out", tmp_path / "m")
    assert "1 of 49 ratings repeat a user and item" in said.err
    assert '"ratings": 48' in said.out
