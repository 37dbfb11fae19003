"""Intervals stretched by held-out entries: skewed columns are covered as often as was asked for, at one machine and on a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from dmfvi import BayesianGaussianMixture, BayesianPCA, Imputer, Network
from dmfvi.models.pca import held_out
from dmfvi.models.pca.held_out import EDGES, HeldOut, _folds, _hidden, hold_out, usual_folds


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
    with pytest.warns(UserWarning, match="samples without any observed entry: 5"):
        plain = Imputer(model).fit(gaps)
    with pytest.warns(UserWarning, match="samples without any observed entry: 5"):
        made = Imputer(model, calibration="held-out", n_folds=5).fit(gaps)
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
    far = HeldOut(np.histogram(np.full(9, 1e9), EDGES)[0][None].astype(float))
    assert far.stretch(0.9)[0] == EDGES[-2]


def left_out_scores(x: np.ndarray) -> np.ndarray:
    """Scores of entries under the Gaussian of the others of their row, whose 90 % interval is 1.645 deviations either way."""
    n = x.shape[1]
    mean = (x.sum(1, keepdims=True) - x) / (n - 1)
    square = (x**2).sum(1, keepdims=True) - x**2 - (n - 1) * mean**2
    return np.asarray(np.abs(x - mean) / (ndtri(0.95) * np.sqrt(square / (n - 2))))


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("n_scores", [30, 60, 150])
def test_new_entries_are_covered_as_often_as_was_asked_for(n_scores: int, level: float) -> None:
    """On average over samples, however few: an entry is missing where it gets its score, and is there where the interval is made."""
    x = np.random.default_rng(0).normal(size=(8000, n_scores))
    made = HeldOut(np.array([np.histogram(s, EDGES)[0] for s in left_out_scores(x)], dtype=float))
    width = made.stretch(level) * ndtri(0.95) * x.std(1, ddof=1)
    share = np.mean(ndtr(x.mean(1) + width) - ndtr(x.mean(1) - width))
    assert share == pytest.approx(level, abs=0.0005 + 0.12 / n_scores)


def test_small_tables_have_more_folds() -> None:
    assert [usual_folds(n) for n in (20, 200, 500, 1000, 10**6)] == [50, 50, 20, 10, 10]
    _, gaps = skewed(40)
    made = Imputer(Means(), calibration="held-out").fit(gaps)
    fifty = Imputer(Means(), calibration="held-out", n_folds=50).fit(gaps)
    np.testing.assert_array_equal(made.calibration_.counts, fifty.calibration_.counts)


def test_rows_of_all_nodes_say_how_many_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "LEAST_FOLDS", 2)
    monkeypatch.setattr(held_out, "ROWS_TIMES_FOLDS", 120)  # two folds for 60 rows, six for 20
    _, gaps = skewed(60)
    model, parts = BayesianPCA(1, noise="feature", random_state=0), np.split(gaps, 3)
    nodes = hold_out(clone(model).set_params(network=Network.ring(3)), parts, "auto")
    np.testing.assert_array_equal(nodes.counts, hold_out(model, parts, 2).counts)


@pytest.mark.parametrize(("level", "least"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_too_few_scores_for_a_level_give_no_finite_factor(level: float, least: int) -> None:
    scores = np.linspace(0.5, 0.7, least)
    enough, few, none = (
        HeldOut(np.histogram(scores[:n], EDGES)[0][None].astype(float))
        for n in (least, least - 1, 0)
    )
    assert enough.stretch(level)[0] == pytest.approx(scores[-1], rel=0.05)
    assert few.stretch(level)[0] == none.stretch(level)[0] == np.inf


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


# -- tables and models of all kinds ---------------------------------------------------------------


class Means(BaseEstimator):
    """A model of another package: the columns' means, and one deviation either way."""

    def fit(self, X: np.ndarray, y: Any = None) -> Means:
        assert np.isfinite(X).any(0).all()
        self.n_features_in_ = X.shape[1]
        self.mean_, self.std_ = np.nanmean(X, axis=0), np.nanstd(X, axis=0) + 1e-3
        return self

    def impute(self, X: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(X), self.mean_, X)

    def impute_interval(self, X: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        width = np.where(np.isnan(X), self.std_, 0.0)
        return self.impute(X) - width, self.impute(X) + width


def test_a_model_of_another_package_needs_two_methods() -> None:
    whole, gaps = skewed()
    made = Imputer(Means(), calibration="held-out").fit(gaps)
    assert np.mean(covered(made, whole, gaps, 0.9)) == pytest.approx(0.9, abs=0.03)
    one = type("One", (BaseEstimator,), {"fit": Means.fit, "impute": Means.impute})
    with pytest.raises(TypeError, match=r"impute_interval\(X, level\), which One does not have"):
        Imputer(one(), calibration="held-out").fit(gaps)


def test_a_list_of_tables_gives_a_pair_for_each() -> None:
    _, gaps = skewed(40)
    model = Imputer(BayesianGaussianMixture(1, random_state=0), "held-out", n_folds=2).fit(gaps)
    low, high = model.impute_interval(gaps, 0.8)
    parts = model.impute_interval([gaps[:15], gaps[15:]], 0.8)
    np.testing.assert_allclose(np.concatenate([part[0] for part in parts]), low, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), high, rtol=1e-12)


@pytest.mark.parametrize("entries", [1, 2])
def test_the_only_entries_of_a_column_are_not_all_hidden(entries: int) -> None:
    """The model asserts that it is given an entry of every column; the column's intervals are infinite, and a warning says why."""
    _, gaps = skewed(60)
    gaps[:, 2] = np.nan
    at = np.flatnonzero(_folds(gaps.shape, 5, 0)[:, 2] == 3)[:entries]  # all in one fold
    gaps[at, 2] = np.arange(1.0, 1.0 + entries)
    made = Imputer(Means(), calibration="held-out", n_folds=5).fit(gaps)
    assert made.calibration_.counts.sum(1).tolist() == [*np.isfinite(gaps[:, :2]).sum(0), 0]
    with pytest.warns(UserWarning, match=r"take 9 held-out scores .* fewer have: 2 \(0\)"):
        low, high = made.impute_interval(gaps)
    missing = np.isnan(gaps)
    np.testing.assert_array_equal(low[~missing], gaps[~missing])
    assert np.isinf(low[missing[:, 2], 2]).all()
    assert np.isinf(high[missing[:, 2], 2]).all()
    assert np.isfinite(high[:, :2]).all()


def test_entries_of_other_processes_count_as_left() -> None:
    """A column whose entries here are all in one fold can be hidden here where another process has more of it."""
    table = np.full((1, 2), 1.0)

    class Elsewhere:
        whole, here = False, (1,)

        def __init__(self, more: float) -> None:
            self.collective, self.more = self, more

        def _open(self) -> Elsewhere:
            return self

        def sum(self, told: list[np.ndarray]) -> list[np.ndarray]:
            return [told[0] + self.more]

    here, with_others = (
        np.sum([parts[0] for parts in _hidden(Elsewhere(more), [table], 2)], axis=0)
        for more in (0.0, 1.0)
    )
    assert here.tolist() == [[0, 0]]
    assert with_others.tolist() == [[1, 1]]
    table = np.ones(
        (5, 2)
    )  # of node 1, which hides what it would as the second of two nodes in one process
    hidden = [parts[0] for parts in _hidden(Elsewhere(1.0), [table], 2)]
    np.testing.assert_array_equal(hidden[1], _folds(table.shape, 2, 1) == 1)


def test_a_refit_without_calibration_forgets_the_one_before() -> None:
    _, gaps = skewed(40)
    model = Imputer(Means(), calibration="held-out").fit(gaps)
    stretched = model.impute_interval(gaps, 0.8)
    model.set_params(calibration="model")  # counts from the next fit on
    np.testing.assert_array_equal(model.impute_interval(gaps, 0.8), stretched)
    model.fit(gaps)
    assert not hasattr(model, "calibration_")
    np.testing.assert_array_equal(
        model.impute_interval(gaps, 0.8), model.estimator_.impute_interval(gaps, 0.8)
    )


def test_folds_that_do_not_converge_are_counted() -> None:
    _, gaps = skewed(40)
    with pytest.warns(ConvergenceWarning) as caught:
        Imputer(BayesianPCA(1, max_iter=2), calibration="held-out", n_folds=3).fit(gaps)
    said = [str(each.message) for each in caught]
    assert len(said) == 2
    assert said[1].startswith("3 of 3 fits of the held-out calibration have not converged; the")


@pytest.mark.filterwarnings("ignore:intervals of level")
def test_intervals_of_the_model_that_is_chosen_are_calibrated_by_default() -> None:
    rng = np.random.default_rng(3)
    table = rng.normal(size=(90, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(90, 4))
    table[rng.random(table.shape) < 0.2] = np.nan
    table[8:, 3] = np.nan  # too few scores
    table[:8, 3] = rng.normal(size=8)
    made = Imputer("auto", n_folds=5).fit(table)
    plain = Imputer("auto", calibration="model").fit(table)
    assert not hasattr(plain, "calibration_")
    assert not hasattr(Imputer().fit(table), "calibration_")
    with pytest.warns(UserWarning, match="intervals are those of the model"):
        low, high = made.impute_interval(table)
    below, above = plain.impute_interval(table)
    np.testing.assert_allclose(high[:, 3], above[:, 3])
    wider = [made.impute_interval(table, level=level)[1] for level in (0.5, 0.99, 0.999)]
    assert (np.diff(wider, axis=0)[:, np.isnan(table)] > 0).all()
    gaps = np.isnan(table[:, 0])
    stretch = made.calibration_.stretch(0.9)[0]
    widths = (high - low)[gaps, 0], (above - below)[gaps, 0]
    np.testing.assert_allclose(widths[0], stretch * widths[1])
