"""Starts from agreed sums only: units of the features, and consensus k-means.

Each is one node's side of a talk (``Meeting.discuss``): ``total = yield vector`` hands in sums over this node's rows
and hears the sums over all nodes' rows. No row is ever yielded.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from dmfvi.families.base import FloatArray, pack_symmetric, unpack_symmetric

#: Lloyd steps, and sets of centres that are tried side by side in the same messages
LLOYD_STEPS, TRIES = 10, 8
#: spreads that differ by less than this part are taken as equal
EQUAL_SPREAD = 1e-6


@dataclass(frozen=True)
class FeatureUnits:
    """x' = (x - shift) / scale feature by feature, the same at all nodes."""

    shift: FloatArray  # (D,) agreed mean
    scale: FloatArray  # (D,) agreed standard deviation, one where there is none
    covariance: (
        FloatArray  # (D, D) of the standardised features; diagonal where entries are missing
    )
    n_samples: float
    n_observed: FloatArray  # (D,)

    @property
    def complete(self) -> bool:
        """Whether no entry is missing at any node."""
        return bool(np.all(np.abs(self.n_observed - self.n_samples) < 0.5))

    @property
    def log_volume(self) -> float:
        """What a log density of the data has over that of standardised data: -sum n_d log scale_d."""
        return -float(self.n_observed @ np.log(self.scale))

    def apply(self, data: FloatArray) -> FloatArray:
        """Standardise."""
        return np.asarray((data - self.shift) / self.scale)


def agree_on_units(data: FloatArray) -> Generator[FloatArray, FloatArray, FeatureUnits]:
    """Means, deviations and (complete data) the correlation of all features: two sums."""
    seen = np.isfinite(data)
    n, d = data.shape
    total = yield np.concatenate([[n], np.where(seen, data, 0.0).sum(0), seen.sum(0)])
    n_samples = round(float(total[0]))
    counts = np.round(total[1 + d :])
    if (counts < 0.5).any():
        unseen = np.flatnonzero(counts < 0.5)[:5].tolist()
        raise ValueError(f"nobody has observed feature {unseen}: drop it, it is missing everywhere")
    shift = total[1 : 1 + d] / counts
    centred = np.where(seen, data - shift, 0.0)
    complete = bool((counts == n_samples).all())
    local = pack_symmetric(centred.T @ centred) if complete else (centred**2).sum(0)
    total = yield local
    if complete:
        second = unpack_symmetric(total) / max(n_samples - 1, 1)
        variance = np.diag(second).copy()
    else:
        variance = total / np.maximum(counts - 1, 1)
        second = np.diag(variance)
    constant = variance <= (1e-14 * np.maximum(np.abs(shift), 1e-300)) ** 2
    scale = np.where(
        constant, np.where(shift == 0, 1.0, np.abs(shift)), np.sqrt(np.maximum(variance, 0))
    )
    covariance = second / np.outer(scale, scale)
    return FeatureUnits(shift, scale, covariance, float(n_samples), counts)


def consensus_kmeans(
    data: FloatArray, n_clusters: int, covariance: FloatArray, rng: np.random.Generator
) -> Generator[FloatArray, FloatArray, FloatArray]:
    """Centres (K, D) of standardised rows, NaN allowed: Lloyd's algorithm on agreed sums.

    The first centres are drawn from the agreed normal distribution N(0, covariance); several
    sets of them are improved side by side, and the one with the least spread wins.
    """
    d = data.shape[1]
    seen = np.isfinite(data)
    filled = np.where(seen, data, 0.0)
    weight = seen.astype(np.float64)
    root = _root(covariance)
    centres = rng.standard_normal((TRIES, n_clusters, d)) @ root.T
    spread = np.zeros(TRIES)
    for _ in range(LLOYD_STEPS):
        parts = []
        for one in centres:
            square = (filled**2).sum(1)[:, None] - 2.0 * filled @ one.T + weight @ (one**2).T
            nearest = square.argmin(1)
            member = np.zeros((len(data), n_clusters))
            member[np.arange(len(data)), nearest] = 1.0
            inertia = member.T @ square.min(1)
            parts.append(
                np.concatenate(
                    [
                        (member.T @ filled).ravel(),
                        (member.T @ weight).ravel(),
                        member.sum(0),
                        inertia,
                    ]
                )
            )
        total = (yield np.concatenate(parts)).reshape(TRIES, -1)
        size = n_clusters * d
        sums = total[:, :size].reshape(centres.shape)
        counts = total[:, size : 2 * size].reshape(centres.shape)
        members, inertias = total[:, 2 * size : 2 * size + n_clusters], total[:, -n_clusters:]
        spread = inertias.sum(1)
        for i in range(TRIES):
            centres[i] = np.where(counts[i] > 0.5, sums[i] / np.maximum(counts[i], 1.0), centres[i])
            # a centre without rows moves next to the one with the widest cluster
            widest = int(np.argmax(inertias[i]))
            reach = np.sqrt(
                max(float(inertias[i, widest]), 0.0) / max(float(members[i, widest]), 1) / d
            )
            for k in np.flatnonzero(members[i] < 0.5):
                centres[i, k] = centres[i, widest] + reach * rng.standard_normal(d)
    # several sets often end in the same place: take the first of them, whatever the rounding
    best = np.flatnonzero(spread <= (1.0 + EQUAL_SPREAD) * spread.min())[0]
    return np.asarray(centres[best])


def nearest_centre(data: FloatArray, centres: FloatArray) -> FloatArray:
    """One-hot memberships (n, K) of rows with NaN for missing."""
    seen = np.isfinite(data)
    filled = np.where(seen, data, 0.0)
    square = -2.0 * filled @ centres.T + seen @ (centres**2).T
    return np.eye(len(centres))[square.argmin(1)]


def _root(covariance: FloatArray) -> FloatArray:
    """A matrix with root root' = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
