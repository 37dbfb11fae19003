"""Laws over the registry of consensus rules: what is enrolled is what runs, and a broken rule is caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmfvi import (
    BayesianGaussianMixture,
    BayesianPCA,
    Federation,
    Network,
    RatingFactorization,
    StructureFromMotion,
    consensus,
)
from dmfvi.consensus import RULES, AllReduce
from dmfvi.datasets import make_cube, make_ratings
from dmfvi.engines.base import Task
from dmfvi.engines.local import LocalEngine
from dmfvi.inference.model import Average
from dmfvi.inference.session import infer
from dmfvi.models import PoissonGamma
from dmfvi.node import Job

RING = Network.ring(3)
ROWS = np.random.default_rng(0).normal(size=(30, 4)) @ np.diag([3.0, 2.0, 1.0, 0.5])
#: rules that agree on sums of any statistics; the others are for models that they name
SUM_RULES = sorted(set(RULES) - {"moments-admm", "parameter-admm", "flood"})
FITS: dict[str, Any] = {
    "BayesianPCA": lambda net: BayesianPCA(2, network=net, random_state=0).fit(ROWS),
    "mixture": lambda net: BayesianGaussianMixture(2, network=net, random_state=0).fit(ROWS),
    "structure": lambda net: StructureFromMotion(network=net, random_state=0).fit(
        make_cube(n_cameras=3).cameras
    ),
    "ratings": lambda net: RatingFactorization(2, network=net, max_iter=3, random_state=0).fit(
        make_ratings(2000, n_users=80, n_items=60, seed=0).ratings
    ),
}


class Recorder(LocalEngine):
    """Notes what runs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Job] = []

    def run(self, task: Task) -> Any:
        self.jobs.append(task.job)
        return super().run(task)


@pytest.mark.filterwarnings("ignore:.*have no rating:UserWarning")
@pytest.mark.parametrize("name", SUM_RULES)
@pytest.mark.parametrize("fit", FITS)
def test_the_rule_asked_for_is_the_rule_that_runs(fit: str, name: str) -> None:
    engine = Recorder()
    FITS[fit](Federation(RING, consensus=name, engine=engine))
    fits = [job.rule.name for job in engine.jobs if not isinstance(job.model, Average)]
    assert fits
    assert set(fits) == {name}  # a mixture may be fitted from two starts


class Halving(AllReduce):
    """A rule that is wrong: everybody gets half of the sum."""

    name = "halving"

    def estimate(self, state: Any) -> np.ndarray:
        return 0.5 * super().estimate(state)


def test_a_broken_rule_fails_the_exactness_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enrolled by one line, it is the rule that runs, and the law notices."""
    monkeypatch.setitem(RULES, Halving.name, Halving)
    counts = [np.random.default_rng(i).poisson(4.0, (10, 2)).astype(float) for i in range(3)]
    exact = infer(PoissonGamma(2), [np.concatenate(counts)])
    for name, holds in (("halving", False), ("all-reduce", True), ("bregman-admm", True)):
        fit = infer(PoissonGamma(2), counts, Federation(RING, consensus=name))
        assert (fit.posterior.distance(exact.posterior) < 1e-6) is holds


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_made_by_its_name(name: str) -> None:
    rule = consensus.make(name, RING)
    assert type(rule) is RULES[name]
    assert consensus.make(rule, RING) is rule
    with pytest.raises(ValueError, match=r"has no setting \['colour'\], known are"):
        consensus.make(name, RING, colour="red")


def test_unknown_rules_are_named() -> None:
    with pytest.raises(ValueError, match=r"consensus must be one of .*received 'gossip'"):
        consensus.make("gossip", RING)
    with pytest.raises(ValueError, match="made already"):
        consensus.make(AllReduce(), RING, damping=0.1)


@pytest.mark.parametrize("name", ["moments-admm", "parameter-admm"])
def test_rules_for_one_model_refuse_the_others(name: str) -> None:
    counts = [np.ones((4, 2))] * 3
    with pytest.raises(ValueError, match=f"{name}.*received PoissonGamma"):
        infer(PoissonGamma(2), counts, Federation(RING, consensus=name))
