"""How a file of text writes its cells, and how advice names a setting: as an option of the shell or in a node's file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: cells that are missing in every file, in lower case
MISSING_WORDS = frozenset({"", "na", "n/a", "#n/a", "#na", "<na>", "nan", "null", "none", "?"})
#: digits that Python would join: 1_000
UNDERSCORE = "_"


def shell_option(name: str, value: Any = None) -> str:
    """How users of the shell set something: ``--drop ward --drop bed``, ``--percent``, ``--decimal ,``."""
    if value is None or value is True:
        return f"--{name}"
    each = value if isinstance(value, list) else [value]
    return " ".join(f"--{name} {shlex.quote(str(one))}" for one in each)


def file_setting(name: str, value: Any = None) -> str:
    """How a node's file sets something, in its table [data]: ``drop = ["ward", "bed"]``."""
    if value is None:
        return name
    listed = isinstance(value, list) or name == "missing"
    each = value if isinstance(value, list) else [value]
    said = ", ".join(json.dumps(one, ensure_ascii=False) for one in each)
    return f"{name} = [{said}]" if listed else f"{name} = {said}"


@dataclass(frozen=True)
class TableFormat:
    """How a file of text writes its cells; what is None or empty is found out or not used."""

    header: bool | None = None
    separator: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = ()
    percent: bool = False
    encoding: str = "utf-8"
    #: how advice names a setting: by the option of the shell, or as a node's file has it
    said: Callable[..., str] = field(default=shell_option, compare=False, repr=False)

    @property
    def of_a_file(self) -> bool:
        """Whether these settings come from a node's file."""
        return self.said is file_setting

    def __post_init__(self) -> None:
        said = self.said
        try:
            "".encode(self.encoding)  # unlike codecs.lookup it refuses codecs that are not of text
        except LookupError:
            raise ValueError(
                f"{said('encoding')} must be a text encoding, for example utf-8, latin-1 or cp1252"
                f"{self.in_python('encoding=')}, received {self.encoding!r}"
            ) from None
        if self.decimal not in (".", ","):
            raise ValueError(
                f"{said('decimal')} must be . or ,{self.in_python('decimal=')}, received {self.decimal!r}"
            )
        if self.separator is not None and len(self.separator) != 1:
            raise ValueError(
                f"{said('separator')} must be one character, for example ;{self.in_python('separator=')}, received "
                f"{self.separator!r}"
            )
        if self.separator == self.decimal:
            raise ValueError(
                f"{said('separator')} and {said('decimal')} are both {self.decimal!r}: a cell could not be told from the "
                "next one"
            )

    def in_python(self, text: str) -> str:
        """The same in Python, in brackets; users of a file have no use for it."""
        return "" if self.of_a_file else f" ({text})"

    def is_missing(self, cell: str) -> bool:
        """Whether the cell has no value."""
        return cell.strip().lower() in MISSING_WORDS or cell.strip() in self.missing

    def number(self, cell: str) -> float:
        """The cell's number, NaN if it is missing; ValueError if it is text."""
        if self.is_missing(cell):
            return float("nan")
        text, unit = cell.strip(), 1.0
        if self.percent and text.endswith("%"):
            text, unit = text[:-1].rstrip(), 0.01
        if UNDERSCORE in text:
            raise ValueError(text)
        if self.decimal == ",":
            if "." in text:
                raise ValueError(text)
            text = text.replace(",", ".")
        return float(text) * unit

    def is_number(self, cell: str) -> bool:
        """Whether the cell is a number or missing."""
        try:
            self.number(cell)
        except ValueError:
            return False
        return True

    def text_of(self, value: float) -> str:
        """A number as this format writes it."""
        text = repr(float(value))
        return text.replace(".", ",") if self.decimal == "," else text


#: nothing declared: header, separator and missing cells are found out
PLAIN = TableFormat()
