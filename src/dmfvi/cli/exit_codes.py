"""Exit codes, the same in every command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command has ended."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    PARTIAL = 3  # the data of a node are missing from the result, which is saved
    NOT_CONVERGED = 4  # the result is saved
    INTERRUPTED = 130
