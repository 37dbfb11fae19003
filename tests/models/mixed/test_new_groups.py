"""What a mixed model says of groups that it has not seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, ndtr

from dmfvi import MixedModel, Network
from dmfvi.models.mixed.new_groups import normal_mixture_quantile


def few_groups(seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(6), 10)
    x = rng.normal(size=(60, 2))
    y = x[:, 0] + 0.7 * rng.normal(size=6)[groups] + rng.normal(size=60)
    return x, y, groups


@pytest.mark.parametrize("slopes", [(), ("x0",)])
@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_intervals_of_a_new_group_are_those_of_draws_of_everything(
    family: str, slopes: tuple[str, ...]
) -> None:
    """Coefficients, deviations of effects and the effects themselves; few groups say little about the deviations."""
    x, y, groups = few_groups()
    target = y if family == "gaussian" else (y > 0).astype(float)
    model = MixedModel(family=family, random_slopes=slopes, approximation="laplace").fit(  # type: ignore[arg-type]
        x, target, groups
    )
    rng = np.random.default_rng(0)
    theta = model._belief.q.sample(rng, 20_000)
    factors = np.array([model._model.factor(each) for each in theta])
    effects = np.einsum("kij,kj->ki", factors, rng.normal(size=(len(theta), 1 + len(slopes))))
    design = model._design(x[:5])
    eta = design @ theta[:, :3].T + model._varying(design) @ effects.T
    eta = model._target.shift + model._target.scale * eta
    low, high = model.predict_interval(x[:5], level=0.9)
    drawn = eta if family == "gaussian" else expit(eta)
    covered = np.mean((drawn > low[:, None]) & (drawn < high[:, None]), axis=1)
    np.testing.assert_allclose(covered, 0.9, atol=0.01)
    np.testing.assert_allclose(np.mean(drawn < low[:, None], axis=1), 0.05, atol=0.008)


def test_intervals_of_a_new_group_hold_what_they_say_with_six_groups() -> None:
    held = []
    for seed in range(40):
        x, y, groups = few_groups(100 + seed)
        model = MixedModel(approximation="moments").fit(x, y, groups)
        low, high = model.predict_interval(np.zeros((1, 2)), level=0.9)
        held.append(ndtr(high[0] / 0.7) - ndtr(low[0] / 0.7))
    assert 0.8 < np.mean(held) < 0.96


def test_intervals_do_not_depend_on_units_or_sites() -> None:
    x, y, groups = few_groups()
    model = MixedModel(random_slopes=("x0",)).fit(x, y, groups)
    low, high = model.predict_interval(x)
    moved = MixedModel(random_slopes=("x0",)).fit(x * [1e3, 1e-3] + 5.0, 1e4 * y - 7.0, groups)
    for end, other in zip((low, high), moved.predict_interval(x * [1e3, 1e-3] + 5.0), strict=True):
        np.testing.assert_allclose((other + 7.0) / 1e4, end, rtol=1e-8, atol=1e-8)
    parts = [np.split(each, [20, 40]) for each in (x, y, groups)]
    nodes = MixedModel(random_slopes=("x0",), network=Network.chain(3)).fit(*parts)
    for end, other in zip((low, high), nodes.predict_interval(x), strict=True):
        np.testing.assert_allclose(other, end, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("probability", [1e-9, 0.05, 0.5, 0.95, 1 - 1e-9])
def test_quantiles_of_mixtures_have_their_probability(probability: float) -> None:
    """Also of components whose deviations differ by ten powers of ten, and of equal ones."""
    rng = np.random.default_rng(0)
    location, scale = rng.normal(size=(200, 64)), 10.0 ** rng.uniform(-8, 2, (200, 64))
    scale[0], location[0] = 1.0, 0.0
    found = normal_mixture_quantile(location, scale, probability)
    below = ndtr((found[:, None] - location) / scale).mean(1)
    np.testing.assert_allclose(below, probability, rtol=1e-5, atol=1e-10)


def test_the_table_names_the_mode_where_too_few_draws_count() -> None:
    x, y, groups = few_groups(0)
    with pytest.warns(UserWarning, match="approximated at its mode"):
        model = MixedModel(random_slopes=("x0", "x1")).fit(x, y, groups)
    assert np.isfinite(model.n_effective_draws_)
    assert "approximation Gaussian at the mode" in model.summary()
