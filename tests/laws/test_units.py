"""The law of units: x -> a x + b changes nothing beyond the input's rounding, for every estimator with real features.

Columns are moved to 1e8 deviations from zero and scaled by 1e-8 or 1e8, and the reference is a fit to the same rounded
numbers moved back, so that only what the library loses itself counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import estimator_cases
from dmfvi import KaplanMeier, Network, RatingFactorization, StructureFromMotion
from dmfvi.datasets import make_cube, make_ratings
from dmfvi.deploy.kinds import KINDS
from dmfvi.readers.tables import Table

#: estimators without real features: counts and symbols; image tracks, times and ratings have laws of their own below
NO_FEATURES = {
    "latent-dirichlet-allocation",
    "categorical-hmm",
    "kaplan-meier",
    "rating-factorization",
    "structure-from-motion",
}
#: those with one noise level, whose columns have one unit
ONE_SCALE = {"ppca", "mixture-of-pca", "svd-factorization"}
WITH_FEATURES = sorted(set(KINDS) - NO_FEATURES)
#: how far an offset of 1e8 deviations may move an answer: rounding is 1e-8 of a deviation
CLOSE = 1e-5


def table_of(kind: str) -> tuple[Any, np.ndarray, list[int]]:
    """Settings of a small case, its rows, and which columns are features."""
    case = estimator_cases.CASES[kind]
    data = np.concatenate(case.shards)
    special = {place - 1 for place in case.model.columns.values() if isinstance(place, int)}
    return case.model, data, [j for j in range(data.shape[1]) if j not in special]


def answers(model: Any, rows: np.ndarray, factor: np.ndarray, shift: np.ndarray) -> dict[str, Any]:
    """What a model says, in the units of the columns before they were scaled and moved."""
    found: dict[str, Any] = {}
    if hasattr(model, "coef_"):
        d = len(factor)
        covariance = np.asarray(model.coef_covariance_)[..., :d, :d]
        found["coef"] = np.asarray(model.coef_) * factor
        found["coef deviations"] = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1)) * factor
    if hasattr(model, "means_"):
        found["means"] = (np.asarray(model.means_) - shift) / factor
    if hasattr(model, "covariances_"):
        found["covariances"] = np.asarray(model.covariances_) / np.outer(factor, factor)
    if hasattr(model, "get_covariance"):
        found["covariance"] = model.get_covariance() / np.outer(factor, factor)
    if model._data_form != "rows":
        return found
    for name in ("predict", "predict_proba", "transform"):
        if hasattr(model, name):
            try:
                found[name] = np.asarray(getattr(model, name)(rows))
            except TypeError:  # needs more than rows
                continue
    if hasattr(model, "impute"):
        holes = rows.copy()
        holes[::3, 0] = np.nan
        found["impute"] = (model.impute(holes) - shift) / factor
        found["interval"] = (model.impute_interval(holes)[1] - shift) / factor
        volume = np.isfinite(rows) @ np.log(factor)
        found["score_samples"] = model.score_samples(rows) + volume
    return found


def fitted(settings: Any, data: np.ndarray, features: list[int]) -> tuple[Any, np.ndarray]:
    return settings.fit(Table(data, None)), data[:, features]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("factor", [1e-8, 1e8])
@pytest.mark.parametrize("kind", WITH_FEATURES)
def test_units_change_nothing(kind: str, factor: float) -> None:
    settings, data, features = table_of(kind)
    d = len(features)
    factors = np.full(d, factor)
    if kind not in ONE_SCALE:
        factors[::2] = 1.0 / factor
    spread = np.nanstd(data[:, features], axis=0)
    shift = factors * spread * np.where(np.arange(d) % 3 == 2, -1e3, 1e8)
    moved, back = data.copy(), data.copy()
    moved[:, features] = factors * data[:, features] + shift
    back[:, features] = (moved[:, features] - shift) / factors  # the same rounding
    there, rows = fitted(settings, moved, features)
    here, own = fitted(settings, back, features)
    told = answers(there, rows, factors, shift)
    wanted = answers(here, own, np.ones(d), np.zeros(d))
    assert told.keys() == wanted.keys()
    assert told
    if "coef" in wanted:  # in posterior deviations
        deviations = wanted["coef deviations"]
        told["coef"] = (told["coef"] - wanted["coef"]) / deviations
        told["coef deviations"] = told["coef deviations"] / deviations
        wanted |= {"coef": np.zeros_like(told["coef"]), "coef deviations": np.ones_like(deviations)}
    for name, value in wanted.items():
        size = max(1.0, float(np.nanmax(np.abs(value))))
        np.testing.assert_allclose(
            told[name], value, atol=CLOSE * size, err_msg=f"{name} of {kind}"
        )
    if hasattr(here, "lower_bound_"):
        density = hasattr(here, "impute")  # that of the rows, not of a target given them
        volume = np.isfinite(own).sum(0) @ np.log(factors) if density else 0.0
        assert abs(there.lower_bound_ + volume - here.lower_bound_) < CLOSE * len(data)


#: starts in one process (SVD), or a consensus of parameters with a tolerance of its own
NOT_EXACT = {"svd-factorization", "ppca"}
#: whose model depends on which rows are a node's
BY_SITE = {"cox-regression"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", sorted(set(WITH_FEATURES) - NOT_EXACT - BY_SITE))
def test_nodes_have_the_pooled_posterior_far_from_zero(kind: str) -> None:
    case = estimator_cases.CASES[kind]
    _, data, features = table_of(kind)
    spread = np.nanstd(data[:, features], axis=0)
    shift = np.zeros(data.shape[1])
    shift[features] = 1e8 * spread * np.where(np.arange(len(features)) % 2, -1.0, 1.0)
    moved = replace(case, shards=[shard + shift for shard in case.shards])
    pooled = moved.local()
    there = moved.local(network=Network.chain(len(case.shards)), accelerated=True)
    gaps = [q.distance(pooled.posterior_) for q in there.node_posteriors_]
    assert max(gaps) < 1e-9


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in WITH_FEATURES
        if not KINDS[kind]._from_columns.__code__.co_argcount and kind != "svd-factorization"
    ],
)
def test_types_change_nothing(kind: str, dtype: type) -> None:
    settings, data, _ = table_of(kind)
    typed = (np.where(np.isnan(data), 0.0, data) * 1000).astype(dtype)
    estimator = settings.estimator()
    one, other = (estimator.fit(x).lower_bound_ for x in (typed, typed.astype(np.float64)))
    assert one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize(("factor", "offset"), [(1e8, 1e8), (1e-8, -1e8), (1.0, 1e6)])
def test_units_of_images_change_nothing(factor: float, offset: float) -> None:
    tracks = np.concatenate(make_cube(seed=1, n_frames=8).cameras)
    shift = factor * offset * tracks.std()
    moved = factor * tracks + shift
    one, other = (
        StructureFromMotion(random_state=0, tol=1e-10).fit(x).structure_
        for x in (moved, (moved - shift) / factor)
    )
    left, _, right = np.linalg.svd(one.T @ other)
    np.testing.assert_allclose(
        one @ (left @ right) / factor, other, atol=1e-9 * np.abs(other).max()
    )


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize(("factor", "offset"), [(1e8, 1e8), (1e-8, 1e8), (1e-8, 0.0), (1.0, -1e6)])
def test_units_of_ratings_change_nothing(factor: float, offset: float, grid: bool) -> None:
    given = make_ratings(600, n_users=60, n_items=30, rank=2, seed=0).ratings.tocoo()
    rows, columns, ratings = given.row, given.col, given.data.astype(np.float64)
    if not grid:
        ratings = ratings + np.random.default_rng(0).normal(size=len(ratings))
    shift = factor * offset * ratings.std()
    moved = factor * ratings + shift
    found = []
    for values in (moved, (moved - shift) / factor):
        model = RatingFactorization(2, n_choice_features=2, max_iter=3, random_state=0)
        model.fit((rows, columns, values))
        found.append((*model.predict(rows, columns, return_std=True), model.lower_bound_))
    (mean, std, bound), (wanted, wanted_std, wanted_bound) = found
    np.testing.assert_allclose((mean - shift) / factor, wanted, atol=1e-6)
    np.testing.assert_allclose(std / factor, wanted_std, rtol=1e-6)
    assert bound + len(ratings) * np.log(factor) == pytest.approx(wanted_bound, abs=1e-4)


@pytest.mark.parametrize("factor", [1e8, 1e-8, 2.0**20])
def test_units_of_time_change_nothing_but_the_rounding_of_the_grid(factor: float) -> None:
    rng = np.random.default_rng(0)
    times, event = rng.exponential(30.0, size=200), rng.integers(0, 2, size=200)
    asked = np.geomspace(1.0, 100.0, 50)
    grid = np.unique(np.round(times))
    one, other = (KaplanMeier(times=f * grid).fit(f * times, event) for f in (1.0, factor))
    np.testing.assert_array_equal(one.survival_function_, other.survival_function_)
    low, high = one.confidence_interval()
    np.testing.assert_array_equal(other.confidence_interval(), (low, high))
    assert other.median_survival_time_ == pytest.approx(factor * one.median_survival_time_)
    # without a grid times are rounded down by 0.4 % at most, in other places
    one, other = (KaplanMeier().fit(f * times, event) for f in (1.0, factor))
    there = other.predict(factor * asked)
    assert (one.predict(asked * (1 + 1 / 256)) <= there + 1e-12).all()
    assert (one.predict(asked * (1 - 1 / 256)) >= there - 1e-12).all()
    if factor == 2.0**20:
        np.testing.assert_array_equal(there, one.predict(asked))


def test_every_estimator_is_in_the_law_or_excluded() -> None:
    assert set(KINDS) >= NO_FEATURES | ONE_SCALE
    assert set(WITH_FEATURES) <= set(estimator_cases.CASES)
