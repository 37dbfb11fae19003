"""The generator of ratings."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi.datasets import make_ratings, split_ratings


def test_it_gives_what_was_asked_for() -> None:
    data = make_ratings(30_000, n_users=500, n_items=400, rank=4, seed=1)
    R = data.ratings
    assert R.shape == (500, 400)
    assert R.nnz == 30_000
    assert set(np.unique(R.data)) == {1, 2, 3, 4, 5}
    keys = np.repeat(np.arange(500), np.diff(R.indptr)) * 400 + R.indices
    assert len(np.unique(keys)) == R.nnz  # nobody rates twice
    assert data.user_factors.shape == (500, 4)
    # heavy tails on both sides
    for counts in (np.diff(R.indptr), np.bincount(R.indices, minlength=400)):
        assert counts.max() > 4 * np.median(counts)


def test_one_seed_one_set() -> None:
    a, b, c = (make_ratings(5_000, n_users=300, n_items=200, seed=s).ratings for s in (1, 1, 2))
    assert (a != b).nnz == 0
    assert (a != c).nnz > 0


def test_ratings_follow_the_truth() -> None:
    d = make_ratings(100_000, n_users=3000, n_items=900, noise=0.1, seed=1)
    R = d.ratings.tocoo()
    truth = 3.6 + (d.user_factors[R.row] * d.item_factors[R.col]).sum(1)
    truth += d.user_bias[R.row] + d.item_bias[R.col]
    inner = (truth > 1.5) & (truth < 4.5)  # whole steps of rounding
    assert np.std((R.data - truth)[inner]) == pytest.approx(np.sqrt(0.1**2 + 1 / 12), rel=0.05)


def test_the_shape_is_netflixs() -> None:
    R = make_ratings(100_000).ratings
    assert R.nnz == 100_000
    sizes = make_ratings(1_500_000).ratings.shape
    assert sizes[0] == pytest.approx(480_189 * 1.5e6 / 100_480_507, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_ratings": 0}, "n_ratings"),
        ({"n_ratings": 1000, "n_users": 3, "n_items": 30}, "do not fit"),
        ({"n_ratings": 10, "scale": (5, 1)}, "scale"),
        ({"n_ratings": 10, "noise": -1}, "noise"),
    ],
)
def test_what_cannot_be_made_is_refused(settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_ratings(**settings)


def test_a_split_holds_out_its_part_and_nothing_is_lost() -> None:
    R = make_ratings(20_000, n_users=500, n_items=400).ratings
    train, (users, items, ratings) = split_ratings(R, 0.2, seed=1)
    assert len(ratings) == pytest.approx(4000, rel=0.1)
    assert train.nnz + len(ratings) == R.nnz
    again = train.tolil()
    again[users, items] = ratings
    assert (again.tocsr() != R).nnz == 0


def test_triples_with_any_ids_are_split_as_they_are() -> None:
    users, items = np.array(["a", "b", "c"] * 100), np.arange(300)
    given = (users, items, np.ones(300))
    rest, held = split_ratings(given, 0.2, seed=1)
    assert len(rest) == len(held) == 3
    assert 30 < len(held[0]) < 90
    assert sorted([*rest[1], *held[1]]) == list(range(300))
    with pytest.raises(TypeError, match=r"scipy sparse matrix.*received ndarray"):
        split_ratings(np.ones((3, 4)))
    with pytest.raises(ValueError, match="as many"):
        split_ratings(([1, 2], [1], [1.0]))
