"""The estimator's surface: scikit-learn's checks, predictions, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dmfvi import BayesianPCA, Federation, Links, Network, PcaPrior
from dmfvi.datasets import make_low_rank, mask_at_random
from helpers import low_rank_shards


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    return make_low_rank(300, 10, 3, noise=0.3, seed=1).data


@pytest.fixture(scope="module")
def model(data: np.ndarray) -> BayesianPCA:
    return BayesianPCA(3, network=Network.ring(4), random_state=0).fit(data)


def test_subspace_and_variances_are_those_of_pca(model: BayesianPCA, data: np.ndarray) -> None:
    reference = PCA(3).fit(data)
    basis = np.linalg.qr(model.components_.T)[0]
    cosines = np.linalg.svd(reference.components_ @ basis)[1]
    assert cosines.min() > 1 - 1e-6
    np.testing.assert_allclose(model.explained_variance_, reference.explained_variance_, rtol=0.02)
    np.testing.assert_allclose(model.mean_, reference.mean_, atol=0.02)
    assert model.noise_precision_**-0.5 == pytest.approx(0.3, rel=0.05)


def test_transform_and_back(model: BayesianPCA, data: np.ndarray) -> None:
    z, std = model.transform(data, return_std=True)
    assert z.shape == std.shape == (300, 3)
    assert (std > 0).all()
    np.testing.assert_allclose(z.std(0), 1.0, rtol=0.1)
    assert np.sqrt(np.mean((model.inverse_transform(z) - data) ** 2)) < 0.33


def test_uncertainty_grows_with_missing_entries(model: BayesianPCA, data: np.ndarray) -> None:
    holes = data.copy()
    holes[:, 3:] = np.nan
    _, full = model.transform(data, return_std=True)
    _, part = model.transform(holes, return_std=True)
    assert (part > full).all()


def test_a_row_without_any_entry_gets_the_prior(model: BayesianPCA) -> None:
    z, std = model.transform(np.full((1, 10), np.nan), return_std=True)
    np.testing.assert_allclose(z, 0.0, atol=1e-12)
    np.testing.assert_allclose(std, 1.0)
    np.testing.assert_allclose(model.impute(np.full((1, 10), np.nan))[0], model.mean_, rtol=1e-9)


def test_impute_keeps_what_is_observed(model: BayesianPCA, data: np.ndarray) -> None:
    holes = mask_at_random(data, 0.3, seed=5)
    filled, std = model.impute(holes, return_std=True)
    seen = np.isfinite(holes)
    np.testing.assert_array_equal(filled[seen], data[seen])
    assert (std[seen] == 0).all()
    assert (std[~seen] > 0.29).all()
    assert np.sqrt(np.mean((filled - data)[~seen] ** 2)) < 0.6
    low, high = model.impute_interval(holes, level=0.9)
    inside = ((low <= data) & (data <= high))[~seen].mean()
    assert 0.84 < inside < 0.95
    with pytest.raises(ValueError, match="level"):
        model.impute_interval(holes, level=1.5)


def test_predictive_variance_by_monte_carlo(model: BayesianPCA) -> None:
    """Var = noise + what is uncertain of W, mu and z, against draws."""
    rng = np.random.default_rng(0)
    row = model.sample(1, random_state=1)
    row[0, 4:] = np.nan
    posterior = model.posterior_
    z_mean, z_cov = posterior.latent(row)
    n = 100_000
    w = posterior.family()["rows"].sample(rng, n)
    z = rng.multivariate_normal(z_mean[0], z_cov[0], n)
    tau = rng.gamma(posterior.noise_shape, 1 / posterior.noise_rate, n)
    draws = np.einsum("sdk,sk->sd", w[:, :, :3], z) + w[:, :, 3]
    draws += rng.standard_normal(draws.shape) / np.sqrt(tau)[:, None]
    mean, variance = posterior.predict(row)
    np.testing.assert_allclose(mean[0], draws.mean(0), atol=6 * draws.std() / np.sqrt(n))
    np.testing.assert_allclose(variance[0], draws.var(0), rtol=0.03)


def test_scores_are_log_densities(model: BayesianPCA, data: np.ndarray) -> None:
    """Against the dense Gaussian, with and without missing entries; marginals are consistent."""
    from scipy.stats import multivariate_normal

    p = model.posterior_
    psi = p.noise_variance + np.trace(p.covariance, axis1=1, axis2=2)
    covariance = p.loadings @ p.loadings.T + np.diag(psi)
    np.testing.assert_allclose(
        model.score_samples(data), multivariate_normal(p.location, covariance).logpdf(data)
    )
    holes = data[:5].copy()
    holes[:, [1, 7]] = np.nan
    keep = [0, 2, 3, 4, 5, 6, 8, 9]
    expected = multivariate_normal(p.location[keep], covariance[np.ix_(keep, keep)])
    np.testing.assert_allclose(model.score_samples(holes), expected.logpdf(data[:5][:, keep]))
    assert model.score(data) == pytest.approx(model.score_samples(data).mean())


def test_samples_look_like_the_data(model: BayesianPCA, data: np.ndarray) -> None:
    draws = model.sample(4000, random_state=0)
    np.testing.assert_allclose(draws.mean(0), data.mean(0), atol=0.25)
    np.testing.assert_allclose(np.cov(draws.T), np.cov(data.T), atol=0.6)
    np.testing.assert_array_equal(model.sample(2, random_state=4), model.sample(2, random_state=4))


def test_history_and_names(model: BayesianPCA) -> None:
    assert len(model.history_["objective"]) == model.n_rounds_
    assert (model.history_["bytes_sent"] > 0).all()
    assert model.history_["disagreement"][-1] < 1e-6
    assert list(model.get_feature_names_out()) == ["bayesianpca0", "bayesianpca1", "bayesianpca2"]
    assert len(model.node_posteriors_) == 4


def test_same_seed_same_posterior(data: np.ndarray) -> None:
    one = BayesianPCA(3, network=Network.ring(4), random_state=7).fit(data)
    two = clone(one).fit(data)
    np.testing.assert_array_equal(one.posterior_.natural(), two.posterior_.natural())


def test_works_in_a_pipeline(data: np.ndarray) -> None:
    pipe = make_pipeline(StandardScaler(), BayesianPCA(2, random_state=0))
    assert pipe.fit_transform(data).shape == (300, 2)


def test_list_of_arrays_equals_the_split_array(data: np.ndarray) -> None:
    parts = list(np.array_split(data, 4))
    a = BayesianPCA(3, network=Network.ring(4), random_state=0).fit(parts)
    b = BayesianPCA(3, network=Network.ring(4), random_state=0).fit(data)
    np.testing.assert_array_equal(a.posterior_.natural(), b.posterior_.natural())


# -- bad input --------------------------------------------------------------------------------

GOOD = low_rank_shards([10, 12, 11])


@pytest.mark.parametrize(
    ("settings", "shards", "words"),
    [
        ({"network": Network.ring(4)}, GOOD, "3 shards for a network of 4 nodes"),
        (
            {"network": Network.ring(3)},
            [GOOD[0], GOOD[1][:, :5], GOOD[2]],
            r"different numbers of features \[12, 5, 12\]",
        ),
        ({"network": Network.ring(3)}, [GOOD[0], GOOD[1][:0], GOOD[2]], "shard 1 is empty"),
        (
            {"network": Network.ring(50)},
            np.concatenate(GOOD),
            "33 samples cannot be split over 50 nodes",
        ),
        (
            {"n_components": 13},
            np.concatenate(GOOD),
            "n_components=13 is larger than n_features=12",
        ),
        (
            {"n_components": 0},
            np.concatenate(GOOD),
            "n_components must be a whole number of at least 1",
        ),
        ({"tol": 0.0}, np.concatenate(GOOD), "tol must be positive"),
        ({"covariance_type": "spherical"}, np.concatenate(GOOD), "covariance_type must be one of"),
        (
            {"network": Federation(Network.ring(3), consensus="gossip")},
            GOOD,
            "consensus must be one of",
        ),
        (
            {"network": Federation(Network.ring(3), consensus="moments-admm")},
            GOOD,
            "set covariance_type='diag'",
        ),
        ({"shares": "half"}, np.concatenate(GOOD), "shares must be one of"),
        ({"max_iter": 0}, np.concatenate(GOOD), "max_iter"),
        ({"prior": PcaPrior(mean_location=np.zeros(3))}, np.concatenate(GOOD), r"shape \(12,\)"),
    ],
)
def test_bad_input_is_refused_by_name(settings: dict, shards: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BayesianPCA(**settings).fit(shards)


def test_infinities_are_refused() -> None:
    bad = np.concatenate(GOOD)
    bad[3, 4] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        BayesianPCA().fit(bad)
    with pytest.raises(ValueError, match="shard 1 contains infinity"):
        BayesianPCA(network=Network.ring(2)).fit([GOOD[0], bad])


def test_an_all_missing_feature_is_named() -> None:
    bad = np.concatenate(GOOD)
    bad[:, 4] = np.nan
    with pytest.raises(ValueError, match="no node has an observed value of feature 4"):
        BayesianPCA().fit(bad)


def test_a_feature_missing_at_one_node_is_no_problem() -> None:
    shards = [x.copy() for x in GOOD]
    shards[1][:, 4] = np.nan
    model = BayesianPCA(3, network=Network.ring(3), random_state=0).fit(shards)
    reference = BayesianPCA(3, random_state=0, tol=1e-10).fit(np.concatenate(shards))
    assert model.posterior_.distance(reference.posterior_) < 1e-6


def test_an_all_missing_sample_warns() -> None:
    holes = np.concatenate(GOOD)
    holes[5] = np.nan
    with pytest.warns(UserWarning, match="samples without any observed entry: 1"):
        model = BayesianPCA(3, random_state=0).fit(holes)
    assert model.converged_


def test_a_constant_feature_warns_and_is_its_mean() -> None:
    flat = np.concatenate(GOOD)
    flat[:, 2] = 4.0
    with pytest.warns(UserWarning, match="zero variance in feature 2"):
        model = BayesianPCA(3, random_state=0).fit(flat)
    assert model.mean_[2] == pytest.approx(4.0, abs=0.05)


def test_a_graph_that_is_no_network_is_refused() -> None:
    import networkx as nx

    with pytest.raises(TypeError, match=r"Network\.from_networkx"):
        BayesianPCA(network=nx.cycle_graph(3)).fit(GOOD)


def test_unfinished_runs_warn_with_residuals() -> None:
    with pytest.warns(
        ConvergenceWarning, match=r"after 4 iterations .*: relative change .* disagreement"
    ):
        model = BayesianPCA(3, network=Network.ring(3), max_iter=4, random_state=0).fit(GOOD)
    assert not model.converged_


@pytest.mark.parametrize("scale", [1e-50, 1e-8, 1e8, 1e50])
def test_extreme_units_do_not_break_it(scale: float) -> None:
    model = BayesianPCA(3, network=Network.ring(3), random_state=0).fit([scale * x for x in GOOD])
    assert model.converged_
    assert np.isfinite(model.components_).all()


def test_noise_free_data_converge() -> None:
    exact = make_low_rank(60, 10, 2, noise=0.0).data
    model = BayesianPCA(2, network=Network.ring(3), random_state=0).fit(exact)
    assert model.converged_
    np.testing.assert_allclose(model.inverse_transform(model.transform(exact)), exact, atol=1e-2)


def test_more_features_than_samples() -> None:
    wide = make_low_rank(24, 80, 2, noise=0.1).data
    reference = BayesianPCA(2, tol=1e-10, random_state=0).fit(wide)
    model = BayesianPCA(2, network=Network.ring(3), random_state=0).fit(wide)
    assert model.posterior_.distance(reference.posterior_) < 1e-6


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"prior": {"noise": 1}}, TypeError, "prior must be dmfvi.PcaPrior"),
        (
            {"network": Federation(Network.ring(3), links={"loss": 0.3})},
            TypeError,
            "links must be dmfvi.Links",
        ),
        ({"noise": "per_node"}, ValueError, "needs nodes"),
        (
            {"prior": PcaPrior(component_location=np.eye(12, 2)), "covariance_type": "diag"},
            ValueError,
            "needs covariance_type='full'",
        ),
        ({"tol": "x"}, ValueError, "tol must be positive"),
        ({"max_iter": 2.7}, ValueError, "max_iter must be a whole number"),
        ({"n_components": True}, ValueError, "n_components must be a whole number"),
        (
            {"network": Federation(Network.ring(3), links=Links(pauses={9: [(1, 2)]}))},
            ValueError,
            r"nodes \[9\]",
        ),
    ],
)
def test_settings_of_the_wrong_kind_are_named(settings: dict, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        BayesianPCA(**settings).fit(np.concatenate(GOOD))
    with pytest.raises(ValueError, match="list of \\(first, last\\) rounds"):
        Links(pauses={1: (10, 40)})  # type: ignore[dict-item]


def test_masked_arrays_are_missing_data() -> None:
    holes = mask_at_random(np.concatenate(GOOD), 0.2)
    masked = np.ma.masked_array(np.nan_to_num(holes, nan=-999.0), np.isnan(holes))
    a = BayesianPCA(2, random_state=0).fit(holes)
    b = BayesianPCA(2, random_state=0).fit(masked)
    np.testing.assert_array_equal(a.mean_, b.mean_)
    np.testing.assert_array_equal(a.impute(holes), b.impute(masked))


def test_named_columns_must_match_between_shards() -> None:
    class Frame(np.ndarray):
        """An array with columns, as far as the check looks."""

        columns: list[str]

    frames = []
    for i, part in enumerate(GOOD):
        frame = part.view(Frame)
        frame.columns = list("abcdefghijkl") if i != 1 else list("bacdefghijkl")
        frames.append(frame)
    with pytest.raises(
        ValueError, match=r"shard 1 has columns \['b', 'a'\] where shard 0 has \['a', 'b'\]"
    ):
        BayesianPCA(2, network=Network.ring(3)).fit(frames)


def test_shard_lists_are_answered_shard_by_shard() -> None:
    model = BayesianPCA(2, network=Network.ring(3), random_state=0)
    z = model.fit_transform(GOOD)
    np.testing.assert_allclose(np.concatenate(z), model.transform(np.concatenate(GOOD)))


def test_unfitted_models_say_so() -> None:
    from sklearn.exceptions import NotFittedError

    for name in ("transform", "impute", "score_samples"):
        with pytest.raises(NotFittedError):
            getattr(BayesianPCA(), name)(GOOD[0])


def test_intervals_of_a_noisy_node_use_its_own_noise() -> None:
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(2, 8))
    truth = [
        rng.normal(size=(150, 2)) @ loadings + s * rng.normal(size=(150, 8)) for s in (0.1, 2.0)
    ]
    holes = [mask_at_random(x, 0.2, seed=i) for i, x in enumerate(truth)]
    model = BayesianPCA(2, network=Network.chain(2), noise="per_node", random_state=0).fit(holes)
    low, high = model.at_node(1).impute_interval(holes[1], 0.9)
    gone = np.isnan(holes[1])
    assert 0.84 < ((low <= truth[1]) & (truth[1] <= high))[gone].mean() < 0.95
    with pytest.raises(ValueError, match="node must be below 2"):
        model.at_node(2)
