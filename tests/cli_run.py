"""Commands of the shell, run in this process."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import NamedTuple
from unittest.mock import patch

from dmfvi.cli import main


class Said(NamedTuple):
    """How a command ended and what it printed, with single spaces between words."""

    code: int
    out: str
    err: str


def dmfvi_command(*words: object) -> Said:
    """Run ``dmfvi`` with these words."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["dmfvi", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Said(code, " ".join(out.getvalue().split()), " ".join(err.getvalue().split()))
