"""Compiled marginal likelihoods of groups, by adaptive Gauss-Hermite quadrature."""

from __future__ import annotations

import numpy as np

from dmfvi.jit import njit

#: Newton steps towards a group's mode at most, and the squared length of the last
STEPS, NEAR = 100, 1e-18


@njit(cache=True)
def row_terms(code, y, eta, psi):  # type: ignore[no-untyped-def]
    """Log likelihood of a target, its first and minus its second derivative in eta; 0 gaussian, 1 logit, 2 log."""
    if code == 0:
        tau = np.exp(-psi)
        gap = y - eta
        return -0.5 * (np.log(2.0 * np.pi) + psi + gap * gap * tau), gap * tau, tau
    if code == 1:
        small = np.exp(-abs(eta))
        p = (1.0 if eta >= 0 else small) / (1.0 + small)
        return y * eta - max(eta, 0.0) - np.log1p(small), y - p, p * (1.0 - p)
    rate = np.exp(min(eta, 600.0))
    return y * eta - rate, y - rate, rate


@njit(cache=True)
def group_mode(code, y, base, effects, psi, z, precision):  # type: ignore[no-untyped-def]
    """Mode z of a group's standardised effects and the precision there; eta = base + effects z."""
    n, q = effects.shape
    gradient = np.zeros(q)
    best = -np.inf
    here, step = z.copy(), np.zeros(q)
    slopes, curves = np.zeros(n), np.zeros(n)
    for _ in range(STEPS):
        tried = here + step
        value = -0.5 * np.sum(tried * tried)
        for i in range(n):
            eta = base[i]
            for a in range(q):
                eta += effects[i, a] * tried[a]
            each, slopes[i], curves[i] = row_terms(code, y[i], eta, psi)
            value += each
        if not value >= best - 1e-12 * abs(best) and np.sum(step * step) > NEAR:
            step = 0.5 * step
            continue
        here, best = tried, value
        for a in range(q):
            gradient[a] = -here[a]
            for b in range(q):
                precision[a, b] = 1.0 if a == b else 0.0
        for i in range(n):
            for a in range(q):
                gradient[a] += effects[i, a] * slopes[i]
                for b in range(q):
                    precision[a, b] += curves[i] * effects[i, a] * effects[i, b]
        if q == 1:  # a call of LAPACK costs more than the group
            step[0] = gradient[0] / precision[0, 0]
        else:
            step = np.linalg.solve(precision, gradient)
        if np.sum(step * step) < NEAR:
            break
    z[:] = here


@njit(cache=True)
def _quadrature(code, y, base, effects, psi, points, weights, places, logs):  # type: ignore[no-untyped-def]
    """Points around a group's mode, the logarithms of their shares, and log |det| of the change of variables."""
    n, q = effects.shape
    z, precision = np.zeros(q), np.zeros((q, q))
    group_mode(code, y, base, effects, psi, z, precision)
    root = np.ones((q, q)) / np.sqrt(precision)
    if q > 1:
        root = np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(precision)).T)
    log_root = 0.0
    for a in range(q):
        log_root += np.log(abs(root[a, a]))
    for k in range(len(weights)):
        for a in range(q):
            places[k, a] = z[a]
            for b in range(q):
                places[k, a] += root[a, b] * points[k, b]
        value = np.log(weights[k]) + 0.5 * np.sum(points[k] ** 2) - 0.5 * np.sum(places[k] ** 2)
        for i in range(n):
            eta = base[i]
            for a in range(q):
                eta += effects[i, a] * places[k, a]
            each, _, _ = row_terms(code, y[i], eta, psi)
            value += each
        logs[k] = value
    return log_root


@njit(cache=True)
def group_values(code, x, varying, y, offset, starts, thetas, factors, points, weights, noise):  # type: ignore[no-untyped-def]
    """The marginal log likelihood of all groups at many theta; L of each in ``factors``."""
    p = x.shape[1]
    places = np.zeros(points.shape)
    logs = np.zeros(len(weights))
    values = np.zeros(len(thetas))
    for t in range(len(thetas)):
        inner = x @ np.ascontiguousarray(thetas[t, :p]) + offset
        psi = thetas[t, p] if noise else 0.0
        for g in range(len(starts) - 1):
            lo, hi = starts[g], starts[g + 1]
            effects = varying[lo:hi] @ factors[t]
            log_root = _quadrature(
                code, y[lo:hi], inner[lo:hi], effects, psi, points, weights, places, logs
            )
            top = logs.max()
            values[t] += top + np.log(np.exp(logs - top).sum()) + log_root
    return values


@njit(cache=True)
def groups_rows(  # type: ignore[no-untyped-def]  # noqa: PLR0912
    code,
    x,
    varying,
    y,
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
    """Sum over groups of the marginal log likelihood, its gradient and minus its second derivatives (Louis 1982).

    theta = (coefficients, [log noise variance], entries of the factor L); effects of a group are L z, z ~ N(0, I). ``rows_of`` and ``columns_of`` are the
    entries' places; those on the diagonal are logarithms. ``means`` receives the posterior means of z.
    """
    n_groups, p, q, m = len(starts) - 1, x.shape[1], varying.shape[1], len(rows_of)
    size = len(theta)
    first = size - m
    psi = theta[p] if noise else 0.0
    total = 0.0
    n_points = len(weights)
    inner = x @ theta[:p] + offset
    scores = np.zeros((n_points, size))
    logs, places = np.zeros(n_points), np.zeros((n_points, q))
    row = np.zeros(size)
    for g in range(n_groups):
        lo, hi = starts[g], starts[g + 1]
        effects = varying[lo:hi] @ factor
        log_root = _quadrature(
            code, y[lo:hi], inner[lo:hi], effects, psi, points, weights, places, logs
        )
        top = logs.max()
        shares = np.exp(logs - top)
        whole = shares.sum()
        total += top + np.log(whole) + log_root
        shares /= whole
        scores[:] = 0.0
        for k in range(n_points):
            share = shares[k]
            for a in range(q):
                means[g, a] += share * places[k, a]
            for i in range(lo, hi):
                eta = inner[i]
                for a in range(q):
                    eta += effects[i - lo, a] * places[k, a]
                _, slope, curve = row_terms(code, y[i], eta, psi)
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
                    gap = slope  # (y - eta) / variance
                    square = gap * gap / curve  # (y - eta)^2 / variance
                    scores[k, p] += -0.5 + 0.5 * square
                    curvature[p, p] += share * 0.5 * square
                    for a in range(size):
                        if a < p:
                            curvature[p, a] += share * gap * row[a]
                        elif a > p:
                            curvature[a, p] += share * gap * row[a]
        mean = np.zeros(size)
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
