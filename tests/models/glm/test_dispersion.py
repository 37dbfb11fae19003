"""The log dispersion of few counts: mean and deviation of its skewed posterior, at every node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln

from dmfvi import GeneralizedLinearModel, Network, load, save
from dmfvi.models.glm.dispersion import _integrated
from dmfvi.models.glm.targets import Targets

RNG = np.random.default_rng(60)
COUNTS = RNG.poisson(3.0 * RNG.gamma(3.0, 1 / 3.0, 40)).astype(float)


def density_of(
    counts: np.ndarray, precision: np.ndarray, shift: float
) -> tuple[np.ndarray, np.ndarray]:
    """Log dispersions of equal means and their probabilities, on a grid of both parameters."""
    eta, psi = np.meshgrid(np.linspace(-2.0, 2.0, 301), np.linspace(-12.0, 4.0, 801))
    size, rate = np.exp(-psi), np.exp(eta + shift)
    value = np.zeros_like(eta)
    for y, times in zip(*np.unique(counts, return_counts=True), strict=True):
        one = gammaln(y + size) - gammaln(size) - size * np.log1p(rate / size)
        value += times * (one + y * (np.log(rate) - np.log(size + rate)))
    value -= 0.5 * (precision[0] * eta**2 + precision[1] * psi**2)
    weights = np.exp(value - value.max())
    return psi[:, 0], weights.sum(1) / weights.sum()


def by_integration(counts: np.ndarray, precision: np.ndarray, shift: float) -> tuple[float, float]:
    """Mean and deviation of the log dispersion."""
    psi, weights = density_of(counts, precision, shift)
    mean = float(weights @ psi)
    return mean, float(np.sqrt(weights @ (psi - mean) ** 2))


def alone(coroutine: Any) -> Any:
    """What it returns where one node has all rows."""
    try:
        own = next(coroutine)
        while True:
            own = coroutine.send(own)
    except StopIteration as end:
        return end.value


def fitted(**settings: object) -> GeneralizedLinearModel:
    column = np.linspace(-1.0, 1.0, 40)[:, None]
    made = GeneralizedLinearModel(family="negative-binomial", prior_precision=1e8, **settings)
    return made.fit(column, COUNTS)


def test_the_log_dispersion_has_the_moments_of_its_posterior() -> None:
    model = fitted()
    prior = np.asarray(model._model.prior_precision)[1:]  # of intercept and log dispersion
    mean, deviation = by_integration(COUNTS, prior, float(model._target.shift))
    p = model.posterior_.parameters()
    assert abs(p["mean"][-1] - mean) < 0.03 * deviation
    assert np.sqrt(p["covariance"][-1, -1]) == pytest.approx(deviation, rel=0.03)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_the_table_has_the_quantiles_of_the_skewed_posterior(level: float, tmp_path: Path) -> None:
    model = fitted()
    prior = np.asarray(model._model.prior_precision)[1:]
    psi, weights = density_of(COUNTS, prior, float(model._target.shift))
    below = np.cumsum(weights) - 0.5 * weights
    wanted = np.exp(np.interp([0.5 - 0.5 * level, 0.5, 0.5 + 0.5 * level], below, psi))
    for one in (model, load(save(model, tmp_path / "model.npz"))):
        row = one.coefficient_table(level).rows[-1]
        assert row.term == "dispersion"
        np.testing.assert_allclose((row.lower, row.estimate, row.upper), wanted, rtol=0.04)


@pytest.mark.parametrize("unit", [1e-3, 1e6])
def test_the_interval_of_the_noise_is_in_the_targets_unit(unit: float) -> None:
    rng = np.random.default_rng(1)
    x, noise = rng.normal(size=(12, 2)), rng.normal(size=12)
    rows = []
    for scale in (1.0, unit):
        model = GeneralizedLinearModel(family="gaussian").fit(x, scale * (x[:, 0] + noise))
        rows.append(np.array(model.coefficient_table().rows[-1][1:5]))
    np.testing.assert_allclose(rows[1], unit * rows[0], rtol=1e-6)
    assert rows[0][2] < rows[0][0] < rows[0][3]


def test_every_node_has_the_pooled_dispersion() -> None:
    pooled, nodes = fitted(), fitted(network=Network.ring(4))
    assert nodes.node_posteriors_[2].distance(pooled.posterior_) < 1e-9
    one, other = (node.agreed.pack().tobytes() for node in nodes.node_posteriors_[:2])
    assert one == other


def test_counts_without_extra_dispersion_keep_a_proper_posterior() -> None:
    rng = np.random.default_rng(0)
    model = GeneralizedLinearModel(family="negative-binomial").fit(
        rng.normal(size=(30, 2)), np.zeros(30)
    )
    p = model.posterior_.parameters()
    assert np.isfinite(p["mean"]).all()
    assert (np.linalg.eigvalsh(p["covariance"]) > 0).all()


def test_a_point_that_has_not_found_its_mode_has_no_density() -> None:
    model = fitted()
    shard = model._prepared(
        np.linspace(-1.0, 1.0, 40)[:, None],
        Targets(COUNTS, np.zeros(40), np.ones(40), np.ones(40)),
    )
    prior = np.array([1e8, 1e-9, 0.25])
    near, far = (
        alone(_integrated(model._model, shard, np.array([[0.0, start, -1.0]]), prior)).log_density
        for start in (0.0, -8.0)
    )
    assert np.isfinite(near).all()
    assert np.isnan(far).all()


@pytest.mark.parametrize(("n", "d"), [(20, 8), (60, 30)])
def test_the_noise_of_many_columns_has_its_exact_moments(n: int, d: int) -> None:
    """With flat priors t = 1 / variance ~ Gamma((n - p) / 2, RSS / 2) and coefficients are Student (n - p)."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=d) + rng.normal(size=n)
    flat = {"prior_precision": 1e-8, "intercept_precision": 1e-8}
    model = GeneralizedLinearModel(family="gaussian", **flat).fit(x, y)
    prior = np.asarray(model._model.prior_precision)
    design = model._design(x)
    target = (y - model._target.shift) / model._target.scale
    rest = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    psi = np.linspace(-8.0, 4.0, 4001)
    log_density = -0.5 * (n - d - 1) * psi - 0.5 * rest @ rest * np.exp(-psi)
    log_density -= 0.5 * prior[-1] * psi**2
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ psi
    q = model._belief_normal.parameters()
    deviation = np.sqrt(weights @ (psi - mean) ** 2)
    assert abs(q["mean"][-1] - mean) < 1e-3 * deviation
    assert np.sqrt(q["covariance"][-1, -1]) == pytest.approx(deviation, rel=1e-3)
    exact = weights @ np.exp(psi) * np.linalg.inv(design.T @ design)
    np.testing.assert_allclose(q["covariance"][:-1, :-1], exact, rtol=2e-3, atol=1e-9)


@pytest.mark.parametrize("family", ["gaussian", "student-t", "gamma"])
def test_nodes_integrate_the_pooled_dispersion(family: str) -> None:
    """Rows sorted by target, and collinear columns."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(36, 9))
    x[:, 8] = x[:, 0] - x[:, 1]
    y = 0.5 * x[:, 0] + rng.normal(size=36)
    y = np.exp(y) if family == "gamma" else y
    order = np.argsort(y)
    pooled = GeneralizedLinearModel(family=family).fit(x, y)
    nodes = GeneralizedLinearModel(family=family, network=Network.chain(4)).fit(x[order], y[order])
    assert max(p.distance(pooled.posterior_) for p in nodes.node_posteriors_) < 1e-9
    assert len({p.agreed.pack().tobytes() for p in nodes.node_posteriors_}) == 1


@pytest.mark.parametrize(("n", "d"), [(4, 1), (20, 40)])
def test_mean_and_deviation_of_the_noise_are_those_of_its_skewed_posterior(n: int, d: int) -> None:
    """Against integration over log noise variances, coefficients in closed form."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    y = x[:, 0] + rng.normal(size=n)
    model = GeneralizedLinearModel(family="gaussian").fit(x, y)
    units, target = model._units, model._target
    design = np.column_stack([(x - units.shift) / units.scale, np.ones(n)])
    gaps = (y - target.shift) / target.scale
    prior = model._model.prior_precision
    by_coefficients = design / prior[:-1] @ design.T
    psi = np.linspace(-20.0, 20.0, 4001)
    log_density = []
    for each in psi:
        covariance = np.exp(each) * np.eye(n) + by_coefficients
        square = gaps @ np.linalg.solve(covariance, gaps)
        log_density.append(-0.5 * (np.linalg.slogdet(covariance)[1] + square + prior[-1] * each**2))
    weight = np.exp(np.array(log_density) - max(log_density))
    weight /= weight.sum()
    noise = target.scale**2 * np.exp(psi)
    assert model.dispersion_ == pytest.approx(weight @ noise, rel=0.02)
    mean = weight @ np.sqrt(noise)
    spread = np.sqrt(weight @ (np.sqrt(noise) - mean) ** 2)
    assert model.coefficient_table().rows[-1].sd == pytest.approx(spread, rel=0.02)
