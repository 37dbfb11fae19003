"""What nodes agreed on is what they end with, whatever stirs them after the round to stop was named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dmfvi import Network
from dmfvi.consensus import BregmanADMM, Place
from dmfvi.engines.net import _farewell
from dmfvi.models.base import Average
from dmfvi.node import NO_STOP, Job, NodeState, message_of, start_node, step_node


def stirred(state: NodeState) -> NodeState:
    """A node whose links have just become worse: its dual step halves before the others know."""
    late = state.rule.lateness
    worse = replace(late, version=late.version + 1, level=8 * late.level)
    return state._replace(rule=state.rule._replace(lateness=worse))


@pytest.mark.parametrize("rounds_per_sweep", ["auto", 1])
@pytest.mark.parametrize("network", [Network.ring(5), Network.chain(9)], ids=["ring", "chain"])
def test_a_node_stirred_after_the_stop_was_named(network: Network, rounds_per_sweep) -> None:
    job = Job(Average(), BregmanADMM(rounds=rounds_per_sweep), tol=1e-6)
    rng = np.random.default_rng(0)
    vectors = [rng.normal(3.0, 1.0, 4) for _ in range(network.n_nodes)]
    nodes = [start_node(job, Place.of(network, i), v, None) for i, v in enumerate(vectors)]
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
        last = _farewell(job, node)
        told = job.rule.told(last.payload, expected)
        assert last.quiet > 0
        np.testing.assert_allclose(told, expected, rtol=1e-6)
