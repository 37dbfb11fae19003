"""One camera's tracks, and their statistics of the structure.

A row n of an image (one coordinate of one frame) sees point p at x_np = m_n . s_p + t_n + noise, m_n ~ N(0, I),
t_n flat. Given E[s~ s~'], s~ = (s, 1), the E-step over the points O_n that the row sees is

    q(m_n, t_n) = N(c_n, K_n),  K_n^-1 = diag(1, 1, 1, 0) + tau sum_{p in O_n} E[s~_p s~_p']
    c_n = K_n tau sum_{p in O_n} x_np E[s~_p]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray, inverse, log_det
from dmfvi.models.pca.start import spread_of

DIMENSIONS = 3
WIDE = DIMENSIONS + 1


class Points(NamedTuple):
    """Moments of q(S) and q(tau) that the E-step needs."""

    mean: FloatArray  # (P, 3)
    covariance: FloatArray  # (P, 3, 3)
    noise_precision: float


class CameraRows(NamedTuple):
    """q(m, t) of every row."""

    mean: FloatArray  # (n, 4)
    covariance: FloatArray  # (n, 4, 4)


class AffineMoments(NamedTuple):
    """Plain sums over a camera's rows."""

    rows: FloatArray  # (P, 3, 3): sum E[m m'] over the rows that see a point
    linear: FloatArray  # (P, 3): sum x E[m] - E[m t]
    latent: FloatArray  # (3, 3): sum E[m m']
    n_rows: int
    n_observed: int
    residual: float  # E|x - m.s - t|^2 over what is seen
    latent_bound: float  # E[log p(m)] + H[q(m, t)], t flat with density one


@dataclass(frozen=True)
class AffineShard:
    """Rows that see something, less the mean of what they see: t is flat, so nothing is lost."""

    filled: FloatArray  # (n, P), zero where not seen
    mask: FloatArray  # (n, P), one where seen

    @classmethod
    def of(cls, rows: FloatArray) -> AffineShard:
        """From centred rows with NaN where a point is not seen."""
        seen = np.isfinite(rows)
        kept = seen.any(1)
        return cls(np.where(seen, rows, 0.0)[kept], seen[kept].astype(np.float64))

    def spread(self, basis: FloatArray) -> FloatArray:
        """Sums for a spectral start."""
        return spread_of(self.filled, float(self.mask.sum()), float(len(self.filled)), basis)

    def cameras(self, points: Points) -> CameraRows:
        """The E-step."""
        tau = points.noise_precision
        precision = tau * (self.mask @ _second(points).reshape(len(points.mean), -1))
        precision = precision.reshape(-1, WIDE, WIDE)
        first = np.arange(DIMENSIONS)
        precision[:, first, first] += 1.0
        covariance = inverse(precision)
        score = tau * (self.filled @ _extended(points))
        return CameraRows(np.einsum("nij,nj->ni", covariance, score), covariance)

    def moments(self, points: Points) -> AffineMoments:
        """Expected sums under the new q(m, t)."""
        q = self.cameras(points)
        n, n_points = self.mask.shape
        wide = _extended(points)
        second = q.mean[:, :, None] * q.mean[:, None, :] + q.covariance
        motion = second[:, :DIMENSIONS, :DIMENSIONS]
        rows = (self.mask.T @ motion.reshape(n, -1)).reshape(n_points, DIMENSIONS, DIMENSIONS)
        linear = self.filled.T @ q.mean[:, :DIMENSIONS]
        linear -= self.mask.T @ second[:, :DIMENSIONS, DIMENSIONS]
        gap = self.filled - self.mask * (q.mean @ wide.T)
        spread = (self.mask.T @ q.covariance.reshape(n, -1)).reshape(n_points, WIDE, WIDE)
        residual = (
            np.vdot(gap, gap)
            + np.einsum("pi,pij,pj->", wide, spread, wide, optimize=True)
            + np.sum(points.covariance * rows)
        )
        latent = motion.sum(0)
        entropy = 0.5 * float(np.sum(log_det(q.covariance))) + 0.5 * n * WIDE
        constant = 0.5 * n * np.log(2 * np.pi)  # four dimensions of entropy, three of prior
        bound = entropy + constant - 0.5 * float(np.trace(latent))
        return AffineMoments(
            rows, linear, latent, n, int(self.mask.sum()), float(residual), float(bound)
        )


def _extended(points: Points) -> FloatArray:
    return np.column_stack([points.mean, np.ones(len(points.mean))])


def _second(points: Points) -> FloatArray:
    """E[s~ s~'], (P, 4, 4)."""
    wide = _extended(points)
    second = wide[:, :, None] * wide[:, None, :]
    second[:, :DIMENSIONS, :DIMENSIONS] += points.covariance
    return second
