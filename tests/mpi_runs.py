"""Runs programs under mpiexec, and what they share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sessions
from dmfvi.datasets import make_ratings

RANKS = 3


def rating_triples(rank: int, text: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A third of the users, who have rated their own choice of items."""
    all_of = make_ratings(6000, seed=3).ratings.tocoo()
    here = (all_of.row % RANKS == rank) & ((all_of.col + rank) % 5 > 0)
    users, items, ratings = all_of.row[here], 7 * all_of.col[here] + 5, all_of.data[here]
    return users, np.array([f"film é {i}" for i in items]) if text else items, ratings


def mpiexec() -> list[str]:
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.skip("no mpiexec: pip install 'dmfvi[mpi]'")
    about = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    open_mpi = "open" in about.stdout.lower() or "prte" in about.stdout.lower()
    return [found, *(["--allow-run-as-root", "--oversubscribe"] if open_mpi else [])]


def run(folder: Path, ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program on ranks to its end; no rank outlives it."""
    command = [*mpiexec(), "-n", str(ranks), sys.executable, "-m", "mpi4py", *arguments]
    environment = os.environ | {"NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    return sessions.run(command, cwd=folder, env=environment)


KILLER = """
import os, sys
from mpi4py import MPI
from dmfvi.storage.journal import Journal
from dmfvi.cli import main

note = Journal.note

def note_and_die(self, phase, number, state):
    note(self, phase, number, state)
    if MPI.COMM_WORLD.Get_rank() == 1 and number == 12:
        os._exit(9)

Journal.note = note_and_die
sys.argv = ["dmfvi", *sys.argv[1:]]
main()
"""

#: dies in the middle of a fit's end: the others have noted that they are done
LATE_KILLER = """
import os, sys
from mpi4py import MPI
from dmfvi.storage.journal import Journal
from dmfvi.cli import main

finish = Journal.finish

def finish_or_die(self, phase, belief):
    if MPI.COMM_WORLD.Get_rank() == 1 and max(self.rounds(phase), default=0) >= 12:
        os._exit(9)
    finish(self, phase, belief)

Journal.finish = finish_or_die
sys.argv = ["dmfvi", *sys.argv[1:]]
main()
"""
