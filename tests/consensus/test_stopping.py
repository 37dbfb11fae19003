"""What nodes agreed on is what they end with, whatever stirs them after the round to stop was named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmfvi import Network
from dmfvi.consensus import BregmanADMM
from dmfvi.consensus.stopping import NO_STOP
from dmfvi.inference.model import Average, Model, Update
from dmfvi.node import (
    Job,
    NodeState,
    ask_to_stop,
    final_message,
    message_of,
    start_node,
    step_node,
)


def stirred(state: NodeState) -> NodeState:
    """A node whose links have just become worse: its dual step halves before the others know."""
    late = state.rule.staleness
    worse = replace(late, version=late.version + 1, level=8 * late.level)
    return state._replace(rule=state.rule._replace(staleness=worse))


@pytest.mark.parametrize("rounds_per_sweep", ["auto", 1])
@pytest.mark.parametrize("network", [Network.ring(5), Network.chain(9)], ids=["ring", "chain"])
def test_a_node_stirred_after_the_stop_was_named(network: Network, rounds_per_sweep) -> None:
    job = Job(Average(), BregmanADMM(rounds=rounds_per_sweep), tol=1e-6)
    rng = np.random.default_rng(0)
    vectors = [rng.normal(3.0, 1.0, 4) for _ in range(network.n_nodes)]
    nodes = [
        start_node(job, job.rule.local_view(network, i), v, None) for i, v in enumerate(vectors)
    ]
    stirring, rounds, upset = False, 0, 0.0
    while not all(node.done for node in nodes):
        rounds += 1
        assert rounds < 2000
        said = [message_of(job, node) for node in nodes]
        for i, node in enumerate(nodes):
            arrives = rounds > 20 or rng.random() > 0.3  # lost messages bring the edge form
            inbox = {j: said[j] for j in network.neighbours(i) if arrives}
            if not node.done:
                nodes[i], report = step_node(job, node, inbox)
                upset = max(upset, report.disagreement if stirring else 0.0)
        if not stirring and any(node.stop_at != NO_STOP for node in nodes):
            stirring = True
            nodes[0] = stirred(nodes[0])
    assert upset > 1e-3  # or this would prove nothing
    expected = np.sum(vectors, axis=0)
    for node in nodes:
        np.testing.assert_allclose(node.belief, expected, rtol=1e-6)
        # and what it tells one that comes too late
        last = final_message(job, node)
        told = job.rule.final_estimate(last.payload, expected)
        assert last.converged_rounds > 0
        np.testing.assert_allclose(told, expected, rtol=1e-6)


class Saddle(Model):
    """x <- x + x (1 - x) / 2 at every node: calm at 0 for a while, then off to 1. The belief is 1 + x."""

    def start(self, shard: float, rng: np.random.Generator) -> float:
        return 1 + 4e-9

    def local_step(self, shard: float, belief: float) -> np.ndarray:
        x = belief - 1.0
        return np.array([shard * (1.0 + x + 0.5 * x * (1.0 - x))])

    def absorb(self, total: np.ndarray, own: np.ndarray, belief: float) -> Update:
        return Update(float(total[0]), float("nan"))

    def change(self, new: float, old: float) -> float:
        return abs(new - old) / abs(new)


CHAIN = Network.chain(9)
LEAVING = Job(Saddle(), BregmanADMM(), tol=1e-6)


def leaving_a_saddle(ask_at: int | None = None) -> tuple[list[NodeState], list[NodeState]]:
    """The nodes at their end, and as they were when calm at the saddle."""
    nodes = [
        start_node(LEAVING, LEAVING.rule.local_view(CHAIN, i), 1 / 9, 1 + 4e-9) for i in range(9)
    ]
    at_saddle: list[NodeState] = []
    for number in range(1, 2000):
        said = [message_of(LEAVING, node) for node in nodes]
        for i, node in enumerate(nodes):
            if not node.done:
                inbox = {j: said[j] for j in CHAIN.neighbours(i)}
                nodes[i], _ = step_node(LEAVING, node, inbox)
        if not at_saddle and nodes[0].converged:
            at_saddle = list(nodes)
        if number == ask_at:
            nodes = [ask_to_stop(node) for node in nodes]
        if all(node.done for node in nodes):
            break
    assert at_saddle
    assert at_saddle[0].detection is not None
    assert at_saddle[0].detection.agreed is not None
    return nodes, at_saddle


def test_a_wish_to_stop_does_not_bring_back_a_calm_of_long_ago() -> None:
    nodes, _ = leaving_a_saddle(ask_at=480)
    for node in nodes:
        assert node.belief == pytest.approx(2.0, abs=1e-3)
        assert not node.converged


def test_a_node_that_was_away_since_its_calm_knows_that_it_missed_the_end() -> None:
    """It comes back from a checkpoint of the saddle when the others have stopped far from it."""
    nodes, at_saddle = leaving_a_saddle()
    said = message_of(LEAVING, nodes[1])
    late = at_saddle[0]
    while not late.done:
        late, _ = step_node(LEAVING, late, {1: said})
    assert not late.converged  # so the engine asks the others what was agreed on
    assert final_message(LEAVING, late).converged_rounds == 0
