"""Tables of numbers from files: .npy, .npz, and files of cells (``readers.sheets``); empty cells are missing."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray
from dmfvi.readers.sheets import Sheet, read_sheet
from dmfvi.readers.table_format import TableFormat, shell_option
from dmfvi.sizes import check_size
from dmfvi.storage.files import check_exists

#: a column by its name, or by its number from 1
Column = str | int


class Table(NamedTuple):
    """Numbers with NaN for missing entries, and the column names where the file has them.

    ``labels`` are the columns that are kept as the file has them, by position; where they are words ``data`` has NaN.
    ``numbers`` are the columns' numbers in the file, from 1; None: all of them, in its order.
    """

    data: FloatArray
    columns: list[str] | None
    labels: Mapping[int, NDArray[Any]] = {}
    numbers: Sequence[int] | None = None

    def taking(self, positions: Sequence[int]) -> Table:
        """Some columns, in this order."""
        numbers = self.numbers or range(1, self.data.shape[1] + 1)
        return Table(
            self.data[:, list(positions)],
            None if self.columns is None else [self.columns[p] for p in positions],
            {at: self.labels[p] for at, p in enumerate(positions) if p in self.labels},
            [numbers[p] for p in positions],
        )

    def position(self, column: Column, what: str) -> int:
        """The position of a column that is given by name, or by its number in the file."""
        if isinstance(column, str):
            if self.columns is None:
                raise ValueError(
                    f"{what} = {column!r}, but the table's columns have no names: number it"
                )
            if column not in self.columns:
                raise ValueError(f"{what} = {column!r} is none of the columns {self.columns[:10]}")
            return self.columns.index(column)
        if self.columns is not None and str(column) in self.columns:
            return self.columns.index(str(column))  # a name that is a number, as in Sheet
        width = self.data.shape[1]
        numbers = list(self.numbers or range(1, width + 1))
        if column not in numbers:
            whole = numbers == [*range(1, width + 1)]
            known = f"1..{width}" if whole else f"{numbers[:10]}"
            raise ValueError(f"{what} = {column} is not in {known}, the columns' numbers")
        return numbers.index(column)

    def in_order(self, names: Sequence[str]) -> Table:
        """The same columns in another order."""
        assert self.columns is not None
        return self.taking([self.columns.index(name) for name in names])


@dataclass(frozen=True)
class Selection:
    """Which columns of a file take part: all in the file's order, or those named, in the order named.

    ``drop`` and ``id`` do not; ``id`` columns are carried to files of results. ``beside`` are needed with ``columns``, and may be among them.
    """

    columns: tuple[Column, ...] = ()
    drop: tuple[Column, ...] = ()
    id: tuple[Column, ...] = ()
    beside: tuple[Column, ...] = ()

    def positions(self, sheet: Sheet, also: Sequence[Column] = ()) -> list[int]:
        """Places of the columns that take part; ``also`` are needed beside ``columns``."""
        return self.among(sheet.position, sheet.width, str(sheet.file), also, sheet.format.said)

    def among(
        self,
        position: Callable[[Column, str], int],
        width: int,
        file: str,
        also: Sequence[Column] = (),
        said: Callable[..., str] = shell_option,
    ) -> list[int]:
        """As ``positions``, for whatever can find a column's position; ``said`` names settings in errors."""
        chosen = [position(c, said("columns")) for c in self.columns]
        needed = list(dict.fromkeys(position(c, "column") for c in (*self.beside, *also)))
        left_out = {position(c, said("drop")) for c in self.drop} | {
            position(c, said("id")) for c in self.id
        }
        for what, found in (("is needed", needed), (f"is in {said('columns')}", chosen)):
            for at in found:
                if at in left_out:
                    raise ValueError(
                        f"{file}: column {at + 1} {what}, and in {said('drop')} or {said('id')}: choose"
                    )
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"{file}: {said('columns')} names a column twice")
        used = chosen + [at for at in needed if at not in chosen] if chosen else list(range(width))
        kept = [at for at in used if at not in left_out]
        if not kept:
            raise ValueError(f"{file}: all columns are left out, none is left to learn from")
        return kept


@dataclass(frozen=True)
class Reading:
    """How a file of data is read."""

    format: TableFormat = field(default_factory=TableFormat)
    selection: Selection = field(default_factory=Selection)


def read_table(
    path: str | Path,
    header: bool | None = None,
    *,
    separator: str | None = None,
    decimal: str = ".",
    missing: Sequence[str] = (),
    percent: bool = False,
    encoding: str = "utf-8",
    columns: Sequence[Column] = (),
    drop: Sequence[Column] = (),
    labels: Sequence[Column] = (),
) -> Table:
    """Read a table; anything that is not one is refused with the line where it fails.

    Parameters
    ----------
    path : path
        .csv, .tsv, .npy, .npz; .parquet and .feather with pyarrow, .xlsx with openpyxl.
    header : bool or None
        Whether the first line of a text file names the columns; None: it does if it has text above
        numbers, or text only.
    separator : str or None
        Between cells; None: what the first line has of tabs, ``;`` and ``,``.
    decimal : {".", ","}
        Decimal sign.
    missing : sequence of str
        Words that mark missing cells beside an empty cell, NA, N/A, #N/A, NaN, null, none and ?.
    percent : bool
        Whether ``12 %`` is the number 0.12; otherwise it is text.
    encoding : str
        Of a text file, as Python names it; Excel on Windows writes ``cp1252``.
    columns, drop : sequence of names or numbers from 1
        Columns to use, all by default, and columns to leave out.
    labels : sequence of names or numbers from 1
        Columns that are kept as they are in ``Table.labels``: whole numbers, numbers or words.
    """
    how = TableFormat(header, separator, decimal, tuple(missing), percent, encoding)
    return read_as(path, Reading(how, Selection(tuple(columns), tuple(drop))), labels)


def read_as(
    path: str | Path, reading: Reading, labels: Sequence[Column] = (), gaps: bool = False
) -> Table:
    """As ``read_table``; with ``gaps`` labels that are words may be missing."""
    file = Path(path)
    arrays = {".npy": _read_npy, ".npz": _read_npz}
    if file.suffix.lower() not in arrays:
        return table_of(read_sheet(file, reading.format), reading.selection, labels, gaps)
    check_exists(file)
    array = arrays[file.suffix.lower()](file)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"{file} holds an array of shape {array.shape}: "
            "a table needs samples in rows and features in columns"
        )
    width = array.shape[1]
    kept = [number_of(c, width, file) for c in labels]
    whole = Table(
        array.astype(np.float64), None, {p: array[:, p] for p in kept if array.dtype.kind in "iub"}
    )
    check_finite(whole, file)
    if reading.selection == Selection():
        return whole
    return whole.taking(
        reading.selection.among(
            lambda c, _: number_of(c, width, file), width, str(file), labels, reading.format.said
        )
    )


def table_of(
    sheet: Sheet, selection: Selection, labels: Sequence[Column] = (), gaps: bool = False
) -> Table:
    """The columns of a sheet that take part, as numbers."""
    positions = selection.positions(sheet, labels)
    named = [sheet.position(c, "column") for c in labels]
    kept = {position: sheet.labels(position, gaps) for position in named}
    words = [p for p in positions if p in kept and kept[p].dtype.kind == "U"]
    data = np.full((len(sheet.rows), len(positions)), np.nan)
    numeric = [at for at, p in enumerate(positions) if p not in words]
    data[:, numeric] = sheet.numbers([positions[at] for at in numeric])
    made = Table(
        data,
        None if sheet.columns is None else [sheet.columns[p] for p in positions],
        {at: kept[p] for at, p in enumerate(positions) if p in kept},
        [p + 1 for p in positions],
    )
    check_finite(made, sheet.file)
    return made


def number_of(column: Column, width: int, file: Path) -> int:
    """The position of a column of an array."""
    if not str(column).isdigit() or not 1 <= int(column) <= width:
        raise ValueError(
            f"column {column!r} is not in 1..{width}: the columns of {file} have numbers, no names"
        )
    return int(column) - 1


def check_finite(table: Table, file: Path) -> None:
    """Refuse infinities and what is too large for any model, by name."""
    infinite = np.argwhere(np.isinf(table.data))
    if len(infinite):
        row, column = infinite[0]
        raise ValueError(
            f"{file}, sample {row + 1}, column {_name(table, column)} is infinite: leave unknown cells empty"
        )
    check_size([table.data], table.columns, f"{file}, ", whole=False)


def _name(table: Table, column: int) -> str:
    return repr(table.columns[column]) if table.columns else str(column + 1)


def check_cells(table: Table, file: Path, allow_empty: bool = False) -> None:
    """Refuse infinities and columns without any value, by name."""
    check_finite(table, file)
    unseen = np.flatnonzero(~np.isfinite(table.data).any(0))
    unseen = np.array([p for p in unseen if p not in table.labels], dtype=int)
    if len(unseen) and not allow_empty:
        shown = ", ".join(_name(table, column) for column in unseen[:5])
        raise ValueError(f"{file}: no value in column {shown}: drop it")


def _read_npy(file: Path) -> NDArray[Any]:
    try:
        return _numbers(np.load(file, allow_pickle=False), file)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{file} is not a readable .npy file of numbers: {error}") from error


def _read_npz(file: Path) -> NDArray[Any]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            name = "X" if "X" in names else names[0] if len(names) == 1 else None
            if name is None:
                raise ValueError(f"holds {names}: keep one array, or name the table 'X'")
            return _numbers(archive[name], file)
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a readable .npz table: {error}") from error


def _numbers(array: NDArray[Any], file: Path) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{file} holds {array.dtype} values, numbers are needed")
    return array
