"""Processes that end with the one that started them, whatever ends it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: of Linux's prctl
PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int | None = None) -> None:
    """Let this process be terminated when its parent ends, even by SIGKILL (Linux; elsewhere nothing is done).

    ``parent`` is the parent's process id where it is known, for one that has ended already.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def exit_on_termination() -> None:
    """Let SIGTERM end this process by ``SystemExit(143)``, once: a second one would cut short what the first cleans up.

    Linux repeats the signal of :func:`end_with_parent` for every thread of the parent that ends.
    """

    def leave(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(143)

    signal.signal(signal.SIGTERM, leave)


_interrupts: list[int] = []


def remember_interrupts() -> None:
    """Let Ctrl-C be noticed at the next :func:`raise_if_interrupted` too: C code may drop an exception raised within it."""

    def interrupt(number: int, frame: object) -> None:
        _interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def raise_if_interrupted() -> None:
    """Raise the KeyboardInterrupt that was raised before and lost."""
    if _interrupts:
        _interrupts.clear()
        raise KeyboardInterrupt


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C for a moment; processes that start within ignore it as long as they live."""
    if threading.current_thread() is not threading.main_thread():  # only that one may
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def on_interrupt(words: str | Callable[[], str]) -> Iterator[None]:
    """Note on a KeyboardInterrupt within what is kept and what is lost: :func:`interruption` finds it."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        said = words if isinstance(words, str) else words()
        if said:
            interrupt.add_note(said)
        raise


def interruption(error: BaseException) -> list[str] | None:
    """The notes of the KeyboardInterrupt that has led to an error; None where none has."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__cause__ or found.__context__
    return None if found is None else list(getattr(found, "__notes__", []))
