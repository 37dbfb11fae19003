"""Where results go, and how they are told: tried before the work begins, as a table for people or as JSON."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

console = Console()
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print the result as one JSON object on one line; with -v, progress too, on standard error.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the progress of every node, round by round.")
]


def verbosity(quiet: bool, verbose: bool, as_json: bool) -> int:
    """How much an estimator is to show: 0 nothing, 1 a line, 2 every node; the latter as JSON where --json is given."""
    from dmfvi.progress import use_json_lines

    if quiet and verbose:
        raise ValueError("--quiet and --verbose exclude each other: give one of them")
    use_json_lines(as_json)
    return 2 if verbose else int(not (quiet or as_json))


def check_folder(out: Path, option: str = "--out") -> None:
    """Refuse a folder that could not be written to, before a long fit; nothing is left behind."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{option} {out} is a file: give a directory")
    _try(out, option, out)


def check_file(out: Path, suffixes: Iterable[str], option: str = "--out") -> None:
    """Refuse a file that could not be written."""
    known = tuple(suffixes)
    if out.suffix.lower() not in known or out.is_dir():
        raise ValueError(f"{option} {out} must be a {' or '.join(known)} file")
    _try(out.parent, option, out)


def check_files(*files: Path) -> None:
    """Refuse data that are not there before anything is imported to read them."""
    from dmfvi.storage.files import check_exists

    for file in files:
        check_exists(file)


def target_beside(
    data: Path,
    out: Path | None,
    ending: str,
    suffixes: Iterable[str],
    further: Iterable[str] = (),
) -> Path:
    """The file to write: ``--out``, or ``ending`` in place of the suffix of ``data``; never ``data`` itself.

    ``further`` are what files beside it have in front of their suffix.
    """
    target = out if out is not None else data.with_name(f"{data.stem}{ending}")
    check_file(target, suffixes)
    written = [target, *(target.with_suffix(f".{word}{target.suffix}") for word in further)]
    if data.resolve() in [file.resolve() for file in written]:
        raise ValueError(f"--out {target} would overwrite the input {data}: give another file")
    return target


def check_level(level: float) -> None:
    """Refuse a probability of intervals that is none."""
    if not 0 < level < 1:
        raise ValueError(f"--level must lie in (0, 1), received {level}")


def _try(folder: Path, option: str, shown: Path) -> None:
    """Write where the folder is or would be made."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise ValueError(f"{option} {shown}: {there} is a file, give a directory")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as reason:
        raise ValueError(
            f"{option} {shown} cannot be written ({reason.strerror or reason}): give another place"
        ) from reason


@contextmanager
def superseded_by_fit(path: Path) -> Iterator[None]:
    """A fit within will write ``path``: from its first round on the file of an earlier run has another name."""
    from dmfvi.progress import told_of_fits
    from dmfvi.storage.files import superseding

    with superseding(path) as begin, told_of_fits(begin):
        yield


def tell(title: str, rows: Iterable[tuple[str, Any, str]], as_json: bool = False) -> None:
    """Facts as (name, value, words): the words in a table, or the values as JSON."""
    facts = list(rows)
    if as_json:
        print(json.dumps({name.replace(" ", "_"): plain(value) for name, value, _ in facts}))
        return
    table = RichTable(title=title, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, _, words in facts:
        table.add_row(name, escape(words))
    console.print(table)


def plain(value: Any) -> Any:
    """A value as JSON has it; what is not finite is null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)
