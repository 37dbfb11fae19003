"""Ratings in memory: one triple after the other, or row by row, with the ids they came with."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray, plain
from dmfvi.models.ratings.ids import encoded
from dmfvi.models.ratings.kernels import RatingRows, grouped, index_type
from dmfvi.tags import stored_as

#: grids that ratings usually lie on: levels per unit
GRIDS = (1, 2, 4, 5, 10, 20)


@dataclass(frozen=True)
class RatingTable:
    """Triples: codes of users and items, ratings, and the ids that the codes stand for."""

    users: NDArray[np.int32]
    items: NDArray[Any]
    ratings: NDArray[Any]
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]

    @classmethod
    def of(cls, users: Any, items: Any, ratings: Any) -> RatingTable:
        """From ids as they are."""
        values = np.asarray(ratings)
        sizes = {np.shape(users), np.shape(items), values.shape}
        if len(sizes) != 1 or values.ndim != 1:
            raise ValueError(
                "users, items and ratings must be one-dimensional and of equal length, received "
                f"{np.shape(users)}, {np.shape(items)}, {values.shape}"
            )
        if values.dtype.kind not in "fiub":
            raise TypeError(f"ratings must be numbers, received {values.dtype}")
        user_codes, user_ids = encoded(np.asarray(users), "user")
        item_codes, item_ids = encoded(np.asarray(items), "item")
        return cls(user_codes, item_codes, values, user_ids, item_ids)

    def __len__(self) -> int:
        return len(self.ratings)

    def __getitem__(self, chosen: Any) -> RatingTable:
        """Some of the triples; ids and codes stay."""
        return RatingTable(
            self.users[chosen],
            self.items[chosen],
            self.ratings[chosen],
            self.user_ids,
            self.item_ids,
        )

    def to_matrix(self) -> sp.csr_matrix:
        """Users x items, in the order of the ids."""
        shape = (len(self.user_ids), len(self.item_ids))
        values = self.ratings.astype(np.float32)
        return sp.csr_matrix((values, (self.users, self.items)), shape=shape)


@stored_as("rating-scale")
class Scale(NamedTuple):
    """Lowest and highest rating."""

    low: float
    high: float


class Block(NamedTuple):
    """One node's ratings by user, users without ratings left out, and the ids of the others."""

    rows: RatingRows
    user_ids: NDArray[Any]


class RatingInput(NamedTuple):
    """Checked ratings, one block or one per node."""

    blocks: list[Block]
    item_ids: NDArray[Any]
    scale: Scale
    n_empty_users: int
    numbered: bool = False  # items are the columns of matrices


def read_input(data: Any, scale: tuple[float, float] | None) -> RatingInput:
    """From a sparse matrix, an array with NaN, triples, a table, or a list of per-node blocks of these."""
    data = [_without_nan(part) for part in data] if isinstance(data, list) else _without_nan(data)
    if _is_block_list(data):
        parts = [_one_block(part, f"block {i}: ") for i, part in enumerate(data)]
        numbered = all(sp.issparse(part) for part in data)
        parts, item_ids = _same_items(parts, numbered)
        if numbered:  # rows are numbered through all blocks
            offsets = np.cumsum([0] + [part.shape[0] for part in data])
            parts = [
                p._replace(user_ids=p.user_ids + o) for p, o in zip(parts, offsets, strict=False)
            ]
        _check_disjoint(parts)
    else:
        parts = [_one_block(data, "")]
        item_ids, numbered = parts[0].item_ids, sp.issparse(data)
    if sum(part.rows.n_ratings for part in parts) == 0:
        raise ValueError("there are no ratings: stored entries of a sparse matrix are ratings")
    for i, part in enumerate(parts):
        if part.rows.n_ratings == 0:
            raise ValueError(
                f"block {i} has no rating: give every node at least one, or leave it out"
            )
    low = min(part.low for part in parts)
    high = max(part.high for part in parts)
    if scale is None:
        scale = (low, high)
    elif low < scale[0] or high > scale[1]:
        wrong = low if low < scale[0] else high
        raise ValueError(
            f"rating {wrong:g} is outside the scale {scale[0]:g}..{scale[1]:g}: "
            "correct it, or leave the scale to be read off the data"
        )
    blocks = [Block(part.rows, part.user_ids) for part in parts]
    n_empty = sum(part.n_empty for part in parts)
    return RatingInput(blocks, item_ids, Scale(*scale), n_empty, numbered)


class _Part(NamedTuple):
    rows: RatingRows
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    low: float
    high: float
    n_empty: int


def _is_block_list(data: Any) -> bool:
    if not isinstance(data, list | tuple) or not data:
        return False
    return all(
        sp.issparse(part)
        or isinstance(part, RatingTable)
        or (
            isinstance(part, list | tuple)
            and len(part) == 3
            and all(np.ndim(column) == 1 for column in part)
        )
        for part in data
    )


def _one_block(data: Any, where: str) -> _Part:
    if sp.issparse(data):
        return _from_matrix(data, where)
    if isinstance(data, RatingTable):
        return _from_table(data, where)
    if isinstance(data, list | tuple) and len(data) == 3:
        return _from_table(RatingTable.of(*data), where)
    raise TypeError(
        f"{where}ratings must be a scipy sparse matrix (users x items), an array with NaN for what is unknown, a "
        f"(users, items, ratings) triple or a RatingTable, received {type(data).__name__}{_hint(data)}"
    )


def _hint(data: Any) -> str:
    if isinstance(data, np.ndarray):
        return f" of shape {data.shape} without NaN: which ratings are unknown?"
    if hasattr(data, "columns"):
        return ": pass three of its columns, (frame.user, frame.item, frame.rating)"
    return ""


def _without_nan(data: Any) -> Any:
    """An array with NaN for unknown ratings as a sparse matrix; anything else as it is."""
    gaps = isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind == "f"
    if not gaps or not np.isnan(data).any():
        return data
    known = ~np.isnan(data)
    indptr = np.concatenate([[0], np.cumsum(known.sum(1))])
    return sp.csr_matrix((data[known], np.nonzero(known)[1], indptr), shape=data.shape)


def _from_matrix(data: Any, where: str) -> _Part:
    if data.format == "coo":  # its conversion would add up ratings that repeat a user and item
        ids = [np.arange(n) for n in data.shape]
        return _from_table(RatingTable(data.row, data.col, data.data, *ids), where)
    matrix = data.tocsr()
    n_users, n_items = matrix.shape
    codes, offset, step, low, high = _codes(matrix.data, where)
    columns = matrix.indices.astype(index_type(n_items), copy=False)
    rows = RatingRows(matrix.indptr.astype(np.int64, copy=False), columns, codes, offset, step)
    return _finished(rows, np.arange(n_users), np.arange(n_items), low, high, where)


def _from_table(table: RatingTable, where: str) -> _Part:
    codes, offset, step, low, high = _codes(table.ratings, where)
    n_users, n_items = len(table.user_ids), len(table.item_ids)
    rows = grouped(table.users, table.items, codes, n_users, n_items, offset, step)
    return _finished(rows, table.user_ids, table.item_ids, low, high, where)


def _finished(
    rows: RatingRows,
    user_ids: NDArray[Any],
    item_ids: NDArray[Any],
    low: float,
    high: float,
    where: str,
) -> _Part:
    rows = _without_duplicates(rows, len(item_ids), where)
    counts = rows.counts
    rated = counts > 0
    if not rated.all():
        indptr = np.concatenate([[0], np.cumsum(counts[rated])])
        rows, user_ids = rows._replace(indptr=indptr), user_ids[rated]
    return _Part(rows, user_ids, item_ids, low, high, int((~rated).sum()))


def _codes(values: NDArray[Any], where: str) -> tuple[NDArray[Any], float, float, float, float]:
    """One byte a rating where they lie on a grid, else the numbers, in single precision where that loses nothing; offset, step, range."""
    from dmfvi.models.ratings._rows_numba import encode_grid, first_outside

    if values.dtype.kind not in "fiub":
        raise TypeError(f"{where}ratings must be numbers, received {values.dtype}")
    if not len(values):
        return np.empty(0, dtype=np.uint8), 0.0, 1.0, np.inf, -np.inf
    if values.dtype.kind == "f":
        largest = float(np.finfo(np.float32).max)
        position = first_outside(values, -largest, largest)
        if position >= 0:
            odd = float(values[position])
            problem = (
                f"above {largest:.2g}: give ratings another unit"
                if np.isfinite(odd)
                else "not a finite number: leave unknown ratings out"
            )
            raise ValueError(f"{where}rating {odd} at position {position} is {problem}")
    low, high = float(values.min()), float(values.max())
    codes = np.empty(len(values), dtype=np.uint8)
    for per_unit in GRIDS:
        if 0.0 < (high - low) * per_unit < 0.5:
            continue  # all of them are between two positions
        if (high - low) * per_unit <= 255 and encode_grid(values, low, float(per_unit), codes) < 0:
            return codes, low, 1.0 / per_unit, low, high
    return _shortest(values), 0.0, 1.0, low, high


def _shortest(values: NDArray[Any]) -> NDArray[Any]:
    """Numbers in single precision where that loses nothing: what a node keeps must not depend on what others have."""
    single = values.astype(np.float32)
    return single if np.array_equal(single, values) else values.astype(np.float64)


def _without_duplicates(rows: RatingRows, n_items: int, where: str) -> RatingRows:
    from dmfvi.models.ratings._rows_numba import count_duplicates, merge_duplicates

    repeated = count_duplicates(rows.indptr, rows.columns, n_items)
    if not repeated:
        return rows
    warnings.warn(
        f"{where}{repeated} of {rows.n_ratings} ratings repeat a user and item: their mean is used",
        UserWarning,
        stacklevel=4,
    )
    values: FloatArray = rows.values()
    columns = rows.columns.copy()
    indptr = np.empty_like(rows.indptr)
    merge_duplicates(rows.indptr, columns, values, n_items, indptr)
    kept = int(indptr[-1])
    codes, offset, step, _, _ = _codes(values[:kept], where)
    return RatingRows(indptr, columns[:kept], codes, offset, step)


def _same_items(parts: list[_Part], numbered: bool) -> tuple[list[_Part], NDArray[Any]]:
    """All blocks with the same item numbering."""
    first = parts[0].item_ids
    if all(np.array_equal(part.item_ids, first) for part in parts):
        return parts, first
    if numbered:
        widths = [len(part.item_ids) for part in parts]
        raise ValueError(
            f"blocks have different numbers of items {widths}: all nodes must number the items alike"
        )
    item_ids = np.unique(np.concatenate([part.item_ids for part in parts]))
    rows = [
        renumbered(Block(part.rows, part.user_ids), part.item_ids, item_ids).rows for part in parts
    ]
    return [
        part._replace(rows=r, item_ids=item_ids) for part, r in zip(parts, rows, strict=True)
    ], item_ids


def renumbered(block: Block, own_ids: NDArray[Any], item_ids: NDArray[Any]) -> Block:
    """A block whose columns count through a larger, sorted list of items."""
    found = np.minimum(np.searchsorted(item_ids, own_ids), max(len(item_ids) - 1, 0))
    if len(own_ids) and not np.array_equal(item_ids[found], own_ids):
        raise ValueError("an item is not in the list of all items: ids of different kinds?")
    to = found.astype(index_type(len(item_ids)))
    return block._replace(rows=block.rows._replace(columns=to[block.rows.columns]))


def _check_disjoint(parts: list[_Part]) -> None:
    together = np.concatenate([part.user_ids for part in parts])
    ids, times = np.unique(together, return_counts=True)
    if (times > 1).any():
        raise ValueError(
            f"user {plain(ids[times > 1][0])!r} has ratings in more than one block: "
            "a user's ratings stay on one node"
        )


def split_block(block: Block, n_nodes: int) -> list[Block]:
    """Contiguous users with about equally many ratings for each node."""
    rows = block.rows
    if rows.n_rows < n_nodes:
        raise ValueError(
            f"{rows.n_rows} users with ratings cannot be split over {n_nodes} nodes: use a smaller network"
        )
    wanted = rows.n_ratings * np.arange(1, n_nodes) / n_nodes
    cuts = np.concatenate([[0], np.searchsorted(rows.indptr, wanted), [rows.n_rows]])
    for i in range(1, n_nodes + 1):  # every node has a user
        cuts[i] = max(cuts[i], cuts[i - 1] + 1)
    for i in range(n_nodes, 0, -1):
        cuts[i] = min(cuts[i], rows.n_rows - (n_nodes - i))
    return [
        Block(rows.slice(int(a), int(b)), block.user_ids[int(a) : int(b)])
        for a, b in pairwise(cuts)
    ]


def joined(blocks: list[Block]) -> Block:
    """All blocks on one machine; the grids of their ratings may differ."""
    values = _shortest(np.concatenate([block.rows.values() for block in blocks]))
    starts = np.cumsum([0] + [block.rows.n_ratings for block in blocks])
    indptr = np.concatenate(
        [[0]] + [b.rows.indptr[1:] + s for b, s in zip(blocks, starts, strict=False)]
    )
    columns = np.concatenate([block.rows.columns for block in blocks])
    ids = np.concatenate([block.user_ids for block in blocks])
    return Block(RatingRows(indptr, columns, values, 0.0, 1.0), ids)
