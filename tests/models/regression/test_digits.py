"""Columns that neither the rows nor the prior tell apart: refused or named, never answered wrongly."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from dmfvi import (
    BayesianLinearRegression,
    BayesianPoissonRegression,
    CoxRegression,
    GeneralizedLinearModel,
    MixedModel,
    Network,
)

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3))
DOUBLED = np.column_stack([X, np.ones(40), X[:, 0]])
NOISE = RNG.normal(size=40)


def targets(family: str, noise: float) -> Any:
    y = X[:, 0] + noise * NOISE
    return np.exp(y) if family == "gamma" else y


@pytest.mark.parametrize("family", ["gaussian", "student-t", "gamma"])
@pytest.mark.parametrize("precision", [1e-3, 1e-6])
def test_targets_without_noise_and_doubled_columns_are_refused(
    family: str, precision: float
) -> None:
    for network in (None, Network.ring(3)):
        model = GeneralizedLinearModel(family=family, prior_precision=precision, network=network)
        with pytest.raises(ValueError, match=r"singular to rounding|no proper distribution"):
            model.fit(DOUBLED, targets(family, 0.0))
        assert not hasattr(model, "coef_")


@pytest.mark.parametrize("family", ["gaussian", "student-t", "gamma"])
def test_little_noise_and_doubled_columns_are_named(family: str) -> None:
    model = GeneralizedLinearModel(family=family)
    with pytest.warns(UserWarning, match=r"term 'x4'.* may have only [45] correct digits"):
        model.fit(DOUBLED, targets(family, 1e-4))
    np.testing.assert_allclose(model.coef_[[0, 4]], 0.5, rtol=1e-3)


def fits() -> list[tuple[Any, dict[str, Any]]]:
    time = np.random.default_rng(4).exponential(np.exp(-X[:, 0]))
    of_time = {"time": time, "event": np.ones(40)}
    groups = {"y": X[:, 0] + NOISE, "groups": np.arange(40) // 5}
    return [
        (BayesianLinearRegression, {"y": X[:, 0] + NOISE}),
        (CoxRegression, of_time),
        (MixedModel, groups),
    ]


@pytest.mark.parametrize(("kind", "given"), fits())
def test_doubled_columns_are_told_apart_by_any_but_the_vaguest_prior(
    kind: Any, given: dict[str, Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kind(prior_precision=1e-3).fit(DOUBLED, **given)
    apart = abs(model.coef_[0] - model.coef_[4])
    spread = np.sqrt(
        np.diag(model.coef_covariance_)[0]
    )  # weighted draws know means to 0.01 deviations
    assert apart < (0.05 * spread if kind is MixedModel else 1e-6)
    with pytest.raises(ValueError, match=r"raise prior_precision|exact function of the features"):
        kind(prior_precision=1e-14).fit(DOUBLED, **given)


@pytest.mark.parametrize("kind", [BayesianLinearRegression, BayesianPoissonRegression])
def test_columns_far_from_zero_without_an_intercept_are_named_or_refused(kind: Any) -> None:
    """They are not centred then, and nearly equal."""
    counts = np.random.default_rng(5).poisson(2.0, 40)
    with pytest.warns(UserWarning, match="nearly a combination of others"):
        kind(fit_intercept=False, max_iter=200).fit(X + 1e6, counts)
    with pytest.raises(ValueError, match=r"singular to rounding|no proper distribution"):
        kind(fit_intercept=False).fit(X + 1e8, counts)
    kind().fit(X + 1e8, counts)
