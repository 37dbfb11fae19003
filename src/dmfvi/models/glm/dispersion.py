"""Moments of a log dispersion and of the coefficients beside it, integrated on a grid.

The Gaussian with the smallest KL(q || posterior) is too narrow for a log dispersion psi where it is skewed (few rows: towards zero the
dispersion of counts is hardly bounded) and where rows have many columns: coefficients are the wider the larger psi is, which no Gaussian
of both has. With b the coefficients, b_k their mode given psi_k and H_k their precision there,

    log p(psi | y) = max_b log p(y, b, psi) - log|H(psi)| / 2 + constant        (Laplace; Tierney & Kadane 1986)
    psi = mean + 2 deviation sinh(t),  t on an even grid                        (mean and deviation of q)

Modes follow from Newton steps for all points at once, whose sums the nodes agree on. Given psi the density of negative
binomial, Gamma and Gaussian targets is log-concave in b. Weights w_k of the points are p(psi_k | y), v_k those of q. The new Gaussian has

    E psi, Var psi by w;  E b = E_q b + sum (w_k - v_k) b_k;  Cov(b, psi) by w;  b's precision given psi = R M^-1 R'
    R R' = q's,  G G' = sum v_k H_k,  M = G' (sum w_k H_k^-1) G + spread of b_k about a line in psi:  exact for Gaussian targets

Quantiles of the dispersion are those of p(psi | y) itself, which is skewed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from dmfvi.families import MultivariateNormal
from dmfvi.inference.model import Coroutine
from dmfvi.linalg import FloatArray, cholesky, inverse, log_det, solve_definite, symmetrize
from dmfvi.models.glm.model import GeneralizedLinear, GlmBelief, is_definite, made_definite
from dmfvi.tags import stored_as

#: deviation of psi below which its posterior is Gaussian enough
NARROW = 0.1
#: p Var_q(psi) below which coefficients add little to it: twice the part of its variance that q lacks with Gaussian targets
FEW_COLUMNS = 0.1
#: points of the grid, and how far it goes in t: 8 deviations
POINTS, REACH = 25, 2.1
#: grids that are tried: another one where the posterior is much wider than q
GRIDS, MUCH_WIDER = 3, 1.5
#: Newton steps at most, and the squared length (in posterior deviations) of the last
NEWTON_STEPS, NEAR_MODE = 30, 1e-6
#: the same beyond which a point has not found its mode
SETTLED = 1e-2
#: numbers of one sum at most
MOST_NUMBERS = 2**22
#: share of the posterior that may lie at the ends of the grid
AT_THE_ENDS = 1e-3
#: points between which the density of psi is summed
FINE = 2001


class Points(NamedTuple):
    """Points of the grid: log density of psi up to a constant, modes (G, P) and precisions (G, p, p) of the coefficients."""

    log_density: FloatArray
    modes: FloatArray
    precisions: FloatArray


@stored_as("log-dispersion")
class LogDispersion(NamedTuple):
    """p(psi | y) up to a factor, at points in ascending order."""

    points: FloatArray  # (G,)
    log_density: FloatArray  # (G,)

    def quantile(self, probability: ArrayLike) -> FloatArray:
        """Points below which these parts of the posterior lie."""
        psi, density = self._density()
        below = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
        return np.asarray(np.interp(np.asarray(probability) * below[-1], below, psi))

    def moments(self, power: float = 1.0) -> tuple[float, float]:
        """Mean and deviation of exp(power psi)."""
        psi, density = self._density()
        weight, values = density / density.sum(), np.exp(power * psi)
        mean = float(weight @ values)
        return mean, float(np.sqrt(weight @ (values - mean) ** 2))

    def _density(self) -> tuple[FloatArray, FloatArray]:
        """Points between those of the grid, even in t, and the density of t there."""
        from scipy.interpolate import CubicSpline  # a node that fits needs none

        position = np.arange(len(self.points))
        fine = np.linspace(0.0, position[-1], FINE)
        psi, slope = (CubicSpline(position, self.points)(fine, order) for order in (0, 1))
        log_density = CubicSpline(position, self.log_density)(fine)
        return psi, np.exp(log_density - log_density.max()) * slope

    def moved(self, by: float) -> LogDispersion:
        """In other units of the dispersion."""
        return self._replace(points=self.points + by)


def agree_on_dispersion(model: GeneralizedLinear, shard: Any, belief: GlmBelief) -> Coroutine:
    """The belief with the posterior moments of psi, the last parameter, and ``LogDispersion``.

    The belief is unchanged, and the density is None, where q is good enough or they cannot be computed.
    """
    q = belief.q
    known = q.parameters()
    mean, covariance = np.asarray(known["mean"]), np.asarray(known["covariance"])
    p, own = len(mean) - 1, float(np.sqrt(covariance[-1, -1]))
    narrow = own < NARROW and p * own**2 < FEW_COLUMNS
    if narrow or POINTS * (p + 2) * (p + 3) // 2 > MOST_NUMBERS:
        return belief, None
    slope = covariance[:-1, -1] / covariance[-1, -1]  # of E_q[b | psi]
    grid, prior = np.linspace(-REACH, REACH, POINTS), model.precisions(q)
    middle, deviation = float(mean[-1]), own
    for _ in range(GRIDS):
        psi = middle + 2.0 * deviation * np.sinh(grid)
        start = np.column_stack([mean[:-1] + np.outer(psi - mean[-1], slope), psi])
        points = yield from _integrated(model, shard, start, prior)
        if np.isnan(points.log_density).any() or not np.isfinite(points.log_density.max()):
            return belief, None
        weights = _normalised(points.log_density, grid)
        settled = weights[0] + weights[-1] < AT_THE_ENDS
        before, middle = deviation, float(weights @ psi)
        deviation = float(np.sqrt(weights @ (psi - middle) ** 2))
        if settled and deviation < MUCH_WIDER * before:
            by_q = _normalised(-0.5 * ((psi - mean[-1]) / own) ** 2, grid)
            found = np.isfinite(points.log_density)
            density = LogDispersion(psi[found], points.log_density[found])
            try:
                return replace(belief, q=_moved(q, points, weights, by_q)), density
            except np.linalg.LinAlgError:  # collinear columns beside little noise
                return belief, None
    return belief, None


def _normalised(log_density: FloatArray, grid: FloatArray) -> FloatArray:
    """Weights of the points, which are cosh(t) apart."""
    weights = np.exp(log_density - log_density.max()) * np.cosh(grid)
    return np.asarray(weights / weights.sum())


def _moved(
    q: MultivariateNormal, points: Points, weights: FloatArray, by_q: FloatArray
) -> MultivariateNormal:
    """q with the moments that the weights have; precisions are never inverted where columns may be collinear."""
    used = weights > 0
    weights, by_q = weights[used], by_q[used] / by_q[used].sum()
    psi, b = points.modes[used, -1], points.modes[used, :-1]
    middle = float(weights @ psi)
    variance = float(weights @ (psi - middle) ** 2)
    apart = b - weights @ b
    slope = ((weights * (psi - middle)) @ apart) / variance
    root = cholesky(q.precision[:-1, :-1])
    factor = cholesky(np.einsum("k,kij->ij", by_q, points.precisions[used]))
    bent = (apart - np.outer(psi - middle, slope)) @ root
    spread = bent.T @ (weights[:, None] * bent)
    for weight, precision in zip(weights, points.precisions[used], strict=True):
        half = solve_triangular(factor, precision, lower=True)
        spread += weight * inverse(symmetrize(solve_triangular(factor, half.T, lower=True)))
    within = symmetrize(root @ inverse(spread) @ root.T)
    across = within @ slope
    whole = np.block(
        [[within, -across[:, None]], [-across[None], np.array([[1.0 / variance + slope @ across]])]]
    )
    mean = np.asarray(q.parameters()["mean"])
    centre = np.append(mean[:-1] + (weights - by_q) @ b, middle)
    return MultivariateNormal(whole @ centre, -0.5 * symmetrize(whole))


def _integrated(
    model: GeneralizedLinear, shard: Any, points: FloatArray, prior: FloatArray
) -> Coroutine:
    """The points' densities and modes, for points (G, P) that begin beside the modes of the coefficients.

    The log density is minus infinity where the likelihood is no finite number, not a number where no mode was found.
    """
    n_points, size = points.shape
    here, best = points.copy(), np.full(n_points, -np.inf)
    step, found = np.zeros_like(points), np.full(n_points, -np.inf)
    precisions = np.tile(np.eye(size - 1), (n_points, 1, 1))
    each = size + size * (size + 1) // 2 + 1
    for _ in range(NEWTON_STEPS):
        tried = here + step
        own = np.concatenate([model.row_sums(shard, theta, None) for theta in tried])
        totals = (yield own).reshape(n_points, each)
        lengths = np.zeros(n_points)
        for k, (total, theta) in enumerate(zip(totals, tried, strict=True)):
            if not np.isfinite(total).all():
                step[k] *= 0.5
                lengths[k] = np.inf if best[k] > -np.inf else 0.0
                continue
            linear, data, value = model.parts(total)
            value -= 0.5 * float(prior @ (theta - model.prior_mean) ** 2)
            if value < best[k] - 1e-9 * abs(best[k]):
                step[k] *= 0.5
                lengths[k] = np.inf
                continue
            here[k], best[k] = theta, value
            gradient = (linear - data @ theta - prior * (theta - model.prior_mean))[:-1]
            precision = data[:-1, :-1] + np.diag(prior[:-1])
            if not is_definite(precision):
                precision = made_definite(precision)
            precisions[k] = precision
            step[k, :-1] = solve_definite(precision, gradient)
            lengths[k] = abs(float(gradient @ step[k, :-1]))
            # the gain of the step that is left is half its squared length
            found[k] = value + 0.5 * lengths[k] - 0.5 * float(log_det(precision))
        if lengths.max() < NEAR_MODE:
            break
    # far from its mode the gain of a step says nothing
    return Points(np.where(lengths < SETTLED, found, np.nan), here, precisions)
