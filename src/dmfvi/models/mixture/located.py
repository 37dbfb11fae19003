"""Gaussian components in the data's units, with natural parameters about the agreed centre of the data.

Natural parameters contain second moments about zero. With a column at 1e8 deviations from zero those are all offset: what
the covariance follows from is lost to rounding. Here mu' = mu - shift has the natural parameters, and parameters, draws and
densities are those of mu.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from dmfvi.families import NormalGamma, NormalWishart
from dmfvi.families.base import Family
from dmfvi.linalg import FloatArray


class _Located(Family):
    """A family of pairs (location, precision) whose locations count from ``shift``."""

    def __init__(self, *natural: ArrayLike, shift: ArrayLike = 0.0) -> None:
        super().__init__(*natural)
        self.shift: FloatArray = np.asarray(shift, dtype=np.float64)

    @classmethod
    def about(cls, shift: ArrayLike, centred: Family) -> Self:
        """The distribution of locations that are ``shift`` beyond those of ``centred``."""
        return cls(*centred.natural, shift=shift)

    def replace(self, *natural: ArrayLike) -> Self:
        return type(self)(*natural, shift=self.shift)

    def parameters(self) -> dict[str, FloatArray]:
        p = super().parameters()  # type: ignore[safe-super]
        return {**p, "mean": p["mean"] + self.shift}

    def statistics(self, x: Any) -> tuple[FloatArray, ...]:
        return super().statistics((np.asarray(x[0], dtype=np.float64) - self.shift, x[1]))  # type: ignore[safe-super]

    def mean_value(self) -> tuple[FloatArray, FloatArray]:
        return self.parameters()["mean"], super().mean_value()[1]  # type: ignore[safe-super]

    def quantile(self, probability: float) -> Any:
        location, precision = super().quantile(probability)
        return location + self.shift, precision

    def kl(self, other: Any) -> FloatArray:
        return super().kl(self._alike(other))

    def distance(self, other: Any) -> float:
        return super().distance(self._alike(other))

    def _alike(self, other: Any) -> Any:
        """The other distribution with natural parameters about this one's centre."""
        theirs = getattr(other, "shift", 0.0)
        if np.array_equal(theirs, self.shift):
            return other
        p = other.parameters()
        centred = type(other).from_parameters(**{**p, "mean": p["mean"] - self.shift})
        return self.about(self.shift, centred)


class LocatedNormalWishart(_Located, NormalWishart):
    """``NormalWishart`` about a shift (p,)."""

    def draw(
        self, rng: np.random.Generator, size: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        return NormalWishart.draw(self, rng, size)  # from parameters(), which has the shift


class LocatedNormalGamma(_Located, NormalGamma):
    """``NormalGamma`` about a shift (..., p)."""

    def draw(
        self, rng: np.random.Generator, size: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        location, precision = NormalGamma.draw(self, rng, size)
        return location + self.shift, precision
