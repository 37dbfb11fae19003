"""scikit-learn's own checks on the estimators of conjugate models."""

from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from dmfvi import Network
from dmfvi.estimators import (
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    GaussianHMM,
)

ESTIMATORS = [
    BayesianGaussianMixture(2, random_state=0),
    BayesianGaussianMixture(2, covariance="diagonal", network=Network.ring(2), random_state=0),
    GaussianHMM(2, random_state=0),
    GaussianHMM(2, covariance="diagonal", random_state=0),
    BayesianLinearRegression(),
    BayesianLinearRegression(network=Network.ring(2)),
    BayesianLogisticRegression(),
    BayesianLogisticRegression(network=Network.ring(2)),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
