"""A shared start for Bayesian PCA, from agreed sums only.

Three sums over the nodes (counts and means; variances and X'XO for a shared seeded random O; X'XQ for the
orthonormal basis Q that the former gives) yield the units, the loadings and the noise level.
The two products are subspace iterations; the last one is read as a Nystrom approximation of
the covariance (Halko, Martinsson & Tropp 2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmfvi.families.base import FloatArray
from dmfvi.tags import stored_as

#: columns of the random test matrix beyond the components wanted
OVERSAMPLING = 5
#: noise variance is at least this part of the average variance at the start
NOISE_FLOOR = 1e-6
#: numbers before the shift in a packed start
HEAD = 4


@stored_as("pca-units")
@dataclass(frozen=True)
class Units:
    """x' = (x - shift) / scale, the same at all nodes."""

    shift: FloatArray
    scale: float
    complete: bool

    def apply(self, data: FloatArray) -> FloatArray:
        """Standardise."""
        return (data - self.shift) / self.scale


@dataclass(frozen=True)
class PcaStart:
    """What all nodes begin with: units, loadings (D, M) in those units, noise precision, part missing."""

    units: Units
    loadings: FloatArray
    noise_precision: float
    missing: float

    def pack(self) -> FloatArray:
        """One flat vector, to be handed round."""
        head = [self.units.scale, float(self.units.complete), self.noise_precision, self.missing]
        return np.concatenate([head, self.units.shift, self.loadings.ravel()])

    @classmethod
    def unpack(cls, vector: FloatArray, n_features: int) -> PcaStart:
        """Inverse of ``pack``."""
        scale, complete, noise, missing = vector[:HEAD]
        shift = vector[HEAD : HEAD + n_features]
        loadings = vector[HEAD + n_features :].reshape(n_features, -1)
        return cls(
            Units(shift, float(scale), complete > 0.5), loadings, float(noise), float(missing)
        )


def count_vector(data: FloatArray) -> FloatArray:
    """[n, sum of x_d, observations of d] of one shard."""
    observed = np.isfinite(data)
    return np.concatenate([[len(data)], np.where(observed, data, 0.0).sum(0), observed.sum(0)])


def read_counts(total: FloatArray, with_mean: bool) -> tuple[FloatArray, bool]:
    """The mean of each feature (zero without a mean), and whether nothing is missing anywhere."""
    d = (len(total) - 1) // 2
    counts = total[1 + d :]
    mean = total[1 : 1 + d] / counts if with_mean else np.zeros(d)
    return mean, bool(np.all(np.abs(counts - total[0]) < 0.5))


def spread_vector(data: FloatArray, mean: FloatArray, basis: FloatArray) -> FloatArray:
    """[sum of squares, number of observations, X'(X basis)] of one shard, centred, zero where missing."""
    filled = np.where(np.isfinite(data), data - mean, 0.0)
    product = filled.T @ (filled @ basis)
    head = [np.vdot(filled, filled), np.isfinite(data).sum()]
    return np.concatenate([head, product.ravel()])


def random_basis(n_features: int, n_latent: int, rng: np.random.Generator) -> FloatArray:
    """The shared random test matrix."""
    width = min(n_features, n_latent + OVERSAMPLING)
    return np.linalg.qr(rng.standard_normal((n_features, width)))[0]


def read_basis(total: FloatArray, basis: FloatArray) -> FloatArray:
    """Orthonormal basis of X'X basis; signs fixed, so that nodes that nearly agree nearly agree here."""
    q, r = np.linalg.qr(total[2:].reshape(basis.shape))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def read_start(
    total: FloatArray,
    basis: FloatArray,
    mean: FloatArray,
    n_samples: float,
    n_latent: int,
    complete: bool,
) -> PcaStart:
    """Loadings and noise from a Nystrom approximation C ~ Y (O'Y)^-1 Y' of the covariance."""
    squares, n_observed = total[:2]
    d = len(mean)
    variance = squares / n_observed
    if not variance > 0:
        variance = 1.0  # constant data: any unit will do
    product = total[2:].reshape(basis.shape) / n_samples
    core = basis.T @ product
    nugget = 1e-12 * np.trace(core) / len(core) + np.finfo(float).tiny
    factor = np.linalg.cholesky(0.5 * (core + core.T) + nugget * np.eye(len(core)))
    left, values, _ = np.linalg.svd(np.linalg.solve(factor, product.T).T, full_matrices=False)
    strengths = values[:n_latent] ** 2
    noise = (variance * d * n_observed / (n_samples * d) - strengths.sum()) / max(d - n_latent, 1)
    noise = max(noise, NOISE_FLOOR * variance)
    columns = left[:, :n_latent] * np.sqrt(np.maximum(strengths - noise, NOISE_FLOOR * variance))
    loadings = np.zeros((d, n_latent))
    loadings[:, : columns.shape[1]] = columns / np.sqrt(variance)
    return PcaStart(
        Units(mean, float(np.sqrt(variance)), complete),
        loadings,
        float(variance / noise),
        max(0.0, 1.0 - float(n_observed / (n_samples * d))),
    )
