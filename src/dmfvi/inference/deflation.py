"""Linear response with few directions taken out along which sweeps hardly converge.

Let V be the derivative of the expected statistics in the total, so that V (I - J) is symmetric. With U the slow
directions and Y = (I - J) U, Galerkin's coefficients of a vector v and an approximate solution are

    c(v) = (U'VY)^-1 U'V v        (I - J)^-1 v ~ P v = U c + v - Y c        (I - J) P v = v - J (v - Y c)

So sweeps of v - Y c(v) replace those of v (deflation; Nicolaides 1987, SIAM J. Numer. Anal. 24, 355), and for
quantities with tilts T the covariance is about T'VT + T'VU (U'VY)^-1 U'V J'T before any further sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dmfvi.inference.model import Coroutine
from dmfvi.linalg import FloatArray

#: a sweep of scaled directions (s, n), over all nodes
Sweep = Callable[[FloatArray], Coroutine]


class SlowDirections(NamedTuple):
    """Directions of the total in which quantities respond slowly, and what q alone makes of the quantities."""

    directions: FloatArray  # (k, n), U
    expected: FloatArray  # (k, n), V U in all positions of the total
    own: FloatArray  # (r, r), T'VT


@dataclass(frozen=True)
class Deflation:
    """In units of the total's blocks."""

    directions: FloatArray  # (k, n), U
    images: FloatArray  # (k, n), Y
    expected: FloatArray  # (k, n), V U
    inverse: FloatArray  # (k, k), (U'VY)^-1

    @classmethod
    def of(cls, slow: SlowDirections, scale: FloatArray, sweep: Sweep) -> Coroutine:
        """By one sum."""
        directions = np.where(scale > 0, slow.directions, 0.0) / np.where(scale > 0, scale, 1.0)
        expected = scale * slow.expected
        images = directions - (yield from sweep(directions))
        energies = expected @ images.T
        return cls(directions, images, expected, np.linalg.inv(0.5 * (energies + energies.T)))

    def remainder(self, vectors: FloatArray) -> FloatArray:
        """v - Y c(v)."""
        return np.asarray(vectors - self._coefficients(vectors) @ self.images)

    def solution(self, vectors: FloatArray) -> FloatArray:
        """P v."""
        return np.asarray(vectors + self._coefficients(vectors) @ (self.directions - self.images))

    def covariance(self, own: FloatArray, slow: FloatArray, moved: FloatArray) -> FloatArray:
        """Of quantities with tilts T, given T'VT, U'VT and (J U)'VT."""
        added = slow.T @ self.inverse @ moved
        return np.asarray(own + 0.5 * (added + added.T))

    def _coefficients(self, vectors: FloatArray) -> FloatArray:
        return np.asarray(vectors @ self.expected.T @ self.inverse)
