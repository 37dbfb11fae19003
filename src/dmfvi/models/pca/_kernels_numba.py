"""Numba code of ``latent``; imported only when it is used."""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit


@njit(cache=True, nogil=True, error_model="numpy")
def solve_all(first, last, second, score, tau, mean, covariance, logs):  # noqa: PLR0912
    """Fill mean, covariance and logs of samples first..last-1."""
    m = score.shape[1]
    low, inv = np.empty((m, m)), np.empty((m, m))
    for s in range(first, last):
        at = 0
        for i in range(m):
            for j in range(i, m):
                low[j, i] = tau * second[s, at]
                at += 1
            low[i, i] += 1.0
        total = 0.0
        for j in range(m):  # Cholesky, in place
            d = low[j, j]
            for k in range(j):
                d -= low[j, k] * low[j, k]
            d = math.sqrt(d)
            low[j, j] = d
            total += math.log(d)
            for i in range(j + 1, m):
                v = low[i, j]
                for k in range(j):
                    v -= low[i, k] * low[j, k]
                low[i, j] = v / d
        logs[s] = 2.0 * total
        for j in range(m):  # inverse of the triangle
            inv[j, j] = 1.0 / low[j, j]
            for i in range(j + 1, m):
                v = 0.0
                for k in range(j, i):
                    v -= low[i, k] * inv[k, j]
                inv[i, j] = v / low[i, i]
        for i in range(m):
            mean[s, i] = 0.0
        at = 0
        for i in range(m):  # C = L^-T L^-1
            for j in range(i, m):
                v = 0.0
                for k in range(j, m):
                    v += inv[k, i] * inv[k, j]
                covariance[s, at] = v
                at += 1
                mean[s, i] += tau * v * score[s, j]
                if j > i:
                    mean[s, j] += tau * v * score[s, i]
