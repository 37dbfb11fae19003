"""Processes end with the one that started them, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

PARENT = """
import os, subprocess, sys
from functools import partial
from dmfvi.lifetime import end_with_parent
child = subprocess.Popen(
    [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
    preexec_fn=partial(end_with_parent, os.getpid()), stdout=subprocess.PIPE,
)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
WORKERS = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from dmfvi.experiments.runner import _pool
if __name__ == "__main__":
    with _pool(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        time.sleep(600)
"""


def ended(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl is Linux's")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
@pytest.mark.parametrize("program", [PARENT, WORKERS], ids=["child", "workers of reproduce"])
def test_children_end_with_their_parent(program: str, how: signal.Signals, tmp_path) -> None:
    file = tmp_path / "parent.py"
    file.write_text(program)
    parent = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert not ended(child)
        parent.send_signal(how)
        parent.wait(60)
        deadline = time.monotonic() + 60
        while not ended(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ended(child)
    finally:
        parent.kill()
        parent.wait()
        if not ended(child):
            os.kill(child, signal.SIGKILL)


TERMINATED = """
import sys, time
from dmfvi.lifetime import exit_on_termination
exit_on_termination()
try:
    print("ready", flush=True)
    time.sleep(600)
finally:
    print("leaving", flush=True)
    time.sleep(0.5)
    print("left", flush=True)
"""


def test_a_second_sigterm_does_not_cut_short_what_the_first_cleans_up() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINATED], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "leaving\n"
        process.terminate()
        assert process.stdout.read() == "left\n"
        assert process.wait(60) == 143
    finally:
        process.kill()


SWALLOWED = """
import signal
import numpy as np
from dmfvi import BayesianPCA
from dmfvi.lifetime import remember_interrupts
remember_interrupts()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:  # as C code does that clears the error
    pass
try:
    BayesianPCA(2).fit(np.random.default_rng(0).normal(size=(30, 4)))
except KeyboardInterrupt:
    print("noticed")
"""


def test_ctrl_c_that_was_lost_in_other_code_ends_the_fit_at_its_next_round() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWED], check=False, capture_output=True, text=True
    )
    assert done.stdout == "noticed\n", done.stderr
