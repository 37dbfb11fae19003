"""Labels of groups and strata: taken as they are, refused or left out where they are missing, numbered in their own order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import row_words
from dmfvi.models.regression.columns import is_frame, is_missing
from dmfvi.validation import is_shard_list


def labels_of(X: Any, given: Any, what: str) -> tuple[Any, list[str]]:
    """One label a row, a list where X is one, and the column that they were taken from.

    Labels keep their type and value: whole numbers beyond 2^53 stay apart. A missing one is None.
    """
    if given is None:
        return None, []
    listed = is_shard_list(X)
    parts = list(X) if listed else [X]
    if isinstance(given, str):
        made = [_named(part, given, what) for part in parts]
    elif listed:
        if not isinstance(given, list | tuple) or len(given) != len(parts):
            raise ValueError(
                f"X is a list of {len(parts)} shards: pass {what} as a list too, one array of labels per shard"
            )
        made = [_plain(part, what) for part in given]
    else:
        made = [_plain(given, what)]
    for part, labels in zip(parts, made, strict=True):
        if len(labels) != len(part):
            raise ValueError(
                f"{what} must have one label for each of {len(part)} rows, received {len(labels)}"
            )
    return (made if listed else made[0]), [given] if isinstance(given, str) else []


def _named(part: Any, name: str, what: str) -> NDArray[Any]:
    """The column of a frame."""
    if not is_frame(part):
        raise ValueError(f"{what}={name!r} names a column: pass a frame, or labels as {what}")
    found = [str(column) for column in part.columns]
    if found.count(name) != 1:
        word = "more than one" if name in found else "no"
        raise ValueError(f"{what}={name!r}: the frame has {word} such column, it has {found[:20]}")
    position = found.index(name)
    series = part.iloc[:, position] if hasattr(part, "iloc") else part.get_columns()[position]
    return _plain(series.to_list(), what)


def _plain(given: Any, what: str) -> NDArray[Any]:
    """Labels in an array of objects, None where one is missing."""
    if np.ndim(given) != 1 and not isinstance(given, list | tuple):
        raise ValueError(f"{what} must be one label a row, received shape {np.shape(given)}")
    masked = np.ma.getmaskarray(given) if isinstance(given, np.ma.MaskedArray) else None
    made = np.empty(len(given), dtype=object)
    for row, value in enumerate(np.ma.getdata(given) if masked is not None else given):
        hidden = masked is not None and bool(masked[row])
        made[row] = None if hidden or _is_missing(value) else _value(value)
        if not isinstance(made[row], Hashable):
            raise ValueError(
                f"{what} must be one label a row, {row_words(row)} has a {type(value).__name__}"
            )
    return made


def _is_missing(value: Any) -> bool:
    """None, NaN, NA and NaT, numpy's too."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return is_missing(value)


def _value(value: Any) -> Any:
    """numpy's numbers, truth values and words as Python's."""
    if isinstance(value, np.number | np.bool_ | np.str_) and not isinstance(value, np.timedelta64):
        return value.item()
    return value


def without_missing(
    X: Any, labels: Any, others: Sequence[Any], what: str, how: str
) -> tuple[Any, Any, list[Any], list[float]]:
    """Rows that have a label, what else they have, and how many had none in each part; refused where ``how`` is "raise"."""
    listed = is_shard_list(X)
    marks = labels if listed else [labels]
    kept = []
    for position, part in enumerate(marks):
        has = np.array([label is not None for label in part], dtype=bool)
        where = f"shard {position}: " if listed else ""
        if not has.all() and how == "raise":
            row = int(np.flatnonzero(~has)[0])
            raise ValueError(
                f"{where}{what} has no label in {np.sum(~has)} of {len(has)} rows, {row_words(row)} is the first: leave these rows out "
                "(missing='drop'), or give them a label"
            )
        if not has.any():
            raise ValueError(f"{where}{what} has no label in any row: leave the site out")
        kept.append(has)
    gone = [float(np.sum(~has)) for has in kept]
    if not any(gone):
        return X, labels, list(others), gone
    if listed:
        X = [_taken(part, has) for part, has in zip(X, kept, strict=True)]
        labels = [part[has] for part, has in zip(marks, kept, strict=True)]
        made = [
            [_taken(part, has) for part, has in zip(each, kept, strict=True)]
            if isinstance(each, list | tuple)
            else each
            for each in others
        ]
        return X, labels, made, gone
    return _taken(X, kept[0]), marks[0][kept[0]], [_taken(e, kept[0]) for e in others], gone


def _taken(value: Any, has: NDArray[np.bool_]) -> Any:
    """Some rows of a frame or an array; names of columns and None as they are."""
    if value is None or isinstance(value, str):
        return value
    if is_frame(value):
        rows = np.flatnonzero(has)
        return value.iloc[rows] if hasattr(value, "iloc") else value[rows.tolist()]
    whole = np.asarray(value)
    return whole[has] if len(whole) == len(has) else value  # a wrong length is refused later


def numbered(labels: NDArray[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """The number of each label among all that occur, and these in order: numbers by size, then words, then others."""
    known = in_order(set(labels.tolist()))
    numbers = {label: number for number, label in enumerate(known)}
    return np.array([numbers[label] for label in labels], dtype=np.int64), known


def in_order(labels: set[Any]) -> list[Any]:
    """Labels sorted, also where some are numbers and others words."""
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=_rank)


def _rank(label: Any) -> tuple[int, Any, str]:
    if isinstance(label, int | float):
        return 0, label, ""
    return (1, 0, label) if isinstance(label, str) else (2, 0, f"{type(label).__name__} {label}")
