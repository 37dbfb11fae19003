"""Numba code of ``ratings``; imported only when it is used.

Small systems are solved ``LANES`` at a time with the lane as the innermost index, so that one
instruction serves all of them. ``lead`` and ``rest`` are tuples whose lengths, in grains of
``GRAIN`` numbers, define how a record is laid out: a tuple's length is known when the code is compiled,
and sums over a known number of terms are twice as fast.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit

LANES = 8
GRAIN = 8
#: a logarithm is taken after so many factors of a determinant: their product does not overflow
LOG_EVERY = 8


@njit(fastmath=True, error_model="numpy", inline="always")
def _add_ratings(records, columns, codes, begin, end, offset, step, one, lead, rest, work):
    """Sums of one row's records in double precision, plain in ``total`` and times the rating in ``scaled_total``.

    The latter from grain len(lead) on. Returns the sum of weight x rating squared; ``one`` is where
    a record holds its weight. Four ratings at a time are added in the precision of the records.
    """
    start = GRAIN * len(lead)
    size = start + GRAIN * len(rest)
    total, scaled_total = work
    for p in range(size):
        total[p] = 0.0
        scaled_total[p] = 0.0
    squares = 0.0
    e = begin
    while e + 4 <= end:  # the running sums are read and written once for four
        a, b = records[columns[e]], records[columns[e + 1]]
        c, d = records[columns[e + 2]], records[columns[e + 3]]
        x = records.dtype.type(offset + step * codes[e])
        y = records.dtype.type(offset + step * codes[e + 1])
        z = records.dtype.type(offset + step * codes[e + 2])
        w = records.dtype.type(offset + step * codes[e + 3])
        for p in range(size):
            total[p] += (a[p] + b[p]) + (c[p] + d[p])
        for p in range(start, size):
            scaled_total[p] += (x * a[p] + y * b[p]) + (z * c[p] + w * d[p])
        squares += (x * x * a[one] + y * y * b[one]) + (z * z * c[one] + w * w * d[one])
        e += 4
    while e < end:
        a = records[columns[e]]
        x = records.dtype.type(offset + step * codes[e])
        for p in range(size):
            total[p] += a[p]
        for p in range(start, size):
            scaled_total[p] += x * a[p]
        squares += x * x * a[one]
        e += 1
    return squares


@njit
def _row_of(indptr, entry):
    """The row that holds an entry: the last one that begins at it or before it."""
    low, high = 0, len(indptr)
    while low < high:
        middle = (low + high) // 2
        if indptr[middle] <= entry:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit
def _workspace(size):
    return np.empty(size), np.empty(size)


@njit
def _systems(width):
    """Work arrays for LANES systems: precision, triangular inverse, covariance, right side, mean, logs."""
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
    """weight x (E ff' packed | E f, 1 | E[s f], E s | E s^2), s the row's bias."""
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


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def sum_ratings(
    first_chunk,
    last_chunk,
    indptr,
    columns,
    codes,
    offset,
    step,
    records,
    n_factors,
    lead,
    rest,
    cuts,
    out,
    carried,
):
    """Both passes: for each row A packed, L and q over its ratings.

    Chunk c sums the ratings cuts[c]..cuts[c+1]; of a row that began in an earlier chunk the sums go
    to ``carried[c]``, so that a long row can be shared out.
    """
    width = n_factors + 1
    first = n_factors * width // 2
    linear = first + width
    work = _workspace(records.shape[1])
    total, scaled = work
    n_rows = len(indptr) - 1
    for c in range(first_chunk, last_chunk):
        begin, end = cuts[c], cuts[c + 1]
        row = _row_of(indptr, begin)
        while row < n_rows and indptr[row] < end:
            low, high = max(begin, indptr[row]), min(end, indptr[row + 1])
            if high > low:
                squares = _add_ratings(
                    records, columns, codes, low, high, offset, step, linear - 1, lead, rest, work
                )
                place = carried[c] if indptr[row] < begin else out[row]
                for p in range(linear):
                    place[p] = total[p]
                for p in range(width):
                    place[linear + p] = scaled[first + p] - total[linear + p]
                place[linear + width] = (
                    squares - 2.0 * scaled[linear + width - 1] + total[linear + width]
                )
            row += 1


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def solve_item_rows(
    first_chunk,
    last_chunk,
    sums,
    prior_mean,
    prior_precision,
    chunks,
    mean,
    covariance,
    log_det,
    single,
    double,
):
    """Item posteriors from their sums: Lambda = P + A, Lambda m = P mu + L; and their records.

    Records go to ``single`` or, if that has no rows, to ``double`` precision: one compilation serves both.
    """
    width = prior_mean.shape[1]
    s = width - 1
    linear = width * (width + 1) // 2
    systems = _systems(width)
    precision, _, cov, right, centre, logs = systems
    for c in range(first_chunk, last_chunk):
        begin, end = chunks[c], chunks[c + 1]
        for start in range(begin, end, LANES):
            for lane in range(LANES):
                row = min(start + lane, end - 1)
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
            for lane in range(min(LANES, end - start)):
                row = start + lane
                log_det[row] = logs[lane]
                at = 0
                for i in range(width):
                    mean[row, i] = centre[i, lane]
                    for j in range(i, width):
                        covariance[row, at] = cov[i, j, lane]
                        at += 1
                if len(single) > 0:
                    _write_record(single[row], 1.0, cov, centre, lane)
                else:
                    _write_record(double[row], 1.0, cov, centre, lane)


@njit(fastmath=True, error_model="numpy")
def _posterior_step(  # noqa: PLR0912
    data, right_data, square, weight, prior_precision, prior, systems, residual
):
    """q(v) of LANES users given their noise weights, and the expected squared error under it."""
    precision, _, cov, right, centre, _ = systems
    width = right.shape[0]
    s = width - 1
    at = 0
    for i in range(s):
        for j in range(i, s):
            for lane in range(LANES):
                precision[j, i, lane] = prior_precision[j, i] + weight[lane] * data[at, lane]
            at += 1
    for i in range(width):
        for lane in range(LANES):
            precision[s, i, lane] = prior_precision[s, i] + weight[lane] * data[at + i, lane]
            right[i, lane] = weight[lane] * right_data[i, lane]
        for j in range(width):
            for lane in range(LANES):
                right[i, lane] += prior_precision[i, j] * prior[j, lane]
    _solve(systems)
    # q - 2 m.L + tr(A E[vv'])
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


@njit(fastmath=True, error_model="numpy")
def _add_moments(prior_precision, prior, systems, live, moments, spread):
    """Adds E vv' of the live lanes to ``moments``; tr P E (v - prior)(v - prior)' to ``spread``."""
    _, _, cov, _, centre, _ = systems
    width = centre.shape[0]
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
                    + (centre[i, lane] - prior[i, lane]) * (centre[j, lane] - prior[j, lane])
                )
            at += 1


@njit(error_model="numpy")
def _gamma_kl(shape, rate, prior_shape, prior_rate):
    return (
        (shape - prior_shape) * _digamma(shape)
        - math.lgamma(shape)
        + math.lgamma(prior_shape)
        + prior_shape * (math.log(rate) - math.log(prior_rate))
        + shape * (prior_rate - rate) / rate
    )


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def solve_user_rows(  # noqa: PLR0912, PLR0915
    first_chunk,
    last_chunk,
    sums,
    counts,
    prior_mean,
    prior_precision,
    prior_log_det,
    noise,
    chunks,
    out,
    totals,
):
    """User posteriors from their sums: q(z, b) and q(g) in turn, and sums over users.

    ``noise`` is (shape, rate, steps); no steps keep every g at shape/rate. ``out`` is (records in single precision,
    in double precision, mean, covariance, noise): records and covariances are written where they have rows.
    ``totals`` of a chunk: E vv' packed, squared error, E g, E log g, bound.
    """
    single, double, mean_out, covariance_out, noise_out = out
    noise_shape, noise_rate, noise_steps = noise
    width = prior_mean.shape[1]
    packed = width * (width + 1) // 2
    data = np.zeros((packed, LANES))
    right_data = np.zeros((width, LANES))
    prior = np.zeros((width, LANES))
    square, n_rated, live = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    weight, rate = np.empty(LANES), np.empty(LANES)
    residual, spread = np.empty(LANES), np.empty(LANES)
    systems = _systems(width)
    cov, centre, logs = systems[2], systems[4], systems[5]
    moments = np.empty((packed, LANES))
    for c in range(first_chunk, last_chunk):
        begin, end = chunks[c], chunks[c + 1]
        part = totals[c]
        for p in range(packed):
            part[p] = 0.0
            for lane in range(LANES):
                moments[p, lane] = 0.0
        for p in range(packed, len(part)):
            part[p] = 0.0
        for start in range(begin, end, LANES):
            for lane in range(LANES):
                user = min(start + lane, end - 1)
                live[lane] = 1.0 if start + lane < end else 0.0
                weight[lane], rate[lane] = noise_shape / noise_rate, noise_rate
                n_rated[lane] = counts[user]
                square[lane] = sums[user, packed + width]
                for p in range(packed):
                    data[p, lane] = sums[user, p]
                for p in range(width):
                    right_data[p, lane] = sums[user, packed + p]
                    prior[p, lane] = prior_mean[user, p]
            for _ in range(max(1, noise_steps)):
                _posterior_step(
                    data, right_data, square, weight, prior_precision, prior, systems, residual
                )
                if noise_steps > 0:
                    for lane in range(LANES):
                        rate[lane] = noise_rate + 0.5 * residual[lane]
                        weight[lane] = (noise_shape + 0.5 * n_rated[lane]) / rate[lane]
            _add_moments(prior_precision, prior, systems, live, moments, spread)
            for lane in range(min(LANES, end - start)):
                user = start + lane
                for i in range(width):
                    mean_out[user, i] = centre[i, lane]
                shape = noise_shape
                log_weight = math.log(noise_shape / noise_rate)
                bound = 0.0
                if noise_steps > 0:
                    shape = noise_shape + 0.5 * n_rated[lane]
                    log_weight = _digamma(shape) - math.log(rate[lane])
                    bound -= _gamma_kl(shape, rate[lane], noise_shape, noise_rate)
                if len(covariance_out) > 0:
                    at = 0
                    for i in range(width):
                        for j in range(i, width):
                            covariance_out[user, at] = cov[i, j, lane]
                            at += 1
                    noise_out[user, 0] = shape
                    noise_out[user, 1] = rate[lane]
                if len(single) > 0:
                    _write_record(single[user], weight[lane], cov, centre, lane)
                if len(double) > 0:
                    _write_record(double[user], weight[lane], cov, centre, lane)
                bound += 0.5 * n_rated[lane] * (log_weight - math.log(2.0 * math.pi))
                bound -= 0.5 * weight[lane] * residual[lane]
                bound -= 0.5 * (spread[lane] - width - prior_log_det + logs[lane])
                part[packed] += residual[lane]
                part[packed + 1] += weight[lane]
                part[packed + 2] += log_weight
                part[packed + 3] += bound
        for p in range(packed):
            for lane in range(LANES):
                part[p] += moments[p, lane]


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def predict_pairs(
    first,
    last,
    users,
    items,
    user_mean,
    user_cov,
    user_noise,
    item_mean,
    item_cov,
    centre,
    variance,
):
    """Mean and variance of a rating, noise included, for each pair of rows first..last-1."""
    width = user_mean.shape[1]
    s = width - 1
    for n in range(first, last):
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
