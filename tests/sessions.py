"""Programs that tests start: each in a session of its own, of which nothing outlives the test."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: seconds after which a program has hung, on however busy a machine
HUNG = 600.0


def kill_session(leader: int) -> None:
    """Kill every process of a session: a launcher's children may have process groups of their own."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # after the name, which may hold blanks: state, parent, group, session
            session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, ValueError, IndexError):  # ended meanwhile
            continue
        if session == leader:
            with suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)


@contextmanager
def started(command: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that runs beside the test; whatever happens, it and its children end with the block."""
    process = subprocess.Popen(list(command), start_new_session=True, **settings)
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def run(
    command: Sequence[str], timeout: float = HUNG, **settings: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; it and its children are killed if that takes longer than ``timeout``."""
    with started(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings
    ) as process:
        printed, complaint = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(list(command), process.returncode, printed, complaint)
