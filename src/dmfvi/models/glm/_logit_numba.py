"""Numba code of the logit link: expectations by a series in the variance where it is small, by quadrature elsewhere.

With s = log(1 + e^eta), p = s' and a = s'' = p (1 - p), even derivatives are polynomials P_2k in a alone:

    P_2 = a,   P_2k+2 = P_2k'' a^2 (1 - 4 a) + P_2k' (a - 6 a^2),   s^(2k+1) = (1 - 2 p) a P_2k'

since a' = (1 - 2 p) a. Under eta ~ N(mean, v), E[f] = sum_k f^(2k)(mean) v^k / (2^k k!). Its terms shrink like
(2k - 1)!! (v / pi^2)^k, as the poles of s' are pi away from the real axis: one exponential a row gives all of them.

Where v is large, s bends within a small part of the Gaussian, which the points of Gauss and Hermite miss. Then with s(eta) = int a(u) max(eta - u, 0) du

    E[s] = int a(u) ((m - u) Phi(z) + d phi(z)) du,   E[p] = int a(u) Phi(z) du,   E[s''] = int a(u) phi(z) / d du,   z = (m - u) / d,  d = v^(1/2)

by the trapezoidal rule, whose error is exp(-2 pi^2 / step). Slope and curve are exact derivatives of that rule's value.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit
from dmfvi.models.glm._kernels_numba import LOGIT, PRICE_BELOW, one_parameter, rule_of

#: terms of the series, and the variances up to which so many give curves to 1e-12; beyond, quadrature takes slopes
TERMS, SERIES_LIMITS = (4, 6, 8), (3e-3, 2e-2, PRICE_BELOW)
#: factors 1 + e^-|eta| of which one logarithm is taken; each is at most two
FACTORS = 64


def even_derivatives(count):
    """Row k has the coefficients of a, a^2, ... in P_2k+2."""
    table = np.zeros((count, count))
    table[0, 0] = 1.0
    for k in range(count - 1):
        for j in range(k + 1):
            power = j + 1
            c = table[k, j]
            table[k + 1, j] += c * power * power
            table[k + 1, j + 1] -= c * power * (4.0 * power + 2.0)
    return table


EVEN = even_derivatives(max(TERMS) + 1)
#: 1 / (2^k k!)
SHARES = np.array([1.0 / (2.0**k * math.factorial(k)) for k in range(max(TERMS) + 1)])
#: variance from which the logistic density's own points are used
WIDE = 4.0
#: these points, and the density times their distance
STEP, REACH = 0.5, 38.0
PLACES = np.arange(-REACH, REACH + STEP, STEP)
DENSITY = STEP * np.exp(-np.abs(PLACES)) / (1.0 + np.exp(-np.abs(PLACES))) ** 2
DENSITY = DENSITY / DENSITY.sum()
FIRST_LIMIT, SECOND_LIMIT, LAST_LIMIT = SERIES_LIMITS
FIRST_TERMS, SECOND_TERMS, LAST_TERMS = TERMS


@njit(cache=True, error_model="numpy")
def series(a, v, terms):
    """E[s] - s, (E[p] - p) / (1 - 2 p) and E[s''], each without what the mean alone gives but for the last."""
    value, first, curve = 0.0, 0.0, 0.0
    before, before_slope, power = 0.0, 0.0, 1.0
    for k in range(terms + 1):
        at, slope = EVEN[k, k], 0.0  # Horner: P / a and its derivative
        for j in range(k - 1, -1, -1):
            slope = slope * a + at
            at = at * a + EVEN[k, j]
        share = SHARES[k] * power
        curve += share * at * a
        if k > 0:
            value += share * before
            first += share * before_slope
        before, before_slope = at * a, (at + a * slope) * a
        power *= v
    return value, first, curve


@njit(cache=True, error_model="numpy")
def short_series(a, v):
    """``series`` of four terms, written out."""
    h = 0.5 * v
    p4 = a * (1.0 - 6.0 * a)
    p6 = a * (1.0 + a * (-30.0 + 120.0 * a))
    p8 = a * (1.0 + a * (-126.0 + a * (1680.0 - 5040.0 * a)))
    p10 = a * (1.0 + a * (-510.0 + a * (17640.0 + a * (-151200.0 + 362880.0 * a))))
    d4 = 1.0 - 12.0 * a
    d6 = 1.0 + a * (-60.0 + 360.0 * a)
    d8 = 1.0 + a * (-252.0 + a * (5040.0 - 20160.0 * a))
    two, three, four = h / 2.0, h / 3.0, h / 4.0
    value = h * (a + two * (p4 + three * (p6 + four * p8)))
    first = h * a * (1.0 + two * (d4 + three * (d6 + four * d8)))
    curve = a + h * (p4 + two * (p6 + three * (p8 + four * p10)))
    return value, first, curve


@njit(cache=True, error_model="numpy")
def logit_rows(mean, variance, y, trials, weight, nodes, shares, starts, limits, slope, curve):
    """Expected slopes and curves of every row under eta ~ N(mean, variance); returns the sum of expected values."""
    total, product, factors = 0.0, 1.0, 0
    for n in range(len(mean)):
        v, eta = variance[n], mean[n]
        if v > WIDE:
            total += wide_row(n, eta, v, y, trials, weight, slope, curve)
            continue
        if v > LAST_LIMIT:
            total += quadrature_row(
                n, eta, v, y, trials, weight, nodes, shares, starts, limits, slope, curve
            )
            continue
        small = math.exp(-abs(eta))
        large = 1.0 / (1.0 + small)
        a = small * large * large
        chance = large if eta >= 0 else small * large
        if v == 0.0:
            value, first, bend = 0.0, 0.0, a
        elif v <= FIRST_LIMIT:
            value, first, bend = short_series(a, v)
        else:
            value, first, bend = series(a, v, SECOND_TERMS if v <= SECOND_LIMIT else LAST_TERMS)
        size = weight[n] * trials[n]
        if size == 1.0:
            product *= 1.0 + small
            factors += 1
            if factors == FACTORS:
                total -= math.log(product)
                product, factors = 1.0, 0
        else:
            total -= size * math.log1p(small)
        total += weight[n] * y[n] * eta - size * (max(eta, 0.0) + value)
        slope[n] = weight[n] * y[n] - size * (chance + (1.0 - 2.0 * chance) * first)
        curve[n] = size * bend
    return total - math.log(product)


@njit(cache=True, error_model="numpy")
def quadrature_row(n, eta, v, y, trials, weight, nodes, shares, starts, limits, slope, curve):
    """One row by Gauss-Hermite quadrature, its curve from first derivatives."""
    rule = rule_of(v, limits)
    deviation = math.sqrt(v)
    total, sum_first, sum_second = 0.0, 0.0, 0.0
    for k in range(starts[rule], starts[rule + 1]):
        value, first, _ = one_parameter(LOGIT, eta + deviation * nodes[k], y[n], trials[n])
        total += shares[k] * value
        sum_first += shares[k] * first
        sum_second += shares[k] * first * nodes[k]
    slope[n] = weight[n] * sum_first
    curve[n] = -weight[n] * sum_second / deviation
    return weight[n] * total


@njit(cache=True, error_model="numpy")
def wide_row(n, eta, v, y, trials, weight, slope, curve):
    """One row under a wide Gaussian, by the points of the logistic density."""
    deviation = math.sqrt(v)
    value, chance, bend = 0.0, 0.0, 0.0
    for k in range(len(PLACES)):
        gap = eta - PLACES[k]
        z = gap / deviation
        below = 0.5 * math.erfc(-z * math.sqrt(0.5))
        density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        value += DENSITY[k] * (gap * below + deviation * density)
        chance += DENSITY[k] * below
        bend += DENSITY[k] * density / deviation
    slope[n] = weight[n] * (y[n] - trials[n] * chance)
    curve[n] = weight[n] * trials[n] * bend
    return weight[n] * (y[n] * eta - trials[n] * value)
