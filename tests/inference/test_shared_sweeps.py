"""Nodes of one process that hold the same bits compute once what follows from them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from dmfvi import Network, RatingFactorization, infer
from dmfvi.consensus import exact_sum
from dmfvi.datasets import make_ratings
from dmfvi.inference.model import Update
from dmfvi.inference.shared_sweeps import SharedSweeps
from dmfvi.models import LogisticRegression
from dmfvi.models.ratings.model import RatingModel
from dmfvi.models.regression.linear import RegressionShard
from dmfvi.storage.structured import digest_of


class Counting(LogisticRegression):
    """Counts its calls."""

    absorbed = 0

    def absorb(self, total: Any, own: Any, belief: Any) -> Update:
        self.absorbed += 1
        return super().absorb(total, own, belief)


def shards(n_nodes: int) -> list[RegressionShard]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    target = (rows[:, :1] + rng.normal(size=(60, 1)) > 0).astype(float)
    parts = zip(np.array_split(rows, n_nodes), np.array_split(target, n_nodes), strict=True)
    return [RegressionShard(x, y) for x, y in parts]


def test_work_on_beliefs_does_not_grow_with_the_nodes() -> None:
    counts = []
    for n_nodes in (3, 12):
        model = Counting(np.ones(3))
        fit = infer(model, shards(n_nodes), Network.ring(n_nodes), acceleration=False)
        assert fit.converged
        counts.append(model.absorbed / fit.n_iter)
    assert counts == [1.0, 1.0]


def test_a_sum_that_differs_in_a_bit_has_its_own_answer() -> None:
    model = Counting(np.ones(3))
    shared = SharedSweeps(model)
    own = model.statistics(shards(1)[0], model.prior)
    belief = model.prior
    first = shared.absorb(own, own, belief)
    assert shared.absorb(own.copy(), own, belief) is first
    other = own.copy()
    other[0] = np.nextafter(other[0], np.inf)
    assert shared.absorb(other, own, belief) is not first
    assert (
        shared.absorb(own, own, model.prior) is not first
    )  # another object: not known to be alike
    assert model.absorbed == 3


def test_ratings_of_ten_nodes_are_learned_from_as_often_as_pooled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each node's start is an object of its own with the same bits; sweeps and sums are made once for all."""
    made = {"absorb": 0, "sum": 0}
    absorb, total_of = RatingModel.absorb, exact_sum.total_of

    def counted_absorb(self: RatingModel, *given: Any) -> Update:
        made["absorb"] += 1
        return absorb(self, *given)

    def counted_sum(vectors: Any) -> Any:
        made["sum"] += 1
        return total_of(vectors)

    monkeypatch.setattr(RatingModel, "absorb", counted_absorb)
    monkeypatch.setattr(exact_sum, "total_of", counted_sum)
    ratings = make_ratings(1500, n_users=100, n_items=60, rank=2, seed=0).ratings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = [
            RatingFactorization(2, max_iter=6, random_state=0, network=network)
            for network in (Network.ring(3), Network.ring(10))
        ]
        counts = []
        for fit in fits:
            made.update(absorb=0, sum=0)
            fit.fit(ratings)
            counts.append((made["absorb"], made["sum"]))
    assert counts[0] == counts[1]
    assert counts[1][0] == fits[1].n_iter_
    assert len({digest_of(q) for q in fits[1].node_posteriors_}) == 1


def test_a_sum_is_not_taken_for_another_with_a_different_sign_of_zero() -> None:
    one, other = [np.array([0.0, 1.0])], [np.array([-0.0, 1.0])]
    assert exact_sum._same_bits(one, [one[0].copy()])
    assert not exact_sum._same_bits(one, other)
    assert not exact_sum._same_bits(one, one * 2)
