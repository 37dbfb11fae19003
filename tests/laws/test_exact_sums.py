"""The exactness law of the default rule, over all models and the graphs that real networks have."""

from __future__ import annotations

from functools import cache
from typing import Any

import networkx as nx
import pytest

from dmfvi import Network
from dmfvi.inference.result import Inference
from dmfvi.inference.session import Session
from dmfvi.storage.structured import digest_of
from graphs import GRAPHS
from helpers import distance
from model_cases import CASES, Case

#: models whose beliefs follow from the sum of statistics alone: the others refuse the rule
EXACT = [name for name in CASES if CASES[name].draw(0, 2).model.beliefs_alike]
#: in every run, a dense part with a tail: the large graphs are in the slow tier
SMALL = {"lollipop 4, 4": nx.lollipop_graph(4, 4)}


def fitted(case: Case, model: Any, shards: list[Any], network: Network | None) -> Inference:
    settings: dict[str, Any] = {"random_state": 0, "max_iter": 20_000}
    if case.n_iter is not None:
        settings |= {"tol": None, "max_iter": case.n_iter}
    fresh = [model.refreshed(shard) for shard in shards]
    return Session.open(network, "exact-sum", {}).fit(model, fresh, **settings)


@cache
def pooled(name: str, n_nodes: int) -> Inference:
    draw = CASES[name].draw(0, n_nodes)
    return fitted(CASES[name], draw.model, [draw.pooled], None)


@pytest.mark.parametrize(
    "graph", [*SMALL, *(pytest.param(graph, marks=pytest.mark.slow) for graph in GRAPHS)]
)
@pytest.mark.parametrize("name", EXACT)
def test_every_node_has_the_bits_of_the_pooled_posterior(name: str, graph: str) -> None:
    network = Network.from_networkx((SMALL | GRAPHS)[graph], graph)
    draw = CASES[name].draw(0, network.n_nodes)
    fit = fitted(CASES[name], draw.model, draw.shards, network)
    reference = pooled(name, network.n_nodes)
    assert fit.converged
    assert len({digest_of(belief) for belief in fit.beliefs}) == 1
    assert distance(fit.posterior, reference.posterior) < 1e-9
    assert fit.lower_bound == pytest.approx(reference.lower_bound, rel=1e-10)
