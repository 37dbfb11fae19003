"""Weights of rows in regressions: a weight of two counts as two rows, also in lists of shards."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from cli_run import dmfvi_command
from dmfvi import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    GeneralizedLinearModel,
    Network,
    load,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3)) + np.array([0.0, 5.0, 0.0])
Y = X @ [1.0, -0.5, 0.2] + RNG.normal(size=30)
TIMES = RNG.integers(0, 4, size=30)
CUTS = [slice(0, 12), slice(12, 20), slice(20, 30)]


def cut(values: Any) -> list[Any]:
    return [values[part] for part in CUTS]


@pytest.mark.parametrize("network", [None, Network.ring(3)], ids=["pooled", "ring"])
def test_a_linear_regression_counts_a_row_of_weight_two_twice(network: Network | None) -> None:
    listed = [(cut(X), cut(Y), cut(TIMES.astype(float)))] if network else [(X, Y, TIMES)]
    weighted = BayesianLinearRegression(network=network).fit(*listed[0])
    repeated = BayesianLinearRegression().fit(X.repeat(TIMES, axis=0), Y.repeat(TIMES))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-9)
    np.testing.assert_allclose(weighted.coef_covariance_, repeated.coef_covariance_, rtol=1e-9)
    np.testing.assert_allclose(weighted.noise_variance_, repeated.noise_variance_, rtol=1e-9)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-9)


def test_weights_of_a_linear_regression_are_those_of_other_libraries() -> None:
    rng = np.random.default_rng(0)
    weight = rng.random(30)
    ours = BayesianLinearRegression(prior_precision=1e-10).fit(X, Y, weight)
    theirs = Ridge(1e-10).fit(X, Y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6)


def test_weights_may_be_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y, w=TIMES)
    plain = BayesianLinearRegression().fit(X, Y, TIMES)
    named = BayesianLinearRegression(formula="y ~ a + b + c").fit(frame, sample_weight="w")
    np.testing.assert_allclose(named.coef_, plain.coef_, rtol=1e-9)
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = [
        "--model",
        "bayesian-linear-regression",
        "--target",
        "y",
        "--set",
        "weight=w",
        "--quiet",
        "--out",
    ]
    said = dmfvi_command("fit", tmp_path / "t.csv", *words, tmp_path / "m")
    assert said.code == 0, said.err
    np.testing.assert_allclose(load(tmp_path / "m").coef_, plain.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.zeros(30), "sample_weight is zero for all rows"),
        (-np.ones(30), "sample_weight must not be negative, received -1"),
        (np.ones(29), "sample_weight must have one finite number for each of 30 rows"),
        (np.full(30, np.nan), "not finite"),
    ],
    ids=["zero", "negative", "few", "nan"],
)
def test_wrong_weights_of_a_linear_regression(weight: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BayesianLinearRegression().fit(X, Y, weight)


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (BayesianLinearRegression, Y),
        (GeneralizedLinearModel, Y),
        (BayesianPoissonRegression, TIMES),
        (BayesianLogisticRegression, (Y > 0).astype(int)),
    ],
)
def test_a_score_takes_weights_of_shards(estimator: Any, target: Any) -> None:
    rng = np.random.default_rng(0)
    fitted, weight = estimator().fit(X, target), rng.random(30)
    pooled = fitted.score(X, target, weight)
    assert fitted.score(cut(X), cut(target), cut(weight)) == pytest.approx(pooled, rel=1e-12)
    assert fitted.score(X, target, list(weight)) == pytest.approx(pooled, rel=1e-12)


def test_weighted_batches_end_with_the_posterior_of_all_rows() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(60, 3)) + 100.0
    y = x @ [1.0, -2.0, 0.5] + rng.normal(size=60)
    weight = rng.uniform(0.0, 3.0, size=60)
    whole = BayesianLinearRegression().fit(x, y, weight)
    for network in (None, Network.chain(3)):
        batches = BayesianLinearRegression(network=network)
        for part in np.array_split(np.arange(60), 3):
            batches.partial_fit(x[part], y[part], weight[part])
        assert batches.posterior_.distance(whole.posterior_) < 1e-9
        assert batches.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-10)


def test_the_summary_counts_rows_and_their_weight() -> None:
    light = BayesianLinearRegression().fit(X, Y, np.full(len(Y), 0.01))
    assert "30 rows of weight 0.3 in all" in light.summary()
    assert "rows of weight" not in BayesianLinearRegression().fit(X, Y).summary()
    assert (
        "rows of weight"
        not in BayesianLinearRegression(network=Network.chain(2)).fit(X, Y).summary()
    )


def test_imputed_covariates_count_weights_as_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    x[:, 1] += x[:, 0]
    y = x @ [1.0, -0.5] + rng.normal(size=60)
    x[rng.random(x.shape) < 0.2] = np.nan
    weight = rng.integers(0, 4, 60)
    x[weight == 0] = 1e6  # counts for nothing
    model = BayesianLinearRegression(missing="impute", network=Network.chain(3))
    model.fit(x, y, sample_weight=weight)
    repeated = BayesianLinearRegression(missing="impute")
    repeated.fit(np.repeat(x, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(model.coef_, repeated.coef_, rtol=1e-7)


@pytest.mark.parametrize("term", ["center(a) * b", "scale(a)", "scale(a, center=False)"])
def test_what_formulas_learn_counts_rows_by_their_weights(term: str) -> None:
    rng = np.random.default_rng(4)
    whole = pd.DataFrame({"a": rng.normal(size=90) + 3, "b": rng.normal(size=90)})
    whole["w"] = rng.integers(0, 4, 90)
    whole["y"] = whole.a * whole.b + rng.normal(size=90)
    repeated = whole.loc[whole.index.repeat(whole.w)]
    one = BayesianLinearRegression(formula=f"y ~ {term}").fit(repeated)
    other = BayesianLinearRegression(formula=f"y ~ {term}").fit(whole, sample_weight="w")
    assert other.posterior_.distance(one.posterior_) < 1e-9


def test_summaries_say_how_much_rows_weigh() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 1))
    weight = np.repeat([0.0, 1.0], [40, 20])
    model = BayesianPoissonRegression().fit(x, rng.poisson(2.0, 60), weight)
    assert "60 rows of weight 20 in all" in str(model.summary())


def test_scores_take_the_name_of_the_weights() -> None:
    rng = np.random.default_rng(4)
    whole = pd.DataFrame({"a": rng.normal(size=50), "w": rng.integers(0, 4, 50).astype(float)})
    whole["y"] = whole.a + rng.normal(size=50)
    for kind in (BayesianLinearRegression, partial(GeneralizedLinearModel, family="gaussian")):
        model = kind(formula="y ~ a").fit(whole, sample_weight="w")
        named = model.score(whole, sample_weight="w")
        assert named == model.score(whole, sample_weight=whole.w.to_numpy())
        both = model.score([whole, whole], sample_weight="w")
        assert both == pytest.approx(named, rel=1e-12)
