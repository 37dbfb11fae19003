"""Linear response of structures, topics and imputed entries, and intervals that stay inside their range."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

import dmfvi
from dmfvi import (
    PPCA,
    BayesianGaussianMixture,
    BayesianPCA,
    CategoricalHMM,
    LatentDirichletAllocation,
    MixtureOfPCA,
    Network,
    StructureFromMotion,
)
from dmfvi.datasets import make_cube, mask_at_random
from dmfvi.models.pca.response import latent_deviations
from dmfvi.uncertainty import Uncertainty

RNG = np.random.default_rng(5)
LOADINGS = RNG.normal(size=(2, 6))
FULL = RNG.normal(size=(30, 2)) @ LOADINGS + 1.0 + 0.4 * RNG.normal(size=(30, 6))
GAPS = np.where(RNG.random(FULL.shape) < 0.5, np.nan, FULL)
GAPS[np.isnan(GAPS).all(1), 0] = 1.0
TOPICS = RNG.dirichlet(np.full(8, 0.5), size=2)
COUNTS = np.array(
    [RNG.multinomial(40, p) for p in RNG.dirichlet(np.full(2, 0.3), size=60) @ TOPICS]
)


def benchmark(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def blocks(covariance: np.ndarray) -> np.ndarray:
    n = len(covariance) // 3
    return np.einsum("pipj->pij", covariance.reshape(n, 3, n, 3))


@pytest.mark.parametrize("metric", ["orthographic", "scaled-orthographic", None])
def test_every_camera_has_the_pooled_covariance_of_the_structure(metric: Any) -> None:
    tracks = mask_at_random(np.concatenate(make_cube(seed=1, n_frames=8).cameras), 0.1, seed=0)
    settings = {"metric": metric, "random_state": 0, "tol": 1e-11}
    pooled = StructureFromMotion(**settings).fit(tracks).uncertainty("structure")
    model = StructureFromMotion(network=Network.ring(5), **settings).fit(tracks)
    found = model.uncertainty("structure")
    scale = np.outer(pooled.std.ravel(), pooled.std.ravel())
    np.testing.assert_allclose(found.covariance / scale, pooled.covariance / scale, atol=1e-8)
    np.testing.assert_array_equal(
        model.at_node(3).uncertainty("structure").covariance, found.covariance
    )
    assert found.response.n_sums == (1 if metric is None else 2)
    assert np.linalg.eigvalsh(found.covariance)[0] > -1e-12


def test_a_structure_is_as_uncertain_as_repeated_tracks_make_it() -> None:
    """The deviation of structures from many noisy sets of tracks, laid upon the truth."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-0.5, 0.5, size=(10, 3))
    points -= points.mean(0)
    frames = []
    for angle in np.linspace(-0.3, 0.3, 12):  # 34 degrees
        turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0]])
        nod = np.array(
            [[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]]
        )
        frames.append(turn @ nod @ points.T)
    clean = np.concatenate(frames)
    gaps, told = [], []
    for _ in range(20):
        model = StructureFromMotion(random_state=0).fit(
            clean + 0.004 * rng.normal(size=clean.shape)
        )
        left, _, right = np.linalg.svd(model.structure_.T @ points)
        gaps.append(((model.structure_ @ left @ right - points) ** 2).sum(1))
        told.append(np.trace(blocks(model.uncertainty("structure").covariance), axis1=1, axis2=2))
    ratio = np.sum(gaps) / np.sum(told)
    assert 0.5 < ratio < 1.6


def test_structures_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="the structure stays affine"):
        model = StructureFromMotion(random_state=0).fit(make_cube(n_frames=5).cameras[0])
    with pytest.raises(ValueError, match="of 'structure' only"):
        model.uncertainty("noise")
    plain = model.uncertainty("structure", method="mean-field")
    np.testing.assert_array_equal(blocks(plain.covariance), model.structure_cov_)
    dmfvi.save(model, tmp_path / "model.npz")
    with pytest.raises(ValueError, match="fit it to all data in this process"):
        dmfvi.load(tmp_path / "model.npz").uncertainty("structure")


def test_topics_are_wider_and_the_same_at_all_nodes() -> None:
    settings: dict[str, Any] = {
        "doc_topic_prior": 0.3,
        "topic_word_prior": 0.5,
        "tol": 1e-10,
        "mean_change_tol": 1e-10,
        "max_doc_update_iter": 1000,
        "max_iter": 3000,
        "random_state": 0,
    }
    pooled = LatentDirichletAllocation(2, **settings).fit(COUNTS)
    found, plain = (
        pooled.uncertainty("topics", method=m) for m in ("linear-response", "mean-field")
    )
    assert found.response.converged
    assert np.median(found.std / plain.std) > 1.05
    low, high = found.interval
    assert (low > 0).all()
    assert (high < 1).all()
    np.testing.assert_allclose(found.covariance.reshape(2, 8, 2, 8).sum(1), 0.0, atol=1e-9)
    nodes = LatentDirichletAllocation(2, network=Network.ring(3), **settings).fit(COUNTS)
    np.testing.assert_allclose(nodes.uncertainty("topics").std, found.std, rtol=1e-6)
    again = pooled.uncertainty("topics")
    np.testing.assert_array_equal(again.covariance, found.covariance)  # it leaves no trace
    online = LatentDirichletAllocation(2, learning_method="online", random_state=0).fit(COUNTS)
    with pytest.raises(ValueError, match="fitted in batches"):
        online.uncertainty("topics")


def test_imputed_entries_are_wider_and_the_same_at_all_nodes() -> None:
    settings: dict[str, Any] = {"tol": 1e-10, "random_state": 0, "max_iter": 5000}
    model = BayesianPCA(2, **settings).fit(GAPS)
    gone = np.isnan(GAPS)
    mean, plain = model.impute(GAPS, return_std=True)
    same, std = model.impute(GAPS, return_std=True, uncertainty="linear-response")
    np.testing.assert_array_equal(mean, same)
    assert (std[~gone] == 0).all()
    assert np.mean(std[gone] / plain[gone]) > 1.02
    nodes = BayesianPCA(2, network=Network.ring(3), **settings).fit(GAPS)
    found = nodes.impute(GAPS, return_std=True, uncertainty="linear-response")[1]
    np.testing.assert_allclose(found, std, rtol=1e-5)
    low, high = model.impute_interval(GAPS, uncertainty="linear-response")
    np.testing.assert_allclose(high - low, 2 * 1.6448536 * std, rtol=1e-6)
    draws = model.impute(GAPS, n_draws=3000, random_state=0, uncertainty="linear-response")
    np.testing.assert_allclose(draws.std(0)[gone], std[gone], rtol=0.1)
    np.testing.assert_allclose(draws.mean(0)[gone], mean[gone], atol=5 * std.max() / 3000**0.5)
    whole, none = model.impute(FULL, return_std=True, uncertainty="linear-response")
    np.testing.assert_array_equal(whole, FULL)
    assert not none.any()
    with pytest.raises(ValueError, match="uncertainty must be"):
        model.impute(GAPS, uncertainty="bootstrap")
    with pytest.raises(ValueError, match="at most 3000 missing entries"):
        model.impute(np.tile(GAPS, (40, 1)), return_std=True, uncertainty="linear-response")


def test_latent_coordinates_take_it_whatever_the_rotation() -> None:
    some = GAPS[:3]
    model = BayesianPCA(2, random_state=0, tol=1e-8).fit(GAPS)
    mean, plain = model.transform(some, return_std=True)
    same, std = model.transform(some, return_std=True, uncertainty="linear-response")
    np.testing.assert_array_equal(same, mean)
    assert latent_deviations(model, some[:0]).shape == (0, 2)
    assert 1.05 < np.median(std / plain) < 2.0
    nodes = BayesianPCA(2, random_state=0, tol=1e-8, network=Network.ring(3)).fit(GAPS)
    other = nodes.transform(some, return_std=True, uncertainty="linear-response")[1]
    np.testing.assert_allclose(other, std, rtol=1e-4)
    with pytest.raises(ValueError, match="at most 3000 latent coordinates"):
        model.transform(np.tile(GAPS, (60, 1)), return_std=True, uncertainty="linear-response")
    with pytest.raises(ValueError, match="uncertainty must be"):
        model.transform(some, uncertainty="bootstrap")
    with pytest.raises(ValueError, match="add return_std=True"):
        model.transform(some, uncertainty="linear-response")


@pytest.mark.slow
def test_latent_coordinates_of_a_large_sample_need_no_correction() -> None:
    rng = np.random.default_rng(0)
    many = rng.normal(size=(4000, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(4000, 6))
    known = BayesianPCA(2, random_state=0, tol=1e-8).fit(many)
    _, little = known.transform(many[:4], return_std=True)
    _, no_more = known.transform(many[:4], return_std=True, uncertainty="linear-response")
    np.testing.assert_allclose(no_more, little, rtol=0.02)


def test_estimators_without_it_say_what_to_use() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 4))
    with pytest.raises(ValueError, match=r"PPCA has no uncertainty.*use BayesianPCA"):
        PPCA(2, random_state=0).fit(rows).uncertainty("location")
    with pytest.raises(ValueError, match=r"MixtureOfPCA has no uncertainty of 'location'"):
        MixtureOfPCA(2, random_state=0).fit(rows).uncertainty("location")


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_clusters_far_apart_are_as_uncertain_as_a_pca_of_each(missing: float) -> None:
    rng = np.random.default_rng(0)
    parts = [
        shift + rng.normal(size=(40, 1)) @ rng.normal(size=(1, 4)) + 0.3 * rng.normal(size=(40, 4))
        for shift in (0.0, 12.0)
    ]
    rows = np.concatenate(parts)[rng.permutation(80)]
    rows[rng.random(rows.shape) < missing] = np.nan
    rows = rows[~np.isnan(rows).all(1)]
    network = Network.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)])
    pooled, nodes = (
        MixtureOfPCA(2, 1, network=graph, random_state=0, tol=1e-8).fit(rows)
        for graph in (None, network)
    )
    means, noise = pooled.uncertainty("means"), pooled.uncertainty("noise")
    assert not means.notes
    for k, cluster in enumerate(
        np.split(rows[np.argsort(pooled.predict(rows))], [np.sum(pooled.predict(rows) == 0)])
    ):
        alone = BayesianPCA(1, random_state=0, tol=1e-8).fit(cluster)
        np.testing.assert_allclose(means.std[k], alone.uncertainty("location").std, rtol=0.02)
        np.testing.assert_allclose(noise.std[k], alone.uncertainty("noise").std, rtol=0.02)
    weights = pooled.uncertainty("weights")
    share = np.mean(pooled.predict(rows) == 0)
    np.testing.assert_allclose(weights.std, np.sqrt(share * (1 - share) / len(rows)), rtol=0.05)
    np.testing.assert_allclose(nodes.uncertainty("means").std, means.std, rtol=1e-7)
    bits = {nodes.at_node(k).uncertainty("means").std.tobytes() for k in range(4)}
    assert len(bits) == 1


def test_clusters_that_overlap_are_named() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    fitted = MixtureOfPCA(2, 1, random_state=0).fit(rows)
    with pytest.warns(UserWarning, match="component"):
        notes = fitted.uncertainty("means").notes
    assert any("overlap" in note or "has 0.0 rows" in note for note in notes)


def test_intervals_stay_where_the_quantity_lies() -> None:
    def interval(mean: Any, std: Any, support: Any) -> tuple[np.ndarray, np.ndarray]:
        mean = np.asarray(mean, dtype=float)
        made = Uncertainty(
            mean,
            np.diag(np.ravel(std) ** 2.0),
            0.9,
            "",
            None,
            support=support,  # type: ignore[arg-type]
        )
        return made.interval

    low, high = interval([0.01, 0.5, 0.99, 1.0], np.full(4, 0.02), "probability")
    assert (low[:3] > 0).all()
    assert (high[:3] < 1).all()
    assert high[1] - low[1] == pytest.approx(2 * 1.645 * 0.02, rel=0.01)
    counts = np.array([0.5, 1.0, 40.0])  # a Dirichlet's entries are Beta
    share = counts / counts.sum()
    low, high = interval(share, np.sqrt(share * (1 - share) / (counts.sum() + 1)), "probability")
    exact = beta(counts, counts.sum() - counts)
    np.testing.assert_allclose(low, np.minimum(exact.ppf(0.05), share), rtol=1e-6)
    np.testing.assert_allclose(high, exact.ppf(0.95), rtol=1e-6)
    spreads = np.linspace(
        0.001, 0.099, 60
    )  # of a probability of 0.01: the largest that it can have is 0.0995
    _, high = interval(np.full(60, 0.01), spreads, "probability")
    assert (np.diff(high) >= 0).all()  # knowing less never narrows it
    low, high = interval([0.5, 0.01, 0.0, 1.0], np.array([0.9, 0.2, 0.1, 0.1]), "probability")
    np.testing.assert_allclose(low, [0.0, 0.0, 0.0, 1.0 - 1.6448536 * 0.1], rtol=1e-6)
    np.testing.assert_allclose(high, [1.0, 1.0, 1.6448536 * 0.1, 1.0], rtol=1e-6)
    low, high = interval([1e-300], np.array([1e-300]), "probability")
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    low, high = interval([0.1, 10.0], np.array([0.2, 0.1]), "positive")
    assert (low > 0).all()
    assert high[1] - low[1] == pytest.approx(2 * 1.645 * 0.1, rel=0.01)
    low, _ = interval([[0.1, 0.1], [0.1, 0.1]], np.full(4, 0.5), "covariance")
    assert (np.diagonal(low) > 0).all()
    assert low[0, 1] == pytest.approx(0.1 - 1.6448536 * 0.5)


def test_states_that_share_symbols_or_have_none_are_named() -> None:
    rng = np.random.default_rng(0)
    symbols = rng.integers(0, 4, size=(200, 1))
    model = CategoricalHMM(2, n_features=4, random_state=0, tol=1e-8, max_iter=3000).fit(symbols)
    with pytest.warns(UserWarning, match=r"states 0 and 1 overlap|state \d has \d observations"):
        model.uncertainty("emissions")


def test_states_that_follow_one_another_at_random_are_named() -> None:
    """A mixture of two sets of symbols has many solutions: only their order tells states apart."""
    rng = np.random.default_rng(0)
    symbols = np.repeat([0, 2, 0, 2], 30)[:, None] + rng.integers(0, 2, size=(120, 1))
    model = CategoricalHMM(2, n_features=4, random_state=0, n_init=1).fit(symbols)
    assert not list(model._doubts())
    model.emissionprob_ = np.array([[0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]])
    assert not list(model._doubts())
    model.transmat_ = np.array([[0.6, 0.4], [0.4, 0.6]])
    assert "0 and 1 share symbols, and their transition probabilities" in next(
        iter(model._doubts())
    )
    model.emissionprob_ = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    assert not list(model._doubts())  # told apart anyway


@pytest.mark.slow
def test_deviations_are_those_of_a_long_sampler() -> None:
    """A mixture 4 deviations apart and a chain with three states, against Gibbs sampling with the same priors."""
    sampler = benchmark("response_sampler")
    for case in (sampler.mixture_case, sampler.chain_case):
        fitted, draws = case(250)
        for found in sampler.ratios(fitted, draws, "linear-response").values():
            assert found.min() > 0.9
            assert found.max() < 1.1
        means = sampler.ratios(fitted, draws, "mean-field")["means"]
        assert means.min() < 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["Bayesian PCA, N 30, 70 % missing", "structure from motion over 30 degrees"]
)
def test_predictions_and_ellipsoids_cover_what_they_say(name: str) -> None:
    coverage = benchmark("interval_coverage")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [coverage.OTHERS[name](np.random.default_rng(seed))[1][1] for seed in range(60)]
    assert 0.85 < np.mean(np.concatenate(made)) < 0.95


def test_a_mixture_says_how_many_sums_it_took() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(-3, 1, (40, 1)), rng.normal(3, 1, (40, 1))])
    model = BayesianGaussianMixture(2, random_state=0, tol=1e-8).fit(rows)
    assert 1 < model.uncertainty("weights").response.n_sums <= 60
