"""Errors of regressions say what to write instead, and count rows as arrays do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

from dmfvi import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    CoxRegression,
    GeneralizedLinearModel,
)

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.normal(size=30), "y": RNG.normal(size=30)})
X, Y = FRAME[["age"]], FRAME["y"]
ESTIMATORS: list[Callable[..., Any]] = [
    BayesianLinearRegression,
    BayesianLogisticRegression,
    CoxRegression,
    lambda **more: GeneralizedLinearModel(family="gaussian", **more),
]


@pytest.mark.parametrize("make", ESTIMATORS)
@pytest.mark.parametrize(
    ("given", "words"),
    [(0, "1e-6 is nearly flat"), ({"age": 1}, "one for each of age in this order, received {")],
)
def test_a_prior_precision_that_cannot_be_is_told_what_to_be(
    make: Callable[..., Any], given: Any, words: str
) -> None:
    more = (np.ones(30),) if make is CoxRegression else ()
    with pytest.raises(ValueError, match=words):
        make(prior_precision=given).fit(X, np.abs(Y) > 0.5, *more)


def test_a_formula_with_a_target_says_how_to_be_scored() -> None:
    model = BayesianLinearRegression(formula="y ~ age")
    with pytest.raises(ValueError, match=r"leave y out, or its target \(formula='~ age'\)"):
        cross_val_score(model, FRAME, Y, error_score="raise", cv=3)
    assert len(cross_val_score(model.set_params(formula="~ age"), FRAME, Y, cv=3)) == 3


def test_the_score_of_a_survival_model_says_what_it_needs() -> None:
    model = CoxRegression().fit(X, np.abs(Y), np.ones(30))
    with pytest.raises(ValueError, match=r"score\(X, time, event\)"):
        model.score(X)


def test_rows_are_counted_from_zero() -> None:
    gap = X.copy()
    gap.iloc[9] = np.nan
    trials = np.full(30, 5.0)
    counts = np.where(np.arange(30) == 9, 7.0, 3.0)
    model = BayesianLinearRegression()
    fits: list[Callable[[], Any]] = [
        lambda: BayesianLinearRegression().fit(gap, Y),
        lambda: BayesianLinearRegression().fit(gap.to_numpy(), Y),
        lambda: model.set_params(formula="y ~ age", missing="raise").fit(FRAME).predict(gap),
        lambda: BayesianLinearRegression(formula="y ~ np.log(a)").fit(
            pd.DataFrame({"a": np.abs(np.arange(30) - 9.0), "y": Y})
        ),
        lambda: GeneralizedLinearModel(family="binomial").fit(X, counts, trials=trials),
        lambda: BayesianLogisticRegression().fit(
            X, np.array([None if i == 9 else "ab"[i % 2] for i in range(30)], dtype=object)
        ),
    ]
    for fit in fits:
        with pytest.raises(ValueError, match=r"row 9 \(counted from 0\)"):
            fit()
