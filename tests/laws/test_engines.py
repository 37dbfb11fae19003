"""Laws over ENGINES: the local engine's answer, an observer ends a run, and a run that ended early goes on.

A new engine needs one entry in CASES: a function that runs the fits of tests/engine_runs.py on it.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine_runs
import sessions
from dmfvi.engines import ENGINES, make
from engine_runs import EARLY, EVERY_VARIANT, NETWORK, ONE_OF_EACH, VARIANTS, Outcome
from mpi_runs import run as run_ranks
from processes import free_ports

PROGRAM = engine_runs.__file__
Outcomes = dict[str, list[Outcome]]


def keeps_a_journal(name: str) -> bool:
    """Whether the engine can resume a run; a simulation cannot."""
    module, _, class_name = ENGINES[name].partition(":")
    return "journal" in inspect.signature(getattr(import_module(module), class_name)).parameters


def in_this_process(name: str, folder: Path) -> Outcomes:
    """All nodes here: the engine made by its name."""

    @contextmanager
    def opened(_: str, journal: Path | None, resume: bool) -> Iterator[Any]:
        kept = {"journal": journal, "every": 2, "resume": resume} if journal else {}
        yield make(name, **(kept if keeps_a_journal(name) else {}))

    return engine_runs.fit_all(opened, range(NETWORK.n_nodes), folder)


def on_ranks(name: str, folder: Path) -> Outcomes:
    """One rank a node, under mpiexec."""
    done = run_ranks(folder, NETWORK.n_nodes, PROGRAM, name, str(folder))
    assert done.returncode == 0, done.stderr
    return engine_runs.load(folder)


def on_loopback(name: str, folder: Path) -> Outcomes:
    """One process a node, over Zenoh: sockets and processes are what "inproc" leaves out."""
    ports = [str(port) for port in free_ports(NETWORK.n_nodes)]
    with ExitStack() as stack:
        nodes = []
        for node in range(NETWORK.n_nodes):
            said = stack.enter_context((folder / f"said-{node}.txt").open("w+"))
            command = [sys.executable, PROGRAM, name, str(folder), str(node), *ports]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            nodes.append(
                (stack.enter_context(sessions.started(command, stderr=said, env=environment)), said)
            )
        for process, said in nodes:
            process.wait(sessions.HUNG)
            assert process.returncode == 0, Path(said.name).read_text()
    return engine_runs.load(folder)


#: engine name -> runs all fits on it and gives every node's end of them
CASES: dict[str, Callable[[str, Path], Outcomes]] = {
    "local": in_this_process,
    "inproc": in_this_process,
    "mpi": on_ranks,
    "net": on_loopback,
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What all engines are compared with."""
    return in_this_process("local", tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module", params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> str:
    """Every engine that is enrolled."""
    name: str = request.param
    check_case(name)
    return name


@pytest.fixture(scope="module")
def outcomes(engine: str, local: Outcomes, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What the engine makes of all fits, run once; after the local ones, which compile kernels for all processes."""
    return CASES[engine](engine, tmp_path_factory.mktemp(engine))


def check_case(name: str) -> None:
    if name not in CASES:
        pytest.fail(
            f"engine {name!r} is enrolled in ENGINES and has no case: add one to CASES in {__file__}, "
            "a function that runs the fits of tests/engine_runs.py on it"
        )


def test_it_gives_the_local_engines_answer(outcomes: Outcomes, local: Outcomes) -> None:
    for name in ("PoissonGamma", "LinearRegression", "LogisticRegression"):
        for found, wanted in zip(outcomes[name], local[name], strict=True):
            assert found.converged, name
            np.testing.assert_allclose(
                found.natural, wanted.natural, rtol=1e-9, atol=1e-12, err_msg=name
            )


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_it_gives_the_local_engines_bits(name: str, outcomes: Outcomes, local: Outcomes) -> None:
    """At every node: an exact sum does not depend on how it travels."""
    check_bits(name, outcomes, local)


def check_bits(name: str, outcomes: Outcomes, local: Outcomes) -> None:
    wanted = local[f"bits of {name}"][0]
    assert wanted.natural.size > 1
    for found in outcomes[f"bits of {name}"]:
        assert found.converged
        assert found.natural.tobytes() == wanted.natural.tobytes(), name


@pytest.mark.slow
def test_every_variant_has_the_local_engines_bits(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EVERY_VARIANT, "1")
    folders = [tmp_path / "local", tmp_path / engine]
    for folder in set(folders):
        folder.mkdir()
    local = in_this_process("local", folders[0])
    outcomes = CASES[engine](engine, folders[1])
    for name in VARIANTS:
        check_bits(name, outcomes, local)


def test_an_observer_ends_the_run(outcomes: Outcomes) -> None:
    """At all nodes in the same round, at most a diameter of rounds after the next message."""
    rounds = {outcome.n_rounds for outcome in outcomes["observed"]}
    assert len(rounds) == 1
    assert EARLY <= rounds.pop() <= EARLY + 1 + NETWORK.diameter
    assert not any(outcome.converged for outcome in outcomes["observed"])


def test_a_run_that_ended_early_goes_on(engine: str, outcomes: Outcomes) -> None:
    if not keeps_a_journal(engine):
        pytest.skip(f"{engine} keeps no journal")
    for stopped, resumed, straight in zip(
        outcomes["stopped"], outcomes["resumed"], outcomes["LogisticRegression"], strict=True
    ):
        assert stopped.n_rounds == EARLY
        assert not stopped.converged
        assert resumed.converged
        assert resumed.n_rounds <= straight.n_rounds - EARLY + 1  # MPI may repeat the last round
        np.testing.assert_allclose(resumed.natural, straight.natural, rtol=1e-9, atol=1e-12)


def test_it_says_whether_it_is_reliable(engine: str) -> None:
    module, _, class_name = ENGINES[engine].partition(":")
    assert hasattr(getattr(import_module(module), class_name), "reliable")


def test_an_engine_without_a_case_fails_the_law() -> None:
    with pytest.raises(
        pytest.fail.Exception, match="'cloud' is enrolled in ENGINES and has no case"
    ):
        check_case("cloud")
