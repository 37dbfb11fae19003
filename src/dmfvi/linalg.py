"""Arrays and matrices: relative norms, symmetric packing, inverses, log-determinants, steps to the edge of a domain."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

FloatArray = NDArray[np.float64]


def plain(value: Any) -> Any:
    """A NumPy scalar as Python's own, so that messages show 0 and not np.int64(0)."""
    return value.item() if isinstance(value, np.generic) else value


def row_words(row: int) -> str:
    """A row of an array for messages, in the numbers of arrays; files have lines and samples from 1."""
    return f"row {row} (counted from 0)"


def label_words(label: Any) -> str:
    """A label for people: 1.0 is 1."""
    value = plain(label)
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


@lru_cache(maxsize=1)
def _thread_pools() -> ThreadpoolController:
    """The BLAS libraries of this process; to look for them takes longer than a small fit."""
    import scipy.linalg  # noqa: F401 - has one of its own

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Within it BLAS runs in one thread: on small blocks threads wait for each other longer than they work."""
    return _thread_pools().limit(limits=1, user_api="blas")


def relative_norm(difference: FloatArray, reference: FloatArray) -> float:
    """|difference| / |reference|, safe at zero."""
    with np.errstate(over="ignore"):
        scale = float(np.linalg.norm(reference))
    if not np.isfinite(scale) and np.isfinite(reference).all():  # only the squares are too large
        unit = np.abs(reference).max()
        return relative_norm(difference / unit, reference / unit)
    return float(np.linalg.norm(difference)) / scale if scale > 0 else 0.0


def symmetrize(matrix: FloatArray) -> FloatArray:
    """(A + A') / 2 over the last two axes."""
    return np.asarray(0.5 * (matrix + np.swapaxes(matrix, -1, -2)))


def inverse(matrix: FloatArray) -> FloatArray:
    """Matrix inverse over the last two axes."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def cholesky(matrix: FloatArray) -> FloatArray:
    """Lower Cholesky factor over the last two axes."""
    return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)


def solve_definite(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solution x of matrix x = right for a positive-definite matrix, as close to singular as rounding leaves it."""
    from scipy.linalg import cho_solve

    return np.asarray(cho_solve((cholesky(matrix), True), right, check_finite=False))


def least_pivot(precision: FloatArray) -> tuple[int, float]:
    """The entry that those before it leave the smallest part of its precision, and that part; zero where it is not definite."""
    scale = np.sqrt(np.diag(precision))
    try:
        diagonal = np.diag(cholesky(precision)) / scale
    except np.linalg.LinAlgError:
        return len(scale) - 1, 0.0
    position = int(np.argmin(diagonal))
    return position, float(diagonal[position] ** 2)


def lost_digits(precision: FloatArray) -> float:
    """Rounding of a variance or log-determinant: of collinear columns under a vague prior both have few digits."""
    _, part = least_pivot(precision)
    return len(precision) * float(np.finfo(np.float64).eps) / part if part > 0 else float("inf")


@lru_cache(maxsize=64)
def upper_triangle(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column indices of the upper triangle, row by row."""
    rows, columns = np.triu_indices(size)
    return rows, columns


def pack_symmetric(matrix: FloatArray) -> FloatArray:
    """Upper triangle of symmetric matrices (..., p, p) as (..., p(p+1)/2)."""
    rows, columns = upper_triangle(matrix.shape[-1])
    return np.ascontiguousarray(matrix[..., rows, columns])


def unpack_symmetric(packed: FloatArray) -> FloatArray:
    """Inverse of ``pack_symmetric``."""
    p = int((np.sqrt(8 * packed.shape[-1] + 1) - 1) / 2 + 0.5)
    rows, columns = upper_triangle(p)
    matrix = np.empty((*packed.shape[:-1], p, p))
    matrix[..., rows, columns] = packed
    matrix[..., columns, rows] = packed
    return matrix


def max_step_positive(value: FloatArray, direction: FloatArray) -> FloatArray:
    """Largest a with value + a * direction > 0, elementwise; inf where it never ends."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(direction < 0, -value / direction, np.inf)


def max_step_definite(matrix: FloatArray, direction: FloatArray) -> FloatArray:
    """Largest a with matrix + a * direction positive definite.

    With matrix = L L', that is -1 / lambda_min(L^-1 direction L^-T) where it is negative.
    """
    factor = np.linalg.cholesky(matrix)
    half = np.linalg.solve(factor, direction)
    whitened = np.linalg.solve(factor, np.swapaxes(half, -1, -2))
    lowest = np.linalg.eigvalsh(0.5 * (whitened + np.swapaxes(whitened, -1, -2)))[..., 0]
    with np.errstate(divide="ignore"):
        return np.where(lowest < 0, -1.0 / np.minimum(lowest, -1e-300), np.inf)


def is_positive_definite(matrix: FloatArray) -> NDArray[np.bool_]:
    """Whether each symmetric matrix (..., p, p) is positive definite."""
    finite = np.asarray(np.isfinite(matrix).all(axis=(-1, -2)))
    safe = np.where(finite[..., None, None], matrix, -np.eye(matrix.shape[-1]))
    return np.asarray(finite & (np.linalg.eigvalsh(safe)[..., 0] > 0))


def log_det(matrix: FloatArray) -> FloatArray:
    """log |matrix| of positive-definite matrices."""
    return np.asarray(np.linalg.slogdet(matrix)[1])
