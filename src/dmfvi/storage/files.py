"""Files that are written whole or not at all, and where a model's is."""

from __future__ import annotations

import csv
import io
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

#: read once: it can only be read by setting it, which other threads would notice
UMASK = os.umask(0o077)
os.umask(UMASK)
#: of a model in a directory
FILE_NAME = "model.npz"
#: files that former versions left in a model's directory
FORMER_FILES = ("posterior.npz", "ratings.npz")


@contextmanager
def replacing(path: str | Path) -> Iterator[IO[Any]]:
    """A binary file that replaces ``path`` when the block succeeds, and is removed when it does not."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        os.chmod(temporary, 0o666 & ~UMASK)  # a temporary file is private, the result need not be
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave an empty file under the name
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def superseding(path: str | Path) -> Iterator[Callable[[], None]]:
    """A run that will write ``path``, and what it calls when it begins: until it has written, the file of an earlier run has another name.

    Whatever ends a run that has begun, nobody takes the earlier result for its own; one that has not begun leaves it where it is.
    """
    target = Path(path)
    old = target.with_name(f"{target.name}.old")
    moved: list[Path] = []

    def begin() -> None:
        if not moved and target.is_file():
            os.replace(target, old)
            moved.append(old)

    ended = False
    try:
        yield begin
        ended = True
    finally:
        if (moved or ended) and target.exists():
            old.unlink(missing_ok=True)
        elif moved:
            warnings.warn(
                f"this run has written no {target}: what an earlier one had written is {old}",
                UserWarning,
                stacklevel=3,
            )


@contextmanager
def replacing_table(path: str | Path) -> Iterator[Any]:
    """A csv writer on a UTF-8 file that replaces ``path`` when the block succeeds."""
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield csv.writer(text)
        text.detach()  # flushes, and leaves closing to the file


def write_text(path: str | Path, text: str) -> Path:
    """Write a UTF-8 text file, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())
    return Path(path)


def model_file(path: str | Path) -> Path:
    """The file of a model that is given by its directory or by itself."""
    given = Path(path)
    file = given / FILE_NAME if given.is_dir() else given
    if file.exists():
        return file
    former = [name for name in FORMER_FILES if (given / name).exists()]
    below = sorted(str(found.parent) for found in given.glob(f"*/{FILE_NAME}"))
    hint = "fit a model there first"
    old = file.with_name(f"{file.name}.old")
    if old.exists():
        hint += f"; the last run there failed, {old} is what the one before it had written"
    if former:
        hint = f"{former[0]} is of a former version, fit the model again with this one"
    elif below:
        hint = f"give one of {below[:10]}"
    raise FileNotFoundError(f"{file} does not exist: {hint}")
