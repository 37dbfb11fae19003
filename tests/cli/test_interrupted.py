"""A command that Ctrl-C ends says so in one line, with what is kept and what is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_run import dmfvi_command
from dmfvi.cli.exit_codes import ExitCode
from sessions import HUNG, started


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def table(folder: Path) -> Path:
    file = folder / "rows.npy"
    np.save(file, np.random.default_rng(0).normal(size=(30, 3)))
    return file


@pytest.mark.parametrize(
    ("where", "earlier", "words"),
    [
        ("dmfvi.deploy.kinds.ModelSettings.read", False, "FILE is not written"),
        ("dmfvi.deploy.kinds.ModelSettings.read", True, "the earlier FILE is unchanged"),
        ("dmfvi.parameters.keep_table", False, "FILE is not written"),
        (
            "dmfvi.parameters.keep_table",
            True,
            "FILE is not written, the earlier one is FILE.old",
        ),
        ("dmfvi.cli.fit.tell", True, "FILE is written"),
    ],
    ids=["reading", "reading, earlier", "fitted", "fitted, earlier", "saved"],
)
def test_an_interrupted_fit(
    where: str, earlier: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = ("fit", table(tmp_path), "--components", 1, "--out", tmp_path / "m", "--quiet")
    file = tmp_path / "m" / "model.npz"
    if earlier:
        assert dmfvi_command(*fit).code == ExitCode.DONE
    monkeypatch.setattr(where, interrupt)
    said = dmfvi_command(*fit)
    assert said == (ExitCode.INTERRUPTED, "", "interrupted: " + words.replace("FILE", str(file)))
    assert file.exists() == ("written" not in words or words == "FILE is written")


@pytest.mark.parametrize(
    ("command", "where", "words"),
    [
        (
            ["reproduce", "cube", "--out", "OUT"],
            "dmfvi.experiments.runner.run_experiment",
            "finished cases are kept in OUT/cases, the same command continues",
        ),
        (["warmup"], "dmfvi.warmup.warm_up", "what is compiled is kept"),
        (["demo", "--out", "OUT"], "dmfvi.demo.run_demo", "no result is written"),
    ],
    ids=["reproduce", "warmup", "demo"],
)
def test_interrupted_commands(
    command: list[str],
    where: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, interrupt)
    out = str(tmp_path / "out")
    said = dmfvi_command(*(word.replace("OUT", out) for word in command))
    assert said.code == ExitCode.INTERRUPTED
    assert f"interrupted: {words.replace('OUT', out)}" in said.err
    assert "Traceback" not in said.err


WORKERS = """
import os, sys, time
from dmfvi.cli import main
from dmfvi.experiments import runner

if __name__ == "__main__":
    case = runner.run_experiment
    def told(*given, on_case, **more):  # as soon as there are workers
        def seen(done, total):
            on_case(done, total)
            if done:
                print("began", flush=True)
        return case(*given, on_case=seen, **more)
    runner.run_experiment = told
    sys.argv = ["dmfvi", "reproduce", "cube", "--full", "--jobs", "2", "--out", sys.argv[1]]
    main()
"""


@pytest.mark.slow
def test_ctrl_c_of_a_terminal_ends_reproduce_and_its_workers_in_one_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORKERS)
    command = [sys.executable, str(program), str(tmp_path / "out")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(command, **pipes) as process:
        assert process.stdout.readline() == "began\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, said = process.communicate(timeout=HUNG)
    assert process.returncode == ExitCode.INTERRUPTED, said
    assert "Traceback" not in said
    assert said.splitlines()[-1].startswith("interrupted: finished cases are kept in ")


def free_ports(number: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def test_ctrl_c_of_a_terminal_lets_the_nodes_of_launch_leave(tmp_path: Path) -> None:
    pytest.importorskip("zenoh")
    ports = free_ports(3)
    for node in (0, 1):  # both wait for a third one
        peers = [f'{n} = "127.0.0.1:{ports[n]}"' for n in range(3) if n != node]
        np.save(tmp_path / f"{node}.npy", np.random.default_rng(node).normal(size=(30, 3)))
        (tmp_path / f"{node}.toml").write_text(
            f'[node]\nid = {node}\nlisten = "127.0.0.1:{ports[node]}"\ndata = "{node}.npy"\n'
            f'out = "out{node}"\nwait_seconds = {HUNG}\n[peers]\n'
            + "\n".join(peers)
            + "\n[model]\nn_components = 1\n"
        )
    (tmp_path / "all.toml").write_text('nodes = ["0.toml", "1.toml"]')
    command = [sys.executable, "-m", "dmfvi", "launch", str(tmp_path / "all.toml"), "--insecure"]

    def states() -> list[str]:
        files = [tmp_path / f"out{node}" / "status.json" for node in (0, 1)]
        return [json.loads(f.read_text())["state"] if f.exists() else "" for f in files]

    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with started(command, **pipes) as process:
        while states() != ["joining"] * 2:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=HUNG)
    assert process.returncode == ExitCode.INTERRUPTED, said
    assert said.startswith("interrupted: all nodes are stopped")
    assert len(said.splitlines()) == 1
    assert states() == ["left"] * 2
