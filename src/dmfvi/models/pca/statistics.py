"""A node's statistics in Bayesian PCA, as one flat vector.

Layout, with K = M (+1 for the mean) and P = K(K+1)/2:

    rows       tau sum E[z~ z~'] over the observers of feature d: P numbers once for
               complete data, D x P with missing entries
    linear     tau sum x_nd E[z~_n], D x K
    latent     sum E[z~ z~'] over all samples, P numbers
    noise      (n_obs / 2, expected squared residual / 2), for all features together or for each: D and D numbers
    samples    how many
    bound      this node's part of the evidence lower bound

All nodes write it in the same coordinates of z~, whatever coordinates they work in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmfvi.linalg import FloatArray, pack_symmetric, unpack_symmetric


@dataclass(frozen=True)
class Layout:
    """Shapes of the vector."""

    n_features: int
    width: int  # K
    shared_rows: bool  # complete data and one noise level: one precision for all features
    noise_per_feature: bool = False

    @property
    def triangle(self) -> int:
        """P = K(K+1)/2."""
        return self.width * (self.width + 1) // 2

    @property
    def blocks(self) -> list[slice]:
        """Rows, linear, latent and the squared residual: what extrapolation weighs."""
        rows = self.triangle * (1 if self.shared_rows else self.n_features)
        linear = rows + self.n_features * self.width
        latent = linear + self.triangle
        return [
            slice(0, rows),
            slice(rows, linear),
            slice(linear, latent),
            slice(latent + self.n_noise, latent + 2 * self.n_noise),
        ]

    @property
    def n_noise(self) -> int:
        """Number of noise levels."""
        return self.n_features if self.noise_per_feature else 1

    @property
    def half_counts(self) -> slice:
        """Where n_obs / 2 is."""
        return slice(self.size - 2 - 2 * self.n_noise, self.size - 2 - self.n_noise)

    @property
    def half_residuals(self) -> slice:
        """Where half the squared residual is."""
        return slice(self.size - 2 - self.n_noise, self.size - 2)

    @property
    def size(self) -> int:
        """Length of the packed vector."""
        rows = 1 if self.shared_rows else self.n_features
        linear = self.n_features * self.width
        return rows * self.triangle + linear + self.triangle + 2 * self.n_noise + 2


@dataclass(frozen=True)
class PcaStatistics:
    """The blocks of the vector, unpacked."""

    rows: FloatArray  # (K, K) or (D, K, K)
    linear: FloatArray  # (D, K)
    latent: FloatArray  # (K, K)
    half_count: float | FloatArray  # (D,) with a noise level for each feature
    half_residual: float | FloatArray
    n_samples: float
    bound: float

    def pack(self, layout: Layout) -> FloatArray:
        """One flat vector; a shard without missing entries fills every row alike."""
        rows = pack_symmetric(self.rows)
        if not layout.shared_rows and rows.ndim == 1:
            rows = np.broadcast_to(rows, (layout.n_features, layout.triangle))
        return np.concatenate(
            [
                rows.ravel(),
                self.linear.ravel(),
                pack_symmetric(self.latent),
                np.atleast_1d(self.half_count),
                np.atleast_1d(self.half_residual),
                [self.n_samples, self.bound],
            ]
        )

    @classmethod
    def unpack(cls, vector: FloatArray, layout: Layout) -> PcaStatistics:
        """Inverse of ``pack``."""
        if vector.shape != (layout.size,):
            raise ValueError(
                f"statistics for {layout} have {layout.size} numbers, received {vector.shape}"
            )
        d, k, p = layout.n_features, layout.width, layout.triangle
        n_rows = p if layout.shared_rows else d * p
        rows = vector[:n_rows] if layout.shared_rows else vector[:n_rows].reshape(d, p)
        linear = vector[n_rows : n_rows + d * k].reshape(d, k)
        latent = vector[n_rows + d * k : n_rows + d * k + p]
        counts, residuals = vector[layout.half_counts], vector[layout.half_residuals]
        each = layout.noise_per_feature
        return cls(
            unpack_symmetric(rows),
            linear,
            unpack_symmetric(latent),
            counts if each else float(counts[0]),
            residuals if each else float(residuals[0]),
            float(vector[-2]),
            float(vector[-1]),
        )

    def in_coordinates(self, change: FloatArray) -> PcaStatistics:
        """The same statistics for z~' = G z~: Lambda -> G Lambda G', h -> G h."""
        return replace(
            self,
            rows=change @ self.rows @ change.T,
            linear=self.linear @ change.T,
            latent=change @ self.latent @ change.T,
        )
