"""Intervals of imputed entries, widened or narrowed column by column to cover observed entries that were hidden.

    score of a hidden entry = (x - mean) / (end of the 90 % interval on that side - mean)          interval(level) = mean + c (ends - mean),   c = level-quantile of scores

Every observed entry is hidden in one of some folds and predicted by the model fitted to the others (cross-conformal prediction: Vovk 2015, Annals of Mathematics and
Artificial Intelligence 74). The fit that gives an entry its score lacks that entry, the fit whose intervals are stretched does not: an entry q deviations
out widens it by 1 + (q^2 - 1) / 2n. The rank level (n + 1), right for scores of entries that no fit has seen, then covers 2 q phi(q) (q^2 - 1) / 2n too much (Gaussian
column, first order); ``rank_of`` takes that off. A column of which a fold would hide all entries of all nodes keeps them in that fold. Only counts of entries and of scores by column are
summed over nodes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from dmfvi.linalg import FloatArray
from dmfvi.models.regression.columns import summed

#: level of the intervals that are stretched
REFERENCE = 0.9
#: bounds of the counted scores: steps of 4 %
EDGES = np.concatenate([[0.0], np.geomspace(0.02, 50.0, 200), [np.inf]])
#: rows times folds that are enough, and the least and most folds: what a fold lacks matters with few rows, where fits are quick
ROWS_TIMES_FOLDS, LEAST_FOLDS, MOST_FOLDS = 10_000, 10, 50


@dataclass(frozen=True)
class HeldOut:
    """How many hidden entries of each column had which score (D, bins)."""

    counts: FloatArray

    def stretch(self, level: float) -> FloatArray:
        """c of each column (D,): the score of the level's rank, between two of them by interpolation; infinite where there are too few."""
        made = np.empty(len(self.counts))
        for j, counts in enumerate(self.counts):
            n = int(counts.sum())
            if n < least_scores(level):
                made[j] = np.inf
                continue
            rank = rank_of(level, n)
            lower, upper = (_ranked(counts, k) for k in (math.floor(rank), math.ceil(rank)))
            made[j] = lower + (rank - math.floor(rank)) * (upper - lower)
        return made


def _ranked(counts: FloatArray, rank: int) -> float:
    """The score of that rank (from 1): scores counted between two bounds are taken as evenly spread there."""
    cumulative = np.cumsum(counts)
    at = int(np.searchsorted(cumulative, rank))
    top = EDGES[at + 1] if at + 2 < len(EDGES) else EDGES[at]  # scores beyond the last bound
    before = cumulative[at] - counts[at]
    return float(EDGES[at] + (rank - 0.5 - before) / counts[at] * (top - EDGES[at]))


def rank_of(level: float, n: int) -> float:
    """Which of n held-out scores, from the smallest, an interval of that level reaches to; not a whole number."""
    q = float(ndtri(0.5 + 0.5 * level))
    own_width = q * (q * q - 1.0) * math.exp(-0.5 * q * q) / math.sqrt(2.0 * math.pi)
    return min(max(level * (n + 1.0) - own_width, 1.0), float(n))


def least_scores(level: float) -> int:
    """Scores that an interval of that level takes: the least n with level (n + 1) <= n."""
    return math.ceil(level / (1.0 - level) - 1e-9)


def usual_folds(n_rows: int) -> int:
    """Folds for a table of that many rows over all nodes."""
    return min(max(math.ceil(ROWS_TIMES_FOLDS / max(n_rows, 1)), LEAST_FOLDS), MOST_FOLDS)


def hold_out(model: Any, tables: Sequence[FloatArray], folds: int | Literal["auto"]) -> HeldOut:
    """Scores of all observed entries; the model is fitted once for each fold, as it was to all tables.

    One table is one array, split over the nodes as ``fit`` does. A model that is not of this package is fitted on one machine.
    """
    counts = np.zeros((tables[0].shape[1], len(EDGES) - 1))
    if isinstance(folds, str):
        rows = _over_nodes(model, np.array([float(sum(len(table) for table in tables))]))
        folds = usual_folds(round(float(rows[0])))
    n_folds = int(folds)
    hidden = _hidden(model, tables, n_folds)
    unconverged = []
    for of_fold in hidden:
        gaps = [np.where(at, np.nan, table) for at, table in zip(of_fold, tables, strict=True)]
        fitted, said = _fitted(model, gaps if len(gaps) > 1 else gaps[0])
        unconverged += said[:1]
        for part, table, at in zip(gaps, tables, of_fold, strict=True):
            if at.any():
                for j, scores in enumerate(scored(fitted, part, table, at)):
                    counts[j] += np.histogram(scores, EDGES)[0]
    if unconverged:
        warnings.warn(
            f"{len(unconverged)} of {n_folds} fits of the held-out calibration have not converged; the first: {unconverged[0]}",
            ConvergenceWarning,
            stacklevel=3,
        )
    return HeldOut(_over_nodes(model, counts))


def _fitted(model: Any, X: Any) -> tuple[Any, list[str]]:
    """A clone fitted to X, and what it said of its convergence; other remarks on the data were made of the whole table."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = clone(model).fit(X)
    for each in caught:
        if not issubclass(each.category, UserWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    said = [str(each.message) for each in caught if issubclass(each.category, ConvergenceWarning)]
    return fitted, said


def _over_nodes(model: Any, counts: FloatArray) -> FloatArray:
    """Counts of this process summed over all; models without a network are fitted in one."""
    if not hasattr(model, "_open"):
        return counts
    session = model._open()
    if session.whole:
        return counts
    return summed(session, [counts.ravel()]).reshape(counts.shape)


def _hidden(
    model: Any, tables: Sequence[FloatArray], n_folds: int
) -> list[list[NDArray[np.bool_]]]:
    """Entries that each fold hides in each table; none of a column that would have no entry left at any node."""
    session = model._open() if hasattr(model, "_open") else None
    # the same folds whether nodes are processes or not
    nodes = range(len(tables)) if session is None or session.whole else session.here
    folds = [_folds(table.shape, n_folds, node) for node, table in zip(nodes, tables, strict=True)]
    hidden = [
        [(chosen == fold) & ~np.isnan(table) for chosen, table in zip(folds, tables, strict=True)]
        for fold in range(n_folds)
    ]
    seen = np.sum([np.isfinite(table).sum(0) for table in tables], axis=0)
    left = np.array([seen - np.sum([at.sum(0) for at in of_fold], axis=0) for of_fold in hidden])
    some_left = np.round(_over_nodes(model, left.astype(float))) > 0
    return [[at & some for at in of_fold] for of_fold, some in zip(hidden, some_left, strict=True)]


def scored(
    model: Any, gaps: FloatArray, table: FloatArray, hidden: NDArray[np.bool_]
) -> list[FloatArray]:
    """Scores of hidden entries, column by column."""
    mean = model.impute(gaps)
    low, high = model.impute_interval(gaps, REFERENCE)
    width = np.where(table > mean, high - mean, mean - low)
    score = np.abs(table - mean) / np.maximum(width, 1e-300)
    return [score[at, j] for j, at in enumerate(hidden.T)]


def _folds(shape: tuple[int, ...], n_folds: int, node: int) -> NDArray[np.int64]:
    """The fold of each entry: as even as can be in a row, so that no row is hidden whole."""
    rng = np.random.default_rng([node, n_folds])
    rows, columns = shape
    offset = rng.integers(0, n_folds, size=(rows, 1))
    return np.asarray(rng.permuted((np.arange(columns) + offset) % n_folds, axis=1))
