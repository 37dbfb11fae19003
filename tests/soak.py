"""A soak test: real processes on a network that come late, leave, are killed, frozen, cut off and come back, again and again.

    make soak
    python tests/soak.py --minutes 60 --nodes 20 --seed 1

Checked after every episode: a result is that of exactly the members and data that it names, nodes that name the same
members and data hold the same bits, every process has ended. Memory and CPU of the nodes are reported.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from dmfvi import BayesianPCA, Network, load
from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.deploy.data import digest
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.engines.net.keys import init_authority, issue
from dmfvi.readers.tables import Table
from machines import Machines
from processes import Processes

MODEL = ModelSettings.of(n_components=2, noise="shared")
#: distance to the pooled posterior that tol leaves
EXACT = 1e-6
#: seconds after which an episode has not ended
HUNG = 600.0
#: MB that a node may grow by from one fit to the next, the median and any
MOST_GROWTH, MOST_GROWTH_OF_ANY = 4.0, 10.0
#: how processes may end: well, with an error, partial, not converged, killed, told to leave (before or after it can)
CODES = {0, 1, 3, 4, -signal.SIGKILL, -signal.SIGTERM, 143}
#: errors that a node may end with, of what has happened to it; anything else is a fault of the program
REFUSALS = ("have finished and gone while node", "seconds for members to begin the fit", "and met")


@dataclass
class Usage:
    """Memory (MB) and CPU (s) of a process, from /proc, over its life."""

    memory: list[float] = field(default_factory=list)
    seconds: float = 0.0
    state: str = ""
    fits: list[float] = field(default_factory=list)  # most memory in each fit after its first round

    def growth(self, usual: float) -> float:
        """MB from one fit to the next; one with less than is ``usual`` in its first fit was stopped while it loaded libraries."""
        return (self.fits[-1] - max(self.fits[0], usual)) / (len(self.fits) - 1)

    def sample(self, pid: int, state: str) -> None:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return
        resident = [line for line in status.splitlines() if line.startswith("VmRSS")]
        if resident:
            self.memory.append(int(resident[0].split()[1]) / 1024)
            if state == "fitting" and self.state != "fitting":
                self.fits.append(0.0)
            if state == "fitting":
                self.fits[-1] = max(self.fits[-1], self.memory[-1])
            self.state = state
        self.seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Episode:
    """One fit of all nodes with random faults."""

    def __init__(self, folder: Path, n_nodes: int, seed: int, machines: Machines | None) -> None:
        self.rng = random.Random(seed)
        self.folder, self.n_nodes, self.machines = folder, n_nodes, machines
        graph = nx.random_regular_graph(3, n_nodes, seed=seed)
        while not nx.is_connected(graph):
            seed += 1000
            graph = nx.random_regular_graph(3, n_nodes, seed=seed)
        self.edges = sorted(graph.edges)
        self.network = Network.from_edges(self.edges)
        complete = make_low_rank(8 * n_nodes, 5, 2, noise=0.5, seed=seed).data
        data = mask_at_random(complete, 0.3, seed=seed)
        self.shards = np.split(data, n_nodes)
        self.data: dict[str, np.ndarray] = {}  # digest -> rows
        init_authority(folder / "keys")
        host = machines.address if machines else lambda node: "127.0.0.1"
        for node in range(n_nodes):
            issue(folder / "keys", node, [host(node)])
        self.cluster = Processes(
            folder,
            self.network,
            self.shards,
            folder / "keys",
            timing="patience = 0.5\nsilence = 8.0\nsettle = 1.5\nlinger = 12.0",
            node=f"checkpoint_every = 4\nwait_for = {n_nodes - 2}",
            faults="latency = 0.02\nloss = 0.02",
            addresses=[f"{host(node)}:7447" for node in range(n_nodes)] if machines else None,
            prefix=lambda node: ["ip", "netns", "exec", machines.name(node)] if machines else [],
        )
        for file in self.cluster.files:
            text = file.read_text().replace(f"wait_for = {n_nodes}\n", "", 1)
            file.write_text(text.replace("wait_seconds = 600.0", "wait_seconds = 120.0"))
        for node in range(n_nodes):
            self.remember(node, self.shards[node])
        self.usage: dict[int, Usage] = {}
        self.faults: Counter[str] = Counter()

    def remember(self, node: int, rows: np.ndarray) -> None:
        np.save(self.folder / f"data{node}.npy", rows)
        table = Table(rows, None)
        mark = MODEL.fingerprint(table) + digest(table)
        self.data[hashlib.sha256(mark).hexdigest()] = rows

    def run(self) -> None:
        """Start, disturb, wait, and check."""
        late = self.rng.sample(range(self.n_nodes), 2)
        healing: list[tuple[float, Any]] = []
        try:
            for node in range(self.n_nodes):
                if node not in late:
                    self.cluster.start(node)
            self.until(lambda: any(self.cluster.rounds(node) > 0 for node in range(self.n_nodes)))
            for node in late:
                self.cluster.start(node)
            for _ in range(self.rng.randrange(1, 6)):
                self.rest(self.rng.random() * 6.0)
                healing.append(self.disturb())
                now = time.monotonic()
                for moment, undo in [each for each in healing if each[0] <= now]:
                    undo()
                    healing.remove((moment, undo))
            for _, undo in healing:
                self.rest(self.rng.random() * 4.0)
                undo()
            self.until(lambda: not self.cluster.alive())
        finally:
            for process in self.cluster.started:
                if process.poll() is None:
                    process.kill()
                process.wait()
        self.check()

    def disturb(self) -> tuple[float, Any]:
        """A fault, and when and how it is undone."""
        kind = self.rng.choice(("kill", "other data", "freeze", "leave", "cut"))
        alive = self.cluster.alive()
        if not alive:
            return 0.0, lambda: None
        node, when = self.rng.choice(alive), time.monotonic() + self.rng.random() * 15.0
        self.faults[kind] += 1
        if kind == "freeze":
            self.cluster.freeze(node)
            return when, lambda: self.cluster.wake(node)
        if kind == "leave":
            self.cluster.running[node].send_signal(signal.SIGTERM)
            return when, lambda: None
        if kind == "cut":
            if self.machines is None:
                return when, lambda: None
            one, other = self.rng.choice(self.edges)
            self.machines.cut_link(one, other)
            return when, lambda: self.machines and self.machines.heal_link(one, other)
        self.cluster.kill(node)
        if kind == "other data":
            self.remember(node, self.shards[node] + self.rng.random())
        return when, lambda: self.cluster.start(node)

    def until(self, what: Any) -> None:
        deadline = time.monotonic() + HUNG
        while not what():
            if time.monotonic() > deadline:
                states = {node: self.cluster.status(node) for node in self.cluster.alive()}
                raise AssertionError(f"not ended after {HUNG:g} seconds: {states}")
            self.sample()
            time.sleep(0.25)

    def rest(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.sample()
            time.sleep(0.25)

    def sample(self) -> None:
        for node, process in self.cluster.running.items():
            if process.poll() is None:
                status = self.cluster.status(node)
                # until the first round libraries are loaded and links are made
                state = status.get("state", "") if status.get("rounds") else "starting"
                self.usage.setdefault(process.pid, Usage()).sample(process.pid, state)

    def check(self) -> None:
        """The invariants."""
        pooled: dict[Any, Any] = {}
        bits: dict[Any, Any] = {}
        self.ends = Counter(process.returncode for process in self.cluster.started)
        strange = set(self.ends) - CODES
        assert not strange, [self.cluster.said(node) for node in range(self.n_nodes)]
        self.refusals: list[str] = []
        for node, process in self.cluster.running.items():
            if process.returncode == 1:
                said = self.cluster.said(node)
                words = " ".join(said.rpartition("error: ")[2].split())
                assert any(each in words for each in REFUSALS), (node, said)
                self.refusals.append(words)
            if process.returncode not in (0, 3, 4):
                continue
            model = load(self.folder / f"node-{node}")
            named = tuple(each["data"] for each in model.members_)
            assert (process.returncode == 3) == bool(model.missing_), (node, model.missing_)
            if named not in pooled:
                rows = np.concatenate([self.data[mark] for mark in named])
                pooled[named] = BayesianPCA(2, tol=1e-10, max_iter=20_000, random_state=0).fit(rows)
            distance = model.posterior_.distance(pooled[named].posterior_)
            assert distance < EXACT, (node, distance, model.members_)
            first = bits.setdefault(named, model.posterior_)
            assert model.posterior_.distance(first) == 0.0, (node, "other bits")
        self.results = len(bits)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    machines = None
    if shutil.which("ip") is not None:
        machines = Machines(given.nodes)
        try:
            machines.up()
        except subprocess.CalledProcessError as error:
            print(f"no network namespaces, links are not cut: {error.stderr.strip()}")
            machines.down()
            machines = None
    ends, faults = Counter[int](), Counter[str]()
    usage: list[Usage] = []
    began, episode = time.monotonic(), 0
    try:
        while time.monotonic() - began < 60.0 * given.minutes:
            seed = given.seed + episode
            with tempfile.TemporaryDirectory(prefix="dmfvi-soak-") as folder:
                run = Episode(Path(folder), given.nodes, seed, machines)
                try:
                    run.run()
                except BaseException:
                    print(f"seed {seed}: python tests/soak.py --nodes {given.nodes} --seed {seed}")
                    raise
            ends, faults, episode = ends + run.ends, faults + run.faults, episode + 1
            usage += run.usage.values()
            print(
                f"episode {episode}, {time.monotonic() - began:.0f} s: faults {dict(run.faults)}, "
                f"exit codes {dict(run.ends)}, {run.results} different results, all right",
                *run.refusals,
                sep="\n    ",
                flush=True,
            )
    finally:
        if machines is not None:
            machines.down()
    peaks = [max(each.memory) for each in usage if each.memory]
    usual = float(np.median([each.fits[0] for each in usage if each.fits] or [0.0]))
    growth = [each.growth(usual) for each in usage if len(each.fits) > 1]
    cpu = [each.seconds for each in usage]
    print(f"{episode} episodes, faults {dict(faults)}, exit codes {dict(ends)}, no wrong result")
    print(f"memory per node: median {np.median(peaks):.0f} MB, most {max(peaks):.0f} MB")
    if growth:
        words = f"median {np.median(growth):.1f} MB, most {max(growth):.1f} MB, {len(growth)} nodes"
        print(f"growth from one fit of a node to its next: {words}")
        flat = np.median(growth) < MOST_GROWTH and max(growth) < MOST_GROWTH_OF_ANY
        assert flat, "memory is not flat"
    print(f"CPU per node: median {np.median(cpu):.1f} s, most {max(cpu):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
