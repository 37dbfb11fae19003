"""Expectations under Gaussians: every rule is as accurate as its variance asks for, and kernels add them up rightly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax, softmax

from dmfvi.linalg import FloatArray
from dmfvi.models.glm._kernels_numba import PRICE_BELOW, shared_rows, softmax_rows
from dmfvi.models.glm.likelihoods import SharedParameters, contrasts
from dmfvi.models.glm.quadrature import (
    cubature,
    cubatures,
    fifth_degree,
    hermite,
    product_rule,
    rules,
)

#: points along each axis of a product rule that is exact enough to compare with
FINE = {2: 30, 3: 20, 4: 12, 5: 8}
#: variance, and the error of a log probability of classes that a rule may have: up to three dimensions, and beyond
ACCURACY = [(1e-4, 1e-13, 2e-12), (1e-3, 1e-13, 5e-11), (0.05, 5e-11, 1e-5), (0.3, 1e-6, 1e-3)]


@pytest.mark.parametrize("dimension", [2, 5, 9])
def test_the_rule_of_degree_five_has_moments_up_to_five(dimension: int) -> None:
    points, shares = fifth_degree(dimension)
    first, second = points[:, 0], points[:, 1]
    assert shares.sum() == pytest.approx(1.0)
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0), (5, 0.0)):
        assert shares @ first**power == pytest.approx(moment, abs=1e-12)
    assert shares @ (first**2 * second**2) == pytest.approx(1.0)
    assert shares @ (first * second) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("dimension", sorted(FINE))
@pytest.mark.parametrize(("variance", "few", "many"), ACCURACY)
def test_rules_are_as_accurate_as_their_variance_asks_for(
    dimension: int, variance: float, few: float, many: float
) -> None:
    rng = np.random.default_rng(dimension)
    turn = contrasts(dimension + 1)
    for _ in range(3):
        mean, root = rng.normal(size=dimension), np.tril(rng.normal(size=(dimension, dimension)))
        root *= np.sqrt(variance / np.square(root).sum(1).max())

        def expected(
            rule: tuple[FloatArray, FloatArray], mean: FloatArray = mean, root: FloatArray = root
        ) -> FloatArray:
            points, shares = rule
            return np.asarray(shares @ log_softmax((mean + points @ root.T) @ turn.T, axis=1))

        fine = expected(product_rule(dimension, FINE[dimension]))
        gap = np.abs(expected(cubature(dimension, variance)) - fine).max()
        assert gap < (few if dimension <= 3 else many)


def rule_for(root: FloatArray) -> tuple[FloatArray, FloatArray]:
    """As a row with this root of its covariance has it."""
    points, shares, starts, limits = cubatures(len(root))
    rule = int(np.searchsorted(limits, np.square(root).sum(1).max()))
    return points[starts[rule] : starts[rule + 1]], shares[starts[rule] : starts[rule + 1]]


def by_covariance(mean: FloatArray, root: FloatArray, turn: FloatArray, y: int) -> FloatArray:
    """Numerical derivative of the quadrature's expected log probability with respect to the covariance."""
    points, shares = rule_for(root)
    covariance, size, step = root @ root.T, len(mean), 1e-5
    made = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            change = np.zeros((size, size))
            change[i, j] += 0.5 * step
            change[j, i] += 0.5 * step
            ends = [np.linalg.cholesky(covariance + sign * change) for sign in (1.0, -1.0)]
            high, low = (
                shares @ log_softmax((mean + points @ end.T) @ turn.T, axis=1)[:, y] for end in ends
            )
            made[i, j] = (high - low) / (2.0 * step)
    return made


@pytest.mark.parametrize("n_classes", [2, 3, 4, 5])
def test_rows_of_classes_have_expected_slopes_and_curves(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    n, size = 6, n_classes - 1
    turn, mean = contrasts(n_classes), 2.0 * rng.normal(size=(n, size))
    scale = np.repeat([1e-3, 0.1, 1.0], 2)[:, None, None]  # rows of every rule
    root = scale * (np.eye(size) + 0.3 * np.tril(rng.normal(size=(n, size, size))))
    y, weight = rng.integers(n_classes, size=n), rng.uniform(0.5, 2.0, n)
    slope, curve = np.empty((n, size)), np.empty((n, size, size))
    total = softmax_rows(mean, root, turn, y, weight, *cubatures(size), slope, curve)
    value = 0.0
    for i in range(n):
        points, shares = rule_for(root[i])
        scores = (mean[i] + points @ root[i].T) @ turn.T
        chance = softmax(scores, axis=1)
        value += weight[i] * (shares @ log_softmax(scores, axis=1))[y[i]]
        first = shares @ chance
        second = np.einsum("k,kc,kd->cd", shares, chance, chance)
        wanted = turn.T @ (np.eye(n_classes)[y[i]] - first)
        np.testing.assert_allclose(slope[i], weight[i] * wanted, atol=1e-13)
        bend = turn.T @ (np.diag(first) - second) @ turn
        if np.square(root[i]).sum(1).max() > PRICE_BELOW:
            bend = -2.0 * by_covariance(mean[i], root[i], turn, y[i])
        np.testing.assert_allclose(curve[i], weight[i] * bend, rtol=1e-7, atol=1e-8)
    assert total == pytest.approx(value, rel=1e-13)


def log_density(name: str, y: float, eta: FloatArray, psi: FloatArray) -> FloatArray:
    """Of one target, with scipy's densities."""
    if name == "gaussian":
        return np.asarray(stats.norm.logpdf(y, eta, np.exp(0.5 * psi)))
    if name == "student-t":
        return np.asarray(stats.t.logpdf(y, 4.0, eta, np.exp(0.5 * psi)))
    if name == "negative-binomial":
        size = np.exp(-psi)
        return np.asarray(stats.nbinom.logpmf(y, size, size / (size + np.exp(eta))))
    return np.asarray(stats.gamma.logpdf(y, np.exp(-psi), scale=np.exp(eta + psi)))


TARGETS = {
    "gaussian": [0.3, -1.2, 0.5, 2.0],
    "student-t": [0.3, -1.2, 0.5, 9.0],
    "negative-binomial": [0, 1, 7, 40],
    "gamma": [0.2, 1.0, 3.0, 0.01],
}


@pytest.mark.parametrize(
    ("name", "noise"),
    [*((name, 1.0) for name in sorted(TARGETS)), ("student-t", 0.03)],  # bends within its own scale
)
def test_rows_with_a_dispersion_have_the_expected_log_density(name: str, noise: float) -> None:
    y = np.array(TARGETS[name]) * noise
    mean = np.array([0.2, -0.4, 0.6, 1.0]) * noise
    variance = np.array([5e-5, 5e-4, 0.02, 0.2]) * noise**2
    along, weight = np.array([[0.01], [-0.02], [0.05], [0.1]]) * noise, np.array([1.0, 2.0, 1, 0.5])
    centre, deviation = -0.5 + 2.0 * np.log(noise), 0.3
    points, shares = cubature(1, deviation**2)
    code = SharedParameters.CODES.index(name)
    seen = np.log(y) if name == "gamma" else y.astype(float)

    def kernel(moved: float) -> tuple[float, FloatArray]:
        slope, curve, mixed = np.empty(4), np.empty(4), np.empty((4, 1))
        total = shared_rows(
            code, mean + moved, along, variance, seen, weight, 4.0, points, shares,
            centre + deviation * points, *rules(), slope, curve, mixed, np.zeros(1), np.zeros((1, 1)),
        )  # fmt: skip
        return total, slope

    wanted = 0.0
    (outer, outer_shares), (nodes, node_shares) = hermite(60), hermite(60)
    for i in range(4):
        psi = centre + deviation * outer
        eta = mean[i] + along[i, 0] * outer[:, None] + np.sqrt(variance[i]) * nodes
        values = log_density(name, float(y[i]), eta, psi[:, None])
        wanted += weight[i] * float(outer_shares @ values @ node_shares)
    total, slope = kernel(0.0)
    total += SharedParameters(name).constant(seen, weight, np.ones(4))
    # noise has a least size, 1e-11 of the targets' variance
    assert total == pytest.approx(wanted, rel=1e-9, abs=1e-10 / noise**2)
    step = 1e-5 * noise
    numeric = (kernel(step)[0] - kernel(-step)[0]) / (2.0 * step)
    assert slope.sum() == pytest.approx(numeric, rel=1e-6)
