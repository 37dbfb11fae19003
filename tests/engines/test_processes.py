"""Real processes that are killed, frozen and woken inside a fit: every node ends with the pooled posterior."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.engines.net.keys import init_authority, issue
from processes import Processes, running

RING = Network.ring(5)
#: slow to converge, so that there is time inside the fit
DATA = mask_at_random(make_low_rank(70, 6, 2, noise=0.5, seed=0).data, 0.4, seed=1)
SHARDS = np.split(DATA, [9, 25, 37, 52])
#: frames take their time, as over a long link
SLOW = "latency = 0.02"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    init_authority(folder)
    for node in range(5):
        issue(folder, node, ["127.0.0.1"])
    return folder


def check_exact(cluster: Processes, nodes: range | list[int] = range(5)) -> None:
    pooled = BayesianPCA(2, tol=1e-10, random_state=0, max_rounds=20_000).fit(DATA)
    for node in nodes:
        saved = cluster.saved(node)
        assert saved.converged
        assert saved.posterior.distance(pooled.posterior_) < 1e-6


def fits(cluster: Processes, node: int) -> int:
    """How often a node has begun a fit, in all its lives."""
    states = [line.split(": ")[1].split(",")[0] for line in cluster.said(node).splitlines()]
    return sum(a != b == "fitting" for a, b in pairwise(states))


def test_each_node_is_killed_and_comes_back(tmp_path: Path, authority: Path) -> None:
    """SIGKILL at a random moment of the fit, one node after the other, within one fit."""
    rng = np.random.default_rng(7)
    timing = "patience = 0.2\nsilence = 30.0\nsettle = 1.0"
    cluster = Processes(tmp_path, RING, SHARDS, authority, timing=timing, faults=SLOW)
    with running(cluster):
        for victim in range(5):
            cluster.until(lambda: all(cluster.rounds(node) > 0 for node in range(5)))
            time.sleep(float(rng.uniform(0.0, 0.5)))
            assert cluster.alive() == list(range(5))
            assert cluster.status(victim)["state"] == "fitting"
            cluster.kill(victim)
            (tmp_path / f"node-{victim}" / "status.json").unlink()
            cluster.start(victim)
        cluster.until(lambda: cluster.rounds(4) > 0)
        cluster.wait()
    check_exact(cluster)
    # all went on as the same members: one fit in each of the two lives, and nobody began anew
    assert [fits(cluster, node) for node in range(5)] == [2] * 5


TRIANGLE = Network.ring(3)
THIRDS = np.split(DATA, [20, 45])


@pytest.mark.parametrize(
    ("silence", "seconds"),
    [
        (60.0, 20.0),
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
        tmp_path, TRIANGLE, THIRDS, authority, timing=timing, faults="latency = 0.03"
    )
    with running(cluster):
        cluster.until(lambda: all(cluster.rounds(node) >= 8 for node in range(3)))
        before = cluster.rounds(1)
        cluster.freeze(2)
        woken = time.monotonic() + seconds
        if tolerated:
            time.sleep(0.5 * seconds)
            assert cluster.rounds(1) > before  # the others go on, slowly
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
    timing = "patience = 0.2\nsilence = 60.0\nsettle = 1.0\nlinger = 5.0"
    node = "checkpoint_every = 4\nwait_seconds = 3.0"
    cluster = Processes(tmp_path, TRIANGLE, THIRDS, authority, timing=timing, node=node)
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
        cluster.wait(40.0)
        check_exact(cluster, range(3))
        if killed:  # nobody is there any more: it says so and ends
            cluster.start(2)
            cluster.running[2].wait(40.0)
            assert cluster.running[2].returncode != 0
            assert "waited 3 seconds for 3 nodes" in cluster.said(2)
