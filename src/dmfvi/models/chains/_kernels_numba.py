"""Numba code of ``chains``; imported only when it is used."""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit

#: a sum of products below this has lost digits to underflow: redo it in logarithms
TINY = 1e-280


@njit(cache=True, error_model="numpy")
def _forward(emission, log_start, log_step, step, first, end, alpha):
    """log p(x_1..t, z_t = j) for one sequence; returns the log sum at its end."""
    k_states = log_start.shape[0]
    weight = np.empty(k_states)
    for j in range(k_states):
        alpha[first, j] = log_start[j] + emission[first, j]
    for t in range(first + 1, end):
        top = alpha[t - 1, 0]
        for i in range(1, k_states):
            top = max(top, alpha[t - 1, i])
        for i in range(k_states):
            weight[i] = math.exp(alpha[t - 1, i] - top)
        for j in range(k_states):
            total = 0.0
            for i in range(k_states):
                total += weight[i] * step[i, j]
            if total > TINY:
                alpha[t, j] = top + math.log(total) + emission[t, j]
            else:
                best = -np.inf
                for i in range(k_states):
                    best = max(best, alpha[t - 1, i] + log_step[i, j])
                total = 0.0
                for i in range(k_states):
                    total += math.exp(alpha[t - 1, i] + log_step[i, j] - best)
                alpha[t, j] = best + math.log(total) + emission[t, j]
    top = alpha[end - 1, 0]
    for i in range(1, k_states):
        top = max(top, alpha[end - 1, i])
    total = 0.0
    for i in range(k_states):
        total += math.exp(alpha[end - 1, i] - top)
    return top + math.log(total)


@njit(cache=True, error_model="numpy")
def _backward(emission, log_step, step, first, end, alpha, log_sum, posterior, pairs):
    """q(z_t = i) and the sum over t of q(z_t = i, z_t+1 = j) for one sequence."""
    k_states = log_step.shape[0]
    beta = np.zeros(k_states)
    weight = np.empty(k_states)
    ahead = np.empty(k_states)
    for i in range(k_states):
        posterior[end - 1, i] = math.exp(alpha[end - 1, i] - log_sum)
    for t in range(end - 2, first - 1, -1):
        top = -np.inf
        for j in range(k_states):
            ahead[j] = emission[t + 1, j] + beta[j]
            top = max(top, ahead[j])
        for j in range(k_states):
            weight[j] = math.exp(ahead[j] - top)
        for i in range(k_states):
            total = 0.0
            for j in range(k_states):
                total += step[i, j] * weight[j]
            if total > TINY:
                beta[i] = top + math.log(total)
                here = math.exp(alpha[t, i] + beta[i] - log_sum)
                posterior[t, i] = here
                share = here / total
                for j in range(k_states):
                    pairs[i, j] += share * step[i, j] * weight[j]
            else:
                best = -np.inf
                for j in range(k_states):
                    best = max(best, log_step[i, j] + ahead[j])
                total = 0.0
                for j in range(k_states):
                    total += math.exp(log_step[i, j] + ahead[j] - best)
                beta[i] = best + math.log(total)
                posterior[t, i] = math.exp(alpha[t, i] + beta[i] - log_sum)
                for j in range(k_states):
                    pairs[i, j] += math.exp(alpha[t, i] + log_step[i, j] + ahead[j] - log_sum)


@njit(cache=True, error_model="numpy")
def _scaled(  # noqa: PLR0912
    emission, log_start, step, first, end, alpha, scale, posterior, pairs
):
    """Both passes with probabilities scaled to sum to one; returns the log sum.

    Not a number where a sum came near underflow: then nothing was added to ``pairs``. ``posterior`` holds
    exp(emission) relative to the largest of its row until it is overwritten.
    """
    k_states = log_start.shape[0]
    log_sum = 0.0
    for t in range(first, end):
        top = emission[t, 0]
        for j in range(1, k_states):
            top = max(top, emission[t, j])
        total = 0.0
        for j in range(k_states):
            here = math.exp(emission[t, j] - top)
            posterior[t, j] = here
            if t == first:
                before = math.exp(log_start[j])
            else:
                before = 0.0
                for i in range(k_states):
                    before += alpha[t - 1, i] * step[i, j]
            alpha[t, j] = before * here
            total += alpha[t, j]
        if not total > TINY:
            return np.nan
        for j in range(k_states):
            alpha[t, j] /= total
        scale[t] = total
        log_sum += math.log(total) + top
    beta = np.ones(k_states)
    ahead = np.empty(k_states)
    found = np.zeros((k_states, k_states))
    for i in range(k_states):
        posterior[end - 1, i], ahead[i] = alpha[end - 1, i], posterior[end - 1, i]
    for t in range(end - 2, first - 1, -1):
        largest = 0.0
        for j in range(k_states):
            ahead[j] *= beta[j] / scale[t + 1]
        for i in range(k_states):
            total = 0.0
            for j in range(k_states):
                part = step[i, j] * ahead[j]
                total += part
                found[i, j] += alpha[t, i] * part
            beta[i] = total
            largest = max(largest, total)
        if not largest < 1.0 / TINY:
            return np.nan
        for i in range(k_states):
            ahead[i] = posterior[t, i]
            posterior[t, i] = alpha[t, i] * beta[i]
    for i in range(k_states):
        for j in range(k_states):
            pairs[i, j] += found[i, j]
    return log_sum


@njit(cache=True, nogil=True, error_model="numpy")
def some_chains(
    first, last, emission, log_start, log_step, step, starts, alpha, scale, posterior, pairs, sums
):
    """Fill posterior (T, K), pairs (chunks, K, K) and sums (sequences,) of chunks first..last-1.

    In logarithms where scaling is not enough.
    """
    n_chunks = pairs.shape[0]
    n = starts.shape[0] - 1
    for c in range(first, last):
        found = pairs[c]
        for s in range(c * n // n_chunks, (c + 1) * n // n_chunks):
            a, b = starts[s], starts[s + 1]
            log_sum = _scaled(emission, log_start, step, a, b, alpha, scale, posterior, found)
            if not math.isfinite(log_sum):
                log_sum = _forward(emission, log_start, log_step, step, a, b, alpha)
                _backward(emission, log_step, step, a, b, alpha, log_sum, posterior, found)
            sums[s] = log_sum


@njit(cache=True, error_model="numpy")
def best_paths(emission, log_start, log_step, starts, path):
    """Viterbi: the most probable states of each sequence."""
    k_states = log_start.shape[0]
    n = emission.shape[0]
    back = np.empty((n, k_states), dtype=np.int32)
    now = np.empty(k_states)
    after = np.empty(k_states)
    for s in range(starts.shape[0] - 1):
        first, end = starts[s], starts[s + 1]
        for j in range(k_states):
            now[j] = log_start[j] + emission[first, j]
        for t in range(first + 1, end):
            for j in range(k_states):
                best, where = -np.inf, 0
                for i in range(k_states):
                    value = now[i] + log_step[i, j]
                    if value > best:
                        best, where = value, i
                after[j] = best + emission[t, j]
                back[t, j] = where
            for j in range(k_states):
                now[j] = after[j]
        state = 0
        for j in range(1, k_states):
            if now[j] > now[state]:
                state = j
        for t in range(end - 1, first - 1, -1):
            path[t] = state
            state = back[t, state]
