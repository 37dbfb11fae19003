"""Kernels: all are compiled by dmfvi warmup, and whoever waits for one is told."""

from __future__ import annotations

import ast
import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi.compiling import HINT, compilation_starts, told_of_compilation

SOURCE = Path(dmfvi.__file__).parent


def kernels() -> set[tuple[str, str]]:
    """(module, function) of every kernel that Python code imports."""
    found = set()
    for file in SOURCE.rglob("*.py"):
        if file.stem.endswith("_numba"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_numba"):
                found |= {(str(node.module), alias.name) for alias in node.names}
    return found


def test_every_kernel_is_compiled() -> None:
    said = dmfvi_command("warmup")
    assert said.code == 0, said.err
    assert "all is compiled" in said.out
    assert len(kernels()) > 10
    cold = [
        name
        for module, name in sorted(kernels())
        if not getattr(importlib.import_module(module), name).signatures
    ]
    assert not cold


def test_every_kernel_is_announced() -> None:
    """No file takes njit from numba itself."""
    own = [file for file in SOURCE.rglob("_*_numba.py") if "from numba" in file.read_text()]
    assert not own


def test_a_wrong_number_of_components_is_named() -> None:
    said = dmfvi_command("warmup", "--components", 0)
    assert said.code == 1
    assert "--components must be 1 to 32, received 0" in said.err


PROGRAM = """
import numpy as np
from dmfvi.cli import main
import sys
sys.argv = ["dmfvi", "fit", "x.csv", "--model", "bayesian-poisson-regression", "--target", "y"]
main()
"""


def test_a_command_says_what_it_compiles_and_only_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    lines = [f"{a},{n}" for a, n in zip(x, rng.poisson(np.exp(x)), strict=True)]
    (tmp_path / "x.csv").write_text("x,y\n" + "\n".join(lines))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    said = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stderr
        for _ in range(2)
    ]
    assert said[0].count("compiling one_parameter_rows") == 1
    assert "compiling" not in said[1]


def test_programs_log_it_and_terminals_show_it_once(
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dmfvi.compiling._hinted", [])
    with caplog.at_level(logging.INFO, "dmfvi.compiling"):
        compilation_starts("some_rows")
    assert "compiling some_rows" in caplog.text
    assert capsys.readouterr().err == ""  # nobody is at a terminal
    monkeypatch.setattr("dmfvi.compiling._interactive", lambda: True)
    for kernel in ("one", "two"):
        compilation_starts(kernel)
    assert capsys.readouterr().err == HINT + "\n"
    told: list[str] = []
    with told_of_compilation(told.append):
        compilation_starts("three")
    assert told == ["three"]
