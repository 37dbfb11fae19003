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
