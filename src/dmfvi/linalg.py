"""Small numerical helpers that belong to no room."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def plain(value: Any) -> Any:
    """A NumPy scalar as Python's own, so that messages say 0 and not np.int64(0)."""
    return value.item() if isinstance(value, np.generic) else value


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
