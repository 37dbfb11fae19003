"""The paper's Netflix table: C-PPCA, D-PPCA, C-BPCA, D-BPCA, with film means and biases beside them.

The paper (table 2): 10 nodes, 12 components, RMSE 1.7723, 1.9934, 1.4465, 1.5613 on the probe set. Here the
PCA systems are those models on the entries that are there, run until they have learned; both distributed
ones agree on sums of statistics, so D-PPCA is EM over a network, not the ADMM on parameters of Yoon & Pavlovic
(``dmfvi.PPCA`` has that for small tables). "ratings" is ``RatingFactorization`` as it comes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dmfvi.datasets.ratings import make_ratings, split_ratings
from dmfvi.linalg import FloatArray
from dmfvi.models.ratings.estimator import RatingFactorization
from dmfvi.models.ratings.ppca import RatingPpcaModel
from dmfvi.models.ratings.table import RatingTable
from dmfvi.models.ratings.validation import evaluate
from dmfvi.network import Network
from dmfvi.readers.ratings import read_probe, read_ratings

RANK, NODES, SWEEPS, LEVEL = 12, 10, 20, 0.9
SIZES = (1_000_000, 10_000_000, 100_000_000)
#: part held out where there is no probe, and at most so many ratings
HELD_OUT, MOST_HELD_OUT = 0.1, 1_500_000
#: ratings that pull an item's and a user's bias towards zero
ITEM_SHRINKAGE, USER_SHRINKAGE, BIAS_STEPS = 25.0, 10.0, 5
#: the paper's RMSEs on the probe set
PAPER = {"C-PPCA": 1.7723, "D-PPCA": 1.9934, "C-BPCA": 1.4465, "D-BPCA": 1.5613}
#: ratings handled at a time by the baselines
CHUNK = 10_000_000

Triples = tuple[NDArray[Any], NDArray[Any], FloatArray]


class Case(NamedTuple):
    """One data set: users x items to learn from, and what was held out."""

    name: str
    train: Any  # csr matrix
    test: Triples


class RatingPPCA(RatingFactorization):
    """The same surface for maximum likelihood."""

    _model_type = RatingPpcaModel
    _no_response = "it is a point estimate; use RatingFactorization"


def run(
    data_dir: Path | None,
    sizes: Sequence[int] = SIZES,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda message: None,
    sweeps: int = SWEEPS,
) -> dict[str, float]:
    """RMSE and coverage of every system: "netflix/<system>/<case>/<metric>".

    With ``data_dir`` the real files and their probe, otherwise one generated set for each of ``sizes``.
    """
    figures: dict[str, float] = {}
    for case in _cases(data_dir, sizes, seed, on_progress):
        for system in SYSTEMS:
            on_progress(f"{case.name}: {system}")
            rmse, coverage = _score(system, case, seed, sweeps)
            figures[f"netflix/{system}/{case.name}/rmse"] = rmse
            figures[f"netflix/{system}/{case.name}/coverage"] = coverage
            on_progress(f"{case.name}: {system} RMSE {rmse:.4f}, {LEVEL:.0%} covers {coverage:.1%}")
    return figures


# -- systems ------------------------------------------------------------------------------


def film_means(train: Any, test: Triples) -> tuple[FloatArray, FloatArray]:
    """Each film's mean."""
    total = float(train.data.mean(dtype=np.float64))
    sums, counts = _sums(train, lambda rows, columns, values: values, by_item=True)
    film = np.where(counts > 0, sums / np.maximum(counts, 1), total)
    variance = _residual_variance(train, lambda rows, columns: film[columns])
    return film[test[1]], np.full(len(test[1]), variance)


def biases(train: Any, test: Triples) -> tuple[FloatArray, FloatArray]:
    """mean + user's bias + film's bias, shrunken and found in turn."""
    total = float(train.data.mean(dtype=np.float64))
    users, items = np.zeros(train.shape[0]), np.zeros(train.shape[1])
    for _ in range(BIAS_STEPS):
        items = _bias_step(train, total, users, ITEM_SHRINKAGE, by_item=True)
        users = _bias_step(train, total, items, USER_SHRINKAGE, by_item=False)
    variance = _residual_variance(train, lambda r, c: total + users[r] + items[c])
    return total + users[test[0]] + items[test[1]], np.full(len(test[0]), variance)


def _bias_step(
    train: Any, total: float, others: FloatArray, shrinkage: float, by_item: bool
) -> FloatArray:
    """Biases of one side given the other's."""

    def value(rows: Any, columns: Any, values: Any) -> FloatArray:
        return np.asarray(values - total - others[rows if by_item else columns])

    sums, counts = _sums(train, value, by_item)
    return sums / (counts + shrinkage)


def _model(system: str, seed: int, sweeps: int) -> RatingFactorization:
    network = Network.ring(NODES) if system.startswith("D-") else None
    if system in PAPER:
        kind = RatingPPCA if system.endswith("PPCA") else RatingFactorization
        return kind(
            RANK,
            network=network,
            user_bias=False,
            noise="shared",
            n_choice_features=0,
            max_iter=sweeps,
            random_state=seed,
        )
    return RatingFactorization(RANK, max_iter=sweeps, random_state=seed)


BASELINES: dict[str, Callable[[Any, Triples], tuple[FloatArray, FloatArray]]] = {
    "film-mean": film_means,
    "bias": biases,
}
SYSTEMS = (*BASELINES, *PAPER, "ratings")


def _score(system: str, case: Case, seed: int, sweeps: int) -> tuple[float, float]:
    """RMSE and coverage on what was held out."""
    if system in BASELINES:
        mean, variance = BASELINES[system](case.train, case.test)
        scale = float(case.train.data.min()), float(case.train.data.max())
        return evaluate(mean, variance, case.test[2], scale, LEVEL)
    with warnings.catch_warnings():  # films without ratings are expected here
        warnings.simplefilter("ignore", UserWarning)
        model = _model(system, seed, sweeps).fit(case.train)
    score = model.evaluate(*case.test, level=LEVEL)
    return score.rmse, score.coverage


# -- data ---------------------------------------------------------------------------------


def _cases(
    data_dir: Path | None, sizes: Sequence[int], seed: int, on_progress: Callable[[str], None]
) -> Iterator[Case]:
    if data_dir is not None:
        yield _real(data_dir, seed, on_progress)
        return
    for size in sizes:
        name = f"{size / 1e6:g}M"
        on_progress(f"{name}: making ratings")
        ratings = make_ratings(int(size), seed=seed).ratings
        part = min(HELD_OUT, MOST_HELD_OUT / size)
        train, test = split_ratings(ratings, part, seed=seed)
        del ratings
        yield Case(name, train, test)


def _real(folder: Path, seed: int, on_progress: Callable[[str], None]) -> Case:
    """The Netflix files of a folder (or of its training_set), with probe.txt if it is there."""
    where = folder / "training_set" if (folder / "training_set").is_dir() else folder
    on_progress(f"reading {where}")
    table = read_ratings(where, cache=True)
    probe = next((p for p in (folder / "probe.txt", where / "probe.txt") if p.exists()), None)
    if probe is not None:
        held = read_probe(probe, table)
    else:
        part = min(HELD_OUT, MOST_HELD_OUT / len(table))
        held = np.random.default_rng(seed).random(len(table), dtype=np.float32) < part
    test = table[held]
    train = _matrix(table[~held])
    triples = (
        test.users.astype(np.int64),
        test.items.astype(np.int64),
        test.ratings.astype(np.float64),
    )
    return Case("netflix", train, triples)


def _matrix(table: RatingTable) -> Any:
    """Users x items by one counting sort."""
    from dmfvi.models.ratings.kernels import grouped

    shape = (len(table.user_ids), len(table.item_ids))
    values = table.ratings.astype(np.float32)
    rows = grouped(table.users, table.items, values, *shape, 0.0, 1.0)
    return sp.csr_matrix((rows.codes, rows.columns.astype(np.int32), rows.indptr), shape=shape)


# -- sums in bounded memory -----------------------------------------------------------------


def _chunks(train: Any) -> Iterator[tuple[NDArray[Any], NDArray[Any], FloatArray]]:
    """Rows, columns and values of the matrix, some millions at a time."""
    cuts = np.searchsorted(train.indptr, np.arange(0, train.nnz, CHUNK), side="left")
    edges = np.unique(np.concatenate([cuts, [train.shape[0]]]))
    for begin, end in pairwise(edges):
        part = slice(int(train.indptr[begin]), int(train.indptr[end]))
        counts = np.diff(train.indptr[begin : end + 1])
        rows = np.repeat(np.arange(begin, end), counts)
        yield rows, train.indices[part], train.data[part].astype(np.float64)


def _sums(
    train: Any, value: Callable[[Any, Any, Any], FloatArray], by_item: bool
) -> tuple[FloatArray, FloatArray]:
    size = train.shape[1] if by_item else train.shape[0]
    sums, counts = np.zeros(size), np.zeros(size)
    for rows, columns, values in _chunks(train):
        owner = columns if by_item else rows
        sums += np.bincount(owner, value(rows, columns, values), minlength=size)
        counts += np.bincount(owner, minlength=size)
    return sums, counts


def _residual_variance(train: Any, predicted: Callable[[Any, Any], FloatArray]) -> float:
    total = 0.0
    for rows, columns, values in _chunks(train):
        total += float(np.sum((values - predicted(rows, columns)) ** 2))
    return total / train.nnz
