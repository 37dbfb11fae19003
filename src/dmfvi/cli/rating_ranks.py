"""``dmfvi ratings fit --engine mpi``: which files, which network and which engine a rank has."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.cli.mpi import RANK, say_if_alone
from dmfvi.cli.network import Topology, make_network
from dmfvi.deploy.data import digest
from dmfvi.engines.mpi import MpiEngine
from dmfvi.inference.federation import Federation
from dmfvi.models.ratings.table import RatingTable
from dmfvi.models.ratings.validation import Evaluation
from dmfvi.network import Network

#: folder of a rank's checkpoints, inside its own --out
CHECKPOINTS = "checkpoint"


@dataclass(frozen=True)
class Placement:
    """One process's files, and where its nodes run."""

    data: Path
    out: Path
    probe: Path | None
    predictions: Path | None
    network: Network | None = None
    rank: int = 0
    size: int = 1
    alone: bool = True  # all nodes in this process

    def federation(
        self, train: RatingTable, settings: dict[str, Any], every: int, resume: bool
    ) -> Network | Federation | None:
        """What runs the nodes; a rank's checkpoints belong to its own ratings and to the settings."""
        if self.alone or self.network is None:
            return self.network
        if every < 1:
            raise ValueError(f"--every must be at least 1, received {every}")
        engine = MpiEngine(
            journal=self.out / CHECKPOINTS,
            every=every,
            resume=resume,
            fingerprint=_fingerprint(train, settings),
        )
        return Federation(self.network, engine=engine)

    def forget(self, used: Network | Federation | None) -> None:
        """The model is saved: nothing is left to resume."""
        if isinstance(used, Federation) and isinstance(used.engine, MpiEngine):
            used.engine.forget()
            with suppress(OSError):  # other files are not ours
                (self.out / CHECKPOINTS).rmdir()


def one_process(given: Placement, nodes: int, topology: Topology) -> Placement:
    """All nodes here."""
    return replace(given, network=make_network(topology, nodes)) if nodes > 1 else given


def one_rank(given: Placement, nodes: int, topology: Topology) -> Placement:
    """This rank's node; ``{rank}`` in a path stands for its number."""
    data, out, probe, predictions = given.data, given.out, given.probe, given.predictions
    world = MpiEngine().comm
    rank, size = int(world.Get_rank()), int(world.Get_size())
    if nodes not in (1, size):
        raise ValueError(
            f"--nodes {nodes} with {size} MPI ranks: every rank is a node, leave it out"
        )
    say_if_alone(data, size)
    if size == 1:
        return replace(given, data=_of(data, 0), probe=None if probe is None else _of(probe, 0))
    if RANK not in str(data):
        raise ValueError(
            f"{data} would be read whole by every rank: write {RANK} where its number goes, "
            f"part-{RANK}.csv for example"
        )
    if predictions is not None and RANK not in str(predictions):
        raise ValueError(f"--predictions {predictions} is one file for all ranks: add {RANK}")
    return Placement(
        _of(data, rank),
        _of(out, rank) if RANK in str(out) else out / f"rank-{rank}",
        None if probe is None else _of(probe, rank),
        None if predictions is None else _of(predictions, rank),
        make_network(topology, size),
        rank,
        size,
        alone=False,
    )


def over_all_ranks(score: Evaluation) -> Evaluation:
    """The score of all held-out ratings, wherever they are."""
    n = float(score.n_ratings)
    mine = np.array(
        [
            n,
            n * score.rmse**2,
            n * score.coverage,
            float(score.n_unknown),
            float(score.n_unknown_users),
            float(score.n_unknown_items),
        ]
    )
    total = np.empty_like(mine)
    MpiEngine().comm.Allreduce(mine, total)
    count, squares, inside, unknown, users, items = total.tolist()
    # an item without ratings is counted by every rank that holds some of it out
    return Evaluation(
        float(np.sqrt(squares / count)),
        inside / count,
        int(count),
        int(unknown),
        int(users),
        int(items),
        score.recall,
        score.ndcg,
    )


def _of(path: Path, rank: int) -> Path:
    return Path(str(path).replace(RANK, str(rank)))


def _fingerprint(train: RatingTable, settings: dict[str, Any]) -> str:
    text = json.dumps([settings, digest(train).hex()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
