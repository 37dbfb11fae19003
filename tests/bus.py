"""Nodes in threads on a simulated clock: the node's own program with everything but the socket.

Time passes only while every node, and the test itself, waits: no test here depends on how busy the machine is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dmfvi.deploy.config import NodeConfig
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.deploy.program import NodeProgram
from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.endpoint import Timing
from dmfvi.engines.net.faults import Faults, FaultyTransport
from dmfvi.engines.net.inproc import Hub, HubClosed, InProcessTransport
from dmfvi.network import Network
from dmfvi.storage import load
from estimator_cases import as_data


class Killed(BaseException):
    """A node dies: no final message, nothing tidied up."""


class Cluster:
    """One program a node, each in a thread of its own; close it when done."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        shards: list[Any],
        *,
        faults: Faults | None = None,
        timing: Timing | None = None,
        model: ModelSettings | None = None,
        every: int = 5,
        compression: str = "none",
    ) -> None:
        self.folder, self.network, self.shards = folder, network, shards
        self.faults = faults or Faults()
        self.timing = timing or Timing(patience=0.05, silence=30.0, settle=0.3, linger=30.0)
        self.model = model or ModelSettings.of(n_components=2, noise="shared")
        self.every, self.compression = every, compression
        self.wait_seconds = 60.0
        self.clock = SimulatedClock()
        self.clock.join()  # the test itself: nothing happens while it works
        self.hub = Hub(self.clock)
        self.ended = self.clock.condition()
        self.transports: dict[int, FaultyTransport] = {}
        self.threads: dict[int, threading.Thread] = {}
        self.alive: set[int] = set()
        self.programs: dict[int, NodeProgram] = {}
        self.rounds: dict[int, int] = {}
        self.members: dict[int, list[list[int]]] = {}
        #: node -> called with its rounds; may sleep on the clock or raise Killed
        self.hooks: dict[int, Callable[[int], None]] = {}
        self.errors: list[BaseException] = []

    def start(self, node: int, wait_for: int | None) -> None:
        neighbours = self.network.neighbours(node)
        inner = InProcessTransport(self.hub, node, neighbours)
        faults = Faults(self.faults.loss, self.faults.delay, self.faults.duplicates, seed=node)
        self.transports[node] = FaultyTransport(inner, faults, self.clock)
        config = NodeConfig(
            node,
            "",
            dict.fromkeys(neighbours, ""),
            Path(),
            self.folder / f"node-{node}",
            self.model,
            self.timing,
            checkpoint_every=self.every,
            wait_for=wait_for,
            wait_seconds=self.wait_seconds,
            compression=self.compression,
        )
        data = as_data(self.shards[node])
        program = NodeProgram(config, self.transports[node], data, clock=self.clock)
        self.programs[node] = program
        watch = program._watch
        original_fit = program.fit

        def fit(network):
            self.members.setdefault(node, []).append(list(program.node.view.component))
            return original_fit(network)

        def observed(record):
            self.rounds[node] = self.rounds.get(node, 0) + 1
            hook = self.hooks.get(node)
            if hook is not None:
                hook(self.rounds[node])
            watch(record)

        program._watch, program.fit = observed, fit

        def work() -> None:
            try:
                program.run()
            except (Killed, HubClosed):
                pass
            except BaseException as error:
                self.errors.append(error)
            finally:
                inner.close()
                self.alive.discard(node)

        self.alive.add(node)
        self.threads[node] = self.background(work)

    def background(self, work: Callable[[], None]) -> threading.Thread:
        """Run something in a thread that takes part in the clock."""

        def run() -> None:
            try:
                work()
            finally:
                with self.clock.lock:
                    self.clock.leave()
                    self.ended.notify_all()

        self.clock.join()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def start_all(self) -> None:
        for node in range(self.network.n_nodes):
            self.start(node, self.network.n_nodes)

    def until(self, ready: Callable[[], bool], seconds: float = 3600.0) -> bool:
        """Let simulated time pass until a node's end makes it so; whether it is."""
        with self.clock.lock:
            return self.clock.wait(self.ended, ready, seconds)

    def until_dead(self, node: int) -> None:
        assert self.until(lambda: node not in self.alive), f"node {node} has not ended"

    def wait(self, nodes: Iterable[int] | None = None) -> None:
        """Until all nodes have ended, and well."""
        for node in list(self.threads) if nodes is None else nodes:
            self.until_dead(node)
        assert not self.errors, self.errors

    def close(self) -> None:
        """End whatever still runs."""
        self.hub.close()
        self.clock.leave()
        for thread in self.threads.values():
            thread.join(60.0)

    def saved(self, node: int) -> Any:
        return load(self.folder / f"node-{node}")
