"""What nodes agree on before they can talk about ratings: which items there are, and the scale.

Where every node lives in a process of its own, none knows the others' items. Each says its ids once; the union is
the catalogue, in the same order everywhere. Users' ids stay where they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi._numeric import FloatArray
from dmfvi.agreement import Meeting
from dmfvi.ratings.table import RatingInput, Scale, renumbered

#: how ids are written as numbers: numbered columns of a matrix, whole numbers, text
COLUMNS, WHOLE, TEXT = 0.0, 1.0, 2.0
#: an agreed number further than this from a whole one was not agreed on
ROUNDING = 0.1


def agree_on_catalogue(given: RatingInput, meeting: Meeting, scale_given: bool) -> RatingInput:
    """This process's ratings with everybody's items, and with the scale of all ratings unless it is given."""
    spoken = [_spoken(given.item_ids, given.numbered)] * len(given.blocks)
    item_ids = _union([_heard(vector) for vector in meeting.gather(spoken)])
    blocks = [renumbered(block, given.item_ids, item_ids) for block in given.blocks]
    scale = given.scale
    if not scale_given:
        ends = meeting.gather([np.array(given.scale, dtype=np.float64)] * len(given.blocks))
        # single precision, as ratings are kept: digits that a sum over a network gets right
        lows, highs = np.array(ends).astype(np.float32).T
        scale = Scale(float(lows.min()), float(highs.max()))
    return given._replace(blocks=blocks, item_ids=item_ids, scale=scale)


def _spoken(ids: NDArray[Any], numbered: bool) -> FloatArray:
    """Ids as small whole numbers, so that a sum over a network brings them through unharmed."""
    if numbered:
        return np.array([COLUMNS, *_halves(np.array([len(ids)]))])
    if ids.dtype.kind in "US":
        words = [str(word).encode() for word in ids.tolist()]
        lengths = [len(word) for word in words]
        content = np.frombuffer(b"".join(words), dtype=np.uint8)
        return np.concatenate([[TEXT], _halves(np.array([len(words)])), lengths, content])
    return np.concatenate([[WHOLE], _halves(ids)])


def _heard(vector: FloatArray) -> NDArray[Any] | int:
    """Inverse of ``_spoken``; the number of columns for a matrix."""
    numbers = np.rint(vector)
    if np.abs(vector - numbers).max() > ROUNDING:
        raise RuntimeError("the nodes could not agree on the item ids: the links are too bad")
    if numbers[0] == COLUMNS:
        return int(_whole(numbers[1:])[0])
    if numbers[0] == WHOLE:
        return _whole(numbers[1:])
    count = int(_whole(numbers[1:5])[0])
    ends = np.cumsum(numbers[5 : 5 + count]).astype(np.int64)
    content = numbers[5 + count :].astype(np.uint8).tobytes()
    starts = [0, *ends[:-1].tolist()]
    return np.array([content[a:b].decode() for a, b in zip(starts, ends.tolist(), strict=True)])


def _union(heard: list[NDArray[Any] | int]) -> NDArray[Any]:
    widths = [part for part in heard if isinstance(part, int)]
    if len(widths) == len(heard):
        if len(set(widths)) > 1:
            raise ValueError(
                f"the nodes' matrices have {widths} columns: all nodes must number the items alike, "
                "or pass (users, items, ratings) with ids"
            )
        return np.arange(widths[0])
    ids = [np.arange(part) if isinstance(part, int) else part for part in heard]
    kinds = {"text" if part.dtype.kind == "U" else "whole numbers" for part in ids}
    if len(kinds) > 1:
        raise ValueError("item ids are text at some nodes and whole numbers at others: use one")
    return np.unique(np.concatenate(ids))


def _halves(ids: NDArray[Any]) -> FloatArray:
    """Four numbers of sixteen bits for each id."""
    return ids.astype("<u8").view("<u2").astype(np.float64)


def _whole(halves: FloatArray) -> NDArray[np.int64]:
    return halves.astype("<u2").view("<u8").astype(np.int64)
