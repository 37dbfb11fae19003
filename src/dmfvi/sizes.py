"""Values that are too large or too small for sums of their squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray

#: sizes between which squares and fourth powers of values, and their sums, are ordinary numbers
LARGEST, SMALLEST = 1e70, 1e-70


def check_size(
    parts: Sequence[FloatArray],
    names: Sequence[Any] | None,
    where: str = "",
    *,
    whole: bool = True,
) -> None:
    """Refuse columns whose squares are beyond double precision, by name; infinities and NaN are refused elsewhere.

    Small values are refused only in a ``whole`` table: those of some rows may be as good as zero.
    """
    seen = [part for part in parts if part.ndim == 2 and part.size]
    if not seen:
        return
    with np.errstate(invalid="ignore"):
        each = [np.fmax(np.fmax.reduce(p, axis=0), -np.fmin.reduce(p, axis=0)) for p in seen]
        largest = np.fmax.reduce(each)
        above = np.isfinite(largest) & (largest > LARGEST)
        below = (largest > 0) & (largest < SMALLEST) & whole
    for column in np.flatnonzero(above | below)[:1]:
        name = column + 1 if names is None else repr(str(names[column]))
        raise ValueError(f"{where}column {name} {_refused(float(largest[column]), 'the column')}")


def check_target_size(values: FloatArray, name: str = "y") -> None:
    """Refuse targets whose squares are beyond double precision."""
    largest = float(np.abs(values).max(initial=0.0))
    if np.isfinite(largest) and (largest > LARGEST or 0 < largest < SMALLEST):
        raise ValueError(f"{name} {_refused(largest, name)}")


def _refused(size: float, what: str) -> str:
    limit = f"above {LARGEST:g}" if size > LARGEST else f"below {SMALLEST:g}"
    return f"has values of size {size:.3g}, {limit}: their squares are beyond double precision; give {what} another unit"
