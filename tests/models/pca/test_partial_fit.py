"""Online learning: the posterior of one batch is the prior of the next."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from dmfvi import BayesianPCA, Federation, Links, Network
from dmfvi.datasets import make_low_rank, mask_at_random
from helpers import low_rank_shards


def batches(missing: float = 0.0, sizes: tuple[int, ...] = (60, 40, 50)) -> list[np.ndarray]:
    data = make_low_rank(sum(sizes), 12, 3, noise=0.3, seed=0).data
    data = mask_at_random(data, missing) if missing else data
    return np.split(data, np.cumsum(sizes)[:-1])


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("forgetting", [1.0, 0.7])
def test_decentralized_equals_pooled_after_every_batch(missing: float, forgetting: float) -> None:
    pooled = BayesianPCA(3, tol=1e-10, random_state=0)
    ring = BayesianPCA(3, network=Network.ring(4), random_state=0)
    for batch in batches(missing):
        pooled.partial_fit(batch, forgetting=forgetting)
        ring.partial_fit(batch, forgetting=forgetting)
        worst = max(p.distance(pooled.posterior_) for p in ring.node_posteriors_)
        assert worst < 2e-6
        assert ring.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-6)


def test_the_stream_ends_close_to_the_batch_fit() -> None:
    stream = BayesianPCA(3, network=Network.ring(4), random_state=0)
    parts = batches(0.2)
    for batch in parts:
        stream.partial_fit(batch)
    whole = BayesianPCA(3, random_state=0).fit(np.concatenate(parts))
    angle = np.degrees(subspace_angles(stream.components_.T, whole.components_.T)[0])
    assert angle < 1.0
    assert stream.noise_precision_ == pytest.approx(whole.noise_precision_, rel=0.05)
    spread = stream.posterior_.covariance.trace(axis1=1, axis2=2)
    np.testing.assert_allclose(
        spread, whole.posterior_.covariance.trace(axis1=1, axis2=2), rtol=0.15
    )


def test_some_nodes_have_nothing_new() -> None:
    parts = np.array_split(batches()[0], 4)
    new = [parts[0], np.empty((0, 12)), parts[2][:1], np.empty((0, 12))]
    ring = BayesianPCA(3, network=Network.ring(4), random_state=0).fit(parts)
    ring.partial_fit(new)
    pooled = BayesianPCA(3, tol=1e-10, random_state=0).fit(np.concatenate(parts))
    pooled.partial_fit(np.concatenate(new))
    assert max(p.distance(pooled.posterior_) for p in ring.node_posteriors_) < 2e-6


def test_missing_entries_may_begin_later() -> None:
    whole, holes = batches()[0], batches(0.3)[1]
    model = BayesianPCA(3, network=Network.ring(3), random_state=0).fit(whole)
    reference = BayesianPCA(3, tol=1e-10, random_state=0).fit(whole)
    model.partial_fit(holes)
    reference.partial_fit(holes)
    assert model.posterior_.distance(reference.posterior_) < 2e-6


def test_noise_per_node_is_carried_by_its_node() -> None:
    shards = low_rank_shards([80] * 3)
    rng = np.random.default_rng(0)
    noisy = [x + i * rng.normal(size=x.shape) for i, x in enumerate(shards)]
    model = BayesianPCA(3, network=Network.ring(3), noise="per_node", random_state=0).fit(noisy)
    before = [p.noise_precision for p in model.node_posteriors_]
    model.partial_fit([noisy[0][:0], noisy[1][:5], noisy[2][:0]])
    after = [p.noise_precision for p in model.node_posteriors_]
    np.testing.assert_allclose(after, before, rtol=0.1)


def test_forgetting_lets_the_model_follow_a_change() -> None:
    old, new = make_low_rank(200, 10, 2, seed=0).data, make_low_rank(160, 10, 2, seed=9)
    angles = {}
    for forgetting in (1.0, 0.3):
        model = BayesianPCA(2, random_state=0).fit(old)
        for batch in np.array_split(new.data, 8):
            model.partial_fit(batch, forgetting=forgetting)
        angles[forgetting] = subspace_angles(model.components_.T, new.loadings)[0]
    assert angles[0.3] < 0.5 * angles[1.0]


def test_batches_arrive_over_lossy_links() -> None:
    links = Links(loss=0.3, seed=0)
    pooled = BayesianPCA(3, tol=1e-10, random_state=0)
    ring = BayesianPCA(3, network=Federation(Network.ring(4), links=links), random_state=0)
    for batch in batches(0.2):
        pooled.partial_fit(batch)
        ring.partial_fit(batch)
        assert max(p.distance(pooled.posterior_) for p in ring.node_posteriors_) < 2e-6


@pytest.mark.parametrize("shares", ["exact", "replicated"])
def test_a_batch_without_news_changes_nothing(shares: str) -> None:
    """Carried shares add up to what was known, with exact and with replicated shares."""
    parts = list(np.array_split(batches()[0], 4))
    model = BayesianPCA(3, network=Network.ring(4), shares=shares, random_state=0).fit(parts)
    before = model.posterior_
    model.partial_fit([part[:0] for part in parts])
    assert model.posterior_.distance(before) < 1e-5


def test_bad_input_is_named() -> None:
    grown = BayesianPCA(2, network=Network.ring(2), random_state=0).fit(batches()[0])
    with pytest.raises(ValueError, match="the model so far has 2 nodes, now there are 3"):
        grown.set_params(network=Network.ring(3)).partial_fit(batches()[1])
    model = BayesianPCA(2, random_state=0).fit(batches()[0])
    with pytest.raises(ValueError, match="forgetting must lie"):
        model.partial_fit(batches()[1], forgetting=0.0)
    with pytest.raises(ValueError, match="5 features"):
        model.partial_fit(batches()[1][:, :5])
    paper = BayesianPCA(
        2,
        network=Federation(Network.ring(2), consensus="moments-admm"),
        covariance_type="diag",
        max_iter=2,
    )
    with pytest.warns(UserWarning, match="not converged"):
        paper.fit(batches()[0])
    with pytest.raises(ValueError, match="carried over"):
        paper.partial_fit(batches()[1])


@pytest.mark.parametrize("forgetting", [0.0, 2, "a", np.nan])
def test_forgetting_is_checked_at_the_first_batch_too(forgetting: object) -> None:
    with pytest.raises(ValueError, match="forgetting must lie"):
        BayesianPCA(1).partial_fit(
            np.random.default_rng(0).normal(size=(9, 3)), forgetting=forgetting
        )
