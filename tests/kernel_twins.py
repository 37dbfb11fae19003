"""Compiled kernels once more in NumPy, step by step, for comparison."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, psi

from dmfvi.families.dirichlet import Dirichlet
from dmfvi.linalg import FloatArray
from dmfvi.models.chains.kernels import ChainPosteriors
from dmfvi.models.topics.kernels import MARGIN, Counts, DocumentPosteriors


def chain_posteriors(
    emission: FloatArray, log_start: FloatArray, log_step: FloatArray, starts: NDArray[np.int64]
) -> ChainPosteriors:
    """Forward and backward in logarithms."""
    states, pairs = np.empty_like(emission), np.zeros_like(log_step)
    sums = np.empty(len(starts) - 1)
    for s, (first, end) in enumerate(pairwise(starts)):
        e = emission[first:end]
        alpha, beta = np.empty_like(e), np.zeros_like(e)
        alpha[0] = log_start + e[0]
        for t in range(1, len(e)):
            alpha[t] = e[t] + logsumexp(alpha[t - 1][:, None] + log_step, axis=0)
        for t in range(len(e) - 2, -1, -1):
            beta[t] = logsumexp(log_step + e[t + 1] + beta[t + 1], axis=1)
        sums[s] = logsumexp(alpha[-1])
        states[first:end] = np.exp(alpha + beta - sums[s])
        for t in range(len(e) - 1):
            pairs += np.exp(alpha[t][:, None] + log_step + e[t + 1] + beta[t + 1] - sums[s])
    return ChainPosteriors(states, pairs, sums)


def document_posteriors(
    documents: Counts,
    topics: FloatArray,
    prior: FloatArray,
    gamma: FloatArray | None,
    tolerance: float,
    max_steps: int,
    anew: bool = False,
) -> DocumentPosteriors:
    """q(theta), document by document."""
    n = len(documents.starts) - 1
    found = np.ones((n, topics.shape[1])) if gamma is None else gamma.copy()
    statistics, bounds = np.zeros_like(topics), np.zeros(n)
    for d in range(n):
        part = slice(documents.starts[d], documents.starts[d + 1])
        terms, counts = documents.terms[part], documents.counts[part]
        rows = topics[terms]
        both = anew and gamma is not None
        solved = _solve(rows, counts, prior, found[d], tolerance, 1 if both else max_steps)
        if both:
            fresh = _solve(rows, counts, prior, np.ones_like(prior), tolerance, max_steps)
            if fresh[1] > solved[1] + MARGIN:
                solved = fresh
            else:
                solved = _solve(rows, counts, prior, solved[0], tolerance, max_steps)
        found[d], bounds[d], weight = solved
        share = counts / (rows @ weight + 1e-300)
        np.add.at(statistics, terms, share[:, None] * weight)
    return DocumentPosteriors(found, statistics * topics, bounds)


def _solve(
    rows: FloatArray,
    counts: FloatArray,
    prior: FloatArray,
    gamma: FloatArray,
    tolerance: float,
    max_steps: int,
) -> tuple[FloatArray, float, FloatArray]:
    for step in range(max_steps + 1):
        weight = np.exp(psi(gamma) - psi(gamma.sum()))
        norm = rows @ weight + 1e-300
        updated = prior + weight * ((counts / norm) @ rows)
        change = np.abs(updated - gamma).sum()
        if step == max_steps or (step > 0 and change < tolerance * len(prior)):
            break
        gamma = updated
    divergence = Dirichlet.from_parameters(gamma).kl(Dirichlet.from_parameters(prior))
    return gamma, float(counts @ np.log(norm) - divergence), weight
