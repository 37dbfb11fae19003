"""The simulated clock: time passes when all wait, and only then."""

from __future__ import annotations

import threading
import time

from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.inproc import Hub, InProcessTransport


def test_an_hour_takes_no_time() -> None:
    clock, began = SimulatedClock(), time.monotonic()
    clock.sleep(3600.0)
    assert clock() == 3600.0
    assert time.monotonic() - began < 600.0


def test_time_stands_still_while_somebody_works() -> None:
    clock = SimulatedClock()
    clock.join()  # this thread
    clock.join()
    woken: list[float] = []

    def sleeper() -> None:
        clock.sleep(5.0)
        woken.append(clock())
        clock.leave()

    thread = threading.Thread(target=sleeper, daemon=True)
    thread.start()
    while not clock.waiting:  # it sleeps, and this thread works
        time.sleep(0.01)
    assert clock() == 0.0
    clock.sleep(3.0)
    assert (clock(), woken) == (3.0, [])
    clock.sleep(3.0)
    thread.join(60.0)
    assert (clock(), woken) == (6.0, [5.0])


def test_a_frame_ends_a_wait_before_its_time() -> None:
    hub = Hub(SimulatedClock())
    hub.clock.join()
    hub.clock.join()
    one, other = InProcessTransport(hub, 0, (1,)), InProcessTransport(hub, 1, (0,))
    got: list[object] = []

    def listen() -> None:
        got.extend([one.receive(60.0), hub.clock(), one.receive(1.0), hub.clock()])
        hub.clock.leave()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    hub.clock.sleep(2.0)
    other.send(b"frame")
    hub.clock.leave()
    thread.join(60.0)
    assert got == [(1, b"frame"), 2.0, None, 3.0]
