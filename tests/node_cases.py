"""One case per kind of model that a node runs: settings and one table per node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dmfvi.datasets import make_cube
from dmfvi.deploy.kinds import (
    GaussianHmmModel,
    GaussianMixtureModel,
    LinearRegressionModel,
    LogisticRegressionModel,
    ModelSettings,
    PcaModel,
    StructureModel,
)
from dmfvi.network import Network
from dmfvi.readers.tables import Table
from helpers import distance, low_rank_shards

N_NODES = 3
CENTRES = np.array([[0.0, 0, 0], [4, 0, 2], [0, 4, -2]])


@dataclass(frozen=True)
class NodeCase:
    """What the laws of tests/engines need to know of a kind."""

    model: ModelSettings
    shards: list[np.ndarray]
    toml: str  # the same settings as a [model] table

    def local(
        self,
        tol: float | None = None,
        network: Network | None = None,
        accelerated: bool = False,
    ) -> Any:
        """The estimator in one process: pooled, or with one node per table.

        Real networks do not extrapolate sweeps, since their links may fail.
        """
        model = self.model.estimator()
        model.set_params(tol=tol or self.model.tol, max_iter=20_000, random_state=self.model.seed)
        if "acceleration" in model.get_params() and not accelerated:
            model.set_params(acceleration=False)
        arguments = [self.model.arguments(Table(shard, None)) for shard in self.shards]
        if network is None:
            given, named = self.model.arguments(Table(np.concatenate(self.shards), None))
            return model.fit(*given, **named)
        model.set_params(network=network)
        if "lengths" in arguments[0][1]:
            return model.fit([np.split(x, np.cumsum(n["lengths"])[:-1]) for (x,), n in arguments])
        return model.fit(*([part[k] for part, _ in arguments] for k in range(len(arguments[0][0]))))


def apart(one: Any, other: Any) -> float:
    """Largest relative difference of two posteriors' natural parameters."""
    return one.distance(other) if hasattr(one, "distance") else distance(one, other)


def _clusters() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    label = np.sort(rng.integers(3, size=90))  # nodes see other clusters
    data = CENTRES[label] + rng.normal(size=(90, 3))
    data[rng.random(data.shape) < 0.05] = np.nan
    return np.split(data, [20, 55])


def _regression(labels: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 3)) * [1.0, 5.0, 0.2] + [0.0, 3.0, -1.0]
    score = x @ np.array([1.0, -0.4, 3.0]) + 4.0 + 1.5 * rng.normal(size=120)
    y = (score > np.median(score)).astype(float) if labels else score
    return np.split(np.column_stack([x[:, :1], y, x[:, 1:]]), [25, 70])


def _sequences() -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    rows = []
    for number in range(9):
        state = np.cumsum(rng.random(20) < 0.15) % 2
        rows.append(
            np.column_stack([np.full(20, number), CENTRES[state][:, :2] + rng.normal(size=(20, 2))])
        )
    return [np.concatenate(part) for part in (rows[:2], rows[2:6], rows[6:])]


#: one line enrols a kind
CASES: dict[str, NodeCase] = {
    case.model.kind: case
    for case in (
        NodeCase(
            PcaModel(components=2), low_rank_shards([14, 20, 17], 6, 2, 0.1), "components = 2"
        ),
        NodeCase(
            GaussianMixtureModel(components=3, starts=2), _clusters(), "components = 3\nstarts = 2"
        ),
        NodeCase(LinearRegressionModel(target=2), _regression(False), "target = 2"),
        NodeCase(
            LogisticRegressionModel(target=2), _regression(True), "target = 2\nclasses = [0, 1]"
        ),
        NodeCase(
            GaussianHmmModel(components=2, sequence=1),
            _sequences(),
            "components = 2\nsequence = 1",
        ),
        NodeCase(
            StructureModel(),
            make_cube(n_cameras=N_NODES, n_frames=20, noise=0.02).hidden,
            'metric = "orthographic"',
        ),
    )
}
#: kinds other than PCA that are compared on MPI ranks
KINDS_ON_RANKS = ("gaussian-mixture", "linear-regression", "gaussian-hmm")
