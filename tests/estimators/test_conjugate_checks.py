"""scikit-learn's own checks on the estimators of conjugate models."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from dmfvi import Network
from dmfvi.models.chains.estimator import CategoricalHMM, GaussianHMM
from dmfvi.models.mixture.estimator import BayesianGaussianMixture
from dmfvi.models.pca.mixture import MixtureOfPCA
from dmfvi.models.regression.estimator import BayesianLinearRegression, BayesianLogisticRegression
from dmfvi.models.topics.estimator import LatentDirichletAllocation

ESTIMATORS = [
    BayesianGaussianMixture(2, random_state=0),
    BayesianGaussianMixture(2, covariance_type="diag", network=Network.ring(2), random_state=0),
    MixtureOfPCA(random_state=0),
    GaussianHMM(2, random_state=0),
    GaussianHMM(2, covariance_type="diag", random_state=0),
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


@pytest.mark.parametrize("estimator", [LatentDirichletAllocation(), CategoricalHMM()], ids=str)
@pytest.mark.parametrize(
    "name",
    [
        "check_no_attributes_set_in_init",
        "check_get_params_invariance",
        "check_set_params",
        "check_parameters_default_constructible",
        "check_estimator_cloneable",
        "check_estimator_repr",
    ],
)
def test_scikit_learn_checks_without_data(estimator: Any, name: str) -> None:
    """Counts and symbols are whole numbers: the checks that feed random floats do not apply."""
    getattr(estimator_checks, name)(type(estimator).__name__, estimator)
