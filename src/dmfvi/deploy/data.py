"""A node's own data: from a file as an estimator says, and what tells it from other data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.models.ratings.table import RatingTable
from dmfvi.models.sfm.measurements import as_matrix
from dmfvi.readers.ratings import read_ratings
from dmfvi.readers.tables import Table, read_table
from dmfvi.readers.tracks import read_tracks

Data = Table | RatingTable

#: how a file is read, by what an estimator says that it holds; ``header`` as for ``read_table``
READERS: dict[str, Callable[[Path, bool | None], Data]] = {
    "rows": read_table,
    "sequences": read_table,
    "tracks": lambda path, header: Table(as_matrix(read_tracks(path)), None),
    "ratings": lambda path, header: read_ratings(path),
}


def schema(data: Data) -> tuple[int | None, list[str] | None]:
    """Number and names of the columns, the same at all nodes; of ratings nodes agree on the items later."""
    return (data.data.shape[1], data.columns) if isinstance(data, Table) else (None, None)


def digest(data: Data) -> bytes:
    """SHA-256 that tells these data from others: every number, in its place, under its name."""
    parts: list[NDArray[Any]]
    if isinstance(data, Table):
        parts, names = [data.data], data.columns or []
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


def described(data: Data) -> tuple[str, str]:
    """What it is and how much, for people."""
    if isinstance(data, RatingTable):
        sizes = f"{len(data.user_ids)} x {len(data.item_ids)}, {len(data)} ratings"
        return "users x items", sizes
    missing = float(np.isnan(data.data).mean())
    return (
        "samples x features",
        f"{data.data.shape[0]} x {data.data.shape[1]}, {missing:.1%} missing",
    )
