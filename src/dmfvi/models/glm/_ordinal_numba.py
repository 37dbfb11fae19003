"""Numba code for ordered classes; imported only when it is used.

A row of class y depends on its predictor and two cut points, log(F(c_y - eta) - F(c_y-1 - eta)). Derivatives in all psi
follow from those in the two cut points, so that they are added up once for each point of psi and class.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit
from dmfvi.models.glm._kernels_numba import (
    LARGEST_EXPONENT,
    LOG_ROOT_2PI,
    log_normal_cdf,
    mills,
    rule_of,
)


@njit(cache=True, error_model="numpy")
def logit_edges(upper, lower, has_upper, has_lower):
    """log(F(upper) (1 - F(lower))) and its derivatives (u, l, uu, ll), logistic F."""
    value, du, dl, duu, dll = 0.0, 0.0, 0.0, 0.0, 0.0
    if has_upper:
        small = math.exp(-abs(upper))
        value += min(upper, 0.0) - math.log1p(small)
        du = (small if upper >= 0 else 1.0) / (1.0 + small)
        duu = -small / ((1.0 + small) * (1.0 + small))
    if has_lower:
        small = math.exp(-abs(lower))
        value -= max(lower, 0.0) + math.log1p(small)
        dl = -(1.0 if lower >= 0 else small) / (1.0 + small)
        dll = -small / ((1.0 + small) * (1.0 + small))
    return value, du, dl, duu, dll


@njit(cache=True, error_model="numpy")
def probit_interval(upper, lower, has_upper, has_lower):
    """log(F(upper) - F(lower)) and its derivatives (u, l, uu, ul, ll), normal F."""
    if not has_lower:
        ratio = mills(upper)
        return log_normal_cdf(upper), ratio, 0.0, -ratio * (upper + ratio), 0.0, 0.0
    if not has_upper:
        ratio = mills(-lower)
        return log_normal_cdf(-lower), 0.0, -ratio, 0.0, 0.0, -ratio * (ratio - lower)
    flipped = lower > 0  # take both on the left, where differences keep their digits
    u, low = (-lower, -upper) if flipped else (upper, lower)
    top = log_normal_cdf(u)
    value = top + math.log(max(-math.expm1(log_normal_cdf(low) - top), 1e-290))
    a = math.exp(min(-0.5 * u * u - LOG_ROOT_2PI - value, LARGEST_EXPONENT))
    b = math.exp(min(-0.5 * low * low - LOG_ROOT_2PI - value, LARGEST_EXPONENT))
    if flipped:  # u = -lower, low = -upper
        return value, b, -a, low * b - b * b, a * b, -u * a - a * a
    return value, a, -b, -u * a - a * a, a * b, low * b - b * b


@njit(cache=True, error_model="numpy")
def logit_gaps(sizes):
    """Of log(1 - exp(-gap)), which a logit has besides its two edges and which no row changes: value, and derivatives in the gap."""
    n_points, m = sizes.shape
    gaps = np.zeros((n_points, m + 1, 3))
    for j in range(n_points):
        for c in range(1, m):
            inverse = 1.0 / math.expm1(min(sizes[j, c], LARGEST_EXPONENT))
            gaps[j, c, 0] = math.log(-math.expm1(-sizes[j, c]))
            gaps[j, c, 1] = inverse
            gaps[j, c, 2] = inverse * (1.0 + inverse)
    return gaps


@njit(cache=True, error_model="numpy")
def add_psi(table, sizes, psi_slope, psi_curve):
    """Add slopes and curves of psi from expected derivatives (u, l, uu, ul, ll) by point and class, ``table`` (J, M + 1, 5)."""
    n_points, m = sizes.shape
    for j in range(n_points):
        for c in range(m + 1):
            du, dl, duu, dul, dll = table[j, c]
            for i in range(min(c + 1, m)):
                up_i = sizes[j, i] if c < m else 0.0
                low_i = sizes[j, i] if i < c else 0.0
                first = du * up_i + dl * low_i
                psi_slope[i] += first
                if i > 0:  # the second derivative of exp(psi_i) itself
                    psi_curve[i, i] -= first
                for h in range(min(c + 1, m)):
                    up_h = sizes[j, h] if c < m else 0.0
                    low_h = sizes[j, h] if h < c else 0.0
                    psi_curve[i, h] -= (
                        duu * up_i * up_h
                        + dul * (up_i * low_h + low_i * up_h)
                        + dll * low_i * low_h
                    )


@njit(cache=True, error_model="numpy")
def ordinal_rows(
    logit,
    mean,
    along,
    variance,
    y,
    weight,
    points,
    outer_shares,
    cuts,
    sizes,
    nodes,
    shares,
    starts,
    limits,
    slope,
    curve,
    mixed,
    psi_slope,
    psi_curve,
):
    """Expected slopes and curves under (eta, psi) Gaussian.

    ``points`` (J, M) are whitened; given point j, eta ~ N(mean + along . points_j, variance) and the cut points are
    ``cuts`` (J, M), the sums of ``sizes`` (J, M) but for the first, whose size is the derivative 1.
    """
    n_points, m = points.shape
    # by point and class: expected derivatives u, l, uu, ul, ll, weighted
    table = np.zeros((n_points, m + 1, 5))
    gaps = logit_gaps(sizes) if logit else np.zeros((n_points, m + 1, 3))
    total = 0.0
    for n in range(len(mean)):
        c = int(y[n])
        has_upper, has_lower = c < m, c > 0
        rule = rule_of(variance[n], limits)
        deviation = math.sqrt(variance[n])
        first_node, end_node = starts[rule], starts[rule + 1]
        alone = variance[n] == 0.0
        if alone:
            end_node = first_node + 1
        slope[n], curve[n] = 0.0, 0.0
        for i in range(m):
            mixed[n, i] = 0.0
        for j in range(n_points):
            centre = mean[n]
            for i in range(m):
                centre += along[n, i] * points[j, i]
            upper = cuts[j, c] - centre if has_upper else 0.0
            lower = cuts[j, c - 1] - centre if has_lower else 0.0
            value, bend = gaps[j, c, 0], gaps[j, c, 2]
            du, dl, duu, dul, dll = gaps[j, c, 1], -gaps[j, c, 1], -bend, bend, -bend
            for k in range(first_node, end_node):
                step = 0.0 if alone else deviation * nodes[k]
                part = 1.0 if alone else shares[k]
                if logit:
                    v, u1, l1, u2, l2 = logit_edges(
                        upper - step, lower - step, has_upper, has_lower
                    )
                else:
                    v, u1, l1, u2, both, l2 = probit_interval(
                        upper - step, lower - step, has_upper, has_lower
                    )
                    dul += part * both
                value += part * v
                du += part * u1
                dl += part * l1
                duu += part * u2
                dll += part * l2
            share = weight[n] * outer_shares[j]
            total += share * value
            slope[n] -= share * (du + dl)
            curve[n] -= share * (duu + 2.0 * dul + dll)
            for i in range(min(c + 1, m)):
                inside = (duu + dul) * has_upper
                if i < c:
                    inside += dll + dul
                mixed[n, i] += share * inside * sizes[j, i]
            table[j, c, 0] += share * du
            table[j, c, 1] += share * dl
            table[j, c, 2] += share * duu
            table[j, c, 3] += share * dul
            table[j, c, 4] += share * dll
    add_psi(table, sizes, psi_slope, psi_curve)
    return total
