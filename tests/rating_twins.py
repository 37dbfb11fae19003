"""Plain NumPy twins of the compiled rating kernels, one obvious loop each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma, gammaln

from dmfvi.linalg import pack_symmetric, unpack_symmetric
from dmfvi.models.ratings.kernels import NoisePrior, RatingRows, RecordLayout


class Side(NamedTuple):
    """Posteriors of one side: means (n, K), covariances (n, K, K), weights (n,)."""

    mean: np.ndarray
    covariance: np.ndarray
    weight: np.ndarray

    @classmethod
    def random(cls, rng: np.random.Generator, n: int, width: int) -> Side:
        root = 0.3 * rng.normal(size=(n, width, width))
        covariance = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(width)
        return cls(rng.normal(size=(n, width)), covariance, rng.uniform(0.5, 2.0, n))


def random_rows(
    rng: np.random.Generator, n_rows: int, n_columns: int, density: float, codes: type = np.uint8
) -> RatingRows:
    """Ratings 1..5 with a few very long rows and some that are empty."""
    chance = np.minimum(1.0, density * rng.pareto(1.2, n_rows))
    chance[: max(1, n_rows // 20)] = 0.0
    present = rng.random((n_rows, n_columns)) < chance[:, None]
    present[-1] = True  # the longest possible
    columns = np.flatnonzero(present.ravel()) % n_columns
    indptr = np.concatenate([[0], np.cumsum(present.sum(1))])
    values = rng.integers(1, 6, len(columns)).astype(codes)
    return RatingRows(indptr, columns.astype(np.uint16), values, -3.5, 1.1)


def row_sums(rows: RatingRows, side: Side, layout: RecordLayout) -> np.ndarray:
    """A packed (factors, then bias column), L and q, entry by entry from their definitions."""
    s = layout.n_factors
    values = rows.values()
    out = np.zeros((rows.n_rows, layout.sums + 1))
    for n in range(rows.n_rows):
        a, linear, q = np.zeros((s + 1, s + 1)), np.zeros(s + 1), 0.0
        for e in range(rows.indptr[n], rows.indptr[n + 1]):
            d, x = rows.columns[e], values[e]
            mean, covariance, weight = side.mean[d], side.covariance[d], side.weight[d]
            second = covariance + np.outer(mean, mean)
            factor = np.append(mean[:s], 1.0)
            outer = np.ones((s + 1, s + 1))
            outer[:s, :s], outer[:s, s], outer[s, :s] = second[:s, :s], mean[:s], mean[:s]
            a += weight * outer
            linear += weight * (x * factor - np.append(second[:s, s], mean[s]))
            q += weight * (x**2 - 2 * x * mean[s] + second[s, s])
        packed = np.concatenate([pack_symmetric(a[:s, :s]), a[s]])
        out[n] = np.concatenate([packed, linear, [q]])
    return out


def unpacked(sums: np.ndarray, layout: RecordLayout) -> tuple[np.ndarray, np.ndarray]:
    """A (n, K, K) and L (n, K)."""
    s, k = layout.n_factors, layout.width
    first = s * (s + 1) // 2
    a = np.zeros((len(sums), k, k))
    a[:, :s, :s] = unpack_symmetric(sums[:, :first])
    a[:, s], a[:, :, s] = sums[:, first : first + k], sums[:, first : first + k]
    return a, sums[:, first + k : first + 2 * k]


def solve(
    sums: np.ndarray, prior_mean: np.ndarray, precision: np.ndarray, layout: RecordLayout
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, covariances and log-determinants of precisions."""
    a, linear = unpacked(sums, layout)
    total = precision + a
    covariance = np.linalg.inv(total)
    mean = np.einsum("nij,nj->ni", covariance, linear + prior_mean @ precision)
    return mean, covariance, np.linalg.slogdet(total)[1]


def user_pass(
    sums: np.ndarray,
    counts: np.ndarray,
    prior_mean: np.ndarray,
    precision: np.ndarray,
    noise: NoisePrior,
    layout: RecordLayout,
) -> dict[str, Any]:
    """q(v) and q(g) in turn for all users at once, and the sums over users."""
    a, linear = unpacked(sums, layout)
    weight = np.full(len(sums), noise.shape / noise.rate)
    shape, rate = np.full(len(sums), noise.shape), np.full(len(sums), noise.rate)
    for _ in range(max(1, noise.steps)):
        weighted = np.column_stack([weight[:, None] * sums[:, :-1], sums[:, -1]])
        mean, covariance, logs = solve(weighted, prior_mean, precision, layout)
        second = covariance + mean[:, :, None] * mean[:, None, :]
        error = sums[:, -1] - 2 * (mean * linear).sum(1) + (a * second).sum((1, 2))
        if noise.steps:
            shape, rate = noise.shape + 0.5 * counts, noise.rate + 0.5 * error
            weight = shape / rate
    log_weight = digamma(shape) - np.log(rate) if noise.steps else np.log(weight)
    gap = mean - prior_mean
    scatter = covariance + gap[:, :, None] * gap[:, None, :]
    kl = 0.5 * ((precision * scatter).sum((1, 2)) - mean.shape[1] + logs)
    kl -= 0.5 * np.linalg.slogdet(precision)[1]
    bound = 0.5 * counts * (log_weight - np.log(2 * np.pi)) - 0.5 * weight * error - kl
    if noise.steps:
        bound -= (
            (shape - noise.shape) * digamma(shape)
            - gammaln(shape)
            + gammaln(noise.shape)
            + noise.shape * (np.log(rate) - np.log(noise.rate))
            + shape * (noise.rate - rate) / rate
        )
    return {
        "mean": mean,
        "covariance": covariance,
        "noise": np.column_stack([shape, rate]),
        "second": second.sum(0),
        "residual": error.sum(),
        "weight": weight,
        "log_weight": log_weight.sum(),
        "bound": bound.sum(),
    }


def prediction(user: Side, item: Side, u: int, i: int, noise: float) -> tuple[float, float]:
    """Mean and variance of z . w + b + c + noise for independent Gaussians."""
    z, b = user.mean[u, :-1], user.mean[u, -1]
    w, c = item.mean[i, :-1], item.mean[i, -1]
    cz, cw = user.covariance[u], item.covariance[i]
    along_w, along_z = np.append(w, 1.0), np.append(z, 1.0)
    variance = along_w @ cz @ along_w + along_z @ cw @ along_z
    variance += np.sum(cz[:-1, :-1] * cw[:-1, :-1]) + noise
    return float(z @ w + b + c), float(variance)
