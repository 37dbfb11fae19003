"""One case per estimator: settings and one part of small data per node. Laws and engines run over all of them.

The case of a model (tests/model_cases.py) may bring its estimators' with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import model_cases
from dmfvi.datasets import make_cube, make_ratings
from dmfvi.deploy.data import Data
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.engines.local import LocalEngine
from dmfvi.models.ratings.table import RatingTable
from dmfvi.network import Network
from dmfvi.readers.tables import Table
from helpers import low_rank_shards
from model_cases import CLUSTER_CENTRES

N_NODES = 3


class PlainEngine(LocalEngine):
    """The local engine as a network would run: sweeps are not extrapolated, since links may fail."""

    reliable = False


@dataclass(frozen=True)
class EstimatorCase:
    """An estimator's settings and data."""

    model: ModelSettings
    shards: list[Any]

    @property
    def data(self) -> list[Data]:
        """Every node's, as read from its file."""
        return [as_data(shard) for shard in self.shards]

    @property
    def pooled(self) -> Data:
        """Everybody's."""
        if isinstance(self.shards[0], RatingTable):
            ids = [(t.user_ids[t.users], t.item_ids[t.items], t.ratings) for t in self.shards]
            return RatingTable.of(*(np.concatenate(part) for part in zip(*ids, strict=True)))
        return Table(np.concatenate(self.shards), None)

    def local(
        self,
        tol: float | None = None,
        network: Network | None = None,
        accelerated: bool = False,
    ) -> Any:
        """The estimator in one process: pooled, or with one node per part."""
        changes = {} if tol is None else {"tol": tol, "max_iter": 20_000}
        model = changed(self.model, **changes)
        if network is None:
            return model.fit(self.pooled)
        engine = "local" if accelerated else PlainEngine()
        estimator = model.estimator().set_params(network=model._federation(network, engine))
        parts = [model.arguments(part) for part in self.data]
        rows: Any = [part[0] for part in parts]
        if "lengths" in parts[0][2]:
            return estimator.fit(
                [np.split(x, np.cumsum(named["lengths"])[:-1]) for x, _, named in parts]
            )
        return estimator.fit(
            rows, **{name: [part[2][name] for part in parts] for name in parts[0][2]}
        )


def write(shard: Any, folder: Path, name: str) -> Path:
    """A node's file."""
    if isinstance(shard, np.ndarray):
        np.save(folder / f"{name}.npy", shard)
        return folder / f"{name}.npy"
    users, items = shard.user_ids[shard.users], shard.item_ids[shard.items]
    lines = [f"{u},{i},{r}" for u, i, r in zip(users, items, shard.ratings, strict=True)]
    (folder / f"{name}.csv").write_text("\n".join(["user,item,rating", *lines]))
    return folder / f"{name}.csv"


def as_data(shard: Any) -> Data:
    return Table(shard, None) if isinstance(shard, np.ndarray) else shard


def changed(model: ModelSettings, **changes: Any) -> ModelSettings:
    """The same kind with some other settings."""
    return ModelSettings.of(model.kind, **{**model.settings, **model.columns, **changes})


def toml_of(model: ModelSettings) -> str:
    """All settings as the [model] table of a node's file."""

    def text(value: Any) -> str:
        if isinstance(value, tuple):
            return f"[{', '.join(text(v) for v in value)}]"
        return f'"{value or "none"}"' if isinstance(value, str | None) else str(value).lower()

    given = {"kind": model.kind, **model.settings, **model.columns}
    return "\n".join(f"{name} = {text(value)}" for name, value in given.items())


# -- data -----------------------------------------------------------------------------------


def _planes() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    side = np.arange(90) % 2
    loadings = np.array([[3.0, 0, 0, 0], [0, 0, 3.0, 0]])
    data = 12.0 * side[:, None] + rng.normal(size=(90, 1)) * loadings[side]
    return np.split(data + 0.3 * rng.normal(size=(90, 4)), [20, 55])


def _sequences(symbols: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    rows = []
    for number in range(9):
        state = np.cumsum(rng.random(20) < 0.15) % 2
        seen: np.ndarray = CLUSTER_CENTRES[state][:, :2] + rng.normal(size=(20, 2))
        if symbols:
            seen = (2 * state + (rng.random(20) < 0.2))[:, None]
        rows.append(np.column_stack([np.full(20, float(number)), seen]))
    return [np.concatenate(part) for part in (rows[:2], rows[2:6], rows[6:])]


def _ratings() -> list[RatingTable]:
    matrix = make_ratings(1000, n_users=100, n_items=30, rank=2, seed=0).ratings.tocoo()
    node = np.digitize(matrix.row, [25, 60])
    return [
        RatingTable.of(matrix.row[node == i], matrix.col[node == i], matrix.data[node == i])
        for i in range(N_NODES)
    ]


def _case(kind: str, shards: list[Any], **settings: Any) -> EstimatorCase:
    return EstimatorCase(ModelSettings.of(kind, **settings), shards)


_FACTORS = low_rank_shards([14, 20, 17], 6, 2, 0.1)
#: estimators whose data are no plain rows of their model's case; the others are enrolled by that case
CASES: dict[str, EstimatorCase] = {
    case.model.kind: case
    for case in (
        *(
            _case(e.kind, e.shards(), **e.settings)
            for c in model_cases.CASES.values()
            for e in c.estimators
        ),
        _case("bayesian-pca", _FACTORS, n_components=2),
        _case("mixture-of-pca", _planes(), n_clusters=2, n_components=1),
        _case("ppca", _FACTORS, n_components=2),
        _case("svd-factorization", _FACTORS, n_components=2),
        _case("gaussian-hmm", _sequences(symbols=False), n_components=2, sequence=1),
        _case(
            "categorical-hmm",
            _sequences(symbols=True),
            n_components=2,
            n_features=4,
            n_init=2,
            sequence=1,
        ),
        _case("rating-factorization", _ratings(), n_components=2, n_choice_features=2, max_iter=5),
        _case(
            "structure-from-motion",
            make_cube(n_cameras=N_NODES, n_frames=20, noise=0.02).hidden,
        ),
    )
}
