"""Starts of mixtures: fewer clusters by default; of n_init every second has memberships that have nothing to do with clusters."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest

from dmfvi import BayesianGaussianMixture, GaussianHMM, Network
from dmfvi.engines.base import RoundRecord
from dmfvi.inference.result import Inference
from dmfvi.inference.starts import side_by_side
from dmfvi.models.mixture.model import mixed_memberships


def overlapping() -> np.ndarray:
    """Two components two deviations apart, of which the best fit takes one for nearly all rows."""
    rng = np.random.default_rng([60, 1, 6])
    rows = rng.normal(size=(60, 1))
    rows[:, 0] += 2.0 * (rng.random(60) < rng.uniform(0.35, 0.65))
    return rows


def test_memberships_look_random_and_belong_to_the_row() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 2))
    made = mixed_memberships(rows, 3, np.random.default_rng(1))
    np.testing.assert_allclose(made.sum(1), 1.0)
    np.testing.assert_allclose(made.mean(0), 1 / 3, atol=0.06)
    assert np.abs(np.corrcoef(made[:, 0], rows.T)[0, 1:]).max() < 0.15
    again = mixed_memberships(rows[::-1] * (1.0 + 1e-15), 3, np.random.default_rng(1))
    np.testing.assert_allclose(again[::-1], made, atol=1e-8)


def test_they_find_optima_that_clusters_do_not() -> None:
    """With one start the bound of these rows is 2.3 below the best of many random starts."""
    rows = overlapping()
    settings = {"tol": 1e-6, "random_state": 0, "max_iter": 3000}
    one, several = (BayesianGaussianMixture(2, n_init=n, **settings).fit(rows) for n in (1, 4))
    assert several.lower_bound_ > one.lower_bound_ + 2.0
    assert several.lower_bound_ == pytest.approx(-101.77, abs=0.01)
    nodes = BayesianGaussianMixture(2, n_init=4, network=Network.ring(3), **settings).fit(rows)
    assert nodes.lower_bound_ == pytest.approx(several.lower_bound_, abs=1e-6)


SETTINGS = {"tol": 1e-6, "random_state": 0, "max_iter": 3000}


def test_the_default_empties_components_that_the_data_do_not_support() -> None:
    """The best of many random starts has bound -101.77, one start from two clusters 2.3 less."""
    rows = overlapping()
    pooled = BayesianGaussianMixture(2, **SETTINGS).fit(rows)
    assert pooled.lower_bound_ == pytest.approx(-101.77, abs=0.01)
    with pytest.warns(UserWarning, match=r"component \d has 0\.1 rows"):
        pooled.uncertainty("means")
    nodes = BayesianGaussianMixture(2, network=Network.ring(3), **SETTINGS).fit(rows)
    assert max(q.distance(pooled.posterior_) for q in nodes.node_posteriors_) < 1e-9
    assert len({q.pack().tobytes() for q in nodes.node_posteriors_}) == 1


def test_the_default_keeps_the_usual_start_where_its_bound_is_higher() -> None:
    """Clusters far apart: fewer of them are far behind after a few sweeps, and no second fit is made."""
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.normal(size=(30, 2)) + centre for centre in ([0, 0], [9, 0], [0, 9])]
    )
    seen: dict[object, int] = {}
    for n_init in (1, "auto"):
        fitted = BayesianGaussianMixture(3, n_init=n_init, **SETTINGS)
        fitted.fit(rows, observer=lambda record, _, n=n_init: seen.update({n: seen.get(n, 0) + 1}))
        assert fitted.weights_.min() > 0.3
    assert seen["auto"] == seen[1]


def test_coroutines_side_by_side_share_their_sums() -> None:
    def counting(times: int, value: float) -> Generator[np.ndarray, np.ndarray, float]:
        for _ in range(times):
            value = float((yield np.full(times, value))[0])
        return value

    sums = []

    def doubled(coroutine: Generator[np.ndarray, np.ndarray, list[float]]) -> list[float]:
        vector = next(coroutine)
        while True:
            sums.append(len(vector))
            try:
                vector = coroutine.send(2.0 * vector)
            except StopIteration as end:
                return list(end.value)

    assert doubled(side_by_side([counting(1, 1.0), 5.0, counting(3, 1.0)])) == [2.0, 5.0, 8.0]
    assert sums == [4, 3, 3]


def test_runs_that_are_not_kept_are_counted() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(30, 2)), rng.normal(size=(30, 2)) + 2.0])
    seen: list[int] = []

    def count(record: RoundRecord, _: Inference) -> None:
        seen.append(record.bytes_sent)

    model = BayesianGaussianMixture(3, network=Network.ring(4), random_state=0)
    model.fit(rows, observer=count)
    assert len(seen) > model.n_rounds_  # a second run was made
    one = BayesianGaussianMixture(3, network=Network.ring(4), n_init=1, random_state=0).fit(rows)
    discarded = len(seen) - model.n_rounds_
    assert model.n_start_rounds_ > one.n_start_rounds_ + discarded
    of_the_start = one.n_start_bytes_ + sum(seen) - model.history_["bytes_sent"].sum()
    assert model.n_start_bytes_ > of_the_start


def test_only_models_with_several_kinds_of_starts_choose_them() -> None:
    with pytest.raises(ValueError, match="n_init"):
        GaussianHMM(2, n_init="auto").fit(np.zeros((9, 1)))
