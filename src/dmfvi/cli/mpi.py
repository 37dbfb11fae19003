"""``dmfvi fit --engine mpi``: what one rank does."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.cli.network import Topology, make_network
from dmfvi.deploy.data import Data
from dmfvi.deploy.kinds import NETWORK_KINDS, ModelSettings
from dmfvi.engines.mpi import MpiEngine
from dmfvi.lifetime import on_interrupt
from dmfvi.readers.tables import Reading, Selection, Table
from dmfvi.storage import FILE_NAME
from dmfvi.storage.models import save_or_keep

RANK = "{rank}"
#: messages of a fit that has not converged, by whether its number of sweeps was asked for
NOT_CONVERGED = {False: "NOT converged: raise --max-iter", True: "all sweeps made, not converged"}


def fit_rank(
    chosen: ModelSettings,
    file: Path,
    topology: Topology,
    out: Path,
    reading: Reading,
    checkpoint: Path | None,
    every: int,
    resume: bool,
    nodes: int | None = None,
    shown: int = 1,
) -> bool:
    """Load this rank's data, fit with the others, write the model. Whether the nodes have converged.

    Rank 0 writes it, or every rank its own where ``out`` says {rank}.
    """
    if resume and checkpoint is None:
        raise ValueError("--resume needs --checkpoint, the folder to resume from")
    if every < 1:
        raise ValueError(f"--every must be at least 1, received {every}")
    if chosen.kind not in NETWORK_KINDS:
        raise ValueError(f"a {chosen.kind} runs on one machine only: leave out --engine mpi")
    world = MpiEngine().comm
    rank, size = int(world.Get_rank()), int(world.Get_size())
    if nodes is not None and nodes != size:
        raise ValueError(f"--nodes {nodes} with {size} MPI ranks: a rank is a node, leave it out")
    say_if_alone(file, size)
    data = _own(chosen, file, rank, size, reading)
    if isinstance(data, Table):
        data = _as_rank_0_has_them(world, data)
    # more sweeps may be asked for when resuming; other data or settings are another fit
    engine = MpiEngine(
        journal=checkpoint,
        every=every,
        resume=resume,
        fingerprint=chosen.run_mark(data, topology.value),
    )
    network = make_network(topology, size) if size > 1 else None
    kept = "" if checkpoint is None else f"checkpoints are kept in {checkpoint}, --resume goes on"
    with on_interrupt(kept):
        model = chosen.fit(data, network, engine, verbose=shown if rank == 0 else 0)
    if size > 1 and model._ended_well:
        engine.forget()
    if rank == 0 or RANK in str(out):
        own = Path(str(out).replace(RANK, str(rank)))
        path = save_or_keep(model, own / FILE_NAME, chosen.details(data))
        done = "converged" if model.converged_ else NOT_CONVERGED[model._ended_well]
        print(f"{size} ranks, {model.n_rounds_} rounds, {done}; saved: {path}", flush=True)
    world.Barrier()  # a rank that ends with another status than 0 ends all of them
    return bool(model._ended_well)


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
    numbers = None if table.numbers is None else list(table.numbers)
    text = json.dumps([table.data.shape[1], table.columns, numbers]).encode()
    length = np.array([len(text)], dtype=np.int64)
    world.Bcast(length)
    received = np.empty(int(length[0]), dtype=np.uint8)
    if rank == 0:
        received[:] = np.frombuffer(text, dtype=np.uint8)
    world.Bcast(received)
    count, first, numbers = json.loads(received.tobytes().decode())
    mine = table.columns
    if first == mine and count == table.data.shape[1]:
        return table._replace(numbers=numbers)
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
    return table.in_order(first)._replace(numbers=numbers)


def _own(chosen: ModelSettings, file: Path, rank: int, size: int, reading: Reading) -> Data:
    """The rank's own file, or its part of an .npy file of rows, of which only that part is read."""
    if RANK in str(file):
        return chosen.read(Path(str(file).replace(RANK, str(rank))), reading)
    if file.suffix != ".npy" or chosen.form != "rows":
        or_one = ", or give one .npy file" if chosen.form == "rows" else ""
        raise ValueError(
            f"{file} would be read whole by every rank: write {RANK} where its number goes, "
            f"part-{RANK}.csv for example{or_one}"
        )
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist")
    if reading.selection != Selection():
        raise ValueError(
            f"--columns, --drop and --id are for a file per rank (part-{RANK}.npy), received {file}"
        )
    whole = np.load(file, mmap_mode="r", allow_pickle=False)
    if whole.ndim != 2 or len(whole) < size:
        raise ValueError(f"{file} has shape {whole.shape}: {size} ranks need at least a row each")
    rows = np.array_split(np.arange(len(whole)), size)[rank]
    return Table(np.array(whole[rows[0] : rows[-1] + 1], dtype=np.float64), None)
