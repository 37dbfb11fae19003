"""A fit that is interrupted leaves no estimator that is mixed from two fits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from dmfvi import BayesianGaussianMixture, BayesianPCA, GeneralizedLinearModel

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 3))


def interrupt(record, inference) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("model", [BayesianPCA(2), BayesianGaussianMixture(2)])
def test_an_interrupted_refit_is_not_fitted(model) -> None:
    model.fit(ROWS)
    with pytest.raises(KeyboardInterrupt):
        model.fit(50.0 + 9.0 * ROWS, observer=interrupt)
    with pytest.raises(NotFittedError):
        model.score_samples(ROWS)
    assert model.fit(ROWS).converged_


def test_one_component_has_an_uncertainty() -> None:
    found = BayesianGaussianMixture(1, random_state=0).fit(ROWS).uncertainty("means")
    exact = ROWS.std(0) / np.sqrt(len(ROWS))
    np.testing.assert_allclose(found.std.ravel(), exact, rtol=0.1)


def test_predictions_check_what_the_fit_checks() -> None:
    rng = np.random.default_rng(0)
    y = rng.poisson(np.exp(0.3 * ROWS[:, 0]))
    counts = GeneralizedLinearModel(family="poisson").fit(ROWS, y)
    with pytest.raises(ValueError, match="exposure must be positive, received -1"):
        counts.predict(ROWS[:2], exposure=[-1.0, 1.0])
    plain = GeneralizedLinearModel(family="gaussian").fit(ROWS, ROWS[:, 0])
    with pytest.raises(ValueError, match="exposure goes with a log link"):
        plain.predict(ROWS[:2], exposure=[1.0, 1.0])
    with pytest.raises(
        ValueError,
        match=r"row 1 \(counted from 0\) has no value in column 2: .* needs complete rows",
    ):
        GeneralizedLinearModel().fit(np.where(np.arange(120).reshape(40, 3) == 5, np.nan, ROWS), y)
    labels = np.where(ROWS[:, 0] + rng.normal(size=40) > 0, "yes", "no")
    logistic = GeneralizedLinearModel(family="bernoulli").fit(ROWS, labels)
    assert not hasattr(logistic, "predict_interval")
    with pytest.raises(ValueError, match="exposure goes with a log link"):
        logistic.predict(ROWS, exposure=np.ones(40))
    softmax = GeneralizedLinearModel(family="multinomial").fit(ROWS, y.clip(0, 2))
    with pytest.raises(ValueError, match="multinomial model takes no offset"):
        softmax.predict(ROWS, offset=np.ones(40))
    with pytest.raises(ValueError, match="predicts classes"):
        logistic.predict(ROWS, return_std=True)
    levels = np.array(["low", "medium", "high"])[rng.integers(0, 3, 40)]
    with pytest.raises(ValueError, match=r"the order of .* is not known"):
        GeneralizedLinearModel(family="ordinal").fit(ROWS, levels)
    with pytest.raises(ValueError, match="classes must differ"):
        GeneralizedLinearModel(family="ordinal", classes=[0, 1, 1]).fit(ROWS, y.clip(0, 1))
