"""Laws of consensus rules: every node's estimate becomes the average of all targets."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from dmfvi import Links, Network
from dmfvi.consensus import RULES, BregmanADMM, ConsensusRule, MomentsADMM
from dmfvi.consensus.bregman_admm import Schedule
from dmfvi.consensus.mixing import design_mixing
from dmfvi.engines.base import Task
from dmfvi.engines.local import LocalEngine
from dmfvi.inference.model import Average
from dmfvi.node import Job, message_of, start_node, step_node

NETWORKS = [
    Network.ring(2),
    Network.ring(5),
    Network.chain(6),
    Network.star(7),
    Network.complete(5),
    Network.grid(3, 3),
    Network.random_geometric(12, seed=1),
    Network.small_world(16, seed=2),
    Network.from_networkx(nx.lollipop_graph(5, 3)),
]
N_GAUSSIANS = 3
#: rules that agree on sums of any vectors
SUM_RULES = sorted(set(RULES) - {"moments-admm", "parameter-admm", "flood"})


def make(name: str) -> ConsensusRule:
    """A rule by name; posterior deviations in these tests are about 0.15 / sqrt(V / 5)."""
    return (
        MomentsADMM(n_scalars=N_GAUSSIANS, unit=0.8) if name == MomentsADMM.name else RULES[name]()
    )


def targets(n: int, seed: int = 0) -> list[np.ndarray]:
    """Precisions, means times precisions, and three free numbers."""
    rng = np.random.default_rng(seed)
    scale = 5.0 / n  # the sum over nodes is what the posterior sees
    return [
        np.concatenate(
            [
                scale * rng.uniform(2, 3, N_GAUSSIANS),
                rng.normal(size=N_GAUSSIANS),
                rng.normal(size=3),
            ]
        )
        for _ in range(n)
    ]


def agree(rule: ConsensusRule, network: Network, links: Links | None = None, tol: float = 1e-9):
    vectors = targets(network.n_nodes)
    job = Job(Average(), rule, tol=tol)
    run = LocalEngine(links).run(Task(job, network, vectors, [None] * len(vectors), 20_000))
    return run, np.sum(vectors, axis=0)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
@pytest.mark.parametrize("name", SUM_RULES)
def test_every_node_finds_the_sum(name: str, network: Network) -> None:
    run, total = agree(make(name), network)
    assert run.converged
    for estimate in run.beliefs:
        np.testing.assert_allclose(estimate, total, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "network",
    [Network.ring(2), Network.ring(5), Network.chain(5), Network.star(5), Network.complete(5)],
    ids=lambda n: n.name,
)
def test_the_papers_form_finds_the_sum_on_small_networks(network: Network) -> None:
    """Means and variances: the precision of the result is the sum of all precisions, not its V-th part.

    On larger or more uneven networks its duals can cycle, which the natural form's cannot.
    """
    run, total = agree(make(MomentsADMM.name), network, tol=1e-7)
    assert run.converged
    for estimate in run.beliefs:
        np.testing.assert_allclose(estimate, total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("penalty", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("relaxation", [1.0, 1.6])
def test_a_fixed_penalty_changes_the_speed_only(penalty: float, relaxation: float) -> None:
    run, total = agree(BregmanADMM(penalty, relaxation=relaxation), Network.ring(6))
    assert run.converged
    np.testing.assert_allclose(run.beliefs, [total] * 6, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    "links",
    [
        Links(loss=0.1),
        Links(loss=0.3, seed=1),
        Links(loss=0.5, seed=2),
        Links(delay=3),
        Links(delay=10, seed=3),
        Links(loss={(0, 1): 0.8}, seed=4),
        Links(pauses={2: [(5, 30)]}),
        Links(loss=0.2, delay=2, pauses={0: [(10, 20)]}, seed=5),
    ],
    ids=str,
)
def test_lost_and_late_messages_cost_rounds_never_correctness(links: Links) -> None:
    run, total = agree(BregmanADMM(), Network.ring(10), links)
    assert run.converged
    np.testing.assert_allclose(run.beliefs, [total] * 10, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "name", sorted(n for n in [*SUM_RULES, "moments-admm"] if not make(n).tolerates_loss)
)
def test_rules_that_need_every_message_refuse_lossy_links(name: str) -> None:
    with pytest.raises(ValueError, match="needs reliable links"):
        agree(make(name), Network.ring(5), Links(loss=0.1))


def test_adding_up_increments_would_stay_wrong() -> None:
    """The law can fail: without cumulative sums, lost messages bias the answer for good."""
    rng = np.random.default_rng(0)
    t = rng.normal(size=10)
    ring = Network.ring(10)
    belief, dual = t.copy(), np.zeros(10)
    for _ in range(400):
        gap, middle = np.zeros(10), np.zeros(10)
        for i in range(10):
            for j in ring.neighbours(i):
                if rng.random() > 0.3:
                    gap[i] += 0.5 * (belief[i] - belief[j])
                middle[i] += 0.5 * (belief[i] + belief[j])
        dual += gap
        belief = (t - dual + middle) / 3.0
    assert np.abs(belief - t.mean()).max() > 1e-2


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
def test_mixing_keeps_the_average_and_damps_the_rest(network: Network) -> None:
    for rounds in (None, 1, 3, 30):
        mixing = design_mixing(network.distinct_eigenvalues, rounds)
        x = np.random.default_rng(0).normal(size=network.n_nodes)
        before, now = x, x
        for a, b in zip(mixing.gradient, mixing.momentum, strict=True):
            before, now = now, now + b * (now - before) - a * network.laplacian @ now
        assert now.mean() == pytest.approx(x.mean(), abs=1e-9)
        spread = np.linalg.norm(x - x.mean())
        assert np.linalg.norm(now - now.mean()) <= (mixing.damping + 1e-9) * spread * 1.0001


def test_the_schedule_is_the_mixing_in_dual_form() -> None:
    """lambda of the scheduled ADMM equals the mixed targets, round by round."""
    network = Network.chain(7)
    mixing = design_mixing(network.distinct_eigenvalues, 4)
    schedule = Schedule.of(mixing)
    t = np.random.default_rng(0).normal(size=7)
    before, now = t, t
    belief, dual = t, np.zeros(7)
    for m in range(4):
        a, b = mixing.gradient[m], mixing.momentum[m]
        before, now = now, now + b * (now - before) - a * network.laplacian @ now
        dual = dual + schedule.dual_step[m] * network.laplacian @ belief
        g = schedule.anchor[m]
        belief = (t - dual + (g - 1) * belief) / g
        np.testing.assert_allclose(belief, now, atol=1e-12)


def test_steps_are_pure() -> None:
    """The same state and inbox give the same result, and neither is changed."""
    network = Network.ring(3)
    job = Job(Average(), BregmanADMM())
    nodes = [
        start_node(job, job.rule.local_view(network, i), v, None) for i, v in enumerate(targets(3))
    ]
    inbox = {j: message_of(job, nodes[j]) for j in network.neighbours(0)}
    first, _ = step_node(job, nodes[0], inbox)
    second, _ = step_node(job, nodes[0], inbox)
    np.testing.assert_array_equal(first.rule.belief, second.rule.belief)
    assert nodes[0].round == 0
    assert first.round == 1


def test_all_nodes_stop_in_the_same_round() -> None:
    network = Network.chain(9)
    vectors = targets(9)
    job = Job(Average(), BregmanADMM(), tol=1e-6)
    nodes = [
        start_node(job, job.rule.local_view(network, i), v, None) for i, v in enumerate(vectors)
    ]
    for _ in range(500):
        messages = [message_of(job, node) for node in nodes]
        nodes = [
            step_node(job, node, {j: messages[j] for j in network.neighbours(i)})[0]
            for i, node in enumerate(nodes)
        ]
        if any(node.done for node in nodes):
            break
    assert all(node.done for node in nodes)


@pytest.mark.parametrize("bad", [0, -1.0, "often"])
def test_a_bad_penalty_is_named(bad: object) -> None:
    with pytest.raises(ValueError, match=f"penalty must be.*{bad!r}"):
        BregmanADMM(bad)  # type: ignore[arg-type]


def test_bad_links_are_named() -> None:
    with pytest.raises(ValueError, match="loss must lie"):
        Links(loss=1.0)
    with pytest.raises(ValueError, match="delay"):
        Links(delay=-1)
