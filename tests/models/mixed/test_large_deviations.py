"""Groups that differ so much that their integrands have an edge: all rows of a group in one class, for example."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import log_expit

from dmfvi import MixedModel, Network
from dmfvi.models.mixed.model import GroupedShard, MixedEffects

EDGES = [-12, -1, -0.3, -0.1, -0.03, -0.01, 0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1, 2, 12]


@pytest.mark.parametrize("log_deviation", [2.1, 3.0, 4.3])
@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
def test_the_likelihood_is_the_integral_where_deviations_are_large(
    family: str, log_deviation: float
) -> None:
    """Ones, or counts of zero, of six rows."""
    s, y = np.exp(log_deviation), np.full(6, float(family == "bernoulli"))
    one = np.ones((6, 1))
    shard = GroupedShard.of(one, one, y, np.zeros(6), np.zeros(6, dtype=np.int64))
    model = MixedEffects(np.zeros(2), np.ones(2), family)

    def density(z: float) -> float:
        eta = s * z
        each = log_expit(eta) if family == "bernoulli" else -np.exp(min(eta, 600.0))
        return float(np.exp(6 * each) * stats.norm.pdf(z))

    whole = sum(
        integrate.quad(density, a, b, epsabs=0, epsrel=1e-11)[0] for a, b in pairwise(EDGES)
    )
    theta = np.array([0.0, log_deviation])
    found = model.expand(shard, theta)
    assert found.value == pytest.approx(np.log(whole), abs=1e-6)
    assert model.values(shard, theta[None])[0] == pytest.approx(np.log(whole), abs=1e-3)
    step = 1e-4
    ahead, back = (model.expand(shard, theta + np.array([0.0, by])) for by in (step, -step))
    assert found.gradient[1] == pytest.approx((ahead.value - back.value) / (2 * step), abs=1e-4)


@pytest.mark.parametrize("settings", [{}, {"nested": True}])
@pytest.mark.parametrize("n_groups", [6, 60])
def test_groups_of_one_class_have_a_posterior_at_every_site(
    settings: dict[str, Any], n_groups: int
) -> None:
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(n_groups), 6)
    x, y = rng.normal(size=(len(groups), 2)), (groups % 2).astype(float)
    cuts = [6, 18]
    parts = [np.split(each, cuts) for each in (x, y, groups)]
    pooled = MixedModel(family="bernoulli").fit(x, y, groups)
    nodes = MixedModel(family="bernoulli", network=Network.chain(3), **settings).fit(*parts)
    assert pooled.converged_
    assert nodes.posterior_.distance(pooled.posterior_) < 1e-9
    row = pooled.summary_frame().iloc[3]
    assert 1.0 < row.lower < pooled.effects_std_[0] < row.upper < 1e4


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slopes", [(), ("x0",)])
def test_steps_end_where_groups_differ_much(seed: int, slopes: tuple[str, ...]) -> None:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(12), 6)
    x = rng.normal(size=(72, 2))
    eta = x[:, 0] + 3.0 * rng.normal(size=12)[groups]
    y = (rng.random(72) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    model = MixedModel(family="bernoulli", random_slopes=slopes, approximation="laplace")
    assert model.fit(x, y, groups).converged_
