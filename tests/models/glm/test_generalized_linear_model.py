"""Generalized linear models: hard data, units, weights, and the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dmfvi import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    GeneralizedLinearModel,
    Network,
)
from dmfvi.models.glm.likelihoods import contrasts
from dmfvi.models.glm.targets import LINKS, average, response

FAMILIES = list(LINKS)
each = pytest.mark.parametrize("family", FAMILIES)


def rows(family: str, n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Rows, targets and what a row has besides."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    eta = x @ [0.8, -0.5, 0.3] + 0.2
    chance = 1 / (1 + np.exp(-eta))
    classes = np.digitize(eta + rng.logistic(size=n), [-1.0, 1.0])
    y = {
        "gaussian": eta + 0.5 * rng.normal(size=n),
        "student-t": eta + 0.5 * rng.standard_t(3, size=n),
        "bernoulli": (rng.random(n) < chance).astype(int),
        "binomial": rng.binomial(4, chance),
        "multinomial": classes,
        "ordinal": classes,
        "poisson": rng.poisson(np.exp(eta)),
        "negative-binomial": rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n)),
        "gamma": np.exp(eta) * rng.gamma(2.0, 0.5, n),
    }[family]
    return x, y, {"trials": np.full(n, 4.0)} if family == "binomial" else {}


def answer(model: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(getattr(model, "predict_proba", model.predict)(x))


@each
@pytest.mark.parametrize("network", [Network.ring(4), Network.star(4)], ids=lambda n: n.name)
def test_nodes_with_one_class_or_one_row_have_the_pooled_posterior(
    family: str, network: Network
) -> None:
    x, y, more = rows(family)
    order = np.argsort(y, kind="stable")
    parts = np.split(order, [1, 30, 90])
    pooled = GeneralizedLinearModel(family=family).fit(x, y, **more)
    model = GeneralizedLinearModel(family=family, network=network).fit(
        [x[i] for i in parts],
        [y[i] for i in parts],
        **{name: [value[i] for i in parts] for name, value in more.items()},
    )
    assert model.converged_
    assert max(q.distance(pooled.posterior_) for q in model.node_posteriors_) < 1e-9
    assert len({q.agreed.pack().tobytes() for q in model.node_posteriors_}) == 1
    assert model.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-9)


@each
@pytest.mark.parametrize(("factor", "offset"), [(1e-8, 1e8), (1e8, -1e8), (1e8, 0.0)])
def test_units_and_origins_of_columns_do_not_matter(
    family: str, factor: float, offset: float
) -> None:
    x, y, more = rows(family)
    moved = factor * (x + offset)
    rounded = moved / factor - offset  # what is left of the input
    plain = GeneralizedLinearModel(family=family).fit(rounded, y, **more)
    model = GeneralizedLinearModel(family=family).fit(moved, y, **more)
    deviation = np.sqrt(np.diagonal(plain.coef_covariance_, axis1=-2, axis2=-1))[..., :3]
    assert np.abs((factor * model.coef_ - plain.coef_) / deviation).max() < 1e-6
    covariance = factor**2 * model.coef_covariance_[..., :3, :3]
    np.testing.assert_allclose(
        covariance, plain.coef_covariance_[..., :3, :3], rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(answer(model, moved), answer(plain, rounded), rtol=1e-6, atol=1e-8)
    assert model.lower_bound_ == pytest.approx(plain.lower_bound_, abs=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e8])
def test_linear_regression_does_not_depend_on_the_origin(offset: float) -> None:
    x, y, _ = rows("gaussian")
    moved = x + offset
    plain = BayesianLinearRegression().fit(moved - offset, y)
    model = BayesianLinearRegression().fit(moved, y)
    deviation = np.sqrt(np.diag(plain.coef_covariance_))[:3]
    assert np.abs((model.coef_ - plain.coef_) / deviation).max() < 1e-9
    shown = moved @ model.coef_ + model.intercept_
    assert np.abs(shown - model.predict(moved)).max() < 1e-7 * y.std() * max(1.0, offset / 1e8)


@each
def test_constant_and_collinear_columns_have_a_proper_posterior(family: str) -> None:
    x, y, more = rows(family)
    odd = np.column_stack([x, x[:, 0], np.full(len(x), 7.0), np.zeros(len(x))])
    model = GeneralizedLinearModel(family=family).fit(odd, y, **more)
    assert model.converged_
    assert np.isfinite(answer(model, odd)).all()
    assert (np.linalg.eigvalsh(np.atleast_3d(model.coef_covariance_.T).T) > -1e-12).all()


@each
def test_collinear_columns_have_a_posterior_under_a_vague_prior(family: str) -> None:
    x, y, more = rows(family)
    alone = GeneralizedLinearModel(family=family, prior_precision=2e-10).fit(x, y, **more)
    model = GeneralizedLinearModel(family=family, prior_precision=1e-10)
    model.fit(np.hstack([x, x]), y, **more)
    assert model.converged_
    # the precision has a condition of 1e12, and coefficients three or four digits
    np.testing.assert_allclose(
        answer(model, np.hstack([x, x])), answer(alone, x), rtol=0.01, atol=0.02
    )


@pytest.mark.parametrize("family", ["poisson", "negative-binomial"])
def test_counts_that_are_all_zero(family: str) -> None:
    x, _, _ = rows(family)
    model = GeneralizedLinearModel(family=family).fit(x, np.zeros(len(x)))
    assert model.converged_
    assert np.median(model.predict(x)) < 0.1
    assert np.isfinite(model.predict(x)).all()
    assert (model.predict_interval(x)[0] >= 0).all()
    with pytest.raises(ValueError, match="flat prior"):
        GeneralizedLinearModel(family=family, intercept_precision=0).fit(x, np.zeros(len(x)))


@pytest.mark.parametrize("seed", [1, 3])
def test_zero_counts_have_a_posterior_under_the_vaguest_prior(seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(40, 2))
    answers = []
    for precision in (1e-2, 1e-6, 1e-10):
        settings: dict[str, Any] = {"family": "poisson", "prior_precision": precision}
        model = GeneralizedLinearModel(**settings).fit(x, np.zeros(40))
        at_nodes = GeneralizedLinearModel(**settings, network=Network.chain(3))
        at_nodes.fit(np.split(x, [1, 20]), np.split(np.zeros(40), [1, 20]))
        assert model.converged_
        np.testing.assert_allclose(at_nodes.coef_, model.coef_, rtol=1e-6)  # a thousand sweeps
        answers.append(model.coef_)
    # below a rate of zero the intercept's prior holds the coefficients, not their own
    np.testing.assert_allclose(answers[1], answers[2], rtol=1e-4)


def test_separable_classes_are_held_by_the_prior() -> None:
    x, _, _ = rows("bernoulli")
    model = BayesianLogisticRegression().fit(x, x[:, 0] > 0)
    assert model.converged_
    assert model.score(x, x[:, 0] > 0) > 0.98
    assert np.isfinite(model.coef_covariance_).all()


@pytest.mark.parametrize("family", ["gaussian", "student-t", "gamma"])
@pytest.mark.parametrize("noise_free", [lambda x: 3.0 * x[:, 0] + 1.0, lambda x: np.ones(len(x))])
def test_targets_without_noise(family: str, noise_free: Any) -> None:
    """Rounding may leave Student's t no proper scale: it is refused then, and not answered wrongly."""
    x, _, _ = rows("gaussian", 30)
    model, refused = GeneralizedLinearModel(family=family), ""
    y = np.exp(noise_free(x)) if family == "gamma" else noise_free(x)
    try:
        model.fit(x[:, :1], y)
    except ValueError as error:
        refused = str(error)
    if refused:
        assert family == "student-t"
        assert "no proper distribution" in refused
        assert "targets that are an exact function of the features" in refused
        return
    assert model.converged_
    np.testing.assert_allclose(model.predict(x[:, :1]), y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "gamma", "ordinal"])
def test_a_weight_of_two_is_two_rows(family: str) -> None:
    x, y, _ = rows(family, 60)
    weight = np.random.default_rng(1).integers(0, 3, 60)
    weight[[np.argmax(y == label) for label in np.unique(y)]] += 1
    weighted = GeneralizedLinearModel(family=family).fit(x, y, weight)
    repeated = GeneralizedLinearModel(family=family).fit(
        np.repeat(x, weight, axis=0), np.repeat(y, weight)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-7)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=1e-8)


def test_exposure_is_an_offset_and_its_unit_moves_the_intercept_only() -> None:
    x, y, _ = rows("poisson")
    time = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    days = BayesianPoissonRegression().fit(x, y, exposure=365.0 * time)
    years = BayesianPoissonRegression().fit(x, y, offset=np.log(time))
    np.testing.assert_allclose(days.coef_, years.coef_, rtol=1e-8)
    assert years.intercept_ - days.intercept_ == pytest.approx(np.log(365.0))
    np.testing.assert_allclose(
        days.predict(x, exposure=365.0 * time), years.predict(x, exposure=time), rtol=1e-8
    )


def test_trials_are_rows_of_one_trial() -> None:
    x, y, more = rows("binomial")
    counted = GeneralizedLinearModel(family="binomial").fit(x, y, **more)
    single = np.repeat(x, 4, axis=0)
    outcome = (np.tile(np.arange(4), len(y)) < np.repeat(y, 4)).astype(int)
    one_by_one = GeneralizedLinearModel(family="bernoulli").fit(single, outcome)
    weighted = GeneralizedLinearModel(family="binomial", prior_precision=1.0)
    assert np.abs(counted.coef_ - one_by_one.coef_[0]).max() < 0.02  # other units of the prior
    assert weighted.fit(x, y, **more).converged_


def test_a_learned_precision_shrinks_noise_columns() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 20))
    y = rng.random(80) < 0.5
    learned = BayesianLogisticRegression(prior_precision="learned").fit(x, y)
    fixed = BayesianLogisticRegression().fit(x, y)
    assert np.abs(learned.coef_).max() < 0.5 * np.abs(fixed.coef_).max()
    assert learned.lower_bound_ > fixed.lower_bound_


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("family", ["bernoulli", "binomial", "ordinal"])
def test_a_constant_in_the_offset_moves_the_intercept_only(family: str, link: Any) -> None:
    x, y, more = rows(family)
    offset = np.random.default_rng(1).normal(size=len(y))
    settings: dict[str, Any] = {"family": family, "link": link}
    here = GeneralizedLinearModel(**settings).fit(x, y, offset=offset, **more)
    parts = np.array_split(np.argsort(y), 3)
    there = GeneralizedLinearModel(network=Network.ring(3), **settings).fit(
        [x[i] for i in parts],
        [y[i] for i in parts],
        offset=[offset[i] + 1000.0 for i in parts],
        **{name: [value[i] for i in parts] for name, value in more.items()},
    )
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-8)
    assert there.lower_bound_ == pytest.approx(here.lower_bound_, abs=1e-7)
    np.testing.assert_allclose(there.intercept_ + 1000.0 * (family != "ordinal"), here.intercept_)
    kind = "predict_interval" if family == "binomial" else "predict_proba_interval"
    ends = getattr(there, kind)(x, offset=offset + 1000.0)
    np.testing.assert_allclose(ends, getattr(here, kind)(x, offset=offset), atol=1e-8)
    np.testing.assert_allclose(
        there.predict(x, offset=offset + 1000.0), here.predict(x, offset=offset)
    )
    if family == "ordinal":
        np.testing.assert_allclose(there.cutpoints_ - 1000.0, here.cutpoints_, atol=1e-8)
        np.testing.assert_allclose(there.decision_function(x), x @ here.coef_[0], atol=1e-8)


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_a_learned_precision_needs_tens_of_sweeps(link: str) -> None:
    """Where rows say little of it; with the precision of the last sweep it took 700 to more than 1000."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 10))
    eta = x @ np.linspace(0.8, -0.4, 10) + 0.3
    y = rng.random(30) < 1 / (1 + np.exp(-eta))
    settings: dict[str, Any] = {"family": "bernoulli", "link": link, "prior_precision": "learned"}
    pooled = GeneralizedLinearModel(max_iter=100, **settings).fit(x, y)
    assert pooled.converged_
    shape, rate = pooled._model.precision_posterior(pooled._belief.q)
    there = GeneralizedLinearModel(
        family="bernoulli",
        link=link,
        prior_precision=shape / rate / pooled._units.scale**-2.0,
    ).fit(x, y)
    np.testing.assert_allclose(there.coef_, pooled.coef_, rtol=1e-6)
    parts = [y, ~y]
    network = Network.chain(2)
    nodes = GeneralizedLinearModel(network=network, **settings)
    nodes.fit([x[i] for i in parts], [y[i] for i in parts])
    assert max(p.distance(pooled.posterior_) for p in nodes.node_posteriors_) < 1e-9


def test_the_old_bound_is_narrower() -> None:
    x, y, _ = rows("bernoulli")
    new = BayesianLogisticRegression().fit(x, y)
    old = BayesianLogisticRegression(approximation="polya-gamma").fit(x, y)
    ratio = np.diagonal(old.coef_covariance_[0]) / np.diagonal(new.coef_covariance_[0])
    assert (ratio < 0.95).all()
    assert old.lower_bound_ < new.lower_bound_
    with pytest.raises(ValueError, match="takes no offset"):
        BayesianLogisticRegression(approximation="polya-gamma").fit(x, y, np.full(len(y), 2.0))
    for table in (str(old.summary()), old.summary_html()):
        assert "intervals are too narrow" in table
    assert "too narrow" not in str(new.summary())


def test_softmax_does_not_depend_on_the_order_of_classes() -> None:
    x, y, _ = rows("multinomial")
    one = BayesianLogisticRegression().fit(x, y)
    other = BayesianLogisticRegression().fit(x, np.array([2, 0, 1])[y])
    np.testing.assert_allclose(one.coef_[[1, 2, 0]], other.coef_, atol=1e-5)
    np.testing.assert_allclose(one.coef_.sum(0), 0.0, atol=1e-12)
    turn = contrasts(4)
    np.testing.assert_allclose(turn.T @ turn, np.eye(3), atol=1e-15)


@each
def test_the_table_has_every_term(family: str) -> None:
    x, y, more = rows(family)
    model = GeneralizedLinearModel(family=family, network=Network.ring(3)).fit(x, y, **more)
    text = model.summary()
    assert "sites 3" in text
    assert f"n {len(y)}" in text
    table = model.coefficient_table()
    assert "x2" in text
    for row in table.rows:
        assert row.lower < row.estimate < row.upper
        if row.ratio is not None:
            assert row.ratio == pytest.approx(np.exp(row.estimate))
    assert table.html().count("<tr>") == len(table.rows) + 1
    wide = model.coefficient_table(0.99).rows[0]
    assert wide.upper > table.rows[0].upper


def test_the_table_as_a_frame_and_as_a_plot() -> None:
    pandas = pytest.importorskip("pandas")
    import matplotlib

    matplotlib.use("Agg")
    x, y, _ = rows("bernoulli")
    frame = pandas.DataFrame(x, columns=["age", "ISS", "GCS"])
    model = BayesianLogisticRegression().fit(frame, y)
    shown = model.summary_frame()
    assert list(shown.index) == ["age", "ISS", "GCS", "Intercept"]
    assert shown.loc["age", "ratio"] == pytest.approx(np.exp(model.coef_[0, 0]))
    axes = model.plot_forest(intercept=True)
    assert [label.get_text() for label in axes.get_yticklabels()][::-1] == list(shown.index)


@pytest.mark.parametrize(
    ("family", "y", "more", "words"),
    [
        ("poisson", [-1.0, 2.0], {}, "are counts"),
        ("negative-binomial", [0.5, 2.0], {}, "whole numbers"),
        ("gamma", [0.0, 2.0], {}, "are positive"),
        ("binomial", [1.0, 2.0], {}, "needs trials"),
        (
            "binomial",
            [1.0, 5.0],
            {"trials": [2.0, 2.0]},
            r"row 1 \(counted from 0\) has 5 of 2 trials",
        ),
        ("bernoulli", [0, 1], {"exposure": [1.0, 1.0]}, "takes no exposure"),
        ("poisson", [0, 1], {"exposure": [1.0, 0.0]}, "exposure must be positive"),
        ("poisson", [0, 1], {"offset": [1.0]}, "one finite number for each of 2 rows"),
        ("ordinal", [0, 1], {}, "use family bernoulli"),
    ],
)
def test_targets_that_cannot_be_are_refused(
    family: str, y: list[float], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        GeneralizedLinearModel(family=family).fit(np.eye(2), y, **more)


def test_three_labels_need_another_family() -> None:
    with pytest.raises(ValueError, match="multinomial or ordinal"):
        GeneralizedLinearModel(family="bernoulli").fit(np.eye(3), [0, 1, 2])
    with pytest.raises(ValueError, match="link of a poisson model must be one of"):
        GeneralizedLinearModel(family="poisson", link="logit").fit(np.eye(3), [0, 1, 2])


def test_words_as_counts_are_refused_with_the_families_that_take_them() -> None:
    with pytest.raises(ValueError, match=r"poisson model are numbers, received 'b'.*multinomial"):
        GeneralizedLinearModel(family="poisson").fit(np.ones((2, 1)), ["b", "c"])


@pytest.mark.parametrize("family", ["poisson", "negative-binomial", "gamma"])
@pytest.mark.parametrize("size", [1e3, -1e5])
def test_offsets_whose_exponential_is_no_number_are_refused(family: str, size: float) -> None:
    x, y, _ = rows(family)
    with pytest.raises(ValueError, match=r"offset .* received .*: its exponential is no finite"):
        GeneralizedLinearModel(family=family).fit(x, y, offset=np.full(len(y), size))


def test_one_number_for_all_rows_is_refused_by_name() -> None:
    x, y, _ = rows("poisson")
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y)
    message = r"offset must be an array .* received .*1\.0"
    with pytest.raises(ValueError, match=message):
        BayesianPoissonRegression().fit(x, y, offset=1.0)
    with pytest.raises(ValueError, match=message):
        BayesianPoissonRegression(formula="y ~ a").fit(frame, offset=1.0)


@pytest.mark.parametrize("family", ["bernoulli", "ordinal"])
def test_an_offset_counts_in_predictions_of_classes(family: str) -> None:
    """An offset of x.b is b more in the coefficients."""
    x, y, _ = rows(family)
    model = GeneralizedLinearModel(family=family, prior_precision=1e-8, intercept_precision=1e-8)
    plain, moved = (model.__class__(**model.get_params()) for _ in range(2))
    plain.fit(x, y)
    offset = x @ [0.5, 0.0, -0.4]
    moved.fit(x, y, offset=offset)
    np.testing.assert_allclose(moved.coef_[0] + [0.5, 0.0, -0.4], plain.coef_[0], atol=1e-6)
    for method in ("predict_proba", "predict", "decision_function"):
        found = getattr(moved, method)(x, offset=offset)
        np.testing.assert_allclose(found, getattr(plain, method)(x), atol=1e-5)
    assert moved.score(x, y, offset=offset) == plain.score(x, y)
    low = moved.predict_proba_interval(x, offset=offset)[0]
    np.testing.assert_allclose(low, plain.predict_proba_interval(x)[0], atol=1e-5)
    one, other = (m.sample(x, 3, **more) for m, more in ((moved, {"offset": offset}), (plain, {})))
    assert (one == other).mean() > 0.98
    parts = moved.predict_proba([x[:40], x[40:]], offset=[offset[:40], offset[40:]])
    np.testing.assert_allclose(np.concatenate(parts), moved.predict_proba(x, offset=offset))


@pytest.mark.parametrize("family", ["bernoulli", "multinomial", "ordinal"])
def test_intervals_of_probabilities_are_quantiles_of_the_posterior(family: str) -> None:
    x, y, _ = rows(family)
    model = GeneralizedLinearModel(family=family).fit(x, y)
    low, high = model.predict_proba_interval(x[:7], level=0.8)
    draws = (
        np.concatenate(
            list(model._drawn_chances(x[:7], np.random.default_rng(5), 20_000, None)), axis=1
        )
        if family != "bernoulli"
        else bernoulli_draws(model, x[:7])
    )
    np.testing.assert_allclose(draws.sum(2), 1.0, atol=1e-12)
    expected = np.quantile(draws, [0.1, 0.9], axis=0)
    np.testing.assert_allclose([low, high], expected, atol=0.01)
    np.testing.assert_allclose(draws.mean(0), model.predict_proba(x[:7]), atol=0.005)


def bernoulli_draws(model: Any, x: np.ndarray) -> np.ndarray:
    theta = model.posterior_.sample(np.random.default_rng(5), 20_000)
    chance = 1 / (1 + np.exp(-(theta[:, :-1] @ x.T + theta[:, -1:])))
    return np.stack([1 - chance, chance], axis=2)


@each
def test_intervals_of_targets_do_not_depend_on_the_blocks(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by blocks of rows; the same parameters are drawn for all of them."""
    x, y, more = rows(family)
    model = GeneralizedLinearModel(family=family).fit(x, y, **more)
    ask = (
        model.predict_proba_interval
        if hasattr(model, "predict_proba")
        else lambda rows: model.predict_interval(rows, of="target")
    )
    whole = np.array(ask(x))
    monkeypatch.setattr("dmfvi.models.glm.prediction.LARGEST_BLOCK", 4000 * 50)
    spread = whole[1] - whole[0]
    one = 1.0 if family in ("poisson", "negative-binomial", "binomial") else 0.0  # whole numbers
    assert np.all(np.abs(np.array(ask(x)) - whole) <= 0.15 * spread + one)


def test_the_table_has_the_noise_in_the_targets_units() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = 1000.0 + 50.0 * (x[:, 0] + 0.5 * rng.normal(size=400))
    for model in (BayesianLinearRegression(), GeneralizedLinearModel(family="gaussian")):
        row = model.fit(x, y).coefficient_table().rows[-1]
        assert row.term == "sd of noise"
        assert row.lower < row.estimate < row.upper
        assert row.estimate == pytest.approx(25.0, rel=0.1)
        assert row.sd == pytest.approx(25.0 / np.sqrt(800), rel=0.15)
    many = BayesianLinearRegression().fit(*(np.tile(a, (30, 1)[: a.ndim]) for a in (x, y)))
    one = many.coefficient_table().rows[-1]
    assert one.sd == pytest.approx(one.estimate / np.sqrt(2 * 12_000), rel=1e-3)


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("mean", "variance"), [(0.3, 0.5), (-2.0, 4.1), (1.0, 400.0), (9.0, 1e4)])
def test_averages_of_probabilities_are_exact_for_every_variance(
    link: str, power: int, mean: float, variance: float
) -> None:
    z = np.linspace(-12.0, 12.0, 400_001)
    weights = np.exp(-0.5 * z**2)
    exact = weights @ response(link, mean + z * np.sqrt(variance)) ** power / weights.sum()
    made = average(link, power, np.array([mean]), np.array([variance]))[0]
    assert made == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_under_a_wide_posterior(classes: int) -> None:
    """More columns than rows: linear predictors have deviations of several units."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 60))
    y = np.digitize(2.0 * x[:, 0], [0.0, 1.5][: classes - 1])
    model = BayesianLogisticRegression(prior_precision=0.5, tol=1e-4).fit(x, y)
    new = 2.0 * rng.normal(size=(20, 60))
    if classes == 2:
        draws = bernoulli_draws(model, new)
    else:
        drawn = model._drawn_chances(new, np.random.default_rng(1), 20_000, None)
        draws = np.concatenate(list(drawn), axis=1)
    error = model.predict_proba(new) - draws.mean(0)
    assert np.abs(error).max() < 4.0 * draws.std(0).max() / np.sqrt(20_000) + 0.003


@pytest.mark.parametrize("precision", [1e-2, 1e-6])
def test_the_bound_of_separable_classes_is_a_bound(precision: float) -> None:
    """E_q[log likelihood] by direct integration, where predictors have deviations of hundreds."""
    x = np.concatenate([-np.linspace(0.5, 3.0, 5), np.linspace(0.5, 3.0, 5)])[:, None]
    y = (x[:, 0] > 0).astype(int)
    model = BayesianLogisticRegression(prior_precision=precision, intercept_precision=0.01)
    model.fit(x, y)
    assert model.converged_
    q, design = model._belief_normal.parameters(), model._design(x)
    z = np.linspace(-10.0, 10.0, 200_001)
    weights = np.exp(-0.5 * z**2)
    value = 0.0
    for row, label in zip(design, y, strict=True):
        eta = row @ q["mean"] + z * np.sqrt(row @ q["covariance"] @ row)
        value += weights @ -np.logaddexp(0.0, eta if label == 0 else -eta) / weights.sum()
    exact = value + model._model.prior_gain(model._belief_normal)
    assert model.lower_bound_ == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("size", [3.0, 1e3, 1e6, 1e9, 1e12])
def test_negative_binomial_counts_of_every_size_keep_their_digits(size: float) -> None:
    """Sorted rows over nodes, and the log likelihood of scipy at the posterior mean."""
    from scipy.stats import nbinom

    from dmfvi.models.glm.likelihoods import GlmShard, SharedParameters

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = rng.poisson(size * np.exp(0.5 * x[:, 0]) * rng.gamma(2.0, 0.5, 60)).astype(float)
    pooled = GeneralizedLinearModel(family="negative-binomial").fit(x, y)
    order = np.argsort(y)
    nodes = GeneralizedLinearModel(family="negative-binomial", network=Network.star(4))
    nodes.fit(x[order], y[order])
    assert nodes.n_iter_ == pooled.n_iter_ < 40
    assert nodes.posterior_.distance(pooled.posterior_) < 1e-11
    likelihood = SharedParameters("negative-binomial")
    ones = np.ones(60)
    eta, alpha = np.full(60, np.log(size) + 0.1), 0.5
    design = GlmShard(np.zeros((60, 1)), y, eta, ones, ones)
    found = likelihood.sums(design, np.array([0.0, np.log(alpha)]), None)
    found_value = found.value + likelihood.constant(y, ones, ones)
    r = 1 / alpha
    exact = nbinom.logpmf(y, r, r / (r + np.exp(eta))).sum()
    assert found_value == pytest.approx(exact, rel=1e-9 if size < 1e9 else 1e-4)
    # derivative in the log dispersion by differences of the value
    steps = [
        likelihood.sums(design, np.array([0.0, np.log(alpha) + h]), None) for h in (-1e-4, 1e-4)
    ]
    slope = found.linear[1] - found.precision[1] @ [0.0, np.log(alpha)]
    assert slope == pytest.approx((steps[1].value - steps[0].value) / 2e-4, rel=1e-5)
    slopes = [
        part.linear[1] - part.precision[1] @ [0.0, np.log(alpha) + h]
        for part, h in zip(steps, (-1e-4, 1e-4), strict=True)
    ]
    assert -found.precision[1, 1] == pytest.approx((slopes[1] - slopes[0]) / 2e-4, rel=1e-5)


@pytest.mark.parametrize("precision", [1.0, 0.01, 0.001])
def test_separable_classes_of_three_are_held_by_weak_priors(precision: float) -> None:
    """Rows have wide predictors then: steps follow the bound of the points that are used."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = np.digitize(x[:, 0], [-0.3, 0.3])
    model = GeneralizedLinearModel(family="multinomial", prior_precision=precision, max_iter=500)
    model.fit(x, y)
    assert model.converged_
    assert model.score(x, y) > 0.9
    nodes = GeneralizedLinearModel(
        family="multinomial", prior_precision=precision, max_iter=500, network=Network.chain(3)
    ).fit([x[y == k] for k in range(3)], [y[y == k] for k in range(3)])
    assert nodes.posterior_.distance(model.posterior_) < 1e-9


def test_a_posterior_without_bounds_is_explained_by_the_family() -> None:
    x, y, _ = rows("bernoulli")
    for family, reason in (("bernoulli", "columns separate the targets"), ("gaussian", "no noise")):
        model = GeneralizedLinearModel(family=family).fit(x, y)
        assert reason in model._model.improper_hint
