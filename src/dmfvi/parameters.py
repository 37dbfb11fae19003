"""The table of a fitted model's parameters: estimates with deviations and intervals, quantity by quantity."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dmfvi.summary_table import Row, SummaryTable
from dmfvi.uncertainty import Uncertainty
from dmfvi.validation import check_level

#: numbers of a quantity that a table has at most: more are asked for by ``uncertainty``
MOST_ENTRIES = 60
#: quantities whose last axis are the columns of the data
BY_FEATURE = ("location", "noise", "means")
#: quantities whose name does not say what they are
SHOWN = {"noise": "noise variance"}


def parameter_table(fitted: Any, level: float = 0.9) -> SummaryTable:
    """Of the quantities in ``_summarised``; deviations by linear response."""
    check_is_fitted(fitted)
    check_level(level)
    rows: list[Row] = []
    panels: list[str] = []
    notes: dict[str, None] = {}  # a set that keeps its order
    for name in fitted._summarised:
        size = int(np.size(fitted._reader_of(name)(fitted)))
        if size > MOST_ENTRIES:
            notes[f"{name}: {size} numbers, see uncertainty({name!r})"] = None
            continue
        if not fitted._can_tell(name):
            continue
        with warnings.catch_warnings():  # they are notes of the table
            warnings.simplefilter("ignore", UserWarning)
            found = replace(fitted.uncertainty(name), level=level)
        if found.support == "probability" and (found.std**2 >= found.mean * (1.0 - found.mean)).any(
            where=found.std > 0
        ):
            notes[
                f"{name}: some deviations are larger than a probability can have, their intervals say nothing"
            ] = None
        if found.std.any():  # else it was given, as the location of fit_mean=False
            rows += _rows(fitted, name, found)
        panels += [name] * (len(rows) - len(panels))
        notes |= dict.fromkeys(found.notes)
    notes["deviations by linear response"] = None
    title = f"{type(fitted).__name__}: parameters"
    return SummaryTable(title, [], level, "", rows, tuple(notes), tuple(panels))


def keep_table(fitted: Any) -> None:
    """Find what the table needs while the data are here, so that a file of the model has it; a fit is not lost for it."""
    if getattr(fitted, "_summarised", ()) and fitted._has_table and fitted.converged_:
        with suppress(ValueError, ArithmeticError, np.linalg.LinAlgError):
            parameter_table(fitted)


def _rows(fitted: Any, name: str, found: Uncertainty) -> list[Row]:
    low, high = found.interval
    made = []
    for position in np.ndindex(found.mean.shape):
        shown = SHOWN.get(name, name)
        term = " ".join([shown, *_labels(fitted, name, position, found.mean.shape)])
        mean, std, lower, upper = (float(v[position]) for v in (found.mean, found.std, low, high))
        if std <= 0 and not fitted.converged_:  # unknown there, not zero
            std = lower = upper = float("nan")
        made.append(Row(term, mean, std, lower, upper, None, None, None))
    return made


def _labels(fitted: Any, name: str, position: Sequence[int], shape: Sequence[int]) -> list[str]:
    """Components, states and symbols by their index, columns of the data by their name."""
    labels = [str(index) for index in position]
    names = getattr(fitted, "feature_names_in_", None)
    if name in BY_FEATURE and labels and shape[-1] == getattr(fitted, "n_features_in_", -1):
        labels[-1] = f"x{position[-1]}" if names is None else str(names[position[-1]])
    return [" -> ".join(labels)] if name == "transitions" else labels
