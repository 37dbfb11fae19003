"""Compiled log likelihoods of a row of a mixed model, as functions of its linear predictor eta and of psi.

    log p(y | eta, psi) = constant(y, psi) + term(y, eta, psi) + what depends on neither

psi is the log noise variance (gaussian) or the log dispersion (negative-binomial: variance mean + e^psi mean^2; gamma: variance e^psi mean^2).
Constants are the same at all points of a group's integral and are added once.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit
from dmfvi.models.glm._kernels_numba import count_terms, gamma_constant, log_minus_digamma

#: of families; gamma rows have the logarithm of their target
GAUSSIAN, LOGIT, LOG, COUNT, GAMMA = 0, 1, 2, 3, 4
#: linear predictors and dispersions are cut here, so that no exponential overflows
LARGEST, WIDEST = 600.0, 50.0


@njit(cache=True, error_model="numpy")
def _of_log(psi):
    """exp(psi) within what floats can follow."""
    return math.exp(max(min(psi, WIDEST), -WIDEST))


@njit(cache=True, error_model="numpy")
def row_terms(code, y, trials, eta, psi):
    """The term of a target, its first and minus its second derivative in eta."""
    if code == GAUSSIAN:
        tau = math.exp(-psi)
        gap = y - eta
        return -0.5 * gap * gap * tau, gap * tau, tau
    if code == LOGIT:
        small = math.exp(-abs(eta))
        p = (1.0 if eta >= 0 else small) / (1.0 + small)
        log_part = max(eta, 0.0) + math.log1p(small)
        return y * eta - trials * log_part, y - trials * p, trials * p * (1.0 - p)
    if code == LOG:
        rate = math.exp(min(eta, LARGEST))
        return y * eta - rate, y - rate, rate
    if code == COUNT:
        alpha = _of_log(psi)
        mean = math.exp(min(eta, LARGEST))
        s = alpha * mean
        value = y * eta - (y + 1.0 / alpha) * math.log1p(s)
        size = (1.0 + alpha * y) / (1.0 + s)
        return value, (y - mean) / (1.0 + s), size * mean / (1.0 + s)
    k = _of_log(-psi)
    gap = min(y - eta, LARGEST)
    ratio = math.exp(gap)
    return k * (gap + 1.0 - ratio), k * (ratio - 1.0), k * ratio


@njit(cache=True, error_model="numpy")
def psi_terms(code, y, eta, psi):
    """Derivatives of the term in psi: the first, that in eta and psi, and the second."""
    if code == GAUSSIAN:
        tau = math.exp(-psi)
        gap = y - eta
        square = 0.5 * tau * gap * gap
        return square, -tau * gap, -square
    if code == COUNT:
        alpha = _of_log(psi)
        mean = math.exp(min(eta, LARGEST))
        s = alpha * mean
        part = s / (1.0 + s)
        log_s = math.log1p(s) / alpha
        size = (1.0 + alpha * y) * (mean / (1.0 + s))
        second = size * part - (log_s - mean / (1.0 + s)) - y * part
        return log_s - size, -((y - mean) / (1.0 + s)) * part, second
    k = _of_log(-psi)
    gap = min(y - eta, LARGEST)
    ratio = math.exp(gap)
    loss = k * (gap + 1.0 - ratio)
    return -loss, -k * (ratio - 1.0), loss


@njit(cache=True, error_model="numpy")
def constants(code, y, psi):
    """Sum over rows of the constant and of its two derivatives in psi."""
    value, first, second = 0.0, 0.0, 0.0
    if code == GAUSSIAN:
        return -0.5 * len(y) * (math.log(2.0 * math.pi) + psi), -0.5 * len(y), 0.0
    if code == COUNT:
        alpha = _of_log(psi)
        for i in range(len(y)):
            each, slope, bend = count_terms(y[i], alpha)
            value += each
            first += slope
            second += bend
    if code == GAMMA:
        k = _of_log(-psi)
        slope, bend = log_minus_digamma(k)
        value = len(y) * gamma_constant(k)
        first = -len(y) * k * slope
        second = len(y) * (k * slope + k * k * bend)
    return value, first, second


@njit(cache=True, error_model="numpy")
def constants_at(code, y, psis):
    """The sums of constants at many psi."""
    found = np.zeros(len(psis))
    for t in range(len(psis)):
        found[t] = constants(code, y, psis[t])[0]
    return found
