"""Child processes that share what their parent has loaded, and end with it, whatever ends it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.context import ForkProcess
from pathlib import Path

from dmfvi.lifetime import end_with_parent


def start_command(arguments: list[str], stderr: Path) -> ForkProcess:
    """Run ``dmfvi`` with these arguments in a fork of this process: nothing is imported again."""
    context = multiprocessing.get_context("fork")
    parent = os.getpid()
    process = context.Process(target=_run, args=(arguments, stderr, parent), daemon=True)
    process.start()
    return process


def _run(arguments: list[str], stderr: Path, parent: int) -> None:
    from dmfvi.cli.entry import main

    end_with_parent(parent)
    for stream, target in ((1, os.devnull), (2, str(stderr))):
        opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, stream)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.argv = ["dmfvi", *arguments]
    main()
