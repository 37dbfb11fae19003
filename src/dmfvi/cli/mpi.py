"""``dmfvi fit --engine mpi``: what one rank does."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.cli.network import Topology, make_network
from dmfvi.engines.mpi import MpiEngine
from dmfvi.inference.federation import Federation
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.readers.tables import Table, read_table
from dmfvi.storage import FILE_NAME, save
from dmfvi.validation import name_features

RANK = "{rank}"


def fit_rank(
    data: Path,
    components: int,
    topology: Topology,
    out: Path,
    settings: dict[str, Any],
    seed: int,
    header: bool | None,
    checkpoint: Path | None,
    every: int,
    resume: bool,
    nodes: int | None = None,
) -> bool:
    """Load this rank's rows, fit with the others, rank 0 writes the model. Whether the nodes have converged."""
    if resume and checkpoint is None:
        raise ValueError("--resume needs --checkpoint, the folder to resume from")
    if every < 1:
        raise ValueError(f"--every must be at least 1, received {every}")
    world = MpiEngine().comm
    rank, size = int(world.Get_rank()), int(world.Get_size())
    if nodes is not None and nodes != size:
        raise ValueError(f"--nodes {nodes} with {size} MPI ranks: a rank is a node, leave it out")
    say_if_alone(data, size)
    table = _as_rank_0_has_them(world, _rows(data, rank, size, header))
    # more rounds may be asked for when resuming; other rows or settings are another fit
    fixed = {name: value for name, value in settings.items() if name != "max_iter"}
    mark = hashlib.sha256(json.dumps([components, topology.value, fixed, seed]).encode())
    mark.update(np.ascontiguousarray(table.data).tobytes())
    engine = MpiEngine(
        journal=checkpoint, every=every, resume=resume, fingerprint=mark.hexdigest()[:32]
    )
    model = BayesianPCA(
        components,
        network=Federation(make_network(topology, size), engine=engine) if size > 1 else None,
        random_state=seed,
        verbose=int(rank == 0),
        **settings,
    ).fit(table.data)
    if size > 1 and model.converged_:
        engine.forget()
    if rank == 0:
        name_features(model, table.columns)
        path = save(model, out / FILE_NAME)
        done = "converged" if model.converged_ else "NOT converged: raise --max-iter"
        print(f"{size} ranks, {model.n_rounds_} rounds, {done}; saved: {path}", flush=True)
    world.Barrier()  # a rank that ends with another status than 0 ends all of them
    return bool(model.converged_)


def say_if_alone(data: Path, size: int) -> None:
    """One rank of files that are numbered by rank fits the first of them only."""
    if size == 1 and RANK in str(data):
        warnings.warn(
            f"only one MPI rank: {data} is read for rank 0 alone, start with mpiexec -n N for all of them",
            UserWarning,
            stacklevel=2,
        )


def _as_rank_0_has_them(world: Any, table: Table) -> Table:
    """The table with its columns in rank 0's order, by name where files name them; other columns are refused."""
    rank = int(world.Get_rank())
    text = json.dumps([table.data.shape[1], table.columns]).encode()
    length = np.array([len(text)], dtype=np.int64)
    world.Bcast(length)
    told = np.empty(int(length[0]), dtype=np.uint8)
    if rank == 0:
        told[:] = np.frombuffer(text, dtype=np.uint8)
    world.Bcast(told)
    count, first = json.loads(told.tobytes().decode())
    mine = table.columns
    if first == mine and count == table.data.shape[1]:
        return table
    if first is None or mine is None:
        raise ValueError(
            f"rank {rank} has {table.data.shape[1]} columns {'with' if mine else 'without'} names, rank 0 has "
            f"{count} {'with' if first else 'without'}: give all ranks the same columns"
        )
    lacking, beside = sorted(set(first) - set(mine)), sorted(set(mine) - set(first))
    if lacking or beside or len(first) != len(mine):
        raise ValueError(
            f"rank {rank} has {len(mine)} columns, rank 0 has {len(first)}: it lacks {lacking} and has {beside} besides"
        )
    return Table(table.data[:, [mine.index(name) for name in first]], first)


def _rows(data: Path, rank: int, size: int, header: bool | None) -> Table:
    """The rank's own file, or its part of an .npy file, of which only that part is read."""
    if RANK in str(data):
        return read_table(str(data).replace(RANK, str(rank)), header)
    if data.suffix != ".npy":
        raise ValueError(
            f"{data} would be read whole by every rank: write {RANK} where its number goes, "
            f"part-{RANK}.csv for example, or give one .npy file"
        )
    if not data.exists():
        raise FileNotFoundError(f"{data} does not exist")
    whole = np.load(data, mmap_mode="r", allow_pickle=False)
    if whole.ndim != 2 or len(whole) < size:
        raise ValueError(f"{data} has shape {whole.shape}: {size} ranks need at least a row each")
    rows = np.array_split(np.arange(len(whole)), size)[rank]
    return Table(np.array(whole[rows[0] : rows[-1] + 1], dtype=np.float64), None)
