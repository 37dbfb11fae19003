"""The noise of a linear regression: degrees of freedom, evidence, and the conjugate prior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import multivariate_t

from dmfvi import BayesianLinearRegression, Network
from dmfvi.models.pca.belief import GammaPrior


def rows(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.geomspace(0.1, 10.0, d) + 3.0
    return x, x @ rng.normal(size=d) + 2.0 * rng.normal(size=n)


@pytest.mark.parametrize(("n", "d"), [(20, 8), (60, 30), (200, 3)])
def test_a_vague_prior_gives_the_intervals_of_least_squares(n: int, d: int) -> None:
    sm = pytest.importorskip("statsmodels.api")
    x, y = rows(n, d)
    theirs = sm.OLS(y, sm.add_constant(x)).fit()
    model = BayesianLinearRegression(prior_precision=1e-9, network=Network.star(4)).fit(x, y)
    table = model.coefficient_table(0.9).rows
    order = [*range(1, d + 1), 0]
    ends = theirs.conf_int(0.1)[order]
    width = (ends[:, 1] - ends[:, 0])[:-1]
    np.testing.assert_allclose(
        [row.upper - row.lower for row in table[:d]], width, rtol=0.01
    )  # the prior of the noise is worth a thousandth of the target's variance
    shifts = [row.estimate for row in table[:d]] - theirs.params[order][:-1]
    assert (np.abs(shifts) < 1e-3 * width).all()
    assert model.posterior_.parameters()["shape"] == pytest.approx(0.5 * (n - d - 1), rel=5e-3)
    assert table[-1].lower ** 2 < theirs.mse_resid < table[-1].upper ** 2
    low, high = model.predict_interval(x[:5])
    frame = theirs.get_prediction(sm.add_constant(x)[:5]).summary_frame(0.1)
    np.testing.assert_allclose(high - low, frame.obs_ci_upper - frame.obs_ci_lower, rtol=0.01)


@pytest.mark.parametrize(("n", "d"), [(2, 1), (5, 8), (9, 8), (12, 40)])
def test_as_many_columns_as_rows_leave_the_noise_a_proper_posterior(n: int, d: int) -> None:
    x, y = rows(n, d)
    model = BayesianLinearRegression().fit(x, y)
    if n > 1:
        nodes = BayesianLinearRegression(network=Network.chain(2)).fit(x, y)
        assert nodes.posterior_.distance(model.posterior_) < 1e-9
    for row in model.coefficient_table().rows:
        assert np.isfinite([row.estimate, row.lower, row.upper]).all()
        assert row.lower < row.upper
    low, high = model.predict_interval(x)
    assert np.isfinite(low).all()
    assert (low < high).all()


def test_the_conjugate_prior_is_used_as_it_is_given() -> None:
    """p(y) is a Student density: the evidence, and the posterior's shape."""
    x, y = rows(30, 4)
    model = BayesianLinearRegression(
        noise_prior=GammaPrior(2.0, 3.0), prior_precision=0.5, fit_intercept=False
    ).fit(x, y)
    p = model.posterior_.parameters()
    assert p["shape"] == pytest.approx(2.0 + 15.0)
    spread = (np.eye(30) + x @ x.T / 0.5) * 3.0 / 2.0
    exact = multivariate_t(np.zeros(30), spread, df=4.0).logpdf(y)
    assert model.lower_bound_ == pytest.approx(exact, rel=1e-9)


def test_the_bound_is_the_evidence_under_the_default_prior() -> None:
    """log int N(y; X w, 1/t) N(w; 0, 1/(tP)) Gamma(t; a, b) t^(-g/2) dw dt, in agreed units."""
    x, y = rows(40, 5)
    model = BayesianLinearRegression().fit(x, y)
    design, (shift, unit) = model._design(x), model._target
    z = (y - shift) / unit
    prior = model._model.prior_precision
    precision = np.diag(prior) + design.T @ design
    taken = len(prior) - (prior * np.diag(np.linalg.inv(precision))).sum()
    a, b = model._model.noise_shape, model._model.noise_rate
    shape = a + 0.5 * (40 - taken)
    mean = np.linalg.solve(precision, design.T @ z)
    rate = b + 0.5 * (z @ z - mean @ precision @ mean)
    exact = -20 * np.log(2 * np.pi) + 0.5 * np.log(prior).sum()
    exact -= 0.5 * np.linalg.slogdet(precision)[1]
    exact += a * np.log(b) - gammaln(a) + gammaln(shape) - shape * np.log(rate)
    assert model.lower_bound_ == pytest.approx(exact - 40 * np.log(unit), rel=1e-9)
