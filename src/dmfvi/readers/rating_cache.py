"""Compact copies of parsed ratings: five bytes a rating for a source with few items and stars."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dmfvi.models.ratings.table import RatingTable
from dmfvi.storage.files import replacing

if TYPE_CHECKING:
    from dmfvi.readers.ratings import Source

VERSION = 1
COLUMNS = ("users", "items", "ratings", "user_ids", "item_ids")


def cache_directory() -> Path:
    """$DMFVI_CACHE, or dmfvi in the user's cache directory."""
    given = os.environ.get("DMFVI_CACHE")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "dmfvi"


def cached(
    source: Source, where: str | Path | None, read: Callable[[], RatingTable]
) -> RatingTable:
    """The table from the cache, or read and kept there; a damaged copy is written anew."""
    folder = cache_directory() if where is None else Path(where)
    file = folder / f"ratings-{_key(source)}.npz"
    if file.exists():
        try:
            with np.load(file, allow_pickle=False) as archive:
                return RatingTable(*(archive[name] for name in COLUMNS))
        except Exception:  # a torn copy is only a copy
            file.unlink(missing_ok=True)
    table = read()
    # no folder to keep it in: the ratings are the same without a cache
    with suppress(OSError), replacing(file) as target:
        os.fchmod(target.fileno(), 0o600)  # other users of the machine may not read them
        np.savez(target, **{name: getattr(table, name) for name in COLUMNS})
    return table


def _key(source: Source) -> str:
    """Of the files as they are now and of how they are read."""
    facts = [VERSION, source.kind, source.delimiter, source.positions, source.skip, source.columns]
    facts.append(source.text_ids)
    for path in source.files:
        status = path.stat()
        facts.append((str(path.resolve()), status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]
