"""Mixed models of every family: their marginal likelihood is the integral, with its derivatives, on one machine and over sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from dmfvi import GeneralizedLinearModel, MixedModel, Network
from dmfvi.models.mixed.model import DISPERSED, FAMILIES, GroupedShard, MixedEffects

LEVEL = {"gaussian": 0.4, "negative-binomial": 0.6, "gamma": 0.3}


def targets(family: str, eta: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any]:
    """Targets and trials drawn from the model."""
    n, chance = len(eta), 1.0 / (1.0 + np.exp(-eta))
    trials = rng.integers(0, 9, n) if family == "binomial" else None
    level = LEVEL.get(family, 1.0)
    y = {
        "gaussian": lambda: eta + np.sqrt(level) * rng.normal(size=n),
        "bernoulli": lambda: rng.random(n) < chance,
        "binomial": lambda: rng.binomial(trials, chance),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative-binomial": lambda: rng.poisson(np.exp(eta) * rng.gamma(1 / level, level, n)),
        "gamma": lambda: np.exp(eta) * rng.gamma(1 / level, level, n),
    }[family]()
    return y.astype(np.float64), trials


def log_density(family: str, y: Any, trials: Any, eta: Any, psi: float) -> Any:
    """By scipy, as an independent reference."""
    level = np.exp(psi)
    if family == "gaussian":
        return stats.norm.logpdf(y, eta, np.sqrt(level))
    if family in ("bernoulli", "binomial"):
        return stats.binom.logpmf(y, trials, 1.0 / (1.0 + np.exp(-eta)))
    if family == "poisson":
        return stats.poisson.logpmf(y, np.exp(eta))
    if family == "negative-binomial":
        return stats.nbinom.logpmf(y, 1.0 / level, 1.0 / (1.0 + level * np.exp(eta)))
    return stats.gamma.logpdf(y, 1.0 / level, scale=level * np.exp(eta))


def table(family: str, n: int = 160, n_groups: int = 11) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    groups = rng.integers(n_groups, size=n)
    x = rng.normal(size=(n, 2))
    eta = 0.7 * x[:, 0] - 0.4 * x[:, 1] + 0.8 * rng.normal(size=n_groups)[groups] + 0.3
    y, trials = targets(family, eta, rng)
    given = {"X": x, "y": y, "groups": groups}
    return given if trials is None else {**given, "trials": trials}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_likelihood_is_the_integral_over_the_effect(family: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(8, 1))
    y, trials = targets(family, 0.5 * x[:, 0] + 0.4, rng)
    trials = np.ones(8) if trials is None else trials.astype(float)
    psi = [np.log(LEVEL[family])] if family in DISPERSED else []
    theta = np.array([0.6, 0.2, *psi, -0.3])
    design = np.column_stack([x, np.ones(8)])
    given = np.log(y) if family == "gamma" else y
    group = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    shard = GroupedShard.of(design, np.ones((8, 1)), given, np.zeros(8), group, trials)
    model = MixedEffects(np.zeros(len(theta)), np.ones(len(theta)), family)
    expected = 0.0
    for g in range(3):
        own = group == g

        def density(z: float, own: Any = own) -> float:
            eta = design[own] @ theta[:2] + np.exp(theta[-1]) * z
            each = log_density(family, y[own], trials[own], eta, psi[0] if psi else 0.0)
            return float(np.exp(each.sum()) * stats.norm.pdf(z))

        expected += np.log(integrate.quad(density, -12, 12, epsabs=0, epsrel=1e-11, limit=400)[0])
    found = model.expand(shard, theta)
    np.testing.assert_allclose(found.value, expected, rtol=1e-8)
    np.testing.assert_allclose(model.values(shard, theta[None])[0], expected, rtol=1e-4)
    step = 1e-5
    for k, unit in enumerate(np.eye(len(theta))):
        ahead, back = (model.expand(shard, theta + s * step * unit) for s in (1.0, -1.0))
        slope = (ahead.value - back.value) / (2 * step)
        np.testing.assert_allclose(found.gradient[k], slope, rtol=1e-5, atol=1e-7)
        bend = -(ahead.gradient - back.gradient) / (2 * step)
        np.testing.assert_allclose(found.curvature[k], bend, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("slopes", [(), ("x0",)])
@pytest.mark.parametrize("across", [False, True], ids=["within", "across"])
@pytest.mark.parametrize("family", ["binomial", "negative-binomial", "gamma"])
def test_sites_have_the_pooled_posterior(family: Any, across: bool, slopes: Any) -> None:
    """Sites of very different sizes, with rows sorted by target; groups at one site, or at any."""
    given = table(family)
    order = np.argsort(given["y"] if across else given["groups"], kind="stable")
    given = {name: part[order] for name, part in given.items()}
    borders = np.flatnonzero(np.diff(given["groups"])) + 1
    cuts = [3, 20, 90] if across else [borders[0], borders[2], borders[6]]
    settings: dict[str, Any] = {"family": family, "random_slopes": slopes}
    pooled = MixedModel(**settings).fit(**given)
    parts = {name: np.split(part, cuts) for name, part in given.items()}
    nodes = MixedModel(**settings, across_sites=across, network=Network.star(4)).fit(**parts)
    assert pooled.converged_
    assert nodes.posterior_.distance(pooled.posterior_) < 1e-9
    assert nodes.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-10)
    low, high = nodes.predict_interval(given["X"])
    assert ((low < high) & np.isfinite(low) & np.isfinite(high)).all()
    assert nodes.score(given["X"], given["y"], trials=given.get("trials")) < 1.0


@pytest.mark.parametrize("family", ["binomial", "negative-binomial", "gamma"])
def test_they_find_what_made_the_data(family: Any) -> None:
    given = table(family, n=3000, n_groups=120)
    model = MixedModel(family=family).fit(**given)
    frame = model.summary_frame(level=0.999)
    truth = {"x0": 0.7, "x1": -0.4, "Intercept": 0.3, "sd of Intercept by group": 0.8}
    if family in LEVEL:
        truth["dispersion"] = LEVEL[family]
        assert model.dispersion_ == pytest.approx(LEVEL[family], rel=0.2)
    for term, value in truth.items():
        assert frame.lower[term] < value < frame.upper[term]


@pytest.mark.parametrize("family", ["binomial", "negative-binomial", "gamma"])
def test_without_groups_it_is_the_generalized_linear_model(family: Any) -> None:
    """Effects that the prior holds at zero leave the regression."""
    given = table(family)
    groups = given.pop("groups")
    plain = GeneralizedLinearModel(family=family).fit(**given)
    rng = np.random.default_rng(0)
    many = MixedModel(family=family, deviation_precision=1e6).fit(**given, groups=groups)
    none = MixedModel(family=family).fit(**given, groups=rng.permutation(len(groups)) % 2)
    sd = np.sqrt(np.diag(plain.coef_covariance_))[:2]
    assert (np.abs(none.coef_ - plain.coef_) < 0.3 * sd).all()
    # a deviation of exp(-1) that is not learned
    np.testing.assert_allclose(many.effects_std_, np.exp(-1.0), rtol=0.01)


def test_what_the_families_need_is_said() -> None:
    given = table("binomial")
    trials = given.pop("trials")
    with pytest.raises(ValueError, match="binomial mixed model needs trials"):
        MixedModel(family="binomial").fit(**given)
    with pytest.raises(ValueError, match="poisson mixed model takes no trials"):
        MixedModel(family="poisson").fit(**given, trials=trials)
    with pytest.raises(ValueError, match="y counts successes: row"):
        MixedModel(family="binomial").fit(**given, trials=np.zeros(len(trials)))
    with pytest.raises(ValueError, match="y of a gamma model are positive"):
        MixedModel(family="gamma").fit(**given)
    with pytest.raises(ValueError, match="y of a negative-binomial model are whole numbers"):
        MixedModel(family="negative-binomial").fit(**{**given, "y": given["y"] + 0.5})
    model = MixedModel(family="binomial").fit(**given, trials=trials)
    with pytest.raises(ValueError, match="score of a binomial mixed model needs trials"):
        model.score(given["X"], given["y"])
    with pytest.raises(ValueError, match="exposure goes with a log link"):
        model.predict(given["X"], exposure=trials + 1.0)


@pytest.mark.parametrize(
    ("family", "size"),
    [
        ("poisson", 1e8),
        ("negative-binomial", 1e8),
        ("negative-binomial", 1e12),
        ("binomial", 1e8),
        ("gamma", 1e-6),
    ],
)
def test_large_counts_and_little_noise_cost_no_digits(family: Any, size: float) -> None:
    """Sums of y log y would drown what a coefficient changes; size is of the counts, or the noise of log targets."""
    rng = np.random.default_rng(1)
    x, groups = rng.normal(size=(300, 1)), rng.integers(15, size=300)
    eta = 0.5 * x[:, 0] + 0.5 * rng.normal(size=15)[groups]
    more = {"trials": np.full(300, size)} if family == "binomial" else {}
    y = {
        "poisson": lambda: rng.poisson(size * np.exp(eta)),
        "negative-binomial": lambda: np.round(size * np.exp(eta) * rng.gamma(2.5, 0.4, 300)),
        "binomial": lambda: rng.binomial(int(size), 1.0 / (1.0 + np.exp(-eta))),
        "gamma": lambda: np.exp(eta + size * rng.normal(size=300)),
    }[family]()
    model = MixedModel(family=family, approximation="laplace").fit(x, y, groups, **more)
    assert model.converged_
    assert abs(model.coef_[0] - 0.5) < 4.0 * np.sqrt(model.coef_covariance_[0, 0])
    if family == "negative-binomial":
        assert model.dispersion_ == pytest.approx(0.4, rel=0.3)


def test_answers_are_those_of_the_fitted_family() -> None:
    given = table("binomial")
    model = MixedModel(family="binomial").fit(**given)
    before = model.predict(given["X"])
    model.set_params(family="gaussian")
    np.testing.assert_array_equal(model.predict(given["X"]), before)
    assert "binomial mixed model" in model.summary()
    for wrong in (-1.0, 0.5):
        with pytest.raises(ValueError, match="trials must be whole numbers from 0"):
            model.score(given["X"], given["y"], trials=np.full(len(before), wrong))
    with pytest.raises(ValueError, match="y counts successes"):
        model.score(given["X"], given["y"], trials=np.zeros(len(before)))


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "gaussian"])
@pytest.mark.parametrize("constant", [-3.0, 600.0])
def test_a_constant_in_the_offset_moves_the_intercept_only(family: Any, constant: float) -> None:
    given = table(family)
    offset = np.random.default_rng(0).normal(size=len(given["y"]))
    model = MixedModel(family=family).fit(**given, offset=offset)
    other = MixedModel(family=family).fit(**given, offset=offset + constant)
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-9)
    assert other.intercept_ == pytest.approx(model.intercept_ - constant, abs=1e-9)
    np.testing.assert_allclose(other.effects_std_, model.effects_std_, rtol=1e-9)
    assert other.lower_bound_ == pytest.approx(model.lower_bound_, abs=1e-8)
    new = [model.predict_interval(given["X"], offset=offset)]
    new.append(other.predict_interval(given["X"], offset=offset + constant))
    np.testing.assert_allclose(*new, rtol=1e-8)
