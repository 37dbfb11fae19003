"""numba, with a word to the user while it compiles; imported by the files ``_*_numba.py`` only."""
# mypy: ignore-errors

from __future__ import annotations

import threading

from numba import njit
from numba.core import event

from dmfvi.compiling import compilation_starts

__all__ = ["njit"]


class _Announcer(event.Listener):
    """Names the kernel that Python called, not those that it calls in turn."""

    def __init__(self) -> None:
        self._local = threading.local()

    def on_start(self, event: event.Event) -> None:
        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        function = event.data["dispatcher"].py_func
        if depth == 0 and function.__module__.startswith("dmfvi."):
            compilation_starts(function.__name__)

    def on_end(self, event: event.Event) -> None:
        self._local.depth -= 1


event.register("numba:compile", _Announcer())
