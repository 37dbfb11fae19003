"""Draws for xarray and ArviZ: named, of the right shape, and of the posterior."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmfvi import (
    PPCA,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPCA,
    MixedModel,
    MixtureOfPCA,
    Network,
    RatingFactorization,
)
from estimator_cases import CASES

xarray = pytest.importorskip("xarray")
arviz_base = pytest.importorskip("arviz_base")
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(80, 2)) @ RNG.normal(size=(2, 4)) + 0.2 * RNG.normal(size=(80, 4))
#: points
WITHOUT = {"ppca", "svd-factorization"}


@pytest.mark.parametrize("kind", sorted(CASES))
def test_every_posterior_is_exported_or_refused(kind: str) -> None:
    model = CASES[kind].local()
    if kind in WITHOUT:
        with pytest.raises(
            (ValueError, AttributeError), match=r"drawn from|point estimate|to_xarray"
        ):
            model.to_xarray(5)
        return
    data = model.to_xarray(5, random_state=1)
    assert data.sizes["chain"] == 1
    assert data.sizes["draw"] == 5
    assert all(np.isfinite(data[name]).all() for name in data)
    xarray.testing.assert_identical(data, model.to_xarray(5, random_state=1))
    tree = model.to_arviz(5, random_state=1)
    assert set(tree["posterior"].data_vars) == set(data.data_vars)


def test_draws_are_those_of_the_posterior() -> None:
    rng = np.random.default_rng(0)
    model = BayesianPCA(2, network=Network.ring(3), random_state=0).fit(ROWS)
    data = model.to_xarray(4000, random_state=0)
    assert data["loadings"].shape == (1, 4000, 4, 2)
    np.testing.assert_allclose(data["location"].mean(("chain", "draw")), model.mean_, atol=0.01)
    precision = float(data["noise_precision"].mean())
    assert precision == pytest.approx(model.noise_precision_, rel=0.02)
    two = np.concatenate([rng.normal(-3, 1, (40, 2)), rng.normal(3, 1, (40, 2))])
    mixture = BayesianGaussianMixture(2, random_state=0).fit(two)
    draws = mixture.to_xarray(4000, random_state=0)
    found = draws["components_mean"].mean(("chain", "draw")).values
    np.testing.assert_allclose(found, mixture.means_, atol=0.02)


def test_draws_of_mixed_models_clusters_and_ratings_are_those_of_their_posteriors() -> None:
    rng = np.random.default_rng(0)
    groups, x = rng.integers(12, size=300), rng.normal(size=(300, 2))
    y = x[:, 0] + rng.normal(size=12)[groups] + 0.5 * rng.normal(size=300)
    mixed = MixedModel(random_slopes=("x1",)).fit(x, y, groups)
    draws = mixed.to_xarray(4000, random_state=0)
    deviations = np.sqrt(np.diag(mixed.coef_covariance_))
    found = draws["coef"].std(("chain", "draw")).values
    np.testing.assert_allclose(found, deviations[:2], rtol=0.05)
    np.testing.assert_allclose(draws["effects_std"][0].median("draw"), mixed.effects_std_, rtol=0.1)
    assert float(draws["noise_variance"].median()) == pytest.approx(mixed.noise_variance_, rel=0.01)

    two = np.concatenate([rng.normal(-3, 1, (40, 4)), rng.normal(3, 1, (60, 4))])
    clusters = MixtureOfPCA(2, 1, random_state=0).fit(two)
    draws = clusters.to_xarray(4000, random_state=0)
    mean = ("chain", "draw")
    np.testing.assert_allclose(draws["weights"].mean(mean), clusters.weights_, atol=0.01)
    np.testing.assert_allclose(draws["means"].mean(mean), clusters.means_, atol=0.02)
    loadings = np.swapaxes(draws["loadings"].mean(mean).values, 1, 2)
    np.testing.assert_allclose(loadings, clusters.components_, atol=0.02)

    users, items = rng.integers(30, size=400), rng.integers(12, size=400)
    ratings = RatingFactorization(2, random_state=0).fit((users, items, rng.normal(size=400)))
    draws = ratings.to_xarray(4000, random_state=0)["item_means"]
    spread = ratings.uncertainty("item_means", method="mean-field").std
    np.testing.assert_allclose(draws.mean(mean), ratings.item_means_, atol=0.02)
    np.testing.assert_allclose(draws.std(mean), spread, rtol=0.05)
    assert draws["item_means_dim_0"].values.tolist() == [str(i) for i in ratings.item_ids_]


def test_it_goes_through_a_netcdf_file(tmp_path) -> None:
    pytest.importorskip("h5netcdf")
    data = BayesianPCA(2, random_state=0).fit(ROWS).to_xarray(10, random_state=0)
    data.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    again = xarray.open_dataset(tmp_path / "draws.nc", engine="h5netcdf")
    xarray.testing.assert_equal(again.load(), data)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        BayesianPCA(2, random_state=0).fit(ROWS).to_xarray(0)
    with pytest.raises(ValueError, match="a point estimate is no distribution"):
        PPCA(2, random_state=0).fit(ROWS).to_arviz(3)


def test_draws_of_a_regression_are_those_of_its_table() -> None:
    rng = np.random.default_rng(0)
    y = ROWS[:, 0] + 0.5 * rng.normal(size=len(ROWS))
    linear = BayesianLinearRegression().fit(ROWS[:, 1:], y)
    draws = linear.to_xarray(8000, random_state=0)
    assert set(draws) == {"coef", "intercept", "noise_precision"}
    np.testing.assert_allclose(draws["coef"].mean(("chain", "draw")), linear.coef_, atol=0.02)
    assert float(draws["intercept"].mean()) == pytest.approx(float(linear.intercept_), abs=0.02)
    logistic = BayesianLogisticRegression().fit(ROWS[:, 1:], y > np.median(y))
    spread = logistic.to_xarray(8000, random_state=0)["coef"].std(("chain", "draw")).values
    expected = [row.sd for row in logistic.coefficient_table().rows[:-1]]
    np.testing.assert_allclose(spread, expected, rtol=0.05)
    three = BayesianLogisticRegression().fit(ROWS[:, 1:], np.arange(len(ROWS)) % 3)
    draws = three.to_xarray(8000, random_state=0)
    np.testing.assert_allclose(draws["coef"].mean(("chain", "draw")), three.coef_, atol=0.02)
    np.testing.assert_allclose(
        draws["intercept"].mean(("chain", "draw")), three.intercept_, atol=0.02
    )


def test_columns_keep_their_names(tmp_path: Path) -> None:
    """In xarray, ArviZ and netCDF; a formula's terms have theirs."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["age", "bmi", "dose", "site"])
    pca = BayesianPCA(2, random_state=0).fit(frame)
    linear = BayesianLinearRegression().fit(frame[["age", "bmi"]], frame["dose"])
    formula = BayesianLinearRegression(formula="dose ~ age + I(bmi**2)").fit(frame)
    for model, dimension, names in (
        (pca, "loadings_dim_0", ["age", "bmi", "dose", "site"]),
        (pca, "location_dim_0", ["age", "bmi", "dose", "site"]),
        (linear, "coef_dim_0", ["age", "bmi"]),
        (formula, "coef_dim_0", list(formula.term_names_)),
    ):
        data = model.to_xarray(5, random_state=0)
        assert data.coords[dimension].values.tolist() == names
        tree = model.to_arviz(5, random_state=0)
        assert tree["posterior"].coords[dimension].values.tolist() == names
        data.to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
        with xarray.open_dataset(tmp_path / "draws.nc", engine="h5netcdf") as again:
            xarray.testing.assert_equal(again.load(), data)
    assert not BayesianLinearRegression().fit(ROWS[:, :2], ROWS[:, 2]).to_xarray(5).coords
