"""Units and a shared start for Bayesian PCA, from agreed sums only.

Two small sums give the units (counts and means; squares). Two more, X'XO for a shared seeded random O and X'XQ for the
orthonormal basis Q that the former gives, are subspace iterations; the last one is read as a Nystrom approximation of
the covariance (Halko, Martinsson & Tropp 2011) and yields the loadings and the noise level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmfvi.inference.model import Broadcast, Coroutine, Sum
from dmfvi.inference.starts import agree_on_means
from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as

#: columns of the random test matrix beyond the components wanted
OVERSAMPLING = 5
#: noise variance is at least this part of the average variance at the start
NOISE_FLOOR = 1e-6
#: a deviation that is a smaller part of the mean is rounding: the feature is constant
ROUNDING = 1e-14
#: accuracy of the sum that only improves the start
BASIS_ACCURACY = 1e-3
#: sweeps from a random start before hyper-parameters are learned; fewer from a spectral one, in
#: proportion to what is missing, since entries that are not there weaken its columns
WARM_UP_SWEEPS = 15


@stored_as("pca-units")
@dataclass(frozen=True)
class Units:
    """x' = (x - shift) / scale, the same at all nodes; one scale, or one for each feature."""

    shift: FloatArray
    scale: float | FloatArray = 1.0
    complete: bool = True
    n_observed: float | FloatArray = 0.0  # entries at all nodes, (D,) if the scale is

    @property
    def log_volume(self) -> float:
        """What a log density of the data has over that of standardised data."""
        return -float(np.sum(self.n_observed * np.log(self.scale)))

    @property
    def of_rows(self) -> Any:
        """The scale of a row of W~ as a factor of (D, K)."""
        return self.scale[:, None] if isinstance(self.scale, np.ndarray) else self.scale

    def apply(self, data: FloatArray) -> FloatArray:
        """Standardise."""
        return (data - self.shift) / self.scale


def agree_on_scale(
    data: FloatArray,
    with_mean: bool,
    weight: FloatArray | None = None,
    per_feature: bool = False,
) -> Coroutine:
    """The mean of each feature (zero without a mean) and one scale for all, or for each: two sums. Returns ``Units``.

    A row of weight two counts as two rows.
    """
    _, counts, means, complete = yield from agree_on_means(data, weight)
    shift = means if with_mean else np.zeros(data.shape[1])
    seen, times = np.isfinite(data), np.ones(len(data)) if weight is None else weight
    if per_feature:
        shift, scale = yield from _scale_of_each(data, seen, times, shift, counts)
        return Units(shift, scale, complete, counts)
    n_observed = float(counts.sum())
    squares = (yield np.array([times @ np.sum(np.where(seen, data - shift, 0.0) ** 2, axis=1)]))[0]
    unit = float(np.sqrt(squares / n_observed)) if squares > 0 else 1.0  # constant data: any unit
    agreed = yield Broadcast(np.append(shift, unit))
    return Units(agreed[:-1], float(agreed[-1]), complete, n_observed)


def _scale_of_each(
    data: FloatArray, seen: Any, times: FloatArray, shift: FloatArray, counts: FloatArray
) -> Coroutine:
    """Centres and deviations of the features, the same bits at every node."""
    squares = yield times @ np.where(seen, data - shift, 0.0) ** 2
    variance = np.maximum(squares, 0.0) / counts
    constant = variance <= (ROUNDING * np.abs(shift)) ** 2
    scale = np.where(constant, np.where(shift == 0, 1.0, np.abs(shift)), np.sqrt(variance))
    agreed = yield Broadcast(np.concatenate([shift, scale]))
    return agreed[: len(shift)], agreed[len(shift) :]


@dataclass(frozen=True)
class SpectralStart:
    """Loadings (D, M), noise precision, and the part of the entries that is missing."""

    loadings: FloatArray
    noise_precision: float
    missing: float

    @property
    def warm_up(self) -> int:
        """Sweeps before hyper-parameters are learned."""
        return round(WARM_UP_SWEEPS * self.missing)


#: [sum of squares, number of observations, number of rows, X'(X basis)] of one shard, zero where missing
Spread = Callable[[FloatArray], FloatArray]


def spread_of(
    filled: FloatArray, n_observed: float, n_rows: float, basis: FloatArray
) -> FloatArray:
    """``Spread`` of rows that are zero where missing."""
    product = filled.T @ (filled @ basis)
    return np.concatenate([[np.vdot(filled, filled), n_observed, n_rows], product.ravel()])


def agree_on_loadings(
    spread: Spread, n_features: int, n_latent: int, rng: np.random.Generator
) -> Coroutine:
    """A start from the agreed covariance of standardised rows. Returns ``SpectralStart``."""
    basis = random_basis(n_features, n_latent, rng)
    first = yield spread(basis)
    basis = read_basis(first, basis)
    second = yield Sum(spread(basis), BASIS_ACCURACY)
    # sizes come from the accurate sum, loadings from the refined basis
    made = read_start(np.concatenate([first[:3], second[3:]]), basis, n_latent)
    head = [made.noise_precision, made.missing]
    agreed = yield Broadcast(np.concatenate([head, made.loadings.ravel()]))
    loadings = agreed[2:].reshape(n_features, n_latent)
    return SpectralStart(loadings, float(agreed[0]), float(agreed[1]))


def random_basis(n_features: int, n_latent: int, rng: np.random.Generator) -> FloatArray:
    """The shared random test matrix."""
    width = min(n_features, n_latent + OVERSAMPLING)
    return np.linalg.qr(rng.standard_normal((n_features, width)))[0]


def read_basis(total: FloatArray, basis: FloatArray) -> FloatArray:
    """Orthonormal basis of X'X basis; signs fixed, so that nodes that nearly agree nearly agree here."""
    q, r = np.linalg.qr(total[3:].reshape(basis.shape))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def read_start(total: FloatArray, basis: FloatArray, n_latent: int) -> SpectralStart:
    """Loadings and noise from a Nystrom approximation C ~ Y (O'Y)^-1 Y' of the covariance."""
    squares, n_observed, n_rows = (float(v) for v in total[:3])
    d = len(basis)
    variance = squares / n_observed if squares > 0 else 1.0
    product = total[3:].reshape(basis.shape) / n_rows
    core = basis.T @ product
    nugget = 1e-12 * np.trace(core) / len(core) + np.finfo(float).tiny
    factor = np.linalg.cholesky(0.5 * (core + core.T) + nugget * np.eye(len(core)))
    left, values, _ = np.linalg.svd(np.linalg.solve(factor, product.T).T, full_matrices=False)
    strengths = values[:n_latent] ** 2
    noise = (variance * n_observed / n_rows - strengths.sum()) / max(d - n_latent, 1)
    noise = max(noise, NOISE_FLOOR * variance)
    columns = left[:, :n_latent] * np.sqrt(np.maximum(strengths - noise, NOISE_FLOOR * variance))
    loadings = np.zeros((d, n_latent))
    loadings[:, : columns.shape[1]] = columns
    return SpectralStart(loadings, 1.0 / noise, max(0.0, 1.0 - n_observed / (n_rows * d)))
