"""Rows under posterior draws: log likelihood of each, and new rows, for the groups of ``to_arviz``.

Local variables are integrated out, so that terms are those of leave-one-out cross-validation (Vehtari, Gelman & Gabry 2017).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, gammaln, log_expit, log_ndtr, log_softmax, logsumexp, ndtr

from dmfvi.export import Pointwise
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.likelihoods import contrasts

LOG_2PI = float(np.log(2.0 * np.pi))
#: of a probability that is zero to rounding
LEAST_LOG = -1e4
#: counts are drawn with this rate at most
LARGEST_RATE = 1e18


# -- rows of a table -----------------------------------------------------------------------------


def gaussian_rows(
    rows: FloatArray, mean: FloatArray, covariance: FloatArray, log_share: FloatArray
) -> FloatArray:
    """log sum_k exp(log_share_k) N(observed part of a row; mean_k, covariance_k) of S draws: (S, n).

    mean is (S, K, D), covariance (S, K, D, D), log_share (S, K).
    """
    found = np.zeros((len(mean), len(rows)))
    for pattern, which in _patterns(rows):
        if not pattern.any():
            continue  # a row without observed entries has density one
        values = rows[np.ix_(which, pattern)]
        part = covariance[:, :, pattern][:, :, :, pattern]
        for draw, roots in enumerate(np.linalg.cholesky(part)):  # one draw at a time: memory
            gap = values - mean[draw][:, None, pattern]  # (K, n, p)
            whitened = np.linalg.solve(roots, np.swapaxes(gap, 1, 2))
            log_det = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(-1)
            density = -0.5 * (np.square(whitened).sum(1) + pattern.sum() * LOG_2PI)
            found[draw, which] = logsumexp(density + (log_share[draw] - log_det)[:, None], axis=0)
    return found


def gaussian_draws(
    rng: np.random.Generator,
    n_rows: int,
    mean: FloatArray,
    covariance: FloatArray,
    log_share: FloatArray,
) -> FloatArray:
    """New rows (S, n, D), n of each draw."""
    n_draws, n_components, d = mean.shape
    made = np.empty((n_draws, n_rows, d))
    for draw, roots in enumerate(np.linalg.cholesky(covariance)):
        below = np.cumsum(np.exp(log_share[draw]))[:-1]
        component = (rng.random((n_rows, 1)) > below).sum(1)
        noise = rng.standard_normal((n_rows, d))
        for k in range(n_components):
            own = component == k
            made[draw, own] = mean[draw, k] + noise[own] @ roots[k].T
    return made


def _patterns(rows: FloatArray) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
    patterns, which = np.unique(np.isfinite(rows), axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        yield pattern, np.flatnonzero(which.ravel() == i)


def of_gaussians(
    rows: FloatArray,
    mean: FloatArray,
    covariance: FloatArray,
    log_share: FloatArray,
    rng: np.random.Generator,
) -> Pointwise:
    """All groups of a mixture of Gaussians, or of one Gaussian (K = 1), for rows with NaN where missing."""
    likelihood = gaussian_rows(rows, mean, covariance, log_share)
    new = gaussian_draws(rng, len(rows), mean, covariance, log_share)
    return Pointwise({"x": rows}, {"x": likelihood}, {"x": new})


# -- targets of a regression ---------------------------------------------------------------------


def of_targets(
    family: str,
    link: str,
    y: FloatArray,
    eta: FloatArray,
    rng: np.random.Generator,
    *,
    trials: FloatArray | None = None,
    dispersion: FloatArray | None = None,
    freedom: float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Log likelihood (S, n) of targets, and new targets, under linear predictors eta (S, n).

    ``dispersion`` (S, 1) is the noise variance, or that of the counts' or costs' rates.
    """
    settings: dict[str, Any] = {"trials": trials, "dispersion": dispersion, "freedom": freedom}
    new = new_targets(family, link, eta, rng, **settings)
    if family == "binomial":  # a Bernoulli target is one trial
        times = np.ones(len(y)) if trials is None else trials
        log_yes, log_no = (
            (log_expit(eta), log_expit(-eta))
            if link == "logit"
            else (log_ndtr(eta), log_ndtr(-eta))
        )
        ways = gammaln(times + 1) - gammaln(y + 1) - gammaln(times - y + 1)
        return ways + y * log_yes + (times - y) * log_no, new
    mean = eta if link == "identity" else np.exp(np.minimum(eta, 700.0))
    if family == "poisson":
        return np.asarray(stats.poisson.logpmf(y, mean)), new
    assert dispersion is not None
    if family == "gaussian":
        return np.asarray(stats.norm.logpdf(y, mean, np.sqrt(dispersion))), new
    if family == "student-t":
        return np.asarray(stats.t.logpdf(y, freedom, mean, np.sqrt(dispersion))), new
    shape = 1.0 / dispersion
    if family == "gamma":
        return np.asarray(stats.gamma.logpdf(y, shape, scale=mean * dispersion)), new
    return np.asarray(stats.nbinom.logpmf(y, shape, shape / (shape + mean))), new


def new_targets(
    family: str,
    link: str,
    eta: FloatArray,
    rng: np.random.Generator,
    *,
    trials: FloatArray | None = None,
    dispersion: FloatArray | None = None,
    freedom: float = 0.0,
) -> FloatArray:
    """One target for each linear predictor (S, n); ``dispersion`` (S, 1) as in ``of_targets``."""
    if family == "binomial":
        chance = expit(eta) if link == "logit" else ndtr(eta)
        times = np.ones(1, dtype=np.int64) if trials is None else trials.astype(np.int64)
        return rng.binomial(np.broadcast_to(times, eta.shape), chance).astype(np.float64)
    mean = eta if link == "identity" else np.exp(np.minimum(eta, 700.0))
    if family == "poisson":
        return rng.poisson(np.minimum(mean, LARGEST_RATE)).astype(np.float64)
    assert dispersion is not None
    if family == "gaussian":
        return mean + np.sqrt(dispersion) * rng.standard_normal(eta.shape)
    if family == "student-t":
        return mean + np.sqrt(dispersion) * rng.standard_t(freedom, eta.shape)
    rate = rng.gamma(np.broadcast_to(1.0 / dispersion, eta.shape)) * dispersion * mean
    if family == "gamma":
        return np.asarray(rate)
    return rng.poisson(np.minimum(rate, LARGEST_RATE)).astype(np.float64)


def of_classes(
    positions: NDArray[np.intp], log_chance: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, NDArray[np.intp]]:
    """Log likelihood (S, n) of classes, and new ones, from log probabilities (S, n, K)."""
    found = np.take_along_axis(log_chance, positions[None, :, None], axis=2)[..., 0]
    below = np.cumsum(np.exp(log_chance), axis=2)[..., :-1]
    return found, (rng.random((*found.shape, 1)) > below).sum(2)


def log_softmax_of(outputs: FloatArray, n_classes: int) -> FloatArray:
    """Log probabilities of K classes from K - 1 linear predictors (S, n, K - 1)."""
    return np.asarray(log_softmax(outputs @ contrasts(n_classes).T, axis=2))


def log_ordered(eta: FloatArray, shared: FloatArray, link: str) -> FloatArray:
    """Log probabilities of ordered classes: cut points from the first one and the logarithms of the steps (S, K - 1)."""
    steps = np.exp(shared[:, 1:])
    cuts = shared[:, :1] + np.concatenate([np.zeros((len(shared), 1)), steps.cumsum(1)], axis=1)
    gap = cuts[:, None, :] - eta[:, :, None]
    log_cdf = log_expit if link == "logit" else log_ndtr
    ends = np.full((*eta.shape, 1), np.inf)
    upper, lower = np.concatenate([gap, ends], 2), np.concatenate([-ends, gap], 2)
    # log of cdf(upper) - cdf(lower), from the tail in which both are small
    right = lower > 0
    near, far = np.where(right, -lower, upper), np.where(right, -upper, lower)
    large, small = log_cdf(near), log_cdf(far)
    with np.errstate(divide="ignore"):  # classes that have no room between their cut points
        made = large + np.log(-np.expm1(np.minimum(small - large, 0.0)))
    return np.asarray(np.maximum(made, LEAST_LOG))
