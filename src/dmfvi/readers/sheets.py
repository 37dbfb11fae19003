"""Tables as text, cell by cell as the file has them: .csv, .tsv, .xlsx, .parquet, .feather."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.extras import lacking
from dmfvi.linalg import FloatArray
from dmfvi.readers.table_format import PLAIN, TableFormat
from dmfvi.storage.files import check_exists

#: what people also write for a missing cell; only where it is declared
PERHAPS_MISSING = frozenset(
    {"n.a.", "n.d.", "nil", "-", "--", ".", "missing", "unknown", "#value!", "#ref!", "#div/0!"}
)
#: digits that are no number: a code such as 007
ZERO_FIRST = re.compile(r"-?0\d+")
SEPARATORS = (",", ";", "\t", "|")
#: amounts with a currency, hexadecimal numbers and truth values, which nobody wants to lose
MEANT_AS_NUMBER = re.compile(r"[^\w\s]*\s*[+-]?\d[\d., ']*\s*[^\w\s]*|0x[0-9a-f]+|true|false")
YEAR = re.compile(r"(1[5-9]|20|21)\d\d")
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+(\.\d{3})*,\d+\s*")
#: columns to name in a message, at most
MOST_NAMED = 8


class Row(NamedTuple):
    """One line of a file."""

    line: int
    cells: list[str]


@dataclass(frozen=True)
class Sheet:
    """The cells of a file as text."""

    file: Path
    columns: list[str] | None
    rows: list[Row]
    format: TableFormat = field(default_factory=TableFormat)
    separator: str = ","

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.columns) if self.columns is not None else len(self.rows[0].cells)

    def name(self, position: int) -> str:
        """A column for messages: its name, or its number from 1."""
        return repr(self.columns[position] if self.columns is not None else f"{position + 1}")

    def position(self, given: str | int, what: str) -> int:
        """The position of a column that is given by name, or by number from 1."""
        if self.columns is not None and str(given) in self.columns:
            return self.columns.index(str(given))
        number = int(given) if str(given).isdigit() else 0
        if 1 <= number <= self.width:
            return number - 1
        if self.columns is None:
            raise ValueError(
                f"{what} = {given!r}, but the columns of {self.file} have no names: number it, 1 to {self.width}"
            )
        raise ValueError(
            f"{what} = {given!r} is none of the columns {self.columns[:10]} of {self.file}"
        )

    def numbers(self, positions: Sequence[int]) -> FloatArray:
        """Columns as numbers, NaN where a cell is missing; text is refused with its line and column."""
        if self.format.percent:
            for position in positions:
                self._check_percent(position)
        data = np.empty((len(self.rows), len(positions)))
        for at, row in enumerate(self.rows):
            for column, position in enumerate(positions):
                try:
                    data[at, column] = self.format.number(row.cells[position])
                except ValueError:
                    raise self._refusal(row, position, positions) from None
        return data

    def _check_percent(self, position: int) -> None:
        """A column has percent signs in all of its cells or in none: 12 beside 12 % could be either."""
        signed, plain = None, None
        for row in self.rows:
            cell = row.cells[position].strip()
            if cell.endswith("%"):
                signed = signed or row
            elif self.format.is_number(cell) and self.format.number(cell) != 0.0:
                plain = plain or (None if self.format.is_missing(cell) else row)
        if signed is not None and plain is not None:
            raise ValueError(
                f"{self.file}, line {plain.line}, column {self.name(position)}: {plain.cells[position]!r} has no percent sign, "
                f"{signed.cells[position]!r} in line {signed.line} has one: write all of them the same way"
            )

    def labels(self, position: int, gaps: bool = False) -> NDArray[Any]:
        """A column as it is: whole numbers, numbers, or words where a cell is no number.

        With ``gaps`` a missing word is "", otherwise it is refused.
        """
        cells = [row.cells[position].strip() for row in self.rows]
        if not all(self.format.is_number(cell) for cell in cells):
            if gaps:
                return np.array(["" if self.format.is_missing(cell) else cell for cell in cells])
            empty = [row.line for row in self.rows if self.format.is_missing(row.cells[position])]
            if empty:
                raise ValueError(
                    f"{self.file}, line {empty[0]}: no value in column {self.name(position)}"
                )
            return np.array(cells)
        values = np.array([self.format.number(cell) for cell in cells])
        if any(ZERO_FIRST.fullmatch(cell) for cell in cells):
            return np.array(cells)  # 007 is no 7
        if not all(cell.removeprefix("-").isdigit() for cell in cells):
            return values
        exact = [int(cell) for cell in cells]  # floats would take neighbours above 2^53 for one
        if all(abs(number) < 2**63 for number in exact):
            return np.array(exact, dtype=np.int64)
        return np.array(cells)

    def text_columns(self) -> list[int]:
        """Columns in which a cell is no number."""
        return [
            position
            for position in range(self.width)
            if not all(self.format.is_number(row.cells[position]) for row in self.rows)
        ]

    def holds_words(self, position: int) -> bool | None:
        """Whether a column holds words only: no cell is a number, or could be one with an option. None if all are missing."""
        cells = [row.cells[position] for row in self.rows]
        known = [cell for cell in cells if not self.format.is_missing(cell)]
        return not any(map(self._maybe_number, known)) if known else None

    def _maybe_number(self, cell: str) -> bool:
        text = cell.strip()
        return (
            self.format.is_number(cell)
            or text.endswith("%")
            or text.lower() in PERHAPS_MISSING
            or DECIMAL_COMMA.fullmatch(text) is not None
            or MEANT_AS_NUMBER.fullmatch(text.lower()) is not None
        )

    def _refusal(self, row: Row, position: int, positions: Sequence[int]) -> ValueError:
        cell = row.cells[position]
        others = [p for p in self.text_columns() if p != position and p in positions]
        also = (
            f" (text also in columns {', '.join(map(self.name, others[:MOST_NAMED]))})"
            if others
            else ""
        )
        return ValueError(
            f"{self.file}, line {row.line}, column {self.name(position)}: {cell!r} is not a number{also}; "
            f"{self._advice(cell, sorted({position, *others}))}"
        )

    def _advice(self, cell: str, words: Sequence[int]) -> str:
        read = [self._remedies([cell])] if self._remedies([cell]) else []
        left = []
        for position in words:
            cells = [row.cells[position] for row in self.rows]
            found = self._remedies([c for c in cells if not self.format.is_number(c)])
            if found:
                read.append(found)
            else:
                left.append(position)
        parts = [self._leave_out(left)] if left else []
        options = list(dict.fromkeys(remedy for found in read for remedy in found))
        if self._remedies([cell]):  # first of all what this very cell needs
            return "; ".join([*options, *parts])
        return "; ".join([*parts, *options, *([] if options else ["leave missing cells empty"])])

    def _leave_out(self, positions: Sequence[int]) -> str:
        """What to do with columns that are no numbers."""
        said = self.format.said
        roles: dict[str, list[Any]] = {"id": [], "drop": []}
        for p in positions:
            name = p + 1 if self.columns is None else self.columns[p]
            roles["id" if self._identifies(p) else "drop"].append(name)
        shown = [said(role, names) for role, names in roles.items() if names]
        if self.format.of_a_file:
            return (
                f"leave columns that are not numeric out ({', '.join(shown)} in [data]), encode them, or name them in "
                "formula of a regression in [model]"
            )
        return (
            f"leave columns that are not numeric out ({' '.join(shown)}; --id columns identify rows and are carried along), "
            "encode them, or name them in --formula of a regression"
        )

    def _remedies(self, cells: Sequence[str]) -> list[str]:
        """What reads all these cells as numbers, in words; nothing where nothing does."""
        how, found = self.format, []
        where = " in [data]" if how.of_a_file else ""
        for cell in cells:
            text = cell.strip()
            mark = text.endswith("%") and not how.percent
            number = text[:-1].rstrip() if mark else text
            comma = how.decimal == "." and DECIMAL_COMMA.fullmatch(number) is not None
            perhaps = text.lower() in PERHAPS_MISSING
            if not (mark and how.is_number(number)) and not comma and not perhaps:
                return []
            if comma:
                found.append(
                    f"for decimal commas say {how.said('decimal', ',')}{where}"
                    + how.in_python("decimal=','")
                )
            if mark:
                found.append(
                    f"to read percentages as fractions say {how.said('percent', True)}{where}"
                    + how.in_python("percent=True")
                )
            if perhaps:
                found.append(
                    f"if {text} marks a missing cell say {how.said('missing', text)}{where}"
                    + how.in_python(f"missing=({text!r},)")
                )
        return list(dict.fromkeys(found))

    def _identifies(self, position: int) -> bool:
        """Whether no two rows have the same cell."""
        cells = [row.cells[position] for row in self.rows]
        return len(cells) > 1 and len(set(cells)) == len(cells)


def read_sheet(path: str | Path, how: TableFormat = PLAIN) -> Sheet:
    """Read a file of cells; anything that is not a table is refused with the line where it fails."""
    file = Path(path)
    check_exists(file)
    if file.suffix.lower() not in READERS:
        raise ValueError(
            f"{file}: unknown format {file.suffix!r}, use one of {sorted([*READERS, '.npy', '.npz'])}"
        )
    return READERS[file.suffix.lower()](file, how)


def _read_text(file: Path, how: TableFormat) -> Sheet:
    utf8 = codecs.lookup(how.encoding).name == "utf-8"
    try:
        text = file.read_text(encoding="utf-8-sig" if utf8 else how.encoding)
    except UnicodeError as error:
        with file.open("rb") as opened:
            marked = opened.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        found = "utf-16" if marked else "cp1252"
        why = "" if marked else " for a file of Excel on Windows"
        raise ValueError(
            f"{file} is not {how.encoding.upper()} text ({error}): save it as UTF-8, or name its encoding, "
            f"for example {how.said('encoding', found)}{why}{how.in_python(f'encoding={found!r}')}"
        ) from error
    if "\0" in text[:10_000]:
        raise ValueError(f"{file} is not text: it holds zero bytes")
    # lines end where files end them: str.splitlines would also break cells at U+2028 and the like
    lines = list(io.StringIO(text, newline=""))
    separator = how.separator or _separator(file, lines)
    try:
        reader = csv.reader(lines, delimiter=separator)
        rows = [Row(reader.line_num, cells) for cells in reader if not _blank(cells)]
    except csv.Error as error:
        raise ValueError(f"{file} is not a readable table: {error}") from error
    if not rows:
        raise ValueError(f"{file} is empty")
    return _sheet(file, rows, how, separator)


def _blank(cells: list[str]) -> bool:
    """An empty line, or one of spaces; a quoted empty cell is a cell."""
    return not cells or (len(cells) == 1 and bool(cells[0]) and not cells[0].strip())


def _separator(file: Path, lines: Sequence[str]) -> str:
    """Tabs in a .tsv; elsewhere what the first line has, where one candidate splits it."""
    if file.suffix.lower() == ".tsv":
        return "\t"
    first = next((line for line in lines if line.strip()), "")
    outside = re.sub(r'"[^"]*"', "", first)
    for candidate in ("\t", ";"):  # a comma beside them is a decimal comma or text
        if candidate in outside:
            return candidate
    return "," if "," in outside or "|" not in outside else "|"


def _sheet(file: Path, rows: list[Row], how: TableFormat, separator: str) -> Sheet:
    header = _names_columns(file, rows, how) if how.header is None else how.header
    columns = None
    if header:
        columns = [cell.strip() for cell in rows[0].cells]
        _check_names(columns, file)
        rows = rows[1:]
    if not rows:
        raise ValueError(
            f"{file} has a line of {len(columns or [])} column names and no rows below it"
        )
    width = len(columns) if columns is not None else len(rows[0].cells)
    for row in rows:
        if len(row.cells) != width:
            raise ValueError(
                f"{file}, line {row.line}: {len(row.cells)} cells, expected {width}"
                + (
                    " (cells are separated by " + _shown(separator) + ")"
                    if separator != ","
                    else ""
                )
            )
    return Sheet(file, columns, rows, how, separator)


def _shown(separator: str) -> str:
    return "tabs" if separator == "\t" else separator


def _names_columns(file: Path, rows: list[Row], how: TableFormat) -> bool:
    """Whether the first line names the columns, as far as one can see.

    It does if it has text and no number, or names above numbers beside years. Words for a missing cell may be
    names (na is sodium), so beside text they count for nothing.
    """
    line, first = rows[0]
    words = [position for position, cell in enumerate(first) if not how.is_number(cell)]
    known = [cell.strip() for cell in first if not how.is_missing(cell)]
    numbers = [cell for cell in known if how.is_number(cell)]
    beside = numbers or [cell for cell in first if cell.strip() and how.is_missing(cell)]
    if words and beside:
        years = all(YEAR.fullmatch(cell) for cell in numbers)
        text = [position for position in words if not how.is_missing(first[position])]
        if (
            years
            and all(_is_name(first[position]) for position in text)
            and any(_names_numbers(rows, position, how) for position in text)
        ):
            return True
        raise ValueError(
            f"{file}, line {line}: {first[words[0]]!r} is not a number, other cells are; "
            f"say whether the first line names the columns ({_header_words(how)})"
        )
    if not words and (_counts_up([row.cells for row in rows[:2]]) or _may_be_names(first, how)):
        warnings.warn(
            f"{file}, line {line}: {','.join(first[:3])}... is taken for data; if it names the columns "
            f"say so, or that it does not ({_header_words(how)})",
            UserWarning,
            stacklevel=6,
        )
    return bool(words)


def _names_numbers(rows: list[Row], position: int, how: TableFormat) -> bool:
    """Whether the first cell of a column is a word, and the next that is not missing a number."""
    cell, *below = (row.cells[position] for row in rows if position < len(row.cells))
    seen = next((value for value in below if not how.is_missing(value)), None)
    return _is_name(cell) and seen is not None and how.is_number(seen)


def _is_name(cell: str) -> bool:
    """Whether a cell begins as names do: not <5, 12 % or 1O, which may be data, and no word for a missing cell or a truth value."""
    text = cell.strip().lower()
    begins = text[:1].isalpha() or text[:1] == "_"
    data = text in PERHAPS_MISSING or text in ("yes", "no")
    return begins and not data and MEANT_AS_NUMBER.fullmatch(text) is None


def _may_be_names(first: list[str], how: TableFormat) -> bool:
    """Whether a line has nothing but words for missing cells, each another one."""
    return all(cell.strip() and how.is_missing(cell) for cell in first) and len(set(first)) == len(
        first
    )


def _header_words(how: TableFormat) -> str:
    if how.of_a_file:
        return "header = true or false in [data]"
    return "--header or --no-header, header=True or False"


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


# -- files with types ---------------------------------------------------------------------


def _as_text(value: Any) -> str:
    """A cell of a typed file as text that reads back to the same number."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _typed(
    file: Path, columns: Iterable[Any], rows: Iterable[Iterable[Any]], how: TableFormat
) -> Sheet:
    names = [str(name) for name in columns]
    _check_names(names, file)
    cells = [Row(line, [_as_text(v) for v in row]) for line, row in enumerate(rows, 2)]
    plain = TableFormat(missing=how.missing, percent=how.percent, said=how.said)
    if not cells or not names:
        raise ValueError(f"{file} has {len(names)} columns and {len(cells)} rows: nothing to read")
    return Sheet(file, names, cells, plain)


def _read_arrow(file: Path, how: TableFormat) -> Sheet:
    try:
        from pyarrow import feather, parquet
    except ImportError as error:
        raise lacking(f"reading {file.suffix}", "pyarrow", "parquet") from error
    read = feather.read_table if file.suffix.lower() == ".feather" else parquet.read_table
    try:
        table = read(file)
    except Exception as error:  # a damaged file raises nearly anything
        raise ValueError(f"{file} is not a readable {file.suffix} table: {error}") from error
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    columns = [table.column(name).to_pylist() for name in names]
    return _typed(file, names, zip(*columns, strict=True), how)


def _read_xlsx(file: Path, how: TableFormat) -> Sheet:
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise lacking("reading .xlsx", "openpyxl", "excel") from error
    try:
        sheets = load_workbook(file, read_only=True, data_only=True).worksheets
        found = [list(row) for row in sheets[0].iter_rows(values_only=True)]
    except Exception as error:  # a damaged file raises nearly anything
        raise ValueError(f"{file} is not a readable .xlsx table: {error}") from error
    rows = [row for row in found if any(v is not None for v in row)]
    if not rows:
        raise ValueError(f"{file} is empty")
    plain = TableFormat(how.header, None, ".", how.missing, how.percent, said=how.said)
    cells = [Row(line, [_as_text(v) for v in row]) for line, row in enumerate(rows, 1)]
    return _sheet(file, cells, plain, ",")


#: readers of cells by suffix
READERS: dict[str, Callable[[Path, TableFormat], Sheet]] = {
    ".csv": _read_text,
    ".tsv": _read_text,
    ".parquet": _read_arrow,
    ".feather": _read_arrow,
    ".xlsx": _read_xlsx,
}
