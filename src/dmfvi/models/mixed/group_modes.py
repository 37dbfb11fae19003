"""Modes of groups' effects z ~ N(0, I) from agreed sums: Newton steps, each group's halved while its own log density falls.

    f_g(z) = sum over sites of log p(y_g,site | z) - |z|^2 / 2        z <- z + (I - sum of second derivatives)^-1 (gradient - z)

f_g is concave, so full steps are safe near the mode and halved ones lead there from anywhere. A step is at most a few times as long as the one
before: where effects differ by a thousand f_g has an edge, over which full steps lead far again and again. All nodes see the same sums, so all halve
alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray, symmetrize

#: Newton steps and halvings at most
STEPS = 200
#: a step is halved when the log density falls by more than this part of it, unless its squared length is below NEAR
ROUNDING, NEAR = 1e-12, 1e-18
#: how much longer than the one before a step may be
LONGER = 4.0


class Search(NamedTuple):
    """Where sums are taken next (..., q), the best positions so far, and log densities there (...); -inf where there is none."""

    positions: FloatArray
    best: FloatArray
    heights: FloatArray

    @classmethod
    def at(cls, positions: FloatArray) -> Search:
        """A search that begins; where sums are not finite it goes back towards zero."""
        return cls(positions, np.zeros_like(positions), np.full(positions.shape[:-1], -np.inf))


class Advance(NamedTuple):
    """A search after its sums: the next one, precisions (..., q, q), lengths of Newton steps in deviations, and what cannot go on.

    Lengths are infinite, and precisions the identity, where a step was halved.
    """

    search: Search
    precisions: FloatArray
    lengths: FloatArray
    stuck: NDArray[np.bool_]


def advance(search: Search, logs: FloatArray, pulls: FloatArray, curves: FloatArray) -> Advance:
    """One step from agreed log likelihoods (...), their gradients (..., q), and minus second derivatives (..., q, q)."""
    positions, best, heights = search
    finite = np.isfinite(logs) & np.isfinite(pulls).all(-1) & np.isfinite(curves).all((-1, -2))
    values = np.where(finite, logs, -np.inf) - 0.5 * np.square(positions).sum(-1)
    tried = positions - best
    far = np.square(tried).sum(-1) > NEAR
    fell = ~finite | (~(values >= heights - ROUNDING * np.abs(heights)) & far)
    eye = np.eye(positions.shape[-1])
    whole = symmetrize(np.where(fell[..., None, None], 0.0, curves) + eye)
    pull = np.where(fell[..., None], 0.0, pulls - positions)
    step = np.linalg.solve(whole, pull[..., None])[..., 0]
    lengths = np.sqrt(np.einsum("...a,...a->...", step, pull))
    before = np.sqrt(np.square(tried).sum(-1))
    most = np.where(np.isfinite(heights), LONGER * before, np.inf)
    size = np.sqrt(np.square(step).sum(-1))
    step = step * np.minimum(1.0, most / np.maximum(size, 1e-300))[..., None]
    after = Search(
        np.where(fell[..., None], best + 0.5 * tried, positions + step),
        np.where(fell[..., None], best, positions),
        np.where(fell, heights, values),
    )
    return Advance(after, whole, np.where(fell, np.inf, lengths), ~finite & ~far)


def not_reached(count: int) -> ValueError:
    """What to say where steps do not end."""
    return ValueError(
        f"the effects of {count} group{'s' if count > 1 else ''} with rows at several sites have no mode that {STEPS} Newton steps reach: look for "
        "targets or offsets that are far too large, or bring the rows of each group together at one site"
    )
