"""The user's own ids of users and items, and the rows that stand for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import plain

#: whole-number ids below this are looked up in a table, others by bisection
TABLE_LIMIT = 1 << 26


class IdIndex:
    """Distinct ids, row i for ids[i]; unknown ids have row -1."""

    def __init__(self, ids: Any) -> None:
        self.ids = np.asarray(ids)
        self._table: NDArray[np.int32] | None = None
        self._order: NDArray[np.int64] | None = None
        whole = self.ids.dtype.kind in "iu" and len(self.ids) > 0 and self.ids.min() >= 0
        if whole and self.ids.max() < max(TABLE_LIMIT, 4 * len(self.ids)):
            self._table = np.full(int(self.ids.max()) + 1, -1, dtype=np.int32)
            self._table[self.ids] = np.arange(len(self.ids), dtype=np.int32)
        else:
            self._order = np.argsort(self.ids, kind="stable")

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, values: Any) -> NDArray[np.int64]:
        """Rows of ids, -1 where an id is unknown."""
        asked = np.atleast_1d(np.asarray(values))
        if not len(self.ids):
            return np.full(asked.shape, -1, dtype=np.int64)
        if self.ids.dtype.kind in "iu" and asked.dtype.kind not in "iub":
            asked = _as_whole(asked)
        elif self.ids.dtype.kind in "US" and asked.dtype.kind not in "US":
            asked = asked.astype(str)
        if self._table is not None:
            inside = (asked >= 0) & (asked < len(self._table))
            return np.where(inside, self._table[np.where(inside, asked, 0)], -1).astype(np.int64)
        assert self._order is not None
        ordered = self.ids[self._order]
        at = np.minimum(np.searchsorted(ordered, asked), len(ordered) - 1)
        return np.where(ordered[at] == asked, self._order[at], -1).astype(np.int64)


def _as_whole(asked: NDArray[Any]) -> NDArray[np.int64]:
    """Whole numbers written as text or floats; what is none becomes an id that no user or item has."""

    def whole(value: Any) -> int:
        try:
            number = float(value)
        except (TypeError, ValueError):
            return -1
        return int(number) if number.is_integer() else -1

    return np.array([whole(value) for value in asked.tolist()], dtype=np.int64)


def encoded(values: NDArray[Any], what: str) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Codes 0..n-1 in the order of the ids, and the ids; negative and fractional ids are refused."""
    values = np.asarray(values)
    if values.ndim != 1:
        raise ValueError(f"{what} ids must be one-dimensional, received shape {values.shape}")
    if values.dtype.kind == "f":
        bad = np.flatnonzero(~(np.isfinite(values) & (values == np.rint(values))))
        if len(bad):
            raise ValueError(
                f"{what} id {plain(values[bad[0]])!r} at position {bad[0]} is no whole number: use integers or text"
            )
        values = values.astype(np.int64)
    if values.dtype.kind == "O":
        values = values.astype(str)
    if values.dtype.kind not in "iuUSb":
        raise TypeError(f"{what} ids must be integers or text, received {values.dtype}")
    if values.dtype.kind in "iub" and len(values):
        low, high = int(values.min()), int(values.max())
        if low < 0:
            position = int(np.flatnonzero(values < 0)[0])
            raise ValueError(
                f"{what} id {values[position]} at position {position} is negative: ids start at 0"
            )
        if high < max(TABLE_LIMIT, 4 * len(values)):
            present = np.zeros(high + 1, dtype=bool)
            present[values] = True
            ids = np.flatnonzero(present)
            codes = np.cumsum(present, dtype=np.int32)
            codes -= 1
            return codes[values], ids
    ids, inverse = np.unique(values, return_inverse=True)
    return inverse.astype(np.int32), ids
