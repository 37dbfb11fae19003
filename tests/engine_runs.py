"""The fits that the law of engines compares, and the programs that run them, one node a process.

python engine_runs.py mpi FOLDER                    as a rank, under mpiexec
python engine_runs.py net FOLDER NODE PORT PORT PORT
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dmfvi import Federation, Network, infer
from dmfvi.models import LinearRegression, LogisticRegression, PoissonGamma
from dmfvi.models.regression.linear import RegressionShard
from model_cases import CASES

NETWORK = Network.ring(3)
#: a round at which node 0 asks for an end, or the rounds are over, long before the slow model has converged
EARLY = 5


class Outcome(NamedTuple):
    """One node's end of a fit."""

    natural: np.ndarray
    n_rounds: int
    converged: bool


class Fit(NamedTuple):
    """One call of ``infer``."""

    model: str
    max_rounds: int = 5000
    acceleration: bool | str = False
    observed: bool = False  # node 0's observer asks for an end at EARLY
    journal: bool = False
    resume: bool = False


#: set for fits of every variant of a model; else one of each model
EVERY_VARIANT = "DMFVI_TEST_EVERY_VARIANT"
#: in this order: the last goes on from what the one before has left
PLAIN_FITS = {
    "PoissonGamma": Fit("PoissonGamma"),
    "LinearRegression": Fit("LinearRegression"),
    "LogisticRegression": Fit("LogisticRegression"),
    "observed": Fit("LogisticRegression", observed=True),
    "stopped": Fit("LogisticRegression", max_rounds=EARLY, journal=True),
    "resumed": Fit("LogisticRegression", journal=True, resume=True),
}
#: models whose answers are compared to the last bit, as a user would fit them
VARIANTS = [name for name, case in CASES.items() if case.consensus is None]
#: the first variant of each model
ONE_OF_EACH = list({name.partition("/")[0]: name for name in reversed(VARIANTS)}.values())[::-1]


def fits() -> dict[str, Fit]:
    """What is run, here or in processes of one node."""
    compared = VARIANTS if os.environ.get(EVERY_VARIANT) else ONE_OF_EACH
    return PLAIN_FITS | {f"bits of {name}": Fit(name, acceleration="auto") for name in compared}


#: opens an engine for a fit: its name, a folder for the journal or None, whether to resume
Opener = Callable[[str, Path | None, bool], AbstractContextManager[Any]]


def model_and_shards(name: str) -> tuple[Any, list[Any]]:
    if name not in ("PoissonGamma", "LinearRegression", "LogisticRegression"):
        draw = CASES[name].draw(0, NETWORK.n_nodes)
        return draw.model, [draw.model.refreshed(shard) for shard in draw.shards]
    rng = np.random.default_rng(4)
    ends = [15, 35]
    if name == "PoissonGamma":
        return PoissonGamma(3), np.split(rng.poisson(3.0, size=(60, 3)), ends)
    x = np.column_stack([rng.normal(size=(60, 2)), np.ones(60)])
    y = x @ np.array([2.0, -1.0, 0.5]) + rng.normal(size=60)
    model: Any = LinearRegression(np.ones(3))
    if name == "LogisticRegression":
        model, y = LogisticRegression(np.ones(3)), (y > 0).astype(float)[:, None]
    parts = zip(np.split(x, ends), np.split(y, ends), strict=True)
    return model, [RegressionShard(design, target) for design, target in parts]


def fit_all(opened: Opener, nodes: Sequence[int], folder: Path) -> dict[str, list[Outcome]]:
    """All fits, by the nodes that run in this process."""
    return {name: _fit(name, fit, opened, nodes, folder) for name, fit in fits().items()}


def _fit(name: str, fit: Fit, opened: Opener, nodes: Sequence[int], folder: Path) -> list[Outcome]:
    model, shards = model_and_shards(fit.model)

    def enough(record: Any, _: Any) -> bool:
        return fit.observed and 0 in nodes and record.round >= EARLY

    with (
        opened(name, folder / "journal" if fit.journal else None, fit.resume) as engine,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = infer(
            model,
            [shards[node] for node in nodes],
            Federation(NETWORK, engine=engine),
            acceleration=fit.acceleration,
            max_rounds=fit.max_rounds,
            random_state=0,
            observer=enough,
        )
    return [
        Outcome(np.concatenate(list(numbers(q))), result.n_rounds, result.converged)
        for q in result.posteriors
    ]


def numbers(value: Any) -> Iterator[np.ndarray]:
    """All numbers of a posterior, of whatever kind it is."""
    if is_dataclass(value):
        value = [getattr(value, each.name) for each in fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, np.ndarray | float | int) and not isinstance(value, bool):
        yield np.ravel(value).astype(np.float64)
    elif hasattr(value, "pack"):
        yield value.pack()


# -- one node a process -----------------------------------------------------------------


def save(folder: Path, node: int, outcomes: dict[str, list[Outcome]]) -> None:
    arrays = {}
    for name, (outcome,) in outcomes.items():
        arrays[f"{name}/natural"] = outcome.natural
        arrays[f"{name}/ended"] = np.array([outcome.n_rounds, outcome.converged])
    np.savez(folder / f"outcomes-{node}.npz", **arrays)


def load(folder: Path) -> dict[str, list[Outcome]]:
    """What all processes have saved."""
    files = [np.load(folder / f"outcomes-{node}.npz") for node in range(NETWORK.n_nodes)]
    return {
        name: [
            Outcome(
                file[f"{name}/natural"],
                int(file[f"{name}/ended"][0]),
                bool(file[f"{name}/ended"][1]),
            )
            for file in files
        ]
        for name in fits()
    }


def as_rank(folder: Path) -> None:
    from mpi4py import MPI

    from dmfvi.engines.mpi import MpiEngine

    @contextmanager
    def opened(name: str, journal: Path | None, resume: bool) -> Iterator[Any]:
        yield MpiEngine(journal=journal, every=2, resume=resume)

    rank = MPI.COMM_WORLD.Get_rank()
    save(folder, rank, fit_all(opened, [rank], folder))


def as_node(folder: Path, node: int, ports: list[int]) -> None:
    from dmfvi.engines.net.endpoint import Timing
    from dmfvi.engines.net.engine import NetworkEngine
    from dmfvi.engines.net.epochs import NetworkNode, drive
    from dmfvi.engines.net.zenoh import ZenohTransport
    from dmfvi.storage.journal import Journal

    where = [f"127.0.0.1:{port}" for port in ports]
    peers = {j: where[j] for j in NETWORK.neighbours(node)}
    transport = ZenohTransport(node, where[node], peers, None)
    timing = Timing(patience=300.0, silence=600.0, linger=300.0)

    @contextmanager
    def opened(name: str, journal: Path | None, resume: bool) -> Iterator[Any]:
        fingerprint = hashlib.sha256(name.encode()).digest()[:16]  # fits do not mix
        endpoint = NetworkNode(node, tuple(peers), transport, fingerprint, 1, timing)
        while endpoint.view.network().n_edges < NETWORK.n_edges:  # nobody comes or goes after that
            endpoint.listen(0.1)
        endpoint.begin()
        kept = None if journal is None else Journal(journal, node, "law", every=2)
        if kept is not None and resume:
            assert kept.resume()
        yield NetworkEngine(endpoint, kept)
        drive(endpoint.finishing(), endpoint.listen)

    try:
        save(folder, node, fit_all(opened, [node], folder))
    finally:
        transport.close()


if __name__ == "__main__":
    kind, place, *rest = sys.argv[1:]
    if kind == "mpi":
        as_rank(Path(place))
    else:
        as_node(Path(place), int(rest[0]), [int(port) for port in rest[1:]])
