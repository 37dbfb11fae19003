"""The estimators of conjugate models: predictions, missing data, real data, bad input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.base import clone

from dmfvi import (
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    CategoricalHMM,
    Federation,
    GammaPrior,
    GaussianHMM,
    LatentDirichletAllocation,
    Links,
    MixtureOfPCA,
    Network,
)
from helpers import distance
from model_cases import aligned


def real_data(name: str) -> Path:
    """A file of the shared data, or a skip that says why."""
    root = Path(__file__).resolve().parents[2]
    for folder in (os.environ.get("DMFVI_DATA"), root.parent / "shared" / "data"):
        if folder and (Path(folder) / name).exists():
            return Path(folder) / name
    pytest.skip(f"{name} is not here: set DMFVI_DATA to the folder of real data")


def clusters(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = np.sort(rng.integers(3, size=n))
    centres = np.array([[0.0, 0, 0], [5, 0, 2], [0, 5, -2]])
    root = np.array([[1.0, 0, 0], [0.6, 0.8, 0], [0.3, 0.3, 0.7]])
    return centres[label] + rng.normal(size=(n, 3)) @ root.T, label


# -- mixtures -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:samples without any observed entry")
@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_mixture_over_a_network_equals_pooled(covariance: str, missing: float) -> None:
    data, _ = clusters()
    data[np.random.default_rng(1).random(data.shape) < missing] = np.nan
    settings: dict[str, Any] = {"covariance_type": covariance, "random_state": 0}
    pooled = BayesianGaussianMixture(3, tol=1e-9, **settings).fit(data)
    shards = np.split(data, [30, 110, 150, 200])
    model = BayesianGaussianMixture(3, network=Network.chain(5), **settings).fit(shards)
    assert max(distance(q, pooled.posterior_) for q in model.node_posteriors_) < 1e-6
    assert model.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-8)
    assert model.at_node(3).means_ == pytest.approx(pooled.means_, rel=1e-6)
    np.testing.assert_array_equal(model.predict(data), pooled.predict(data))


def test_mixture_finds_the_clusters_and_empties_the_rest() -> None:
    data, label = clusters()
    model = BayesianGaussianMixture(6, weight_concentration_prior=1e-2, random_state=0).fit(data)
    used = model.weights_ > 0.05
    assert used.sum() == 3
    assert model.weights_[~used].max() < 0.01
    found = model.predict(data)
    assert max(len(set(found[label == k])) for k in range(3)) <= 2
    assert np.mean(model.predict_proba(data).max(1)) > 0.99


def test_missing_entries_are_marginalised_exactly() -> None:
    """For one component: the regression of the missing on the observed entry, as EM finds it."""
    rng = np.random.default_rng(0)
    data = rng.multivariate_normal([1.0, -2.0], [[1.0, 0.9], [0.9, 1.0]], size=4000)
    holes = data.copy()
    holes[data[:, 0] > 1.5, 1] = np.nan  # missing at random given the first entry
    model = BayesianGaussianMixture(1).fit(holes)
    np.testing.assert_allclose(model.means_[0], [1.0, -2.0], atol=0.06)
    np.testing.assert_allclose(model.covariances_[0], [[1.0, 0.9], [0.9, 1.0]], atol=0.08)
    filled, std = model.impute(holes, return_std=True)
    gap = np.isnan(holes)
    z = (filled - data)[gap] / std[gap]
    assert abs(z.mean()) < 0.1
    assert z.std() == pytest.approx(1.0, abs=0.1)
    np.testing.assert_array_equal(filled[~gap], data[~gap])


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_mixture_density_integrates_to_one(covariance: str) -> None:
    data, _ = clusters(60)
    model = BayesianGaussianMixture(2, covariance_type=covariance, random_state=0).fit(data[:, :1])
    grid = np.linspace(-60, 60, 40_001)
    density = np.exp(model.score_samples(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
    draws, label = model.sample(3000, random_state=0)
    assert stats.ks_2samp(draws[:, 0], data[:, 0]).pvalue > 1e-3
    assert set(label) <= {0, 1}


def test_old_faithful_has_scikit_learns_answer() -> None:
    from sklearn.mixture import BayesianGaussianMixture as ScikitLearn

    table = np.genfromtxt(real_data("small/datasets_faithful.csv"), delimiter=",", skip_header=1)
    data = table[np.argsort(table[:, 1]), 1:]
    theirs = ScikitLearn(
        n_components=2,
        weight_concentration_prior_type="dirichlet_distribution",
        tol=1e-12,
        max_iter=2000,
        reg_covar=0.0,
        random_state=0,
    ).fit(data)
    shards = np.split(data, [60, 100, 180, 220])
    model = BayesianGaussianMixture(2, network=Network.ring(5), random_state=0).fit(shards)
    order = aligned(model.means_, theirs.means_)
    np.testing.assert_allclose(model.means_[order], theirs.means_, rtol=1e-5)
    np.testing.assert_allclose(model.covariances_[order], theirs.covariances_, rtol=1e-4)
    np.testing.assert_allclose(model.weights_[order], theirs.weights_, rtol=1e-5)


def test_singular_scatter_is_the_priors_business() -> None:
    rng = np.random.default_rng(0)
    flat = np.repeat(rng.normal(size=(30, 1)), 3, axis=1)  # rank one
    constant = np.column_stack([rng.normal(size=30), np.full(30, 7.0)])
    for data in (flat, constant, np.ones((5, 2))):
        for covariance in ("full", "diag"):
            model = BayesianGaussianMixture(2, covariance_type=covariance, random_state=0).fit(data)
            assert np.isfinite(model.lower_bound_)
            assert np.isfinite(model.covariances_).all()


def test_units_do_not_matter_to_a_mixture() -> None:
    data, _ = clusters()
    scale, shift = np.array([1e-4, 1.0, 1e5]), np.array([1e3, 0.0, -5.0])
    plain = BayesianGaussianMixture(3, random_state=0).fit(data)
    moved = BayesianGaussianMixture(3, random_state=0).fit(data * scale + shift)
    np.testing.assert_allclose((moved.means_ - shift) / scale, plain.means_, rtol=1e-5, atol=1e-6)
    jacobian = -len(data) * np.log(scale).sum()
    assert moved.lower_bound_ == pytest.approx(plain.lower_bound_ + jacobian, rel=1e-8)


# -- mixtures of PCA ------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_mixture_of_pca_is_exact_and_finds_the_subspaces(missing: float) -> None:
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(2, 6, 2))
    centres = 5.0 * rng.normal(size=(2, 6))
    data = np.concatenate(
        [
            c + rng.normal(size=(80, 2)) @ w.T + 0.2 * rng.normal(size=(80, 6))
            for c, w in zip(centres, loadings, strict=True)
        ]
    )
    data[rng.random(data.shape) < missing] = np.nan
    pooled = MixtureOfPCA(3, 3, tol=1e-9, random_state=0).fit(data)
    bounds = pooled.history_["objective"]
    assert np.diff(bounds[1:]).min() > -1e-8 * abs(bounds[-1])
    every = [
        Network.ring(4),
        Network.chain(4),
        Network.star(4),
        Network.complete(4),
        Network.grid(2, 2),
    ]
    for network in every[:1] if missing else every:
        model = MixtureOfPCA(3, 3, network=network, random_state=0)
        model.fit(np.split(data, [20, 75, 110]))
        worst = max(q.distance(pooled.posterior_) for q in model.node_posteriors_)
        assert worst < 1e-6
        assert model.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-8)
    used = np.flatnonzero(pooled.weights_ > 0.1)
    assert len(used) == 2
    order = used[aligned(pooled.means_[used], centres)]
    for k, w in zip(order, loadings, strict=True):
        found = np.linalg.qr(pooled.components_[k, :2].T)[0]
        assert np.linalg.svd(np.linalg.qr(w)[0].T @ found)[1].min() > 0.99
        strength = (pooled.components_[k] ** 2).sum(1)
        assert strength[2] < 0.05 * strength[1]  # the third column is switched off
    filled, std = pooled.impute(data, return_std=True)
    assert np.isfinite(filled).all()
    assert (std[np.isnan(data)] > 0).all()
    assert np.isfinite(pooled.score(data))
    assert pooled.sample(4, random_state=0)[0].shape == (4, 6)


# -- topics ---------------------------------------------------------------------------------


def corpus(n: int = 150, seed: int = 0) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(4), np.ones(6)) + 0.1 * rng.random((4, 24))
    topics /= topics.sum(1, keepdims=True)
    theta = rng.dirichlet(np.full(4, 0.1), size=n)
    counts = np.array([rng.multinomial(120, row) for row in theta @ topics])
    return sparse.csr_matrix(counts[np.argsort(theta.argmax(1))]), topics


def hellinger(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sqrt(0.5 * ((np.sqrt(a) - np.sqrt(b)) ** 2).sum(-1)).max())


def test_topics_are_recovered_alike_with_and_without_a_centre() -> None:
    counts, topics = corpus()
    settings: dict[str, Any] = {"doc_topic_prior": 0.1, "random_state": 0, "n_init": 3}
    pooled = LatentDirichletAllocation(4, tol=1e-8, **settings).fit(counts)
    found = pooled.topic_word_[aligned(pooled.topic_word_, topics)]
    assert hellinger(found, topics) < 0.12
    model = LatentDirichletAllocation(4, tol=1e-6, network=Network.ring(4), **settings)
    model.fit([counts[:20], counts[20:70], counts[70:100], counts[100:]])
    assert max(distance(q, pooled.posterior_) for q in model.node_posteriors_) < 1e-6
    bounds = pooled.history_["objective"]
    assert np.diff(bounds).min() > -1e-9 * abs(bounds[-1])
    theta, std = model.transform(counts, return_std=True)
    np.testing.assert_allclose(theta.sum(1), 1.0)
    assert (std > 0).all()
    assert model.perplexity(counts) < 24
    assert model.sample(3, length=50, random_state=0).sum() == 150


@pytest.mark.parametrize("network", [None, Network.ring(3)], ids=str)
def test_stochastic_topics_come_near_batch_ones(network: Network | None) -> None:
    counts, topics = corpus(300)
    counts = counts[np.random.default_rng(0).permutation(300)]
    model = LatentDirichletAllocation(
        4,
        doc_topic_prior=0.1,
        learning_method="online",
        batch_size=25,
        n_passes=15,
        network=network,
        random_state=1,
    ).fit(counts)
    assert hellinger(model.topic_word_[aligned(model.topic_word_, topics)], topics) < 0.2
    if network is not None:
        assert max(distance(q, model.posterior_) for q in model.node_posteriors_) < 1e-9


def test_partial_fit_learns_from_a_stream() -> None:
    counts, topics = corpus(400)
    counts = counts[np.random.default_rng(0).permutation(400)]
    model = LatentDirichletAllocation(4, doc_topic_prior=0.1, total_samples=400, random_state=1)
    scores = []
    for _ in range(4):
        for part in range(0, 400, 40):
            model.partial_fit(counts[part : part + 40])
        scores.append(model.score(counts))
    assert scores[-1] > scores[0]
    assert hellinger(model.topic_word_[aligned(model.topic_word_, topics)], topics) < 0.25


# -- chains ---------------------------------------------------------------------------------


def sequences(seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    step = np.array([[0.9, 0.1], [0.2, 0.8]])
    centres = np.array([[0.0, 0.0], [3.0, 1.0]])
    data, states = [], []
    for length in (60, 1, 90, 45, 120, 80, 100, 70):
        z = [0]
        for _ in range(length - 1):
            z.append(rng.choice(2, p=step[z[-1]]))
        states.append(np.array(z))
        data.append(centres[z] + rng.normal(size=(length, 2)))
    return data, states, step


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_gaussian_chain_recovers_states_and_transitions(covariance: str) -> None:
    data, states, step = sequences()
    model = GaussianHMM(2, covariance_type=covariance, network=Network.ring(4), random_state=0).fit(
        data
    )
    pooled = GaussianHMM(2, covariance_type=covariance, tol=1e-9, random_state=0).fit(data)
    assert max(distance(q, pooled.posterior_) for q in model.node_posteriors_) < 1e-6
    order = np.argsort(model.means_[:, 0])
    np.testing.assert_allclose(model.transmat_[np.ix_(order, order)], step, atol=0.1)
    found = order.argsort()[model.predict(data)]
    assert np.mean(found == np.concatenate(states)) > 0.95
    assert np.isfinite(model.score(data))
    nested = GaussianHMM(2, covariance_type=covariance, network=Network.ring(4), random_state=0)
    nested.fit([data[:1], data[1:4], data[4:5], data[5:]])
    assert distance(nested.posterior_, pooled.posterior_) < 1e-6


def test_missing_observations_of_a_chain_are_filled_from_both_sides() -> None:
    data, _, _ = sequences()
    holes = [x.copy() for x in data]
    for x in holes:
        x[10:13] = np.nan
        x[20:30, 1] = np.nan
    model = GaussianHMM(2, random_state=0).fit(holes)
    filled, std = model.impute(holes, return_std=True)
    rows, gap = np.concatenate(data), np.isnan(np.concatenate(holes))
    z = (filled - rows)[gap] / std[gap]
    assert np.mean(np.abs(z) < 1.645) == pytest.approx(0.9, abs=0.08)
    new, states = model.sample(50, random_state=0)
    assert new.shape == (50, 2)
    assert set(states) <= {0, 1}


def test_categorical_chain_over_a_network() -> None:
    rng = np.random.default_rng(0)
    emission = np.array([[0.8, 0.1, 0.1], [0.05, 0.15, 0.8]])
    _, states, step = sequences()
    data = [np.array([rng.choice(3, p=emission[k]) for k in z]) for z in states]
    data[2][5:9] = -1
    model = CategoricalHMM(2, network=Network.ring(4), random_state=0).fit(data)
    pooled = CategoricalHMM(2, tol=1e-9, random_state=0).fit(data)
    assert max(distance(q, pooled.posterior_) for q in model.node_posteriors_) < 1e-6
    order = aligned(model.emissionprob_, emission)
    np.testing.assert_allclose(model.emissionprob_[order], emission, atol=0.1)
    np.testing.assert_allclose(model.transmat_[np.ix_(order, order)], step, atol=0.12)
    assert model.predict_proba(data).shape == (sum(map(len, data)), 2)
    assert np.isfinite(model.score(data))
    symbols, _ = model.sample(20, random_state=0)
    assert set(symbols) <= {0, 1, 2}


def test_reaction_times_chain_is_the_pooled_one() -> None:
    with real_data("small/depmixS4_speed.csv").open() as file:
        rt = np.array([float(line.split(",")[1]) for line in file.readlines()[1:]])[:, None]
    parts = np.split(rt, [168, 302])  # the three blocks of the experiment
    pooled = GaussianHMM(2, tol=1e-9, random_state=0).fit(parts)
    model = GaussianHMM(2, network=Network.chain(3), random_state=0).fit(parts)
    assert distance(model.posterior_, pooled.posterior_) < 1e-6
    np.testing.assert_allclose(np.sort(pooled.means_[:, 0]), [5.5, 6.4], atol=0.1)


# -- regression -----------------------------------------------------------------------------


def test_linear_regression_is_exact_and_its_intervals_hold() -> None:
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(20):
        x = rng.normal(size=(60, 4)) * [1.0, 10.0, 0.1, 3.0] + 5.0
        w, noise = rng.normal(size=4), 0.7
        y = x @ w + 3.0 + noise * rng.normal(size=60)
        model = BayesianLinearRegression(network=Network.ring(3)).fit(
            [x[:5], x[5:30], x[30:50]], [y[:5], y[5:30], y[30:50]]
        )
        low, high = model.predict_interval(x[50:], 0.9)
        inside.append((low < y[50:]) & (y[50:] < high))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.06)
    pooled = BayesianLinearRegression().fit(x[:50], y[:50])
    assert max(distance(q, pooled.posterior_) for q in model.node_posteriors_) < 1e-6
    least = np.linalg.lstsq(np.column_stack([x[:50], np.ones(50)]), y[:50], rcond=None)[0]
    np.testing.assert_allclose(model.coef_, least[:4], rtol=1e-2, atol=1e-2)
    mean, std = model.predict(x[50:], return_std=True)
    assert (std > 0.5).all()
    assert model.sample(x[50:], random_state=0).shape == mean.shape


def test_linear_regression_with_given_priors_in_the_datas_units() -> None:
    rng = np.random.default_rng(0)
    x, w = 3.0 * rng.normal(size=(40, 2)), np.array([1.0, -2.0])
    y = x @ w + 0.5 * rng.normal(size=40)
    model = BayesianLinearRegression(
        prior_precision=2.0, noise_prior=GammaPrior(3.0, 2.0), fit_intercept=False
    ).fit(x, y)
    precision = x.T @ x + 2.0 * np.eye(2)
    np.testing.assert_allclose(model.coef_, np.linalg.solve(precision, x.T @ y), rtol=1e-9)
    shape = 2.0 / 3.0 * (np.eye(40) + x @ x.T / 2.0)
    assert model.lower_bound_ == pytest.approx(stats.multivariate_t(shape=shape, df=6.0).logpdf(y))


def test_class_probabilities_are_calibrated() -> None:
    """Nodes that hold one class only; probabilities averaged over the posterior."""
    rng = np.random.default_rng(0)
    chances, hits = [], []
    for _ in range(60):
        w = rng.normal(size=4)
        x = rng.normal(size=(140, 4))
        y = rng.random(140) < 1 / (1 + np.exp(-x @ w))
        train = np.argsort(y[:40], kind="stable")
        cut = int((~y[:40]).sum())
        parts = [p for p in (train[:cut], train[cut:]) if len(p)]
        network = Network.ring(2) if len(parts) == 2 else None
        # the prior is that of the draws: no intercept
        model = BayesianLogisticRegression(network=network, fit_intercept=False)
        model.fit([x[p] for p in parts], [y[p] for p in parts])
        chances.append(model.predict_proba(x[40:])[:, 1])
        hits.append(y[40:])
    chance, hit = np.concatenate(chances), np.concatenate(hits)
    for low, high in ((0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0)):
        chosen = (chance >= low) & (chance < high)
        assert hit[chosen].mean() == pytest.approx(chance[chosen].mean(), abs=0.07)


def test_logistic_regression_over_a_network_with_three_classes() -> None:
    data, label = clusters()
    names = np.array(["a", "b", "c"])[label]
    pooled = BayesianLogisticRegression(tol=1e-9).fit(data, names)
    cuts = [40, 100, 170]
    model = BayesianLogisticRegression(network=Network.chain(4))
    model.fit(np.split(data, cuts), np.split(names, cuts))
    assert max(distance(q, pooled.posterior_) for q in model.node_posteriors_) < 1e-6
    assert model.score(data, names) > 0.95
    chance, std = model.predict_proba(data, return_std=True)
    np.testing.assert_allclose(chance.sum(1), 1.0)
    assert std.shape == (240, 3)
    assert set(model.sample(data, random_state=0)) <= {"a", "b", "c"}


# -- bad input ------------------------------------------------------------------------------

ROWS = clusters(30)[0]
COUNTS = corpus(20)[0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LatentDirichletAllocation(2).fit(-COUNTS), "Negative values in data"),
        (lambda: LatentDirichletAllocation(2).fit(0.5 * COUNTS), "counts must be whole numbers"),
        (
            lambda: LatentDirichletAllocation(2).fit(
                sparse.vstack([COUNTS, 0 * COUNTS[:1]]).tocsr()
            ),
            "document 20 has no words",
        ),
        (
            lambda: LatentDirichletAllocation(2, network=Network.ring(2)).fit(
                [COUNTS, COUNTS[:, :5]]
            ),
            r"different numbers of terms \[24, 5\]",
        ),
        (lambda: LatentDirichletAllocation(0).fit(COUNTS), "n_components must be a whole number"),
        (
            lambda: LatentDirichletAllocation(2, doc_topic_prior=-1.0).fit(COUNTS),
            "doc_topic_prior must be positive, received -1.0",
        ),
        (
            lambda: LatentDirichletAllocation(2, learning_method="stochastic").fit(COUNTS),
            "learning_method must be one of",
        ),
        (lambda: GaussianHMM(2).fit([ROWS, ROWS[:0]]), "sequence 1 is empty"),
        (lambda: GaussianHMM(2).fit(ROWS, lengths=[30, 0]), "lengths must be whole numbers"),
        (lambda: GaussianHMM(2).fit(ROWS, lengths=[10, 10]), "lengths add up to 20"),
        (lambda: GaussianHMM(2, network=Network.ring(3)).fit(ROWS), "1 sequences cannot be split"),
        (
            lambda: GaussianHMM(2, network=Network.ring(2)).fit([[ROWS], []]),
            "node 1 has no sequence",
        ),
        (lambda: GaussianHMM(31).fit(ROWS), "n_components=31 is larger"),
        (
            lambda: GaussianHMM(2, transmat_prior=0.0).fit(ROWS),
            "transmat_prior must be positive",
        ),
        (lambda: CategoricalHMM(2).fit([np.array([0, 1, 2.5])]), "symbols must be whole numbers"),
        (lambda: CategoricalHMM(2).fit([np.array([0, -3])]), "symbols must be whole numbers"),
        (lambda: CategoricalHMM(2, n_features=2).fit([np.array([0, 2])]), "symbol 2 is outside"),
        (lambda: CategoricalHMM(2).fit([np.array([-1, -1])]), "all observations are missing"),
        (lambda: BayesianGaussianMixture(31).fit(ROWS), "n_components=31 is larger than n_samples"),
        (
            lambda: BayesianGaussianMixture(2, degrees_of_freedom_prior=1.0).fit(ROWS),
            "degrees_of_freedom_prior must be larger than 2, received 1.0",
        ),
        (
            lambda: BayesianGaussianMixture(2, covariance_prior=-np.eye(3)).fit(ROWS),
            "covariance_prior must be positive definite",
        ),
        (
            lambda: BayesianGaussianMixture(2, mean_prior=np.zeros(2)).fit(ROWS),
            r"mean_prior must have shape \(3,\)",
        ),
        (
            lambda: BayesianGaussianMixture(2, weight_concentration_prior=0).fit(ROWS),
            "weight_concentration_prior must be positive",
        ),
        (
            lambda: BayesianGaussianMixture(
                2, network=Federation(Network.ring(2), consensus="moments-admm")
            ).fit(ROWS),
            "works on scalar Gaussians, received GaussianMixture",
        ),
        (
            lambda: BayesianGaussianMixture(
                2, network=Federation(Network.ring(2), consensus="often")
            ).fit(ROWS),
            "consensus must be one of .*received 'often'",
        ),
        (
            lambda: BayesianGaussianMixture(2).fit(np.column_stack([ROWS, np.full(30, np.nan)])),
            "no node has an observed value of feature",
        ),
        (lambda: MixtureOfPCA(2, 4).fit(ROWS), "n_components=4 is larger than n_features=3"),
        (lambda: MixtureOfPCA(31).fit(ROWS), "n_clusters=31 is larger"),
        (
            lambda: BayesianLinearRegression(prior_precision=-1.0).fit(ROWS, ROWS[:, 0]),
            "prior_precision must be positive",
        ),
        (
            lambda: BayesianLinearRegression(network=Network.ring(2)).fit(
                [ROWS, ROWS], [ROWS[:, 0], ROWS[:5, 0]]
            ),
            "do not match",
        ),
        (
            lambda: BayesianLogisticRegression(network=Network.ring(2)).fit(
                [ROWS, ROWS], [np.ones(30), np.ones(30)]
            ),
            "one class only",
        ),
    ],
)
def test_bad_input_is_refused_by_name(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_wrong_kinds_are_named() -> None:
    with pytest.raises(TypeError, match=r"Network\.from_networkx"):
        BayesianGaussianMixture(2, network="ring").fit(ROWS)
    with pytest.raises(TypeError, match=r"noise_prior must be dmfvi\.GammaPrior"):
        BayesianLinearRegression(noise_prior=2.0).fit(ROWS, ROWS[:, 0])


def test_unfinished_runs_warn() -> None:
    with pytest.warns(UserWarning, match="not converged after 2 iterations"):
        BayesianGaussianMixture(3, max_iter=2, random_state=0).fit(ROWS)


def test_verbose_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    BayesianGaussianMixture(2, network=Network.ring(3), verbose=1, random_state=0).fit(ROWS)
    assert "ring of 3" in capsys.readouterr().err


def test_lossy_links_do_not_change_the_answer() -> None:
    data, _ = clusters()
    pooled = BayesianGaussianMixture(3, random_state=0, tol=1e-9).fit(data)
    model = BayesianGaussianMixture(
        3, network=Federation(Network.ring(4), links=Links(loss=0.2, seed=1)), random_state=0
    ).fit(data)
    assert max(distance(q, pooled.posterior_) for q in model.node_posteriors_) < 1e-6


@pytest.mark.parametrize(
    "model",
    [BayesianGaussianMixture(2, random_state=0), MixtureOfPCA(2, 1, random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_rows_of_which_nothing_is_observed_change_nothing(model: Any) -> None:
    """Not at a node that has other rows, and not at one that has none."""
    rng = np.random.default_rng(3)
    rows = np.concatenate([rng.normal(size=(30, 2)), rng.normal(size=(30, 2)) + 4.0])
    rows[::7, 0] = np.nan
    empty = np.full((9, 2), np.nan)
    plain = clone(model).fit(rows)
    with pytest.warns(UserWarning, match="samples without any observed entry: 9"):
        pooled = clone(model).fit(np.concatenate([rows[:20], empty, rows[20:]]))
    nodes = clone(model).set_params(network=Network.chain(3))
    with pytest.warns(UserWarning, match="samples without any observed entry: 19"):
        nodes.fit([np.concatenate([rows, empty]), empty, empty[:1]])
    for fitted in (pooled, nodes):
        assert fitted.converged_
        assert fitted.posterior_.distance(plain.posterior_) < 1e-9
        assert fitted.lower_bound_ == pytest.approx(plain.lower_bound_, rel=1e-10)
    np.testing.assert_allclose(pooled.predict_proba(empty).sum(1), 1.0)


def test_independent_features_are_imputed_independently() -> None:
    """A column that few rows have makes no other column's interval wider."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, 3))
    rows[4:, 0] = np.nan
    model = BayesianGaussianMixture(1, covariance_type="diag").fit(rows)
    gaps = np.array([[0.5, np.nan, 1.0], [np.nan, np.nan, 1.0]])
    _, deviation = model.impute(gaps, return_std=True)
    assert deviation[0, 1] == pytest.approx(deviation[1, 1], rel=1e-9)
    low, high = model.impute_interval(gaps)
    assert high[0, 1] - low[0, 1] == pytest.approx(high[1, 1] - low[1, 1], rel=1e-6)
    draws = model.impute(np.repeat(gaps, 2000, axis=0), n_draws=2, random_state=0)
    assert np.std(draws[:, 2000:, 1]) == pytest.approx(deviation[1, 1], rel=0.05)
