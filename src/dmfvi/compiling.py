"""Who is told while a kernel is compiled, which happens once on a machine and takes seconds."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)
_told: list[Callable[[str], None]] = []
_hinted: list[str] = []


def compilation_starts(kernel: str) -> None:
    """Called before a kernel is compiled that no cache holds."""
    logger.info("compiling %s", kernel)
    for tell in _told:
        tell(kernel)
    if not _told and not _hinted and _interactive():
        _hinted.append(kernel)
        print(HINT, file=sys.stderr, flush=True)


HINT = "dmfvi compiles its inner loops on first use, which takes up to a minute once; dmfvi warmup does it ahead"


def _interactive() -> bool:
    """At a terminal or in a notebook somebody wonders why nothing happens."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def told_of_compilation(tell: Callable[[str], None]) -> Iterator[None]:
    """``tell`` is called with the name of each kernel that is compiled within."""
    _told.append(tell)
    try:
        yield
    finally:
        _told.remove(tell)
