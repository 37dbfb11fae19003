"""Options that several commands share: how a file is read, and which of its columns take part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dmfvi.readers.tables import Reading

FILES = "File of the table"
#: what generators of random numbers take
LARGEST_SEED = 2**32 - 1
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line names the columns. By default it does if it has text above numbers, or text only.",
        rich_help_panel=FILES,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Separator of cells. By default detected from the first line: a tab, ; or ,",
        rich_help_panel=FILES,
    ),
]
Decimal = Annotated[str, typer.Option(help="Decimal sign, . or a comma.", rich_help_panel=FILES)]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        help="Text that marks missing cells, besides an empty cell, NA, #N/A, NaN, null and ?; may be repeated.",
        rich_help_panel=FILES,
    ),
]
Percent = Annotated[
    bool, typer.Option("--percent", help="Read 12 % as 0.12.", rich_help_panel=FILES)
]
Encoding = Annotated[
    str,
    typer.Option(
        help="Encoding of a text file; Excel on Windows writes cp1252.", rich_help_panel=FILES
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns to use, in this order: names or numbers from 1, separated by commas; all by default.",
        rich_help_panel=FILES,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(help="Columns to leave out; as --columns.", rich_help_panel=FILES),
]
Id = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        help="Columns that identify rows: not used in the fit, copied to the results; as --columns.",
        rich_help_panel=FILES,
    ),
]


def reading_of(
    header: bool | None,
    separator: str | None,
    decimal: str,
    missing: list[str] | None,
    percent: bool,
    encoding: str,
    columns: list[str] | None,
    drop: list[str] | None,
    id: list[str] | None,
) -> Reading:
    """How to read files, as the options say."""
    from dmfvi.readers.table_format import TableFormat
    from dmfvi.readers.tables import Reading, Selection

    if separator in ("tab", "\\t"):
        separator = "\t"
    return Reading(
        TableFormat(header, separator, decimal, tuple(missing or ()), percent, encoding),
        Selection(_names(columns, "columns"), _names(drop, "drop"), _names(id, "id")),
    )


def _names(given: list[str] | None, option: str) -> tuple[str, ...]:
    for text in given or ():
        if not text.strip(", "):  # an unset variable of a script, for example
            raise ValueError(f"--{option} {text!r} names no column: leave it out, or name some")
    return tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())


def column_of(text: str | None) -> str | int | None:
    """A column by its name, or by its number; 007 is a name."""
    if text is None or not (text.isascii() and text.isdecimal()) or text != str(int(text)):
        return text
    return int(text)
