"""Hamiltonian Monte Carlo in plain NumPy, many chains side by side: long reference posteriors of regressions.

Nothing of dmfvi is used here but what a caller passes in: densities are written a second time, without quadrature or compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, expit, gammaln, log_expit

#: log density (C,) and gradient (C, P) of parameters (C, P)
Density = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


#: degrees of freedom of Student targets
FREEDOM = 4.0


class Draws(NamedTuple):
    """Draws (chains, draws, P), and the largest Gelman-Rubin factor of the halves of chains."""

    values: np.ndarray
    r_hat: float

    @property
    def flat(self) -> np.ndarray:
        """All draws."""
        return self.values.reshape(-1, self.values.shape[-1])


def sample(
    density: Density,
    mean: np.ndarray,
    covariance: np.ndarray,
    n_chains: int = 64,
    n_draws: int = 600,
    warm_up: int = 100,
    seed: int = 0,
) -> Draws:
    """HMC whitened by a given Gaussian, which only its speed depends on; chains begin at twice its width.

    While they warm up, chains whose steps are refused take shorter ones: some begin where the density is too steep for the usual step.
    """
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(covariance)
    size = len(mean)

    def whitened(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, gradient = density(mean + z @ root.T)
        return value, gradient @ root

    z = 2.0 * rng.standard_normal((n_chains, size))
    value, gradient = whitened(z)
    kept, length = [], np.ones((n_chains, 1))
    for draw in range(warm_up + n_draws):
        momentum = rng.standard_normal(z.shape)
        energy = value - 0.5 * (momentum**2).sum(1)
        step = 0.35 * size**-0.25 * rng.uniform(0.8, 1.2) * length
        here, slope, p = z, gradient, momentum
        n_steps = int(rng.integers(4, 10) * size**0.25)
        for _ in range(n_steps):
            p = p + 0.5 * step * slope
            here = here + step * p
            new_value, slope = whitened(here)
            p = p + 0.5 * step * slope
        gain = new_value - 0.5 * (p**2).sum(1) - energy
        taken = np.log(rng.random(n_chains)) < gain
        z = np.where(taken[:, None], here, z)
        value = np.where(taken, new_value, value)
        gradient = np.where(taken[:, None], slope, gradient)
        if draw < warm_up - 20:
            length = np.minimum(np.where(taken[:, None], 1.2, 0.5) * length, 1.0)
        else:
            length = np.ones_like(length)
        if draw >= warm_up:
            kept.append(mean + z @ root.T)
    values = np.stack(kept, axis=1)
    halves = np.concatenate(np.split(values[:, : n_draws // 2 * 2], 2, axis=1))
    n = halves.shape[1]
    within, between = halves.var(1, ddof=1).mean(0), n * halves.mean(1).var(0, ddof=1)
    return Draws(values, float(np.sqrt(((n - 1) / n * within + between / n) / within).max()))


def regression_density(
    family: str, design: np.ndarray, y: np.ndarray, precision: np.ndarray, offset: float = 0.0
) -> Density:
    """Posterior density of a regression with prior N(0, 1 / precision).

    Parameters are coefficients, then a log dispersion (log noise variance, log squared scale), or first cut point and log gaps (ordinal).
    """
    p = design.shape[1]

    def density(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        eta, psi = theta[:, :p] @ design.T + offset, theta[:, p:]
        value, slope, shared = LIKELIHOODS[family](eta, psi, y)
        gradient = np.concatenate([slope @ design, shared], axis=1) - precision * theta
        return value.sum(1) - 0.5 * (precision * theta**2).sum(1), gradient

    return density


def _logistic(eta: np.ndarray, psi: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    return y * eta + log_expit(-eta), y - expit(eta), psi


def _poisson(eta: np.ndarray, psi: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    rate = np.exp(eta)
    return y * eta - rate, y - rate, psi


def _negative_binomial(eta: np.ndarray, psi: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    size, rate = np.exp(-psi), np.exp(eta)
    value = gammaln(y + size) - gammaln(size) + size * np.log(size) + y * eta
    value = value - (y + size) * np.log(size + rate)
    of_size = digamma(y + size) - digamma(size) + np.log(size) + 1.0
    of_size = of_size - np.log(size + rate) - (y + size) / (size + rate)
    slope = y - (y + size) * rate / (size + rate)
    return value, slope, -size * of_size.sum(1, keepdims=True)


def _gaussian(eta: np.ndarray, psi: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    precision, gap = np.exp(-psi), y - eta
    value = -0.5 * psi - 0.5 * precision * gap**2
    return (
        value,
        precision * gap,
        0.5 * (precision * gap**2 - 1.0).sum(1, keepdims=True),
    )


def _student(eta: np.ndarray, psi: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    precision, gap = np.exp(-psi), y - eta
    far = precision * gap**2 / FREEDOM
    value = -0.5 * psi - 0.5 * (FREEDOM + 1) * np.log1p(far)
    weight = (FREEDOM + 1) / (FREEDOM * (1 + far))
    shared = 0.5 * (weight * precision * gap**2 - 1.0).sum(1, keepdims=True)
    return value, weight * precision * gap, shared


def _gamma(eta: np.ndarray, psi: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    shape, ratio = np.exp(-psi), y * np.exp(-eta)
    value = shape * (np.log(shape) - eta + np.log(y) - ratio) - gammaln(shape)
    of_shape = np.log(shape) + 1.0 - eta + np.log(y) - ratio - digamma(shape)
    return value, shape * (ratio - 1.0), -shape * of_shape.sum(1, keepdims=True)


def _ordinal(eta: np.ndarray, psi: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    gaps = np.exp(psi[:, 1:])
    cuts = np.concatenate([psi[:, :1], psi[:, :1] + np.cumsum(gaps, axis=1)], axis=1)
    ends = np.full((len(cuts), 1), np.inf)
    edges = np.concatenate([-ends, cuts, ends], axis=1)
    upper, lower = edges[:, y + 1] - eta, edges[:, y] - eta
    above, below = expit(upper), expit(lower)
    chance = np.maximum(above - below, 1e-300)
    up, low = above * (1 - above) / chance, below * (1 - below) / chance
    of_cuts = np.stack(
        [
            np.where(y == k, up, 0.0).sum(1) - np.where(y == k + 1, low, 0.0).sum(1)
            for k in range(cuts.shape[1])
        ],
        axis=1,
    )
    later = np.cumsum(of_cuts[:, ::-1], axis=1)[:, ::-1]
    steps = np.concatenate([np.ones((len(cuts), 1)), gaps], axis=1)
    return np.log(chance), low - up, later * steps


LIKELIHOODS = {
    "bernoulli": _logistic,
    "poisson": _poisson,
    "negative-binomial": _negative_binomial,
    "ordinal": _ordinal,
    "gaussian": _gaussian,
    "student-t": _student,
    "gamma": _gamma,
}


def held(draws: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Part of the draws of each parameter that lies in the central 90 % interval of N(mean, deviation^2)."""
    return (np.abs(draws - mean) < 1.6448536 * deviation).mean(0)
