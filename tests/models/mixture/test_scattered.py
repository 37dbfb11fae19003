"""Rows with gaps of all patterns: worked on together they say what each pattern says alone."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi import BayesianGaussianMixture
from dmfvi.models.mixture import scattered
from dmfvi.models.mixture.gaps import mixture_quantile
from dmfvi.models.mixture.shard import MixtureShard


def case(k: int) -> tuple[BayesianGaussianMixture, np.ndarray, np.ndarray]:
    """A fitted mixture, rows of hardly two of which the same is missing, and their weights."""
    rng = np.random.default_rng(k)
    rows = rng.normal(size=(70, 5)) @ rng.normal(size=(5, 5)) + 3.0 * rng.integers(0, k, (70, 1))
    rows[rng.random(rows.shape) < 0.4] = np.nan
    rows[-1] = np.nan  # says nothing
    rows[0] = rng.normal(size=5)  # lacks nothing
    return (
        BayesianGaussianMixture(k, random_state=0, max_iter=5).fit(rows[:-1]),
        rows,
        rng.random(70),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_together_have_the_statistics_of_each_pattern(
    k: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, rows, weight = case(k)
    own = weight if weighted else None
    shard = MixtureShard.of(fitted._units.apply(rows), own)
    monkeypatch.setattr(scattered, "MOST_NUMBERS", 200)  # several blocks
    few, many = shard.by_work
    assert [group.observed.all() for group in few] == [True]
    assert sum(len(part.values) for part in many) >= 50
    together = fitted._model.local_step(shard, fitted._belief)
    alone = MixtureShard(shard.groups, shard.n_samples, own)
    alone.__dict__["by_work"] = (list(shard.groups), [])
    by_pattern = fitted._model.local_step(alone, fitted._belief)
    np.testing.assert_allclose(
        together.values.pack(), by_pattern.values.pack(), rtol=1e-11, atol=1e-11
    )
    assert together.bound == pytest.approx(by_pattern.bound, rel=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_intervals_of_all_gaps_at_once_are_those_of_each_row() -> None:
    fitted, rows, _ = case(2)
    low, high = fitted.impute_interval(rows[:30])
    for at in (1, 7, 20):
        one = fitted.impute_interval(rows[at : at + 1])
        np.testing.assert_allclose(one, (low[at : at + 1], high[at : at + 1]), rtol=1e-12)
    gone = np.isnan(rows[:30])
    assert (low[gone] < high[gone]).all()
    np.testing.assert_array_equal(low[~gone], rows[:30][~gone])
    even = mixture_quantile(
        np.full((1, 2), 0.5), np.array([[[-1.0], [1.0]]]), np.ones((1, 2, 1)), 0.5
    )
    assert even[0, 0] == pytest.approx(0.0, abs=1e-12)
