"""Nodes in threads, joined by queues: the node's own program with everything but the socket."""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path

import numpy as np

from dmfvi.deploy.config import NodeConfig
from dmfvi.deploy.kinds import ModelSettings, PcaModel
from dmfvi.deploy.program import NodeProgram
from dmfvi.engines.net.endpoint import Timing
from dmfvi.engines.net.faults import Faults, FaultyTransport
from dmfvi.network import Network
from dmfvi.storage import SavedPosterior, load_posterior


class Killed(BaseException):
    """A node dies: no farewell, nothing tidied up."""


class Bus:
    """All queues; a node's queue is there while it lives."""

    def __init__(self) -> None:
        self.queues: dict[int, queue.Queue] = {}


class BusTransport:
    """Frames from one thread to another."""

    def __init__(self, bus: Bus, node: int, neighbours: tuple[int, ...]) -> None:
        self.bus, self.node, self.neighbours = bus, node, neighbours
        self.mine: queue.Queue = queue.Queue()
        bus.queues[node] = self.mine

    def send(self, data: bytes) -> None:
        for peer in self.neighbours:
            other = self.bus.queues.get(peer)
            if other is not None:
                other.put((self.node, data))

    def receive(self, timeout: float) -> tuple[int, bytes] | None:
        try:
            return self.mine.get(timeout=timeout) if timeout > 0 else self.mine.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        self.bus.queues.pop(self.node, None)


class Cluster:
    """One program a node, each in a thread of its own."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        shards: list[np.ndarray],
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
        self.model = model or PcaModel(components=2)
        self.every, self.compression = every, compression
        self.wait_seconds = 60.0
        self.bus = Bus()
        self.transports: dict[int, FaultyTransport] = {}
        self.threads: dict[int, threading.Thread] = {}
        self.programs: dict[int, NodeProgram] = {}
        self.rounds: dict[int, int] = {}
        self.members: dict[int, list[list[int]]] = {}
        self.hooks: dict[
            int, object
        ] = {}  # node -> called with its rounds; may sleep or raise Killed
        self.errors: list[BaseException] = []

    def start(self, node: int, wait_for: int | None) -> None:
        neighbours = self.network.neighbours(node)
        inner = BusTransport(self.bus, node, neighbours)
        faults = Faults(self.faults.loss, self.faults.delay, self.faults.duplicates, seed=node)
        self.transports[node] = FaultyTransport(inner, faults)
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
        program = NodeProgram(config, self.transports[node], self.shards[node])
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
            except Killed:
                pass
            except BaseException as error:
                self.errors.append(error)
            finally:
                if self.bus.queues.get(node) is inner.mine:
                    inner.close()

        self.threads[node] = threading.Thread(target=work, daemon=True)
        self.threads[node].start()

    def start_all(self) -> None:
        for node in range(self.network.n_nodes):
            self.start(node, self.network.n_nodes)

    def wait(self, seconds: float = 240.0, nodes: list[int] | None = None) -> None:
        deadline = time.monotonic() + seconds
        for node in nodes if nodes is not None else list(self.threads):
            self.threads[node].join(max(0.1, deadline - time.monotonic()))
            assert not self.threads[node].is_alive(), f"node {node} has not ended"
        assert not self.errors, self.errors

    def posterior(self, node: int) -> SavedPosterior:
        return load_posterior(self.folder / f"node-{node}")
