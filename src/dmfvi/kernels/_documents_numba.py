"""Numba code of ``documents``; imported only when it is used."""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange


@njit(cache=True, inline="always")
def digamma(x):
    """psi(x), x > 0: recurrence to x >= 6, then the asymptotic series."""
    shift = 0.0
    while x < 6.0:
        shift -= 1.0 / x
        x += 1.0
    r = 1.0 / x
    s = r * r
    series = s * (
        1.0 / 12.0
        - s
        * (
            1.0 / 120.0
            - s * (1.0 / 252.0 - s * (1.0 / 240.0 - s * (1.0 / 132.0 - s * 691.0 / 32760.0)))
        )
    )
    return shift + np.log(x) - 0.5 * r - series


@njit(cache=True, fastmath=True)
def _one_document(  # noqa: PLR0912
    rows, counts, n, prior, gamma, tolerance, max_steps, weight, heap
):
    """Alternate q(theta) and q(z) of one document, in place; returns its part of the bound.

    rows[:n] holds exp E[log beta] of its words; ``weight`` ends as exp E[log theta], ``heap`` is scratch.
    """
    k_topics = gamma.shape[0]
    for step in range(max_steps + 1):
        total = 0.0
        for k in range(k_topics):
            total += gamma[k]
        base = digamma(total)
        for k in range(k_topics):
            weight[k] = np.exp(digamma(gamma[k]) - base)
            heap[k] = 0.0
        for w in range(n):
            norm = 1e-300
            for k in range(k_topics):
                norm += rows[w, k] * weight[k]
            share = counts[w] / norm
            for k in range(k_topics):
                heap[k] += share * rows[w, k]
        change = 0.0
        for k in range(k_topics):
            heap[k] = prior[k] + weight[k] * heap[k]
            change += abs(heap[k] - gamma[k])
        if step == max_steps or (step > 0 and change < tolerance * k_topics):
            break
        for k in range(k_topics):
            gamma[k] = heap[k]
    bound = 0.0
    for w in range(n):
        norm = 1e-300
        for k in range(k_topics):
            norm += rows[w, k] * weight[k]
        bound += counts[w] * np.log(norm)
    total = 0.0
    prior_total = 0.0
    base = 0.0
    for k in range(k_topics):
        total += gamma[k]
        prior_total += prior[k]
    base = digamma(total)
    bound += math.lgamma(prior_total) - math.lgamma(total)
    for k in range(k_topics):
        bound += math.lgamma(gamma[k]) - math.lgamma(prior[k])
        bound -= (gamma[k] - prior[k]) * (digamma(gamma[k]) - base)
    return bound


@njit(cache=True, fastmath=True)
def some_documents(
    starts,
    terms,
    counts,
    topics,
    prior,
    gamma,
    anew,
    margin,
    tolerance,
    max_steps,
    first,
    end,
    statistics,
    bounds,
):
    """q(theta) of documents first..end-1; ``statistics`` (V, K) collects c_w q(z = k) / topics.

    With ``anew`` each document is also solved from gamma = 1, and the better solution is kept.
    """
    k_topics = topics.shape[1]
    longest = 0
    for d in range(first, end):
        longest = max(longest, starts[d + 1] - starts[d])
    rows = np.empty((longest, k_topics))
    weight = np.empty(k_topics)
    other_weight = np.empty(k_topics)
    heap = np.empty(k_topics)
    fresh = np.empty(k_topics)
    for d in range(first, end):
        a = starts[d]
        n = starts[d + 1] - a
        words = counts[a : a + n]
        for w in range(n):
            term = terms[a + w]
            for k in range(k_topics):
                rows[w, k] = topics[term, k]
        # one step is enough to compare with the solution from gamma = 1; the better one is solved to the end
        steps = 1 if anew else max_steps
        bounds[d] = _one_document(rows, words, n, prior, gamma[d], tolerance, steps, weight, heap)
        if anew:
            fresh[:] = 1.0
            found = _one_document(
                rows, words, n, prior, fresh, tolerance, max_steps, other_weight, heap
            )
            if found > bounds[d] + margin:
                bounds[d] = found
                gamma[d] = fresh
                weight[:] = other_weight
            else:
                bounds[d] = _one_document(
                    rows, words, n, prior, gamma[d], tolerance, max_steps, weight, heap
                )
        for w in range(n):
            norm = 1e-300
            for k in range(k_topics):
                norm += rows[w, k] * weight[k]
            share = words[w] / norm
            term = terms[a + w]
            for k in range(k_topics):
                statistics[term, k] += share * weight[k]


@njit(parallel=True, cache=True)
def all_documents(
    starts,
    terms,
    counts,
    topics,
    prior,
    gamma,
    anew,
    margin,
    tolerance,
    max_steps,
    statistics,
    bounds,
):
    """All documents, chunks of them in parallel; ``statistics`` is (chunks, V, K)."""
    n_chunks = statistics.shape[0]
    n = starts.shape[0] - 1
    for c in prange(n_chunks):
        some_documents(
            starts,
            terms,
            counts,
            topics,
            prior,
            gamma,
            anew,
            margin,
            tolerance,
            max_steps,
            c * n // n_chunks,
            (c + 1) * n // n_chunks,
            statistics[c],
            bounds,
        )
