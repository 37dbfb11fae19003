"""RatingFactorization: what it promises of predictions, intervals, recommendations and bad input."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from dmfvi import Federation, Network, RatingFactorization, load, save
from dmfvi.datasets import RatingData, make_ratings, split_ratings
from dmfvi.models.ratings.checkpoint import load_checkpoint, save_checkpoint
from dmfvi.models.ratings.model import gamma_shape
from dmfvi.models.ratings.table import RatingTable

# the generated sets have films that nobody rated; only the tests about that look at the warning
pytestmark = pytest.mark.filterwarnings("ignore:.*items have no rating:UserWarning")


@lru_cache
def data() -> RatingData:
    return make_ratings(60_000, n_users=600, n_items=500, rank=3, noise=0.6, seed=5)


@lru_cache
def split():
    return split_ratings(data().ratings, 0.1, seed=1)


@lru_cache
def fitted() -> RatingFactorization:
    return RatingFactorization(3, random_state=0).fit(split()[0])


def truth(users: np.ndarray, items: np.ndarray) -> np.ndarray:
    d = data()
    return (
        3.6
        + (d.user_factors[users] * d.item_factors[items]).sum(1)
        + d.user_bias[users]
        + d.item_bias[items]
    )


# -- accuracy and honesty -----------------------------------------------------------------


def test_predicts_better_than_means_and_biases() -> None:
    users, items, ratings = split()[1]
    train = split()[0]
    mean = train.data.mean()
    counts = np.diff(train.tocsc().indptr)
    sums = np.asarray(train.sum(0)).ravel()
    film = np.where(counts > 0, sums / np.maximum(counts, 1), mean)
    of_films = np.sqrt(np.mean((film[items] - ratings) ** 2))
    score = fitted().evaluate(users, items, ratings)
    # rounding to stars adds 1/12 to the variance of the noise
    floor = np.sqrt(0.6**2 + 1 / 12)
    assert score.rmse < 0.85 * of_films
    assert score.rmse < 1.2 * floor


def test_ninety_percent_intervals_cover_ninety_percent() -> None:
    users, items, ratings = split()[1]
    assert 0.88 < fitted().evaluate(users, items, ratings).coverage < 0.93
    low, high = fitted().predict_interval(users, items, level=0.5)
    assert 0.4 < np.mean((ratings >= low) & (ratings <= high)) < 0.62
    assert (low <= high).all()
    assert low.min() >= 1
    assert high.max() <= 5


def test_deviations_say_how_wrong_the_expectation_is() -> None:
    """Without noise, the truth lies within two posterior deviations nearly always."""
    users, items, _ = split()[1]
    model = fitted()
    posterior = model.posterior_
    rows = model._users.rows(users)
    mean, variance = posterior.predict(rows, items, posterior.users)
    noise = posterior.units.scale**2 * posterior.users.beliefs().noise[rows]
    gap = np.abs(mean - truth(users, items)) / np.sqrt(variance - noise)
    inner = np.abs(mean - 3) < 1.2  # clipping to stars bends the ends
    assert np.mean(gap[inner] < 2) > 0.85


def test_the_bound_never_falls() -> None:
    for settings in ({}, {"noise": "shared"}, {"item_bias": False}):
        model = RatingFactorization(3, max_iter=15, random_state=0, **settings).fit(split()[0])
        bound = model.history_["objective"][1:]
        assert (np.diff(bound) > -1e-6 * np.abs(bound[1:])).all()


def test_columns_that_the_data_do_not_support_are_switched_off() -> None:
    ratings = make_ratings(40_000, n_users=900, n_items=400, rank=1, noise=0.5, seed=2).ratings
    model = RatingFactorization(3, max_iter=60, random_state=0).fit(ratings)
    deviations = model.component_deviations_
    assert deviations[0] > 0.3
    assert (deviations[1:] < 0.2 * deviations[0]).all()
    assert (np.diff(deviations) <= 1e-12).all()


def test_sloppy_users_are_found() -> None:
    rng = np.random.default_rng(0)
    R = make_ratings(30_000, n_users=300, n_items=1000, rank=3, noise=0.4, seed=2).ratings
    sloppy = np.arange(300) < 60
    mask = np.repeat(sloppy, np.diff(R.indptr))
    R.data[mask] = rng.integers(1, 6, mask.sum())
    model = RatingFactorization(3, max_iter=10, random_state=0).fit(R)
    noise = model.posterior_.users.noise
    precision = noise[:, 0] / noise[:, 1]
    assert precision[~sloppy].mean() > 3 * precision[sloppy].mean()


def test_what_users_choose_tells_what_they_like() -> None:
    """Two camps that only watch and like their own films: choice predicts taste before any rating."""
    rng = np.random.default_rng(1)
    camp_u, camp_i = rng.integers(0, 2, 400), rng.integers(0, 2, 200)
    same = camp_u[:, None] == camp_i
    seen = rng.random((400, 200)) < np.where(same, 0.2, 0.04)
    stars = np.clip(np.rint(np.where(same, 4.2, 2.4) + 0.9 * rng.normal(size=same.shape)), 1, 5)
    test = seen & (rng.random(seen.shape) < 0.2)
    R = sp.csr_matrix(np.where(seen & ~test, stars, 0))
    users, items = np.nonzero(test)
    errors = [
        RatingFactorization(2, n_choice_features=n, max_iter=10, random_state=0)
        .fit(R)
        .evaluate(users, items, stars[test])
        .rmse
        for n in (0, 4)
    ]
    assert errors[1] < errors[0] - 0.01


def test_without_biases_there_are_none() -> None:
    model = RatingFactorization(
        3, user_bias=False, item_bias=False, max_iter=5, random_state=0
    ).fit(split()[0])
    assert np.abs(model.user_bias_).max() < 1e-3
    assert np.abs(model.item_bias_).max() < 1e-3


# -- the same ratings in any form -----------------------------------------------------------


def test_matrix_triples_table_and_blocks_give_the_same_answer() -> None:
    train = split()[0]
    train = train[:, np.flatnonzero(np.diff(train.tocsc().indptr))]
    as_matrix = RatingFactorization(3, random_state=0).fit(train)
    R = train.tocoo()
    users, items = R.row + 1000, np.array([f"film {i:04}" for i in R.col])
    by_ids = RatingFactorization(3, random_state=0).fit((users, items, R.data))
    assert by_ids.user_ids_[0] >= 1000
    assert by_ids.item_ids_[0].startswith("film")
    np.testing.assert_allclose(
        by_ids.predict(users[::9], items[::9]),
        as_matrix.predict(users[::9] - 1000, R.col[::9]),
        atol=1e-4,
    )
    table = RatingTable.of(users, items, R.data)
    again = RatingFactorization(3, random_state=0).fit(table)
    np.testing.assert_array_equal(again.item_factors_, by_ids.item_factors_)
    joined = RatingFactorization(3, random_state=0).fit([train[:200], train[200:]])
    np.testing.assert_allclose(joined.item_factors_, as_matrix.item_factors_, atol=1e-4)


def test_results_do_not_depend_on_the_grid_of_the_ratings() -> None:
    users, items, _ = split()[1]
    halves = split()[0].copy()
    halves.data = halves.data / 2
    model = RatingFactorization(3, random_state=0).fit(halves)
    np.testing.assert_allclose(
        2 * model.predict(users, items), fitted().predict(users, items), atol=1e-3
    )


def test_one_seed_one_answer() -> None:
    again = clone(fitted()).fit(split()[0])
    np.testing.assert_array_equal(again.item_factors_, fitted().item_factors_)


# -- recommending and new users -------------------------------------------------------------


def test_recommendations_follow_their_strategy() -> None:
    model = fitted()
    user = 7
    rated = split()[0][user].indices
    best = model.recommend(user, 10)
    assert not np.isin(best.items, rated).any()
    assert (np.diff(best.scores) <= 0).all()
    careful = model.recommend(user, 10, "ucb", level=0.99)
    assert careful.std.mean() >= best.std.mean()
    draws = {tuple(model.recommend(user, 5, "thompson", random_state=s).items) for s in range(6)}
    assert len(draws) > 1
    one = model.recommend(user, 5, "thompson", random_state=3)
    two = model.recommend(user, 5, "thompson", random_state=3)
    np.testing.assert_array_equal(one.items, two.items)
    everything = model.recommend(user, 10_000, exclude_rated=False)
    assert len(everything.items) == len(model.item_ids_)


def test_a_folded_user_is_as_if_fitted() -> None:
    """The same ratings under a new id: the items hardly change, so neither do predictions."""
    model = fitted()
    user = 11
    row = split()[0][user]
    name = model.fold_in(row.indices, row.data, user="newcomer")
    items = np.arange(50)
    ours, ours_std = model.predict([name] * 50, items, return_std=True)
    theirs, theirs_std = model.predict([user] * 50, items, return_std=True)
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    np.testing.assert_allclose(ours_std, theirs_std, rtol=5e-3)
    assert not np.isin(model.recommend(name, 20).items, row.indices).any()


def test_unknown_users_and_items_fall_back_and_say_so() -> None:
    model = fitted()
    with pytest.warns(UserWarning, match="1 of 2 users are unknown"):
        mean, std = model.predict([10**6, 3], [4, 4], return_std=True)
    assert std[0] > std[1]
    with pytest.warns(UserWarning, match="items are unknown"):
        mean, std = model.predict([3], [10**6], return_std=True)
    assert 1 <= mean[0] <= 5
    with pytest.warns(UserWarning, match="unknown: recommendations are those for a typical user"):
        assert len(model.recommend("nobody", 5).items) == 5


# -- files ----------------------------------------------------------------------------------


def test_a_saved_model_predicts_the_same(tmp_path: Path) -> None:
    again = load(save(fitted(), tmp_path / "model.npz"))
    users, items, ratings = split()[1]
    np.testing.assert_array_equal(again.predict(users, items), fitted().predict(users, items))
    assert again.evaluate(users, items, ratings) == fitted().evaluate(users, items, ratings)
    np.testing.assert_array_equal(
        again.recommend(5, 8, "ucb").items, fitted().recommend(5, 8, "ucb").items
    )
    assert again.get_params() == fitted().get_params()
    np.testing.assert_equal(again.history_, fitted().history_)


def test_a_saved_model_keeps_who_was_folded_in_and_whose_view_it_is(tmp_path: Path) -> None:
    model = RatingFactorization(2, network=Network.ring(3), max_iter=2, random_state=0)
    model.fit(split()[0])
    seen = model.at_node(2)
    seen.fold_in([1, 2, 3], [5.0, 4.0, 1.0], user="ann")
    back = load(save(seen, tmp_path / "model.npz"))
    np.testing.assert_array_equal(back.predict(["ann"], [7]), seen.predict(["ann"], [7]))
    np.testing.assert_array_equal(back.recommend("ann").items, seen.recommend("ann").items)
    np.testing.assert_array_equal(back.item_factors_, seen.item_factors_)
    np.testing.assert_array_equal(back.at_node(1).item_bias_, model.at_node(1).item_bias_)


def test_a_checkpoint_comes_back(tmp_path: Path) -> None:
    kept: list = []
    RatingFactorization(2, max_iter=2, random_state=0).fit(split()[0], on_sweep=kept.append)
    save_checkpoint(kept[-1], tmp_path)
    back = load_checkpoint(tmp_path)
    np.testing.assert_array_equal(back.belief.records, kept[-1].belief.records)
    assert back.belief.item_prior.log_density == kept[-1].belief.item_prior.log_density
    assert back._replace(belief=None) == kept[-1]._replace(belief=None)
    np.savez(tmp_path / "checkpoint.npz", format="dmfvi-ratings-checkpoint", version=1)
    with pytest.raises(ValueError, match="former version: begin the fit again"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("network", [None, Network.ring(10)], ids=["pooled", "ring of 10"])
def test_a_resumed_fit_ends_where_it_would_have(network: Network | None) -> None:
    whole = RatingFactorization(3, network=network, max_iter=8, random_state=0).fit(split()[0])
    kept: list = []

    def stop(checkpoint) -> bool:
        kept.append(checkpoint)
        return checkpoint.sweeps == 3

    part = RatingFactorization(3, network=network, max_iter=8, random_state=0)
    part.fit(split()[0], on_sweep=stop)
    assert part.n_iter_ == 3
    rest = RatingFactorization(3, network=network, max_iter=8, random_state=0)
    rest.fit(split()[0], resume=kept[-1])
    assert rest.n_iter_ == 8
    np.testing.assert_allclose(rest.item_factors_, whole.item_factors_, atol=1e-5)
    with pytest.raises(ValueError, match="resume with the data"):
        RatingFactorization(3, max_iter=8).fit(split()[0][:300], resume=kept[-1])


def test_an_interrupted_fit_keeps_what_it_learned() -> None:
    def interrupt(checkpoint) -> None:
        if checkpoint.sweeps == 2:
            raise KeyboardInterrupt

    model = RatingFactorization(3, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(split()[0], on_sweep=interrupt)
    assert model.n_iter_ == 2
    assert model.evaluate(*split()[1]).rmse < 1.0


def test_held_out_ratings_are_watched() -> None:
    model = RatingFactorization(3, max_iter=4, random_state=0).fit(split()[0], held_out=split()[1])
    assert model.history_["rmse"].shape == (4,)
    assert model.history_["rmse"][-1] == pytest.approx(model.evaluate(*split()[1]).rmse, abs=1e-6)


def test_it_stops_early_when_asked_to() -> None:
    model = RatingFactorization(2, tol=0.5, max_iter=50, random_state=0).fit(split()[0])
    assert model.n_iter_ < 50
    assert model.converged_


# -- bad input ------------------------------------------------------------------------------


def triple(**change) -> tuple:
    given = {"users": [0, 0, 1, 2], "items": [0, 1, 1, 0], "ratings": [5.0, 3.0, 4.0, 1.0]}
    given |= change
    return given["users"], given["items"], given["ratings"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (triple(ratings=[5, np.nan, 1, 2]), "nan at position 1 is not a finite number"),
        (triple(ratings=[5, np.inf, 1, 2]), "not a finite number"),
        (triple(ratings=[5, 7, 1, 2]), r"rating 7 is outside the scale 1\.\.5"),
        (triple(users=[0, -1, 1, 2]), "user id -1 at position 1 is negative"),
        (triple(items=[0, 1, 0.5, 2]), "no whole number"),
        (triple(items=[0, 1]), "equal length"),
        (sp.csr_matrix((3, 4)), "no ratings"),
        (np.ones((3, 3)), "without NaN: which ratings are unknown"),
        ([sp.csr_matrix(np.ones((2, 3))), sp.csr_matrix(np.ones((2, 4)))], "numbers of items"),
        ([triple(), triple()], "more than one block"),
    ],
)
def test_bad_ratings_are_refused_with_what_is_wrong(data, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        RatingFactorization(1, rating_scale=(1, 5)).fit(data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"max_iter": 0}, "max_iter"),
        ({"noise": "none"}, "noise must be one of"),
        ({"rating_scale": (5, 1)}, "rating_scale"),
        ({"rating_scale": (1, 2, 3)}, "rating_scale"),
        ({"rating_scale": 5}, "rating_scale"),
        ({"network": Federation(Network.ring(3), engine="pigeons")}, "engine must be one of"),
        ({"network": Federation(Network.ring(3), "gossip")}, "consensus must be one of"),
        ({"network": Network.ring(500)}, "cannot be split over 500 nodes"),
        ({"tol": -1.0}, "tol must be positive"),
    ],
)
def test_bad_settings_are_refused(settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RatingFactorization(**settings).fit(data().ratings[:100])


def test_repeated_ratings_count_as_their_mean() -> None:
    with pytest.warns(UserWarning, match="2 of 6 ratings repeat a user and item"):
        ours = RatingFactorization(1, max_iter=2, random_state=0).fit(
            ([0, 0, 0, 1, 1, 2], [0, 0, 0, 1, 0, 1], [5, 3, 1, 4, 2, 1])
        )
    theirs = RatingFactorization(1, max_iter=2, random_state=0).fit(
        ([0, 1, 1, 2], [0, 1, 0, 1], [3.0, 4, 2, 1])
    )
    np.testing.assert_allclose(ours.item_factors_, theirs.item_factors_, atol=1e-6)


@pytest.mark.parametrize("form", [sp.coo_matrix, sp.coo_array])
def test_a_matrix_of_triples_does_not_add_up_repeated_ratings(form) -> None:
    users, items, ratings = [0, 0, 1, 1, 2], [0, 0, 1, 0, 1], [5.0, 3, 4, 2, 1]
    with pytest.warns(UserWarning, match="1 of 5 ratings repeat"):
        model = RatingFactorization(1, max_iter=2, random_state=0).fit(
            form((ratings, (users, items)), shape=(3, 2))
        )
    assert model.rating_scale_ == (1.0, 5.0)


def test_users_and_items_without_ratings_are_named() -> None:
    R = sp.csr_matrix(np.array([[5, 3, 0], [0, 0, 0], [1, 4, 0]]))
    with pytest.warns(UserWarning, match="1 users and 1 items have no rating"):
        model = RatingFactorization(1, max_iter=2, random_state=0).fit(R)
    with pytest.warns(UserWarning, match="users are unknown"):
        model.predict([1], [0])


def test_few_ratings_and_equal_ratings_are_no_trouble() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ratings in ([4, 4, 4, 4], [1, 5, 1, 5]):
            model = RatingFactorization(12, max_iter=5, random_state=0)
            model.fit(([0, 0, 1, 2], [0, 1, 1, 0], ratings))
            mean, std = model.predict([0, 1], [0, 0], return_std=True)
            assert np.isfinite(mean).all()
            assert (std > 0).all()


def test_gamma_shape_solves_its_equation() -> None:
    from scipy.special import digamma

    for shape in (0.6, 2.0, 30.0, 900.0):
        gap = float(np.log(shape) - digamma(shape))
        assert gamma_shape(gap, 5.0) == pytest.approx(shape, rel=1e-8)
    assert gamma_shape(0.0, 5.0) == pytest.approx(1e4)


def test_an_array_with_nan_is_a_matrix_of_what_is_known() -> None:
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 6, size=(30, 12)).astype(float)
    dense[rng.random(dense.shape) < 0.4] = np.nan
    known = ~np.isnan(dense)
    triples = (*np.nonzero(known), dense[known])
    of_array = RatingFactorization(2, random_state=0).fit(dense)
    of_triples = RatingFactorization(2, random_state=0).fit(triples)
    users, items = np.arange(12), np.arange(12)
    np.testing.assert_allclose(
        of_array.predict(users, items), of_triples.predict(users, items), rtol=1e-6
    )
    with pytest.raises(TypeError, match=r"ndarray of shape \(2, 3\) without NaN"):
        RatingFactorization(2).fit(np.ones((2, 3)))


def test_nodes_that_hold_the_same_bits_share_the_coordinates_of_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten nodes cost what one costs where all of them would compute the same."""
    from dmfvi.models.ratings import posterior

    ratings = make_ratings(2_000, n_users=100, n_items=50, rank=2, seed=0).ratings
    table = ratings.tocoo()
    held = (table.row[:50], table.col[:50], table.data[:50])
    calls, found = [0], posterior.canonical

    def counted(belief):
        calls[0] += 1
        return found(belief)

    monkeypatch.setattr(posterior, "canonical", counted)
    counts = []
    for network in (None, Network.ring(5)):
        calls[0] = 0
        RatingFactorization(2, network=network, max_iter=3, random_state=0).fit(
            ratings, held_out=held
        )
        counts.append(calls[0])
    assert counts[0] == counts[1]


def test_a_refused_fit_leaves_the_earlier_one() -> None:
    """The new ids would name the factors of others."""
    users, items = np.repeat(np.arange(20), 5), np.tile(np.arange(5), 20)
    ratings = 1.0 + (users + items) % 5
    model = RatingFactorization(1, max_iter=3, random_state=0).fit((users, items, ratings))
    known = model.predict([0, 7], [1, 2])

    def stop(_: object) -> bool:
        raise RuntimeError("stopped")

    other = (users + 7, items, 0.1 * ratings)
    with pytest.raises(ValueError, match="equal lengths"):
        model.fit(other, held_out=([1, 2], [1], [1.0]))
    np.testing.assert_array_equal(model.predict([0, 7], [1, 2]), known)
    with pytest.raises(RuntimeError, match="stopped"):
        model.fit(other, on_sweep=stop)
    np.testing.assert_array_equal(model.predict([0, 7], [1, 2]), known)
    assert not hasattr(model, "_shards")
    with pytest.warns(UserWarning, match="not converged") as said:
        assert len(model.uncertainty("item_means").mean) == 5
    assert said[0].filename == __file__
