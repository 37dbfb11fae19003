"""Point tracks from files: 2F x P matrices, NaN where a point is not seen.

Rows are x1 y1 x2 y2 ... of the frames, columns are points, numbers are in units of the tracks (pixels, mostly).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray, plain
from dmfvi.models.sfm.tracks import Tracks
from dmfvi.readers.sheets import read_sheet
from dmfvi.readers.tables import Column, Table, read_table

#: columns of a .csv with one observation a line
LONG_COLUMNS = ("frame", "point", "x", "y")


#: how others name them, in lower case
ALIASES = {
    "frame": {"frame", "frame_id", "frameid", "frame_no", "image", "image_id", "img", "view", "f"},
    "point": {"point", "point_id", "track", "track_id", "trackid", "feature", "feature_id", "id"},
    "x": {"x", "u", "px", "pos_x", "x_px"},
    "y": {"y", "v", "py", "pos_y", "y_px"},
}
#: widths at which a table may hold one observation a line: a number or a label may come after x and y
OBSERVATION_WIDTHS = (4, 5, 6)


def read_tracks(
    path: str | Path, columns: Sequence[Column] | None = None, *, matrix: bool = False
) -> Tracks:
    """Read tracks; the format is recognised by what the file holds.

    ``.mat`` (MATLAB 5): ``measurement_matrix`` (Caltech turntable and single Hopkins objects), ``M`` and mask
    ``W`` (Oxford dinosaur), ``track_x`` and ``track_y`` (CMU hotel, P x F), ``y`` with labels ``s``
    (Hopkins155 ``*_truth.mat``). ``.csv``: columns frame, point, x, y with one observation a line, or the
    2F x P matrix itself; ``.npy`` and ``.npz``: the matrix. ``columns`` names or numbers the four columns of
    observations where they are called otherwise; ``matrix`` says that a table which looks like observations is none.

    Parameters
    ----------
    path : path
        File of tracks.
    columns : sequence of names or numbers from 1, or None
        Columns of frame, point, x and y.
    matrix : bool
        Whether the table is the 2F x P matrix, although it looks like observations.
    """
    file = Path(path)
    if file.suffix.lower() == ".mat":
        return _read_mat(file)
    if file.exists() and file.suffix.lower() not in (".csv", ".tsv", ".npy", ".npz"):
        raise ValueError(
            f"{file}: unknown format {file.suffix!r}, tracks are .mat, .csv, .tsv, .npy or .npz"
        )
    if columns is not None:
        if len(columns) != len(LONG_COLUMNS) or matrix:
            raise ValueError(
                f"--columns needs the columns of frame, point, x and y (columns=), received {list(columns)}"
            )
        return _from_observations(_read_numbers(file, columns), file)
    table = _read_numbers(file, () if matrix else _named_columns(file))
    names = [c.lower() for c in table.columns or []]
    if matrix:
        return Tracks(_even(table.data, file), file.stem)
    if set(LONG_COLUMNS) <= set(names):
        order = [names.index(name) for name in LONG_COLUMNS]
        return _from_observations(table.taking(order), file)
    if {"frame", "point"} & set(names):
        lacking = sorted(set(LONG_COLUMNS) - set(names))
        raise ValueError(f"{file} lacks columns {lacking}: observations need frame, point, x and y")
    if _looks_like_observations(table):
        shown: list[Column] = [*(table.columns or range(1, table.data.shape[1] + 1))]
        example = ",".join(str(c) for c in _guess(shown))
        raise ValueError(
            f"{file} has columns {shown} and looks like one observation a line, not like a 2F x P matrix: name the "
            f"columns of frame, point, x and y (--columns {example}), or say that it is a matrix (--matrix)"
        )
    return Tracks(_even(table.data, file), file.stem)


def _named_columns(file: Path) -> list[Column]:
    """The columns of observations where all four have their names; others may hold text then."""
    if file.suffix.lower() not in (".csv", ".tsv"):
        return []
    names = {c.lower(): c for c in read_sheet(file).columns or []}
    return [names[c] for c in LONG_COLUMNS] if set(LONG_COLUMNS) <= set(names) else []


def _read_numbers(file: Path, columns: Sequence[Column]) -> Table:
    """Some columns or all; tracks have no options to leave one out."""
    try:
        return read_table(file, columns=columns)
    except ValueError as error:
        said, refused, _ = str(error).partition("; leave columns that are not numeric out")
        if not refused:
            raise
        raise ValueError(
            f"{said}; frames and points must be numbered, name the columns of frame, point, x and y "
            "(--columns frame,point,x,y)"
        ) from error


def _looks_like_observations(table: Table) -> bool:
    """Names that stand for frames and points, or two columns of whole numbers that number pairs in a narrow table."""
    names = {c.lower().strip() for c in table.columns or []}
    if names & ALIASES["frame"] and names & ALIASES["point"]:
        return True
    if table.data.shape[1] not in OBSERVATION_WIDTHS or len(table.data) < 4:
        return False
    first = table.data[:, :2]
    whole = np.isfinite(first).all() and (first == np.floor(first)).all() and (first >= 0).all()
    if not whole or not (np.isfinite(table.data[:, 2:4]).all()):
        return False
    repeated = all(len(np.unique(column)) < len(column) for column in first.T)
    return bool(repeated and len(np.unique(first, axis=0)) == len(first))


def _guess(shown: Sequence[Column]) -> list[Column]:
    """Which column is which, as far as names say it."""
    left = list(shown)
    found: list[Column] = []
    for role in LONG_COLUMNS:
        named = [c for c in left if str(c).lower().strip() in ALIASES[role]]
        found.append(named[0] if named else left[0])
        left.remove(found[-1])
    return found


def _read_mat(file: Path) -> Tracks:
    from scipy.io import loadmat

    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist")
    try:
        content = {k: v for k, v in loadmat(file).items() if not k.startswith("__")}
    except Exception as error:  # a damaged file raises nearly anything
        raise ValueError(f"{file} is not a readable MATLAB 5 file: {error}") from error
    for fields, read in MAT_FORMATS.items():
        if set(fields) <= set(content):
            return read(content, file)
    known = "; ".join(" and ".join(fields) for fields in MAT_FORMATS)
    raise ValueError(f"{file} holds {sorted(content)}: tracks need one of: {known}")


def _measurement_matrix(content: Mapping[str, Any], file: Path) -> Tracks:
    return Tracks(_even(_numbers(content, "measurement_matrix", file, 2), file), file.stem)


def _masked_matrix(content: Mapping[str, Any], file: Path) -> Tracks:
    data, mask = _numbers(content, "M", file, 2), _numbers(content, "W", file, 2)
    if data.shape != mask.shape:
        raise ValueError(f"{file}: M has shape {data.shape} but its mask W {mask.shape}")
    return Tracks(_even(np.where(mask > 0, data, np.nan), file), file.stem)


def _coordinate_tables(content: Mapping[str, Any], file: Path) -> Tracks:
    x, y = _numbers(content, "track_x", file, 2), _numbers(content, "track_y", file, 2)
    if x.shape != y.shape:
        raise ValueError(f"{file}: track_x has shape {x.shape} but track_y {y.shape}")
    return Tracks(_both(np.stack([x.T, y.T], axis=1)), file.stem)


def _hopkins155(content: Mapping[str, Any], file: Path) -> Tracks:
    homogeneous = _numbers(content, "y", file, 3)  # 3 x P x F
    labels = _numbers(content, "s", file, 2).ravel()
    if len(homogeneous) != 3 or homogeneous.shape[1] != len(labels):
        raise ValueError(
            f"{file}: y has shape {homogeneous.shape}, expected 3 x points x frames with one label "
            f"in s for each point, received {len(labels)}"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        pixels = homogeneous[:2] / homogeneous[2]
    return Tracks(_both(np.moveaxis(pixels, 2, 0)), file.stem.removesuffix("_truth"), labels)


#: fields that identify a format, and its reader
MAT_FORMATS: dict[tuple[str, ...], Callable[[Mapping[str, Any], Path], Tracks]] = {
    ("measurement_matrix",): _measurement_matrix,
    ("track_x", "track_y"): _coordinate_tables,
    ("y", "s"): _hopkins155,
    ("M", "W"): _masked_matrix,
}


def _numbers(content: Mapping[str, Any], field: str, file: Path, n_axes: int) -> FloatArray:
    value = content[field]
    if hasattr(value, "toarray"):
        value = value.toarray()
    if value.dtype.kind not in "fiub" or value.ndim != n_axes:
        raise ValueError(
            f"{file}: field {field!r} is {value.dtype} of shape {value.shape}, "
            f"expected numbers with {n_axes} axes"
        )
    return np.asarray(value, dtype=np.float64)


def _both(frames: FloatArray) -> FloatArray:
    """(F, 2, P) as 2F x P; a point without one coordinate has none."""
    unseen = ~np.isfinite(frames).all(axis=1, keepdims=True)
    return np.where(unseen, np.nan, frames).reshape(-1, frames.shape[2])


def _even(data: FloatArray, file: Path) -> FloatArray:
    if len(data) % 2:
        raise ValueError(
            f"{file} has {len(data)} rows: tracks need x and y of each frame, an even number"
        )
    return data


def _from_observations(table: Table, file: Path) -> Tracks:
    frame, point, x, y = table.data.T
    for name, values in (("frame", frame), ("point", point)):
        wrong = np.flatnonzero(
            ~(np.isfinite(values) & (values == np.floor(values)) & (values >= 0))
        )
        if len(wrong):
            raise ValueError(
                f"{file}, observation {wrong[0] + 1}: {name} is {plain(values[wrong[0]])!r}, "
                "expected a whole number of at least 0"
            )
    frames, rows = np.unique(frame, return_inverse=True)
    points, cells = np.unique(point, return_inverse=True)
    pairs, counts = np.unique(rows * len(points) + cells, return_counts=True)
    if (counts > 1).any():
        twice = pairs[counts > 1][0]
        raise ValueError(
            f"{file}: point {points[twice % len(points)]:g} occurs more than once in frame "
            f"{frames[twice // len(points)]:g}"
        )
    data = np.full((len(frames), 2, len(points)), np.nan)
    data[rows, 0, cells] = x
    data[rows, 1, cells] = y
    numbers = (each.astype(np.int64) for each in (frames, points))
    return Tracks(_both(data), file.stem, None, *numbers)
