"""Numba code of ``ratings``; imported only when it is used.

Small systems are solved ``LANES`` at a time with the lane as the innermost index, so that one
instruction serves all of them. ``lead`` and ``rest`` are tuples whose lengths, in grains of
``GRAIN`` numbers, say how a record is laid out: a tuple's length is known when the code is compiled,
and sums over a known number of terms are twice as fast.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

LANES = 8
GRAIN = 8
#: single-precision sums are added to double-precision ones after so many ratings, a multiple of 4
BLOCK = 32
#: a logarithm is taken after so many factors of a determinant: their product does not overflow
LOG_EVERY = 8


@njit(fastmath=True, error_model="numpy", inline="always")
def _add_ratings(records, columns, codes, begin, end, offset, step, one, lead, rest, work):
    """Sums of one row's records, plain in ``total`` and times the rating in ``scaled_total``.

    The latter from grain len(lead) on. Returns the sum of weight x rating squared; ``one`` is where
    a record holds its weight.
    """
    start = GRAIN * len(lead)
    size = start + GRAIN * len(rest)
    single, scaled, total, scaled_total = work
    for p in range(size):
        total[p] = 0.0
        scaled_total[p] = 0.0
    squares = 0.0
    at = begin
    while at < end:
        stop = min(at + BLOCK, end)
        for p in range(size):
            single[p] = np.float32(0.0)
        for p in range(start, size):
            scaled[p] = np.float32(0.0)
        e = at
        while e + 4 <= stop:  # four at a time: the running sums are read and written once
            a, b = records[columns[e]], records[columns[e + 1]]
            c, d = records[columns[e + 2]], records[columns[e + 3]]
            x = np.float32(offset + step * codes[e])
            y = np.float32(offset + step * codes[e + 1])
            z = np.float32(offset + step * codes[e + 2])
            w = np.float32(offset + step * codes[e + 3])
            for p in range(size):
                single[p] += (a[p] + b[p]) + (c[p] + d[p])
            for p in range(start, size):
                scaled[p] += (x * a[p] + y * b[p]) + (z * c[p] + w * d[p])
            squares += (x * x * a[one] + y * y * b[one]) + (z * z * c[one] + w * w * d[one])
            e += 4
        while e < stop:
            a = records[columns[e]]
            x = np.float32(offset + step * codes[e])
            for p in range(size):
                single[p] += a[p]
            for p in range(start, size):
                scaled[p] += x * a[p]
            squares += x * x * a[one]
            e += 1
        for p in range(size):
            total[p] += single[p]
        for p in range(start, size):
            scaled_total[p] += scaled[p]
        at = stop
    return squares


@njit
def _workspace(size):
    return np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size), np.empty(size)


@njit
def _systems(width):
    """Room for LANES systems: precision, triangular inverse, covariance, right side, mean, logs."""
    shape = (width, width, LANES)
    return (
        np.empty(shape),
        np.empty(shape),
        np.empty(shape),
        np.empty((width, LANES)),
        np.empty((width, LANES)),
        np.empty(LANES),
    )


@njit(fastmath=True, error_model="numpy")
def _solve(systems):  # noqa: PLR0912
    """Covariance, mean and log-determinant of LANES systems; the precision is overwritten."""
    precision, inverse, covariance, right, mean, log_det = systems
    k = right.shape[0]
    product = np.ones(LANES)
    for lane in range(LANES):
        log_det[lane] = 0.0
    for j in range(k):  # Cholesky, lower triangle in place; 1/diagonal goes to inverse
        for i in range(j):
            for lane in range(LANES):
                precision[j, j, lane] -= precision[j, i, lane] * precision[j, i, lane]
        for lane in range(LANES):
            product[lane] *= precision[j, j, lane]
            inverse[j, j, lane] = 1.0 / math.sqrt(precision[j, j, lane])
        if (j + 1) % LOG_EVERY == 0 or j + 1 == k:
            for lane in range(LANES):
                log_det[lane] += math.log(product[lane])
                product[lane] = 1.0
        for m in range(j + 1, k):
            for i in range(j):
                for lane in range(LANES):
                    precision[m, j, lane] -= precision[m, i, lane] * precision[j, i, lane]
            for lane in range(LANES):
                precision[m, j, lane] *= inverse[j, j, lane]
    for j in range(k):  # inverse of the triangle
        for m in range(j + 1, k):
            for lane in range(LANES):
                inverse[m, j, lane] = 0.0
            for i in range(j, m):
                for lane in range(LANES):
                    inverse[m, j, lane] -= precision[m, i, lane] * inverse[i, j, lane]
            for lane in range(LANES):
                inverse[m, j, lane] *= inverse[m, m, lane]
    for i in range(k):
        for j in range(i, k):
            for lane in range(LANES):
                covariance[i, j, lane] = 0.0
            for m in range(j, k):
                for lane in range(LANES):
                    covariance[i, j, lane] += inverse[m, i, lane] * inverse[m, j, lane]
            for lane in range(LANES):
                covariance[j, i, lane] = covariance[i, j, lane]
    for i in range(k):
        for lane in range(LANES):
            mean[i, lane] = 0.0
        for j in range(k):
            for lane in range(LANES):
                mean[i, lane] += covariance[i, j, lane] * right[j, lane]


@njit(error_model="numpy")
def _digamma(x):
    """Recurrence up to 6, then the asymptotic series."""
    value = 0.0
    while x < 6.0:
        value -= 1.0 / x
        x += 1.0
    r = 1.0 / (x * x)
    series = r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r / 132))))
    return value + math.log(x) - 0.5 / x - series


@njit(fastmath=True, error_model="numpy")
def _write_record(record, weight, covariance, mean, lane):
    """weight x (E ff' packed | E f, 1 | E[s f], E s | E s^2), s the row's bias, in single precision."""
    s = mean.shape[0] - 1
    at = 0
    for i in range(s):
        for j in range(i, s):
            record[at] = weight * (covariance[i, j, lane] + mean[i, lane] * mean[j, lane])
            at += 1
    for i in range(s):
        record[at + i] = weight * mean[i, lane]
        record[at + s + 1 + i] = weight * (covariance[i, s, lane] + mean[i, lane] * mean[s, lane])
    record[at + s] = weight
    at += 2 * s + 1
    record[at] = weight * mean[s, lane]
    record[at + 1] = weight * (covariance[s, s, lane] + mean[s, lane] * mean[s, lane])


@njit(parallel=True, cache=True, fastmath=True, error_model="numpy")
def sum_ratings(indptr, columns, codes, offset, step, records, lead, rest, cuts, out, carried):
    """Item pass: packed second moments and linear terms of each row's raters.

    Chunk c sums the ratings cuts[c]..cuts[c+1]; of a row that began in an earlier chunk the sums go
    to ``carried[c]``, so that a long row can be shared out.
    """
    linear = out.shape[1] - _width_of(out.shape[1])
    width = out.shape[1] - linear
    for c in prange(len(cuts) - 1):
        work = _workspace(records.shape[1])
        begin, end = cuts[c], cuts[c + 1]
        carried[c, :] = 0.0
        row = np.searchsorted(indptr, begin, side="right") - 1
        while row < len(indptr) - 1 and indptr[row] < end:
            low, high = max(begin, indptr[row]), min(end, indptr[row + 1])
            if high > low:
                _add_ratings(
                    records, columns, codes, low, high, offset, step, linear - 1, lead, rest, work
                )
                place = carried[c] if indptr[row] < begin else out[row]
                for p in range(linear):
                    place[p] = work[2][p]
                for p in range(width):
                    place[linear + p] = work[3][linear - width + p] - work[2][linear + p]
            row += 1


@njit
def _width_of(size):
    """K from K(K+1)/2 + K."""
    return round((math.sqrt(9.0 + 8.0 * size) - 3.0) / 2.0)


@njit(parallel=True, cache=True, fastmath=True, error_model="numpy")
def solve_rows(sums, prior_mean, prior_precision, mean, covariance, log_det, records):
    """Item posteriors from their sums: Lambda = P + A, Lambda m = P mu + L; and their records."""
    n, width = prior_mean.shape
    s = width - 1
    linear = sums.shape[1] - width
    for group in prange((n + LANES - 1) // LANES):
        systems = _systems(width)
        precision, _, cov, right, centre, logs = systems
        begin = group * LANES
        for lane in range(LANES):
            row = min(begin + lane, n - 1)
            at = 0
            for i in range(s):
                for j in range(i, s):
                    precision[j, i, lane] = prior_precision[j, i] + sums[row, at]
                    at += 1
            for i in range(width):
                precision[s, i, lane] = prior_precision[s, i] + sums[row, at + i]
                value = sums[row, linear + i]
                for j in range(width):
                    value += prior_precision[i, j] * prior_mean[row, j]
                right[i, lane] = value
        _solve(systems)
        for lane in range(min(LANES, n - begin)):
            row = begin + lane
            log_det[row] = logs[lane]
            at = 0
            for i in range(width):
                mean[row, i] = centre[i, lane]
                for j in range(i, width):
                    covariance[row, at] = cov[i, j, lane]
                    at += 1
            _write_record(records[row], 1.0, cov, centre, lane)


@njit(parallel=True, cache=True, fastmath=True, error_model="numpy")
def sweep_users(  # noqa: PLR0912, PLR0915
    indptr,
    columns,
    codes,
    offset,
    step,
    item_records,
    lead,
    rest,
    prior_mean,
    prior_precision,
    prior_log_det,
    noise_shape,
    noise_rate,
    noise_steps,
    chunks,
    records,
    mean_out,
    covariance_out,
    noise_out,
    sums,
):
    """User pass: each user's q(z, b) and q(g), and sums over users.

    ``noise_steps`` = 0 keeps every g at shape/rate. ``records`` and ``covariance_out`` are written where
    they have rows. ``sums`` of a chunk: E vv' packed, squared error, E g, E log g, bound.
    """
    width = prior_mean.shape[1]
    s = width - 1
    first = s * (s + 1) // 2
    linear = first + width
    packed = width * (width + 1) // 2
    log_2pi = math.log(2.0 * math.pi)
    for c in prange(len(chunks) - 1):
        work = _workspace(item_records.shape[1])
        total, scaled = work[2], work[3]
        data = np.zeros((linear, LANES))
        right_data = np.zeros((width, LANES))
        square = np.zeros(LANES)
        prior = np.zeros((width, LANES))
        counts = np.zeros(LANES)
        systems = _systems(width)
        precision, _, cov, right, centre, logs = systems
        weight = np.empty(LANES)
        rate = np.empty(LANES)
        residual = np.empty(LANES)
        spread = np.empty(LANES)
        live = np.zeros(LANES)
        moments = np.zeros((packed, LANES))
        part = sums[c]
        part[:] = 0.0
        for begin in range(chunks[c], chunks[c + 1], LANES):
            count = min(LANES, chunks[c + 1] - begin)
            for lane in range(LANES):
                weight[lane] = noise_shape / noise_rate
                rate[lane] = noise_rate
                live[lane] = 1.0 if lane < count else 0.0
            for lane in range(count):
                user = begin + lane
                low, high = indptr[user], indptr[user + 1]
                squares = _add_ratings(
                    item_records,
                    columns,
                    codes,
                    low,
                    high,
                    offset,
                    step,
                    linear - 1,
                    lead,
                    rest,
                    work,
                )
                counts[lane] = high - low
                for p in range(linear):
                    data[p, lane] = total[p]
                for p in range(width):
                    right_data[p, lane] = scaled[first + p] - total[linear + p]
                    prior[p, lane] = prior_mean[user, p]
                square[lane] = squares - 2.0 * scaled[linear + s] + total[linear + width]
            for _ in range(max(1, noise_steps)):
                at = 0
                for i in range(s):
                    for j in range(i, s):
                        for lane in range(LANES):
                            precision[j, i, lane] = (
                                prior_precision[j, i] + weight[lane] * data[at, lane]
                            )
                        at += 1
                for i in range(width):
                    for lane in range(LANES):
                        precision[s, i, lane] = (
                            prior_precision[s, i] + weight[lane] * data[at + i, lane]
                        )
                        right[i, lane] = weight[lane] * right_data[i, lane]
                    for j in range(width):
                        for lane in range(LANES):
                            right[i, lane] += prior_precision[i, j] * prior[j, lane]
                _solve(systems)
                # E of the squared error: q - 2 m.L + tr(A E[vv'])
                for lane in range(LANES):
                    residual[lane] = square[lane]
                at = 0
                for i in range(s):
                    for j in range(i, s):
                        double = 1.0 if i == j else 2.0
                        for lane in range(LANES):
                            moment = cov[i, j, lane] + centre[i, lane] * centre[j, lane]
                            residual[lane] += double * data[at, lane] * moment
                        at += 1
                for i in range(width):
                    double = 1.0 if i == s else 2.0
                    for lane in range(LANES):
                        moment = cov[i, s, lane] + centre[i, lane] * centre[s, lane]
                        residual[lane] += double * data[at + i, lane] * moment
                        residual[lane] -= 2.0 * centre[i, lane] * right_data[i, lane]
                for lane in range(LANES):
                    residual[lane] = max(residual[lane], 0.0)
                if noise_steps > 0:
                    for lane in range(LANES):
                        rate[lane] = noise_rate + 0.5 * residual[lane]
                        weight[lane] = (noise_shape + 0.5 * counts[lane]) / rate[lane]
            for lane in range(LANES):
                spread[lane] = 0.0
            at = 0
            for i in range(width):
                for j in range(i, width):
                    double = prior_precision[i, j] * (1.0 if i == j else 2.0)
                    for lane in range(LANES):
                        moments[at, lane] += live[lane] * (
                            cov[i, j, lane] + centre[i, lane] * centre[j, lane]
                        )
                        spread[lane] += double * (
                            cov[i, j, lane]
                            + (centre[i, lane] - prior[i, lane])
                            * (centre[j, lane] - prior[j, lane])
                        )
                    at += 1
            for lane in range(count):
                user = begin + lane
                for i in range(width):
                    mean_out[user, i] = centre[i, lane]
                shape = noise_shape
                log_weight = math.log(noise_shape / noise_rate)
                if noise_steps > 0:
                    shape = noise_shape + 0.5 * counts[lane]
                    log_weight = _digamma(shape) - math.log(rate[lane])
                if len(covariance_out) > 0:
                    at = 0
                    for i in range(width):
                        for j in range(i, width):
                            covariance_out[user, at] = cov[i, j, lane]
                            at += 1
                    noise_out[user, 0] = shape
                    noise_out[user, 1] = rate[lane]
                if len(records) > 0:
                    _write_record(records[user], weight[lane], cov, centre, lane)
                bound = 0.5 * counts[lane] * (log_weight - log_2pi)
                bound -= 0.5 * weight[lane] * residual[lane]
                bound -= 0.5 * (spread[lane] - width - prior_log_det + logs[lane])
                if noise_steps > 0:  # - KL of two Gammas
                    bound -= (
                        (shape - noise_shape) * _digamma(shape)
                        - math.lgamma(shape)
                        + math.lgamma(noise_shape)
                        + noise_shape * (math.log(rate[lane]) - math.log(noise_rate))
                        + shape * (noise_rate - rate[lane]) / rate[lane]
                    )
                part[packed] += residual[lane]
                part[packed + 1] += weight[lane]
                part[packed + 2] += log_weight
                part[packed + 3] += bound
        for p in range(packed):
            for lane in range(LANES):
                part[p] += moments[p, lane]


@njit(parallel=True, cache=True, fastmath=True, error_model="numpy")
def predict_pairs(
    users, items, user_mean, user_cov, user_noise, item_mean, item_cov, centre, variance
):
    """Mean and variance of a rating, noise included, for each pair of rows."""
    width = user_mean.shape[1]
    s = width - 1
    for n in prange(len(users)):
        z, w = user_mean[users[n]], item_mean[items[n]]
        cz, cw = user_cov[users[n]], item_cov[items[n]]
        mean = z[s] + w[s]
        spread = user_noise[users[n]]
        at = 0
        for i in range(s):
            mean += z[i] * w[i]
            for j in range(i, s):
                double = 1.0 if i == j else 2.0
                spread += double * (
                    cz[at] * (w[i] * w[j] + cw[at]) + cw[at] * np.float64(z[i]) * z[j]
                )
                at += 1
            spread += 2.0 * (cz[at] * w[i] + cw[at] * z[i])
            at += 1
        centre[n] = mean
        variance[n] = spread + cz[at] + cw[at]
