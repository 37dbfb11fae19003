"""What nodes agree on before they exchange statistics of ratings: the items, and the scale.

Where every node runs in a process of its own, none knows the others' items. Each sends its ids once; the union is
the catalogue, in the same order everywhere. Users' ids stay where they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.inference.collective import Collective
from dmfvi.linalg import FloatArray
from dmfvi.models.ratings.table import RatingInput, Scale, renumbered

#: how ids are written as numbers: numbered columns of a matrix, whole numbers, text, bytes
COLUMNS, WHOLE, TEXT, BYTES = 0.0, 1.0, 2.0, 3.0
#: an agreed number further than this from a whole one was not agreed on
ROUNDING = 0.1


def agree_on_catalogue(
    given: RatingInput, collective: Collective, scale_given: bool
) -> RatingInput:
    """This process's ratings with the items of all nodes, and with the scale of all ratings unless it is given."""
    spoken = [_spoken(given.item_ids, given.numbered)] * len(given.blocks)
    item_ids = _union([_heard(vector) for vector in collective.gather(spoken)])
    blocks = [renumbered(block, given.item_ids, item_ids) for block in given.blocks]
    scale = given.scale
    if not scale_given:
        ends = [_small(np.array(given.scale, dtype="<f8"))] * len(given.blocks)
        lows, highs = np.array([_rounded(v).view("<f8") for v in collective.gather(ends)]).T
        scale = Scale(float(lows.min()), float(highs.max()))
    return given._replace(blocks=blocks, item_ids=item_ids, scale=scale)


def _spoken(ids: NDArray[Any], numbered: bool) -> FloatArray:
    """Ids as small whole numbers, so that a sum over a network brings them through unharmed."""
    if numbered:
        return np.array([COLUMNS, *_small(np.array([len(ids)], dtype="<u8"))])
    if ids.dtype.kind in "US":
        kind = TEXT if ids.dtype.kind == "U" else BYTES
        words = [word.encode() if isinstance(word, str) else word for word in ids.tolist()]
        lengths = [len(word) for word in words]
        content = np.frombuffer(b"".join(words), dtype=np.uint8)
        count = _small(np.array([len(words)], dtype="<u8"))
        return np.concatenate([[kind], count, lengths, content])
    return np.concatenate([[WHOLE], _small(ids.astype("<u8"))])


def _heard(vector: FloatArray) -> NDArray[Any] | int:
    """Inverse of ``_spoken``; the number of columns for a matrix."""
    kind = round(float(vector[0]))
    if kind == COLUMNS:
        return int(_rounded(vector[1:]).view("<u8")[0])
    if kind == WHOLE:
        ids = _rounded(vector[1:]).view("<u8")
        fits = not len(ids) or int(ids.max()) <= np.iinfo(np.int64).max
        return ids.astype(np.int64) if fits else ids.astype(np.uint64)
    count = int(_rounded(vector[1:5]).view("<u8")[0])
    ends = np.cumsum(np.rint(vector[5 : 5 + count])).astype(np.int64)
    content = _rounded(vector[5 + count :]).astype(np.uint8).tobytes()
    starts = [0, *ends[:-1].tolist()]
    words = [content[a:b] for a, b in zip(starts, ends.tolist(), strict=True)]
    return np.array([word.decode() for word in words] if kind == TEXT else words)


def _union(parts: list[NDArray[Any] | int]) -> NDArray[Any]:
    widths = [part for part in parts if isinstance(part, int)]
    if len(widths) == len(parts):
        if len(set(widths)) > 1:
            raise ValueError(
                f"the nodes' matrices have {widths} columns: all nodes must number the items alike, "
                "or pass (users, items, ratings) with ids"
            )
        return np.arange(widths[0])
    ids = [np.arange(part) if isinstance(part, int) else part for part in parts]
    names = {"U": "text", "S": "bytes"}
    kinds = sorted({names.get(part.dtype.kind, "whole numbers") for part in ids})
    if len(kinds) > 1:
        raise ValueError(f"item ids are {' at some nodes and '.join(kinds)} at others: use one")
    return np.unique(np.concatenate(ids))


def _small(values: NDArray[Any]) -> FloatArray:
    """Eight bytes as four numbers of sixteen bits."""
    return np.ascontiguousarray(values).view("<u2").astype(np.float64)


def _rounded(numbers: FloatArray) -> NDArray[np.uint16]:
    """Agreed numbers of sixteen bits, as they were sent."""
    whole = np.rint(numbers)
    if len(numbers) and np.abs(numbers - whole).max() > ROUNDING:
        raise RuntimeError("the nodes could not agree on the item ids: the links are too bad")
    return np.ascontiguousarray(whole.astype("<u2"))
