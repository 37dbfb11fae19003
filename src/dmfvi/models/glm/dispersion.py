"""Moments of a log dispersion, the coefficients integrated out at each point of a grid.

The posterior of a log dispersion psi is skewed with few rows: towards zero the dispersion is hardly bounded. The Gaussian
with the smallest KL(q || posterior) is then too narrow. With b the coefficients, H their precision at the mode,

    log p(psi | y) = max_b log p(y, b, psi) - log|H(psi)| / 2 + constant        (Laplace; Tierney & Kadane 1986)
    psi = mean + 2 deviation sinh(t),  t on an even grid                        (mean and deviation of q)

Modes follow from Newton steps for all points at once, whose sums the nodes agree on. Given psi the density of negative
binomial, Gamma and Gaussian targets is log-concave in b.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dmfvi.families import MultivariateNormal
from dmfvi.inference.model import Coroutine
from dmfvi.linalg import FloatArray, log_det, symmetrize
from dmfvi.models.glm.model import GeneralizedLinear, GlmBelief

#: deviation of psi below which its posterior is Gaussian enough
NARROW = 0.1
#: points of the grid, and how far it goes in t: 8 deviations
POINTS, REACH = 25, 2.1
#: Newton steps at most, and the squared length (in posterior deviations) of the last
NEWTON_STEPS, NEAR_MODE = 30, 1e-6
#: the same beyond which a point has not found its mode
SETTLED = 1e-2
#: numbers of one sum at most
MOST_NUMBERS = 2**22
#: share of the posterior that may lie at the ends of the grid
AT_THE_ENDS = 1e-3


def agree_on_dispersion(model: GeneralizedLinear, shard: Any, belief: GlmBelief) -> Coroutine:
    """The belief with the posterior mean and variance of psi, the last parameter; unchanged where they cannot be computed."""
    known = belief.q.parameters()
    mean, covariance = np.asarray(known["mean"]), np.asarray(known["covariance"])
    p, deviation = len(mean) - 1, float(np.sqrt(covariance[-1, -1]))
    if deviation < NARROW or POINTS * (p + 2) * (p + 3) // 2 > MOST_NUMBERS:
        return belief
    grid = np.linspace(-REACH, REACH, POINTS)
    psi = mean[-1] + 2.0 * deviation * np.sinh(grid)
    slope = covariance[:-1, -1] / covariance[-1, -1]  # of E_q[b | psi]
    start = np.column_stack([mean[:-1] + np.outer(psi - mean[-1], slope), psi])
    log_density = yield from _integrated(model, shard, start, model.precisions(belief.q))
    if np.isnan(log_density).any() or not np.isfinite(log_density.max()):
        return belief
    weights = np.exp(log_density - log_density.max()) * np.cosh(grid)
    weights /= weights.sum()
    if weights[0] + weights[-1] > AT_THE_ENDS:
        return belief
    middle = float(weights @ psi)
    variance = float(weights @ (psi - middle) ** 2)
    moved = np.append(slope, 1.0)
    wider = covariance + (variance - covariance[-1, -1]) * np.outer(moved, moved)
    precision = symmetrize(np.linalg.inv(wider))
    centre = mean + (middle - mean[-1]) * moved
    return replace(belief, q=MultivariateNormal(precision @ centre, -0.5 * precision))


def _integrated(
    model: GeneralizedLinear, shard: Any, points: FloatArray, prior: FloatArray
) -> Coroutine:
    """Log density of psi up to a constant, for points (G, P) that begin beside the modes of the coefficients.

    Minus infinity where the likelihood is no finite number, not a number where no mode was found.
    """
    n_points, size = points.shape
    here, best = points.copy(), np.full(n_points, -np.inf)
    step, found = np.zeros_like(points), np.full(n_points, -np.inf)
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
            step[k, :-1] = np.linalg.solve(precision, gradient)
            lengths[k] = abs(float(gradient @ step[k, :-1]))
            # the gain of the step that is left is half its squared length
            found[k] = value + 0.5 * lengths[k] - 0.5 * float(log_det(precision))
        if lengths.max() < NEAR_MODE:
            break
    # far from its mode the gain of a step says nothing
    return np.where(lengths < SETTLED, found, np.nan)
