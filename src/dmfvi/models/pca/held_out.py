"""Intervals of imputed entries, widened or narrowed column by column to cover observed entries that were hidden.

    score of a hidden entry = (x - mean) / (end of the 90 % interval on that side - mean)          interval(level) = mean + c (ends - mean),   c = level-quantile of scores

Every observed entry is hidden in one of some folds and predicted by the model fitted to the others (cross-conformal prediction: Vovk 2015, Annals of Mathematics and
Artificial Intelligence 74). Only counts of scores by column are summed over nodes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dmfvi.linalg import FloatArray
from dmfvi.models.regression.columns import summed

#: level of the intervals that are stretched
REFERENCE = 0.9
#: bounds of the counted scores: steps of 4 %
EDGES = np.concatenate([[0.0], np.geomspace(0.02, 50.0, 200), [np.inf]])


@dataclass(frozen=True)
class HeldOut:
    """How many hidden entries of each column had which score (D, bins)."""

    counts: FloatArray

    def stretch(self, level: float) -> FloatArray:
        """c of each column (D,): the smallest score that level (n + 1) of n hidden entries do not exceed; of too few, the largest."""
        made = np.empty(len(self.counts))
        tops = np.append(EDGES[1:-1], EDGES[-2])  # scores beyond the last bound count as that
        for j, counts in enumerate(self.counts):
            cumulative = np.cumsum(counts)
            wanted = min(level * (cumulative[-1] + 1.0), cumulative[-1])
            at = int(np.searchsorted(cumulative, wanted))
            before = cumulative[at - 1] if at else 0.0
            share = (wanted - before) / max(counts[at], 1.0)
            made[j] = EDGES[at] + share * (tops[at] - EDGES[at])
        return made


def hold_out(model: Any, tables: Sequence[FloatArray], n_folds: int) -> HeldOut:
    """Scores of all observed entries; the model is fitted once for each fold, as it was to all tables.

    One table is one array, split over the nodes as ``fit`` does.
    """
    counts = np.zeros((tables[0].shape[1], len(EDGES) - 1))
    folds = [_folds(table.shape, n_folds, place) for place, table in enumerate(tables)]
    for fold in range(n_folds):
        hidden = [
            (chosen == fold) & ~np.isnan(table) for chosen, table in zip(folds, tables, strict=True)
        ]
        gaps = [np.where(at, np.nan, table) for at, table in zip(hidden, tables, strict=True)]
        with warnings.catch_warnings():  # what there is to say was said of the whole table
            warnings.simplefilter("ignore", UserWarning)
            fitted = clone(model).fit(gaps if len(gaps) > 1 else gaps[0])
        for part, table, at in zip(gaps, tables, hidden, strict=True):
            for j, scores in enumerate(scored(fitted, part, table, at)):
                counts[j] += np.histogram(scores, EDGES)[0]
    session = model._open()
    if not session.whole:
        counts = summed(session, [counts.ravel()]).reshape(counts.shape)
    return HeldOut(counts)


def scored(
    model: Any, gaps: FloatArray, table: FloatArray, hidden: NDArray[np.bool_]
) -> list[FloatArray]:
    """Scores of hidden entries, column by column."""
    mean = model.impute(gaps)
    low, high = model.impute_interval(gaps, REFERENCE)
    width = np.where(table > mean, high - mean, mean - low)
    score = np.abs(table - mean) / np.maximum(width, 1e-300)
    return [score[at, j] for j, at in enumerate(hidden.T)]


def _folds(shape: tuple[int, ...], n_folds: int, place: int) -> NDArray[np.int64]:
    """The fold of each entry: as even as can be in a row, so that no row is hidden whole."""
    rng = np.random.default_rng([place, n_folds])
    rows, columns = shape
    offset = rng.integers(0, n_folds, size=(rows, 1))
    return np.asarray(rng.permuted((np.arange(columns) + offset) % n_folds, axis=1))
