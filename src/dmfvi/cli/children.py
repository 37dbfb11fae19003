"""Child processes that share what their parent has loaded, and end with it, whatever ends it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable
from multiprocessing.context import ForkProcess
from pathlib import Path

from dmfvi.lifetime import end_with_parent

#: seconds for a process to end by itself
GRACE = 3.0


def start_command(arguments: list[str], stderr: Path) -> ForkProcess:
    """Run ``dmfvi`` with these arguments in a fork of this process: nothing is imported again."""
    context = multiprocessing.get_context("fork")
    parent = os.getpid()
    process = context.Process(target=_run, args=(arguments, stderr, parent), daemon=True)
    process.start()
    return process


def end_all(processes: Iterable[ForkProcess]) -> None:
    """Let processes leave and write their last status; kill those that have not after a while."""
    running = [process for process in processes if process.is_alive()]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + GRACE
    for process in running:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


def _run(arguments: list[str], stderr: Path, parent: int) -> None:
    from dmfvi.cli.entry import main

    end_with_parent(parent)
    for stream, target in ((1, os.devnull), (2, str(stderr))):
        opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, stream)
        os.close(opened)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # of Ctrl-C the parent is told, and ends its children
    sys.argv = ["dmfvi", *arguments]
    main()
