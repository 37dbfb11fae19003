"""Compiled log likelihoods of a row of a mixed model, as functions of its linear predictor eta and of psi.

    log p(y | eta, psi) = constant(y, psi) + term(y, eta, psi)          term <= 0 is zero where the mean is y (minus half the deviance)

psi is the log noise variance (gaussian) or the log dispersion (negative-binomial: variance mean + e^psi mean^2; gamma: variance e^psi mean^2).
Constants are the same at all points of a group's integral and are added once. Both have the forms of Loader (2000, Fast and accurate
computation of binomial probabilities), in which nothing of the size of y log y cancels.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit
from dmfvi.models.glm._kernels_numba import gamma_constant, log_minus_digamma

#: of families; gamma rows have the logarithm of their target
GAUSSIAN, LOGIT, LOG, COUNT, GAMMA = 0, 1, 2, 3, 4
#: linear predictors and dispersions are cut here, so that no exponential overflows
LARGEST, WIDEST = 600.0, 50.0


@njit(cache=True, error_model="numpy")
def level_of(code, psi):
    """What psi stands for: precision (gaussian), dispersion (counts), its inverse (gamma), within what floats can follow."""
    if code == GAUSSIAN:
        return math.exp(-psi)
    inside = max(min(psi, WIDEST), -WIDEST)
    return math.exp(-inside if code == GAMMA else inside)


@njit(cache=True, error_model="numpy")
def _inside(x):
    """Cut to where its exponential is a number."""
    return max(min(x, LARGEST), -LARGEST)


@njit(cache=True, error_model="numpy")
def _deviance(y, mean):
    """y log(y / mean) + mean - y."""
    if y == 0.0:
        return mean
    gap = y - mean
    return y * math.log1p(gap / mean) - gap


@njit(cache=True, error_model="numpy")
def _count_term(y, log_y, eta, level):
    """y d - (y + r) log(1 + y expm1(d) / (y + r)), d = eta - log y, r = 1 / level."""
    r = 1.0 / level
    if y == 0.0:
        return -r * math.log1p(level * math.exp(_inside(eta)))
    gap = _inside(eta - log_y)
    if y <= r:
        return y * gap - (y + r) * math.log1p(y / (y + r) * math.expm1(gap))
    return -r * gap - (y + r) * math.log1p(r / (y + r) * math.expm1(-gap))


@njit(cache=True, error_model="numpy")
def term(code, y, known, eta, level):  # noqa: PLR0911
    """The term of a target; ``known`` are trials, or the logarithm of a count."""
    if code == LOGIT:
        if known == 1.0:
            return y * eta - (max(eta, 0.0) + math.log1p(math.exp(-abs(eta))))
        small = math.exp(-min(abs(eta), LARGEST))
        near, far = known / (1.0 + small), known * small / (1.0 + small)
        mean = near if eta >= 0 else far
        return -_deviance(y, mean) - _deviance(known - y, far if eta >= 0 else near)
    if code == GAUSSIAN:
        return -0.5 * level * (y - eta) * (y - eta)
    if code == LOG:
        if y == 0.0:
            return -math.exp(min(eta, LARGEST))
        gap = _inside(eta - known)
        return y * (gap - math.expm1(gap))
    if code == COUNT:
        return _count_term(y, known, eta, level)
    gap = _inside(y - eta)
    return level * (gap - math.expm1(gap))


@njit(cache=True, error_model="numpy")
def row_terms(code, y, known, eta, level):
    """The term of a target, its first and minus its second derivative in eta."""
    if code == LOGIT:
        small = math.exp(-abs(eta))
        p = (1.0 if eta >= 0 else small) / (1.0 + small)
        value = term(code, y, known, eta, level)
        return value, y - known * p, known * p * (1.0 - p)
    if code == GAUSSIAN:
        gap = y - eta
        return -0.5 * level * gap * gap, level * gap, level
    if code == LOG:
        rate = math.exp(min(eta, LARGEST))
        return term(code, y, known, eta, level), y - rate, rate
    if code == COUNT:
        mean = math.exp(min(eta, LARGEST))
        s = level * mean
        size = (1.0 + level * y) / (1.0 + s)
        return (
            _count_term(y, known, eta, level),
            (y - mean) / (1.0 + s),
            size * mean / (1.0 + s),
        )
    gap = _inside(y - eta)
    less = math.expm1(gap)
    return level * (gap - less), level * less, level * (1.0 + less)


@njit(cache=True, error_model="numpy")
def psi_terms(code, y, known, eta, level):
    """Derivatives of the term in psi: the first, that in eta and psi, and the second.

    Counts: r F, F = log v - z / v, v = 1 + z, z = (mean - y) / (y + r), r = 1 / level.
    """
    if code == GAUSSIAN:
        gap = y - eta
        square = 0.5 * level * gap * gap
        return square, -level * gap, -square
    if code == COUNT:
        r = 1.0 / level
        mean = math.exp(_inside(eta))
        s = level * mean
        part = (mean - y) / (mean + r)  # z / v
        if y == 0.0:
            log_v = math.log1p(s)
        else:
            gap = _inside(eta - known)
            if y <= r:
                log_v = math.log1p(y / (y + r) * math.expm1(gap))
            else:
                log_v = gap + math.log1p(r / (y + r) * math.expm1(-gap))
        first = r * (log_v - part)
        share = r / (y + r)
        mixed = -((y - mean) / (1.0 + s)) * (s / (1.0 + s))
        return first, mixed, r * share * part * part - first
    gap = _inside(y - eta)
    less = math.expm1(gap)
    loss = level * (gap - less)
    return -loss, -level * less, loss


@njit(cache=True, error_model="numpy")
def _at_mode(y):
    """log of y^y e^-y / y!, the Poisson probability of y where it is the mean."""
    return gamma_constant(y) - math.log(y) if y > 0.0 else 0.0


@njit(cache=True, error_model="numpy")
def constants(code, y, known, psi):
    """Sum over rows of the constant and of its two derivatives in psi."""
    value, first, second, n = 0.0, 0.0, 0.0, len(y)
    if code == GAUSSIAN:
        return -0.5 * n * (math.log(2.0 * math.pi) + psi), -0.5 * n, 0.0
    if code == LOGIT:
        for i in range(n):
            if known[i] != 1.0:
                value += _at_mode(y[i]) + _at_mode(known[i] - y[i]) - _at_mode(known[i])
        return value, first, second
    if code == LOG:
        for i in range(n):
            value += _at_mode(y[i])
        return value, first, second
    if code == COUNT:
        r = 1.0 / level_of(code, psi)
        constant = gamma_constant(r)
        slope, bend = log_minus_digamma(r)
        for i in range(n):
            if y[i] > 0.0:
                value += constant + _at_mode(y[i]) - gamma_constant(y[i] + r)
                there, curve = log_minus_digamma(y[i] + r)
                first -= r * (slope - there)
                second += r * (slope - there) + r * r * (bend - curve)
        return value, first, second
    k = level_of(code, psi)
    slope, bend = log_minus_digamma(k)
    for i in range(n):
        value -= y[i]  # 1/y, y's logarithm given
    value += n * gamma_constant(k)
    return value, -n * k * slope, n * (k * slope + k * k * bend)


@njit(cache=True, error_model="numpy")
def constants_at(code, y, known, psis):
    """The sums of constants at many psi."""
    found = np.zeros(len(psis))
    for t in range(len(psis)):
        found[t] = constants(code, y, known, psis[t])[0]
    return found
