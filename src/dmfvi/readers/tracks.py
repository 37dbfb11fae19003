"""Point tracks from files: 2F x P matrices, NaN where a point is not seen.

Rows are x1 y1 x2 y2 ... of the frames, columns are points, numbers are pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray, plain
from dmfvi.models.sfm.tracks import Tracks
from dmfvi.readers.tables import Table, read_table

#: columns of a .csv with one observation a line
LONG_COLUMNS = ("frame", "point", "x", "y")


def read_tracks(path: str | Path) -> Tracks:
    """Read tracks; the format is recognised by what the file holds.

    ``.mat`` (MATLAB 5): ``measurement_matrix`` (Caltech turntable and single Hopkins objects), ``M`` and mask
    ``W`` (Oxford dinosaur), ``track_x`` and ``track_y`` (CMU hotel, P x F), ``y`` with labels ``s``
    (Hopkins155 ``*_truth.mat``). ``.csv``: columns frame, point, x, y with one observation a line, or the
    2F x P matrix itself; ``.npy`` and ``.npz``: the matrix.
    """
    file = Path(path)
    if file.suffix.lower() == ".mat":
        return _read_mat(file)
    if file.exists() and file.suffix.lower() not in (".csv", ".npy", ".npz"):
        raise ValueError(
            f"{file}: unknown format {file.suffix!r}, tracks are .mat, .csv, .npy or .npz"
        )
    table = read_table(file)
    names = {c.lower() for c in table.columns or []}
    if {"frame", "point"} & names and not set(LONG_COLUMNS) <= names:
        lacking = sorted(set(LONG_COLUMNS) - names)
        raise ValueError(f"{file} lacks columns {lacking}: observations need frame, point, x and y")
    if set(LONG_COLUMNS) <= names:
        return Tracks(_from_observations(table, file), file.stem)
    return Tracks(_even(table.data, file), file.stem)


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


def _from_observations(table: Table, file: Path) -> FloatArray:
    columns = [c.lower() for c in table.columns or []]
    frame, point, x, y = (table.data[:, columns.index(name)] for name in LONG_COLUMNS)
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
    return _both(data)
