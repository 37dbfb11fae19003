"""Estimators where this process runs one node of a network: what must be passed, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmfvi import (
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPCA,
    CategoricalHMM,
    Federation,
    GaussianHMM,
    LatentDirichletAllocation,
    Links,
    MixtureOfPCA,
    Network,
)
from dmfvi.engines.local import LocalEngine

ROWS = np.random.default_rng(0).normal(size=(12, 3))
LABELS = (ROWS[:, 0] > 0).astype(int)
CHAIN = Network.chain(2)


class OneNode(LocalEngine):
    """An engine whose other nodes run elsewhere; it is never run here."""

    name = "one node"

    def owned(self, network: Network) -> list[int]:
        return [1]


@pytest.mark.parametrize(
    ("estimator", "data", "message"),
    [
        (BayesianPCA(1), ([ROWS, ROWS],), "runs node 1 only: pass its own rows as one array"),
        (BayesianGaussianMixture(1), ([ROWS, ROWS],), "runs node 1 only: pass its own rows"),
        (MixtureOfPCA(1), ([ROWS, ROWS],), "runs node 1 only"),
        (BayesianLinearRegression(), ([ROWS], [LABELS]), "rows and targets as one array each"),
        (BayesianLogisticRegression(), (ROWS, LABELS), "classes are needed.*here there are .0, 1."),
        (BayesianLogisticRegression(classes=[0, 2]), (ROWS, LABELS), "labels .1. that are not in"),
        (LatentDirichletAllocation(1), ([np.ones((2, 3))],), "pass its own counts as one matrix"),
        (GaussianHMM(1), ([[ROWS], [ROWS]],), "pass its own sequences as one list"),
        (CategoricalHMM(1), (LABELS[:, None],), "n_features is needed"),
    ],
)
def test_data_of_other_nodes_are_refused(estimator: Any, data: tuple, message: str) -> None:
    estimator.set_params(network=Federation(CHAIN, engine=OneNode()))
    with pytest.raises(ValueError, match=message):
        estimator.fit(*data)


@pytest.mark.parametrize("estimator", [BayesianPCA(1), BayesianGaussianMixture(1)])
def test_engines_are_checked(estimator: Any) -> None:
    with pytest.raises(ValueError, match=r"engine must be one of .*'cloud'"):
        estimator.set_params(network=Federation(CHAIN, engine="cloud")).fit(ROWS)
    for wrong in (7, LocalEngine):
        with pytest.raises(TypeError, match="engine must be one of"):
            estimator.set_params(network=Federation(CHAIN, engine=wrong)).fit(ROWS)
    lossy = Links(loss=0.1)
    estimator.set_params(network=Federation(CHAIN, engine=LocalEngine(), links=lossy))
    with pytest.raises(ValueError, match="drop links"):
        estimator.fit(ROWS)
    estimator.set_params(network=Federation(CHAIN, engine="mpi", links=lossy))
    with pytest.raises(ValueError, match="simulated links need engine='local'"):
        estimator.fit(ROWS)


def test_an_engine_that_was_made_already_is_used() -> None:
    made = BayesianGaussianMixture(
        2, network=Federation(CHAIN, engine=LocalEngine()), random_state=0
    )
    named = BayesianGaussianMixture(2, network=CHAIN, random_state=0)
    np.testing.assert_array_equal(made.fit(ROWS).means_, named.fit(ROWS).means_)


def test_classes_may_be_more_than_a_network_has_seen() -> None:
    model = BayesianLogisticRegression(classes=[0, 1, 2], network=CHAIN).fit(ROWS, LABELS)
    assert model.predict_proba(ROWS).shape == (12, 3)
    assert model.classes_.tolist() == [0, 1, 2]
