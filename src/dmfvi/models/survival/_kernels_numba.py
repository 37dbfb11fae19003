"""Compiled sums over risk sets."""

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit


@njit(cache=True, error_model="numpy")
def partial_likelihood(x, eta, weight, event, time, stratum, efron, gradient, curvature):  # type: ignore[no-untyped-def]  # noqa: PLR0912
    """Log partial likelihood of rows sorted by stratum and falling time, with gradient and curvature.

    Ties: Efron's (1977) mean of the risk set with and without the tied events, or Breslow's (1974) whole risk set.
    """
    n, p = x.shape
    value = 0.0
    i = 0
    s0, s1, s2 = 0.0, np.zeros(p), np.zeros((p, p))
    d1, d2 = np.zeros(p), np.zeros((p, p))
    mean = np.zeros(p)
    top = 0.0
    while i < n:
        if i == 0 or stratum[i] != stratum[i - 1]:
            s0 = 0.0
            for a in range(p):
                s1[a] = 0.0
                for b in range(a + 1):
                    s2[a, b] = 0.0
            top = -np.inf
            j = i
            while j < n and stratum[j] == stratum[i]:
                top = max(top, eta[j])
                j += 1
        j, events, heavy, d0 = i, 0, 0.0, 0.0
        for a in range(p):
            d1[a] = 0.0
            for b in range(a + 1):
                d2[a, b] = 0.0
        while j < n and stratum[j] == stratum[i] and time[j] == time[i]:
            risk = weight[j] * math.exp(eta[j] - top)
            happened = event[j] > 0 and weight[j] > 0
            if happened:
                events += 1
                heavy += weight[j]
                value += weight[j] * (eta[j] - top)
                d0 += risk
            s0 += risk
            for a in range(p):
                if happened:
                    gradient[a] += weight[j] * x[j, a]
                    d1[a] += risk * x[j, a]
                s1[a] += risk * x[j, a]
                for b in range(a + 1):
                    term = risk * x[j, a] * x[j, b]
                    s2[a, b] += term
                    if happened:
                        d2[a, b] += term
            j += 1
        for tied in range(events):
            share = tied / events if efron else 0.0
            each = heavy / events
            size = s0 - share * d0
            value -= each * math.log(size)
            for a in range(p):
                mean[a] = (s1[a] - share * d1[a]) / size
                gradient[a] -= each * mean[a]
            for a in range(p):
                for b in range(a + 1):
                    curve = (s2[a, b] - share * d2[a, b]) / size - mean[a] * mean[b]
                    curvature[a, b] += each * curve
        i = j
    for a in range(p):
        for b in range(a):
            curvature[b, a] = curvature[a, b]
    return value


@njit(cache=True, error_model="numpy")
def concordant_pairs(rank, event, time):  # type: ignore[no-untyped-def]
    """Concordant and comparable pairs of rows sorted by falling time, censored rows of a time before its events.

    ``rank`` are positions among the distinct risks; a tree of partial sums counts the ranks of rows whose event came later (Fenwick 1994).
    """
    n = len(rank)
    size = rank.max() + 1
    tree = np.zeros(size + 1, dtype=np.int64)
    concordant, comparable = 0.0, 0.0
    later, i = 0, 0
    while i < n:
        j = i + 1
        while j < n and time[j] == time[i] and event[j] == event[i]:
            j += 1
        if event[i]:
            for k in range(i, j):
                below, up_to = 0, 0
                at = rank[k]
                while at > 0:
                    below += tree[at]
                    at -= at & -at
                at = rank[k] + 1
                while at > 0:
                    up_to += tree[at]
                    at -= at & -at
                concordant += 0.5 * (below + up_to)
                comparable += later
        for k in range(i, j):
            at = rank[k] + 1
            while at <= size:
                tree[at] += 1
                at += at & -at
        later += j - i
        i = j
    return concordant, comparable
