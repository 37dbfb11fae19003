"""Nodes as processes of their own: their files, their certificates, their lives and deaths."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.network import Network
from dmfvi.storage import load
from sessions import HUNG, kill_session


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Processes:
    """One ``dmfvi node`` a node of a network; ``prefix`` is put before its command, by node."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        shards: Sequence[np.ndarray],
        authority: Path | None,
        *,
        model: str = "n_components = 2\nnoise = 'shared'",
        timing: str = "patience = 60.0\nsettle = 1.0",
        node: str = "checkpoint_every = 4",
        faults: str = "",
        addresses: list[str] | None = None,
        prefix: Callable[[int], list[str]] = lambda node: [],
    ) -> None:
        self.folder, self.network, self.shards = folder, network, shards
        self.prefix = prefix
        self.insecure = authority is None
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.started: list[subprocess.Popen[bytes]] = []  # all, ended or not
        self.files: list[Path] = []
        self.before: dict[int, str] = {}  # what earlier lives of a node have said
        n = network.n_nodes
        where = addresses or [f"127.0.0.1:{port}" for port in free_ports(n)]
        for i in range(n):
            np.save(folder / f"data{i}.npy", shards[i])
            lines = ["[node]", f"id = {i}", f'listen = "{where[i]}"', f'data = "data{i}.npy"']
            lines += [f"wait_for = {n}", f"wait_seconds = {HUNG}", node, "[peers]"]
            lines += [f'{j} = "{where[j]}"' for j in network.neighbours(i)]
            lines += ["[model]", model, "[timing]", timing]
            if faults:
                lines += ["[faults]", faults, f"seed = {i}"]
            if authority is not None:
                lines += ["[tls]", f'authority = "{authority}/ca.pem"']
                lines += [f'certificate = "{authority}/node-{i}.pem"']
                lines += [f'key = "{authority}/node-{i}.key"']
            file = folder / f"node{i}.toml"
            file.write_text("\n".join(lines))
            self.files.append(file)
        names = ", ".join(f'"{file.name}"' for file in self.files)
        (folder / "cluster.toml").write_text(f"nodes = [{names}]")

    def start(self, node: int) -> None:
        command = [*self.prefix(node), sys.executable, "-m", "dmfvi", "node"]
        command += ["--config", str(self.files[node])]
        command += ["--insecure"] if self.insecure else []
        log = self._log(node)
        if log.exists():
            self.before[node] = self.before.get(node, "") + log.read_text()
        with log.open("wb") as said:
            process = subprocess.Popen(
                command,
                stderr=said,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self.running[node] = process
        self.started.append(process)

    def _log(self, node: int) -> Path:
        return self.folder / f"said-{node}.txt"

    def said(self, node: int) -> str:
        """All that a node has written to its error stream."""
        return self.before.get(node, "") + self._log(node).read_text()

    def status(self, node: int) -> dict[str, Any]:
        """What a node says of itself, empty before it has said anything."""
        try:
            content: dict[str, Any] = json.loads(
                (self.folder / f"node-{node}" / "status.json").read_text()
            )
        except (OSError, ValueError):
            return {}
        return content

    def rounds(self, node: int) -> int:
        """Rounds of the fit that the node is in; 0 while it is not in one."""
        status = self.status(node)
        return int(status["rounds"]) if status.get("state") == "fitting" else 0

    def until(self, what: Callable[[], bool], seconds: float = HUNG) -> None:
        """Wait until something holds; a node that fails meanwhile ends the wait."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, [self.status(n) for n in self.running]
            for node, process in self.running.items():
                assert process.poll() in (None, 0, -signal.SIGKILL), self.said(node)
            time.sleep(0.01)

    def alive(self) -> list[int]:
        return [node for node, process in self.running.items() if process.poll() is None]

    def kill(self, node: int) -> None:
        self.running[node].kill()
        self.running[node].wait()

    def freeze(self, node: int) -> None:
        self.running[node].send_signal(signal.SIGSTOP)

    def wake(self, node: int) -> None:
        self.running[node].send_signal(signal.SIGCONT)

    def wait(self, seconds: float = HUNG) -> None:
        """Until all have ended by themselves, and well."""
        deadline = time.monotonic() + seconds
        for node, process in self.running.items():
            process.wait(max(0.1, deadline - time.monotonic()))
            assert process.returncode == 0, self.said(node)

    def saved(self, node: int) -> Any:
        return load(self.folder / f"node-{node}")


@contextmanager
def running(cluster: Processes) -> Iterator[Processes]:
    """All nodes of a cluster; none outlives the block."""
    try:
        for node in range(cluster.network.n_nodes):
            cluster.start(node)
        yield cluster
    finally:
        for process in cluster.started:
            kill_session(process.pid)
            process.wait()
