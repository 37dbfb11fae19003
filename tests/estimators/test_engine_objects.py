"""Engines that were made already: many fits with one, copies of it, limits, and what is refused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dmfvi import PPCA, BayesianPCA, Federation, Links, Network, consensus, infer
from dmfvi.consensus import ExactSum
from dmfvi.consensus.base import Incoming, LostTrack
from dmfvi.consensus.stopping import NO_STOP
from dmfvi.engines import make
from dmfvi.engines.base import Task
from dmfvi.engines.local import LocalEngine
from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.epochs import MembershipChanged
from dmfvi.engines.net.frames import ROUND, Frame
from dmfvi.engines.net.inproc import Hub
from dmfvi.engines.net.inproc_engine import InProcessEngine
from dmfvi.inference.model import Average
from dmfvi.inference.session import Session
from dmfvi.models import LogisticRegression
from dmfvi.models.regression.linear import RegressionShard
from dmfvi.node import Job

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 2)) @ RNG.normal(size=(2, 4)) + RNG.normal(size=(60, 4))
RING = Network.ring(3)
SHARDS = [RegressionShard(ROWS[i::3], (ROWS[i::3, :1] > 0).astype(float)) for i in range(3)]


def pca(where: Any, **settings: Any) -> BayesianPCA:
    return BayesianPCA(2, network=where, random_state=0, **settings)


def test_one_engine_object_fits_alike_again() -> None:
    """Its random numbers and pauses begin anew with each fit."""
    engine = LocalEngine(Links(loss=0.3, pauses={1: [(3, 9)]}, seed=1))
    model = pca(Federation(RING, engine=engine))
    rounds = [(model.fit(ROWS).n_start_rounds_, model.n_rounds_) for _ in range(3)]
    assert len(set(rounds)) == 1


@pytest.mark.parametrize("name", ["local", "inproc"])
def test_estimators_with_an_engine_object_are_copied(name: str) -> None:
    model = pca(Federation(RING, engine=make(name)))
    wanted = model.fit(ROWS).posterior_
    assert clone(model).network is model.network
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), clone(model)):
        assert other.fit(ROWS).posterior_.distance(wanted) == 0.0


def test_a_copied_clock_is_one_of_its_own() -> None:
    clock = SimulatedClock()
    clock.join()
    other = copy.deepcopy(clock)
    assert other.lock is not clock.lock
    assert (clock.members, other.members) == (1, 0)


@pytest.mark.parametrize(
    "where",
    [
        Federation(RING, links=Links(loss=0.3, seed=1)),
        Federation(RING, engine="inproc"),
        Federation(RING),
    ],
    ids=["lossy", "inproc", "local"],
)
def test_max_iter_is_the_number_of_sweeps_wherever_it_runs(where: Federation) -> None:
    with pytest.warns(UserWarning, match="not converged after 3 iterations"):
        model = pca(where, max_iter=3).fit(ROWS)
    assert model.n_iter_ == 3
    assert not model.converged_


def test_a_reduction_needs_links_that_lose_nothing() -> None:
    rule = consensus.make("exact-sum", RING, transport="all-reduce")
    with pytest.raises(ValueError, match="needs reliable links"):
        pca(Federation(RING, rule, links=Links(loss=0.3))).fit(ROWS)


def test_a_transport_that_an_engine_lacks_is_refused() -> None:
    """As MPI does: it adds by all-reduce."""
    engine = LocalEngine()
    engine.transport = "all-reduce"
    for rule in (ExactSum("tree"), consensus.make("exact-sum", RING, transport="flood")):
        with pytest.raises(ValueError, match="this engine adds by 'all-reduce' only"):
            pca(Federation(RING, rule, engine=engine)).fit(ROWS)
    for rule in ("auto", "exact-sum", ExactSum(), ExactSum("all-reduce")):
        assert pca(Federation(RING, rule, engine=engine)).fit(ROWS).converged_


def test_one_node_has_no_links_to_lose_messages() -> None:
    alone = pca(Federation(Network.ring(1), links=Links(loss=0.5))).fit(ROWS)
    assert alone.posterior_.distance(pca(None).fit(ROWS).posterior_) == 0.0


def test_an_observer_sees_every_sweep_of_a_given_number() -> None:
    seen = []
    model = LogisticRegression(np.ones(4))
    fit = Session.open(RING).fit(
        model, SHARDS, tol=None, max_iter=4, observer=lambda record, _: seen.append(record.sweeps)
    )
    assert fit.n_iter == 4
    assert fit.converged
    assert seen[-1] == 4


def test_a_given_start_is_one_start() -> None:
    model = LogisticRegression(np.ones(4))
    begun = infer(model, SHARDS, RING, random_state=0).posterior
    with pytest.warns(UserWarning, match="start was given: one fit from it instead of n_init=3"):
        fit = infer(model, SHARDS, RING, start=begun, n_init=3, random_state=0)
    assert fit.converged
    assert fit.posterior.distance(begun) < 1e-6


@pytest.mark.parametrize("network", [None, RING])
def test_ppca_counts_its_sweeps(network: Network | None) -> None:
    model = PPCA(2, network=network, random_state=0).fit(ROWS)
    assert model.converged_
    assert model.n_iter_ >= 2
    assert PPCA(2, network=network, random_state=0, max_iter=model.n_iter_).fit(ROWS).converged_


# -- a node that was away too long -----------------------------------------------------------------

FAR_AHEAD = np.array([5.0, 0.0, 0.0, 0.0, 0.0])  # sum 5, nothing in it


def test_a_sum_far_ahead_means_that_a_node_was_away() -> None:
    rule = ExactSum("tree")
    state = rule.start(rule.local_view(RING, 0), np.ones(3))
    with pytest.raises(LostTrack, match="node 0 is at sum 0, its neighbour 1 at 5"):
        rule.advance(state, {1: Incoming(9, FAR_AHEAD)})


def test_a_node_that_was_away_comes_as_a_new_member() -> None:
    clock = SimulatedClock()
    clock.join()
    engine = InProcessEngine(patience=1.0, clock=clock)._engine(RING, 0, Hub(clock))
    endpoint = engine.node
    before = endpoint.view.own.version
    frame = Frame(ROUND, endpoint.fingerprint, 1, endpoint.epoch, 0, 9, 0, NO_STOP, FAR_AHEAD)
    endpoint.mail[1, 0] = {9: frame}
    task = Task(Job(Average(), ExactSum("tree")), RING, [np.ones(3)], [None], 10)
    with pytest.raises(MembershipChanged, match="begin the fit anew"):
        engine.run(task)
    assert endpoint.view.own.version == before + 1
