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


@pytest.mark.parametrize("words", [(), ("ratings",), ("keys",)], ids=["dmfvi", "ratings", "keys"])
def test_help_of_groups_has_an_example(words: tuple[str, ...]) -> None:
    said = " ".join(dmfvi_command(*words, "-h").out.split())
    assert f"Example: {' '.join(['dmfvi', *words])}" in said


def test_one_sweep_over_ratings_is_called_so(tmp_path: Path) -> None:
    dmfvi_command("example", "ratings", tmp_path)
    line = ["ratings", "fit", tmp_path / "ratings.csv", "--components", 2, "--sweeps", 1, "-q"]
    said = dmfvi_command(*line, "--out", tmp_path / "m")
    assert "no: one sweep cannot tell, raise --sweeps" in said.out
    assert "lower bound │ known from the second sweep on" in said.out
    told = json.loads(dmfvi_command(*line, "--json", "--out", tmp_path / "m").out)
    assert (told["converged"], told["lower_bound"]) == (False, None)


def test_the_exit_codes_of_the_pages_are_the_same() -> None:
    pages = Path(__file__).parents[2] / "docs"
    found = []
    for page in ("shell.md", "deploy.md"):
        rows = re.findall(r"^\| (\d+(?:, \d+)*) \| ", (pages / page).read_text(), re.MULTILINE)
        found.append({code for row in rows for code in row.split(", ")})
    codes = {str(int(code)) for code in ExitCode} | {"143"}
    assert found == [codes, codes]


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


def test_frames_and_points_keep_the_numbers_of_the_file(tmp_path: Path) -> None:
    """Points and frames that are numbered with gaps, and a point that is left out."""
    matrix = np.concatenate(make_cube(n_frames=4).cameras)
    frames, points = 10 + 3 * np.arange(len(matrix) // 2), 100 + 7 * np.arange(matrix.shape[1])
    lines = [
        f"{frame},{point},{matrix[2 * f, p]:.6f},{matrix[2 * f + 1, p]:.6f}"
        for f, frame in enumerate(frames)
        for p, point in enumerate(points)
    ]
    short = "13,55,0.5,0.5"  # seen once
    file, out = tmp_path / "tracks.csv", tmp_path / "o"
    file.write_text("\n".join(["frame,point,x,y", *lines, short]) + "\n")
    said = dmfvi_command("sfm", file, "--out", out, "-q")
    assert "points seen in fewer than 2 frames: 55 (1)" in said.err
    assert "Tracks.seen_in" not in said.err
    assert dmfvi_command("sfm", file, "--out", out, "-q", "--min-frames", 2).code in (0, 4)

    def column(name: str, at: int) -> list[int]:
        return [int(line.split(",")[at]) for line in (out / name).read_text().splitlines()[1:]]

    assert column("structure.csv", 0) == points.tolist()
    assert column("cameras.csv", 0) == frames.tolist()
    assert column("tracks.csv", 0) == np.repeat(frames, len(points)).tolist()
    assert column("tracks.csv", 1) == np.tile(points, len(frames)).tolist()


def test_one_frame_has_no_depth(tmp_path: Path) -> None:
    file = tmp_path / "tracks.csv"
    file.write_text("frame,point,x,y\n" + "".join(f"3,{p},{p % 4},{p % 3}\n" for p in range(8)))
    said = dmfvi_command("sfm", file, "--out", tmp_path / "o")
    assert said.code == 1
    assert "has 1 frame: depth needs views from two or more" in said.err
    assert "--min-frames" not in said.err


def replaced_by_a_file(folder: Path) -> None:
    """What happens to a folder while a command works."""
    for file in folder.glob("*"):
        file.unlink()
    if folder.is_dir():
        folder.rmdir()
    folder.write_text("now a file")


def test_a_filled_table_is_kept_where_its_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is replaced while the model is fitted."""
    rows = [f"{n},{n * n % 7},{n * n % 5}" for n in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *rows, "3,,1"]) + "\n")
    out = tmp_path / "results"
    out.mkdir()
    fit = dmfvi.BayesianPCA.fit

    def broken(self: Any, *data: Any, **more: Any) -> Any:
        replaced_by_a_file(out)
        return fit(self, *data, **more)

    monkeypatch.setattr(dmfvi.BayesianPCA, "fit", broken)
    words = ["impute", tmp_path / "t.csv", "--model", "bayesian-pca", "--std"]
    said = dmfvi_command(*words, "--out", out / "filled.csv")
    assert said.code == ExitCode.ERROR
    assert "filled: " not in said.out
    kept = re.search(r"The result is kept in (\S+)", said.err)
    assert kept is not None, said.err
    assert sorted(f.name for f in Path(kept[1]).iterdir()) == ["filled.csv", "filled.std.csv"]
    assert len((Path(kept[1]) / "filled.csv").read_text().splitlines()) == 22


def test_files_beside_a_structure_are_kept_where_their_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is replaced when the model is written."""
    out = tmp_path / "o"
    save = dmfvi.StructureFromMotion.save_ply

    def broken(self: Any, path: Path) -> Any:
        if path.parent == out:
            replaced_by_a_file(out)
        return save(self, path)

    monkeypatch.setattr(dmfvi.StructureFromMotion, "save_ply", broken)
    dmfvi_command("example", "tracks", tmp_path)
    said = dmfvi_command("sfm", tmp_path / "tracks.csv", "--out", out, "-q")
    assert said.code == ExitCode.ERROR
    kept = re.search(r"The result is kept in (\S+)", said.err)
    assert kept is not None, said.err
    names = ["cameras.csv", "structure.csv", "structure.ply", "structure.png", "tracks.csv"]
    assert sorted(f.name for f in Path(kept[1]).iterdir()) == names
