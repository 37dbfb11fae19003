"""Posterior means and covariances by weighted draws, from the Gaussian at the mode (adaptive importance sampling).

    theta_k ~ r,   r = 4/5 t_nu(mean, covariance) + 1/5 [the same for some, the prior for the others]
    w_k ~ exp(sum_i log p(data_i | theta_k)) p(theta_k) / r(theta_k)
    mean <- sum w theta      covariance <- sum w (theta - mean)(theta - mean)'      log evidence = log mean of the weights

Where 2 P^2 + 1 points around the mode already show a posterior that is nearly the Gaussian there, as with thousands of groups, no draws are
taken. With rho = p / q at the points of a rule of degree five, whose error is below the noise of the draws,

    mean = mode + sum_k s_k rho_k z_k / sum_k s_k rho_k      the precision is that of the mode      log evidence = Laplace's + log sum_k s_k rho_k

Parameters that the data may leave open on one side, as logarithms of deviations, are those drawn from their prior: long tails far from the mode are found.
The others are drawn relative to the model's ``growth``: log odds in a group are larger than those of all groups the more the groups differ.

The points are the same at all nodes: a quasi-random sequence without a seed (Sobol 1967). One sum of as many numbers as there are points is
agreed a stage, whatever their likelihoods cost (Bugallo et al. 2017, IEEE Signal Processing Magazine 34(4)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, gammaln, ndtri

from dmfvi.families import MultivariateNormal
from dmfvi.inference.model import Coroutine
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.quadrature import fifth_degree
from dmfvi.models.laplace import LaplaceBelief, moved

#: draws near the mode in each stage, powers of two: the first stages find out where the posterior is
STAGES = (256, 256, 256, 2048)
#: degrees of freedom of the draws: heavier tails than any posterior near a Gaussian
FREEDOM = 7.0
#: parameters up to which draws can be weighted
MOST_PARAMETERS = 24
#: deviation of open-ended parameters' draws at most, and where effects of groups are too large for sums
WIDEST, LARGEST_LOG = 3.0, 12.0
#: effective draws below which the mode's Gaussian is kept
LEAST_DRAWS = 150.0
#: log ratios of the posterior to the mode's Gaussian, at points sqrt(3) to sqrt(6) deviations away, below which no draws are needed: all, and
#: their even part, which widens the Gaussian. Means are then within 0.01, deviations within 1 %
NEAR_GAUSSIAN, NEARLY_AS_WIDE = 0.1, 0.02


class Density(Protocol):
    """A log likelihood at many points, and a Gaussian prior; ``open_ended`` marks what may have a long tail.

    ``growth`` says, by the open-ended parameters of points (N, P), in what proportion the others are large there.
    """

    prior_mean: FloatArray
    prior_precision: FloatArray

    @property
    def open_ended(self) -> NDArray[np.bool_]: ...

    def agreed_values(self, shard: Any, thetas: FloatArray) -> Coroutine: ...

    def log_prior(self, theta: FloatArray) -> float: ...

    def growth(self, thetas: FloatArray) -> FloatArray: ...


def agree_on_moments(
    model: Density,
    shard: Any,
    belief: LaplaceBelief,
    most_points: int | None = None,
    advance: Callable[[int, int], None] | None = None,
) -> Coroutine:
    """The belief with means and covariance of the posterior; unchanged where there are too few effective draws.

    A sum has ``most_points`` numbers at most; ``advance`` is told the points done and those in all.
    """
    known = belief.q.parameters()
    mean, covariance = np.asarray(known["mean"]), np.asarray(known["covariance"])
    if len(mean) > MOST_PARAMETERS:
        return belief
    near = yield from _agree_near_the_mode(model, shard, belief, mean, covariance, most_points)
    if near is not None:
        return near
    done, total = 0, sum(count + count // 4 for count in STAGES)
    others = ~model.open_ended
    shrink = np.where(others, 1.0 / model.growth(mean[None])[0], 1.0)
    middle, spread = shrink * mean, np.outer(shrink, shrink) * covariance
    for count in STAGES:
        relative, log_density = draws(model, middle, spread, count)
        growth = model.growth(relative)
        points = np.where(others, growth[:, None], 1.0) * relative
        log_density -= int(others.sum()) * np.log(growth)
        inside = np.asarray((points[:, model.open_ended] < LARGEST_LOG).all(1))
        asked = np.where(inside[:, None], points, mean)
        likelihood = np.empty(0)
        for part in _parts(asked, most_points):
            likelihood = np.append(likelihood, (yield from model.agreed_values(shard, part)))
            done += len(part)
            if advance is not None:
                advance(done, total)
        prior = np.array([model.log_prior(point) for point in points])
        log_weights = likelihood + prior - log_density
        log_weights[~inside | ~np.isfinite(log_weights)] = -np.inf
        top = log_weights.max()
        if not np.isfinite(top):
            return belief
        weights = np.exp(log_weights - top)
        evidence = float(top + np.log(weights.mean()))
        weights /= weights.sum()
        ess = float(1.0 / np.sum(weights**2))
        middle, spread = _moments(relative, weights)
        mean, covariance = _moments(points, weights)
        if not (_usable(spread, ess, count) and _usable(covariance, ess, count)):
            return replace(belief, ess=ess)
    precision = np.linalg.inv(covariance)
    q = MultivariateNormal(precision @ mean, -0.25 * (precision + precision.T))
    return replace(belief, q=q, evidence=evidence, ess=ess)


def _moments(points: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and covariance."""
    mean = weights @ points
    gap = points - mean
    return mean, gap.T @ (weights[:, None] * gap)


def _parts(points: FloatArray, most: int | None) -> list[FloatArray]:
    size = len(points) if most is None else most
    return [points[begin : begin + size] for begin in range(0, len(points), size)]


def _agree_near_the_mode(
    model: Density,
    shard: Any,
    belief: LaplaceBelief,
    mean: FloatArray,
    covariance: FloatArray,
    most_points: int | None,
) -> Coroutine:
    """The mode's Gaussian at the posterior's mean, None where the posterior is not nearly Gaussian."""
    d = len(mean)
    points, shares = fifth_degree(d)
    thetas = mean + points @ np.linalg.cholesky(covariance).T
    log_ratio = 0.5 * (points**2).sum(1) + [model.log_prior(theta) for theta in thetas]
    likelihood = np.empty(0)
    for part in _parts(thetas, most_points):
        likelihood = np.append(likelihood, (yield from model.agreed_values(shard, part)))
    log_ratio += likelihood
    log_ratio -= log_ratio[0]  # at the mode
    even = 0.5 * (log_ratio[1 : d + 1] + log_ratio[d + 1 : 2 * d + 1])
    if not (np.abs(log_ratio).max() < NEAR_GAUSSIAN and np.abs(even).max() < NEARLY_AS_WIDE):
        return None
    weights = shares * np.exp(log_ratio)
    total = float(weights.sum())
    q = moved(belief.q, weights @ thetas / total)
    return replace(belief, q=q, evidence=belief.log_evidence + float(np.log(total)))


def _usable(covariance: FloatArray, ess: float, count: int) -> bool:
    """Whether a stage has enough effective draws to go on from: at the end more draws count than at the beginning."""
    least = LEAST_DRAWS if count == STAGES[-1] else 3.0 * len(covariance)
    return ess >= least and bool(np.linalg.eigvalsh(covariance)[0] > 0.0)


def draws(
    model: Density, mean: FloatArray, covariance: FloatArray, count: int
) -> tuple[FloatArray, FloatArray]:
    """Points (5/4 count, P), evenly spread, and the logarithm of the mixture's density there."""
    wide = count // 4  # beside the others
    size, tail = len(mean), model.open_ended
    near = _t_points(even_points(count, size + 1), mean, covariance)
    far, others = np.empty((wide, size)), ~tail
    uniform = even_points(wide, size + 1)
    # open-ended parameters are independent of the others here, as the density below has it
    far[:, others] = _t_points(
        uniform[:, np.append(others, True)], mean[others], covariance[np.ix_(others, others)]
    )
    deviation = np.minimum(1.0 / np.sqrt(np.maximum(model.prior_precision[tail], 1e-12)), WIDEST)
    # the coordinates that stand for the open-ended parameters, as standard normal numbers
    far[:, tail] = model.prior_mean[tail] + deviation * ndtri(uniform[:, :-1])[:, tail]
    points = np.concatenate([near, far])
    standard = (points[:, tail] - model.prior_mean[tail]) / deviation
    log_wide = -0.5 * (standard**2).sum(1) - np.log(deviation * np.sqrt(2.0 * np.pi)).sum()
    log_wide += _log_t(points[:, others], mean[others], covariance[np.ix_(others, others)])
    log_near = _log_t(points, mean, covariance)
    share = wide / (count + wide)
    return points, np.logaddexp(log_near + np.log1p(-share), log_wide + np.log(share))


def _t_points(uniform: FloatArray, mean: FloatArray, covariance: FloatArray) -> FloatArray:
    """Points of a multivariate t distribution from uniform numbers, one more than it has parameters."""
    # a chi-squared number over its degrees of freedom, the same for all parameters of a draw
    shrink = gammaincinv(0.5 * FREEDOM, uniform[:, -1]) / (0.5 * FREEDOM)
    standard = ndtri(uniform[:, :-1]) / np.sqrt(shrink)[:, None]
    return np.asarray(mean + standard @ np.linalg.cholesky(covariance).T)


def _log_t(points: FloatArray, mean: FloatArray, covariance: FloatArray) -> FloatArray:
    size = len(mean)
    root = np.linalg.cholesky(covariance)
    standard = np.linalg.solve(root, (points - mean).T)
    constant = gammaln(0.5 * (FREEDOM + size)) - gammaln(0.5 * FREEDOM)
    constant -= 0.5 * size * np.log(FREEDOM * np.pi) + np.log(np.diag(root)).sum()
    tails = np.log1p((standard**2).sum(0) / FREEDOM)
    return np.asarray(constant - 0.5 * (FREEDOM + size) * tails)


def even_points(count: int, size: int) -> FloatArray:
    """The first points of Sobol's sequence in the unit cube, in the middle of their cells; ``count`` is a power of two."""
    from scipy.stats import qmc

    plain = qmc.Sobol(size, scramble=False).random(count)
    return np.asarray(plain + 0.5 / count)
