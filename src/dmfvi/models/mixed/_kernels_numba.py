"""Compiled marginal likelihoods of groups, by adaptive Gauss-Hermite quadrature.

Small sums and systems are written out: NumPy's functions for them take ten times as long to compile.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit
from dmfvi.models.mixed._families_numba import level_of, psi_terms, row_terms, term

#: Newton steps towards a group's mode at most, and the squared length of the last
STEPS, NEAR = 100, 1e-18


@njit(cache=True, fastmath=True, error_model="numpy")
def linear_predictor(x, theta, offset, out):
    """out = x theta + offset; ``theta`` may have more entries than x has columns."""
    for i in range(x.shape[0]):
        total = 0.0
        for a in range(x.shape[1]):
            total += x[i, a] * theta[a]
        out[i] = total + offset[i]


@njit(cache=True, error_model="numpy")
def effects_of(varying, lo, hi, factor, out):
    """The first rows of ``out`` are rows lo..hi-1 of varying times factor."""
    q = factor.shape[0]
    for i in range(lo, hi):
        for a in range(q):
            total = 0.0
            for b in range(q):
                total += varying[i, b] * factor[b, a]
            out[i - lo, a] = total


@njit(cache=True, error_model="numpy")
def longest_group(starts):
    """Rows of the largest group."""
    longest = 0
    for g in range(len(starts) - 1):
        longest = max(longest, starts[g + 1] - starts[g])
    return longest


@njit(cache=True, error_model="numpy")
def _inverse_root(matrix, root, inverse):
    """Cholesky's root of a positive definite matrix and its inverse, both lower triangular."""
    q = matrix.shape[0]
    for a in range(q):
        for b in range(a + 1):
            total = matrix[a, b]
            for c in range(b):
                total -= root[a, c] * root[b, c]
            root[a, b] = math.sqrt(total) if a == b else total / root[b, b]
        inverse[a, a] = 1.0 / root[a, a]
        for b in range(a):
            total = 0.0
            for c in range(b, a):
                total -= root[a, c] * inverse[c, b]
            inverse[a, b] = total / root[a, a]


@njit(cache=True, error_model="numpy")
def _group_mode(code, y, known, inner, lo, hi, effects, level, room):  # noqa: PLR0912
    """Mode z of a group's standardised effects, and the inverse root of the precision there; eta = inner + effects z."""
    q = effects.shape[1]
    z, precision, root, inverse, gradient, tried, step, slopes, curves = room
    best = -np.inf
    length = 0.0
    for a in range(q):
        z[a], step[a] = 0.0, 0.0
    for _ in range(STEPS):
        square = 0.0
        for a in range(q):
            tried[a] = z[a] + step[a]
            square += tried[a] * tried[a]
        value = -0.5 * square
        for i in range(lo, hi):
            eta = inner[i]
            for a in range(q):
                eta += effects[i - lo, a] * tried[a]
            each, slopes[i - lo], curves[i - lo] = row_terms(code, y[i], known[i], eta, level)
            value += each
        if not value >= best - 1e-12 * abs(best) and length > NEAR:
            for a in range(q):
                step[a] *= 0.5
            length *= 0.25
            continue
        best = value
        for a in range(q):
            z[a] = tried[a]
            gradient[a] = -z[a]
            for b in range(a + 1):
                precision[a, b] = 1.0 if a == b else 0.0
        for i in range(hi - lo):
            for a in range(q):
                gradient[a] += effects[i, a] * slopes[i]
                for b in range(a + 1):
                    precision[a, b] += curves[i] * effects[i, a] * effects[i, b]
        _inverse_root(precision, root, inverse)
        length = 0.0
        for a in range(q):  # step = (L^-1)' L^-1 gradient
            total = 0.0
            for b in range(a + 1):
                total += inverse[a, b] * gradient[b]
            tried[a] = total
        for a in range(q):
            total = 0.0
            for b in range(a, q):
                total += inverse[b, a] * tried[b]
            step[a] = total
            length += total * total
        if length < NEAR:
            break


@njit(cache=True, error_model="numpy")
def _room(size, q):
    """What ``_group_mode`` writes to, for groups of up to ``size`` rows."""
    return (
        np.zeros(q),
        np.zeros((q, q)),
        np.zeros((q, q)),
        np.zeros((q, q)),
        np.zeros(q),
        np.zeros(q),
        np.zeros(q),
        np.zeros(size),
        np.zeros(size),
    )


@njit(cache=True, error_model="numpy")
def _quadrature(code, y, known, inner, lo, hi, effects, level, points, weights, room, places, logs):
    """Points around the mode of a group (rows lo..hi-1) in ``places``, and in ``logs`` the logarithms of their shares.

    Returns their largest one, and log |det| of the change of variables.
    """
    q = effects.shape[1]
    _group_mode(code, y, known, inner, lo, hi, effects, level, room)
    z, inverse = room[0], room[3]
    log_root = 0.0
    for a in range(q):
        log_root += math.log(abs(inverse[a, a]))
    top = -np.inf
    for k in range(len(weights)):
        value = 0.0
        for a in range(q):
            place = z[a]
            for b in range(a, q):
                place += inverse[b, a] * points[k, b]
            places[k, a] = place
            value += points[k, a] * points[k, a] - place * place
        value = math.log(weights[k]) + 0.5 * value
        for i in range(lo, hi):
            eta = inner[i]
            for a in range(q):
                eta += effects[i - lo, a] * places[k, a]
            value += term(code, y[i], known[i], eta, level)
        logs[k] = value
        top = max(top, value)
    return top, log_root


@njit(cache=True, error_model="numpy")
def group_values(
    code, x, varying, y, known, offset, starts, thetas, factors, points, weights, noise
):
    """The marginal log likelihood of all groups at many theta, without constants; L of each in ``factors``."""
    p, q = x.shape[1], varying.shape[1]
    places = np.zeros(points.shape)
    logs = np.zeros(len(weights))
    values = np.zeros(len(thetas))
    longest = longest_group(starts)
    inner, effects, room = np.zeros(len(y)), np.zeros((longest, q)), _room(longest, q)
    for t in range(len(thetas)):
        linear_predictor(x, thetas[t], offset, inner)
        level = level_of(code, thetas[t, p] if noise else 0.0)
        for g in range(len(starts) - 1):
            lo, hi = starts[g], starts[g + 1]
            effects_of(varying, lo, hi, factors[t], effects)
            top, log_root = _quadrature(
                code, y, known, inner, lo, hi, effects, level, points, weights, room, places, logs
            )
            whole = 0.0
            for k in range(len(logs)):
                whole += math.exp(logs[k] - top)
            values[t] += top + math.log(whole) + log_root
    return values


@njit(cache=True, error_model="numpy")
def groups_rows(  # noqa: PLR0912, PLR0915
    code,
    x,
    varying,
    y,
    known,
    offset,
    starts,
    theta,
    factor,
    rows_of,
    columns_of,
    points,
    weights,
    noise,
    gradient,
    curvature,
    means,
):
    """Sum over groups of the marginal log likelihood, without constants, its gradient and minus its second derivatives (Louis 1982).

    theta = (coefficients, [psi], entries of the factor L); effects of a group are L z, z ~ N(0, I). ``rows_of`` and ``columns_of`` are the
    entries' places; those on the diagonal are logarithms. ``means`` receives the posterior means of z.
    """
    n_groups, p, q, m = len(starts) - 1, x.shape[1], varying.shape[1], len(rows_of)
    size = len(theta)
    first = size - m
    level = level_of(code, theta[p] if noise else 0.0)
    total = 0.0
    n_points = len(weights)
    inner = np.zeros(len(y))
    linear_predictor(x, theta, offset, inner)
    longest = longest_group(starts)
    effects, room = np.zeros((longest, q)), _room(longest, q)
    scores = np.zeros((n_points, size))
    logs, places = np.zeros(n_points), np.zeros((n_points, q))
    shares, mean, row = np.zeros(n_points), np.zeros(size), np.zeros(size)
    for g in range(n_groups):
        lo, hi = starts[g], starts[g + 1]
        effects_of(varying, lo, hi, factor, effects)
        top, log_root = _quadrature(
            code, y, known, inner, lo, hi, effects, level, points, weights, room, places, logs
        )
        whole = 0.0
        for k in range(n_points):
            shares[k] = math.exp(logs[k] - top)
            whole += shares[k]
        total += top + math.log(whole) + log_root
        for a in range(size):
            mean[a] = 0.0
        for k in range(n_points):
            shares[k] /= whole
            for a in range(size):
                scores[k, a] = 0.0
        for k in range(n_points):
            share = shares[k]
            for a in range(q):
                means[g, a] += share * places[k, a]
            for i in range(lo, hi):
                eta = inner[i]
                for a in range(q):
                    eta += effects[i - lo, a] * places[k, a]
                _, slope, curve = row_terms(code, y[i], known[i], eta, level)
                for a in range(p):
                    row[a] = x[i, a]
                for j in range(m):
                    r, c = rows_of[j], columns_of[j]
                    scale = factor[r, c] if r == c else 1.0
                    row[first + j] = varying[i, r] * scale * places[k, c]
                if noise:
                    row[p] = 0.0
                for a in range(size):
                    scores[k, a] += slope * row[a]
                    for b in range(a + 1):
                        curvature[a, b] += share * curve * row[a] * row[b]
                for j in range(m):
                    if rows_of[j] == columns_of[j]:  # exp has a second derivative
                        curvature[first + j, first + j] -= share * slope * row[first + j]
                if noise:
                    first_psi, mixed, second_psi = psi_terms(code, y[i], known[i], eta, level)
                    scores[k, p] += first_psi
                    curvature[p, p] -= share * second_psi
                    for a in range(size):
                        if a < p:
                            curvature[p, a] -= share * mixed * row[a]
                        elif a > p:
                            curvature[a, p] -= share * mixed * row[a]
        for k in range(n_points):
            for a in range(size):
                mean[a] += shares[k] * scores[k, a]
        for a in range(size):
            gradient[a] += mean[a]
        for k in range(n_points):
            for a in range(size):
                for b in range(a + 1):
                    curvature[a, b] -= (
                        shares[k] * (scores[k, a] - mean[a]) * (scores[k, b] - mean[b])
                    )
    for a in range(size):
        for b in range(a):
            curvature[b, a] = curvature[a, b]
    return total
