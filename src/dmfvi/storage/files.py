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

from dmfvi.lifetime import on_interrupt

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

    def left() -> str:
        """What an interrupted run leaves."""
        if _mark(target) not in (None, before):
            return f"{target} is written"
        if moved:
            return f"{target} is not written, the earlier one is {old}"
        return f"the earlier {target} is unchanged" if before else f"{target} is not written"

    before = _mark(target)
    ended = interrupted = False
    try:
        with on_interrupt(left):
            yield begin
        ended = True
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        if (moved or ended) and target.exists():
            old.unlink(missing_ok=True)
        elif moved and not interrupted:
            warnings.warn(
                f"this run has written no {target}: what an earlier one had written is {old}",
                UserWarning,
                stacklevel=3,
            )


def _mark(path: Path) -> tuple[int, int] | None:
    """Differs when another file is under the name."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


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


def written_or_kept(write: Callable[[Path], Any], folder: Path) -> None:
    """Write files into a folder; where that fails, all of them into another one, and the error says where."""
    try:
        write(folder)
    except OSError as reason:
        why = reason.strerror or str(reason)
        try:
            other = Path(tempfile.mkdtemp(prefix="dmfvi-"))
            write(other)
        except OSError:
            raise OSError(
                f"{folder} cannot be written to ({why}), nor can {tempfile.gettempdir()}: free space on the disk or make "
                "the folder writable"
            ) from reason
        raise OSError(
            f"{folder} cannot be written to ({why}): free space on the disk or make the folder writable. The result is "
            f"kept in {other}"
        ) from reason


def check_exists(file: Path) -> None:
    """Before anything is read."""
    if not file.exists():
        hint = ": {rank} is for --engine mpi" if "{rank}" in str(file) else ""
        raise FileNotFoundError(f"{file} does not exist{hint}")
    if file.is_dir():
        raise ValueError(f"{file} is a directory: give a file")


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
