"""Clocks: the time that nodes use, real or simulated.

Everything on a network that waits takes a clock, so that tests need not: a simulated clock advances only when every
thread that takes part in it waits, straight to the earliest moment that one of them waits for. Nothing then depends on
how fast or how busy the machine is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf


class Clock:
    """Real time, in seconds from an arbitrary moment."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Clock], tuple[()]]:
        """A copy is a clock of its own: threads that take part in this one are not copied."""
        return type(self), ()

    def __call__(self) -> float:
        """The present moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def join(self) -> None:
        """One more thread takes part in this clock; real time does not care."""

    def leave(self) -> None:
        """A thread has ended, or no longer uses this clock."""

    def condition(self) -> threading.Condition:
        """Something that threads can wait for; all conditions of a clock share one lock."""
        return threading.Condition(self.lock)

    def wait(
        self, changed: threading.Condition, ready: Callable[[], bool], timeout: float = inf
    ) -> bool:
        """Wait until ``ready()``, for at most ``timeout`` seconds; whether it is.

        Called with the lock held. The thread that makes it ready notifies ``changed``.
        """
        return bool(changed.wait_for(ready, None if timeout == inf else timeout))


class SimulatedClock(Clock):
    """Time that stands still while any thread that takes part in it works.

    A thread takes part from ``join()``, which its starter should call before it runs, until ``leave()``.
    Computing takes no time: only waits and sleeps do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.members = 0
        self.waiting: dict[int, tuple[float, Callable[[], bool], threading.Condition]] = {}
        self.nothing = self.condition()

    def __call__(self) -> float:
        with self.lock:
            return self.now

    def join(self) -> None:
        with self.lock:
            self.members += 1

    def leave(self) -> None:
        with self.lock:
            self.members -= 1
            self._advance()

    def sleep(self, seconds: float) -> None:
        with self.lock:
            self.wait(self.nothing, lambda: False, seconds)

    def wait(
        self, changed: threading.Condition, ready: Callable[[], bool], timeout: float = inf
    ) -> bool:
        deadline = self.now + timeout
        me = threading.get_ident()
        while not ready():
            if self.now >= deadline:
                return False
            self.waiting[me] = deadline, ready, changed
            try:
                if not self._advance():
                    changed.wait()
            finally:
                self.waiting.pop(me, None)
        return True

    def _advance(self) -> bool:
        """Advance to the next moment that a thread waits for, if all wait; returns whether time has passed."""
        known = list(self.waiting.values())
        if not known or len(known) < self.members or any(ready() for _, ready, _ in known):
            return False
        earliest = min(deadline for deadline, _, _ in known)
        if earliest == inf or earliest <= self.now:  # nothing to come, or a thread is due already
            return False
        self.now = earliest
        for deadline, _, changed in known:
            if deadline <= self.now:
                changed.notify_all()
        return True


#: the default clock
REAL = Clock()
