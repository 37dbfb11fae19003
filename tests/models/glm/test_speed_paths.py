"""What makes fits of many rows cheap gives the same answers: series, thinned starts, no statistics after the last sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from dmfvi import BayesianLogisticRegression, GeneralizedLinearModel, Network
from dmfvi.models.glm import model as glm_model
from dmfvi.models.glm._logit_numba import SERIES_LIMITS, logit_rows
from dmfvi.models.glm.likelihoods import GlmShard
from dmfvi.models.glm.model import GeneralizedLinear
from dmfvi.models.glm.quadrature import hermite, rules


@pytest.mark.parametrize("variance", [0.0, *SERIES_LIMITS, 0.0501])
@pytest.mark.parametrize("size", [1.0, 3.0])
def test_series_of_the_logit_are_its_expectations(variance: float, size: float) -> None:
    eta = np.linspace(-9.0, 9.0, 150)
    y, trials, weight = np.arange(150) % 2 * size, np.full(150, size), np.full(150, 1 / size)
    slope, curve = np.empty(150), np.empty(150)
    given = eta, np.full(150, variance), y, trials, weight
    value = logit_rows(*given, *rules(), slope, curve)
    nodes, shares = hermite(100)
    at = eta[:, None] + np.sqrt(variance) * nodes
    chance = expit(at) @ shares
    np.testing.assert_allclose(slope, y / size - chance, atol=1e-12)
    np.testing.assert_allclose(curve, (expit(at) * expit(-at)) @ shares, rtol=2e-11)
    expected = y / size * eta - np.logaddexp(0.0, at) @ shares
    assert value == pytest.approx(expected.sum(), rel=1e-13)


def test_a_thinned_shard_stands_for_all_rows() -> None:
    n = 103
    shard = GlmShard(np.ones((n, 2)), np.arange(n), np.zeros(n), np.ones(n), np.ones(n), 1.5)
    assert shard.thinned(60) is shard
    part = shard.thinned(25)
    assert len(part.target) == len(part.design) == 26
    assert part.weight.sum() == pytest.approx(n)
    assert part.constant == 1.5
    np.testing.assert_array_equal(part.target, shard.thinned(25).target)
    assert len(set(np.diff(part.target).tolist())) > 3  # no period


def overdispersed() -> tuple[np.ndarray, np.ndarray]:
    """Counts of which every second one is zero."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2))
    y = rng.negative_binomial(1.0, 1 / (1 + np.exp(0.3 * x[:, 0])))
    y[::2] = 0
    return x, y


@pytest.mark.parametrize("rows", ["chosen", "all of one kind"])
def test_a_start_from_some_rows_does_not_depend_on_their_order(
    rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = overdispersed()
    fit = GeneralizedLinearModel(family="negative-binomial").fit
    whole = fit(x, y).posterior_
    monkeypatch.setattr(glm_model, "START_ROWS", 1000)
    if rows != "chosen":  # the start then begins again with all rows

        def every_second(self: GlmShard, most: int) -> GlmShard:
            names = "design", "target", "offset", "weight", "trials"
            return replace(self, **{name: getattr(self, name)[::2] for name in names})

        monkeypatch.setattr(GlmShard, "thinned", every_second)
    assert fit(x, y).posterior_.distance(whole) < 1e-8
    both = GeneralizedLinearModel(family="negative-binomial", network=Network.complete(2))
    assert both.fit([x, x[:100]], [y, y[:100]]).converged_


@pytest.mark.parametrize("family", ["bernoulli", "negative-binomial"])
def test_a_start_from_some_rows_ends_at_the_same_posterior(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 2))
    y = rng.poisson(np.exp(0.3 * x[:, 0])) if family != "bernoulli" else rng.integers(0, 2, 600)
    order = np.argsort(y, kind="stable")
    parts = np.split(order, [30, 200])  # one node is too small to leave out any row
    whole = GeneralizedLinearModel(family=family).fit(x, y)
    used: list[int] = []
    climb = GeneralizedLinear._climb

    def counted(self: Any, shard: GlmShard, *args: Any) -> Any:
        used.append(len(shard.target))
        return climb(self, shard, *args)

    monkeypatch.setattr(GeneralizedLinear, "_climb", counted)
    monkeypatch.setattr(glm_model, "START_ROWS", 40)
    model = GeneralizedLinearModel(family=family, network=Network.ring(3)).fit(
        [x[i] for i in parts], [y[i] for i in parts]
    )
    assert used == [30, 43, 40, 30, 170, 400]
    assert max(q.distance(whole.posterior_) for q in model.node_posteriors_) < 1e-8
    assert len({q.agreed.pack().tobytes() for q in model.node_posteriors_}) == 1


def test_no_statistics_are_computed_after_the_last_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.integers(0, 2, 60)
    step, steps = GeneralizedLinear.local_step, []

    def counted(self: Any, *args: Any) -> Any:
        steps.append(1)
        return step(self, *args)

    monkeypatch.setattr(GeneralizedLinear, "local_step", counted)
    fitted = BayesianLogisticRegression().fit(x, y)
    assert len(steps) == fitted.n_iter_
    steps.clear()
    BayesianLogisticRegression(tol=None, max_iter=3).fit(x, y)
    assert len(steps) == 3


def test_rows_given_to_a_pooled_fit_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(5.0, 2.0, size=(50, 2)), rng.integers(0, 2, 50)
    before = x.copy()
    BayesianLogisticRegression().fit(x, y)
    np.testing.assert_array_equal(x, before)
