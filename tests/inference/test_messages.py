"""What leaves a node, how starts are agreed on, and how many rounds a mixture takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dmfvi import BayesianGaussianMixture, Federation, GaussianHMM, MixtureOfPCA, Network, infer
from dmfvi.consensus import AllReduce, make
from dmfvi.engines import local
from dmfvi.engines.local import LocalEngine
from dmfvi.inference.collective import Collective
from dmfvi.inference.starts import agree_on_units, consensus_kmeans
from dmfvi.models import GaussianMixture
from dmfvi.models.mixture.shard import MixtureShard
from helpers import distance


@pytest.fixture
def mailbag(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Every payload that any node hands to the post."""
    seen: list[np.ndarray] = []
    send = local._PostOffice.send

    def watched(self: Any, messages: Any, number: int) -> None:
        seen.extend(m.payload for m in messages if m is not None)
        send(self, messages, number)

    monkeypatch.setattr(local._PostOffice, "send", watched)
    return seen


def class_sorted(n: int = 90, seed: int = 0) -> list[np.ndarray]:
    """Three nodes, one class each."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0, 0], [4, 0, 1], [0, 4, 2]])
    return [c + rng.normal(size=(n // 3, 3)) for c in centres]


def holds_a_row(payload: np.ndarray, rows: np.ndarray) -> bool:
    """Whether a row, or the row in the start's units, stands in a message as it is."""
    width = rows.shape[1]
    if payload.size < width:
        return False
    windows = np.lib.stride_tricks.sliding_window_view(payload, width)
    near = np.isclose(windows[:, :1], rows[:, 0], rtol=1e-9, atol=0)
    return any(np.isclose(windows[i], rows[j], rtol=1e-9).all() for i, j in np.argwhere(near))


ESTIMATORS = {
    "mixture": lambda: BayesianGaussianMixture(3, network=Network.ring(3), random_state=0),
    "mixture of PCA": lambda: MixtureOfPCA(3, 1, network=Network.ring(3), random_state=0),
    "chain": lambda: GaussianHMM(3, network=Network.ring(3), random_state=0),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_messages_hold_packed_statistics_only(name: str, mailbag: list[np.ndarray]) -> None:
    """Sizes do not depend on the number of rows, and no row is in any message, start included."""
    sizes = []
    for n in (60, 120):
        mailbag.clear()
        shards = class_sorted(n)
        data = [[s] for s in shards] if name == "chain" else shards
        model = ESTIMATORS[name]().fit(data)
        rows = np.concatenate(shards)
        scaled = (rows - rows.mean(0)) / rows.std(0, ddof=1)
        for payload in mailbag:
            assert not holds_a_row(payload, rows)
            assert not holds_a_row(payload, scaled)
        sizes.append({p.size for p in mailbag})
        assert model.converged_
    assert sizes[0] == sizes[1]


def test_a_row_in_a_message_would_be_found() -> None:
    """The check above can fail."""
    row = np.array([[0.1, 0.2, 0.3]])
    assert holds_a_row(np.array([5.0, 0.1, 0.2, 0.3, 1.0]), row)


@pytest.mark.parametrize("acceleration", [False, True])
def test_messages_of_a_conjugate_model_are_statistics_and_the_bound(
    mailbag: list[np.ndarray], acceleration: bool
) -> None:
    data = np.concatenate(class_sorted())[:, :2]
    model = GaussianMixture(3, 1.0, np.zeros(2), 1.0, 2.0, np.eye(2), 4.0 * np.eye(2))
    shards = [MixtureShard.of(part) for part in np.array_split(data, 3)]
    with pytest.warns(ConvergenceWarning, match="after 1 iterations"):
        start = infer(model, [MixtureShard.of(data)], max_iter=1, random_state=0).posterior
    mailbag.clear()
    federation = Federation(Network.ring(3), "bregman-admm")
    infer(model, shards, federation, start=start, acceleration=acceleration)
    header, bound = 3, 1  # of Bregman ADMM
    # the total that made the belief, and the count of nodes
    belief = model.prior.packed_size + bound + 1 if acceleration else 0
    expected = header + model.prior.packed_size + bound + belief
    assert {p.size for p in mailbag} == {expected}


@pytest.mark.parametrize("name", ["exact-sum", "bregman-admm"])
@pytest.mark.parametrize("network", [Network.chain(3), Network.star(3)], ids=str)
def test_agreed_starts_equal_pooled_ones(network: Network, name: str) -> None:
    shards = class_sorted()
    rows = np.concatenate(shards)
    alone = Collective(Network.complete(1), LocalEngine(), AllReduce())
    together = Collective(network, LocalEngine(), make(name, network))
    pooled = alone.run([agree_on_units(rows)])[0]
    for units in together.run([agree_on_units(x) for x in shards]):
        np.testing.assert_allclose(units.shift, rows.mean(0), rtol=1e-8)
        np.testing.assert_allclose(units.scale, rows.std(0, ddof=1), rtol=1e-8)
        np.testing.assert_allclose(units.covariance, np.corrcoef(rows.T), rtol=1e-7, atol=1e-9)

    def talks(parts: list[np.ndarray]) -> list[Any]:
        return [
            consensus_kmeans(pooled.apply(x), 3, pooled.covariance, np.random.default_rng(1))
            for x in parts
        ]

    one = alone.run(talks([rows]))[0]
    for clusters in together.run(talks(shards)):
        np.testing.assert_allclose(clusters.centres, one.centres, rtol=1e-7, atol=1e-8)
    from sklearn.cluster import KMeans

    theirs = KMeans(3, n_init=10, random_state=0).fit(pooled.apply(rows)).cluster_centers_
    gaps = np.linalg.norm(one.centres[:, None] - theirs[None], axis=-1).min(1)
    assert gaps.max() < 0.1


def test_nodes_that_end_a_talk_early_are_told() -> None:
    def short() -> Any:
        yield np.ones(1)
        return 0

    def long() -> Any:
        yield np.ones(1)
        yield np.ones(1)
        return 0

    with pytest.raises(RuntimeError, match="1 of 2 nodes returned"):
        Collective(Network.ring(2), LocalEngine(), AllReduce()).run([short(), long()])


def test_restarts_are_chosen_by_the_agreed_bound() -> None:
    shards = class_sorted()
    bounds = [
        BayesianGaussianMixture(4, n_init=1, network=Network.ring(3), random_state=s)
        .fit(shards)
        .lower_bound_
        for s in range(2)
    ]
    several = BayesianGaussianMixture(4, n_init=3, network=Network.ring(3), random_state=0)
    single = BayesianGaussianMixture(4, n_init=3, random_state=0).fit(shards)
    assert several.fit(shards).lower_bound_ >= max(bounds[:1]) - 1e-6
    assert distance(several.posterior_, single.posterior_) < 1e-5
