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
    MixtureOfPCA,
)

ESTIMATORS = [
    BayesianGaussianMixture(2, random_state=0),
    BayesianGaussianMixture(2, covariance="diagonal", network=Network.ring(2), random_state=0),
    MixtureOfPCA(random_state=0),
    GaussianHMM(2, random_state=0),
    GaussianHMM(2, covariance="diagonal", random_state=0),
    BayesianLinearRegression(),
    BayesianLinearRegression(network=Network.ring(2)),
    BayesianLogisticRegression(),
    BayesianLogisticRegression(network=Network.ring(2)),
]


def not_for_sequences(estimator: Any) -> dict[str, str]:
    """Rows of a sequence depend on each other: these two checks reorder and cut them."""
    if not isinstance(estimator, GaussianHMM):
        return {}
    reason = "the rows are one sequence, their order matters"
    return {
        "check_methods_sample_order_invariance": reason,
        "check_methods_subset_invariance": reason,
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=not_for_sequences)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)
