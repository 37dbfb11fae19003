"""One node's data for Bayesian PCA, and the local step on it.

The E-step (docs/mathematics.md):

    q(z_n) = N(m_n, C_n),  C_n^-1 = I + tau sum_{d in O_n} E[w_d w_d']
    m_n = C_n tau sum_{d in O_n} (x_nd E[w_d] - E[w_d mu_d])

With a noise level for each feature tau_d is inside the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray, inverse, pack_symmetric, unpack_symmetric, upper_triangle
from dmfvi.models.pca.kernels import LatentPosteriors, latent_posteriors
from dmfvi.models.pca.start import spread_of
from dmfvi.models.pca.statistics import PcaStatistics

#: compress a complete shard once it has this many times more samples than features
COMPRESS_RATIO = 2
#: beyond this many features the triangular factor costs more than it saves
COMPRESS_MAX_FEATURES = 2000


class Weights(NamedTuple):
    """Moments of q(W~) and q(tau) that the local step needs."""

    mean: FloatArray  # (D, K)
    covariance: FloatArray  # (K, K) shared by all features, or (D, K, K)
    noise_precision: float | FloatArray  # E[tau], or (D,)
    n_latent: int  # M; K - M is 1 with a mean and 0 without

    @property
    def per_feature(self) -> bool:
        """Whether each feature has a noise level of its own."""
        return np.ndim(self.noise_precision) > 0

    @property
    def taus(self) -> FloatArray:
        """E[tau] of every feature, (D,)."""
        return np.broadcast_to(self.noise_precision, (len(self.mean),))


class LocalMoments(NamedTuple):
    """Plain sums over a shard's samples, before they are weighted by tau."""

    rows: FloatArray  # (K, K) or (D, K, K): sum E[z~ z~'] over the observers
    linear: FloatArray  # (D, K)
    latent: FloatArray  # (K, K)
    n_observed: float | FloatArray  # of all features together, or (D,) as the noise
    n_samples: float
    residual: float | FloatArray  # E|x - W~ z~|^2 over observed entries
    latent_kl: float  # KL(q(Z) || p(Z))

    def weighted(self, noise_precision: float | FloatArray, bound: float) -> PcaStatistics:
        """The statistics in natural coordinates."""
        tau = np.asarray(noise_precision)
        return PcaStatistics(
            tau[..., None, None] * self.rows if tau.ndim else tau * self.rows,
            tau[..., None] * self.linear if tau.ndim else tau * self.linear,
            self.latent,
            0.5 * self.n_observed,
            0.5 * self.residual,
            float(self.n_samples),
            bound,
        )


@dataclass(frozen=True)
class CompleteShard:
    """Samples without missing entries, all in matrix products with one shared precision.

    Only second moments of (x, 1) matter, so a tall shard is kept as the triangular factor of a
    QR decomposition: at most D + 1 rows instead of n, exact, and without squaring its condition.
    """

    rows: FloatArray  # (r, D)
    ones: FloatArray  # (r,): what is left of the column of ones
    n_samples: float

    @classmethod
    def of(
        cls, data: FloatArray, with_mean: bool, weight: FloatArray | None = None
    ) -> CompleteShard:
        """Compress where it pays. Second moments of rows times the root of their weights are the weighted ones."""
        n, d = data.shape
        ones, total = np.ones(n), float(n)
        if weight is not None:
            ones, total = np.sqrt(weight), float(weight.sum())
            data = ones[:, None] * data
        if n <= COMPRESS_RATIO * (d + 1) or d > COMPRESS_MAX_FEATURES:
            return cls(data, ones, total)
        wide = np.column_stack([data, ones]) if with_mean else data
        factor = np.asarray(np.linalg.qr(wide, mode="r"), dtype=np.float64)
        if with_mean:
            return cls(np.ascontiguousarray(factor[:, :d]), factor[:, d].copy(), total)
        return cls(factor, np.zeros(len(factor)), total)

    def spread(self, basis: FloatArray) -> FloatArray:
        """Sums for a spectral start; the triangular factor has the second moments of the rows."""
        n_observed = float(self.n_samples * self.rows.shape[1])
        return spread_of(self.rows, n_observed, float(self.n_samples), basis)

    def moments(self, w: Weights) -> LocalMoments:
        """Expected sums under the new q(Z)."""
        m, n, d = w.n_latent, self.n_samples, self.rows.shape[1]
        loadings = w.mean[:, :m]
        # the weight of a feature: one where all have the same noise level, tau
        tau = 1.0 if w.per_feature else float(w.noise_precision)
        weighted = w.taus[:, None] * w.mean if w.per_feature else w.mean
        covariances = np.broadcast_to(w.covariance, (d, *w.covariance.shape[-2:]))
        second = weighted.T @ w.mean + (
            np.einsum("d,dij->ij", w.taus, covariances)
            if w.per_feature
            else d * w.covariance
            if w.covariance.ndim == 2
            else w.covariance.sum(0)
        )
        precision = np.eye(m) + tau * second[:m, :m]
        factor = np.linalg.cholesky(precision)
        covariance = inverse(precision)
        score = self.rows @ weighted[:, :m]
        if w.mean.shape[1] > m:
            score = score - np.outer(self.ones, second[:m, m])
        z = score @ (tau * covariance)
        extended = np.column_stack([z, self.ones]) if w.mean.shape[1] > m else z
        latent = extended.T @ extended
        latent[:m, :m] += n * covariance
        gap = self.rows - extended @ w.mean.T
        kl = 0.5 * (np.trace(latent[:m, :m]) - n * m) + n * np.log(np.diag(factor)).sum()
        linear = self.rows.T @ extended
        if w.per_feature:
            each = np.einsum("nd,nd->d", gap, gap)
            each += n * np.sum((loadings @ covariance) * loadings, axis=1)
            each += np.einsum("dij,ij->d", covariances, latent)
            return LocalMoments(latent, linear, latent, np.full(d, n), n, each, float(kl))
        spread = (
            d * np.sum(w.covariance * latent)
            if w.covariance.ndim == 2
            else np.sum(w.covariance.sum(0) * latent)
        )
        residual = np.vdot(gap, gap) + n * np.sum((loadings.T @ loadings) * covariance) + spread
        return LocalMoments(latent, linear, latent, n * d, n, float(residual), float(kl))


@dataclass(frozen=True)
class MaskedShard:
    """Samples with missing entries: one precision per sample, accumulated by matrix products."""

    filled: FloatArray  # (n, D), zero where missing
    mask: FloatArray  # (n, D), one where observed
    n_observed: float
    weight: FloatArray | None = None  # (n,): how many rows each counts for, one where None

    @classmethod
    def of(cls, data: FloatArray, weight: FloatArray | None = None) -> MaskedShard:
        """From data with NaN for missing entries."""
        mask = np.isfinite(data)
        n_observed = float(mask.sum() if weight is None else weight @ mask.sum(1))
        return cls(np.where(mask, data, 0.0), mask.astype(np.float64), n_observed, weight)

    @property
    def n_samples(self) -> float:
        """Rows, counted by their weights."""
        return float(len(self.filled) if self.weight is None else self.weight.sum())

    def _times(self, rows: FloatArray) -> FloatArray:
        """Rows (or numbers of rows) times their weights."""
        if self.weight is None:
            return rows
        return np.asarray((self.weight if rows.ndim == 1 else self.weight[:, None]) * rows)

    def spread(self, basis: FloatArray) -> FloatArray:
        """Sums for a spectral start."""
        rows = self.filled if self.weight is None else np.sqrt(self.weight)[:, None] * self.filled
        return spread_of(rows, self.n_observed, self.n_samples, basis)

    def posterior(self, w: Weights) -> LatentPosteriors:
        """q(z_n) for every sample, covariances packed."""
        m = w.n_latent
        second = w.mean[:, :, None] * w.mean[:, None, :] + w.covariance
        loadings, tau = w.mean[:, :m], w.noise_precision
        if w.per_feature:
            second, loadings, tau = (
                w.taus[:, None, None] * second,
                w.taus[:, None] * loadings,
                1.0,
            )
        score = self.filled @ loadings
        if w.mean.shape[1] > m:
            score -= self.mask @ second[:, :m, m]
        packed = self.mask @ pack_symmetric(second[:, :m, :m])
        return latent_posteriors(packed, score, float(tau))

    def moments(self, w: Weights) -> LocalMoments:
        """Expected sums under the new q(Z)."""
        m, width = w.n_latent, w.mean.shape[1]
        n = len(self.filled)
        q = self.posterior(w)
        extended = np.column_stack([q.mean, np.ones(n)]) if width > m else q.mean
        first, second = upper_triangle(width)
        outer = self._times(extended[:, first] * extended[:, second])
        covariances = self._times(q.covariance)
        spread_rows = np.zeros((len(w.mean), width, width))
        spread_rows[:, :m, :m] = unpack_symmetric(self.mask.T @ covariances)
        rows = spread_rows + unpack_symmetric(self.mask.T @ outer)
        gap = self.filled - self.mask * (extended @ w.mean.T)
        squares = w.mean[:, :, None] * w.mean[:, None, :]
        residual: float | FloatArray
        n_observed: float | FloatArray = self.n_observed
        if w.per_feature:
            residual = np.einsum("nd,nd->d", self._times(gap), gap)
            residual += np.einsum("dij,dij->d", squares, spread_rows)
            residual += np.sum(w.covariance * rows, axis=(1, 2))
            n_observed = self._times(self.mask).sum(0)
        else:
            residual = float(
                np.vdot(self._times(gap), gap)
                + np.vdot(squares, spread_rows)
                + np.sum(w.covariance * rows)
            )
        latent = unpack_symmetric(outer.sum(0))
        latent[:m, :m] += unpack_symmetric(covariances.sum(0))
        count = self.n_samples
        kl = 0.5 * (np.trace(latent[:m, :m]) - count * m + self._times(q.log_precision).sum())
        linear = self.filled.T @ self._times(extended)
        return LocalMoments(rows, linear, latent, n_observed, count, residual, float(kl))


Shard = CompleteShard | MaskedShard


def make_shard(data: FloatArray, with_mean: bool, weight: FloatArray | None = None) -> Shard:
    """The right kind of shard for standardised data with NaN for missing entries."""
    if np.isnan(data).any():
        return MaskedShard.of(data, weight)
    return CompleteShard.of(data, with_mean, weight)
