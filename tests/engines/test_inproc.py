"""The in-process engine: the network engine's code in threads, with faults, errors and checkpoints."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from dmfvi import BayesianPCA, Federation, Network, infer
from dmfvi.engines import make, open_engine
from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.faults import Faults
from dmfvi.models import PoissonGamma
from engine_runs import model_and_shards
from helpers import low_rank_shards

RING = Network.ring(3)
MODEL, SHARDS = model_and_shards("LogisticRegression")


def threads_of_nodes() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("node ")]


@pytest.mark.parametrize("faults", [Faults(loss=0.2), Faults(delay=0.2, duplicates=0.2)])
def test_frames_that_suffer_end_in_the_exact_posterior(faults: Faults) -> None:
    engine = make("inproc", faults=faults, clock=SimulatedClock())
    found = infer(MODEL, SHARDS, Federation(RING, engine=engine), random_state=0)
    wanted = infer(MODEL, SHARDS, RING, random_state=0, tol=1e-10)
    assert found.converged
    for q in found.posteriors:
        np.testing.assert_allclose(q.pack(), wanted.posterior.pack(), rtol=1e-6, atol=1e-6)
    # frames that are missed are repeated within a round
    assert found.n_rounds >= infer(MODEL, SHARDS, RING, random_state=0).n_rounds


def test_an_estimator_takes_it_by_its_name() -> None:
    shards = low_rank_shards([14, 20, 17], 6, 2, 0.1)
    settings = {"network": RING, "random_state": 0}
    local = BayesianPCA(2, **settings).fit(shards)
    found = BayesianPCA(2, **settings | {"network": Federation(RING, engine="inproc")}).fit(shards)
    assert found.consensus_ == local.consensus_
    for one, other in zip(found.node_posteriors_, local.node_posteriors_, strict=True):
        assert one.distance(other) < 1e-9
    assert found.n_rounds_ == local.n_rounds_


def test_the_history_is_that_of_all_nodes() -> None:
    local = infer(MODEL, SHARDS, RING, random_state=0, acceleration=False)
    found = infer(
        MODEL, SHARDS, Federation(RING, engine="inproc"), random_state=0, acceleration=False
    )
    assert found.n_rounds == local.n_rounds
    for name in ("round", "objective", "change", "disagreement", "limited_steps"):
        np.testing.assert_allclose(found.history[name], local.history[name], rtol=1e-6, atol=1e-9)


def test_an_error_at_one_node_is_the_callers_and_ends_all() -> None:
    class Failing(PoissonGamma):
        def local_step(self, shard, q):
            if len(shard) == 7:
                raise ArithmeticError("node 1 has bad data")
            return super().local_step(shard, q)

    shards = [np.ones((n, 2)) for n in (5, 7, 9)]
    with pytest.raises(ArithmeticError, match="node 1 has bad data"):
        infer(Failing(2), shards, Federation(RING, engine="inproc"))
    assert threads_of_nodes() == []


def test_an_error_of_the_observer_is_the_callers() -> None:
    def observer(record, so_far) -> None:
        assert len(so_far.beliefs) == 3
        if record.round == 2:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        infer(MODEL, SHARDS, Federation(RING, engine="inproc"), observer=observer)
    assert threads_of_nodes() == []


def test_a_run_that_failed_goes_on_from_what_all_nodes_remember(tmp_path: Path) -> None:
    def fail(record, so_far) -> None:
        if record.round == 9:
            raise KeyError("power cut")

    def engine(resume: bool):
        return make("inproc", journal=tmp_path, every=2, resume=resume)

    settings = {"random_state": 0, "acceleration": False}
    with pytest.raises(KeyError, match="power cut"):
        infer(MODEL, SHARDS, Federation(RING, engine=engine(False)), observer=fail, **settings)
    resumed_engine = engine(True)
    resumed = infer(MODEL, SHARDS, Federation(RING, engine=resumed_engine), **settings)
    straight = infer(MODEL, SHARDS, Federation(RING, engine="inproc"), **settings)
    assert resumed.run.history[0].round in (9, 10)  # after a checkpoint of the round before
    assert resumed.run.history[-1].round == straight.run.history[-1].round
    np.testing.assert_allclose(resumed.posterior.pack(), straight.posterior.pack(), rtol=1e-9)
    resumed_engine.forget()
    assert not list(tmp_path.iterdir())
    with pytest.warns(UserWarning, match=r"no checkpoint of nodes \[0, 1, 2\]"):
        infer(MODEL, SHARDS, Federation(RING, engine=engine(True)), **settings)


def test_what_an_engine_cannot_do_is_refused() -> None:
    from dmfvi import Links

    with pytest.raises(ValueError, match="needs its endpoint"):
        open_engine("net")
    with pytest.raises(ValueError, match="simulated links need engine='local'"):
        open_engine("inproc", Links(loss=0.1))
    with pytest.raises(ValueError, match="'all-reduce' needs reliable links"):
        infer(MODEL, SHARDS, Federation(RING, "all-reduce", "inproc"))
