"""Where ``fit`` takes a list of shards, questions do too: one answer per shard, and one score of all rows."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from dmfvi import Network
from dmfvi.deploy.kinds import KINDS, NETWORK_KINDS
from dmfvi.shard_lists import PER_SHARD
from estimator_cases import CASES, N_NODES

TABULAR = sorted(k for k in NETWORK_KINDS if KINDS[k]._data_form in ("rows", "sequences"))
#: what some methods need beside rows
FURTHER: dict[str, tuple[Any, ...]] = {
    "predict_survival_function": ([0.5, 1.0],),
    "predict_cumulative_hazard": ([0.5, 1.0],),
}


def fitted(kind: str) -> tuple[Any, list[Any], list[dict[str, Any]]]:
    """A model that was fitted to a list, the list, and what else each shard has."""
    case = CASES[kind]
    parts = [case.model.arguments(part) for part in case.data]
    rows: list[Any] = [part[0] for part in parts]
    further = [part[2] for part in parts]
    model = case.model.estimator().set_params(network=Network.ring(N_NODES))
    if KINDS[kind]._data_form == "sequences":
        rows = [
            np.split(x, np.cumsum(more["lengths"])[:-1])
            for x, more in zip(rows, further, strict=True)
        ]
        return model.fit(rows), rows, [{} for _ in rows]
    given = {name: [more[name] for more in further] for name in further[0]}
    return model.fit(rows, **given), rows, further


def same(one: Any, other: Any) -> None:
    if isinstance(one, tuple):
        assert isinstance(other, tuple)
        for a, b in zip(one, other, strict=True):
            same(a, b)
        return
    np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", TABULAR)
def test_a_list_of_shards_gives_a_list_of_answers(kind: str) -> None:
    model, shards, further = fitted(kind)
    asked = []
    for name in PER_SHARD:
        if not hasattr(model, name):
            continue
        try:
            alone = [getattr(model, name)(shard, *FURTHER.get(name, ())) for shard in shards]
        except (AttributeError, ValueError):
            continue  # not for this family
        together = getattr(model, name)(shards, *FURTHER.get(name, ()))
        assert isinstance(together, list)
        assert len(together) == len(shards)
        for one, other in zip(together, alone, strict=True):
            same(one, other)
        asked.append(name)
    assert asked
    if not hasattr(model, "score"):
        return
    if KINDS[kind]._data_form == "sequences":
        whole: Any = [sequence for shard in shards for sequence in shard]
    else:
        whole = np.concatenate(shards)
    known = inspect.signature(model.score).parameters
    named = {n: [more[n] for more in further] for n in further[0] if n in known}
    pooled = {n: np.concatenate(each) for n, each in named.items()}
    np.testing.assert_allclose(model.score(shards, **named), model.score(whole, **pooled))
