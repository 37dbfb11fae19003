"""A node's own data: from a file as an estimator says, and the digest that identifies it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.models.ratings.table import RatingTable
from dmfvi.models.sfm.measurements import as_matrix
from dmfvi.readers.ratings import read_ratings
from dmfvi.readers.tables import Column, Reading, Table, read_as
from dmfvi.readers.tracks import read_tracks

Data = Table | RatingTable

#: how a file is read, by what an estimator says that it holds; the columns are kept as labels
READERS: dict[str, Callable[[Path, Reading, Sequence[Column]], Data]] = {
    "rows": read_as,
    "sequences": read_as,
    "tracks": lambda path, how, labels: Table(as_matrix(read_tracks(path)), None),
    "ratings": lambda path, how, labels: read_ratings(path),
}


def in_one_order(tables: Sequence[Table], names: Sequence[str]) -> list[Table]:
    """All tables with their columns in the first one's order, by name, and with its numbers; other columns are refused."""
    first = tables[0]
    made = []
    for table, name in zip(tables, names, strict=True):
        if table.columns == first.columns and table.data.shape[1] == first.data.shape[1]:
            made.append(table._replace(numbers=first.numbers))
            continue
        if table.columns is None or first.columns is None:
            raise ValueError(
                f"{name} has {table.data.shape[1]} columns {_named(table)} names, {names[0]} has "
                f"{first.data.shape[1]} {_named(first)}: give all files the same columns"
            )
        less = [c for c in first.columns if c not in table.columns]
        more = [c for c in table.columns if c not in first.columns]
        if less or more:
            raise ValueError(
                f"{name} lacks columns {less[:5]} of {names[0]} and has {more[:5]} besides: "
                "name the columns to use (--columns), or leave some out (--drop)"
            )
        made.append(table.in_order(first.columns)._replace(numbers=first.numbers))
    return made


def _named(table: Table) -> str:
    return "without" if table.columns is None else "with"


def schema(data: Data) -> tuple[int | None, list[str] | None]:
    """Number and names of the columns, the same at all nodes; of ratings nodes agree on the items later."""
    return (data.data.shape[1], data.columns) if isinstance(data, Table) else (None, None)


def digest(data: Data) -> bytes:
    """SHA-256 that identifies these data: every number, in its place, under its name."""
    parts: list[NDArray[Any]]
    if isinstance(data, Table):
        parts, names = [data.data], list(data.columns or [])
        parts += [data.labels[position] for position in sorted(data.labels)]
    else:
        parts = [data.users, data.items, data.ratings]
        names = [str(label) for ids in (data.user_ids, data.item_ids) for label in ids]
    mark = hashlib.sha256()
    for part in parts:
        mark.update(f"{part.dtype.str} {part.shape} ".encode())
        mark.update(np.ascontiguousarray(part).tobytes())
    mark.update("\n".join(names).encode())
    return mark.digest()


def n_rows(data: Data) -> int:
    """Samples of a table, or ratings."""
    return len(data.data) if isinstance(data, Table) else len(data)


def described(
    data: Sequence[Data],
    form: str,
    beside: Sequence[Column] = (),
    dropped: int = 0,
    has_features: bool = True,
) -> list[tuple[str, Any, str]]:
    """What a fit has used, as (name, value, words).

    ``beside`` are the columns that are no features, ``dropped`` the rows that were left out. Without ``has_features`` none is a feature.
    """
    count, where = sum(map(n_rows, data)), f" in {len(data)} files" if len(data) > 1 else ""
    tables = [part for part in data if isinstance(part, Table)]
    if not tables:
        return _described_ratings([part for part in data if isinstance(part, RatingTable)], where)
    width = tables[0].data.shape[1]
    others = {tables[0].position(column, "column") for column in beside}
    rest = [p for p in range(width) if p not in others or not has_features]
    n_features = len(rest) if has_features else 0
    gaps = float(np.concatenate([_gaps(table, p) for table in tables for p in rest]).mean())
    if form == "tracks":
        text = f"{width} points, {count // 2} frames{where}, {gaps:.1%} not seen"
        return [("tracks", text, text)]
    return [
        ("rows used", count - dropped, f"{count - dropped}{where}"),
        ("rows dropped", dropped, f"{dropped}{', cells are missing' if dropped else ''}"),
        ("features", n_features, str(n_features)),
        ("missing cells", gaps, f"{gaps:.1%}"),
    ]


def _gaps(table: Table, position: int) -> NDArray[np.bool_]:
    """Rows without a value in a column; a missing word is empty."""
    words = table.labels.get(position)
    if words is not None and words.dtype.kind == "U":
        return np.asarray(words == "")
    return np.isnan(table.data[:, position])


def _described_ratings(tables: Sequence[RatingTable], where: str) -> list[tuple[str, Any, str]]:
    users = len({label for table in tables for label in table.user_ids.tolist()})
    items = len({label for table in tables for label in table.item_ids.tolist()})
    sizes, count = f"{users} x {items}", sum(map(len, tables))
    return [("users x items", sizes, sizes), ("ratings", count, f"{count}{where}")]
