"""The exactness law on the graphs that real networks have: every node ends with the same bits, and they are pooled's."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from dmfvi import (
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPCA,
    Federation,
    Links,
    Network,
    consensus,
)
from graphs import GRAPHS

RNG = np.random.default_rng(0)
ROWS = np.sort(RNG.normal(size=(300, 4)), axis=0) @ np.diag([3.0, 2.0, 1.0, 0.5])
ROWS += RNG.normal(size=(300, 4))
HOLES = np.where(RNG.random(ROWS.shape) < 0.2, np.nan, ROWS)
TARGET = ROWS @ [1.0, -1.0, 0.5, 0.0] + RNG.normal(size=300)
FITS: dict[str, Any] = {
    "pca": lambda **k: (BayesianPCA(2, random_state=0, **k), (HOLES,)),
    "linear": lambda **k: (BayesianLinearRegression(**k), (ROWS, TARGET)),
    "logistic": lambda **k: (BayesianLogisticRegression(**k), (ROWS, (TARGET > 0).astype(int))),
    "mixture": lambda **k: (BayesianGaussianMixture(2, random_state=0, **k), (HOLES,)),
}


def uneven(data: Any, n_nodes: int) -> list[np.ndarray]:
    """One row at every node but the last, which has the rest."""
    return np.split(data, range(1, n_nodes))


def named(graph: str) -> Network:
    return Network.from_networkx(GRAPHS[graph], graph)


@cache
def pooled(name: str) -> Any:
    model, data = FITS[name]()
    return model.fit(*data)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", FITS)
def test_every_node_has_the_pooled_posterior_to_the_bit(name: str, graph: str) -> None:
    """Shards of one row beside one of nearly all rows, rows sorted; as many sweeps as one machine makes."""
    network = named(graph)
    model, data = FITS[name](network=network)
    model.fit(*(uneven(part, network.n_nodes) for part in data))
    reference = pooled(name)
    assert model.converged_
    assert model.n_iter_ == reference.n_iter_
    assert model.posterior_.distance(reference.posterior_) < 1e-9
    assert model.lower_bound_ == pytest.approx(reference.lower_bound_, rel=1e-10)
    bits = {_bits(posterior) for posterior in model.node_posteriors_}
    assert len(bits) == 1


def _bits(posterior: Any) -> bytes:
    if not hasattr(posterior, "natural"):  # of a regression: its numbers
        return b"".join(_numbers(part) for part in _parts(posterior))
    natural = posterior.natural() if callable(posterior.natural) else posterior.pack()
    return np.asarray(natural).tobytes()


def _parts(posterior: Any) -> list[Any]:
    return list(vars(posterior).values()) if hasattr(posterior, "__dict__") else list(posterior)


def _numbers(part: Any) -> bytes:
    if hasattr(part, "pack"):
        return bytes(part.pack().tobytes())
    return np.asarray(part).tobytes() if isinstance(part, np.ndarray | float) else b""


@pytest.mark.parametrize("name", ["pca", "mixture"])
def test_nodes_that_lack_whole_features_have_the_pooled_posterior(name: str) -> None:
    network = named("lollipop 12, 12")
    shards = [part.copy() for part in np.array_split(ROWS, network.n_nodes)]
    for node, part in enumerate(shards):
        part[:, [node % 4, (node + 1) % 4]] = np.nan
    whole = FITS[name]()[0].fit(np.concatenate(shards))
    model = FITS[name](network=network)[0].fit(shards)
    assert model.converged_
    assert model.posterior_.distance(whole.posterior_) < 1e-9
    assert model.lower_bound_ == pytest.approx(whole.lower_bound_, rel=1e-10)
    assert len({_bits(posterior) for posterior in model.node_posteriors_}) == 1


@pytest.mark.parametrize("transport", ["flood", "tree", "all-reduce"])
@pytest.mark.parametrize("graph", ["lollipop 12, 12", "3-regular of 20", "binary tree of 15"])
def test_the_way_a_sum_travels_does_not_change_a_bit(graph: str, transport: str) -> None:
    network = named(graph)
    rule = consensus.make("exact-sum", network, transport=transport)
    bits = []
    for federation in (Federation(network, rule), Federation(network)):
        model, data = FITS["pca"](network=federation)
        bits.append(_bits(model.fit(*(uneven(d, network.n_nodes) for d in data)).posterior_))
    assert bits[0] == bits[1]


def test_rounds_are_sweeps_times_diameter() -> None:
    """Nothing can be faster: news needs a round for each hop."""
    for graph in ("3-regular of 20", "binary tree of 15", "lollipop 12, 12"):
        network = named(graph)
        rule = consensus.make("exact-sum", network, transport="flood")
        model, data = FITS["logistic"](network=Federation(network, rule))
        model.fit(*(uneven(part, network.n_nodes) for part in data))
        assert model.n_rounds_ == model.n_iter_ * network.diameter


#: rounds per sweep of flooding with acknowledgements, in a simulation, at 10, 30 and 50 % loss
SIMULATED = {
    Network.ring(5): (2.8, 3.8, 6.2),
    Network.chain(6): (5.9, 8.2, 11.2),
    Network.chain(10): (10.4, 13.8, 20.5),
    Network.star(12): (3.6, 6.1, 10.6),
    named("lollipop 12, 12"): (15.7, 19.6, 29.1),
    named("3-regular of 20"): (6.4, 8.1, 11.0),
    named("Barabasi-Albert of 50"): (5.7, 7.7, 10.2),
    named("grid 6 x 6"): (10.1, 11.5, 14.3),
}


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(n, marks=[] if n.n_nodes <= 20 else [pytest.mark.slow], id=str(n))
        for n in SIMULATED
    ],
)
@pytest.mark.parametrize(("place", "loss"), list(enumerate((0.1, 0.3, 0.5))))
def test_lost_messages_cost_rounds_and_not_a_bit(network: Network, place: int, loss: float) -> None:
    lossy = Federation(network, links=Links(loss=loss, seed=2))
    fits = []
    for where in (lossy, network):
        model, data = FITS["pca"](network=where)
        fits.append(model.fit(*data))
    assert _bits(fits[0].posterior_) == _bits(fits[1].posterior_)
    assert len({_bits(p) for p in fits[0].node_posteriors_}) == 1
    assert fits[0].n_rounds_ <= 1.5 * SIMULATED[network][place] * fits[0].n_iter_


@pytest.mark.parametrize(
    "links",
    [
        Links(delay=4, seed=2),
        Links(pauses={1: [(0, 60)]}),
        Links(pauses={0: [(5, 30)], 3: [(8, 20)]}),
        Links(loss={(0, 1): 0.9, (2, 1): 0.9}, seed=4),
        Links(loss=0.3, delay=3, pauses={2: [(10, 40)]}, seed=5),
    ],
    ids=str,
)
@pytest.mark.parametrize("transport", ["flood", "tree"])
def test_late_messages_and_pauses_cost_rounds_and_not_a_bit(links: Links, transport: str) -> None:
    network = Network.grid(2, 3)
    rule = consensus.make("exact-sum", network, transport=transport)
    fits = []
    for where in (Federation(network, rule, links=links), network):
        model, data = FITS["pca"](network=where)
        fits.append(model.fit(*data))
    assert fits[0].converged_
    assert {_bits(p) for p in fits[0].node_posteriors_} == {_bits(fits[1].posterior_)}


@cache
def precise(name: str) -> Any:
    model, data = FITS[name](tol=1e-10)
    return model.fit(*data).posterior_


#: where sweeps take few rounds, so that fits with many sweeps are in every run
SHORT = ("binary tree of 15", "3-regular of 20")


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        pytest.param(
            name,
            graph,
            marks=[pytest.mark.slow] if name in ("mixture", "pca") and graph not in SHORT else [],
        )
        for name in FITS
        for graph in GRAPHS
    ],
)
def test_bregman_admm_finds_the_pooled_posterior_too(name: str, graph: str) -> None:
    """By its exact schedule where rounding does not grow in it, else by Chebyshev rounds."""
    network = named(graph)
    model, data = FITS[name](network=Federation(network, "bregman-admm"))
    shards = [uneven(part, network.n_nodes) for part in data]
    if (
        name == "logistic" and graph != "binary tree of 15"
    ):  # nodes that agree up to rounding are not enough
        with pytest.raises(ValueError, match="use consensus='exact-sum'"):
            model.fit(*shards)
        return
    model.fit(*shards)
    assert model.converged_
    assert max(p.distance(precise(name)) for p in model.node_posteriors_) < 1e-7


def test_bregman_admm_refuses_a_network_before_it_starts() -> None:
    """Where a sweep would need more rounds than rounding allows; a rule that was made already is checked too."""
    network = Network.chain(60)
    for rule in ("bregman-admm", consensus.BregmanADMM()):
        model, data = FITS["linear"](network=Federation(network, rule))
        with pytest.raises(
            ValueError, match=r"needs \d+ rounds a sweep .* use consensus='exact-sum'"
        ):
            model.fit(*data)
    consensus.make("bregman-admm", network, rounds=10)  # as asked for
    consensus.make("bregman-admm", Network.chain(20))


def test_a_fit_that_has_not_converged_says_so_wherever_it_is_shown() -> None:
    model, data = FITS["pca"](network=Network.ring(3), max_iter=2)
    with pytest.warns(UserWarning, match="not converged after 2 iterations"):
        model.fit(*data)
    for text in (repr(model), model.summary()):
        assert "NOT converged: relative change" in text
    assert "NOT" not in repr(pooled("pca"))
    assert "converged" in pooled("pca").summary()


def test_statistics_without_a_sum_are_named() -> None:
    from dmfvi import infer
    from dmfvi.models import LinearRegression
    from dmfvi.models.regression.linear import RegressionShard

    huge = [RegressionShard(np.full((2, 1), 1e200), np.ones(2))] * 3
    with (
        np.errstate(over="ignore"),
        pytest.raises((OverflowError, ValueError), match=r"finite|inf"),
    ):
        infer(LinearRegression(np.ones(1)), huge, Network.ring(3))


def test_long_vectors_travel_by_tree_where_short_ones_are_flooded() -> None:
    """All nodes find the same transport from the vectors' length, and a fit reports what it compared."""
    network = named("3-regular of 20")
    rule = consensus.make("exact-sum", network)
    for size, way in ((10, "flood"), (100_000, "tree")):
        states = [rule.start(rule.local_view(network, i), np.zeros(size)) for i in range(20)]
        assert {state.transport for state in states} == {way}
        facts = rule.facts(rule.local_view(network, 0), size)
        assert facts["transport"] == way
        assert facts["cost"]["tree"]["bytes"] < facts["cost"]["flood"]["bytes"]
        assert facts["rounds"] == facts["cost"][way]["rounds"]


@pytest.mark.parametrize("graph", ["binary tree of 15", "3-regular of 20"])
@pytest.mark.parametrize("transport", ["flood", "tree"])
def test_a_history_has_the_bytes_that_the_cost_model_expects(graph: str, transport: str) -> None:
    """Within a factor of three of those that are sent; without exact sums there is no cost model."""
    network = named(graph)
    rule = consensus.make("exact-sum", network, transport=transport)
    history = FITS["pca"](network=Federation(network, consensus=rule))[0].fit(HOLES).history_
    ratio = history["expected_bytes"].sum() / history["bytes_sent"].sum()
    assert 1 / 3 < ratio < 3
    assert len(history["expected_bytes"]) == len(history["round"])
    assert "expected_bytes" not in pooled("pca").history_
