"""Nodes of one process that hold the same bits compute once what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmfvi import Network, infer
from dmfvi.inference.model import Update
from dmfvi.inference.shared_sweeps import SharedSweeps
from dmfvi.models import LogisticRegression
from dmfvi.models.regression.linear import RegressionShard


class Counting(LogisticRegression):
    """Counts its calls."""

    absorbed = 0

    def absorb(self, total: Any, own: Any, belief: Any) -> Update:
        self.absorbed += 1
        return super().absorb(total, own, belief)


def shards(n_nodes: int) -> list[RegressionShard]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    target = (rows[:, :1] + rng.normal(size=(60, 1)) > 0).astype(float)
    parts = zip(np.array_split(rows, n_nodes), np.array_split(target, n_nodes), strict=True)
    return [RegressionShard(x, y) for x, y in parts]


def test_work_on_beliefs_does_not_grow_with_the_nodes() -> None:
    counts = []
    for n_nodes in (3, 12):
        model = Counting(np.ones(3))
        fit = infer(model, shards(n_nodes), Network.ring(n_nodes), acceleration=False)
        assert fit.converged
        counts.append(model.absorbed / fit.n_iter)
    assert counts == [1.0, 1.0]


def test_a_sum_that_differs_in_a_bit_has_its_own_answer() -> None:
    model = Counting(np.ones(3))
    shared = SharedSweeps(model)
    own = model.statistics(shards(1)[0], model.prior)
    belief = model.prior
    first = shared.absorb(own, own, belief)
    assert shared.absorb(own.copy(), own, belief) is first
    other = own.copy()
    other[0] = np.nextafter(other[0], np.inf)
    assert shared.absorb(other, own, belief) is not first
    assert (
        shared.absorb(own, own, model.prior) is not first
    )  # another object: not known to be alike
    assert model.absorbed == 3
