"""Rows under posterior draws for ArviZ: observed data, log likelihood, posterior predictive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from dmfvi import (
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPCA,
    CoxRegression,
    GeneralizedLinearModel,
    LatentDirichletAllocation,
    Network,
)

pytest.importorskip("arviz_base")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 3)) @ np.diag([2.0, 1.0, 0.5]) + [1e3, 0.0, -5.0]
HOLES = np.where(RNG.random(X.shape) < 0.15, np.nan, X)
ETA = (X - X.mean(0)) @ [0.4, -0.5, 0.3]
RATE = RNG.poisson(np.exp(ETA))
Y: dict[str, Any] = {
    "gaussian": ETA + 0.5 * RNG.normal(size=60),
    "student-t": ETA + 0.3 * RNG.standard_t(4, size=60),
    "bernoulli": np.where(ETA + RNG.logistic(size=60) > 0, "yes", "no"),
    "multinomial": np.array(["a", "b", "c"])[RNG.integers(3, size=60)],
    "ordinal": np.digitize(ETA + RNG.logistic(size=60), [-1.0, 1.0]),
    "poisson": RATE.astype(float),
    "negative-binomial": RNG.poisson(np.exp(ETA) * RNG.gamma(2.0, 0.5, 60)).astype(float),
    "gamma": np.exp(ETA) * RNG.gamma(3.0, 1 / 3, 60),
    "binomial": np.minimum(RATE, 6).astype(float),
}


def log_mean(tree: Any, name: str) -> np.ndarray:
    """log of the average likelihood of each row over the draws."""
    terms = tree["log_likelihood"][name].values[0]
    return logsumexp(terms, axis=0) - np.log(len(terms))


@pytest.mark.parametrize("noise", ["shared", "feature"])
def test_rows_of_pca(noise: Any) -> None:
    model = BayesianPCA(1, noise=noise, network=Network.ring(3), random_state=0).fit(HOLES)
    tree = model.to_arviz(1500, random_state=0, X=HOLES)
    expected = model.score_samples(HOLES)
    assert np.corrcoef(log_mean(tree, "x"), expected)[0, 1] > 0.97
    assert abs(np.mean(log_mean(tree, "x") - expected)) < 0.15
    new = tree["posterior_predictive"]["x"].values[0]
    assert new.shape == (1500, *X.shape)
    np.testing.assert_allclose(new.mean((0, 1)), model.mean_, atol=0.3)
    np.testing.assert_array_equal(tree["observed_data"]["x"].values, HOLES)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_rows_of_a_mixture(covariance_type: Any) -> None:
    """The parameters are integrated out exactly in score_samples: the average over draws approaches it."""
    rows = np.concatenate([HOLES, HOLES + 4.0])
    model = BayesianGaussianMixture(2, covariance_type=covariance_type, random_state=0).fit(rows)
    tree = model.to_arviz(1500, random_state=1, X=rows)
    np.testing.assert_allclose(log_mean(tree, "x"), model.score_samples(rows), atol=0.25)


def test_rows_of_a_linear_regression() -> None:
    from scipy.stats import t

    y = Y["gaussian"]
    model = BayesianLinearRegression().fit(X, y)
    tree = model.to_arviz(20_000, random_state=0, X=X, y=y)
    mean, scale, dof = model._predictive(X)
    np.testing.assert_allclose(log_mean(tree, "y"), t.logpdf(y, dof, mean, scale), atol=0.05)
    new = tree["posterior_predictive"]["y"].values[0]
    np.testing.assert_allclose(new.mean(0), model.predict(X), atol=0.05)


@pytest.mark.parametrize("family", [name for name in Y if name != "binomial"])
def test_rows_of_every_family(family: Any) -> None:
    """Probabilities and means are those of the predictions; new targets have them too."""
    y = Y[family]
    model = GeneralizedLinearModel(family=family).fit(X, y)
    tree = model.to_arviz(8000, random_state=0, X=X, y=y)
    new = tree["posterior_predictive"]["y"].values[0]
    assert np.isfinite(tree["log_likelihood"]["y"].values).all()
    if hasattr(model, "predict_proba"):
        places = np.searchsorted(model.classes_, y)
        chance = model.predict_proba(X)
        observed = chance[np.arange(60), places]
        np.testing.assert_allclose(np.exp(log_mean(tree, "y")), observed, atol=0.02)
        share = np.stack([(new == k).mean(0) for k in range(len(model.classes_))], axis=1)
        np.testing.assert_allclose(share, chance, atol=0.03)
        return
    np.testing.assert_allclose(np.median(new.mean(0) / model.predict(X)), 1.0, atol=0.05)
    # the average log density is that of the family at the fitted values, up to what uncertainty takes
    assert -4.0 < log_mean(tree, "y").mean() < 1.0


def test_trials_and_exposure_of_rows_are_used() -> None:
    trials = np.full(60, 6.0)
    model = GeneralizedLinearModel(family="binomial").fit(X, Y["binomial"], trials=trials)
    tree = model.to_arviz(500, random_state=0, X=X, y=Y["binomial"], trials=trials)
    assert tree["posterior_predictive"]["y"].values.max() <= 6
    assert (tree["log_likelihood"]["y"].values < 0).all()
    counts = GeneralizedLinearModel(family="poisson").fit(X, Y["poisson"], exposure=trials)
    once = counts.to_arviz(500, random_state=0, X=X, y=Y["poisson"], exposure=trials)
    twice = counts.to_arviz(500, random_state=0, X=X, y=Y["poisson"], exposure=2 * trials)
    ratio = (
        twice["posterior_predictive"]["y"].values.mean()
        / once["posterior_predictive"]["y"].values.mean()
    )
    assert ratio == pytest.approx(2.0, rel=0.05)


def test_polya_gamma_has_rows_too_and_draws_belong_to_each_other() -> None:
    y = (Y["bernoulli"] == "yes").astype(int)
    for how in ("gaussian", "polya-gamma"):
        model = BayesianLogisticRegression(approximation=how).fit(X - X.mean(0), y)
        tree = model.to_arviz(50, random_state=3, X=X - X.mean(0), y=y)
        coef = tree["posterior"]["coef"].values[0].reshape(50, -1)
        intercept = tree["posterior"]["intercept"].values[0].reshape(50, 1)
        eta = coef @ (X - X.mean(0)).T + intercept
        expected = -np.logaddexp(0.0, np.where(y > 0, -eta, eta))
        np.testing.assert_allclose(tree["log_likelihood"]["y"].values[0], expected, rtol=1e-8)


def test_what_has_no_rows_is_refused() -> None:
    rng = np.random.default_rng(0)
    model = BayesianLinearRegression().fit(X, Y["gaussian"])
    with pytest.raises(ValueError, match="y must have one target for each of 60 rows"):
        model.to_arviz(5, X=X)
    with pytest.raises(ValueError, match="y were given without rows X"):
        model.to_arviz(5, y=Y["gaussian"])
    logistic = BayesianLogisticRegression().fit(X, Y["bernoulli"])
    with pytest.raises(ValueError, match=r"y has \['maybe'\], the model knows"):
        logistic.to_arviz(5, X=X[:1], y=["maybe"])
    topics = LatentDirichletAllocation(2, random_state=0).fit(rng.poisson(3.0, (10, 4)))
    with pytest.raises(ValueError, match="has no log likelihood of single rows"):
        topics.to_arviz(5, X=np.ones((2, 4)))
    times = rng.exponential(size=60)
    cox = CoxRegression().fit(X, times, np.ones(60))
    with pytest.raises(ValueError, match="has no log likelihood of single rows"):
        cox.to_arviz(5, X=X, y=times)


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_arviz_compares_models() -> None:
    """Counts that spread more than Poisson's: leave-one-out prefers the negative binomial."""
    az = pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    rate = np.exp(rows @ [0.5, -0.3, 0.0] + 0.2) * rng.gamma(1.5, 1 / 1.5, 200)
    y = rng.poisson(rate).astype(float)
    made = {}
    for family in ("poisson", "negative-binomial"):
        model = GeneralizedLinearModel(family=family).fit(rows, y)
        made[family] = model.to_arviz(1000, random_state=0, X=rows, y=y)
    assert az.compare(made).index[0] == "negative-binomial"
    assert {"mean", "sd"} <= set(az.summary(made["poisson"]).columns)


def test_without_an_older_arviz_it_is_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    model = BayesianPCA(1, random_state=0).fit(HOLES)
    tree = model.to_arviz(20, random_state=0, X=HOLES)
    groups = {"posterior", "log_likelihood", "posterior_predictive", "observed_data"}
    assert groups <= set(tree.children)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_tails_of_ordered_classes_keep_their_digits(link: str) -> None:
    from scipy.special import log_expit, log_ndtr

    from dmfvi.models.pointwise import log_ordered

    log_cdf = log_expit if link == "logit" else log_ndtr
    eta, shared = np.array([[-12.0, 0.3, 14.0]]), np.array([[0.0, 0.0]])  # cuts at 0 and 1
    found = log_ordered(eta, shared, link)[0]
    np.testing.assert_allclose(found[:, 0], log_cdf(-eta[0]), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[:, 2], log_cdf(eta[0] - 1.0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.exp(found).sum(1), 1.0, rtol=1e-12)


def test_targets_and_row_values_are_those_of_the_family() -> None:
    trials = np.full(60, 6.0)
    model = GeneralizedLinearModel(family="binomial").fit(X, Y["binomial"], trials=trials)
    with pytest.raises(ValueError, match="need trials"):
        model.to_arviz(5, X=X, y=Y["binomial"])
    counts = GeneralizedLinearModel(family="poisson").fit(X, Y["poisson"])
    with pytest.raises(ValueError, match="are counts, received -1"):
        counts.to_arviz(5, X=X, y=np.full(60, -1.0))
    with pytest.raises(ValueError, match="has no trials of rows here"):
        counts.to_arviz(5, X=X, y=Y["poisson"], trials=trials)
    linear = BayesianLinearRegression().fit(X, Y["gaussian"])
    with pytest.raises(ValueError, match="has no offset of rows here"):
        linear.to_arviz(5, X=X, y=Y["gaussian"], offset=trials)
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        linear.to_arviz(0)


def test_arviz_and_xarray_have_the_same_draws() -> None:
    model = BayesianLinearRegression().fit(X, Y["gaussian"])
    tree, data = model.to_arviz(7, random_state=1), model.to_xarray(7, random_state=1)
    np.testing.assert_array_equal(tree["posterior"]["coef"].values, data["coef"].values)


def test_the_target_of_a_formula_is_found_in_the_frame() -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("formulaic")
    frame = pd.DataFrame({"a": X[:, 1], "b": X[:, 2], "n": RATE})
    model = BayesianLinearRegression(formula="np.log(n + 1) ~ a + b").fit(frame)
    tree = model.to_arviz(20, random_state=0, X=frame)
    np.testing.assert_allclose(tree["observed_data"]["y"].values, np.log(RATE + 1))
    with pytest.raises(ValueError, match="targets themselves, received the name 'n'"):
        model.to_arviz(20, X=frame, y="n")
