"""Bad input for tests: commands with what they must say, and a folder of good and bad files."""

from __future__ import annotations

from pathlib import Path
from shlex import split
from typing import NamedTuple

import numpy as np
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi.cli.exit_codes import ExitCode
from dmfvi.datasets import make_cube, make_low_rank, make_ratings
from dmfvi.models import PoissonGamma


class Case(NamedTuple):
    """A command (files are in {d}), what it must say, its code, and a file that it needs (name, content)."""

    words: str
    says: str
    code: int = ExitCode.ERROR
    file: tuple[str, str | bytes] | None = None


LOGISTIC = "--model bayesian-logistic-regression"
LINEAR = "--model bayesian-linear-regression"
NODE = "[node]\nid = 0\nlisten = '127.0.0.1:7447'\ndata = 'good.csv'\n"


def csv(text: str) -> tuple[str, str]:
    return ("bad.csv", text)


def toml(text: str) -> tuple[str, str]:
    return ("bad.toml", text)


def node(more: str = "", base: str = NODE) -> tuple[str, str]:
    return toml(base + more)


def write_files(d: Path) -> None:
    """Good files and models."""
    data = make_low_rank(30, 4, 1, noise=0.3).data
    rows = [",".join(f"{v:.4f}" for v in row) for row in data]

    def write(name: str, head: str, lines: list[str]) -> None:
        (d / name).write_text("\n".join(([head] if head else []) + lines) + "\n")

    write("good.csv", "a,b,c,d", rows)
    write("again.csv", "a,b,c,d", rows[:10])
    write("other.csv", "a,b,c,z", rows)
    write("plain.csv", "", rows)
    write("gaps.csv", "a,b,c,d", [rows[0].rpartition(",")[0] + ",", *rows[1:]])
    write("empty.csv", "a,b,c,d", ["1,2,3,", "2,3,4,"])
    write("labels.csv", "a,b,c,d,kind", [f"{r},{'xy'[n % 2]}" for n, r in enumerate(rows)])
    write("one.csv", "a,b,c,d,kind", [f"{r},x" for r in rows])
    write("half.csv", "a,b,c,d,kind", [f"{r},{'x' if n else ''}" for n, r in enumerate(rows)])
    write("commas.csv", "a;b", ["1,5;2,5", "-;3,5"])
    write("odd.csv", "1.5,b", ["1,2"])
    write("negative.csv", "a,b", ["-1,2", "3,4"])
    (d / "latin.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    np.save(d / "good.npy", data)
    np.save(d / "three.npy", data[:29, :3])
    np.save(d / "vector.npy", np.arange(5.0))
    np.save(d / "words.npy", np.array([["a", "b"]]))
    np.save(d / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(d / "two.npz", a=data, b=data)
    for name in ("broken.npz", "broken.parquet", "broken.xlsx"):
        (d / name).write_text("no")
    tracks = np.concatenate(make_cube(n_frames=4).hidden)
    lines = [
        f"{f},{p},{tracks[2 * f, p]!r},{tracks[2 * f + 1, p]!r}".replace("np.float64(", "").replace(
            ")", ""
        )
        for f, p in np.argwhere(np.isfinite(tracks[0::2]))
    ]
    write("tracks.csv", "frame,point,x,y", lines)
    made = make_ratings(300, n_users=30, n_items=20, rank=1, seed=0).ratings.tocoo()
    lines = [f"{u},{i},{r:g}" for u, i, r in zip(made.row, made.col, made.data, strict=True)]
    write("ratings.csv", "user,item,rating", lines)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data, columns=list("abcd"))
    dmfvi.save(dmfvi.BayesianPCA(1, random_state=0).fit(frame), d / "model" / "model.npz")
    line = dmfvi.BayesianLinearRegression().fit(frame[["b", "c", "d"]], frame["a"])
    dmfvi.save(line, d / "line" / "model.npz")
    rates = dmfvi.RatingFactorization(1, max_iter=1, n_choice_features=0, random_state=0)
    dmfvi.save(rates.fit((made.row, made.col, made.data)), d / "rates" / "model.npz")
    counts = np.arange(12.0).reshape(6, 2)
    dmfvi.save(dmfvi.infer(PoissonGamma(2), [counts]), d / "result.npz")
    nodes = {
        "n0": (0, 7447, "good.csv", ""),
        "n0b": (0, 7448, "again.csv", ""),
        "n1": (1, 7447, "again.csv", ""),
        "n2": (2, 7450, "good.csv", ""),
        "n3": (3, 7448, "good.csv", "[peers]\n4 = '127.0.0.1:7000'\n"),
        "n4": (4, 7449, "again.csv", ""),
    }
    for name, (number, port, file, more) in nodes.items():
        text = f"[node]\nid = {number}\nlisten = '127.0.0.1:{port}'\ndata = '{file}'\nout = 'o-{name}'\n{more}"
        (d / f"{name}.toml").write_text(text)


def check(case: Case, folder: Path) -> None:
    """Run a command in ``folder``; it must say what is wrong in one sentence and end with its code."""
    if case.file is not None:
        name, content = case.file
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).write_text(content)
    words = (word.replace("{d}", str(folder)) for word in split(case.words))
    said = dmfvi_command(*words)
    told = said.err.replace("│ ", "")
    assert case.says in told
    assert said.code == case.code
    assert "Traceback" not in told
    assert "RuntimeWarning" not in told
    assert "np.float64" not in told
    assert "zip()" not in told
