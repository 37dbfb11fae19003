"""Numba code of ``documents``; imported only when it is used.

A document's words lie topic by topic, (K, n), so that all inner loops run along words and vectorise, and q(theta)
is kept as exp psi(gamma): its normaliser exp psi(sum gamma) cancels everywhere but in the bound.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit

#: a topic that explains less than this part of the tolerance (in words) is left out until the others have settled
NEGLIGIBLE = 1e-5
#: topics are left out once no more than this part of them is in use
WORTH_LEAVING_OUT = 0.75
#: keeps the probability of a word that no topic knows above zero
FLOOR = 1e-300
#: topics that the inner loops take at once
UNROLLED = 4

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: adding it leaves the nearest whole number in the last bits of the sum
ROUNDING = 6755399441055744.0
EXPONENT_BITS, EXPONENT_ZERO = 52, 1023
#: exp of less is taken for exp of this, about 1e-304
LOWEST = -700.0


@njit(cache=True, inline="always", error_model="numpy")
def log_ratio(x):
    """psi(x) - log(x + 8), x > 0: eight steps of the recurrence, then the asymptotic series; error below 1e-14."""
    u = x * (x + 7.0)  # x (x+7), (x+1)(x+6), (x+2)(x+5), (x+3)(x+4) are u, u + 6, u + 10, u + 12
    low, high = u * (u + 6.0), (u + 10.0) * (u + 12.0)
    harmonic = (2.0 * x + 7.0) * ((2.0 * u + 6.0) * high + low * (2.0 * u + 22.0)) / (low * high)
    r = 1.0 / (x + 8.0)
    s = r * r
    series = s * (
        1.0 / 12.0
        - s
        * (
            1.0 / 120.0
            - s
            * (
                1.0 / 252.0
                - s * (1.0 / 240.0 - s * (1.0 / 132.0 - s * (691.0 / 32760.0 - s / 12.0)))
            )
        )
    )
    return -harmonic - 0.5 * r - series


@njit(
    cache=True, fastmath=False, error_model="numpy"
)  # said, since callers' flags are inherited and would undo the rounding
def exp_digamma(x, out, bits):
    """exp psi(x) of a vector into ``out``; ``bits`` (int64) is scratch. No calls inside, so that it vectorises."""
    shifted = bits.view(np.float64)
    for k in range(x.shape[0]):
        y = log_ratio(x[k])
        y = y if y > LOWEST else LOWEST
        t = y * LOG2_E + ROUNDING
        shifted[k] = t
        whole = t - ROUNDING
        f = (y - whole * LN2_HIGH) - whole * LN2_LOW  # |f| <= ln 2 / 2: Taylor to f^13
        p = 1.0 / 479001600.0 + f * (1.0 / 6227020800.0)
        p = 1.0 / 39916800.0 + f * p
        p = 1.0 / 3628800.0 + f * p
        p = 1.0 / 362880.0 + f * p
        p = 1.0 / 40320.0 + f * p
        p = 1.0 / 5040.0 + f * p
        p = 1.0 / 720.0 + f * p
        p = 1.0 / 120.0 + f * p
        p = 1.0 / 24.0 + f * p
        p = 1.0 / 6.0 + f * p
        p = 0.5 + f * p
        out[k] = (x[k] + 8.0) * (1.0 + f * (1.0 + f * p))
    for k in range(x.shape[0]):
        bits[k] = (bits[k] << EXPONENT_BITS) + (EXPONENT_ZERO << EXPONENT_BITS)
    for k in range(x.shape[0]):
        out[k] *= shifted[k]


@njit(cache=True, fastmath=True, error_model="numpy")
def _word_norms(rows, weight, width, n, norm):
    """norm_w = sum_k weight_k rows_kw; ``width`` is a multiple of UNROLLED, rows beyond the topics are zero."""
    for w in range(n):
        norm[w] = FLOOR
    for k in range(0, width, UNROLLED):
        a, b, c, d = weight[k], weight[k + 1], weight[k + 2], weight[k + 3]
        row_a, row_b, row_c, row_d = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        for w in range(n):
            norm[w] += a * row_a[w] + b * row_b[w] + c * row_c[w] + d * row_d[w]


@njit(cache=True, fastmath=True, error_model="numpy")
def _topic_shares(rows, share, width, n, heap):
    """heap_k = sum_w share_w rows_kw."""
    for k in range(0, width, UNROLLED):
        row_a, row_b, row_c, row_d = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        a = b = c = d = 0.0
        for w in range(n):
            s = share[w]
            a += s * row_a[w]
            b += s * row_b[w]
            c += s * row_c[w]
            d += s * row_d[w]
        heap[k], heap[k + 1], heap[k + 2], heap[k + 3] = a, b, c, d


@njit(cache=True, inline="always", error_model="numpy")
def _padded(width):
    return (width + UNROLLED - 1) // UNROLLED * UNROLLED


@njit(cache=True, error_model="numpy")
def _bound(counts, norm, n, prior, gamma):
    """sum_w c_w log sum_k exp(E[log theta_k] + E[log beta_kw]) - KL(q(theta) || p(theta))."""
    bound = 0.0
    words = 0.0
    for w in range(n):
        bound += counts[w] * math.log(norm[w])
        words += counts[w]
    total = 0.0
    prior_total = 0.0
    moved = 0.0
    for k in range(gamma.shape[0]):
        total += gamma[k]
        prior_total += prior[k]
        more = gamma[k] - prior[k]
        moved += more
        if abs(more) > 1e-8 * prior[k]:  # else its terms cancel to less than rounding
            bound += math.lgamma(gamma[k]) - math.lgamma(prior[k])
            bound -= more * (log_ratio(gamma[k]) + math.log(gamma[k] + 8.0))
    base = log_ratio(total) + math.log(total + 8.0)
    return bound + math.lgamma(prior_total) - math.lgamma(total) + (moved - words) * base


@njit(cache=True, error_model="numpy")
def _step(rows, counts, n, prior, gamma, weight, width, work):
    """What one step makes of ``gamma`` (``width`` topics), left in the heap of ``work``; returns by how much it moved."""
    heap, norm, share, bits = work
    exp_digamma(gamma[:width], weight[:width], bits)
    _word_norms(rows, weight, _padded(width), n, norm)
    for w in range(n):
        share[w] = counts[w] / norm[w]
    _topic_shares(rows, share, _padded(width), n, heap)
    change = 0.0
    for k in range(width):
        heap[k] = prior[k] + weight[k] * heap[k]
        change += abs(heap[k] - gamma[k])
    return change


@njit(cache=True, error_model="numpy")
def _leave_out(rows, n, prior, gamma, negligible, width, few):
    """Copy the topics that explain words to ``few`` if they are clearly fewer than ``width``; returns how many are left."""
    few_rows, few_prior, few_gamma, few_weight, index = few
    used = 0
    for k in range(gamma.shape[0]):
        used += gamma[k] - prior[k] > negligible
    if used > WORTH_LEAVING_OUT * width:
        return width
    i = 0
    for k in range(gamma.shape[0]):
        if gamma[k] - prior[k] > negligible:
            index[i], few_prior[i], few_gamma[i] = k, prior[k], gamma[k]
            for w in range(n):
                few_rows[i, w] = rows[k, w]
            i += 1
    for i in range(used, _padded(used)):
        few_weight[i] = 0.0
        for w in range(n):
            few_rows[i, w] = 0.0
    return used


@njit(cache=True, error_model="numpy")
def _one_document(rows, counts, n, prior, gamma, tolerance, max_steps, weight, work, few):
    """Alternate q(theta) and q(z) of one document: ``gamma`` in place, weight and norm for it; returns its bound.

    rows[:, :n] holds exp E[log beta] of its words. Topics that explain nothing are left out of the steps between;
    a document has converged only if a step with all topics meets the tolerance.
    """
    few_rows, few_prior, few_gamma, few_weight, index = few
    heap, norm = work[0], work[1]
    k_topics = gamma.shape[0]
    width = k_topics
    for step in range(max_steps + 1):
        if width == k_topics:
            change = _step(rows, counts, n, prior, gamma, weight, width, work)
            if step == max_steps or (step > 0 and change < tolerance * k_topics):
                break
            for k in range(k_topics):
                gamma[k] = heap[k]
        else:
            change = _step(few_rows, counts, n, few_prior, few_gamma, few_weight, width, work)
            for i in range(width):
                few_gamma[i] = heap[i]
                gamma[index[i]] = heap[i]
            if change < tolerance * k_topics:
                width = k_topics
                continue
        if step + 2 >= max_steps:  # the last steps are with all topics
            width = k_topics
        else:
            width = _leave_out(rows, n, prior, gamma, NEGLIGIBLE * tolerance, width, few)
    return _bound(counts, norm, n, prior, gamma)


@njit(cache=True, error_model="numpy")
def _gather(topics, terms, n, rows):
    """rows[k, w] = topics[terms[w], k], eight words at a time: a line of the cache."""
    k_topics = topics.shape[1]
    whole = n - n % 8
    for w in range(0, whole, 8):
        a, b, c, d = (
            topics[terms[w]],
            topics[terms[w + 1]],
            topics[terms[w + 2]],
            topics[terms[w + 3]],
        )
        e, f, g, h = (
            topics[terms[w + 4]],
            topics[terms[w + 5]],
            topics[terms[w + 6]],
            topics[terms[w + 7]],
        )
        for k in range(k_topics):
            rows[k, w] = a[k]
            rows[k, w + 1] = b[k]
            rows[k, w + 2] = c[k]
            rows[k, w + 3] = d[k]
            rows[k, w + 4] = e[k]
            rows[k, w + 5] = f[k]
            rows[k, w + 6] = g[k]
            rows[k, w + 7] = h[k]
    for w in range(whole, n):
        for k in range(k_topics):
            rows[k, w] = topics[terms[w], k]


@njit(cache=True, nogil=True, error_model="numpy")
def some_documents(  # noqa: PLR0912
    first,
    last,
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
    """q(theta) of the documents of chunks first..last-1; ``statistics`` (chunks, V, K) collects c_w q(z = k) / topics.

    With ``anew`` each document is also solved from gamma = 1, and the better solution is kept.
    """
    k_topics = topics.shape[1]
    n_documents = starts.shape[0] - 1
    n_chunks = statistics.shape[0]
    begin, end = first * n_documents // n_chunks, last * n_documents // n_chunks
    longest = 0
    for d in range(begin, end):
        longest = max(longest, starts[d + 1] - starts[d])
    full = _padded(k_topics)
    rows = np.zeros((full, longest))
    weight, norm = np.zeros(full), np.empty(longest)
    index = np.empty(full, np.int64)
    work = (np.empty(full), norm, np.empty(longest), np.empty(full, np.int64))
    few = (np.zeros((full, longest)), np.empty(full), np.empty(full), np.zeros(full), index)
    fresh = np.empty(k_topics)
    chunk = first
    for d in range(begin, end):
        while d >= (chunk + 1) * n_documents // n_chunks:
            chunk += 1
        a = starts[d]
        n = starts[d + 1] - a
        words = counts[a : a + n]
        _gather(topics, terms[a : a + n], n, rows)
        # with anew, one step is enough to compare with the solution from gamma = 1; the better one is solved to the end
        known = 0.0
        for stage in range(0 if anew else 2, 3):
            if stage == 1:
                for k in range(k_topics):
                    fresh[k] = 1.0
            place = fresh if stage == 1 else gamma[d]
            steps = 1 if stage == 0 else max_steps
            bounds[d] = _one_document(
                rows, words, n, prior, place, tolerance, steps, weight, work, few
            )
            if stage == 0:
                known = bounds[d]
            if stage == 1 and bounds[d] > known + margin:
                for k in range(k_topics):
                    gamma[d, k] = fresh[k]
                break
        used = 0
        for k in range(k_topics):
            if gamma[d, k] > prior[k]:  # else it has no words, to rounding
                index[used] = k
                used += 1
        for w in range(n):
            share = words[w] / norm[w]
            term = terms[a + w]
            for i in range(used):
                statistics[chunk, term, index[i]] += share * weight[index[i]]
