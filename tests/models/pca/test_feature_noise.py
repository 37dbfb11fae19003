"""A noise level for each feature: answers do not depend on the columns' units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmfvi
from dmfvi import BayesianPCA, Federation, GammaPrior, Network, PcaPrior
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.readers.tables import Table

SCALES = np.array([1e-8, 1.0, 1e8, 30.0, 0.01, 1.0])
SHIFTS = SCALES * np.array([0.0, 1e3, -1e4, 5.0, 0.0, 1e5])
NOISE = np.array([0.2, 0.4, 0.6, 0.8, 0.3, 0.5])


def rows(missing: float = 0.2, n: int = 150) -> np.ndarray:
    rng = np.random.default_rng(1)
    data = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + NOISE * rng.normal(size=(n, 6))
    data[rng.random(data.shape) < missing] = np.nan
    return data


def fitted(data: np.ndarray, **settings: object) -> BayesianPCA:
    settings = {"tol": 1e-10, **settings}
    return BayesianPCA(2, noise="feature", random_state=0, **settings).fit(data)


@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_units_of_the_columns_do_not_matter(missing: float, covariance: str) -> None:
    data = rows(missing)
    plain = fitted(data, covariance_type=covariance)
    other = fitted(SCALES * data + SHIFTS, covariance_type=covariance)
    gap = rows(0.3)
    there = SCALES * gap + SHIFTS
    for ours, theirs in zip(plain.impute_interval(gap), other.impute_interval(there), strict=True):
        np.testing.assert_allclose((theirs - SHIFTS) / SCALES, ours, atol=1e-6)
    np.testing.assert_allclose(other.transform(there), plain.transform(gap), atol=1e-6)
    np.testing.assert_allclose(other.components_ / SCALES, plain.components_, atol=1e-6)
    np.testing.assert_allclose(other.noise_variance_ / SCALES**2, plain.noise_variance_, rtol=1e-6)
    counts = np.isfinite(data).sum(0)
    volume = counts @ np.log(SCALES)
    assert np.isclose(other.lower_bound_ + volume, plain.lower_bound_, rtol=1e-6)


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_every_node_has_the_pooled_posterior(covariance: str) -> None:
    data = rows()
    data = data[np.argsort(np.where(np.isnan(data[:, 0]), 9.0, data[:, 0]))]
    pooled = fitted(data, covariance_type=covariance)
    spread = fitted(data, covariance_type=covariance, network=Network.ring(4))
    assert max(p.distance(pooled.posterior_) for p in spread.node_posteriors_) < 1e-9


def test_with_bregman_admm() -> None:
    data = rows()
    federation = Federation(Network.complete(3), consensus="bregman-admm")
    spread = fitted(data, network=federation, tol=1e-5)
    assert spread.posterior_.distance(fitted(data).posterior_) < 1e-5


def test_the_paper_rule_is_for_one_noise_level() -> None:
    network = Federation(Network.ring(3), consensus="moments-admm")
    with pytest.raises(ValueError, match="one noise level"):
        fitted(rows(), network=network, covariance_type="diag")


def test_noise_levels_are_found() -> None:
    found = fitted(rows(0.0, n=3000))
    np.testing.assert_allclose(found.noise_variance_, NOISE**2, rtol=0.25)
    assert found.noise_precision_.shape == (6,)
    assert found.sample(4, random_state=0).shape == (4, 6)
    assert found.impute(rows()[:3], n_draws=2, random_state=0).shape == (2, 3, 6)


def test_strengths_of_components_count_noise_variances() -> None:
    """Whatever the columns' units are; a component that is switched off has 1 and comes last."""
    data = rows(0.0)
    extra = BayesianPCA(5, noise="feature", random_state=0).fit(data)
    scaled = BayesianPCA(5, noise="feature", random_state=0).fit(SCALES * data + SHIFTS)
    strengths = extra.explained_variance_
    white = extra.components_ / np.sqrt(extra.noise_variance_)  # noise one in every feature
    np.testing.assert_allclose(strengths - 1.0, (white**2).sum(1), rtol=0.1, atol=1e-6)
    np.testing.assert_allclose(scaled.explained_variance_, strengths, rtol=1e-6)
    assert strengths[-1] == pytest.approx(1.0, abs=1e-3)
    assert strengths[0] > 2.0


def test_it_is_saved_and_streamed(tmp_path: Path) -> None:
    data = rows(0.0, 300)
    found = fitted(SCALES * data[:150] + SHIFTS)
    dmfvi.save(found, tmp_path / "m.npz")
    back = dmfvi.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(back.transform(data), found.transform(data))
    further = back.partial_fit(SCALES * rows(0.1, 300)[150:] + SHIFTS)
    assert further.converged_
    whole = fitted(SCALES * np.concatenate([data[:150], rows(0.1, 300)[150:]]) + SHIFTS)
    # local variables of the first batch are not visited again: near the refit, not equal to it
    np.testing.assert_allclose(further.noise_variance_, whole.noise_variance_, rtol=0.3)


def test_uncertainty_of_the_noise_grows_by_linear_response() -> None:
    found = BayesianPCA(
        1, noise="feature", random_state=0, tol=1e-9, prior=PcaPrior(components=1.0)
    )
    found.fit(rows(0.0, 60))
    told = found.uncertainty("noise")
    mean_field = found.noise_variance_ * np.sqrt(2.0 / 60)
    assert told.std.shape == (6,)
    assert (told.std > 0.9 * mean_field).all()


def test_the_location_is_as_uncertain_as_the_data_make_it() -> None:
    """Variances and correlations of the mean are those of (W W' + Psi) / N; mean field has Psi / N alone."""
    data = SCALES * rows(0.0, 300) + SHIFTS
    found = fitted(data)
    exact = found.get_covariance() / len(data)
    told = found.uncertainty("location").covariance
    np.testing.assert_allclose(np.diagonal(told), np.diagonal(exact), rtol=0.05)
    deviations = np.sqrt(np.diagonal(exact))
    np.testing.assert_allclose(
        told / np.outer(deviations, deviations), exact / np.outer(deviations, deviations), atol=0.05
    )
    assert (found.noise_variance_ / len(data) < 0.8 * np.diagonal(exact)).any()


def test_a_constant_and_a_repeated_column() -> None:
    data = rows()
    data[:, 3] = 7.0
    data[:, 4] = 2.0 * data[:, 5] + 1.0
    data[0, 3] = np.nan
    with pytest.warns(UserWarning, match="zero variance in feature 3"):
        found = fitted(data)
    assert found.impute(data)[0, 3] == pytest.approx(7.0)
    low, high = found.impute_interval(data)
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()


def test_a_prior_counts_in_deviations_of_the_columns() -> None:
    prior = PcaPrior(GammaPrior(2.0, 0.5), 1.0, 10.0)
    data = rows()
    plain, other = fitted(data, prior=prior), fitted(SCALES * data + SHIFTS, prior=prior)
    np.testing.assert_allclose((other.mean_ - SHIFTS) / SCALES, plain.mean_, atol=1e-6)


def test_it_is_the_default_for_tables_in_files(recwarn: pytest.WarningsRecorder) -> None:
    settings = ModelSettings.of("bayesian-pca")
    assert settings.settings["noise"] == "feature"
    found = settings.fit(Table(SCALES * rows() + SHIFTS, None))
    assert found.noise_variance_.shape == (6,)
    assert not [w for w in recwarn if "one noise" in str(w.message)]
    assert BayesianPCA().noise == "shared"
