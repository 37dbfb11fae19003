"""An observer sees the objective in the data's units, as ``history_`` keeps it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmfvi import (
    PPCA,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianPCA,
    GaussianHMM,
    Network,
)

RNG = np.random.default_rng(0)
ROWS = 100.0 + 10.0 * RNG.normal(size=(120, 3))
TARGET = ROWS @ [1.0, 2.0, 3.0] + RNG.normal(size=120)


@pytest.mark.parametrize(
    "model",
    [
        BayesianPCA(2, random_state=0, network=Network.ring(3)),
        PPCA(2, random_state=0),
        BayesianGaussianMixture(
            2, n_init=1, random_state=0
        ),  # several runs are seen one after the other
        GaussianHMM(2, random_state=0),
        BayesianLinearRegression(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_it_is_that_of_the_history(model: Any) -> None:
    seen: list[tuple[float, float]] = []
    given = (ROWS, TARGET) if isinstance(model, BayesianLinearRegression) else (ROWS,)
    model.fit(*given, observer=lambda r, so_far: seen.append((r.objective, so_far.lower_bound)))
    objectives, bounds = np.array(seen).T
    np.testing.assert_allclose(objectives, model.history_["objective"])
    assert bounds[-1] == pytest.approx(model.lower_bound_)
