"""A learned prior precision lambda ~ Gamma(a, b) of d coefficients w that agrees with the Gaussian which it leads to itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray, symmetrize

#: halvings of the logarithm of a bracket, and doublings that look for one
HALVINGS, DOUBLINGS = 60, 200


def self_consistent(
    shape: float,
    rate: float,
    precision: FloatArray,
    linear: FloatArray,
    chosen: NDArray[np.bool_],
    before: float,
) -> float | None:
    """lambda = (a + d/2) / (b + E[w'w]/2) with w ~ N((A + lambda I)^-1 h, (A + lambda I)^-1), the root next to ``before``.

    A and h are precision and linear with the other entries integrated out (MacKay 1992); None where A is not definite enough.
    """
    try:
        others = np.linalg.solve(
            precision[np.ix_(~chosen, ~chosen)],
            np.column_stack([precision[np.ix_(~chosen, chosen)], linear[~chosen]]),
        )
    except np.linalg.LinAlgError:
        return None
    across = precision[np.ix_(chosen, ~chosen)]
    rest = symmetrize(precision[np.ix_(chosen, chosen)] - across @ others[:, :-1])
    values, vectors = np.linalg.eigh(rest)
    along = vectors.T @ (linear[chosen] - across @ others[:, -1])
    if values[0] < 0:
        if values[0] < -1e-9 * values[-1]:
            return None
        values = np.maximum(values, 0.0)

    def implied(size: float) -> float:
        square = np.square(along / (values + size)) + 1.0 / (values + size)
        return (shape + 0.5 * len(values)) / (rate + 0.5 * float(square.sum()))

    return _root_beside(implied, before)


def _root_beside(implied: Callable[[float], float], before: float) -> float | None:
    """Where an increasing function is its own argument, on the side to which it points at ``before``."""
    up = implied(before) > before
    near, far = before, before
    for _ in range(DOUBLINGS):
        near, far = far, far * (2.0 if up else 0.5)
        if (implied(far) > far) != up:
            break
    else:
        return None
    for _ in range(HALVINGS):
        middle = float(np.sqrt(near * far))
        near, far = (middle, far) if (implied(middle) > middle) == up else (near, middle)
    return float(np.sqrt(near * far))
