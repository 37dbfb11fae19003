"""Posteriors of many small latent Gaussians, each with its own precision.

For sample n with precision A_n = I + tau B_n (packed upper triangles of B in ``second``):
C_n = A_n^-1, z_n = tau C_n score_n, log|A_n|. The compiled twin is for many samples, the plain one
for few, where compiling would take longer than it saves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmfvi.chunks import over_chunks
from dmfvi.linalg import FloatArray, inverse, log_det, pack_symmetric, unpack_symmetric

#: from this many samples the compiled twin is used
COMPILE_FROM = 3000


class LatentPosteriors(NamedTuple):
    """Means (n, M), packed covariances (n, M(M+1)/2), log-determinants of the precisions (n,)."""

    mean: FloatArray
    covariance: FloatArray
    log_precision: FloatArray


def latent_posteriors(second: FloatArray, score: FloatArray, tau: float) -> LatentPosteriors:
    """The faster twin for this many samples."""
    if len(score) >= COMPILE_FROM:
        return latent_posteriors_compiled(second, score, tau)
    return latent_posteriors_plain(second, score, tau)


def latent_posteriors_plain(second: FloatArray, score: FloatArray, tau: float) -> LatentPosteriors:
    """With NumPy's batched linear algebra."""
    m = score.shape[1]
    precision = unpack_symmetric(tau * second)
    precision[:, np.arange(m), np.arange(m)] += 1.0
    covariance = inverse(precision)
    mean = tau * np.einsum("nij,nj->ni", covariance, score)
    return LatentPosteriors(np.asarray(mean), pack_symmetric(covariance), log_det(precision))


def latent_posteriors_compiled(
    second: FloatArray, score: FloatArray, tau: float
) -> LatentPosteriors:
    """One Cholesky decomposition per sample, in parallel."""
    from dmfvi.models.pca._kernels_numba import solve_all

    n, m = score.shape
    mean, covariance, logs = np.empty((n, m)), np.empty_like(second), np.empty(n)
    second, score = np.ascontiguousarray(second), np.ascontiguousarray(score)
    over_chunks(solve_all, n, second, score, tau, mean, covariance, logs)
    return LatentPosteriors(mean, covariance, logs)
