"""Readers of rating files: Netflix Prize, MovieLens, generic CSV and Parquet.

``read_ratings`` looks at the source and chooses; every reader streams in bounded memory and keeps the ids.
"""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.extras import lacking
from dmfvi.linalg import FloatArray
from dmfvi.models.ratings.ids import IdIndex
from dmfvi.models.ratings.table import RatingTable
from dmfvi.readers.rating_cache import cached
from dmfvi.readers.rating_text import NotWhole, Progress, Triples, read_delimited, read_netflix

#: names of columns that are understood, in order of preference
NAMES = {
    "user": ("user", "userid", "user_id", "customer", "customerid", "customer_id", "u"),
    "item": (
        "item",
        "itemid",
        "item_id",
        "movie",
        "movieid",
        "movie_id",
        "film",
        "product_id",
        "i",
    ),
    "rating": ("rating", "score", "stars", "value", "r"),
}
NETFLIX_PATTERNS = ("mv_*.txt", "combined_data_*.txt")
#: files that are no text, and how they are read
BINARY = {".parquet": "parquet", ".pq": "parquet", ".npz": "sparse"}


class Source(NamedTuple):
    """Files of one data set, and how to read them."""

    files: tuple[Path, ...]
    kind: str  # netflix, delimited, parquet, sparse
    delimiter: str = ","
    positions: tuple[int, int, int] = (0, 1, 2)
    skip: int = 0
    columns: tuple[str, str, str] | None = None
    text_ids: bool = False

    @property
    def n_bytes(self) -> int:
        """Size of all files."""
        return sum(file.stat().st_size for file in self.files)


def read_ratings(
    path: str | Path,
    *,
    columns: tuple[str, str, str] | None = None,
    text_ids: bool | None = None,
    cache: bool | str | Path = False,
    progress: Callable[[int, int], None] | None = None,
) -> RatingTable:
    """Ratings from a file or directory, with their ids.

    Understood: a directory of Netflix ``mv_*.txt`` or ``combined_data_*.txt``, one such file, MovieLens
    ``u.data`` (tabs), ``ratings.dat`` (::) and ``ratings.csv``, other .csv and .parquet files with
    columns named like user, item and rating or given by ``columns``, and .npz of ``scipy.sparse.save_npz`` or of ``numpy.savez(users=, items=, ratings=)``. ``text_ids`` is whether ids of
    a text file are words; None: they are if the first line's are no whole numbers. ``cache`` keeps a compact copy
    (True: in the user's cache directory) that is used as long as the source does not change.
    ``progress(bytes read, bytes in all)`` is called now and then.

    Parameters
    ----------
    path : path
        File or directory.
    columns : tuple of three str or None
        Names of the columns of users, items and ratings; None: found by their names.
    text_ids : bool or None
        Whether ids of a text file are words; None: found from the first line.
    cache : bool or path
        Whether to keep a compact copy, and where.
    progress : callable or None
        Called now and then with the bytes read and the bytes in all.
    """
    source = find_source(Path(path), columns)
    if text_ids is not None:
        source = source._replace(text_ids=text_ids)
    total, done = source.n_bytes, 0

    def advance(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        if progress is not None:
            progress(done, total)

    if cache is False:
        return _read(source, advance)
    return cached(source, None if cache is True else cache, lambda: _read(source, advance))


def find_source(path: Path, columns: tuple[str, str, str] | None = None) -> Source:
    """What a path holds; anything that is not understood is refused with what would be."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.is_dir():
        for pattern in NETFLIX_PATTERNS:
            files = tuple(sorted(path.glob(pattern)))
            if files:
                return Source(files, "netflix")
        for name in ("ratings.csv", "ratings.dat", "u.data"):
            if (path / name).exists():
                return find_source(path / name, columns)
        raise ValueError(
            f"{path} has no {' or '.join(NETFLIX_PATTERNS)}, ratings.csv, ratings.dat or u.data: "
            "name the file itself"
        )
    if path.suffix.lower() in BINARY:
        return Source((path,), BINARY[path.suffix.lower()], columns=columns)
    with path.open("rb") as handle:
        first = handle.readline(1 << 16).decode("utf-8-sig", "replace").strip()
    if not first:
        raise ValueError(f"{path} is empty or begins with an empty line")
    if first.endswith(":") and first[:-1].isdigit():
        return Source((path,), "netflix")
    delimiter = next((mark for mark in ("::", "\t", ";", ",") if mark in first), None)
    if delimiter is None:
        raise ValueError(
            f"{path}, line 1: {first[:60]!r} has no tab, comma, semicolon or '::' between fields"
        )
    fields = [name.strip().strip('"') for name in first.split(delimiter)]
    if columns is None and len(fields) >= 3 and _is_number(fields[2]):
        words = not all(_is_whole(field) for field in fields[:2])
        return Source((path,), "delimited", delimiter, text_ids=words)
    source = Source((path,), "delimited", delimiter, _positions(fields, columns, path), 1)
    return source._replace(text_ids=_has_words(source))


def read_probe(path: str | Path, table: RatingTable) -> NDArray[np.bool_]:
    """Which ratings of the table a probe names: the Netflix ``film:`` and users, or pairs of ids.

    Those ratings are to be held out; a probe that names none of them is refused.

    Parameters
    ----------
    path : path
        The file of the probe.
    table : RatingTable
        The ratings that it names a part of.
    """
    users, items = read_pairs(path)
    rows = IdIndex(table.user_ids).rows(users)
    columns = IdIndex(table.item_ids).rows(items)
    known = (rows >= 0) & (columns >= 0)
    width = len(table.item_ids)
    wanted = np.unique(rows[known] * width + columns[known])
    keys = table.users.astype(np.int64) * width + table.items
    at = np.minimum(np.searchsorted(wanted, keys), max(len(wanted) - 1, 0))
    named = wanted[at] == keys if len(wanted) else np.zeros(len(keys), dtype=bool)
    if not named.any():
        raise ValueError(
            f"{path} names {len(users)} pairs, none of which has a rating in the data: "
            "is it the probe of another data set?"
        )
    return np.asarray(named)


def read_pairs(path: str | Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ids of users and items from a probe or any delimited file; ratings are not read."""
    source = find_probe(Path(path))
    if source.kind == "netflix":
        triples = read_netflix(source.files, with_ratings=False)
        users, items = triples.users, triples.items
    else:
        rows = _text_rows(source.files[0], source, max(source.positions[:2]) + 1)
        users, items = (
            _ids_of([row[position] for row in rows]) for position in source.positions[:2]
        )
    if not len(users):
        raise ValueError(f"{path} is empty: it should name pairs of users and items")
    return users, items


def find_probe(path: Path) -> Source:
    """What a probe file holds."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty: a probe names pairs of users and items")
    with path.open("rb") as handle:
        first = handle.readline(1 << 16).decode("utf-8-sig", "replace").strip()
    if first.endswith(":"):
        return Source((path,), "netflix")
    delimiter = next((mark for mark in ("::", "\t", ";", ",") if mark in first), ",")
    fields = [name.strip().strip('"') for name in first.split(delimiter)]
    if len(fields) < 2:
        raise ValueError(
            f"{path}, line 1: {first[:60]!r} is neither 'film:' nor a user and an item"
        )
    if all(_is_number(field) for field in fields[:2]):
        return Source((path,), "delimited", delimiter)
    positions = tuple(_find(fields, what, path) for what in ("user", "item"))
    return Source((path,), "delimited", delimiter, (positions[0], positions[1], 0), 1)


def _ids_of(words: list[str]) -> NDArray[Any]:
    """Whole numbers if all are."""
    if all(_is_whole(word) for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)
    return np.array(words)


# -- reading ------------------------------------------------------------------------------


def _read(source: Source, advance: Progress) -> RatingTable:
    if source.kind == "netflix":
        table = _coded(read_netflix(source.files, progress=advance), source.files[0])
    elif source.kind == "sparse":
        table = _read_sparse(source.files[0])
    elif source.kind == "parquet":
        table = _read_parquet(source, advance)
    elif source.text_ids:
        table = _read_text_ids(source)
    else:
        file = source.files[0]
        try:
            triples = read_delimited(
                file, source.delimiter, source.positions, source.skip, progress=advance
            )
        except NotWhole as error:
            raise ValueError(
                f"{error}: if ids are words, say so (text_ids=True, --text-ids)"
            ) from error
        table = _coded(triples, file)
    if not len(table):
        raise ValueError(f"{source.files[0]} holds no ratings")
    return table


def _coded(triples: Triples, file: Path) -> RatingTable:
    try:
        return _compact(RatingTable.of(*triples))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _compact(table: RatingTable) -> RatingTable:
    """Ratings as bytes where they are whole numbers, items in as few bits as they need."""
    from dmfvi.models.ratings._rows_numba import encode_grid
    from dmfvi.models.ratings.kernels import index_type

    ratings = table.ratings
    if ratings.dtype.kind == "f" and len(ratings):
        codes = np.empty(len(ratings), dtype=np.uint8)
        low = ratings.min()
        if low >= 0 and encode_grid(ratings, 0.0, 1.0, codes) < 0:
            ratings = codes
        else:
            ratings = ratings.astype(np.float32, copy=False)
    items = table.items.astype(index_type(len(table.item_ids)), copy=False)
    return RatingTable(table.users, items, ratings, table.user_ids, table.item_ids)


def _single_precision(ratings: FloatArray, file: Path) -> NDArray[np.float32]:
    """Ratings as they are kept; what would become infinite is refused."""
    largest = float(np.finfo(np.float32).max)
    with np.errstate(invalid="ignore"):
        beyond = np.isfinite(ratings) & (np.abs(ratings) > largest)
    if beyond.any():
        raise ValueError(
            f"{file}: rating {float(ratings[beyond][0]):g} is above {largest:.2g}: give ratings another unit"
        )
    return ratings.astype(np.float32)


def _read_text_ids(source: Source) -> RatingTable:
    """Ids that are words: read with the csv module, which knows quotes."""
    file = source.files[0]
    user_codes: dict[str, int] = {}
    item_codes: dict[str, int] = {}
    users, items, ratings = [], [], []
    positions = source.positions
    for number, row in _numbered_rows(file, source, max(positions) + 1):
        users.append(user_codes.setdefault(row[positions[0]], len(user_codes)))
        items.append(item_codes.setdefault(row[positions[1]], len(item_codes)))
        try:
            ratings.append(float(row[positions[2]]))
        except ValueError as error:
            raise ValueError(
                f"{file}, line {number}: rating {row[positions[2]]!r} is no number"
            ) from error
    return _compact(
        RatingTable(
            np.array(users, dtype=np.int32),
            np.array(items, dtype=np.int32),
            _single_precision(np.array(ratings), file),
            np.array(list(user_codes)),
            np.array(list(item_codes)),
        )
    )


def _numbered_rows(file: Path, source: Source, width: int) -> Any:
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as handle:
        if len(source.delimiter) == 1:
            rows: Any = csv.reader(handle, delimiter=source.delimiter)
        else:
            rows = (line.rstrip("\r\n").split(source.delimiter) for line in handle)
        for number, row in enumerate(rows, 1):
            if number <= source.skip or not row:
                continue
            if len(row) < width:
                raise ValueError(
                    f"{file}, line {number}: {source.delimiter.join(row)[:60]!r} has too few fields, "
                    "the file may be truncated"
                )
            if any(not row[position].strip() for position in source.positions[:2]):
                raise ValueError(f"{file}, line {number}: an id is empty")
            yield number, [cell.strip() for cell in row]


def _text_rows(file: Path, source: Source, width: int) -> list[list[str]]:
    return [row for _, row in _numbered_rows(file, source, width)]


def _read_sparse(file: Path) -> RatingTable:
    """A matrix users x items of scipy.sparse.save_npz, whose ids are numbers of rows and columns; or arrays of numpy.savez."""
    from scipy.sparse import coo_array, load_npz

    arrays = _named_arrays(file)
    if arrays is not None:
        return _coded(Triples(*arrays), file)
    try:
        matrix = coo_array(load_npz(file))
    except Exception as error:  # a damaged or foreign file raises nearly anything
        raise ValueError(
            f"{file} is not a sparse matrix of scipy.sparse.save_npz ({error}), nor does it hold the arrays users, items "
            "and ratings of numpy.savez"
        ) from error
    return _coded(Triples(matrix.row, matrix.col, matrix.data), file)


#: arrays of an .npz file of ratings
ARRAYS = ("users", "items", "ratings")


def _named_arrays(file: Path) -> list[NDArray[Any]] | None:
    """Users, items and ratings of numpy.savez; None where the file does not have them."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            if not set(ARRAYS) <= set(archive.files):
                return None
            found = [np.asarray(archive[name]) for name in ARRAYS]
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile):
        return None
    lengths = [len(each) if each.ndim == 1 else each.shape for each in found]
    if len(set(map(str, lengths))) > 1 or found[0].ndim != 1:
        raise ValueError(
            f"{file}: users, items and ratings must be of one length, received {lengths}"
        )
    if found[2].dtype.kind not in "fiub":
        raise ValueError(f"{file}: ratings are {found[2].dtype} values, numbers are needed")
    return found


def _read_parquet(source: Source, advance: Progress) -> RatingTable:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise lacking("reading .parquet", "pyarrow", "parquet") from error
    file = source.files[0]
    try:
        reader = pq.ParquetFile(file)
    except Exception as error:  # pyarrow has its own family of errors
        raise ValueError(f"{file} is not a readable Parquet file: {error}") from error
    positions = _positions(list(reader.schema_arrow.names), source.columns, file)
    names = [reader.schema_arrow.names[position] for position in positions]
    parts: list[list[NDArray[Any]]] = [[], [], []]
    n_bytes, n_rows = file.stat().st_size, max(reader.metadata.num_rows, 1)
    for batch in reader.iter_batches(batch_size=1 << 20, columns=names):
        for part, name in zip(parts, names, strict=True):
            column = batch.column(name)
            if column.null_count:
                raise ValueError(f"{file}: column {name!r} has empty cells: leave such rows out")
            part.append(column.to_numpy(zero_copy_only=False))
        advance(n_bytes * batch.num_rows // n_rows)
    if not parts[0]:
        raise ValueError(f"{file} holds no ratings")
    users, items, ratings = (np.concatenate(part) for part in parts)
    return _coded(Triples(users, items, ratings), file)


def _positions(
    fields: Sequence[str], columns: tuple[str, str, str] | None, file: Path
) -> tuple[int, int, int]:
    if columns is not None:
        missing = [name for name in columns if name not in fields]
        if missing:
            raise ValueError(f"{file} has columns {list(fields)[:12]}, not {missing}")
        first, second, third = (list(fields).index(name) for name in columns)
        return first, second, third
    user, item, rating = (_find(fields, what, file) for what in ("user", "item", "rating"))
    return user, item, rating


def _find(fields: Sequence[str], what: str, file: Path) -> int:
    lowered = [name.lower().replace(" ", "_") for name in fields]
    for name in NAMES[what]:
        if name in lowered:
            return lowered.index(name)
    raise ValueError(
        f"{file}: none of the columns {list(fields)[:12]} is a {what}'s: "
        f"name it {what!r}, or say which columns hold user, item and rating (columns=, --columns user,item,rating)"
    )


def _has_words(source: Source) -> bool:
    """Whether the ids of the first line of data are no whole numbers."""
    for _, row in _numbered_rows(source.files[0], source, max(source.positions) + 1):
        return not all(_is_whole(row[position]) for position in source.positions[:2])
    return False


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
