"""Schedules that are written down, in the simulation: what became of them before, and what would by other rules."""

from __future__ import annotations

from typing import Any

import pytest

import simulation
from dmfvi import Network
from dmfvi.engines.net.endpoint import Timing
from dmfvi.engines.net.membership import Once, View

CHAIN = ((0, 1), (1, 2))


@pytest.fixture(autouse=True)
def short() -> Any:
    """As in the simulation of random schedules."""
    with simulation.shortcuts():
        yield


class Scripted(simulation.Simulation):
    """A schedule that is written down: some nodes, by default a chain of three, and what happens to them."""

    def __init__(self, script: Any, edges: Any = CHAIN, wait_for: int = 3) -> None:
        super().__init__(0)
        network = Network.from_edges(edges)
        self.n_nodes, self.edges, self.wait_for = network.n_nodes, list(edges), wait_for
        self.neighbours_of = [network.neighbours(node) for node in range(self.n_nodes)]
        self.loss = self.doubled = 0.0
        self.late = 0.001
        self.timings = [Timing(0.3, 3.0, 0.5, 4.0, 1.0)] * self.n_nodes
        self.disks = [simulation.Disk() for _ in range(self.n_nodes)]
        self.faults["scripted"] = 1
        self.script = script

    def run(self) -> None:
        self.script(self)
        for node in range(self.n_nodes):
            self.start(node, float(node + 1))
        self.play()
        self.check()

    def members(self) -> list[list[int] | None]:
        return [p.outcome and sorted(p.outcome.members) for p in self.processes]


@pytest.mark.parametrize("moment", [0.3, 0.505, 0.512])
def test_two_nodes_that_come_back_with_each_others_data(moment: float) -> None:
    """While they meet, while they fit, and while they wait for each other."""

    def script(run: Scripted) -> None:
        run.at(moment, lambda: run.swap(run.processes[0], 0.2))

    run = Scripted(script)
    run.run()
    assert run.members()[-2:] == [[0, 1, 2], [0, 1, 2]]
    named = {p.outcome.members[0].digest for p in run.processes if p.outcome}
    assert len(named) == 1


def test_the_only_link_of_a_node_that_is_silent_decides_and_says_so() -> None:
    def script(run: Scripted) -> None:
        run.at(0.3, lambda: run.crash(run.processes[2]))

    run = Scripted(script)
    run.run()
    assert run.members() == [[0, 1], [0, 1], None]
    for process in run.processes[:2]:
        assert process.outcome is not None
        assert [(each.node, each.why) for each in process.outcome.missing] == [(2, "silent")]


def test_a_neighbour_that_claims_too_much_costs_time_and_no_result() -> None:
    """Node 2 has gone, node 1 goes on to say that it receives from it, and node 0 comes back with other data."""

    def script(run: Scripted) -> None:
        def claim() -> None:
            run.processes[1].endpoint.timing = Timing(0.3, 100.0, 0.5, 4.0, 1.0)
            run.crash(run.processes[2])
            run.crash(run.processes[0])

        run.at(0.3, claim)
        run.at(0.6, lambda: run.start(0, 9.0))

    run = Scripted(script)
    run.run()
    assert run.members() == [None, None, None, None]
    assert "no sign of node 2" in str(run.processes[3].error)


@pytest.mark.parametrize("wait_for", [1, 3])
@pytest.mark.parametrize("moment", [0.3, 0.505, 0.512])
def test_two_machines_with_one_id(moment: float, wait_for: int) -> None:
    """A copied configuration with other data: a result has the data of the one or of the other in it, not of both."""

    def script(run: Scripted) -> None:
        run.at(moment, lambda: run.start(1, 9.0, simulation.Disk()))

    run = Scripted(script, wait_for=wait_for)
    run.run()
    wanted = {simulation.pooled(data) for data in ((1.0, 2.0, 3.0), (1.0, 9.0, 3.0), (9.0,))}
    outcomes = [process.outcome for process in run.processes if process.outcome]
    assert len(outcomes) >= 3
    for outcome in outcomes:
        assert min(abs(outcome.result - each) for each in wanted) < 1e-9
        assert len(outcome.members) == 3 or outcome.missing


def test_who_comes_late_does_not_wait_for_those_who_have_left() -> None:
    """Node 2 leaves, and node 0 comes back with other data: three can never be there again, and none is lost."""

    def script(run: Scripted) -> None:
        run.at(0.505, lambda: run.leave(run.processes[2]))
        run.at(0.506, lambda: run.crash(run.processes[0]))
        run.at(0.7, lambda: run.start(0, 9.0))

    run = Scripted(script)
    run.run()
    assert run.members() == [None, [0, 1], None, [0, 1]]
    for process in (run.processes[1], run.processes[3]):
        assert process.outcome is not None
        assert [(each.node, each.why) for each in process.outcome.missing] == [(2, "left")]


def test_who_left_before_the_first_fit_is_waited_for() -> None:
    """Its data were in no result, and nobody has decided to do without them."""

    def script(run: Scripted) -> None:
        run.at(0.2, lambda: run.leave(run.processes[2]))

    run = Scripted(script)
    run.run()
    assert run.members() == [None, None, None]
    for process in run.processes[:2]:
        assert "waited 15 seconds for 3 nodes and met [0, 1]; have left: [2]" in str(process.error)


@pytest.mark.parametrize("alone", [True, False])
def test_who_has_fitted_alone_has_left_no_fit_of_others(alone: bool) -> None:
    """Node 1 need not wait for anybody; where it has met nobody, its fit was not the one that others wait for."""

    def script(run: Scripted) -> None:
        if alone:
            run.cut.add(frozenset((0, 1)))
        run.at(0.505, lambda: run.leave(run.processes[1]))

    run = Scripted(script, edges=((0, 1),), wait_for=1)
    run.run()
    entry = run.processes[1].endpoint.view.own
    assert entry.left
    assert entry.left_a_fit is not alone


# -- who decides that a node is removed -----------------------------------------------------------

#: node 0 has five neighbours, of which 1, 2, 3 and 5 are linked among themselves; node 4 has no other link
BRIDGE = ((0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 2), (2, 3), (3, 5))


def most_links_of_node_0_are_down(run: Scripted) -> None:
    run.cut |= {frozenset((0, node)) for node in (1, 2, 3)}


def component_by_majority(view: View) -> tuple[int, ...]:
    """What is reached when a node is out as soon as most of its neighbours do not receive from it."""
    entries = view.entries

    def is_out(node: int) -> bool:
        voters = [e for n, e in entries.items() if n != node and node in e.peers]
        return 2 * sum(node not in e.receives_from for e in voters) > len(voters)

    reached, todo = {view.node}, [] if is_out(view.node) else [view.node]
    while todo:
        here = todo.pop()
        for there in set(entries[here].receives_from) & set(entries) - reached:
            if here in entries[there].receives_from and not is_out(there):
                reached.add(there)
                todo.append(there)
    return tuple(sorted(reached))


def test_one_link_that_works_keeps_a_node_and_all_behind_it() -> None:
    run = Scripted(most_links_of_node_0_are_down, BRIDGE, wait_for=4)
    run.run()
    assert run.members() == [list(range(6))] * 6
    assert not any(process.outcome.missing for process in run.processes if process.outcome)


def test_a_majority_would_lose_nodes_that_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0, and node 4, of which nobody has said a word, are lost to a network that is connected."""
    rule = Once(component_by_majority)
    rule.name = "component"
    monkeypatch.setattr(View, "component", rule)
    run = Scripted(most_links_of_node_0_are_down, BRIDGE, wait_for=4)
    run.run()
    four = [1, 2, 3, 5]
    assert run.members() == [None, four, four, four, None, four]
    for node in (0, 4):
        assert "waited 15 seconds" in str(run.processes[node].error)
