"""Intervals stretched by held-out entries: skewed columns are covered as often as was asked for, at one machine and on a network."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi import BayesianGaussianMixture, BayesianPCA, Imputer, Network
from dmfvi.models.pca.held_out import EDGES, HeldOut, _folds, hold_out


def skewed(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """A table with a heavily skewed column, and the same with gaps."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 1))
    whole = np.column_stack([z + 0.3 * rng.normal(size=(n, 2)), rng.exponential(size=n) ** 3])
    return whole, np.where(rng.random(whole.shape) < 0.25, np.nan, whole)


def covered(model: Imputer, whole: np.ndarray, gaps: np.ndarray, level: float) -> np.ndarray:
    low, high = model.impute_interval(gaps, level)
    hit = (low <= whole) & (whole <= high)
    np.testing.assert_array_equal(low[~np.isnan(gaps)], gaps[~np.isnan(gaps)])
    return np.array([hit[np.isnan(gaps[:, j]), j].mean() for j in range(3)])


def test_a_skewed_column_is_covered_as_often_as_was_asked_for() -> None:
    whole, gaps = skewed()
    model = BayesianGaussianMixture(1, random_state=0)
    plain = Imputer(model).fit(gaps)
    made = Imputer(model, calibration="held-out").fit(gaps)
    assert covered(plain, whole, gaps, 0.9)[2] > 0.93  # its tail makes the Gaussian wide
    for level, deviations in ((0.8, 2.5), (0.9, 2.5)):  # of about 75 entries a column
        reach = deviations * np.sqrt(level * (1.0 - level) / 75)
        assert np.abs(covered(made, whole, gaps, level) - level).max() < reach
    stretch = made.calibration_.stretch(0.9)
    assert stretch[2] < 0.8 * stretch[:2].min()
    np.testing.assert_array_equal(made.transform(gaps), plain.transform(gaps))
    assert made.calibration_.counts.sum() == np.isfinite(gaps).sum()


def test_nodes_have_the_counts_of_their_own_rows_and_columns_units_do_not_matter() -> None:
    _, gaps = skewed(60)
    parts = np.split(gaps, [10, 30])
    settings = {"n_components": 1, "noise": "feature", "random_state": 0}
    nodes = hold_out(BayesianPCA(**settings, network=Network.ring(3)), parts, 2)
    pooled = hold_out(BayesianPCA(**settings), parts, 2)
    np.testing.assert_array_equal(nodes.counts, pooled.counts)
    scaled = hold_out(BayesianPCA(**settings), [p * [1e6, 1.0, 1e-6] for p in parts], 2)
    np.testing.assert_allclose(scaled.stretch(0.9), pooled.stretch(0.9), rtol=0.05)


def test_the_stretch_is_the_quantile_of_the_scores() -> None:
    scores = np.random.default_rng(0).exponential(size=999)
    made = HeldOut(np.histogram(scores, EDGES)[0][None].astype(float))
    for level in (0.5, 0.9, 0.99):
        assert made.stretch(level)[0] == pytest.approx(np.quantile(scores, level), rel=0.08)
    few = HeldOut(np.histogram([0.5, 0.7], EDGES)[0][None].astype(float))
    assert few.stretch(0.9)[0] == pytest.approx(0.7, rel=0.05)
    far = HeldOut(np.histogram([1e9], EDGES)[0][None].astype(float))
    assert far.stretch(0.9)[0] == EDGES[-2]


def test_no_row_is_hidden_whole_and_every_entry_once() -> None:
    folds = _folds((40, 4), 3, 0)
    assert all(len(set(row)) > 1 for row in folds)
    assert set(folds.ravel().tolist()) == {0, 1, 2}


def test_settings_that_cannot_be_are_refused() -> None:
    _, gaps = skewed(30)
    with pytest.raises(ValueError, match="calibration"):
        Imputer(calibration="conformal").fit(gaps)
    with pytest.raises(ValueError, match="n_folds"):
        Imputer(calibration="held-out", n_folds=1).fit(gaps)
