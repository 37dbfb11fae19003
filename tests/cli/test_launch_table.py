"""The table of dmfvi launch: a row for each node with rounds, objective, disagreement and the time left."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from dmfvi.cli.node import _table


def shown(folder: Path, statuses: list[dict[str, Any]]) -> str:
    settings, running = {}, {}
    for node, status in enumerate(statuses):
        out = folder / f"out{node}"
        out.mkdir()
        (out / "status.json").write_text(json.dumps(status))
        file = folder / f"node{node}.toml"
        settings[file] = SimpleNamespace(node=node, out=out)
        running[file] = SimpleNamespace(exitcode=None)
    text = io.StringIO()
    Console(file=text, width=80).print(_table(settings, running))
    return text.getvalue()


FITTING: dict[str, Any] = {
    "state": "fitting",
    "members": [0, 1],
    "rounds": 36,
    "change": 6.9e-3,
    "disagreement": 0.0,
    "objective": -213184.4,
    "seconds_left": 7.3,
    "sent_bytes": 1_900_000,
    "refused": {},
}
JOINING: dict[str, Any] = {"state": "joining", "members": [0], "rounds": 0, "refused": {}}


def test_a_node_is_one_line_of_eighty_columns(tmp_path: Path) -> None:
    lines = shown(tmp_path, [FITTING, JOINING]).splitlines()
    (first,) = (line for line in lines if "fitting" in line)
    assert first.split() == [
        "0",
        "fitting",
        "0",
        "1",
        "36",
        "6.9e-03",
        "0.0e+00",
        "-213184",
        "7",
        "s",
        "1.90",
        "MB",
    ]
    (head,) = (line for line in lines if "node" in line and "state" in line)
    for name in ("round", "change", "disagreement", "objective", "left"):
        assert name in head
    assert "refused" not in head
    assert any(line.split() == ["1", "joining", "0", "0", "0.00", "MB"] for line in lines)


def test_refused_messages_have_a_column_where_there_are_any(tmp_path: Path) -> None:
    text = shown(tmp_path, [FITTING | {"refused": {"signature": 3}}, FITTING])
    assert "refused" in text
    assert [line.split()[-1] for line in text.splitlines() if "fitting" in line] == ["3", "0"]


@pytest.mark.parametrize("code", [1, 3])
def test_an_ended_process_says_its_code(code: int, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    settings: dict[Path, Any] = {file: SimpleNamespace(node=0, out=tmp_path)}
    running: dict[Path, Any] = {file: SimpleNamespace(exitcode=code)}
    text = io.StringIO()
    Console(file=text, width=80).print(_table(settings, running))
    assert f"ended with {code}" in text.getvalue()
