"""infer says what is wrong with a model or its settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from dmfvi import BayesianLinearRegression, CategoricalHMM, Network, RatingFactorization, infer
from dmfvi.models.poisson_gamma import PoissonGamma

SHARDS = [np.random.default_rng(i).poisson(3.0, size=(10, 2)).astype(float) for i in range(3)]
RING = Network.ring(3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tol": -1.0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be a whole number"),
    ],
)
def test_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        infer(PoissonGamma(2), SHARDS, RING, **settings)


def test_a_class_is_not_a_model() -> None:
    with pytest.raises(TypeError, match="an instance of a ConjugateModel, received PoissonGamma"):
        infer(PoissonGamma, SHARDS, RING)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda made: (made.values, made.bound), TypeError, "must return Statistics"),
        (lambda made: None, TypeError, "must return Statistics"),
        (lambda made: made._replace(bound=np.ones(3)), ValueError, "one finite bound"),
        (lambda made: made._replace(values=np.full(4, np.nan)), ValueError, "not finite"),
    ],
)
def test_slips_in_a_local_step(change: Any, error: type[Exception], message: str) -> None:
    class Slip(PoissonGamma):
        def local_step(self, shard: Any, q: Any) -> Any:
            return change(super().local_step(shard, q))

    with pytest.raises(error, match=f"Slip.local_step .*{message}"):
        infer(Slip(2), SHARDS, RING)


def test_not_converged_is_said() -> None:
    with pytest.warns(ConvergenceWarning, match="not converged after 1 iterations"):
        infer(PoissonGamma(2), SHARDS, Network.chain(3), max_iter=1)


def test_estimators_refuse_what_would_end_badly() -> None:
    with pytest.raises(ValueError, match="encode symbols"):
        CategoricalHMM(2).fit(np.array([0, 1, 10**9]))
    with pytest.raises(ValueError, match="at most 32"):
        RatingFactorization(40).fit(([0, 1], [0, 1], [3.0, 4.0]))
    with pytest.raises(ValueError, match="pass y as a list too"):
        BayesianLinearRegression(network=RING).fit(SHARDS, np.ones(30))
