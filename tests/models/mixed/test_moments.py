"""Means and deviations of a mixed model's posterior, by weighted draws that the nodes agree on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import dmfvi
from dmfvi import MixedModel, Network
from dmfvi.models.mixed.model import GroupedShard
from dmfvi.models.moments import even_points


def clinics(
    n_groups: int, per_group: int, seed: int, spread: float = 0.3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A covariate, outcomes 0 and 1, and clinics that hardly differ."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), per_group)
    x = rng.normal(size=(len(groups), 1))
    eta = 0.8 * x[:, 0] - 0.3 + spread * rng.normal(size=n_groups)[groups]
    return x, (rng.random(len(groups)) < expit(eta)).astype(float), groups


#: a grid of coefficient, intercept and log deviation
NARROW = np.linspace(-0.6, 2.2, 13), np.linspace(-1.4, 1.4, 13), np.linspace(-9.0, 1.6, 41)
WIDE = np.linspace(-4.0, 5.0, 25), np.linspace(-26.0, 16.0, 64), np.linspace(-9.0, 7.0, 41)
LESS_WIDE = np.linspace(-2.5, 3.0, 31), np.linspace(-3.0, 3.0, 61), np.linspace(-9.0, 4.0, 41)


def by_grid(
    model: MixedModel,
    x: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray,
    axes: tuple[np.ndarray, ...] = NARROW,
) -> Any:
    """Mean and deviation of every parameter by adding up the exact density on a grid of all three."""
    design = model._design(x)
    shard = GroupedShard.of(
        design, model._varying(design), y, np.full(len(y), model._target.shift), groups
    )
    grid = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)
    density = model._model.values(shard, grid)
    density = density + [model._model.log_prior(theta) for theta in grid]
    weights = np.exp(density - density.max())
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    evidence = density.max() + np.log(weights.sum() * cell)
    weights /= weights.sum()
    mean = weights @ grid
    return mean, np.sqrt(weights @ (grid - mean) ** 2), evidence


def test_they_are_those_of_the_exact_posterior() -> None:
    """Also where clinics hardly differ: the posterior of the log deviation then has a long tail."""
    given = clinics(12, 12, seed=1)
    model = MixedModel(family="bernoulli").fit(*given)
    at_mode = MixedModel(family="bernoulli", approximation="laplace").fit(*given)
    mean, deviation, evidence = by_grid(model, *given)
    q = model._belief.q.parameters()
    np.testing.assert_allclose(np.sqrt(np.diag(q["covariance"])), deviation, rtol=0.05)
    assert np.abs((q["mean"] - mean) / deviation).max() < 0.05
    assert model.lower_bound_ == pytest.approx(evidence, abs=0.05)
    assert model.n_effective_draws_ > 500
    old = at_mode._belief.q.parameters()
    assert (
        np.abs((old["mean"] - mean) / deviation).max() > 0.2
    )  # what the mode's Gaussian gets wrong
    assert np.isnan(at_mode.n_effective_draws_)


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
@pytest.mark.parametrize("slopes", [(), ("x0",)])
def test_nodes_have_the_pooled_moments(family: str, slopes: tuple[str, ...], tmp_path: Any) -> None:
    x, y, groups = clinics(9, 10, seed=2)
    settings: dict[str, Any] = {"family": family, "random_slopes": slopes}
    pooled = MixedModel(**settings).fit(x, y, groups)
    own = [np.isin(groups, part) for part in np.array_split(np.arange(9), 3)]
    nodes = MixedModel(network=Network.chain(3), **settings).fit(
        [x[i] for i in own], [y[i] for i in own], [groups[i] for i in own]
    )
    assert nodes.posterior_.distance(pooled.posterior_) < 1e-9
    assert nodes.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-10)
    dmfvi.save(nodes, tmp_path / "model.npz")
    again = dmfvi.load(tmp_path / "model.npz")
    assert again.posterior_.distance(nodes.posterior_) == 0.0
    assert again.n_effective_draws_ == nodes.n_effective_draws_


def test_too_many_parameters_keep_the_mode_and_say_so() -> None:
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(90, 25)), np.arange(90) % 6
    y = rng.integers(0, 2, 90)
    with pytest.warns(UserWarning, match=r"at its mode \(27 parameters\).*leave columns out"):
        model = MixedModel(family="bernoulli").fit(x, y, groups)
    plain = MixedModel(family="bernoulli", approximation="laplace").fit(x, y, groups)
    np.testing.assert_array_equal(model.coef_, plain.coef_)


def test_points_fill_the_cube_evenly() -> None:
    points = even_points(2048, 6)
    np.testing.assert_allclose(points.mean(0), 0.5, atol=0.002)
    np.testing.assert_allclose(np.cov(points.T), np.eye(6) / 12, atol=0.002)


def test_a_posterior_near_a_gaussian_needs_no_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points around the mode give what the draws give, up to the noise of these."""
    given = clinics(2000, 10, seed=2, spread=1.0)
    near = MixedModel(family="bernoulli").fit(*given)
    assert np.isnan(near.n_effective_draws_)
    monkeypatch.setattr("dmfvi.models.moments.NEAR_GAUSSIAN", 0.0)
    drawn = MixedModel(family="bernoulli").fit(*given)
    assert drawn.n_effective_draws_ > 1000
    at_mode = MixedModel(family="bernoulli", approximation="laplace").fit(*given)
    one, other, mode = (m._belief.q.parameters() for m in (near, drawn, at_mode))
    deviation = np.sqrt(np.diag(other["covariance"]))
    np.testing.assert_allclose(one["mean"], other["mean"], atol=0.02 * deviation.max())
    np.testing.assert_allclose(np.sqrt(np.diag(one["covariance"])), deviation, rtol=0.02)
    assert near.lower_bound_ == pytest.approx(drawn.lower_bound_, abs=0.01)
    # the mode's Gaussian is further away, and its evidence too
    gap = np.abs(mode["mean"] - other["mean"]) / deviation
    assert gap.max() > 3 * (np.abs(one["mean"] - other["mean"]) / deviation).max()


def test_many_sums_of_few_draws_are_one_sum(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = clinics(12, 12, seed=1)
    one = MixedModel(family="bernoulli").fit(*given)
    monkeypatch.setattr("dmfvi.models.mixed.estimator.MOST_ROWS_AT_POINTS", 144 * 100)
    many = MixedModel(family="bernoulli", verbose=1, network=Network.chain(3)).fit(*given)
    assert many.posterior_.distance(one.posterior_) < 1e-9
    assert "weights of draws" in capsys.readouterr().err


@pytest.mark.parametrize(("per_group", "axes"), [(1, WIDE), (2, LESS_WIDE)])
def test_log_odds_of_tiny_groups_grow_with_the_effects(
    per_group: int, axes: tuple[np.ndarray, ...]
) -> None:
    """The more groups may differ, the larger the intercept in a group: draws around the mode alone miss that."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(30), per_group)
    x = rng.normal(size=(len(groups), 1))
    effects = rng.normal(size=30)[groups]
    y = (rng.random(len(groups)) < expit(0.5 * x[:, 0] + effects + 0.2)).astype(float)
    model = MixedModel(family="bernoulli").fit(x, y, groups)
    mean, deviation, _ = by_grid(model, x, y, groups, axes)
    q = model._belief.q.parameters()
    np.testing.assert_allclose(np.sqrt(np.diag(q["covariance"])), deviation, rtol=0.1)
    assert np.abs((q["mean"] - mean) / deviation).max() < 0.1
