"""Nodes of one machine, started by ``dmfvi launch`` or one by one: seconds until all have met, and memory of each.

python benchmarks/thirty_nodes.py --nodes 30
python benchmarks/thirty_nodes.py --nodes 30 --single
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import networkx as nx
import numpy as np

from dmfvi.datasets import make_low_rank
from dmfvi.engines.net.keys import init_authority, issue

FIRST_PORT = 21_000


def write(folder: Path, n_nodes: int) -> Path:
    """A random 3-regular graph of nodes with certificates."""
    graph = nx.random_regular_graph(3, n_nodes, seed=1)
    init_authority(folder / "keys")
    rows = np.split(make_low_rank(10 * n_nodes, 8, 2, noise=0.3, seed=0).data, n_nodes)
    for node in range(n_nodes):
        issue(folder / "keys", node, ["127.0.0.1"])
        np.save(folder / f"data{node}.npy", rows[node])
        lines = ["[node]", f"id = {node}", f'listen = "127.0.0.1:{FIRST_PORT + node}"']
        lines += [f'data = "data{node}.npy"', f"wait_for = {n_nodes}", "wait_seconds = 600.0"]
        lines += ["[peers]"] + [f'{j} = "127.0.0.1:{FIRST_PORT + j}"' for j in graph[node]]
        lines += ["[model]", "n_components = 2", "[tls]", 'authority = "keys/ca.pem"']
        lines += [f'certificate = "keys/node-{node}.pem"', f'key = "keys/node-{node}.key"']
        (folder / f"node{node}.toml").write_text("\n".join(lines))
    names = ", ".join(f'"node{node}.toml"' for node in range(n_nodes))
    (folder / "cluster.toml").write_text(f"nodes = [{names}]")
    return folder / "cluster.toml"


def memory(pid: int) -> dict[str, float]:
    """Rss and Pss (shared pages divided by their users) in MB."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    parts = [line.split() for line in lines if line.startswith(("Rss", "Pss:"))]
    return {part[0].rstrip(":"): int(part[1]) / 1024 for part in parts}


def children(pid: int) -> list[int]:
    """Processes that it has started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(each) for each in found]


def start(folder: Path, n_nodes: int, single: bool) -> list[subprocess.Popen[bytes]]:
    """All nodes by one command, or a command for each."""
    commands = [["launch", str(write(folder, n_nodes))]]
    if single:
        files = [str(folder / f"node{node}.toml") for node in range(n_nodes)]
        commands = [["node", "--config", file, "--log-level", "error"] for file in files]
    errors = subprocess.DEVNULL if single else None
    return [
        subprocess.Popen(
            [sys.executable, "-m", "dmfvi", *each], stdout=subprocess.DEVNULL, stderr=errors
        )
        for each in commands
    ]


def main() -> None:
    """Start, watch and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--single", action="store_true", help="a command for every node")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began, met, peak = time.monotonic(), 0.0, {"Rss": 0.0, "Pss": 0.0}
        processes = start(folder, given.nodes, given.single)
        while any(process.poll() is None for process in processes):
            time.sleep(0.5)
            states = []
            for node in range(given.nodes):
                try:
                    content = json.loads((folder / f"node-{node}" / "status.json").read_text())
                    states.append(content["state"])
                except (OSError, ValueError):
                    states.append("starting")
            if not met and not {"starting", "joining"} & set(states):
                met = time.monotonic() - began
            pids = [process.pid for process in processes if process.poll() is None]
            if not given.single:
                pids = [child for pid in pids for child in children(pid)]
            for pid in pids:
                peak = {key: max(value, memory(pid).get(key, 0.0)) for key, value in peak.items()}
        took = time.monotonic() - began
        print(
            f"{given.nodes} nodes: all have met after {met:.1f} s, all done after {took:.1f} s, exit codes "
            f"{sorted({process.returncode for process in processes})}; most memory of a node {peak['Rss']:.0f} MB, of which its own share "
            f"{peak['Pss']:.0f} MB"
        )


if __name__ == "__main__":
    main()
