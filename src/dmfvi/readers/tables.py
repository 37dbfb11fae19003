"""Tables from files: .npy, .npz and .csv, empty cells are missing."""

from __future__ import annotations

import csv
import itertools
import warnings
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray

MISSING_WORDS = {"", "na", "nan", "null", "none", "?"}


class Table(NamedTuple):
    """Numbers with NaN for missing entries, and the column names where the file has them."""

    data: FloatArray
    columns: list[str] | None


def read_table(path: str | Path, header: bool | None = None) -> Table:
    """Read a table; anything that is not one is refused with the line where it fails.

    ``header`` is whether the first line of a .csv names the columns; None: it does if it is not
    all numbers. Empty cells and NA, NaN, null, none, ? are missing.
    """
    file = Path(path)
    if not file.exists():
        hint = ": {rank} is for --engine mpi" if "{rank}" in str(file) else ""
        raise FileNotFoundError(f"{file} does not exist{hint}")
    readers = {".npy": _read_npy, ".npz": _read_npz}
    known = sorted([*readers, ".csv"])
    if file.suffix.lower() not in known:
        raise ValueError(f"{file}: unknown format {file.suffix!r}, use one of {known}")
    if file.suffix.lower() == ".csv":
        table = _read_csv(file, header)
    else:
        table = readers[file.suffix.lower()](file)
    if table.data.ndim != 2 or table.data.size == 0:
        raise ValueError(
            f"{file} holds an array of shape {table.data.shape}: "
            "a table needs samples in rows and features in columns"
        )
    check_finite(table, file)
    return table


def check_finite(table: Table, file: Path) -> None:
    """Refuse infinities, by name."""
    infinite = np.argwhere(np.isinf(table.data))
    if len(infinite):
        row, column = infinite[0]
        raise ValueError(
            f"{file}, sample {row + 1}, column {_name(table, column)} is infinite: leave unknown cells empty"
        )


def _name(table: Table, column: int) -> str:
    return repr(table.columns[column]) if table.columns else str(column + 1)


def check_cells(table: Table, file: Path, allow_empty: bool = False) -> None:
    """Refuse infinities and columns without any value, by name."""
    check_finite(table, file)
    unseen = np.flatnonzero(~np.isfinite(table.data).any(0))
    if len(unseen) and not allow_empty:
        shown = ", ".join(_name(table, column) for column in unseen[:5])
        raise ValueError(f"{file}: no value in column {shown}: drop it")


def _read_npy(file: Path) -> Table:
    try:
        return Table(_numbers(np.load(file, allow_pickle=False), file), None)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{file} is not a readable .npy file of numbers: {error}") from error


def _read_npz(file: Path) -> Table:
    try:
        with np.load(file, allow_pickle=False) as archive:
            names = list(archive.files)
            name = "X" if "X" in names else names[0] if len(names) == 1 else None
            if name is None:
                raise ValueError(f"holds {names}: keep one array, or name the table 'X'")
            return Table(_numbers(archive[name], file), None)
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a readable .npz table: {error}") from error


def _numbers(array: np.ndarray, file: Path) -> FloatArray:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{file} holds {array.dtype} values, numbers are needed")
    return array.astype(np.float64)


def _read_csv(file: Path, header: bool | None) -> Table:
    try:
        with file.open(newline="", encoding="utf-8-sig") as handle:
            rows = [(number, row) for number, row in enumerate(csv.reader(handle), 1) if row]
    except csv.Error as error:
        raise ValueError(f"{file} is not a readable .csv table: {error}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text ({error.reason}): save it as UTF-8") from error
    if not rows:
        raise ValueError(f"{file} is empty")
    columns = None
    if len(rows[0][1]) == 1 and (";" in rows[0][1][0] or "\t" in rows[0][1][0]):
        raise ValueError(
            f"{file} is separated by {';' if ';' in rows[0][1][0] else 'tabs'}: use commas"
        )
    if header is None:
        header = _names_columns(file, rows)
    if header:
        columns = [cell.strip() for cell in rows[0][1]]
        _check_names(columns, file)
        rows = rows[1:]
    if not rows:
        return Table(np.empty((0, 0)), columns)
    width = len(columns) if columns is not None else len(rows[0][1])
    data = np.empty((len(rows), width))
    for at, (line, row) in enumerate(rows):
        if len(row) != width:
            raise ValueError(f"{file}, line {line}: {len(row)} cells, expected {width}")
        for column, cell in enumerate(row):
            if not _is_number(cell):
                name = columns[column] if columns is not None else f"{column + 1}"
                raise ValueError(
                    f"{file}, line {line}, column {name!r}: {cell!r} is not a number; "
                    "drop or encode columns that are not numeric, leave missing cells empty"
                )
            data[at, column] = np.nan if cell.strip().lower() in MISSING_WORDS else float(cell)
    return Table(data, columns)


def _names_columns(file: Path, rows: list[tuple[int, list[str]]]) -> bool:
    """Whether the first line names the columns, as far as one can see."""
    line, first = rows[0]
    numbers = [_is_number(cell) for cell in first if cell.strip()]
    if any(numbers) and not all(numbers):
        odd = next(cell for cell in first if not _is_number(cell))
        raise ValueError(
            f"{file}, line {line}: {odd!r} is not a number, other cells are; "
            "say whether the first line names the columns (--header or --no-header)"
        )
    if all(numbers) and _counts_up([row for _, row in rows[:2]]):
        warnings.warn(
            f"{file}, line {line}: {','.join(first[:3])}... is taken for data; if it names the columns "
            "say so (--header, header=True), else --no-header",
            UserWarning,
            stacklevel=4,
        )
    return not all(numbers)


def _counts_up(rows: list[list[str]]) -> bool:
    """Whether a first line of numbers looks like names: years, or 0, 1, 2, ..., and the next line does not."""
    one_by_one = [
        all(cell.strip().isdigit() for cell in row)
        and all(int(b) - int(a) == 1 for a, b in itertools.pairwise(row))
        for row in rows
    ]
    return len(rows[0]) > 1 and one_by_one == [True, False]


def _check_names(columns: list[str], file: Path) -> None:
    empty = [i + 1 for i, name in enumerate(columns) if not name]
    if empty:
        raise ValueError(
            f"{file}: column {empty[0]} has no name; if it is a row index, drop it "
            "(pandas: to_csv(index=False)), else name it"
        )
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise ValueError(f"{file}: columns {twice[:5]} occur more than once, rename them")


def _is_number(cell: str) -> bool:
    if cell.strip().lower() in MISSING_WORDS:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True
