"""Laws that every model obeys, run over the registry (cases in tests/model_cases.py)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from dmfvi import ConjugateModel, Federation, Links, Network, infer
from dmfvi.inference.result import Inference
from dmfvi.models import MODELS
from helpers import distance
from model_cases import CASES, aligned

NATURAL, BOUND = 1e-6, 1e-8
#: in every run; the exact sums have the graphs of tests/laws/test_exact_sums.py besides
NETWORKS = [Network.ring(5), Network.grid(2, 3), Network.random_geometric(9, seed=3)]
MORE_NETWORKS = [Network.chain(4), Network.star(6), Network.complete(5)]


CONJUGATE = [name for name in CASES if issubclass(MODELS[name.partition("/")[0]], ConjugateModel)]
WITH_INTERVALS = [name for name in CASES if CASES[name].data_sets]


@lru_cache
def pooled(name: str, n_nodes: int) -> Inference:
    """The reference, far beyond the law's accuracy."""
    case = CASES[name]
    draw = case.draw(0, n_nodes)
    # likelihoods are flat: a point estimate is found to fewer digits
    tol = 1e-10 if case.data_sets or case.n_iter else 1e-9
    return case.fit(draw.model, [draw.pooled], tol=tol, random_state=0, max_iter=20_000)


def test_every_model_is_enrolled() -> None:
    assert {name.partition("/")[0] for name in CASES} == set(MODELS)


@pytest.mark.parametrize(
    "network",
    [*NETWORKS, *(pytest.param(n, marks=pytest.mark.slow) for n in MORE_NETWORKS)],
    ids=lambda n: n.name,
)
@pytest.mark.parametrize("name", CASES)
def test_every_node_has_the_pooled_posterior(name: str, network: Network) -> None:
    """Unequal shards, each with other classes than the others; the same start, nothing tuned."""
    case = CASES[name]
    draw = case.draw(0, network.n_nodes)
    fit = case.fit(draw.model, draw.shards, network, random_state=0, max_iter=20_000)
    reference = pooled(name, network.n_nodes)
    assert fit.converged
    assert max(distance(q, reference.posterior) for q in fit.posteriors) < NATURAL
    assert abs(fit.lower_bound / reference.lower_bound - 1) < BOUND


@pytest.mark.parametrize("name", ["PoissonGamma", "GaussianMixture", "HiddenMarkov/gaussian"])
@pytest.mark.parametrize("consensus", ["all-reduce", "statistics-tracking", "bregman-admm"])
def test_with_every_rule_and_lossy_links(name: str, consensus: str) -> None:
    network = Network.grid(2, 3)
    draw = CASES[name].draw(0, 6)
    links = Links(loss=0.2, seed=1) if consensus == "bregman-admm" else None
    fit = infer(
        draw.model,
        draw.shards,
        Federation(network, consensus=consensus, links=links),
        random_state=0,
        max_iter=20_000,
    )
    worst = max(distance(q, pooled(name, 6).posterior) for q in fit.posteriors)
    assert worst < NATURAL


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_the_pooled_bound_never_falls(name: str, accelerated: bool) -> None:
    for seed in range(2):
        draw = CASES[name].draw(seed, 1)
        fit = CASES[name].fit(
            draw.model, [draw.pooled], random_state=seed, acceleration=accelerated, tol=1e-7
        )
        bounds = fit.history["objective"]
        bounds = bounds[np.isfinite(bounds)]  # that of a start may not be known
        assert np.diff(bounds).min() >= -1e-9 * abs(bounds[-1])


@pytest.mark.parametrize("name", CONJUGATE)
def test_acceleration_keeps_the_fixed_point(name: str) -> None:
    draw = CASES[name].draw(0, 1)
    plain, fast = (
        infer(
            draw.model,
            [draw.model.refreshed(draw.pooled)],
            acceleration=accelerated,
            tol=1e-8,
            random_state=0,
            max_iter=50_000,
        )
        for accelerated in (False, True)
    )
    assert distance(fast.posterior, plain.posterior) < NATURAL
    if draw.model.memoryless:
        assert fast.n_rounds <= plain.n_rounds


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].bound_nearby])
def test_the_bound_is_largest_at_the_posterior(name: str) -> None:
    """Any small step away, in all blocks at once, lowers it."""
    fit, draw = pooled(name, 1), CASES[name].draw(0, 1)
    best, nearby = CASES[name].bound_nearby(draw.model, draw.pooled, fit)
    rng = np.random.default_rng(0)
    assert all(nearby(rng) < best for _ in range(20))


@pytest.mark.parametrize("name", CONJUGATE)
def test_the_bound_is_the_objective_of_its_own_update(name: str) -> None:
    """At the fixed point the bound is stationary: any small step away lowers it."""
    draw = CASES[name].draw(0, 1)
    q = pooled(name, 1).posterior
    model, shard = draw.model, draw.pooled

    def bound(natural: np.ndarray) -> float:
        moved = q.unpack(natural)
        value = 0.0
        for _ in range(30):  # local variables found anew, from where they were
            value = float(model.statistics(shard, moved)[-1])
        return value - model.divergence(moved)

    here = q.pack()
    best = bound(here)
    rng = np.random.default_rng(0)
    for _ in range(5):
        step = 0.02 * rng.normal(size=here.size) * np.abs(here - draw.model.prior.pack() + 1e-3)
        step *= 0.5
        if np.all(q.unpack(here + step).in_domain()):
            assert bound(here + step) <= best + 1e-9 * abs(best)


@pytest.mark.parametrize("name", CASES)
def test_equals_its_reference(name: str) -> None:
    CASES[name].reference(CASES[name].draw(0, 1))


#: one of a kind in every run, its relatives in the slow tier
OFTEN = ("GeneralizedLinear", "GeneralizedLinear/softmax")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[pytest.mark.slow]
            if name.startswith("GeneralizedLinear") and name not in OFTEN
            else [],
        )
        for name in WITH_INTERVALS
    ],
)
def test_recovers_the_truth_and_covers_it(name: str) -> None:
    """Posterior means are near the truth; 90 % intervals hold it about 90 % of the time."""
    case = CASES[name]
    inside, errors = [], []
    for seed in range(case.data_sets):
        draw = case.draw(100 + seed, 1)
        fit = case.fit(draw.model, [draw.pooled], random_state=seed, tol=1e-5)
        values = case.samples(fit, 400)
        truth = draw.truth
        if case.exchangeable:
            values = values[:, aligned(values.mean(0), truth)]
        low, high = np.quantile(values, [0.05, 0.95], axis=0)
        inside.append((low <= truth) & (truth <= high))
        errors.append(values.mean(0) - truth)
    assert (
        np.sqrt(np.median(np.mean(np.square(errors), axis=tuple(range(1, np.ndim(errors))))))
        < case.accuracy
    )
    coverage = np.mean(inside)
    assert case.coverage[0] <= coverage <= case.coverage[1], coverage
