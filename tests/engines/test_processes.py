"""Real processes that are killed, frozen and woken inside a fit: every node ends with the pooled posterior."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.keys import init_authority, issue
from processes import Processes, running

RING = Network.ring(5)
#: slow to converge, so that there is time inside the fit
DATA = mask_at_random(make_low_rank(70, 6, 2, noise=0.5, seed=0).data, 0.4, seed=1)
SHARDS = np.split(DATA, [9, 25, 37, 52])
#: frames take their time, as over a long link
SLOW = "delay = 0.03"


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
    timing = "patience = 0.2\nsilence = 30.0\nsettle = 0.5"
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


@pytest.mark.parametrize("silence", [60.0, 6.0])
def test_a_node_frozen_for_twenty_seconds(
    tmp_path: Path, authority: Path, silence: float
) -> None:
    """It catches up if the others still wait for it; if they have gone on without it, it is counted again."""
    timing = f"patience = 0.5\nsilence = {silence}\nsettle = 0.5\nlinger = 60.0"
    cluster = Processes(tmp_path, RING, SHARDS, authority, timing=timing, faults=SLOW)
    with running(cluster):
        cluster.until(lambda: all(cluster.rounds(node) >= 10 for node in range(5)))
        before = cluster.rounds(1)
        cluster.freeze(2)
        frozen = time.monotonic()
        if silence > 20.0:
            time.sleep(10.0)
            assert cluster.status(1)["state"] == "fitting"  # the others go on, slowly
            assert cluster.rounds(1) > before
            assert cluster.status(1)["members"] == [0, 1, 2, 3, 4]
        else:
            cluster.until(lambda: cluster.status(1)["members"] == [0, 1, 3, 4], 20.0)
        time.sleep(max(0.0, frozen + 20.0 - time.monotonic()))
        assert set(cluster.alive()) >= {2}
        cluster.wake(2)
        cluster.wait()
    check_exact(cluster)
    assert [fits(cluster, node) > 1 for node in range(5)] == [silence < 20.0] * 5
