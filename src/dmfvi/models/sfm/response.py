"""Covariance of a metric structure, cameras integrated out.

Mean field holds points and cameras independent, and the metric of the axes known but for its own residuals. Here both
respond to the points. With the precision of a row of a camera A_n, of the points C, and B_n between them
(x = m . s + t, s~ = (s, 1), tau the noise precision; terms of the residuals left out, as Gauss and Newton do),

    A_n = tau sum_p s~_p s~_p'     B_n = tau (s~_p m_n')_p     Cov(s) = (C - sum_n B_n' A_n^-1 B_n)^+

The pseudo-inverse leaves out affine changes of all points, which no image shows. The metric Q = I of the axes follows from
the cameras' rows: dQ = sum_n K_n dm_n, dm_n = -A_n^-1 B_n ds + e_n with e_n ~ N(0, A_n^-1), and moves the points by -dQ s / 2
(metric.py). A rotation or translation of all points is no error of the shape: the covariance is that of a structure that
has been laid upon the truth as well as can be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.inference.model import Broadcast, Coroutine
from dmfvi.linalg import FloatArray, inverse, symmetrize
from dmfvi.models.sfm.geometry import Cameras
from dmfvi.models.sfm.measurements import seen_by_both
from dmfvi.models.sfm.metric import (
    MIN_SEEN,
    N_UNKNOWNS,
    CameraModel,
    normal_equations,
    products,
    symmetric,
)
from dmfvi.models.sfm.model import Structure
from dmfvi.models.sfm.shard import DIMENSIONS, WIDE

#: points at most: the covariance has (3 P)^2 numbers
MOST_POINTS = 1000
#: part of the largest eigenvalue below which a direction is not determined
NOTHING = 1e-10


class View(NamedTuple):
    """What one camera knows: its tracks (2F, P), its rows and the points, in the axes of the structure."""

    tracks: FloatArray
    cameras: Cameras
    structure: Structure
    metric: CameraModel | None  # how the axes were found; None: they are affine


def structure_covariance(view: View) -> Coroutine:
    """Covariance (3 P, 3 P) of the points that all cameras agree on, by two sums."""
    structure = view.structure.mean
    n_points = len(structure)
    seen, rows, known = _rows_of(view)
    precision = inverse(_row_precisions(view, seen))  # A_n^-1
    equations = (
        np.zeros(N_UNKNOWNS**2 + N_UNKNOWNS + 12)
        if view.metric is None
        else normal_equations(rows[known], view.metric)
    )
    information = _information(view, seen, rows, precision)
    total = yield np.concatenate([information.ravel(), equations])
    total = yield Broadcast(total)
    size = (DIMENSIONS * n_points) ** 2
    schur = symmetrize(total[:size].reshape(DIMENSIONS * n_points, -1))
    # affine changes of all points cannot be seen, whatever is hardly seen of single ones
    away = _without(np.array([_moved(wide, axis) for wide in _wide(view).T for axis in np.eye(3)]))
    shape = away @ _pseudo_inverse(symmetrize(away @ schur @ away), DIMENSIONS * WIDE) @ away
    if view.metric is None:
        return shape
    gains = _gains(rows, known, total[size:], view.metric)  # (n, 6, 3)
    moved = np.einsum("nki,nij->nkj", gains, precision[:, :DIMENSIONS])  # K_n A_n^-1, (n, 6, 4)
    follows = -_cross(view, seen, rows, moved)  # (6, 3P)
    own = np.einsum("nki,nli->kl", moved[..., :DIMENSIONS], gains)
    summed = yield np.concatenate([follows.ravel(), own.ravel()])
    summed = yield Broadcast(summed)
    follows = summed[: follows.size].reshape(N_UNKNOWNS, -1)
    own = summed[follows.size :].reshape(N_UNKNOWNS, N_UNKNOWNS)
    strains = np.stack(
        [-0.5 * (structure @ symmetric(six)).ravel() for six in np.eye(N_UNKNOWNS)], axis=1
    )  # (3P, 6)
    change = np.eye(len(shape)) + strains @ follows
    covariance = change @ shape @ change.T + strains @ own @ strains.T
    still = _still(structure)
    return symmetrize(still @ covariance @ still)


def _rows_of(view: View) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """What is seen (n, P), directions of rows (n, 3), and which rows have a part in the metric; rows that see nothing are 0."""
    seen = np.isfinite(view.tracks).astype(np.float64)
    rows = np.nan_to_num(view.cameras.mean[:, :DIMENSIONS])
    known = np.repeat(seen_by_both(view.tracks) >= MIN_SEEN, 2)
    return seen, rows, known


def _wide(view: View) -> FloatArray:
    return np.column_stack([view.structure.mean, np.ones(len(view.structure.mean))])


def _row_precisions(view: View, seen: FloatArray) -> FloatArray:
    """A_n, (n, 4, 4); a row that sees too little to be determined has the weak prior of a camera's size."""
    wide = _wide(view)
    second = (wide[:, :, None] * wide[:, None, :]).reshape(len(wide), -1)
    found = view.structure.noise_precision * (seen @ second).reshape(-1, WIDE, WIDE)
    weak = np.diag(np.append(np.ones(DIMENSIONS), 1.0 / max(float(np.mean(wide**2)), 1e-300)))
    return np.asarray(found + weak)


def _information(
    view: View, seen: FloatArray, rows: FloatArray, inverses: FloatArray
) -> FloatArray:
    """This camera's part of C - sum B' A^-1 B, (3 P, 3 P)."""
    tau, wide = view.structure.noise_precision, _wide(view)
    n_points = len(wide)
    found = np.zeros((n_points, DIMENSIONS, n_points, DIMENSIONS))
    at, axes = np.arange(n_points), np.arange(DIMENSIONS)
    outer = rows[:, :, None] * rows[:, None, :]
    own = tau * (seen.T @ outer.reshape(len(rows), -1)).reshape(n_points, DIMENSIONS, DIMENSIONS)
    for sees, direction, inner in zip(seen, rows, inverses, strict=True):
        which = np.flatnonzero(sees)
        shared = tau**2 * wide[which] @ inner @ wide[which].T
        block = shared[:, None, :, None] * np.multiply.outer(direction, direction)[None, :, None, :]
        found[np.ix_(which, axes, which, axes)] -= block
    found[at, :, at, :] += own
    return found.reshape(DIMENSIONS * n_points, -1)


def _cross(view: View, seen: FloatArray, rows: FloatArray, left: FloatArray) -> FloatArray:
    """sum_n left_n B_n for left (n, k, 4), (k, 3 P)."""
    tau, wide = view.structure.noise_precision, _wide(view)
    found = tau * np.einsum("nki,pi,np,nj->kpj", left, wide, seen, rows, optimize=True)
    return found.reshape(left.shape[1], -1)


def _gains(
    rows: FloatArray, known: NDArray[np.bool_], equations: FloatArray, model: CameraModel
) -> FloatArray:
    """K_n with dQ = sum_n K_n dm_n for Q = I, six numbers for each row, (n, 6, 3)."""
    gram = equations[: N_UNKNOWNS**2].reshape(N_UNKNOWNS, N_UNKNOWNS)
    size = equations[-12:-3].reshape(DIMENSIONS, DIMENSIONS)
    i, j = rows[0::2], rows[1::2]
    across = products(i, j)
    found: FloatArray = np.zeros((len(rows), N_UNKNOWNS, DIMENSIONS))
    squares = (products(i, i), products(j, j))
    if model == "orthographic":
        found[0::2] = _outer(squares[0], 2.0 * i) + _outer(across, j)
        found[1::2] = _outer(squares[1], 2.0 * j) + _outer(across, i)
        found = np.asarray(-np.linalg.solve(gram, found), dtype=np.float64)
    else:
        both = squares[0] - squares[1]
        found[0::2] = _outer(both, 2.0 * i) + _outer(across, j)
        found[1::2] = _outer(both, -2.0 * j) + _outer(across, i)
        found = -_pseudo_inverse(gram, 1) @ found
        # the scale is that which keeps the mean squared size of the rows: sum m'Qm = trace of size
        weights = np.array([size[0, 0], 2 * size[0, 1], 2 * size[0, 2]])
        weights = np.append(weights, [size[1, 1], 2 * size[1, 2], size[2, 2]])
        unit = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 1.0])
        excess = 2.0 * rows + np.einsum("k,nki->ni", weights, found)
        found = found - unit[:, None] * excess[:, None, :] / np.trace(size)
    found[~known] = 0.0
    return found


def _outer(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(a[:, :, None] * b[:, None, :])


def _pseudo_inverse(matrix: FloatArray, n_free: int) -> FloatArray:
    """Without the directions that are free on paper, the smallest ones, and those that rounding leaves."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > NOTHING * values[-1]
    kept[:n_free] = False
    return np.asarray(vectors[:, kept] / values[kept] @ vectors[:, kept].T)


def _still(structure: FloatArray) -> FloatArray:
    """The projector (3 P, 3 P) that takes rotations and translations out of changes of the points."""
    generators = [np.cross(axis, structure).ravel() for axis in np.eye(DIMENSIONS)]
    generators += [np.tile(axis, len(structure)) for axis in np.eye(DIMENSIONS)]
    return _without(np.array(generators))


def _moved(sizes: FloatArray, axis: FloatArray) -> FloatArray:
    """Every point moved along an axis by its size, (3 P,)."""
    return np.asarray(sizes[:, None] * axis).ravel()


def _without(directions: FloatArray) -> FloatArray:
    """The projector that takes directions (k, n) out."""
    basis = np.linalg.qr(directions.T)[0]
    return np.asarray(np.eye(directions.shape[1]) - basis @ basis.T)
