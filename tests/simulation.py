"""A deterministic simulation of nodes on a network: the protocol's own code, with simulated messages, clocks and faults.

A schedule is drawn from a seed: a graph, data, lost, late and doubled messages, and crashes, freezes, cut links,
restarts with the same or other data, two nodes that come back with each other's data, clocks that jump between two
starts, nodes that leave, second nodes with one id and copies of whole machines, neighbours that claim to receive from
a node that has gone, and old views that are sent again. Nothing else is random: a failure is replayed by its seed.

    python tests/simulation.py --replay 4711
    python tests/simulation.py --schedules 1000000 --first 0 --jobs 2

Invariants: a node ends with a result only if that is the result of exactly the members and data it names, all of whom
have run with these data; nodes that name the same members and data hold the same bits; no first fit begins with fewer
members than were waited for; no node ends alone while others are there; every run ends.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import heapq
import itertools
import logging
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.consensus import ExactSum
from dmfvi.engines.base import Run, Task
from dmfvi.engines.net import endpoint as endpoints
from dmfvi.engines.net import membership as memberships
from dmfvi.engines.net.clock import Clock
from dmfvi.engines.net.endpoint import Timing
from dmfvi.engines.net.engine import NetworkEngine
from dmfvi.engines.net.epochs import NetworkNode
from dmfvi.engines.net.frames import VIEW
from dmfvi.engines.net.lifecycle import Lifecycle, Outcome
from dmfvi.engines.net.membership import Share
from dmfvi.inference.model import Update
from dmfvi.network import Network
from dmfvi.node import Job
from dmfvi.storage.journal import Journal

#: simulated seconds after which a run has not ended
TOO_LONG = 2000.0
#: sweeps of the simulated fit
SWEEPS = 2
#: offset of a frame's kind
KIND = 5
#: what goes wrong
FAULTS = (
    "crash",
    "restart",
    "other data",
    "swap",
    "freeze",
    "cut",
    "leave",
    "twin",
    "copy",
    "deaf",
    "replay",
)


class Networks:
    """Stands for ``Network`` where a view makes one: one object for each graph, which finds its tree once."""

    known = staticmethod(lru_cache(maxsize=4096)(Network.of_component))

    @classmethod
    def of_component(cls, n_nodes: int, edges: list[tuple[int, int]]) -> Network:
        return cls.known(n_nodes, tuple(edges))


#: what is other in the simulation than elsewhere, by module and name
SHORTCUTS: dict[tuple[Any, str], Any] = {
    # shorter, as all times of the simulation are: two nodes with one id outbid each other until one has had enough
    (endpoints, "MOST_CONFLICTS"): 6,
    # one frame goes to several neighbours, and a view is sent again and again: reading is a function of the bytes
    (endpoints, "unpack"): lru_cache(maxsize=512)(endpoints.unpack),
    (memberships, "_read"): lru_cache(maxsize=512)(memberships._read),
    (memberships, "Network"): Networks,
}


@contextmanager
def shortcuts() -> Iterator[None]:
    """While schedules run, and not for other tests of the same process."""
    before = {(module, name): getattr(module, name) for module, name in SHORTCUTS}
    for (module, name), value in SHORTCUTS.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


class Violation(AssertionError):
    """An invariant does not hold."""


# -- a small fit ----------------------------------------------------------------------------------


class Halves:
    """A model of one number: every sweep goes half of the way to the data's sum, by a nonlinear step."""

    beliefs_alike = True

    def statistics(self, shard: float, belief: float) -> np.ndarray:
        return np.array([shard, shard * math.tanh(belief)])

    def absorb(self, total: np.ndarray, own: np.ndarray, belief: float) -> Update:
        return Update(0.5 * belief + 0.5 * float(total[0]) + 0.1 * float(total[1]), 0.0, False)

    def change(self, new: float, old: float) -> float:
        return abs(new - old)

    def describe(self, place: int) -> str:
        return f"number {place}"


MODEL = Halves()


@lru_cache(maxsize=100_000)
def pooled(values: tuple[float, ...]) -> float:
    """What one machine with all the data would have computed."""
    belief = 0.0
    for _ in range(SWEEPS):
        statistics = [MODEL.statistics(value, belief) for value in values]
        total = np.array([math.fsum(column) for column in zip(*statistics, strict=True)])
        belief = MODEL.absorb(total, total, belief).belief
    return belief


class Disk:
    """What survives a crash of one machine."""

    def __init__(self) -> None:
        self.journals: dict[str, Any] = {}
        self.entry: dict[str, Any] | None = None


class MemoryJournal(Journal):
    """A journal on a simulated disk."""

    def __init__(self, disk: Disk, node: int, fingerprint: str) -> None:
        super().__init__(Path(), node, fingerprint, every=1)
        self.disk = disk

    def resume(self) -> bool:
        known = self.disk.journals.get(self.fingerprint)
        if known is None:
            return False
        self.finished, self.snapshots = known
        return True

    def _write(self) -> None:
        self.disk.journals = {self.fingerprint: (dict(self.finished), list(self.snapshots))}


# -- time, messages, processes --------------------------------------------------------------------


class SteppedClock(Clock):
    """The time of a simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """A node that leaves does not wait."""


@dataclass
class Process:
    """One run of a node's program."""

    number: int
    node: int
    value: float
    endpoint: NetworkNode
    steps: Generator[float, None, Outcome[float]]
    wake_at: float = 0.0
    frozen_until: float = 0.0
    met: int = (
        0  # members at most before its first fit, with those who had left after they began a fit
    )
    began: bool = False  # a fit with others
    alive: bool = True
    outcome: Outcome[float] | None = None
    error: str | None = None


class Wire:
    """What a node sends by."""

    def __init__(self, simulation: Simulation, node: int) -> None:
        self.simulation, self.node = simulation, node

    def send(self, data: bytes) -> None:
        self.simulation.send(self.node, data)


@dataclass
class Simulation:
    """All machines, the messages between them, and what is going to happen."""

    seed: int
    clock: SteppedClock = field(default_factory=SteppedClock)
    queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(
        default_factory=list
    )
    order: Any = field(default_factory=itertools.count)
    processes: list[Process] = field(default_factory=list)
    values: dict[bytes, float] = field(default_factory=dict)  # digest -> data
    cut: set[frozenset[int]] = field(default_factory=set)
    said: list[tuple[int, bytes]] = field(default_factory=list)  # views, by sender
    log: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        self.n_nodes = rng.choice((2, 3, 3, 4, 5))
        self.edges = random_graph(rng, self.n_nodes)
        self.neighbours_of = [
            tuple(sorted(a if b == node else b for a, b in self.edges if node in (a, b)))
            for node in range(self.n_nodes)
        ]
        self.loss = rng.choice((0.0, 0.0, 0.05, 0.2))
        self.late = rng.choice((0.001, 0.05, 0.4))
        self.doubled = rng.choice((0.0, 0.1))
        self.timings = [
            Timing(
                patience=0.3,
                silence=rng.choice((3.0, 5.0)),
                settle=0.5,
                linger=rng.choice((0.0, 1.0, 4.0, 12.0)),
                heartbeat=1.0,
            )
            for _ in range(self.n_nodes)
        ]
        self.wait_for = rng.choice((self.n_nodes, self.n_nodes, 2, 1))
        self.disks = [Disk() for _ in range(self.n_nodes)]
        self.recording = False
        # nodes of one process that hold the same vectors add them once
        rule = ExactSum("flood", resend=True)
        self.job = Job(MODEL, rule, fixed_sweeps=SWEEPS)  # type: ignore[arg-type]

    # -- events -------------------------------------------------------------------------

    def at(self, moment: float, event: Callable[..., None], *given: Any) -> None:
        heapq.heappush(self.queue, (moment, next(self.order), event, given))

    def say(self, text: str) -> None:
        self.log.append(f"{self.clock.now:9.3f}  {text}")

    def neighbours(self, node: int) -> tuple[int, ...]:
        return self.neighbours_of[node]

    def send(self, node: int, data: bytes) -> None:
        """Frames go to whatever runs as a neighbour's id when they arrive."""
        chance, soonest = self.rng.random, self.clock.now + 0.001
        loss, late, doubled = self.loss, self.late, self.doubled
        if self.recording and data[KIND] == VIEW:
            self.said.append((node, data))
        for peer in self.neighbours_of[node]:
            if (self.cut and frozenset((node, peer)) in self.cut) or chance() < loss:
                continue
            given = (peer, node, data)
            for _ in range(2 if chance() < doubled else 1):
                moment = soonest + chance() * late
                heapq.heappush(self.queue, (moment, next(self.order), self.arrive, given))

    def arrive(self, node: int, peer: int, data: bytes) -> None:
        for process in self.processes:
            if process.node == node and process.alive:
                if process.frozen_until > self.clock.now:
                    again = process.frozen_until + 1e-6
                    self.at(again, self.hand_over, process, peer, data)
                else:
                    self.step(process, peer, data)

    def hand_over(self, process: Process, peer: int, data: bytes) -> None:
        if process.alive:
            self.step(process, peer, data)

    def wake(self, process: Process) -> None:
        if not process.alive:
            return
        if process.frozen_until > self.clock.now:
            self.at(process.frozen_until, self.wake, process)
        elif process.wake_at <= self.clock.now + 1e-9:
            self.step(process)

    def step(self, process: Process, peer: int = -1, data: bytes | None = None) -> None:
        """What the driver of a real node does: read a frame, look at the clock, go on.

        In schedules of odd seeds a frame that brings nothing new does not wake the node, which saves time.
        """
        endpoint = process.endpoint
        view, received = endpoint.view, endpoint.counts.received
        try:
            if data is not None:
                endpoint.handle(peer, data)
            endpoint.tick()
            if (
                data is not None
                and view is endpoint.view
                and received == endpoint.counts.received
                and process.wake_at > self.clock.now + 1e-9
                and self.seed % 2
            ):
                return  # nothing new: it goes on when it is due
            if endpoint.epoch < 0:
                process.met = max(process.met, self.met_by(endpoint))
            seconds = next(process.steps)
            process.began = process.began or (endpoint.epoch >= 0 and len(endpoint.members) > 1)
            if endpoint.unannounced:
                endpoint.tick()
        except StopIteration as end:
            process.alive, process.outcome = False, end.value
            self.say(f"{name(process)} ends with {sorted(end.value.members)}")
        except (TimeoutError, ValueError) as error:
            process.alive, process.error = False, str(error)
            self.say(f"{name(process)} fails: {error}")
        else:
            now = self.clock.now
            beat = endpoint.announced_at + endpoint.timing.heartbeat - now
            due = now + max(1e-6, min(seconds, beat))
            if due < process.wake_at or process.wake_at <= now + 1e-9:
                process.wake_at = due
                self.at(due, self.wake, process)

    # -- processes ----------------------------------------------------------------------

    def start(self, node: int, value: float, disk: Disk | None = None) -> Process:
        number, disk = len(self.processes), disk or self.disks[node]
        digest = hashlib.sha256(f"{node} {value}".encode()).digest()
        self.values[digest] = value
        share = Share(self.rng.getrandbits(60), 0, digest, 1)
        jump = self.rng.choice((0, 0, 0, -500, 500))  # of the machine's clock since the last start
        version = 1000 + int(self.clock.now) + jump
        endpoint = NetworkNode(
            node,
            self.neighbours(node),
            Wire(self, node),  # type: ignore[arg-type]
            b"m" * 16,
            version,
            self.timings[node],
            clock=self.clock,
            share=share,
        )
        if disk.entry is not None:
            endpoint.come_back(disk.entry)

        begun: list[int] = []

        def fit(network: Network) -> Generator[float, None, float]:
            if not begun and process.met < self.wait_for:
                raise Violation(f"node {node} has met {process.met} nodes")
            begun.append(endpoint.epoch)
            disk.entry = endpoint.view.remembered()
            journal = MemoryJournal(disk, node, f"{digest.hex()} {endpoint.epoch}")
            journal.resume()
            engine = NetworkEngine(endpoint, journal)
            if network.n_nodes == 1:
                others = [e for n, e in endpoint.view.entries.items() if n != node]
                if self.wait_for > 1 and not all(entry.left for entry in others):
                    raise Violation(f"node {node} goes on alone")
                return pooled((value,))
            task = Task(self.job, network, [value], [0.0], 100_000)
            run: Run = yield from engine.rounds(task)
            return float(run.beliefs[0])

        lifecycle = Lifecycle(endpoint, fit, lambda outcome: None, self.wait_for, 15.0)
        process = Process(number, node, value, endpoint, lifecycle.steps())
        self.processes.append(process)
        self.say(f"{name(process)} starts with {value:.4f}")
        self.at(self.clock.now, self.wake, process)
        return process

    def met_by(self, endpoint: NetworkNode) -> int:
        """How many nodes are there for this one, with those who have left after a process of theirs began a fit."""
        view = endpoint.view
        left = {node for node, entry in view.entries.items() if entry.left}
        return len(view.component) + len(
            left and left & {process.node for process in self.processes if process.began}
        )

    def running(self) -> list[Process]:
        return [process for process in self.processes if process.alive]

    def crash(self, process: Process) -> None:
        if process.alive:
            process.alive = False
            self.say(f"{name(process)} crashes")

    def leave(self, process: Process) -> None:
        if process.alive:
            process.endpoint.leave()
            process.alive = False
            self.say(f"{name(process)} leaves")

    # -- a run --------------------------------------------------------------------------

    def run(self) -> None:
        rng = self.rng
        for node in range(self.n_nodes):
            begins = rng.choice((0.0, 0.0, rng.random() * 2.0, rng.random() * 8.0))
            value = rng.uniform(-1.0, 1.0)
            self.at(begins, self.start, node, value)  # type: ignore[arg-type]
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            moment = rng.choice((rng.random() * 1.5, rng.random() * 12.0))
            self.at(moment, self.fault())
        self.play()
        if self.running():
            raise Violation(f"{[name(p) for p in self.running()]} wait for nothing")
        self.check()

    def play(self) -> None:
        """All that is going to happen, in its order."""
        queue, clock = self.queue, self.clock
        while queue:
            moment, _, event, given = heapq.heappop(queue)
            clock.now = max(clock.now, moment)
            if moment > TOO_LONG:
                raise Violation(f"{[name(p) for p in self.running()]} have not ended")
            event(*given)

    def fault(self) -> Callable[[], None]:
        """Something that goes wrong."""
        rng = self.rng
        kind = rng.choice(FAULTS)
        self.faults[kind] += 1
        self.recording = self.recording or kind == "replay"
        node, seconds = (
            rng.randrange(self.n_nodes),
            rng.choice((0.1, 1.0, 4.0, 20.0)) * rng.random(),
        )
        value, keeps_disk = rng.uniform(-1.0, 1.0), rng.random() < 0.8

        def happen() -> None:
            now, running = self.clock.now, [p for p in self.running() if p.node == node]
            if kind == "cut":
                edge = frozenset(rng.choice(self.edges))
                self.cut.add(edge)
                self.at(now + seconds, self.cut.discard, edge)
                self.say(f"link {sorted(edge)} is cut for {seconds:.2f}")
            elif kind == "twin":
                self.start(node, value, Disk())
            elif kind == "replay":
                self.replay()
            elif not running:
                return
            elif kind == "freeze":
                running[0].frozen_until = now + seconds
                self.say(f"{name(running[0])} is frozen for {seconds:.2f}")
            elif kind == "leave":
                self.leave(running[0])
            elif kind == "deaf":
                endpoint = running[0].endpoint
                endpoint.timing = replace(endpoint.timing, silence=10.0 * endpoint.timing.silence)
                self.say(f"{name(running[0])} claims to receive from whoever has gone")
            elif kind == "copy":  # of the whole machine: data, checkpoint and entry
                self.start(node, running[0].value, copy(self.disks[node]))
            elif kind == "swap":
                self.swap(running[0], seconds)
            else:
                self.crash(running[0])
                if not keeps_disk:
                    self.disks[node] = Disk()
                again = value if kind == "other data" else running[0].value
                if kind != "crash":
                    self.at(now + seconds, self.start, node, again)  # type: ignore[arg-type]

        return happen

    def swap(self, one: Process, seconds: float) -> None:
        """Two nodes crash and come back at once, each with the other's data."""
        others = [process for process in self.running() if process.node != one.node]
        if not others:
            return
        other = self.rng.choice(others)
        for process, value in ((one, other.value), (other, one.value)):
            self.crash(process)
            self.at(self.clock.now + seconds, self.start, process.node, value)  # type: ignore[arg-type]

    def replay(self) -> None:
        """Views that were sent before are sent again: some of nodes that have gone or have changed since."""
        for sender, data in self.rng.choices(self.said, k=min(5, len(self.said))):
            for peer in self.neighbours(sender):
                self.at(self.clock.now, self.arrive, peer, sender, data)
        self.say("old views are sent again")

    # -- invariants ---------------------------------------------------------------------

    def check(self) -> None:
        bits: dict[Any, float] = {}
        for process in self.processes:
            outcome = process.outcome
            if outcome is None:
                continue
            named = tuple(sorted(outcome.members.items()))
            values = tuple(self.values[share.digest] for _, share in named)
            wanted = pooled(values)
            if abs(outcome.result - wanted) > 1e-9 * max(1.0, abs(wanted)):
                raise Violation(
                    f"{name(process)} ends with {outcome.result}, but the data of {sorted(outcome.members)} give {wanted}"
                )
            data = tuple((node, share.digest) for node, share in named)
            if bits.setdefault(data, outcome.result) != outcome.result:
                raise Violation(f"two nodes name {sorted(outcome.members)} and hold other bits")
            if outcome.members[process.node].digest != process.endpoint.view.own.share.digest:
                raise Violation(f"{name(process)} names other data than its own")
            unnamed = set(process.endpoint.view.entries) - set(outcome.members)
            if not unnamed <= {each.node for each in outcome.missing}:
                raise Violation(f"{name(process)} does not say that {sorted(unnamed)} are missing")
        quiet = not self.faults and not self.loss and self.wait_for == self.n_nodes
        if quiet and not all(
            p.outcome is not None and len(p.outcome.members) == self.n_nodes for p in self.processes
        ):
            raise Violation("nothing went wrong, and not all nodes ended with everybody's data")


def name(process: Process) -> str:
    return f"node {process.node} (process {process.number})"


def random_graph(rng: random.Random, n_nodes: int) -> list[tuple[int, int]]:
    """A tree, and some more links."""
    edges = {(rng.randrange(node), node) for node in range(1, n_nodes)}
    for a, b in itertools.combinations(range(n_nodes), 2):
        if rng.random() < 0.3:
            edges.add((a, b))
    return sorted(edges)


def simulate(seed: int) -> Simulation:
    """One schedule; raises ``Violation`` with its seed and story."""
    simulation = Simulation(seed)
    try:
        with shortcuts():
            simulation.run()
    except Exception as error:
        story = "\n".join(simulation.log)
        raise Violation(
            f"seed {seed}: {error!r}\n{story}\nreplay: python tests/simulation.py --replay {seed}"
        ) from error
    return simulation


def explore(first: int, count: int) -> Mapping[str, int]:
    """So many schedules one after the other; how many faults there were, and how the nodes ended."""
    found: Counter[str] = Counter()
    for seed in range(first, first + count):
        simulation = simulate(seed)
        found.update(simulation.faults)
        for process in simulation.processes:
            if process.outcome is not None:
                found["ended" if not process.outcome.missing else "ended partial"] += 1
            elif process.error is not None:
                found["refused"] += 1
    return found


def _collect_less() -> None:
    gc.freeze()  # what has been imported is no garbage
    gc.set_threshold(20_000, 20, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replay", type=int, help="one seed, with its story")
    given = parser.parse_args()
    if given.replay is not None:
        print("\n".join(simulate(given.replay).log))
        return
    began, total = time.monotonic(), Counter[str]()
    size = 1000
    parts = [
        (at, min(size, given.first + given.schedules - at))
        for at in range(given.first, given.first + given.schedules, size)
    ]
    with ProcessPoolExecutor(given.jobs, initializer=_collect_less) as pool:
        for done, found in enumerate(pool.map(explore, *zip(*parts, strict=True)), 1):
            total.update(found)
            if done % 10 == 0 or done == len(parts):
                count = sum(number for _, number in parts[:done])
                spent = 1e3 * (time.monotonic() - began) / count
                print(f"{count} schedules, {spent:.2f} ms each: {dict(total)}", flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.exit(main())
