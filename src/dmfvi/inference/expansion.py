"""Parameter expansion for Bayesian PCA: the change of coordinates that plain VB finds only slowly.

The likelihood is unchanged by z' = R^-1 (z - b), W' = W R, mu' = mu + W b (Luttinen & Ilin 2010). The
change T with z~' = T z~ is chosen near the optimum of the bound, and such that T = I exactly where
the bound is stationary, so that it speeds the iteration up without moving its fixed point.

With L = sum E[z~ z~'], N samples, prior precisions P = diag(alpha, theta), deviations of the posterior
means from the prior means, and G_d = what the data add to the precision of feature d, the bound is
stationary in T at the identity iff, for every latent k and every l,

    L_lk - N delta_lk + Gamma_lk - P_l sum_d (m_d - prior_d)_l m_dk = 0
    Gamma = sum_d G_d Cov_d  (for a factorised q(W): sum_d G_d diag(v_d))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import optimize
from scipy.linalg import expm

from dmfvi.linalg import FloatArray, cholesky, inverse, symmetrize

#: a latent covariance this far from the identity is not corrected by the general formula
GENERAL_RANGE = (0.2, 5.0)
#: beyond this angle a Newton step is not trusted and the columns are diagonalised instead
MAX_ANGLE = 0.3
SHIFT_STEPS, SHIFT_ACCURACY = 3, 1e-14
KAPPA_FLOOR = 1e-3


class ExpansionInput(NamedTuple):
    """Moments that decide the change of coordinates."""

    latent: FloatArray  # (K, K), L
    mean: FloatArray  # (D, K), posterior means
    deviation: FloatArray  # (D, K), posterior minus prior means
    covariance_sum: FloatArray  # (K, K), sum of Cov_d
    gamma: FloatArray  # (K, K), Gamma
    prior_precision: FloatArray  # (K,), E[alpha] and E[theta]
    energy_slope: tuple[float, float] | None  # (a, b) of Gamma(a, b) ARD, None when alpha is fixed
    n_latent: int  # M
    n_samples: float  # N
    turn_stiffness: (
        FloatArray  # (K, K): sum_d (G_d,ll - G_d,kk)(v_dk - v_dl) when factorised, else 0
    )


def rotating_change(x: ExpansionInput) -> FloatArray:
    """T when the prior of W has mean zero and one Gamma for all: closed form for R at a given b.

    R R' = C up to the scale kappa, with the rotation that makes E[W'W] diagonal; kappa = 1
    for a vague prior, and 1 + (alpha_m E|w_m|^2 - D)/N in general.
    """
    m, d = x.n_latent, len(x.mean)
    energy = (x.mean.T @ x.mean + x.covariance_sum)[:m, :m]

    def inverse_of(spread: FloatArray) -> FloatArray:
        factor = cholesky(spread)
        values, rotation = np.linalg.eigh(factor.T @ energy @ factor)
        values, rotation = values[::-1], rotation[:, ::-1]
        kappa = _kappa(x, values, d, x.n_samples)
        change_back = np.sqrt(kappa)[:, None] * (rotation.T @ inverse(factor))
        # of the two signs take the one nearer to the old coordinates
        return change_back * np.where(np.diag(change_back) < 0, -1.0, 1.0)[:, None]

    return _with_shift(x, inverse_of)


def general_change(x: ExpansionInput) -> FloatArray | None:
    """T from the stationarity condition itself, when there is no closed form; None where it is too far away.

    For a factorised q(W) with missing entries.
    """
    m = x.n_latent
    pull = x.prior_precision[:, None] * (x.deviation.T @ x.mean)
    surplus = (x.gamma - pull)[:m, :m]
    goal = symmetrize(np.eye(m) - surplus / x.n_samples)
    angles = _turn(x, surplus)
    for matrix in (goal, x.latent[:m, :m] / x.n_samples):
        values = np.linalg.eigvalsh(matrix)
        far = values[0] < GENERAL_RANGE[0] or values[-1] > GENERAL_RANGE[1]
        if far or np.abs(angles).max() > MAX_ANGLE:
            return None
    left = cholesky(goal) @ np.asarray(expm(angles)).T
    return _with_shift(x, lambda spread: left @ inverse(cholesky(spread)))


def located_change(x: ExpansionInput) -> FloatArray:
    """T for prior means of W, which leave no rotation free: the bound of (R, b) is climbed from the identity.

    f = -N tr(R^-1 C_b R^-T)/2 + (D - N) log|R| + E[log p(W R, mu + W b)]
    """
    m, width, d, count = x.n_latent, len(x.latent), len(x.mean), x.n_samples
    second = x.mean.T @ x.mean + x.covariance_sum
    energy, location = second[:m, :m], x.mean[:, :m] - x.deviation[:, :m]
    cross, constant = x.mean[:, :m].T @ location, (location**2).sum(0)
    wide = width > m
    total = x.latent[:m, m] if wide else np.zeros(m)
    theta = x.prior_precision[m] if wide else 0.0
    drift = x.deviation[:, m] @ x.mean[:, :m] + x.covariance_sum[m, :m] if wide else np.zeros(m)

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        turn, shift = flat[: m * m].reshape(m, m), flat[m * m :]
        sign, log_det = np.linalg.slogdet(turn)
        if sign <= 0:
            return np.inf, np.zeros_like(flat)
        back = inverse(turn)
        mixed = np.outer(total, shift)
        spread = x.latent[:m, :m] - mixed - mixed.T + count * np.outer(shift, shift)
        energies = np.sum(turn * (energy @ turn) - 2.0 * turn * cross, axis=0) + constant
        if x.energy_slope is None:
            weight = x.prior_precision[:m]
            prior = -0.5 * weight @ energies
        else:
            shape, rate = x.energy_slope[0] + 0.5 * d, x.energy_slope[1] + 0.5 * energies
            weight = shape / rate
            prior = -shape * np.log(rate).sum()
        value = -0.5 * np.sum((back @ spread) * back) + (d - count) * log_det + prior
        value -= theta * (0.5 * shift @ energy @ shift + shift @ drift)
        metric = back.T @ back
        slope = metric @ spread @ back.T + (d - count) * back.T
        slope -= weight * (energy @ turn - cross)
        shift_slope = metric @ (total - count * shift) - theta * (energy @ shift + drift)
        gradient = np.concatenate([slope.ravel(), shift_slope if wide else np.zeros(m)])
        return -value / count, -gradient / count

    begin = np.concatenate([np.eye(m).ravel(), np.zeros(m)])
    found = optimize.minimize(
        loss,
        begin,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-11, "ftol": 0.0, "maxiter": 200},
    )
    turn, shift = found.x[: m * m].reshape(m, m), found.x[m * m :]
    change = np.eye(width)
    change[:m, :m] = inverse(turn)
    if wide:
        change[:m, m] = -change[:m, :m] @ shift
    return change


def _with_shift(x: ExpansionInput, inverse_of: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """T = [R^-1, -R^-1 b; 0, 1], b and R in turn.

    b = (N Q + theta E[W'W])^-1 (Q sum E[z] - theta E[W'(mu - prior)]) with Q = R^-T R^-1.
    """
    m, width = x.n_latent, len(x.latent)
    spread = x.latent[:m, :m] / x.n_samples
    change_back = inverse_of(spread)
    change = np.eye(width)
    if width > m:
        total = x.latent[:m, m]
        theta = x.prior_precision[m]
        energy = (x.mean.T @ x.mean + x.covariance_sum)[:m, :m]
        pull = theta * (x.deviation[:, m] @ x.mean[:, :m]) - x.gamma[m, :m]
        shift = np.zeros(m)
        for _ in range(SHIFT_STEPS):
            before = shift
            weight = change_back.T @ change_back
            shift = np.linalg.solve(x.n_samples * weight + theta * energy, weight @ total - pull)
            cross = np.outer(total, shift)
            centred = spread - (cross + cross.T) / x.n_samples + np.outer(shift, shift)
            change_back = inverse_of(centred)
            if np.abs(shift - before).max() <= SHIFT_ACCURACY * (1.0 + np.abs(shift).max()):
                break
        change[:m, m] = -change_back @ shift
    change[:m, :m] = change_back
    return change


def _kappa(x: ExpansionInput, values: FloatArray, d: int, count: float) -> FloatArray:
    """kappa > 0 with kappa = 1 + (alpha e - D)/N at the energy e = values / kappa: a quadratic.

    alpha is fixed, or (a + D/2)/(b + e/2) when it is learned.
    """
    q = 1.0 - d / count
    if x.energy_slope is None:
        alpha = x.prior_precision[: len(values)].mean()
        square, linear, constant = (
            np.ones_like(values),
            np.full_like(values, -q),
            -alpha * values / count,
        )
    else:
        shape, rate = x.energy_slope
        square = np.full_like(values, 2.0 * rate)
        linear = values - 2.0 * rate * q
        constant = -values * (1.0 + 2.0 * shape / count)
    root = np.sqrt(linear**2 - 4.0 * square * constant)
    kappa = np.where(
        linear > 0,
        -2.0 * constant / np.where(linear > 0, linear + root, 1.0),
        (root - linear) / (2.0 * square),
    )
    return np.maximum(kappa, KAPPA_FLOOR)


def _turn(x: ExpansionInput, surplus: FloatArray) -> FloatArray:
    """Angles that cancel the antisymmetric part of the condition: one Newton step per pair.

    For a full covariance that part is (alpha_l - alpha_k) E_lk, and cancelling it diagonalises E[W'W].
    """
    m = x.n_latent
    alpha = x.prior_precision[:m]
    energy = np.diagonal(x.mean.T @ x.mean)[:m]
    skew = surplus.T - surplus
    stiffness = (alpha[:, None] - alpha) * (energy - energy[:, None]) + x.turn_stiffness[:m, :m]
    floor = 1e-9 * np.abs(surplus).max()
    return np.where(stiffness > floor, skew / np.maximum(stiffness, floor), 0.0)
