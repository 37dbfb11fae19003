"""Multiple imputations, and the imputer as a step of a pipeline."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from dmfvi import PPCA, BayesianLinearRegression, BayesianPCA, Imputer, Network, SVDFactorization
from dmfvi.datasets import make_low_rank, mask_at_random

WHOLE = make_low_rank(120, 5, 2, noise=0.3).data
HOLES = mask_at_random(WHOLE, 0.25)


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
