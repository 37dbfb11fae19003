"""Multiple imputations, and the imputer as a step of a pipeline."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

import dmfvi
from dmfvi import (
    PPCA,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianPCA,
    GaussianHMM,
    Imputer,
    MixtureOfPCA,
    Network,
    SVDFactorization,
)
from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.models.pca.imputer import dequantized, fitted_by_bound

WHOLE = make_low_rank(120, 5, 2, noise=0.3).data
HOLES = mask_at_random(WHOLE, 0.25)
#: two groups of rows
GROUPS = np.random.default_rng(5).normal(size=(60, 3)) + np.where(np.arange(60) < 30, 0, 6)[:, None]


@pytest.mark.parametrize(
    "model",
    [BayesianPCA(2, random_state=0), PPCA(2, random_state=0), SVDFactorization(2, tol=1e-4)],
)
def test_draws_have_the_predictive_mean_and_deviation(model: BayesianPCA) -> None:
    fitted = clone(model).fit(HOLES)
    mean, std = fitted.impute(HOLES, return_std=True)
    draws = fitted.impute(HOLES, n_draws=2000, random_state=0)
    missing = np.isnan(HOLES)
    assert draws.shape == (2000, *HOLES.shape)
    np.testing.assert_array_equal(
        draws[:, ~missing], np.broadcast_to(HOLES[~missing], draws[:, ~missing].shape)
    )
    gap = (draws.mean(0) - mean)[missing] / (std[missing] / np.sqrt(2000))
    assert np.abs(gap).max() < 5.5
    np.testing.assert_allclose(draws.std(0)[missing], std[missing], rtol=0.12)


def test_draws_are_joint_within_a_row() -> None:
    row = np.full((1, 5), np.nan)
    fitted = BayesianPCA(2, random_state=0).fit(HOLES)
    draws = fitted.impute(row, n_draws=4000, random_state=0)[:, 0]
    np.testing.assert_allclose(np.corrcoef(draws.T), np.corrcoef(WHOLE.T), atol=0.2)
    with pytest.raises(ValueError, match="n_draws must be a whole number"):
        fitted.impute(row, n_draws=0)
    with pytest.raises(ValueError, match="ask for one of them"):
        fitted.impute(row, True, n_draws=2)


def test_an_imputer_is_a_step_of_a_pipeline() -> None:
    target = WHOLE @ np.arange(5.0)
    pipe = make_pipeline(Imputer(BayesianPCA(2, random_state=0)), LinearRegression())
    filled = np.where(np.isnan(HOLES), np.nanmean(HOLES, 0), HOLES)
    by_means = LinearRegression().fit(filled, target)
    assert pipe.fit(HOLES, target).score(HOLES, target) > by_means.score(filled, target) + 0.05
    over = Imputer(BayesianPCA(2, network=Network.ring(3), random_state=0)).fit(HOLES)
    np.testing.assert_array_equal(over.transform(HOLES), over.estimator_.impute(HOLES))


def test_an_imputer_keeps_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(HOLES, columns=list("abcde"), index=range(100, 220))
    made = (
        Imputer(BayesianPCA(2, random_state=0)).set_output(transform="pandas").fit_transform(frame)
    )
    assert made.columns.tolist() == list("abcde")
    assert made.index.tolist() == frame.index.tolist()
    assert made.notna().all().all()
    pandas.testing.assert_frame_equal(made.where(frame.notna()), frame)


def test_an_imputer_needs_a_model_that_imputes() -> None:
    with pytest.raises(TypeError, match="received BayesianLinearRegression"):
        Imputer(BayesianLinearRegression()).fit(HOLES)


def test_of_a_list_the_model_with_the_highest_bound_is_kept() -> None:
    data = np.where(np.random.default_rng(0).random((60, 3)) < 0.1, np.nan, GROUPS)
    models = [BayesianPCA(1, noise="feature"), BayesianGaussianMixture(2, random_state=0)]
    kept = Imputer(models).fit(data)
    assert isinstance(kept.estimator_, BayesianGaussianMixture)
    assert kept.lower_bounds_[1] == kept.estimator_.lower_bound_ > kept.lower_bounds_[0]
    chosen = Imputer("auto").fit(data)
    assert chosen.estimator_.lower_bound_ == chosen.lower_bounds_.max() >= kept.lower_bounds_[1]
    with pytest.raises(ValueError, match="empty list"):
        Imputer([]).fit(data)
    with pytest.raises(ValueError, match="auto"):
        Imputer("best").fit(data)
    with pytest.raises(ValueError, match="must be a table"):
        Imputer("auto").fit(data[:, 0])


def test_a_column_of_two_values_does_not_decide_between_models() -> None:
    """One Gaussian and a coin: a component of no width on the coin's sides would have any density that one likes."""
    rng = np.random.default_rng(0)
    coin = rng.integers(0, 2, 150).astype(float)
    data = np.column_stack([rng.normal(size=(150, 2)) @ [[1.0, 0.8], [0.0, 0.6]], coin])
    one, two = (BayesianGaussianMixture(k, random_state=0) for k in (1, 2))
    assert two.fit(data).lower_bound_ > one.fit(data).lower_bound_
    kept, bounds = fitted_by_bound([one, two], data)
    assert kept.n_components == 1
    assert bounds[0] > bounds[1]
    assert kept.lower_bound_ == one.lower_bound_  # fitted to the table as it is
    moved, other = fitted_by_bound([one, two], [1e3 * data[:70] - 5.0, 1e3 * data[70:] - 5.0])
    assert moved.n_components == 1
    np.testing.assert_allclose(np.diff(other), np.diff(bounds), rtol=1e-4)


def test_only_rounded_columns_are_dequantized() -> None:
    rng = np.random.default_rng(0)
    plain = rng.normal(size=50)
    tenths = np.round(plain, 1)
    gappy = np.where(rng.random(50) < 0.2, np.nan, tenths)
    data = np.column_stack([plain, tenths, gappy, np.full(50, 3.0), 0.1 * np.round(10 * plain)])
    made = dequantized(data)
    np.testing.assert_array_equal(made[:, [0, 3]], data[:, [0, 3]])
    np.testing.assert_array_equal(np.isnan(made), np.isnan(data))
    for j in (1, 2, 4):
        gap = np.abs(made[:, j] - data[:, j])
        assert 0.03 < np.nanmax(gap) < 0.0501


GAPPY = [
    BayesianGaussianMixture(2, random_state=0),
    BayesianGaussianMixture(2, covariance_type="diag", random_state=0),
    MixtureOfPCA(2, 1, random_state=0),
    GaussianHMM(2, random_state=0),
]


@pytest.mark.parametrize("model", GAPPY, ids=lambda m: f"{type(m).__name__}")
def test_intervals_of_mixtures_are_quantiles_of_their_draws(model: Any) -> None:
    data = np.where(np.random.default_rng(0).random((60, 3)) < 0.2, np.nan, GROUPS)
    fitted = clone(model).fit(data)
    hidden = np.isnan(data)
    low, high = fitted.impute_interval(data, level=0.8)
    filled, std = fitted.impute(data, return_std=True)
    np.testing.assert_array_equal(low[~hidden], data[~hidden])
    assert (low[hidden] < high[hidden]).all()
    assert (std[~hidden] == 0).all()
    assert 0.7 < np.mean((low <= GROUPS)[hidden] & (high >= GROUPS)[hidden]) < 0.95
    if "n_draws" not in inspect.signature(fitted.impute).parameters:
        return
    draws = fitted.impute(data, n_draws=2000, random_state=1)[:, hidden]
    np.testing.assert_allclose(np.mean(draws <= high[hidden], 0), 0.9, atol=0.04)
    np.testing.assert_allclose(np.mean(draws < low[hidden], 0), 0.1, atol=0.04)
    gap = (draws.mean(0) - filled[hidden]) / std[hidden]
    assert np.abs(gap).max() < 0.15


def test_with_few_rows_a_mixture_knows_that_it_knows_little() -> None:
    """One Gaussian, 25 rows of 6 columns: plugging in the parameters would cover far less than 90 %."""
    hits, asked = 0, 0
    model = BayesianGaussianMixture(1, degrees_of_freedom_prior=11.0, covariance_prior=6.0)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        mix = np.linalg.qr(rng.normal(size=(6, 6)))[0] * [3.0, 2.0, 1.0, 1.0, 0.5, 0.5]
        rows, new = rng.normal(size=(25, 6)) @ mix, rng.normal(size=(200, 6)) @ mix
        gaps = new.copy()
        gaps[:, 0] = np.nan
        low, high = model.fit(rows).impute_interval(gaps)
        hits += int(((low <= new) & (new <= high))[:, 0].sum())
        asked += len(new)
    assert 0.85 < hits / asked < 0.95


def test_an_imputer_names_its_candidates_and_columns_of_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    table.iloc[3, 1] = np.nan
    imputer = Imputer([BayesianPCA(1, noise="feature"), BayesianPCA(1)]).fit(table)
    assert imputer.candidates_ == [
        "BayesianPCA(n_components=1, noise='feature')",
        "BayesianPCA(n_components=1)",
    ]
    assert len(imputer.candidates_) == len(imputer.lower_bounds_)
    with pytest.raises(ValueError, match=r"columns \['sex'\] hold text"):
        Imputer("auto").fit(table.assign(sex="f"))
    with pytest.raises(TypeError, match="save its estimator_"):
        dmfvi.save(imputer, tmp_path / "model.npz")
