"""Laws that every exponential family obeys, run over the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dmfvi.families import FAMILIES, Family, Gamma, MultivariateNormal, Normal, Product


def spd(rng: np.random.Generator, *shape: int, p: int = 3) -> np.ndarray:
    root = rng.standard_normal((*shape, p, p + 2))
    return root @ np.swapaxes(root, -1, -2) / p + 0.3 * np.eye(p)


#: one line per family: a random array of members of shape (2, 3)
MAKERS: dict[str, Callable[[np.random.Generator], Family]] = {
    "Normal": lambda r: FAMILIES["Normal"].from_parameters(
        r.standard_normal((2, 3)), r.gamma(2, size=(2, 3)) + 0.1
    ),
    "MultivariateNormal": lambda r: FAMILIES["MultivariateNormal"].from_parameters(
        r.standard_normal((2, 3, 3)), spd(r, 2, 3)
    ),
    "Gamma": lambda r: FAMILIES["Gamma"].from_parameters(
        r.gamma(2, size=(2, 3)) + 0.2, r.gamma(2, size=(2, 3)) + 0.2
    ),
    "Beta": lambda r: FAMILIES["Beta"].from_parameters(
        r.gamma(2, size=(2, 3)) + 0.3, r.gamma(2, size=(2, 3)) + 0.3
    ),
    "Bernoulli": lambda r: FAMILIES["Bernoulli"].from_parameters(r.uniform(0.1, 0.9, (2, 3))),
    "Categorical": lambda r: FAMILIES["Categorical"].from_parameters(
        r.dirichlet([2.0, 3.0, 1.0, 2.0], size=(2, 3))
    ),
    "Dirichlet": lambda r: FAMILIES["Dirichlet"].from_parameters(r.gamma(2, size=(2, 3, 4)) + 0.3),
    "Wishart": lambda r: FAMILIES["Wishart"].from_parameters(
        r.uniform(3.5, 9, (2, 3)), spd(r, 2, 3)
    ),
    "NormalGamma": lambda r: FAMILIES["NormalGamma"].from_parameters(
        r.standard_normal((2, 3, 3)),
        spd(r, 2, 3),
        r.gamma(2, size=(2, 3)) + 0.5,
        r.gamma(2, size=(2, 3)) + 0.2,
    ),
    "NormalWishart": lambda r: FAMILIES["NormalWishart"].from_parameters(
        r.standard_normal((2, 3, 3)),
        r.gamma(2, size=(2, 3)) + 0.2,
        r.uniform(3.5, 9, (2, 3)),
        spd(r, 2, 3),
    ),
}


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest, rng: np.random.Generator) -> Family:
    return MAKERS[request.param](rng)


def other_of(family: Family, seed: int = 7) -> Any:
    return MAKERS[type(family).__name__](np.random.default_rng(seed))


def test_every_family_is_enrolled() -> None:
    assert set(MAKERS) == set(FAMILIES)


def test_mean_is_the_gradient_of_the_log_partition(family: Family) -> None:
    direction = [b - a for a, b in zip(family.natural, other_of(family).natural, strict=True)]
    step = 1e-5
    slope = (
        family.step(direction, step).log_partition() - family.step(direction, -step).log_partition()
    ) / (2 * step)
    expected = family.inner(direction, family.mean())
    np.testing.assert_allclose(slope, expected, rtol=2e-6, atol=1e-7)


def test_natural_to_mean_and_back(family: Family) -> None:
    again = type(family).from_mean(*family.mean())
    for a, b in zip(again.natural, family.natural, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


def test_ordinary_parameters_and_back(family: Family) -> None:
    again = type(family).from_parameters(**family.parameters())
    for a, b in zip(again.natural, family.natural, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_pack_and_back(family: Family) -> None:
    vector = family.pack()
    assert vector.shape == (family.packed_size,)
    for a, b in zip(family.unpack(vector).natural, family.natural, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="unpacks"):
        family.unpack(vector[:-1])


def test_kl_is_zero_at_itself_and_positive_elsewhere(family: Family) -> None:
    np.testing.assert_allclose(family.kl(family), 0.0, atol=1e-12)
    assert (family.kl(other_of(family)) > 1e-4).all()


def test_kl_is_the_expected_log_ratio(family: Family) -> None:
    other = other_of(family)
    draws = family.sample(np.random.default_rng(3), 40_000)
    ratio = family.log_pdf(draws) - other.log_pdf(draws)
    error = 6 * ratio.std(0) / np.sqrt(len(ratio)) + 1e-3
    assert (np.abs(ratio.mean(0) - family.kl(other)) < error).all()


def test_entropy_is_minus_the_expected_log_density(family: Family) -> None:
    log = family.log_pdf(family.sample(np.random.default_rng(4), 40_000))
    error = 6 * log.std(0) / np.sqrt(len(log)) + 1e-3
    assert (np.abs(log.mean(0) + family.entropy()) < error).all()


def test_samples_have_the_mean_parameters(family: Family) -> None:
    draws = family.sample(np.random.default_rng(5), 60_000)
    for sample, mean in zip(family.statistics(draws), family.mean(), strict=True):
        error = 6 * sample.std(0) / np.sqrt(len(sample)) + 1e-3
        assert (np.abs(sample.mean(0) - mean) < error).all()


def test_one_sample_has_the_batch_shape(family: Family) -> None:
    draw = family.sample(np.random.default_rng(6))
    first = draw[0] if isinstance(draw, tuple) else draw
    assert first.shape[:2] == family.batch_shape


def test_largest_step_ends_at_the_edge_of_the_domain(family: Family) -> None:
    assert family.in_domain().all()
    direction = [-3.0 * np.abs(a) for a in family.natural]
    other = other_of(family)
    for along in (
        direction,
        [a - 2 * b for a, b in zip(family.natural, other.natural, strict=True)],
    ):
        reach = family.max_step(along)
        assert (reach > 0).all()
        nearest = float(np.min(reach))
        if np.isinf(nearest):
            assert family.step(along, 1e3).in_domain().all()
            continue
        assert family.step(along, 0.999 * nearest).in_domain().all()
        outside = family.step(along, 1.001 * nearest)
        with np.errstate(all="ignore"):
            assert not outside.in_domain().all()


def test_wrong_number_of_parameters_says_so(family: Family) -> None:
    with pytest.raises(ValueError, match="natural parameters"):
        type(family)(*family.natural, np.zeros(3))


# -- against scipy.stats --------------------------------------------------------------------

SCIPY: dict[str, Callable[[dict[str, Any], Any], float]] = {
    "Normal": lambda p, x: stats.norm(p["mean"], np.sqrt(p["variance"])).logpdf(x),
    "MultivariateNormal": lambda p, x: stats.multivariate_normal(p["mean"], p["covariance"]).logpdf(
        x
    ),
    "Gamma": lambda p, x: stats.gamma(p["shape"], scale=1 / p["rate"]).logpdf(x),
    "Beta": lambda p, x: stats.beta(p["successes"], p["failures"]).logpdf(x),
    "Bernoulli": lambda p, x: stats.bernoulli(p["probability"]).logpmf(int(x)),
    "Categorical": lambda p, x: np.log(p["probabilities"][int(x)]),
    "Dirichlet": lambda p, x: stats.dirichlet(p["concentration"]).logpdf(x),
    "Wishart": lambda p, x: stats.wishart(float(p["dof"]), p["scale"]).logpdf(x),
    "NormalGamma": lambda p, x: (
        stats.gamma(p["shape"], scale=1 / p["rate"]).logpdf(x[1])
        + stats.multivariate_normal(p["mean"], np.linalg.inv(x[1] * p["precision"])).logpdf(x[0])
    ),
    "NormalWishart": lambda p, x: (
        stats.wishart(float(p["dof"]), p["scale"]).logpdf(x[1])
        + stats.multivariate_normal(p["mean"], np.linalg.inv(p["confidence"] * x[1])).logpdf(x[0])
    ),
}


def test_log_density_equals_scipy(family: Family) -> None:
    draw = family.sample(np.random.default_rng(8))
    ours = family.log_pdf(draw)
    p = family.parameters()
    for index in np.ndindex(2, 3):
        one = tuple(part[index] for part in draw) if isinstance(draw, tuple) else draw[index]
        expected = SCIPY[type(family).__name__]({k: v[index] for k, v in p.items()}, one)
        np.testing.assert_allclose(ours[index], expected, rtol=1e-9, atol=1e-10)


def test_entropy_equals_scipy() -> None:
    np.testing.assert_allclose(
        Gamma.from_parameters(3.0, 2.0).entropy(), stats.gamma(3.0, scale=0.5).entropy()
    )
    cov = spd(np.random.default_rng(0))
    np.testing.assert_allclose(
        MultivariateNormal.from_parameters(np.zeros(3), cov).entropy(),
        stats.multivariate_normal(np.zeros(3), cov).entropy(),
    )


# -- products ---------------------------------------------------------------------------------


def test_product_adds_up_its_blocks() -> None:
    rng = np.random.default_rng(0)
    one = Product(rows=MAKERS["MultivariateNormal"](rng), noise=Gamma.from_parameters(2.0, 3.0))
    two = Product(rows=MAKERS["MultivariateNormal"](rng), noise=Gamma.from_parameters(4.0, 1.0))
    assert one.kl(two) == pytest.approx(
        one["rows"].kl(two["rows"]).sum() + float(one["noise"].kl(two["noise"]))
    )
    np.testing.assert_array_equal(one.unpack(one.pack()).pack(), one.pack())
    assert one.in_domain()
    draw = one.sample(rng)
    assert one.log_pdf(draw) == pytest.approx(
        one["rows"].log_pdf(draw["rows"]).sum() + float(one["noise"].log_pdf(draw["noise"]))
    )
    with pytest.raises(ValueError, match="do not match"):
        one.kl(Product(noise=Gamma.from_parameters(1.0, 1.0)))


def test_batch_shapes_broadcast_or_say_why_not() -> None:
    assert Normal(np.zeros((2, 1)), -np.ones(3)).batch_shape == (2, 3)
    with pytest.raises(ValueError, match="broadcast"):
        Normal(np.zeros(2), -np.ones(3))


# -- for people -------------------------------------------------------------------------------


def parts(value: Any) -> list[np.ndarray]:
    """One array per variable of a value."""
    if isinstance(value, dict):
        return [part for each in value.values() for part in parts(each)]
    return [np.asarray(v) for v in value] if isinstance(value, tuple) else [np.asarray(value)]


def values_of(family: Family, n: int) -> list[np.ndarray]:
    """Draws; of classes their indicators."""
    draws = family.sample(n, random_state=0)
    if type(family).__name__ == "Categorical":
        return [np.eye(family.parameters()["probabilities"].shape[-1])[draws]]
    return parts(draws)


def test_mean_value_and_variance_are_those_of_samples(family: Family) -> None:
    n = 40_000
    for draws, mean, variance in zip(
        values_of(family, n), parts(family.mean_value()), parts(family.variance()), strict=True
    ):
        assert mean.shape == variance.shape == draws.shape[1:]
        known = np.isfinite(variance)
        error = np.abs(draws.mean(0) - mean)[known]
        assert (error <= 6 * np.sqrt(variance[known] / n)).all()
        spread = draws.var(0)[known]
        # heavy tails: the fourth moment of the draws says how exact their variance is
        fourth = ((draws - draws.mean(0)) ** 4).mean(0)[known]
        off = np.abs(spread - variance[known])
        assert np.median(off / np.sqrt(fourth / n)) < 2.0


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_hold_what_they_say(family: Family, level: float) -> None:
    if type(family).__name__ in ("Categorical", "Wishart", "NormalWishart"):
        with pytest.raises(ValueError, match=r"no quantiles|no closed form"):
            family.interval(level)
        return
    n = 20_000
    low, high = family.interval(level)
    for draws, a, b in zip(values_of(family, n), parts(low), parts(high), strict=True):
        inside = ((draws >= a) & (draws <= b)).mean(0)
        if type(family).__name__ == "Bernoulli":
            assert (inside >= level - 0.02).all()
        else:
            assert np.abs(inside - level).max() < 0.025


def test_samples_follow_from_their_seed(family: Family) -> None:
    first, again = (parts(family.sample(4, random_state=1)) for _ in range(2))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
        assert len(a) == 4
    assert parts(family.sample(random_state=1))[0].shape == first[0].shape[1:]
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match="n must be a whole number"):
            family.sample(wrong)
    with pytest.raises(ValueError, match="level must lie"):
        family.interval(1.0)


def test_parameters_are_seen(family: Family) -> None:
    shown = repr(family)
    assert shown.startswith(type(family).__name__)
    assert all(f"{name}=" in shown for name in family.parameters())
    assert "\n" not in shown
    assert "batch_shape=(2, 3)" in shown


def test_a_product_speaks_by_name() -> None:
    made = Product(rate=Gamma.from_parameters(3.0, 2.0), place=Normal.from_parameters(1.0, 4.0))
    assert made.mean_value() == {"rate": 1.5, "place": 1.0}
    assert made.variance() == {"rate": 0.75, "place": 4.0}
    low, high = made.interval(0.9)
    assert low["place"] == pytest.approx(1 - 2 * stats.norm.ppf(0.95))
    assert high["rate"] == pytest.approx(stats.gamma.ppf(0.95, 3, scale=0.5))
    assert repr(Gamma.from_parameters(3.0, 2.0)) == "Gamma(shape=3., rate=2.)"


@pytest.mark.parametrize("probability", [1.5, -0.1, float("nan"), "half"])
def test_quantiles_of_what_is_no_probability_are_refused(probability: Any) -> None:
    q = Gamma.from_parameters([2.0, 3.0], [1.0, 4.0])
    for each in (q, Product(rate=q, level=Normal.from_parameters(0.0, 1.0))):
        with pytest.raises(ValueError, match=r"probability must lie in \[0, 1\], received"):
            each.quantile(probability)
    np.testing.assert_array_equal(q.quantile(0.0), [0.0, 0.0])
