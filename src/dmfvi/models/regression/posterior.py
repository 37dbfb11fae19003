"""Posteriors of coefficients, kept in agreed units and shown in the data's.

    theta in the data's units = matrix theta + shift

With a column at 1e8 deviations from zero the coefficients' precision in the data's units is singular to rounding, so nothing is
computed from it: natural parameters stay in agreed units, means and covariances are converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dmfvi.families import MultivariateNormal, NormalGamma
from dmfvi.linalg import FloatArray, inverse, symmetrize


@dataclass(frozen=True)
class CoefficientPosterior:
    """A Gaussian (or several, along leading axes) in agreed units, and the way to the data's."""

    agreed: MultivariateNormal
    matrix: FloatArray  # (P, P)
    shift: FloatArray  # (P,)

    def parameters(self) -> dict[str, FloatArray]:
        """Mean and covariance in the data's units."""
        p = self.agreed.parameters()
        covariance = self.matrix @ p["covariance"] @ self.matrix.T
        return {
            "mean": p["mean"] @ self.matrix.T + self.shift,
            "covariance": symmetrize(covariance),
        }

    def distance(self, other: Self) -> float:
        """Largest relative difference of natural parameters in agreed units."""
        return float(self.agreed.distance(other.agreed))

    def sample(self, rng: np.random.Generator, size: int | None = None) -> FloatArray:
        """Draws in the data's units."""
        return np.asarray(self.agreed.sample(rng, size) @ self.matrix.T + self.shift)


@dataclass(frozen=True)
class LinearPosterior:
    """NormalGamma in agreed units; the targets' unit also scales coefficients and noise."""

    agreed: NormalGamma
    matrix: FloatArray  # of coefficients, the targets' unit included
    shift: FloatArray
    unit: float

    def parameters(self) -> dict[str, FloatArray]:
        """Coefficients ~ N(mean, scale / t), t ~ Gamma(shape, rate), in the data's units."""
        p = self.agreed.parameters()
        spread = self.matrix @ inverse(p["precision"]) @ self.matrix.T / self.unit**2
        return {
            "mean": self.matrix @ p["mean"] + self.shift,
            "scale": symmetrize(spread),
            "shape": p["shape"],
            "rate": p["rate"] * self.unit**2,
        }

    def distance(self, other: Self) -> float:
        """Largest relative difference of natural parameters in agreed units."""
        return float(self.agreed.distance(other.agreed))

    def sample(self, rng: np.random.Generator, size: int | None = None) -> tuple[Any, Any]:
        """Draws of coefficients and of the noise precision, in the data's units."""
        coefficients, precision = self.agreed.sample(rng, size)
        return coefficients @ self.matrix.T + self.shift, precision / self.unit**2
