"""The first law for ratings: every node ends with the pooled posterior of the items."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from dmfvi import Federation, Network, RatingFactorization
from dmfvi.datasets import make_ratings

NATURAL = 1e-6

# the generated set has films that nobody rated
pytestmark = pytest.mark.filterwarnings("ignore:.*items have no rating:UserWarning")
NETWORKS = [
    Network.ring(2),
    Network.ring(10),
    Network.chain(4),
    Network.star(6),
    Network.grid(2, 3),
    Network.small_world(10, seed=1),
]


@lru_cache
def data():
    return make_ratings(20_000, n_users=400, n_items=250, seed=3)


@lru_cache
def pooled(**settings: object) -> RatingFactorization:
    return RatingFactorization(3, max_iter=12, random_state=0, **settings).fit(data().ratings)


def assert_exact(model: RatingFactorization, reference: RatingFactorization) -> None:
    worst = max(p.distance(reference.posterior_) for p in model.node_posteriors_)
    assert worst < NATURAL
    assert model.lower_bound_ == pytest.approx(reference.lower_bound_, rel=1e-8)
    assert model.n_iter_ == reference.n_iter_
    users = np.repeat(model.user_ids_[::7], 3)
    items = np.resize(model.item_ids_, len(users))
    ours = model.predict(users, items, return_std=True)
    theirs = reference.predict(users, items, return_std=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("rule", ["statistics-tracking", "bregman-admm", "all-reduce"])
def test_with_every_rule(rule: str) -> None:
    model = RatingFactorization(
        3, network=Federation(Network.ring(10), consensus=rule), max_iter=12, random_state=0
    ).fit(data().ratings)
    assert_exact(model, pooled())


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
def test_on_every_graph(network: Network) -> None:
    model = RatingFactorization(3, network=network, max_iter=12, random_state=0)
    assert_exact(model.fit(data().ratings), pooled())
    # one entry a sweep, also where nodes of a star or a chain sweep in different rounds
    assert {len(column) for column in model.history_.values()} == {model.n_iter_}
    np.testing.assert_allclose(
        model.history_["objective"], pooled().history_["objective"], rtol=1e-7
    )
    assert (model.history_["bytes_sent"] > 0).all()


@pytest.mark.parametrize(
    "settings", [{"noise": "shared"}, {"user_bias": False}, {"n_choice_features": 0}], ids=str
)
def test_with_every_model(settings: dict[str, object]) -> None:
    model = RatingFactorization(3, network=Network.ring(5), max_iter=12, random_state=0, **settings)
    assert_exact(model.fit(data().ratings), pooled(**settings))


def test_blocks_of_one_node_each_are_the_split_matrix() -> None:
    ratings = data().ratings
    parts = [ratings[:50], ratings[50:180], ratings[180:]]
    model = RatingFactorization(3, network=Network.chain(3), max_iter=12, random_state=0)
    assert_exact(model.fit(parts), pooled())


def test_a_message_has_104_numbers_an_item_at_rank_12() -> None:
    ratings = make_ratings(5_000, n_users=200, n_items=150, seed=1).ratings
    model = RatingFactorization(12, network=Network.ring(3), max_iter=1, random_state=0)
    model.fit(ratings)
    features = 18
    rest = 91 + 13 * features + features * (features + 1) // 2 + 6
    assert model.consensus_["numbers"] == 104 * 150 + rest
