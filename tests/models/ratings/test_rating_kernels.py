"""Every compiled rating kernel against its NumPy twin."""

from __future__ import annotations

import numpy as np
import pytest

import rating_twins as twins
from dmfvi.linalg import pack_symmetric
from dmfvi.models.ratings import kernels
from dmfvi.models.ratings.kernels import NoisePrior, RatingRows, RecordLayout, SideBeliefs

RANKS = [3, 12]


def records(side: twins.Side, layout: RecordLayout) -> np.ndarray:
    plain = kernels.records_of(side.mean, pack_symmetric(side.covariance), layout)
    return (side.weight[:, None] * plain).astype(layout.dtype)


@pytest.mark.parametrize(("rank", "codes"), [(1, np.uint8), (3, np.float32), (12, np.uint8)])
@pytest.mark.parametrize(("double", "near"), [(True, 1e-12), (False, 2e-5)])
def test_sums_over_ratings(
    rng: np.random.Generator, rank: int, codes: type, double: bool, near: float
) -> None:
    layout = RecordLayout(rank, double)
    rows = twins.random_rows(rng, 70, 500, 0.05, codes)
    side = twins.Side.random(rng, 500, layout.width)
    ours = kernels.row_sums(rows, records(side, layout), layout)
    theirs = twins.row_sums(rows, side, layout)
    np.testing.assert_allclose(ours, theirs, rtol=near, atol=near * np.abs(theirs).max())


def test_a_row_longer_than_all_others_is_shared_out(rng: np.random.Generator) -> None:
    """Its parts must add up; chunks are cut by ratings, not by rows."""
    layout = RecordLayout(3)
    n = 20 * kernels.LEAST_RATINGS
    side = twins.Side.random(rng, n, layout.width)
    columns = np.concatenate([np.arange(n), [0, 1, 2]]).astype(np.uint16)
    rows = RatingRows(
        np.array([0, 0, n, n, n + 3]), columns, rng.integers(1, 6, n + 3).astype(np.uint8), 0.0, 1.0
    )
    ours = kernels.row_sums(rows, records(side, layout), layout)
    theirs = twins.row_sums(rows, side, layout)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-2)
    assert (ours[[0, 2]] == 0).all()


@pytest.mark.parametrize("rank", RANKS)
def test_item_posteriors(rng: np.random.Generator, rank: int) -> None:
    layout = RecordLayout(rank)
    rows = twins.random_rows(rng, 77, 300, 0.05)
    sums = twins.row_sums(rows, twins.Side.random(rng, 300, layout.width), layout)[:, :-1]
    prior_mean = rng.normal(size=(77, layout.width))
    precision = twins.Side.random(rng, 1, layout.width).covariance[0]
    ours = kernels.solve_items(sums, prior_mean, precision, layout)
    mean, covariance, logs = twins.solve(sums, prior_mean, precision, layout)
    np.testing.assert_allclose(ours.mean, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(ours.covariance, pack_symmetric(covariance), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.log_precision, logs, rtol=1e-10)
    again = kernels.records_of(ours.mean, ours.covariance, layout)
    np.testing.assert_allclose(ours.records, again, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize(("rank", "steps"), [(3, 0), (3, 1), (12, 3)])
def test_user_posteriors_and_their_sums(
    rng: np.random.Generator, rank: int, steps: int, double: bool
) -> None:
    layout = RecordLayout(rank, double)
    rows = twins.random_rows(rng, 77, 300, 0.05)
    side = twins.Side.random(rng, 300, layout.width)
    prior_mean = rng.normal(size=(77, layout.width))
    precision = twins.Side.random(rng, 1, layout.width).covariance[0]
    noise = NoisePrior(3.0, 2.5, steps)
    theirs = twins.user_pass(
        twins.row_sums(rows, side, layout), rows.counts, prior_mean, precision, noise, layout
    )
    given = records(side, layout)
    kept = kernels.user_pass(rows, given, prior_mean, precision, noise, layout, keep=True)
    close = {"rtol": 3e-4, "atol": 3e-4}
    np.testing.assert_allclose(kept.mean, theirs["mean"], **close)
    np.testing.assert_allclose(kept.covariance, pack_symmetric(theirs["covariance"]), **close)
    np.testing.assert_allclose(kept.noise, theirs["noise"], **close)
    np.testing.assert_allclose(kept.second, pack_symmetric(theirs["second"]), rtol=1e-3, atol=1e-2)
    for name in ("residual", "log_weight", "bound"):
        assert getattr(kept, name) == pytest.approx(theirs[name], rel=1e-4, abs=1e-3)
    assert kept.weight == pytest.approx(theirs["weight"].sum(), rel=1e-5)
    passed = kernels.user_pass(rows, given, prior_mean, precision, noise, layout)
    users = twins.Side(theirs["mean"], theirs["covariance"], theirs["weight"])
    np.testing.assert_allclose(passed.records, records(users, layout), rtol=1e-3, atol=1e-3)


def test_batches_of_users_change_nothing(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = RecordLayout(3)
    rows = twins.random_rows(rng, 300, 100, 0.1)
    given = records(twins.Side.random(rng, 100, 4), layout)
    args = (rows, given, rng.normal(size=(300, 4)), np.eye(4), NoisePrior(3.0, 2.5, 3), layout)
    whole = kernels.user_pass(*args)
    monkeypatch.setattr(kernels, "BATCH", 64)
    parts = kernels.user_pass(*args)
    np.testing.assert_allclose(parts.records, whole.records, rtol=1e-5, atol=1e-6)
    assert parts.bound == pytest.approx(whole.bound, rel=1e-8)


def test_predictions(rng: np.random.Generator) -> None:
    users, items = twins.Side.random(rng, 9, 5), twins.Side.random(rng, 11, 5)
    noise = rng.uniform(0.5, 1.0, 9)
    who, what = rng.integers(0, 9, 40), rng.integers(0, 11, 40)
    mean, variance = kernels.predict(
        who,
        what,
        SideBeliefs(users.mean, pack_symmetric(users.covariance), noise),
        SideBeliefs(items.mean, pack_symmetric(items.covariance)),
    )
    expected = [
        twins.prediction(users, items, u, i, noise[u]) for u, i in zip(who, what, strict=True)
    ]
    np.testing.assert_allclose(np.column_stack([mean, variance]), expected, rtol=1e-10)


def test_rows_and_columns_hold_the_same_ratings(rng: np.random.Generator) -> None:
    rows = twins.random_rows(rng, 40, 30, 0.2)
    dense = np.full((40, 30), np.nan)
    dense[np.repeat(np.arange(40), rows.counts), rows.columns] = rows.values()
    turned = rows.transposed(30)
    again = np.full((30, 40), np.nan)
    again[np.repeat(np.arange(30), turned.counts), turned.columns] = turned.values()
    np.testing.assert_array_equal(again, dense.T)
    shuffled = rng.permutation(rows.n_ratings)
    owners = np.repeat(np.arange(40), rows.counts).astype(np.int32)
    grouped = kernels.grouped(
        owners[shuffled], rows.columns[shuffled], rows.codes[shuffled], 40, 30, -3.5, 1.1
    )
    third = np.full((40, 30), np.nan)
    third[np.repeat(np.arange(40), grouped.counts), grouped.columns] = grouped.values()
    np.testing.assert_array_equal(third, dense)
    some = np.array([39, 3, 17])
    np.testing.assert_array_equal(rows.take(some).counts, rows.counts[some])
    np.testing.assert_array_equal(
        rows.take(some).values()[:30], rows.values()[rows.indptr[39] : rows.indptr[40]]
    )


def test_sums_of_what_was_rated(rng: np.random.Generator) -> None:
    rows = twins.random_rows(rng, 40, 30, 0.2)
    table = rng.normal(size=(30, 4))
    expected = [table[rows.columns[rows.indptr[n] : rows.indptr[n + 1]]].sum(0) for n in range(40)]
    np.testing.assert_allclose(kernels.neighbour_sums(rows, table), expected, atol=1e-12)
