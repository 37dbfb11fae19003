"""Progress: a bar or a table on a terminal, lines elsewhere, JSON for programs; nothing on standard output."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cli_run import dmfvi_command
from dmfvi import BayesianPCA, Network
from dmfvi.progress import Pace, use_json_lines

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 2)) @ RNG.normal(size=(2, 5)) + 0.2 * RNG.normal(size=(60, 5))


@pytest.fixture(autouse=True)
def for_people() -> Iterator[None]:
    yield
    use_json_lines(False)


def fit(verbose: int) -> BayesianPCA:
    network = Network.from_edges([("north", "south"), ("south", "west"), ("west", "north")])
    return BayesianPCA(2, random_state=0, network=network, verbose=verbose).fit(ROWS)


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    fit(0)
    assert capsys.readouterr() == ("", "")
    model = fit(1)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert 1 <= len(lines) < model.n_rounds_  # now and then, and the last one
    assert lines[-1].startswith(f"{model.network.name}: round {model.n_rounds_}/")
    assert " change " in lines[-1]
    fit(2)
    assert len(capsys.readouterr().err.splitlines()) == model.n_rounds_


def test_what_is_not_known_yet_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """In the first round of a network nobody has the bound."""
    BayesianPCA(2, random_state=0, network=Network.ring(5), verbose=2).fit(ROWS)
    first = capsys.readouterr().err.splitlines()[0]
    assert "objective" not in first
    assert "nan" not in first


def test_a_json_object_per_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    use_json_lines()
    model = fit(1)
    out, err = capsys.readouterr()
    assert out == ""
    said = [json.loads(line) for line in err.splitlines()]
    assert [each["round"] for each in said] == list(range(1, model.n_rounds_ + 1))
    assert said[0]["change"] is None  # no sweep yet
    assert said[-1]["change"] == pytest.approx(model.history_["change"][-1])
    assert [each["node"] for each in said[-1]["nodes"]] == ["north", "south", "west"]
    assert said[-1]["done"] == 1.0


def read_to_the_end(terminal: int) -> Iterator[bytes]:
    """What is written to a pseudo-terminal until its other end is closed: one read may return a part of it."""
    with contextlib.suppress(OSError):  # Linux reports the end as an input/output error
        while part := os.read(terminal, 1 << 16):
            yield part


@pytest.mark.parametrize(("verbose", "wanted"), [(1, ["round", "change"]), (2, ["north", "south"])])
def test_a_terminal(verbose: int, wanted: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A real pseudo-terminal, as a shell has it."""
    ours, theirs = pty.openpty()
    parts: list[bytes] = []
    reader = threading.Thread(target=lambda: parts.extend(read_to_the_end(ours)))
    reader.start()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        patched.setenv("TERM", "xterm")
        fit(verbose)
    reader.join()
    os.close(ours)
    shown = b"".join(parts).decode()
    assert all(word in shown for word in wanted), shown


def test_what_is_left_follows_from_what_is_done() -> None:
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    now[0] = 30.0
    assert pace.left(0.25) == pytest.approx(90.0)
    assert pace.left(1.0) == 0.0


def test_time_before_the_first_advance_does_not_count() -> None:
    """Half a minute of compiling before ten digits that take a second each: ten seconds are left, not many minutes."""
    now = [0.0]
    pace = Pace(clock=lambda: now[0])
    for second in range(31):
        now[0] = float(second)
        assert pace.left(0.0) is None
    now[0] = 30.1
    assert pace.left(0.01) is None  # too little to tell
    now[0] = 31.0
    assert pace.left(0.1) == pytest.approx(9.0)


@pytest.mark.parametrize("flags", [["-q"], [], ["-v"], ["--json"], ["--json", "-v"], ["-q", "-v"]])
def test_how_much_the_shell_shows(flags: list[str], tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    np.savetxt(table, ROWS, delimiter=",")
    command = ["fit", str(table), "--components", "2", "--nodes", "3", "--out", str(tmp_path / "m")]
    said = dmfvi_command(*command, *flags)
    if flags == ["-q", "-v"]:
        assert said.code == 1
        assert "--quiet and --verbose exclude each other" in said.err
        return
    assert said.code == 0, said.err
    progress = [line for line in said.err.splitlines() if "round" in line]
    assert bool(progress) == (flags not in (["-q"], ["--json"]))
    if "--json" in flags:
        assert json.loads(said.out)["rounds"] >= 1
        assert all(line.startswith('{"event": "progress"') for line in progress)
