"""Real processes that are killed, frozen and woken inside a fit: every node ends with the pooled posterior."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.engines.net.keys import init_authority, issue
from processes import Processes, running
from sessions import HUNG

RING = Network.ring(5)
#: slow to converge, so that there is time inside the fit
DATA = mask_at_random(make_low_rank(70, 6, 2, noise=0.5, seed=0).data, 0.4, seed=1)
SHARDS = np.split(DATA, [9, 25, 37, 52])
TRIANGLE = Network.ring(3)
THIRDS = np.split(DATA, [20, 45])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    init_authority(folder)
    for node in range(5):
        issue(folder, node, ["127.0.0.1"])
    return folder


def check_exact(cluster: Processes, nodes: range) -> None:
    pooled = BayesianPCA(2, tol=1e-10, random_state=0, max_iter=20_000).fit(DATA)
    for node in nodes:
        saved = cluster.saved(node)
        assert saved.converged_
        assert saved.posterior_.distance(pooled.posterior_) < 1e-6


def fits(cluster: Processes, node: int) -> int:
    """How often a node has begun a fit, in all its lives."""
    states = re.findall(r"^node \d+: ([\w ]+), members", cluster.said(node), re.MULTILINE)
    return sum(a != b == "fitting" for a, b in pairwise(states))


@pytest.mark.parametrize(
    ("network", "shards"),
    [(TRIANGLE, THIRDS), pytest.param(RING, SHARDS, marks=pytest.mark.slow)],
    ids=["three", "five"],
)
def test_each_node_is_killed_and_comes_back(
    tmp_path: Path, authority: Path, network: Network, shards: list[np.ndarray]
) -> None:
    """SIGKILL at a random moment of the fit, one node after the other, within one fit."""
    rng = np.random.default_rng(7)
    nodes = range(network.n_nodes)
    timing = "patience = 0.5\nsilence = 300.0\nsettle = 1.0"
    # frames take their time, as over a long link: the fit lasts until all have been killed
    cluster = Processes(
        tmp_path, network, shards, authority, timing=timing, faults="latency = 0.25"
    )
    with running(cluster):
        for victim in nodes:
            cluster.until(lambda: all(cluster.rounds(node) > 0 for node in nodes))
            time.sleep(float(rng.uniform(0.0, 0.5)))
            assert cluster.alive() == list(nodes)
            assert cluster.status(victim)["state"] == "fitting"
            cluster.kill(victim)
            (tmp_path / f"node-{victim}" / "status.json").unlink()
            cluster.start(victim)
        cluster.wait()
    check_exact(cluster, nodes)
    # all went on as the same members: one fit in each of the two lives, and nobody began anew
    assert [fits(cluster, node) for node in nodes] == [2] * len(nodes)


@pytest.mark.parametrize(
    ("silence", "seconds"),
    [
        (300.0, 5.0),
        pytest.param(2.0, 6.0, marks=pytest.mark.slow),
        pytest.param(5.0, 20.0, marks=pytest.mark.slow),
    ],
)
def test_a_node_frozen_inside_a_fit(
    tmp_path: Path, authority: Path, silence: float, seconds: float
) -> None:
    """It catches up if the others still wait for it; if they have gone on without it, it is counted again."""
    tolerated = silence > seconds
    timing = f"patience = 0.4\nsilence = {silence}\nsettle = 1.0\nlinger = 60.0"
    cluster = Processes(
        tmp_path, TRIANGLE, THIRDS, authority, timing=timing, faults="latency = 0.04"
    )
    with running(cluster):
        cluster.until(lambda: all(cluster.rounds(node) >= 8 for node in range(3)))
        before = cluster.rounds(1)
        cluster.freeze(2)
        woken = time.monotonic() + seconds
        if tolerated:
            cluster.until(lambda: cluster.rounds(1) > before + 2)  # the others go on, slowly
            assert cluster.status(1)["members"] == [0, 1, 2]
        else:
            cluster.until(lambda: cluster.status(1)["members"] == [0, 1])
        time.sleep(max(0.0, woken - time.monotonic()))
        assert 2 in cluster.alive()
        cluster.wake(2)
        cluster.wait()
    check_exact(cluster, range(3))
    assert fits(cluster, 2) == 1 + (not tolerated)


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_node_away_at_the_very_end_holds_nobody_up(
    tmp_path: Path, authority: Path, killed: bool
) -> None:
    timing = "patience = 0.5\nsilence = 300.0\nsettle = 1.0\nlinger = 5.0"
    cluster = Processes(tmp_path, TRIANGLE, THIRDS, authority, timing=timing)
    with running(cluster):
        cluster.until(lambda: cluster.status(2).get("state") in ("waiting for others", "done"))
        if killed:
            cluster.kill(2)
            cluster.running.pop(2)
        else:
            cluster.freeze(2)
            time.sleep(12.0)
            assert cluster.alive() == [2]
            cluster.wake(2)
        cluster.wait()
        check_exact(cluster, range(3))
        if killed:  # nobody is there any more: it says so and ends
            content = cluster.files[2].read_text()
            cluster.files[2].write_text(
                content.replace("wait_seconds = 600.0", "wait_seconds = 3.0")
            )
            cluster.start(2)
            cluster.running[2].wait(HUNG)
            assert cluster.running[2].returncode != 0
            assert "waited 3 seconds for 3 nodes" in cluster.said(2)
