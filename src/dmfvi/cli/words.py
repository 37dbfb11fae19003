"""Columns of text in tables: no features, and a command that leaves them out says so."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmfvi.deploy.kinds import ModelSettings
    from dmfvi.readers.sheets import Sheet
    from dmfvi.readers.tables import Reading

#: columns to name in a note, at most
MOST_NAMED = 8


def text_columns(
    files: Sequence[Path], reading: Reading, needed: Iterable[str | int] = ()
) -> list[str]:
    """Columns without a single number in any of the files, by name or by number from 1.

    There are none if columns were chosen. ``needed`` are columns that the model takes besides its features.
    """
    from dmfvi.readers.sheets import READERS, read_sheet

    chosen = reading.selection
    if chosen.columns or any(file.suffix.lower() not in READERS for file in files):
        return []
    sheets = [read_sheet(file, reading.format) for file in files]
    first = sheets[0]
    named = (*chosen.id, *chosen.drop, *needed)
    taken = {first.position(column, "column") for column in named}
    names = first.columns or [str(number + 1) for number in range(first.width)]
    return [
        name for place, name in enumerate(names) if place not in taken and _is_text(sheets, name)
    ]


def _is_text(sheets: Sequence[Sheet], name: str) -> bool:
    """Whether all files have the column, one or more have text in it, and none a number."""
    try:
        found = [sheet.holds_words(sheet.position(name, "column")) for sheet in sheets]
    except ValueError:
        return False
    return any(found) and False not in found


def as_ids(reading: Reading, names: Sequence[str]) -> Reading:
    """The reading with these columns as ids: they are not used, and copied to results."""
    chosen = reading.selection
    return replace(reading, selection=replace(chosen, id=(*chosen.id, *names)))


def tell_of_text(file: Any, names: Sequence[str], what: str) -> None:
    """Name columns of text on standard error, and ``what`` is done with them."""
    shown = ", ".join(map(repr, names[:MOST_NAMED]))
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    they = ("columns", "hold", "they are") if len(names) > 1 else ("column", "holds", "it is")
    print(f"{file}: {they[0]} {shown}{more} {they[1]} text, {they[2]} {what}", file=sys.stderr)


def read_parts(
    chosen: ModelSettings, files: Sequence[Path], reading: Reading
) -> tuple[list[Any], list[str]]:
    """The data of the files; and columns of text that are left out, if the model has no target.

    For a regression a column of text is perhaps a predictor: that is for the user to say.
    """
    try:
        return [chosen.read(file, reading) for file in files], []
    except ValueError:  # it has the whole advice, also if the rest cannot be read without text
        made = None
        if chosen.leaves_text_out:
            with suppress(ValueError):
                made = _read_without_text(chosen, files, reading)
        if made is None:
            raise
    tell_of_text(", ".join(map(str, files)), made[1], "left out")
    return made


def _read_without_text(
    chosen: ModelSettings, files: Sequence[Path], reading: Reading
) -> tuple[list[Any], list[str]] | None:
    names = text_columns(files, reading, chosen.columns.values())
    if not names:
        return None
    return [chosen.read(file, as_ids(reading, names)) for file in files], names
