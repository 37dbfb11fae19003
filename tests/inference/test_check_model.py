"""check_model passes every model of the registry and names the mistakes that people make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from dmfvi import ConjugateModel, Network, Statistics, check_model, infer
from dmfvi.families import Gamma
from dmfvi.models import MODELS
from dmfvi.models.poisson_gamma import PoissonGamma
from dmfvi.models.topics.model import LatentDirichletAllocation
from model_cases import CASES

SHARDS = [np.random.default_rng(i).poisson(3.0, size=(10 + i, 2)).astype(float) for i in range(3)]


@pytest.mark.parametrize("name", CASES)
def test_the_models_of_the_library_pass(name: str) -> None:
    draw = CASES[name].draw(0, 3)
    check_model(draw.model, draw.shards)


def changed(change: Callable[[Statistics, Any, Any], Any]) -> ConjugateModel:
    class Mine(PoissonGamma):
        def local_step(self, shard: Any, q: Any) -> Any:
            return change(super().local_step(shard, q), shard, q)

    return Mine(2)


def turned(values: Gamma, first: float, second: float) -> Gamma:
    return Gamma(first * values.natural[0], second * values.natural[1])


MISTAKES = {
    "sign of the statistics": (
        lambda made, x, q: made._replace(values=turned(made.values, -1, -1)),
        "the statistics have the wrong sign",
    ),
    "sign of one statistic": (
        lambda made, x, q: made._replace(values=turned(made.values, 1, -1)),
        "opposite sign of 'negative_rate'",
    ),
    "sign of the bound": (
        lambda made, x, q: made._replace(bound=-made.bound),
        "the bound has the wrong sign",
    ),
    "a factor of the bound": (
        lambda made, x, q: made._replace(bound=0.5 * made.bound),
        "bound changes 0.5 times as much",
    ),
    "a factor of one statistic": (
        lambda made, x, q: made._replace(values=turned(made.values, 2, 1)),
        "'shape_minus_one' should be 0.5 times what it is",
    ),
    "a term that is missing": (
        lambda made, x, q: made._replace(bound=made.bound + 5.0 * float(q.mean()[1][0])),
        "No factor explains it",
    ),
    "averages": (
        lambda made, x, q: Statistics(
            turned(made.values, 1 / len(x), 1 / len(x)), made.bound / len(x)
        ),
        "averaged over rows, add them up",
    ),
    "a term once a shard": (
        lambda made, x, q: made._replace(bound=made.bound + 1.0),
        "the bound of two shards together are not the sum",
    ),
    "random numbers": (
        lambda made, x, q: made._replace(bound=made.bound + np.random.default_rng().normal()),
        "Make it pure",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    change, words = MISTAKES[name]
    with pytest.raises(ValueError, match=words):
        check_model(changed(change), SHARDS)


@pytest.mark.parametrize("network", [None, Network.ring(3)])
def test_a_fit_without_a_proper_posterior_ends_early(network: Network | None) -> None:
    model = changed(MISTAKES["sign of the statistics"][0])
    shards = SHARDS if network is not None else [np.concatenate(SHARDS)]
    with pytest.raises(ValueError, match="check_model"):
        infer(model, shards, network)


@pytest.mark.parametrize("network", [None, Network.ring(3)])
def test_a_bound_that_falls_is_not_believed(network: Network | None) -> None:
    model = changed(MISTAKES["sign of the bound"][0])
    shards = SHARDS if network is not None else [np.concatenate(SHARDS)]
    with pytest.warns(UserWarning, match="the bound fell in sweep"):
        infer(model, shards, network)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(TypeError, match="an instance of a ConjugateModel"):
        check_model(PoissonGamma, SHARDS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shards are empty"):
        check_model(PoissonGamma(2), [])


def test_every_model_has_a_case() -> None:
    assert {name.partition("/")[0] for name in CASES} == set(MODELS)


@pytest.mark.parametrize("mistake", ["nothing", "statistics", "bound"])
def test_topics_that_keep_their_documents(mistake: str) -> None:
    """Documents are remembered from step to step: no false alarm by that, and wrong signs are found."""

    class Mine(LatentDirichletAllocation):
        def local_step(self, shard: Any, q: Any) -> Statistics:
            made = super().local_step(shard, q)
            if mistake == "statistics":
                return made._replace(values=-made.values)
            return made._replace(bound=-made.bound) if mistake == "bound" else made

    for seed in range(4):
        draw = CASES["LatentDirichletAllocation"].draw(seed, 3)
        given = {each.name: getattr(draw.model, each.name) for each in fields(draw.model)}
        if mistake == "nothing":
            check_model(Mine(**given), draw.shards)
            continue
        says = (
            "the statistics have the wrong sign" if mistake == "statistics" else "the bound falls"
        )
        with pytest.raises(ValueError, match=says):
            check_model(Mine(**given), draw.shards)
