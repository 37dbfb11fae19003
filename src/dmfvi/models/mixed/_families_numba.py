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
def level_of(code, psi):
    """What psi stands for: precision (gaussian), dispersion (counts), its inverse (gamma), within what floats can follow."""
    if code == GAUSSIAN:
        return math.exp(-psi)
    inside = max(min(psi, WIDEST), -WIDEST)
    return math.exp(-inside if code == GAMMA else inside)


@njit(cache=True, error_model="numpy")
def term(code, y, trials, eta, level):
    """The term of a target."""
    if code == LOGIT:
        return y * eta - trials * (max(eta, 0.0) + math.log1p(math.exp(-abs(eta))))
    if code == GAUSSIAN:
        return -0.5 * level * (y - eta) * (y - eta)
    if code == LOG:
        return y * eta - math.exp(min(eta, LARGEST))
    if code == COUNT:
        s = level * math.exp(min(eta, LARGEST))
        return y * eta - (y + 1.0 / level) * math.log1p(s)
    gap = min(y - eta, LARGEST)
    return level * (gap + 1.0 - math.exp(gap))


@njit(cache=True, error_model="numpy")
def row_terms(code, y, trials, eta, level):
    """The term of a target, its first and minus its second derivative in eta."""
    if code == LOGIT:
        small = math.exp(-abs(eta))
        p = (1.0 if eta >= 0 else small) / (1.0 + small)
        log_part = max(eta, 0.0) + math.log1p(small)
        return y * eta - trials * log_part, y - trials * p, trials * p * (1.0 - p)
    if code == GAUSSIAN:
        gap = y - eta
        return -0.5 * level * gap * gap, level * gap, level
    if code == LOG:
        rate = math.exp(min(eta, LARGEST))
        return y * eta - rate, y - rate, rate
    if code == COUNT:
        mean = math.exp(min(eta, LARGEST))
        s = level * mean
        value = y * eta - (y + 1.0 / level) * math.log1p(s)
        size = (1.0 + level * y) / (1.0 + s)
        return value, (y - mean) / (1.0 + s), size * mean / (1.0 + s)
    gap = min(y - eta, LARGEST)
    ratio = math.exp(gap)
    return level * (gap + 1.0 - ratio), level * (ratio - 1.0), level * ratio


@njit(cache=True, error_model="numpy")
def psi_terms(code, y, eta, level):
    """Derivatives of the term in psi: the first, that in eta and psi, and the second."""
    if code == GAUSSIAN:
        gap = y - eta
        square = 0.5 * level * gap * gap
        return square, -level * gap, -square
    if code == COUNT:
        mean = math.exp(min(eta, LARGEST))
        s = level * mean
        part = s / (1.0 + s)
        log_s = math.log1p(s) / level
        size = (1.0 + level * y) * (mean / (1.0 + s))
        second = size * part - (log_s - mean / (1.0 + s)) - y * part
        return log_s - size, -((y - mean) / (1.0 + s)) * part, second
    gap = min(y - eta, LARGEST)
    ratio = math.exp(gap)
    loss = level * (gap + 1.0 - ratio)
    return -loss, -level * (ratio - 1.0), loss


@njit(cache=True, error_model="numpy")
def constants(code, y, psi):
    """Sum over rows of the constant and of its two derivatives in psi."""
    value, first, second = 0.0, 0.0, 0.0
    if code == GAUSSIAN:
        return -0.5 * len(y) * (math.log(2.0 * math.pi) + psi), -0.5 * len(y), 0.0
    if code == COUNT:
        alpha = level_of(code, psi)
        for i in range(len(y)):
            each, slope, bend = count_terms(y[i], alpha)
            value += each
            first += slope
            second += bend
    if code == GAMMA:
        k = level_of(code, psi)
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
