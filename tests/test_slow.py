"""Long statistical checks: make test-slow."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi import BayesianPCA, Network
from dmfvi.datasets import make_low_rank, mask_at_random

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_ninety_percent_intervals_cover_ninety_percent(covariance: str) -> None:
    inside = []
    for seed in range(40):
        truth = make_low_rank(150, 15, 3, noise=0.5, seed=seed).data
        holes = mask_at_random(truth, 0.3, seed=1000 + seed)
        model = BayesianPCA(3, network=Network.ring(5), covariance=covariance, random_state=seed)
        low, high = model.fit(holes).impute_interval(holes, 0.9)
        missing = np.isnan(holes)
        inside.append(((low <= truth) & (truth <= high))[missing])
    assert 0.88 < np.concatenate(inside).mean() < 0.92


def test_a_thousand_nodes() -> None:
    network = Network.small_world(1000, seed=0)
    data = make_low_rank(10_000, 20, 3, noise=0.5, seed=0).data
    reference = BayesianPCA(3, tol=1e-10, random_state=0).fit(data)
    model = BayesianPCA(3, network=network, random_state=0).fit(data)
    assert model.converged_
    assert max(p.distance(reference.posterior_) for p in model.node_posteriors_) < 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_exactness_on_random_networks_and_data(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 21))
    network = [Network.random_geometric, Network.small_world][seed % 2](n, seed=seed)
    d, m = int(rng.integers(5, 40)), int(rng.integers(1, 5))
    sizes = rng.integers(8, 60, size=n)
    data = make_low_rank(int(sizes.sum()), d, m, noise=float(rng.uniform(0.1, 1.5)), seed=seed).data
    data = mask_at_random(data, float(rng.choice([0.0, 0.1, 0.5])), seed=seed)
    shards = np.split(data, np.cumsum(sizes)[:-1])
    reference = BayesianPCA(m, tol=1e-10, random_state=0).fit(data)
    model = BayesianPCA(m, network=network, random_state=0).fit(shards)
    assert model.converged_
    assert max(p.distance(reference.posterior_) for p in model.node_posteriors_) < 1e-6
    assert abs(model.lower_bound_ / reference.lower_bound_ - 1) < 1e-8
