"""What the engines add to the raw exchange: MPI against a bare neighbourhood collective, Zenoh with TLS against bare Zenoh.

Ratios in one run, medians. ``python benchmarks/engines.py``.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MEGABYTE = 2**20 // 8
REPEATS = 60

MPI_PROGRAM = """
import time
import numpy as np
from mpi4py import MPI
from dmfvi.consensus import BregmanADMM
from dmfvi.engines.mpi import MpiEngine
from dmfvi.inference.model import Average
from dmfvi.network import Network
from dmfvi.node import Job, Message

comm = MPI.COMM_WORLD
network = Network.ring(comm.Get_size())
engine = MpiEngine()
rule = BregmanADMM()
view = rule.local_view(network, comm.Get_rank())
job = Job(Average(), rule)
exchange = engine._exchange(job, view)
payload = np.random.default_rng(comm.Get_rank()).standard_normal(%(size)d)
message = Message(view.node, 0, payload, 0, 9)
graph = comm.Create_dist_graph_adjacent(list(view.neighbours), list(view.neighbours), reorder=False)
receive = np.empty((view.degree, payload.size))
raw, ours = [], []
for turn in range(%(repeats)d):
    comm.Barrier()
    began = time.perf_counter()
    graph.Neighbor_allgather(payload, receive)
    raw.append(time.perf_counter() - began)
    comm.Barrier()
    began = time.perf_counter()
    exchange.begin(message).finish()
    ours.append(time.perf_counter() - began)
if comm.Get_rank() == 0:
    print(np.median(raw), np.median(ours))
"""


def mpi() -> None:
    """Ring of four ranks, one megabyte a message."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        print("MPI: no mpiexec, left out")
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.py"
        program.write_text(MPI_PROGRAM % {"size": MEGABYTE, "repeats": REPEATS})
        command = [found, "--allow-run-as-root", "--oversubscribe", "-n", "4"]
        done = subprocess.run(
            [*command, sys.executable, "-m", "mpi4py", str(program)],
            capture_output=True,
            text=True,
            check=True,
        )
    raw, ours = (float(v) for v in done.stdout.split()[-2:])
    print(
        f"MPI, ring of 4, 1 MB: raw {1e3 * raw:.2f} ms, engine {1e3 * ours:.2f} ms, "
        f"ratio {ours / raw:.2f}"
    )


def zenoh() -> None:
    """Ping-pong of a megabyte: frames over mutual TLS against plain Zenoh puts."""
    from dmfvi.engines.net.frames import ROUND, Frame, pack, unpack
    from dmfvi.engines.net.keys import init_authority, issue
    from dmfvi.engines.net.zenoh import Identity, ZenohTransport

    payload = np.random.default_rng(0).standard_normal(MEGABYTE)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        init_authority(folder)
        pairs = {}
        for secure in (False, True):
            ports = _ports(2)
            made = []
            for node in range(2):
                identity = None
                if secure:
                    issue(folder, node, ["127.0.0.1"])
                    name = folder / f"node-{node}"
                    identity = Identity(
                        folder / "ca.pem", name.with_suffix(".pem"), name.with_suffix(".key")
                    )
                made.append(
                    ZenohTransport(
                        node,
                        f"127.0.0.1:{ports[node]}",
                        {1 - node: f"127.0.0.1:{ports[1 - node]}"},
                        identity,
                    )
                )
            pairs[secure] = made
        kinds = {"plain puts": False, "puts over mTLS": True, "frames over mTLS": True}
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for pair in pairs.values():
            _meet(*pair)
        for turn in range(REPEATS):
            for kind, secure in kinds.items():
                began = time.perf_counter()
                pair = pairs[secure]
                for a, b in (pair, pair[::-1]):
                    if kind == "frames over mTLS":
                        a.send(pack(Frame(ROUND, b"f" * 16, 0, 1, 1, turn, 0, 9, payload)))
                        unpack(_next(b))
                    else:
                        a.send(payload.tobytes())
                        np.frombuffer(_next(b))
                times[kind].append(time.perf_counter() - began)
        for pair in pairs.values():
            for each in pair:
                each.close()
    medians = {kind: float(np.median(found)) for kind, found in times.items()}
    shown = ", ".join(f"{kind} {1e3 * value:.1f} ms" for kind, value in medians.items())
    ours = medians["frames over mTLS"]
    print(
        f"Zenoh, there and back, 1 MB: {shown}; ratio to puts over mTLS "
        f"{ours / medians['puts over mTLS']:.2f}, to plain puts {ours / medians['plain puts']:.2f}"
    )


def _meet(a, b) -> None:
    while a.receive(0.02) is None:
        b.send(b"hello")
    while b.receive(0.02) is None:
        a.send(b"hello")
    time.sleep(0.3)
    for each in (a, b):
        while each.receive(0.05) is not None:
            pass


def _next(transport) -> bytes:
    got = None
    while got is None:
        got = transport.receive(5.0)
    return got[1]


def _ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


if __name__ == "__main__":
    mpi()
    zenoh()
