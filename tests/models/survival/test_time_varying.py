"""Effects that vary in time do not depend on where a column has its origin."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi import Network, PiecewiseExponentialRegression, load, save


@pytest.mark.parametrize(
    ("factor", "origin"), [(1.0, 200.0), (1e-8, 0.0), (1.0, 1e8), (365.0, 2e4)]
)
def test_a_varying_effect_does_not_depend_on_the_origin(
    factor: float, origin: float, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    time = 10.0 * rng.exponential(np.exp(-0.8 * x[:, 0]))
    event = (rng.random(200) < 0.8).astype(float)
    moved = x * [factor, 1.0] + [origin, 0.0]
    settings = {"n_intervals": 3, "time_varying": ("x0",)}
    plain = PiecewiseExponentialRegression(**settings).fit(x, time, event)
    model = PiecewiseExponentialRegression(**settings, network=Network.star(3))
    model.fit(moved, time, event)
    assert (plain.coef_[:3] > 0.5).all()
    np.testing.assert_allclose(model.coef_[:3] * factor, plain.coef_[:3], rtol=1e-6)
    np.testing.assert_allclose(model.predict(moved[:5]), plain.predict(x[:5]), rtol=1e-5, atol=1e-6)
    curves = plain.predict_survival_function(x[:5], [2.0, 20.0])
    np.testing.assert_allclose(
        model.predict_survival_function(moved[:5], [2.0, 20.0]), curves, rtol=1e-6
    )
    # log hazards are those where covariates are zero
    at_zero = model.log_hazard_ + origin * model.coef_[:3]
    np.testing.assert_allclose(at_zero, plain.log_hazard_, rtol=1e-5, atol=1e-6)
    save(model, tmp_path / "m.npz")
    np.testing.assert_array_equal(load(tmp_path / "m.npz").predict(moved), model.predict(moved))
