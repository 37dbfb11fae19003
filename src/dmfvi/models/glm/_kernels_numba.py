"""Numba code of ``kernels``; imported only when it is used.

A *curve* is minus the expected second derivative of a log likelihood, a *slope* the expected first one.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit

LOGIT, PROBIT, LOG_POISSON = 0, 1, 2
GAUSSIAN, STUDENT, NEGATIVE_BINOMIAL, GAMMA = 0, 1, 2, 3
#: exponents are cut here, so that a step that leads far out gives a low bound instead of an overflow
LARGEST_EXPONENT = 300.0
#: below this variance second derivatives are averaged; above it first ones, which is the exact gradient of the
#: quadrature's own bound (and loses digits where the variance is small)
PRICE_BELOW = 0.05
#: squared accuracy of a target in units of all targets' deviation: a fit without any residual has a finite dispersion
RESOLUTION = 1e-11
#: arguments from which Stirling's series is exact to rounding
STIRLING_FROM = 20.0
LOG_ROOT_2PI = 0.5 * math.log(2.0 * math.pi)


@njit(cache=True, error_model="numpy")
def log_sigmoid(x):
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


@njit(cache=True, error_model="numpy")
def sigmoid(x):
    small = math.exp(-abs(x))
    return 1.0 / (1.0 + small) if x >= 0 else small / (1.0 + small)


@njit(cache=True, error_model="numpy")
def mills(x):
    """phi(x) / Phi(x), by a continued fraction far to the left."""
    if x > -5.0:
        return math.exp(-0.5 * x * x - LOG_ROOT_2PI) / (0.5 * math.erfc(-x * math.sqrt(0.5)))
    fraction = -x
    for k in range(40, 0, -1):
        fraction = -x + k / fraction
    return fraction


@njit(cache=True, error_model="numpy")
def log_normal_cdf(x):
    if x > -5.0:
        return math.log(0.5 * math.erfc(-x * math.sqrt(0.5)))
    return -0.5 * x * x - LOG_ROOT_2PI - math.log(mills(x))


@njit(cache=True, error_model="numpy")
def one_parameter(code, eta, y, trials):
    """Log likelihood of one linear predictor without constants, and its first two derivatives."""
    if code == LOGIT:
        small = math.exp(-abs(eta))
        chance = 1.0 / (1.0 + small)
        curve = trials * small * chance * chance
        if eta < 0:
            chance = small * chance
        value = y * eta - trials * (max(eta, 0.0) + math.log1p(small))
        return value, y - trials * chance, -curve
    if code == PROBIT:
        value, first, second = 0.0, 0.0, 0.0
        if y > 0:
            ratio = mills(eta)
            value += y * log_normal_cdf(eta)
            first += y * ratio
            second -= y * ratio * (eta + ratio)
        if trials > y:
            ratio = mills(-eta)
            value += (trials - y) * log_normal_cdf(-eta)
            first -= (trials - y) * ratio
            second -= (trials - y) * ratio * (ratio - eta)
        return value, first, second
    mean = math.exp(min(eta, LARGEST_EXPONENT))
    return y * eta - mean, y - mean, -mean


@njit(cache=True, error_model="numpy")
def standard_rows(rows, shift, scale, design):
    """(rows - shift) / scale; a column more of the design is one."""
    size = rows.shape[1]
    for n in range(len(rows)):
        for j in range(size):
            design[n, j] = (rows[n, j] - shift[j]) / scale[j]
        for j in range(size, design.shape[1]):
            design[n, j] = 1.0


@njit(cache=True, error_model="numpy")
def scaled_rows(design, slope, curve, inner, scaled, linear):
    """scaled_n = sqrt(curve_n) x_n, linear += sum_n (slope_n + curve_n inner_n) x_n; false if a curve is negative."""
    size = design.shape[1]
    positive = True
    for n in range(len(design)):
        positive &= curve[n] >= 0.0
        root, pull = math.sqrt(abs(curve[n])), slope[n] + curve[n] * inner[n]
        for j in range(size):
            scaled[n, j] = root * design[n, j]
            linear[j] += pull * design[n, j]
    return positive


@njit(cache=True, error_model="numpy")
def rule_of(variance, limits):
    """Which quadrature rule a variance needs."""
    rule = 0
    while rule < len(limits) and variance > limits[rule]:
        rule += 1
    return rule


@njit(cache=True, error_model="numpy")
def one_parameter_rows(
    code, mean, variance, y, trials, weight, nodes, shares, starts, limits, slope, curve
):
    """Expected slopes and curves of every row under eta ~ N(mean, variance); returns the sum of expected values."""
    total = 0.0
    for n in range(len(mean)):
        v = variance[n]
        if code == LOG_POISSON:  # closed form: E[exp(eta)] = exp(mean + v/2)
            rate = math.exp(min(mean[n] + 0.5 * v, LARGEST_EXPONENT))
            total += weight[n] * (y[n] * mean[n] - rate)
            slope[n] = weight[n] * (y[n] - rate)
            curve[n] = weight[n] * rate
            continue
        if v == 0.0:
            value, first, second = one_parameter(code, mean[n], y[n], trials[n])
            total += weight[n] * value
            slope[n] = weight[n] * first
            curve[n] = -weight[n] * second
            continue
        rule = rule_of(v, limits)
        deviation = math.sqrt(v)
        sum_value, sum_first, sum_second = 0.0, 0.0, 0.0
        by_slopes = v > PRICE_BELOW
        for k in range(starts[rule], starts[rule + 1]):
            value, first, second = one_parameter(
                code, mean[n] + deviation * nodes[k], y[n], trials[n]
            )
            share = shares[k]
            sum_value += share * value
            sum_first += share * first
            if by_slopes:
                sum_second += share * first * nodes[k]
            else:
                sum_second += share * second
        if by_slopes:
            sum_second /= deviation
        total += weight[n] * sum_value
        slope[n] = weight[n] * sum_first
        curve[n] = -weight[n] * sum_second
    return total


# -- likelihoods with parameters that all rows share: dispersions, cut points -------------------


@njit(cache=True, error_model="numpy")
def log_minus_digamma(x):
    """log x - psi(x), and 1/x - psi'(x); without cancellation for large x."""
    first, second, at = 0.0, 0.0, x
    while at < STIRLING_FROM:
        first += 1.0 / at
        second -= 1.0 / (at * at)
        at += 1.0
    inverse = 1.0 / at
    square = inverse * inverse
    series = 0.5 * inverse + square * (1 / 12 - square * (1 / 120 - square / 252))
    slope = -square * (0.5 + inverse * (1 / 6 - square * (1 / 30 - square / 42)))
    if at == x:
        return series, slope
    return first + math.log(x) - math.log(at) + series, second + 1.0 / x - inverse + slope


@njit(cache=True, error_model="numpy")
def gamma_constant(k):
    """k log k - k - log Gamma(k)."""
    if k < STIRLING_FROM:
        return k * math.log(k) - k - math.lgamma(k)
    inverse = 1.0 / k
    square = inverse * inverse
    return (
        0.5 * math.log(k) - LOG_ROOT_2PI - inverse * (1 / 12 - square * (1 / 360 - square / 1260))
    )


@njit(cache=True, error_model="numpy")
def gamma_loss(z):
    """z - (e^z - 1), which is -z^2 / 2 where z is small, and e^z - 1; with little noise they are multiplied by 1e11."""
    less = math.expm1(z)
    if abs(z) > 0.01:
        return z - less, less
    return -z * z * (0.5 + z * (1 / 6 + z * (1 / 24 + z * (1 / 120 + z / 720)))), less


@njit(cache=True, error_model="numpy")
def count_terms(y, alpha):
    """sum_{j < y} log(1 + j alpha), and its two derivatives with respect to log alpha; of small counts."""
    value, first, second = 0.0, 0.0, 0.0
    j = 1.0
    while j < y:
        s = j * alpha
        value += math.log1p(s)
        first += s / (1.0 + s)
        second += s / ((1.0 + s) * (1.0 + s))
        j += 1.0
    return value, first, second


@njit(cache=True, error_model="numpy")
def large_count(y, eta, mean, alpha):
    """Log probability of a count without log(y^y e^-y / y!), and its two derivatives with respect to log alpha.

    Relative to a mean of y (Loader 2000, Fast and accurate computation of binomial probabilities): with r = 1 / alpha, v = (mean + r) / (y + r)

        c(r) - c(y + r) + y (eta - log y) - (y + r) log v,   c(k) = k log k - k - log Gamma(k):  nothing of the size of y log y cancels
    """
    r = 1.0 / alpha
    both, gap = y + r, eta - math.log(y)
    if y <= r:
        log_v = math.log1p(y / both * math.expm1(gap))
        value = y * gap - both * log_v
    else:
        rest = math.log1p(r / both * math.expm1(-gap))
        log_v = gap + rest
        value = -r * gap - both * rest
    slope_r, bend_r = log_minus_digamma(r)
    slope_both, bend_both = log_minus_digamma(both)
    part, share = (mean - y) / (mean + r), r / both
    away, constant = r * (log_v - part), r * (slope_r - slope_both)
    bend = constant + r * r * (bend_r - bend_both) + r * share * part * part - away
    return value + gamma_constant(r) - gamma_constant(both), away - constant, bend


@njit(cache=True, error_model="numpy")
def without_predictor(code, psi, y):
    """What the log likelihood and its derivatives in psi have that does not depend on eta: three numbers."""
    if code == NEGATIVE_BINOMIAL and y <= STIRLING_FROM:
        return count_terms(y, math.exp(max(min(psi[0], 50.0), -50.0)))
    if code == GAMMA:
        k = math.exp(max(min(-psi[0], 50.0), -50.0))
        first, second = log_minus_digamma(k)
        return gamma_constant(k), first, second
    return 0.0, 0.0, 0.0


@njit(cache=True, error_model="numpy")
def shared_parameters(code, eta, variance, psi, y, constant, fixed, slope, mixed, bend):
    """Log likelihood of eta and psi; returns it with d eta and d2 eta, and fills d psi, d eta d psi, d2 psi.

    ``fixed`` is ``without_predictor``. Gaussian: the expectation under eta's ``variance``, which is a closed form.
    """
    if code == GAUSSIAN:
        precision = math.exp(min(-psi[0], LARGEST_EXPONENT))
        gap = y - eta
        square = 0.5 * precision * (gap * gap + variance + RESOLUTION)
        slope[0], mixed[0], bend[0, 0] = square - 0.5, -precision * gap, -square
        return -0.5 * psi[0] - square, precision * gap, -precision
    if code == STUDENT:
        dof = constant
        precision = math.exp(min(-psi[0], LARGEST_EXPONENT))
        gap = y - eta
        q = precision * (gap * gap + RESOLUTION) / dof
        w = (dof + 1.0) / dof * precision / (1.0 + q)
        slope[0] = 0.5 * (dof + 1.0) * q / (1.0 + q) - 0.5
        mixed[0] = -w * gap / (1.0 + q)
        bend[0, 0] = -0.5 * (dof + 1.0) * q / (1.0 + q) ** 2
        value = -0.5 * psi[0] - 0.5 * (dof + 1.0) * math.log1p(q)
        return value, w * gap, -w * (1.0 - q) / (1.0 + q)
    if code == NEGATIVE_BINOMIAL:
        alpha = math.exp(max(min(psi[0], 50.0), -50.0))
        mean = math.exp(min(eta, LARGEST_EXPONENT))
        s = alpha * mean
        size = (1.0 + alpha * y) * mean
        mixed[0] = -(y - mean) * (s / (1.0 + s)) / (1.0 + s)
        if y > STIRLING_FROM:
            value, slope[0], bend[0, 0] = large_count(
                y, max(min(eta, LARGEST_EXPONENT), -LARGEST_EXPONENT), mean, alpha
            )
            return value, (y - mean) / (1.0 + s), -size / (1.0 + s) / (1.0 + s)
        value, first, second = fixed
        log_s = math.log1p(s)
        slope[0] = first + log_s / alpha - size / (1.0 + s)
        bend[0, 0] = (
            second
            - (log_s - s / (1.0 + s)) / alpha
            - alpha * y * mean / (1.0 + s)
            + (size / (1.0 + s)) * (s / (1.0 + s))
        )
        value += y * eta - (y + 1.0 / alpha) * log_s
        if y > 0.0:
            value -= y * math.log(y) - y
        return value, (y - mean) / (1.0 + s), -size / (1.0 + s) / (1.0 + s)
    k = math.exp(max(min(-psi[0], 50.0), -50.0))
    z = min(y - eta, LARGEST_EXPONENT)  # y is the logarithm here
    loss, less = gamma_loss(z)
    loss -= 0.5 * RESOLUTION
    constant_of_k, first, second = fixed
    slope[0] = -k * (first + loss)
    mixed[0] = -k * less
    bend[0, 0] = k * (first + loss) + k * k * second
    return constant_of_k + k * loss, k * less, -k * (1.0 + less)


@njit(cache=True, error_model="numpy")
def shared_rows(
    code,
    mean,
    along,
    variance,
    y,
    weight,
    constant,
    points,
    outer_shares,
    outer,
    nodes,
    shares,
    starts,
    limits,
    slope,
    curve,
    mixed,
    psi_slope,
    psi_curve,
):
    """Expected slopes and curves under (eta, psi) Gaussian.

    ``points`` (J, M) are whitened, ``outer`` the same in psi; given point j, eta ~ N(mean + along . points_j, variance).
    """
    m = points.shape[1]
    d_psi, d_mixed, d_bend = np.zeros(m), np.zeros(m), np.zeros((m, m))
    total = 0.0
    fixed = np.zeros((len(points), 3))  # of gamma no row changes it
    unit = np.ones(len(points))
    for j in range(len(points)):
        fixed[j] = without_predictor(code, outer[j], np.inf)
        if code == STUDENT:  # the likelihood bends within its own scale
            unit[j] = math.exp(min(-outer[j, 0], LARGEST_EXPONENT)) / min(constant, 1.0)
    by_row = code == NEGATIVE_BINOMIAL
    for n in range(len(mean)):
        deviation = math.sqrt(variance[n])
        alone = variance[n] == 0.0 or code == GAUSSIAN
        rule = 0
        slope[n], curve[n] = 0.0, 0.0
        for i in range(m):
            mixed[n, i] = 0.0
        for j in range(len(points)):
            centre = mean[n]
            for i in range(m):
                centre += along[n, i] * points[j, i]
            own = fixed[j, 0], fixed[j, 1], fixed[j, 2]
            if by_row:
                own = without_predictor(code, outer[j], y[n])
            if not alone and (j == 0 or code == STUDENT):
                rule = rule_of(variance[n] * unit[j], limits)
            first_node, end_node = starts[rule], starts[rule + 1]
            if alone:
                end_node = first_node + 1
            for k in range(first_node, end_node):
                eta = centre if alone else centre + deviation * nodes[k]
                value, d1, d2 = shared_parameters(
                    code, eta, variance[n], outer[j], y[n], constant, own, d_psi, d_mixed, d_bend
                )
                share = weight[n] * outer_shares[j] * (1.0 if alone else shares[k])
                total += share * value
                slope[n] += share * d1
                curve[n] -= share * d2
                for i in range(m):
                    psi_slope[i] += share * d_psi[i]
                    mixed[n, i] -= share * d_mixed[i]
                    for h in range(m):
                        psi_curve[i, h] -= share * d_bend[i, h]
    return total


@njit(cache=True, error_model="numpy")
def softmax_point(u, contrast, y, score):
    """Log probability of class y with log odds contrast u; fills class probabilities."""
    n_classes, size = contrast.shape
    top = -np.inf
    for c in range(n_classes):
        score[c] = 0.0
        for i in range(size):
            score[c] += contrast[c, i] * u[i]
        top = max(top, score[c])
    own, norm = score[y] - top, 0.0
    for c in range(n_classes):
        score[c] = math.exp(score[c] - top)
        norm += score[c]
    for c in range(n_classes):
        score[c] /= norm
    return own - math.log(norm)


@njit(cache=True, error_model="numpy")
def largest_variance(root):
    """Of root root', lower triangular."""
    largest = 0.0
    for i in range(len(root)):
        variance = 0.0
        for j in range(i + 1):
            variance += root[i, j] * root[i, j]
        largest = max(largest, variance)
    return largest


@njit(cache=True, error_model="numpy")
def expected_classes(mean, root, contrast, y, points, shares, u, score, first, second, along):
    """Expected log probability of class y; fills E p, E p p' - diag(E p) and E p z' of the class probabilities p at mean + root z."""
    n_classes, size = contrast.shape
    for c in range(n_classes):
        first[c] = 0.0
        for d in range(c + 1):
            second[c, d] = 0.0
        for i in range(size):
            along[c, i] = 0.0
    value = 0.0
    for k in range(len(points)):
        for i in range(size):
            u[i] = mean[i]
            for j in range(i + 1):
                u[i] += root[i, j] * points[k, j]
        value += shares[k] * softmax_point(u, contrast, y, score)
        for c in range(n_classes):
            part = shares[k] * score[c]
            first[c] += part
            for d in range(c + 1):
                second[c, d] += part * score[d]
            for i in range(size):
                along[c, i] += part * points[k, i]
    for c in range(n_classes):
        second[c, c] -= first[c]
        for d in range(c):
            second[d, c] = second[c, d]
    return value


@njit(cache=True, error_model="numpy")
def curve_by_slopes(root, contrast, along, curve):
    """-2 d E[f] / d covariance of the quadrature's own E[f], by its derivatives in the triangular root R.

    With T = R' tril(-B' E p z') lower triangular and its diagonal halved, it is -(R^-T T R^-1 + transpose) (Murray 2016).
    """
    size = len(root)
    inner = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            for k in range(i, size):  # R' is upper triangular
                slope = 0.0
                for c in range(len(along)):
                    slope += contrast[c, k] * along[c, j]
                inner[i, j] += root[k, i] * slope
        inner[i, i] *= 0.5
    for j in range(size):  # R' X = inner, from the last row up
        for i in range(size - 1, -1, -1):
            for k in range(i + 1, size):
                inner[i, j] -= root[k, i] * inner[k, j]
            inner[i, j] /= root[i, i]
    for i in range(size):  # Y R = X, from the last column
        for j in range(size - 1, -1, -1):
            for k in range(j + 1, size):
                inner[i, j] -= inner[i, k] * root[k, j]
            inner[i, j] /= root[j, j]
    for i in range(size):
        for j in range(size):
            curve[i, j] = inner[i, j] + inner[j, i]


@njit(cache=True, error_model="numpy")
def softmax_rows(mean, root, contrast, y, weight, points, shares, starts, limits, slope, curve):
    """Class y of K with u ~ N(mean, root root') and log odds contrast u: slopes (n, L), curves (n, L, L).

    With p the probabilities the slope is B' (e_y - E p), the curve B' (diag(E p) - E p p') B; where variances are large it is that of the
    quadrature's own bound.
    """
    n_rows, size = mean.shape
    n_classes = contrast.shape[0]
    u, score = np.empty(size), np.empty(n_classes)
    first, second = np.empty(n_classes), np.empty((n_classes, n_classes))
    along = np.empty((n_classes, size))
    total = 0.0
    for n in range(n_rows):
        variance = largest_variance(root[n])
        rule = rule_of(variance, limits)
        own = slice(starts[rule], starts[rule + 1])
        given = mean[n], root[n], contrast, y[n], points[own], shares[own]
        total += weight[n] * expected_classes(*given, u, score, first, second, along)
        by_slopes = variance > PRICE_BELOW
        if by_slopes:
            curve_by_slopes(root[n], contrast, along, curve[n])
        for i in range(size):
            pull = contrast[y[n], i]
            for c in range(n_classes):
                pull -= contrast[c, i] * first[c]
            slope[n, i] = weight[n] * pull
            for j in range(i + 1):
                bend = curve[n, i, j] if by_slopes else 0.0
                if not by_slopes:
                    for c in range(n_classes):
                        for d in range(n_classes):
                            bend -= contrast[c, i] * second[c, d] * contrast[d, j]
                curve[n, i, j] = weight[n] * bend
                curve[n, j, i] = curve[n, i, j]
    return total
