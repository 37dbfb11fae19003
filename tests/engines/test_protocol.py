"""The protocol by machine: simulated schedules, and planted mistakes that they must find."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

import simulation
from dmfvi.engines.net.epochs import NetworkNode
from dmfvi.engines.net.frames import ROUND, unpack
from dmfvi.engines.net.lifecycle import Lifecycle, Outcome
from dmfvi.engines.net.membership import Once, View

#: schedules of every run of the tests, in parts that can run beside each other; ``make schedules`` runs 10,000
N_SCHEDULES, PARTS = 400, 2
#: schedules within which a mistake must be found
FOUND_WITHIN = 10_000


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_gives_a_wrong_answer(part: int) -> None:
    size = N_SCHEDULES // PARTS
    found = simulation.explore(part * size, size)
    assert found["ended"] > size / 2  # most nodes end with everybody's data
    for kind in (*simulation.FAULTS, "refused"):
        assert found[kind]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1000))
def test_a_million_schedules(part: int) -> None:
    simulation.explore(1000 * part, 1000)


def test_a_failure_is_replayed_by_its_seed() -> None:
    first, again = simulation.simulate(17), simulation.simulate(17)
    assert first.log == again.log
    assert [p.outcome and p.outcome.result for p in first.processes] == [
        p.outcome and p.outcome.result for p in again.processes
    ]


# -- mistakes that the simulation must find -------------------------------------------------------


def epoch_without_data(view: View) -> int:
    digest = hashlib.sha256()
    for node in view.component:
        digest.update(f"{node} {view.entries[node].receives_from};".encode())
    return int.from_bytes(digest.digest()[:8], "little") >> 1


def come_back_with_any_data(view: View, known: Mapping[str, Any], neighbours: Any) -> View | None:
    """The checkpoint is not tied to the data: other data go by the name of those before."""
    start, attempt, digest = known["start"], known["attempt"], bytes.fromhex(known["digest"])
    share = view.own.share._replace(start=start, attempt=attempt, digest=digest)
    receives_from = tuple(known["receives_from"])
    return view._with(
        replace(view.own, version=known["version"], receives_from=receives_from, share=share)
    )


def finish_whatever_changes(node: NetworkNode) -> None:
    """Members may change while sums go on."""


def go_on_alone(original: Callable[..., Any]) -> Callable[..., Any]:
    def gathering(node: NetworkNode, wait_for: int, timeout: float, again: bool = False) -> Any:
        return original(node, 1 if again else wait_for, timeout, again)

    return gathering


def forget_who_is_missing(lifecycle: Lifecycle[float], outcome: Outcome[float]) -> Outcome[float]:
    return outcome


def name_whoever_is_here(lifecycle: Lifecycle[float], outcome: Outcome[float]) -> Outcome[float]:
    return replace(outcome, members=lifecycle.node.view.members)


def mix_epochs(original: Callable[..., None]) -> Callable[..., None]:
    """Messages of any epoch are taken as those of the present one."""

    def take(node: NetworkNode, peer: int, data: bytes) -> None:
        now, frame = node.epoch, unpack(data)
        node.epoch = frame.epoch if frame.kind == ROUND else now
        try:
            original(node, peer, data)
        finally:
            node.epoch = now

    return take


def begin_with_fewer(original: Callable[..., Any]) -> Callable[..., Any]:
    def gathering(node: NetworkNode, wait_for: int, timeout: float, again: bool = False) -> Any:
        return original(node, max(2, wait_for - 1), timeout, again)

    return gathering


def count_whoever_left(node: NetworkNode, wait_for: int) -> bool:
    """Also those who left before there was a fit."""
    here = len(node.view.component)
    left = sum(entry.left for entry in node.view.entries.values())
    return here >= wait_for or (here > 1 and here + left >= wait_for)


def planted_epoch(patch: pytest.MonkeyPatch) -> None:
    mistake = Once(epoch_without_data)
    mistake.name = "epoch"
    patch.setattr(View, "epoch", mistake)


MISTAKES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the epoch ignores data and versions": planted_epoch,
    "a node comes back with other data as if they were the same": lambda patch: patch.setattr(
        View, "restored", come_back_with_any_data
    ),
    "changes of the members go unnoticed in a fit": lambda patch: patch.setattr(
        NetworkNode, "check_epoch", finish_whatever_changes
    ),
    "a node goes on alone": lambda patch: patch.setattr(
        NetworkNode, "gathering", go_on_alone(NetworkNode.gathering)
    ),
    "nobody says who is missing": lambda patch: patch.setattr(
        Lifecycle, "_named", forget_who_is_missing
    ),
    "sums mix epochs": lambda patch: patch.setattr(
        NetworkNode, "_take", mix_epochs(NetworkNode._take)
    ),
    "a fit begins with fewer nodes than it was told to wait for": lambda patch: patch.setattr(
        NetworkNode, "gathering", begin_with_fewer(NetworkNode.gathering)
    ),
    "who left before the first fit is not waited for": lambda patch: patch.setattr(
        NetworkNode, "_enough", count_whoever_left
    ),
    "a result names who is here at the end": lambda patch: patch.setattr(
        Lifecycle, "_named", name_whoever_is_here
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistakes_are_found(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    MISTAKES[mistake](monkeypatch)
    monkeypatch.setattr(simulation, "TOO_LONG", 300.0)  # what does not end is found sooner
    with pytest.raises(simulation.Violation):
        simulation.explore(0, FOUND_WITHIN)
