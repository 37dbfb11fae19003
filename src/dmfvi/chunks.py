"""Compiled loops over chunks of work, in one Python thread or in several.

Threads live for one call only: numba's own pool does not survive a fork, and one of its layers ends the process when two
threads use it at once. Kernels release the interpreter lock (``nogil=True``).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

#: ranges that each thread takes on average, so that one on a busy core does not keep the others waiting
RANGES_PER_THREAD = 4


def thread_count() -> int:
    """As many as numba would use: the variable NUMBA_NUM_THREADS, or else the cores that the process may use."""
    from numba import config

    return int(config.NUMBA_NUM_THREADS)


def over_chunks(
    kernel: Callable[..., Any], n_chunks: int, *given: Any, threads: int | None = None
) -> None:
    """Call ``kernel(first, last, *given)`` once for all chunks, or for ranges of them in several threads.

    Each chunk writes to rows of its own: results depend on the chunks, not on the threads that work on them.
    """
    workers = min(n_chunks, thread_count() if threads is None else threads)
    if workers <= 1:
        kernel(0, n_chunks, *given)
        return
    n_ranges = min(n_chunks, RANGES_PER_THREAD * workers)
    following = itertools.count()
    errors: list[BaseException] = []

    def work() -> None:
        while not errors and (at := next(following)) < n_ranges:
            try:
                kernel(at * n_chunks // n_ranges, (at + 1) * n_chunks // n_ranges, *given)
            except BaseException as error:  # also an interrupt: the others stop, too
                errors.append(error)

    started: list[threading.Thread] = []
    try:
        for _ in range(workers - 1):
            thread = threading.Thread(target=work, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads allowed: the work is done all the same
                break
            started.append(thread)
        work()
        for thread in started:
            thread.join()
    except BaseException as error:
        errors.append(error)
        raise
    if errors:
        raise errors[0]
