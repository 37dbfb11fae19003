"""Compiled sums over one site's rows of groups that other sites have rows of, too."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from dmfvi.jit import njit
from dmfvi.models.mixed._families_numba import level_of, psi_terms, row_terms, term
from dmfvi.models.mixed._kernels_numba import effects_of, linear_predictor, longest_group


@njit(cache=True, error_model="numpy")
def shared_points(  # noqa: PLR0912
    code,
    x,
    varying,
    y,
    known,
    offset,
    starts,
    ids,
    theta,
    factor,
    rows_of,
    columns_of,
    centres,
    roots,
    points,
    noise,
    logs,
    scores,
    curves,
    pulls,
    precisions,
    crosses,
):
    """Log likelihoods of groups without constants (G, K) at z = centre + root point, with scores (G, K, P) and curves (G, K, P, P) in theta.

    At the centres also the gradient in z (G, q), minus its derivatives in z (G, q, q), and those in theta (G, q, P). Lower triangles of ``curves`` only.
    """
    p, q, m, size = x.shape[1], varying.shape[1], len(rows_of), len(theta)
    first = size - m
    level = level_of(code, theta[p] if noise else 0.0)
    inner, effects = np.zeros(len(y)), np.zeros((longest_group(starts), q))
    linear_predictor(x, theta, offset, inner)
    row, z = np.zeros(size), np.zeros(q)
    for s in range(len(starts) - 1):
        g = ids[s]
        effects_of(varying, starts[s], starts[s + 1], factor, effects)
        for k in range(-1, len(points)):  # -1 is the centre
            for a in range(q):
                z[a] = centres[g, a]
                if k >= 0:
                    for b in range(q):
                        z[a] += roots[g, a, b] * points[k, b]
            for i in range(starts[s], starts[s + 1]):
                eta = inner[i]
                for a in range(q):
                    eta += effects[i - starts[s], a] * z[a]
                value, slope, curve = row_terms(code, y[i], known[i], eta, level)
                first_psi, mixed, second_psi = 0.0, 0.0, 0.0
                if noise:
                    first_psi, mixed, second_psi = psi_terms(code, y[i], known[i], eta, level)
                for a in range(p):
                    row[a] = x[i, a]
                for j in range(m):
                    r, c = rows_of[j], columns_of[j]
                    scale = factor[r, c] if r == c else 1.0
                    row[first + j] = varying[i, r] * scale * z[c]
                if noise:
                    row[p] = 0.0
                if k < 0:
                    for a in range(q):
                        effect = effects[i - starts[s], a]
                        pulls[g, a] += slope * effect
                        for b in range(q):
                            precisions[g, a, b] += curve * effect * effects[i - starts[s], b]
                        for b in range(size):
                            crosses[g, a, b] -= curve * effect * row[b]
                        if noise:
                            crosses[g, a, p] += mixed * effect
                    for j in range(m):  # effects are varying times the factor
                        r, c = rows_of[j], columns_of[j]
                        scale = factor[r, c] if r == c else 1.0
                        crosses[g, c, first + j] += slope * varying[i, r] * scale
                    continue
                logs[g, k] += value
                for a in range(size):
                    scores[g, k, a] += slope * row[a]
                    for b in range(a + 1):
                        curves[g, k, a, b] += curve * row[a] * row[b]
                for j in range(m):
                    if rows_of[j] == columns_of[j]:  # exp has a second derivative
                        curves[g, k, first + j, first + j] -= slope * row[first + j]
                if noise:
                    scores[g, k, p] += first_psi
                    curves[g, k, p, p] -= second_psi
                    for a in range(size):
                        if a < p:
                            curves[g, k, p, a] -= mixed * row[a]
                        elif a > p:
                            curves[g, k, a, p] -= mixed * row[a]


@njit(cache=True, error_model="numpy")
def shared_pulls(
    code, x, varying, y, known, offset, starts, ids, thetas, factors, places, noise, wanted, sums
):
    """Log likelihoods at ``places`` (N, G, q) of many theta, their gradients in z and minus second derivatives, in (N, G, 1 + q + q q), where ``wanted``."""
    p, q = x.shape[1], varying.shape[1]
    inner, effects = np.zeros(len(y)), np.zeros((longest_group(starts), q))
    for t in range(len(thetas)):
        some = False
        for g in range(wanted.shape[1]):
            some |= wanted[t, g]
        if not some:
            continue
        linear_predictor(x, thetas[t], offset, inner)
        level = level_of(code, thetas[t, p] if noise else 0.0)
        for s in range(len(starts) - 1):
            g = ids[s]
            if not wanted[t, g]:
                continue
            effects_of(varying, starts[s], starts[s + 1], factors[t], effects)
            for i in range(starts[s + 1] - starts[s]):
                eta = inner[starts[s] + i]
                for a in range(q):
                    eta += effects[i, a] * places[t, g, a]
                value, slope, curve = row_terms(
                    code, y[starts[s] + i], known[starts[s] + i], eta, level
                )
                sums[t, g, 0] += value
                for a in range(q):
                    sums[t, g, 1 + a] += slope * effects[i, a]
                    for b in range(q):
                        sums[t, g, 1 + q + a * q + b] += curve * effects[i, a] * effects[i, b]


@njit(cache=True, error_model="numpy")
def shared_logs(
    code,
    x,
    varying,
    y,
    known,
    offset,
    starts,
    ids,
    thetas,
    factors,
    centres,
    roots,
    points,
    noise,
    logs,
):
    """Log likelihoods (N, G, K) at z = centre + root point of many theta."""
    p, q = x.shape[1], varying.shape[1]
    inner, effects = np.zeros(len(y)), np.zeros((longest_group(starts), q))
    z = np.zeros(q)
    for t in range(len(thetas)):
        linear_predictor(x, thetas[t], offset, inner)
        level = level_of(code, thetas[t, p] if noise else 0.0)
        for s in range(len(starts) - 1):
            g = ids[s]
            effects_of(varying, starts[s], starts[s + 1], factors[t], effects)
            for k in range(len(points)):
                for a in range(q):
                    z[a] = centres[t, g, a]
                    for b in range(q):
                        z[a] += roots[t, g, a, b] * points[k, b]
                for i in range(starts[s + 1] - starts[s]):
                    eta = inner[starts[s] + i]
                    for a in range(q):
                        eta += effects[i, a] * z[a]
                    logs[t, g, k] += term(code, y[starts[s] + i], known[starts[s] + i], eta, level)
