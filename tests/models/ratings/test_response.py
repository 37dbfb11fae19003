"""Linear response of ratings: deviations of items and predictions that know how factors depend on each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmfvi
from dmfvi import Federation, Network, RatingFactorization
from dmfvi.datasets import make_ratings
from dmfvi.linalg import unpack_symmetric
from dmfvi.models.ratings.response import average_user

SETTINGS: dict[str, Any] = {
    "tol": 1e-3,
    "max_iter": 200,
    "random_state": 0,
    "n_choice_features": 0,
}
#: the hierarchy settles slowly on small sets; items and users given the hierarchy, which are tested, do not
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*have no rating"),
    pytest.mark.filterwarnings("ignore:the fit has not converged"),
]


def simulated(seed: int = 0, n_users: int = 60, n_items: int = 12) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(n_items, 2)) * 0.7
    mean = rng.normal(size=(n_users, 2)) @ items.T + rng.normal(size=n_items)
    seen = rng.random(mean.shape) < 0.5
    users, columns = np.nonzero(seen)
    return users, columns, (mean + 0.8 * rng.normal(size=mean.shape))[seen]


@pytest.fixture(scope="module")
def pooled() -> RatingFactorization:
    return RatingFactorization(2, **SETTINGS).fit(simulated())


def test_the_variance_is_the_response_of_a_tilted_fit(pooled: RatingFactorization) -> None:
    """By definition: the prior is tilted by t times a quantity, and the sweeps are repeated until they settle."""
    model, belief = pooled._context.model, pooled._fitted_belief
    shard = pooled._response_shards(model)[0]
    items = np.array([0, 5])
    tilts = model.item_tilts(belief, items)

    def settled(tilt: np.ndarray) -> np.ndarray:
        now = belief
        for _ in range(400):
            now = model.belief_from(model.statistics(shard, now) + tilt, None, now)
        return now.mean[items] @ average_user(belief)

    step = 1e-3
    found = [(settled(step * tilt) - settled(-step * tilt)) / (2 * step) for tilt in tilts]
    asked = pooled.uncertainty("item_means", items=pooled.item_ids_[items])
    wanted = pooled.posterior_.units.scale**2 * np.array(found)
    np.testing.assert_allclose(asked.covariance, wanted, rtol=2e-3, atol=1e-6)


def test_the_tilts_of_a_prediction_are_its_gradient(pooled: RatingFactorization) -> None:
    model, belief = pooled._context.model, pooled._fitted_belief
    shard = pooled._response_shards(model)[0]
    users, items = np.array([3, 11]), np.array([2, 7])
    tilts = model.rating_tilts(shard, belief, users, items, belief.mean[0])
    total = model.statistics(shard, belief)
    belief = model.belief_from(total, None, belief)
    noise = shard.some(users).update_users(belief, 30, model.layout, keep=True).noise
    # the gradient is at a user's fitted noise: a Gamma prior that is certain of it keeps it there
    rng = np.random.default_rng(0)
    direction = np.append(rng.normal(size=len(total) - 1) * np.abs(total[:-1]), 0.0)

    def predicted(near: Any) -> np.ndarray:
        rows = []
        for k, (user, item) in enumerate(zip(users, items, strict=True)):
            certain = 1e12
            held = {
                "noise_shape": certain * noise[k, 0] / noise[k, 1],
                "noise_rate": certain,
                "mean": near.mean,
                "covariance": near.covariance,
                "records": near.records,
            }
            fixed = type(near)(**{**vars(near), **held})
            q = shard.some(np.array([user])).update_users(fixed, 1, model.layout, keep=True)
            rows.append(q.mean[0] @ np.append(near.mean[item, :-1], 1.0) + near.mean[item, -1])
        return np.array(rows)

    h = 1e-5
    ahead, back = (model.belief_from(total + s * h * direction, None, belief) for s in (1, -1))
    change = (model.expected(ahead) - model.expected(back)) / (2 * h)
    wanted = (predicted(ahead) - predicted(back)) / (2 * h)
    np.testing.assert_allclose(tilts @ change, wanted, rtol=2e-3)


def test_the_variance_of_a_prediction_is_that_of_a_tilted_fit(pooled: RatingFactorization) -> None:
    """Mean field counts z' Var(v) z of the item already."""
    model, belief = pooled._context.model, pooled._fitted_belief
    shard = pooled._response_shards(model)[0]
    user, item = np.array([3]), np.array([2])
    tilt = model.rating_tilts(shard, belief, user, item, belief.mean[0])[0]

    def settled(step: float) -> np.ndarray:
        now = belief
        for _ in range(400):
            now = model.belief_from(model.statistics(shard, now) + step * tilt, None, now)
        return model.expected(now)

    step = 1e-3
    whole = tilt @ (settled(step) - settled(-step)) / (2 * step)
    z = np.append(pooled._user_posteriors.mean[3, :-1], 1.0)
    wanted = whole - z @ unpack_symmetric(belief.covariance[2]) @ z
    found = pooled._added_variance(pooled._context, user, item)
    np.testing.assert_allclose(found, wanted, atol=2e-3 * whole)


@pytest.mark.parametrize("noise", ["user", "shared"])
def test_nodes_have_the_pooled_deviations(noise: Any) -> None:
    data = simulated()
    one = RatingFactorization(2, noise=noise, **SETTINGS).fit(data)
    for network in (
        Network.chain(3),
        Federation(Network.ring(3), engine="inproc"),
    ):
        nodes = RatingFactorization(2, noise=noise, network=network, **SETTINGS).fit(data)
        ids = one.item_ids_[:4]
        a, b = (each.uncertainty("item_means", items=ids) for each in (one, nodes))
        np.testing.assert_allclose(b.covariance, a.covariance, rtol=1e-8)
        assert a.response is not None
        assert a.response.n_sums <= 60
        last = nodes.at_node(2).uncertainty("item_means", items=ids)
        assert np.array_equal(last.covariance, b.covariance)


def test_deviations_are_wider_than_by_mean_field(pooled: RatingFactorization) -> None:
    wide, narrow = (
        pooled.uncertainty("item_means", method=method).std
        for method in ("linear-response", "mean-field")
    )
    assert (wide > narrow).all()
    assert np.mean(wide / narrow) > 1.03


def test_predictions_take_it(pooled: RatingFactorization) -> None:
    users, items, _ = simulated()
    rated = set(zip(users.tolist(), items.tolist(), strict=True))
    new = [(user, item) for user in range(8) for item in range(12) if (user, item) not in rated]
    pairs = tuple(np.array(new).T)
    mean, std = pooled.predict(*pairs, return_std=True)
    same, wide = pooled.predict(*pairs, return_std=True, uncertainty="linear-response")
    assert np.array_equal(mean, same)
    assert np.mean(wide - std) > 0
    assert np.mean(wide > std) > 0.7
    low, high = pooled.predict_interval(*pairs, uncertainty="linear-response")
    plain = pooled.predict_interval(*pairs)
    assert np.mean(high - low) > np.mean(plain[1] - plain[0])
    nodes = RatingFactorization(2, network=Network.star(4), **SETTINGS).fit(simulated())
    theirs = nodes.predict(*pairs, return_std=True, uncertainty="linear-response")[1]
    np.testing.assert_allclose(theirs, wide, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:.*are unknown")
def test_predictions_of_unknown_users_and_items(pooled: RatingFactorization) -> None:
    _, std = pooled.predict(["nobody", 0], [1, "nothing"], return_std=True)
    _, wide = pooled.predict(
        ["nobody", 0], [1, "nothing"], return_std=True, uncertainty="linear-response"
    )
    assert wide[0] >= std[0]
    assert wide[1] > std[1]  # of the user's own bias


def test_an_unknown_item_is_one_without_ratings() -> None:
    """The same pair, the item once in the catalogue and once not."""
    users, items, ratings = simulated()
    table = np.full((60, 13), np.nan)
    table[users, items] = ratings
    model = RatingFactorization(2, **SETTINGS).fit(table)
    bare = int(np.flatnonzero(model.posterior_.units.item_counts < 0.5)[0])
    # their priors are the same but for the last sweep
    prior = model.posterior_.item_mean[[bare, -1]]
    np.testing.assert_allclose(prior[0], prior[1], atol=1e-4)
    context, user = model._context, np.array([4])
    known, unknown = (model._added_variance(context, user, np.array([at])) for at in (bare, -1))
    np.testing.assert_allclose(unknown, known, rtol=1e-2)
    assert known > 0.0
    assert model._response_variance(np.array([-1]), np.array([-1])) == 0.0


def test_users_of_fold_in_have_no_linear_response() -> None:
    model = RatingFactorization(2, **SETTINGS).fit(simulated())
    model.fold_in([0, 1, 2], [0.5, 1.0, -0.5], user="new")
    with pytest.raises(ValueError, match="'new' came by fold_in"):
        model.predict(np.array([0, "new"], object), [5, 5], True, uncertainty="linear-response")
    with pytest.raises(ValueError, match="'new' came by fold_in"):
        model.predict_interval(["new"], [5], uncertainty="linear-response")
    model.predict([0, 1], [5, 5], True, uncertainty="linear-response")


def test_an_item_without_ratings_keeps_its_prior_deviation() -> None:
    table = make_ratings(3000, seed=1).ratings
    model = RatingFactorization(2, **SETTINGS).fit(table)
    bare = np.flatnonzero(model.posterior_.units.item_counts < 0.5)[:1]
    assert len(bare)
    a, b = (
        model.uncertainty("item_means", items=model.item_ids_[bare], method=method).std
        for method in ("linear-response", "mean-field")
    )
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_what_cannot_be_asked(pooled: RatingFactorization, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="item_means"):
        pooled.uncertainty("factors")
    with pytest.raises(ValueError, match="takes no function"):
        pooled.uncertainty(lambda fitted: fitted.item_bias_)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="was not in the fit"):
        pooled.uncertainty("item_means", items=[10_000])
    with pytest.raises(ValueError, match="items is empty"):
        pooled.uncertainty("item_means", items=[])
    with pytest.raises(ValueError, match="at most 500 pairs"):
        pooled.predict(np.zeros(600, int), 1, True, uncertainty="linear-response")
    with pytest.raises(ValueError, match="uncertainty"):
        pooled.predict([0], [1], uncertainty="bootstrap")  # type: ignore[arg-type]
    pooled.uncertainty("item_means")
    dmfvi.save(pooled, tmp_path / "model.npz")
    loaded = dmfvi.load(tmp_path / "model.npz")
    kept = loaded.uncertainty("item_means")
    np.testing.assert_allclose(kept.std, pooled.uncertainty("item_means").std)
    with pytest.raises(ValueError, match="loaded from a file"):
        loaded.predict([0], [1], True, uncertainty="linear-response")
    with pytest.raises(ValueError, match="loaded from a file"):
        loaded.uncertainty("item_means", items=[1])


def test_predictions_of_a_fit_that_has_not_converged_say_so() -> None:
    users, items, values = simulated()
    short = RatingFactorization(2, max_iter=2, random_state=0).fit((users, items, values))
    with pytest.warns(UserWarning, match="the fit has not converged"):
        short.predict(users[:2], items[:2], return_std=True, uncertainty="linear-response")
