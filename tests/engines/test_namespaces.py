"""Nodes with addresses of their own: one network namespace each, joined by a bridge, links that are cut and healed."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.engines.net.keys import init_authority, issue
from machines import Machines
from processes import Processes, running

N = 3
NETWORK = Network.complete(N)
DATA = mask_at_random(make_low_rank(60, 6, 2, noise=0.5, seed=3).data, 0.3, seed=4)
SHARDS = np.split(DATA, [15, 40])


@pytest.fixture
def machines() -> Iterator[Machines]:
    if shutil.which("ip") is None:
        pytest.skip("no iproute2 (the ip command): apt-get install iproute2")
    made = Machines(N)
    try:
        try:
            made.up()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
        yield made
    finally:
        made.down()


def cluster_on(machines: Machines, folder: Path, timing: str, faults: str = "") -> Processes:
    init_authority(folder / "keys")
    for node in range(N):
        issue(folder / "keys", node, [machines.address(node)])
    return Processes(
        folder,
        NETWORK,
        SHARDS,
        folder / "keys",
        timing=timing,
        faults=faults,
        addresses=[f"{machines.address(node)}:7447" for node in range(N)],
        prefix=lambda node: ["ip", "netns", "exec", machines.name(node)],
    )


def test_machines_with_addresses_of_their_own(machines: Machines, tmp_path: Path) -> None:
    cluster = cluster_on(machines, tmp_path, "patience = 300.0\nsettle = 1.0")
    with running(cluster):
        cluster.wait()
    local = BayesianPCA(2, network=NETWORK, random_state=0).fit(SHARDS)
    for node in range(N):
        assert cluster.saved(node).posterior_.distance(local.node_posteriors_[node]) < 1e-6


@pytest.mark.parametrize("silence", [pytest.param(60.0, marks=pytest.mark.slow), 4.0])
def test_a_cable_is_out_for_a_while(machines: Machines, tmp_path: Path, silence: float) -> None:
    """For less than the others tolerate: nobody begins anew. For longer: two parts, then one again."""
    timing = f"patience = 0.3\nsilence = {silence}\nsettle = 1.0\nlinger = 60.0"
    cluster = cluster_on(machines, tmp_path, timing, "latency = 0.06")
    with running(cluster):
        cluster.until(lambda: all(cluster.rounds(node) >= 8 for node in range(N)))
        machines.cut(1)
        if silence < 10.0:
            cluster.until(lambda: cluster.status(0)["members"] == [0, 2])
            cluster.until(lambda: cluster.status(1)["members"] == [1])
        else:
            time.sleep(5.0)  # shorter than they tolerate, however busy the machine is
            assert cluster.status(0)["members"] == cluster.status(1)["members"] == [0, 1, 2]
        assert cluster.alive() == [0, 1, 2]
        machines.heal(1)
        cluster.wait()
    pooled = BayesianPCA(2, tol=1e-10, random_state=0, max_iter=20_000).fit(DATA)
    for node in range(N):
        saved = cluster.saved(node)
        assert saved.converged_
        assert saved.posterior_.distance(pooled.posterior_) < 1e-6
