"""Ratings from text files, streamed in blocks: bounded memory, errors with file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: bytes read at a time
BLOCK = 1 << 24
#: bytes that a line has at least: "1,1" and its end, or a probe's "1"
LEAST_LINE, LEAST_PROBE_LINE = 4, 2

#: called with the bytes read since the last call
Progress = Callable[[int], None]


class Triples(NamedTuple):
    """Whole-number ids and ratings (NaN where the file has none)."""

    users: NDArray[Any]
    items: NDArray[Any]
    ratings: NDArray[np.float32]


class NotWhole(ValueError):
    """An id that is no whole number: some readers can go on with text."""


def blocks(file: Path, progress: Progress | None, skip: int = 0) -> Iterator[NDArray[np.uint8]]:
    """The file in blocks of whole lines, without its first ``skip`` lines."""
    with file.open("rb") as handle:
        for _ in range(skip):
            line = handle.readline()
            if progress is not None:
                progress(len(line))
        rest = b""
        while chunk := handle.read(BLOCK):
            if progress is not None:
                progress(len(chunk))
            cut = chunk.rfind(b"\n") + 1
            if cut == 0:
                rest += chunk
                continue
            yield np.frombuffer(rest + chunk[:cut], dtype=np.uint8)
            rest = chunk[cut:]
        if rest:
            yield np.frombuffer(rest, dtype=np.uint8)


def read_delimited(
    file: Path,
    delimiter: str,
    positions: tuple[int, int, int],
    skip: int = 0,
    progress: Progress | None = None,
) -> Triples:
    """Lines of fields separated by ``delimiter``; ``positions`` are the positions of user, item and rating."""
    from dmfvi.readers._rating_text_numba import parse_delimited

    mark = np.frombuffer(delimiter.encode(), dtype=np.uint8)
    parts: list[Triples] = []
    line = skip
    for text in blocks(file, progress, skip):
        room = _room(len(text), LEAST_LINE)
        count, lines, status = parse_delimited(text, mark, positions, *room)
        parts.append(_compact(room, count))
        line += lines
        _check(status, file, line, text, lines)
    return _joined(parts)


def read_netflix(
    files: Sequence[Path], with_ratings: bool = True, progress: Progress | None = None
) -> Triples:
    """The Netflix Prize's layout: ``film:``, then its ratings (or, in a probe, its users)."""
    from dmfvi.readers._rating_text_numba import parse_netflix

    parts: list[Triples] = []
    for file in files:
        item, line = np.int64(-1), 0
        for text in blocks(file, progress):
            room = _room(len(text), LEAST_LINE if with_ratings else LEAST_PROBE_LINE)
            count, lines, item, status = parse_netflix(text, item, with_ratings, *room)
            parts.append(_compact(room, count))
            line += lines
            _check(status, file, line, text, lines)
    return _joined(parts)


Room = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


def _room(n_bytes: int, least: int) -> Room:
    n = n_bytes // least + 1
    return np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.float32)


def _compact(room: Room, count: int) -> Triples:
    return Triples(_short(room[0][:count]), _short(room[1][:count]), room[2][:count].copy())


def _short(ids: NDArray[np.int64]) -> NDArray[Any]:
    if len(ids) and ids.max() >= 2**31:
        return ids.copy()
    return ids.astype(np.int32)


def _joined(parts: list[Triples]) -> Triples:
    """One array per column; the parts are released as they are copied."""
    if not parts:
        empty = np.empty(0, np.int32)
        return Triples(empty, empty.copy(), np.empty(0, np.float32))
    columns = [[part[i] for part in parts] for i in range(3)]
    parts.clear()
    joined = []
    while columns:
        joined.append(np.concatenate(columns.pop(0)))
    return Triples(*joined)


def _check(status: int, file: Path, line: int, text: NDArray[np.uint8], lines: int) -> None:
    """Describe what is wrong with the line after the last good one."""
    from dmfvi.readers import _rating_text_numba as codes

    if status == codes.OK:
        return
    rows = text.tobytes().split(b"\n", lines + 1)
    found = rows[lines].decode("utf-8", "replace").strip() if lines < len(rows) else ""
    where = f"{file}, line {line + 1}: {found[:60]!r}"
    problems = {
        codes.TOO_FEW: "has too few fields, the file may be truncated",
        codes.NOT_WHOLE: "has an id that is no whole number",
        codes.NOT_NUMBER: "has a rating that is no number",
        codes.NEGATIVE: "has a negative id",
        codes.NO_ITEM: "comes before any film ('17:')",
        codes.TOO_LARGE: "has an id of more than 18 digits",
    }
    kind = NotWhole if status in (codes.NOT_WHOLE, codes.TOO_LARGE) else ValueError
    raise kind(f"{where} {problems[status]}")
