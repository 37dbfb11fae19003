"""Mixed models: sites have the pooled posterior, and with flat priors it is statsmodels' maximum likelihood."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import dmfvi
from dmfvi import MixedModel, Network

FLAT = {"prior_precision": 1e-10, "intercept_precision": 1e-10, "deviation_precision": 1e-10}
#: moments of the posterior are tested in test_moments.py
at_mode = partial(MixedModel, approximation="laplace")
NETWORKS = [Network.ring(4), Network(nx.lollipop_graph(3, 1), "lollipop")]


def table(family: str = "gaussian", seed: int = 1) -> pd.DataFrame:
    """Twenty groups, the first with one row."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(20), [1, *rng.integers(4, 16, 19)])
    n = len(group)
    x = rng.normal(size=n) + 2
    eta = 0.5 * x - 1.0 + 0.7 * rng.normal(size=20)[group] + 0.4 * rng.normal(size=20)[group] * x
    y = {
        "gaussian": eta + 0.6 * rng.normal(size=n),
        "bernoulli": (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": rng.poisson(np.exp(np.minimum(eta, 3.0))).astype(float),
    }[family]
    return pd.DataFrame({"x": x, "sex": rng.choice(["f", "m"], n), "clinic": group, "y": y})


def sites(whole: pd.DataFrame) -> list[pd.DataFrame]:
    """Groups sorted by their mean target: the first site has the group with one row only."""
    means = whole[whole.clinic > 0].groupby("clinic").y.mean().sort_values().index.to_numpy()
    return [whole[whole.clinic.isin(own)] for own in ([0], means[:3], means[3:10], means[10:])]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
@pytest.mark.parametrize("slopes", [(), ("x",)])
def test_sites_have_the_pooled_posterior(
    family: Any, slopes: tuple[str, ...], network: Network
) -> None:
    whole = table(family)
    settings: dict[str, Any] = {
        "formula": "y ~ x + C(sex)",
        "family": family,
        "random_slopes": slopes,
    }
    pooled = at_mode(**settings).fit(whole, groups="clinic")
    model = at_mode(**settings, network=network).fit(sites(whole), groups="clinic")
    assert max(q.distance(pooled.posterior_) for q in model.node_posteriors_) < 1e-9
    assert model.n_groups_ == pooled.n_groups_ == 20
    np.testing.assert_allclose(model.predict(whole), pooled.predict(whole), rtol=1e-9)


@pytest.mark.parametrize("slopes", [(), ("x",)])
def test_flat_priors_give_the_maximum_likelihood_of_statsmodels(slopes: tuple[str, ...]) -> None:
    whole = table()
    model = MixedModel(formula="y ~ x", random_slopes=slopes, approximation="laplace", **FLAT).fit(
        whole, groups="clinic"
    )
    more = {"re_formula": "~x"} if slopes else {}
    theirs = smf.mixedlm("y ~ x", whole, groups=whole.clinic, **more).fit(reml=False)
    frame = model.summary_frame()
    for term in ("x", "Intercept"):
        assert abs(frame.estimate[term] - theirs.params[term]) < 0.01 * theirs.bse[term]
    theta = model._model.posterior(model._belief).parameters()["mean"]
    at_mode = np.square(model._effect_units() @ model._model.factor(theta)).sum(1)
    np.testing.assert_allclose(at_mode, np.diag(theirs.cov_re), rtol=0.01)
    np.testing.assert_allclose(model.noise_variance_, theirs.scale, rtol=0.005)
    own = model.random_effects()
    for clinic, effect in theirs.random_effects.items():
        np.testing.assert_allclose(own[clinic], effect.to_numpy(), atol=0.01)


def test_one_array_is_cut_between_groups() -> None:
    whole = table()
    x = whole[["x"]].to_numpy()
    pooled = at_mode().fit(x, whole.y, whole.clinic)
    mixed_up = np.random.default_rng(0).permutation(len(x))
    model = at_mode(network=Network.ring(5)).fit(
        x[mixed_up], whole.y.to_numpy()[mixed_up], whole.clinic.to_numpy()[mixed_up]
    )
    assert model.posterior_.distance(pooled.posterior_) < 1e-9
    with pytest.raises(ValueError, match="20 groups cannot be split over 21 nodes"):
        at_mode(network=Network.ring(21)).fit(x, whole.y, whole.clinic)


def test_units_do_not_matter() -> None:
    whole = table()
    plain = MixedModel(random_slopes=("x0",)).fit(whole[["x"]].to_numpy(), whole.y, whole.clinic)
    far = MixedModel(random_slopes=("x0",)).fit(
        1e4 * whole[["x"]].to_numpy() + 1e7, 1e-3 * whole.y + 5.0, whole.clinic
    )
    np.testing.assert_allclose(far.coef_ * 1e7, plain.coef_, rtol=1e-6)
    np.testing.assert_allclose(far.effects_std_[1] * 1e7, plain.effects_std_[1], rtol=1e-6)


def test_groups_without_effects_and_separated_targets_have_a_proper_posterior() -> None:
    rng = np.random.default_rng(0)
    x, group = rng.normal(size=(60, 1)), np.arange(60) % 6
    for family, y in (
        ("gaussian", x[:, 0] + 0.1 * rng.normal(size=60)),
        ("bernoulli", (x[:, 0] > 0).astype(float)),
        ("bernoulli", np.ones(60)),
        ("poisson", np.zeros(60)),
    ):
        model = MixedModel(family=family).fit(x, y, group)
        assert model.converged_
        assert np.isfinite([*model.coef_, *model.effects_std_]).all()
        assert (np.diag(model.coef_covariance_) > 0).all()


def test_effects_of_groups_stay_out_of_files(tmp_path: Path) -> None:
    whole = table("poisson").assign(years=1.5)
    model = MixedModel(formula="y ~ x + C(sex)", family="poisson").fit(
        whole, groups="clinic", exposure="years"
    )
    assert len(model.random_effects()) == 20
    loaded = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    assert loaded.summary() == model.summary()
    np.testing.assert_array_equal(
        loaded.predict(whole, exposure="years"), model.predict(whole, exposure="years")
    )
    with pytest.raises(ValueError, match="not in files"):
        loaded.random_effects()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "cauchy"}, "family must be one of"),
        ({"random_slopes": ("z",)}, "none of the terms"),
        ({"random_slopes": ("a", "b", "c")}, "2 at most"),
        ({"random_slopes": ("x", "x")}, "random_slopes names a term twice"),
        ({"random_slopes": "age"}, r"names 'age', which is none"),
        ({"family": "bernoulli"}, "are 0 and 1"),
        ({"deviation_precision": 0.0}, "deviation_precision must be positive"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MixedModel(formula="y ~ x", **settings).fit(table(), groups="clinic")


NOT_A_LABEL = [None, np.nan, pd.NA, pd.NaT]


@pytest.mark.parametrize("gap", NOT_A_LABEL, ids=repr)
@pytest.mark.parametrize("network", [None, Network.ring(3)], ids=["pooled", "nodes"])
def test_missing_labels_are_refused_or_dropped(gap: Any, network: Any) -> None:
    whole = table()
    labels = whole.clinic.astype(object)
    labels[whole.clinic == 4] = gap
    whole = whole.assign(clinic=labels)
    x, y, groups = whole[["x"]].to_numpy(), whole.y.to_numpy(), labels.to_numpy()
    gone = int(labels.isna().sum())
    with pytest.raises(ValueError, match=f"groups has no label in {gone} of {len(x)} rows"):
        at_mode(network=network).fit(x, y, groups)
    with pytest.raises(ValueError, match="shard 1: groups has no label"):
        at_mode().fit([x, x], [y, y], [np.arange(len(x)) % 5, groups])
    rest = whole[~labels.isna()]
    expected = at_mode().fit(rest[["x"]].to_numpy(), rest.y, rest.clinic)
    for model in (
        at_mode(network=network, missing="drop").fit(x, y, groups),
        at_mode(network=network, formula="y ~ x").fit(whole, groups="clinic"),
    ):
        assert model.n_dropped_ == gone
        assert model.n_groups_ == 19
        assert max(q.distance(expected.posterior_) for q in model.node_posteriors_) < 1e-9
    halves = at_mode(missing="drop").fit(
        [x[:50], x[50:]], [y[:50], y[50:]], [groups[:50], groups[50:]]
    )
    assert halves.n_dropped_ == gone


def test_nan_in_an_array_of_numbers_is_missing() -> None:
    whole = table()
    groups = whole.clinic.to_numpy(dtype=float)
    groups[::7] = np.nan
    with pytest.raises(ValueError, match="groups has no label"):
        at_mode(network=Network.ring(3)).fit(whole[["x"]].to_numpy(), whole.y, groups)


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        [2**60 + i for i in range(20)],
        [i if i % 2 else str(i) for i in range(20)],
        [f"w{i}" for i in range(20)],
        [(i, "a") for i in range(20)],
        list(pd.date_range("2020-01-01", periods=20)),
    ],
    ids=["large", "mixed", "words", "tuples", "dates"],
)
def test_labels_of_any_type_name_groups(names: list[Any], framed: bool) -> None:
    whole = table()
    expected = at_mode().fit(whole[["x"]], whole.y, whole.clinic)
    labels = np.empty(len(whole), dtype=object)
    labels[:] = [names[i] for i in whole.clinic]
    model = at_mode(network=Network.ring(3))
    if framed:
        frame = pd.DataFrame({"x": whole.x, "ward": pd.Series(labels).infer_objects()})
        model.fit(frame, whole.y, groups="ward")
    else:
        model.fit(whole[["x"]].to_numpy(), whole.y, labels)
    assert model.n_groups_ == 20
    assert max(q.distance(expected.posterior_) for q in model.node_posteriors_) < 1e-9
    found: dict[Any, Any] = {}
    for site in range(3):
        found |= model.random_effects(site)
    assert set(found) == set(names)
    np.testing.assert_allclose(found[names[7]], expected.random_effects()[7], rtol=1e-6)


def test_effects_of_nested_groups_have_the_site_in_their_key() -> None:
    parts = sites(table())
    settings = {"formula": "y ~ x", "nested": True}
    pooled = at_mode(**settings).fit(parts, groups="clinic")
    model = at_mode(**settings, network=Network.ring(4)).fit(parts, groups="clinic")
    clinics = parts[2].clinic.unique().tolist()
    assert set(model.random_effects(2)) == {(2, clinic) for clinic in clinics}
    key = (2, clinics[0])
    np.testing.assert_allclose(
        pooled.random_effects()[key], model.random_effects(2)[key], rtol=1e-6
    )


def test_one_random_slope_may_be_given_as_a_word() -> None:
    whole = table().rename(columns={"x": "age"})
    one = at_mode(formula="y ~ age", random_slopes="age").fit(whole, groups="clinic")
    same = at_mode(formula="y ~ age", random_slopes=("age",)).fit(whole, groups="clinic")
    assert one.posterior_.distance(same.posterior_) == 0.0
    assert "sd of age by group" in one.summary()


@pytest.mark.parametrize("network", [None, Network.ring(3)], ids=["pooled", "nodes"])
@pytest.mark.parametrize("target", ["line", "constant", "groups"])
def test_targets_without_noise_are_refused(network: Any, target: str) -> None:
    x, groups = np.arange(40.0)[:, None], np.arange(40) % 5
    y = {"line": 2.0 * x[:, 0], "constant": np.full(40, 3.0), "groups": 1.5 * groups}[target]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an error says enough
        with pytest.raises(ValueError, match="targets have no noise"):
            MixedModel(network=network).fit(x, y, groups)
    quiet = y + 1e-5 * np.random.default_rng(0).normal(size=40)
    model = MixedModel(network=network).fit(x, quiet, groups)
    assert model.converged_
    assert 0.3e-10 < model.noise_variance_ < 3e-10


@pytest.mark.parametrize("n_rows", [6, 8, 11, 12])
def test_the_prior_bounds_the_noise_of_a_handful_of_rows(n_rows: int) -> None:
    x, groups = np.arange(float(n_rows))[:, None], np.arange(n_rows) % 3
    if n_rows > 10:
        with pytest.raises(ValueError, match="targets have no noise"):
            MixedModel().fit(x, 2.0 * x[:, 0], groups)
        return
    with pytest.warns(UserWarning, match="approximated at its mode"):
        model = MixedModel().fit(x, 2.0 * x[:, 0], groups)
    assert model.converged_
    assert 0.0 < model.noise_variance_ < 1e-6


def test_labels_that_only_python_reads_as_numbers_are_words() -> None:
    """Ward 11 of hospital 1 is not ward 1 of hospital 11; 7 and 007 are the same, however they are written."""
    from dmfvi.models.mixed.shared_labels import _common_form, _padded

    assert len({_common_form(label) for label in ("1_11", "11_1", "111", "1e2", 100)}) == 5
    assert len({_common_form(label) for label in (7, 7.0, "7", "007", "7.0", np.int64(7))}) == 1
    first, again = _padded({b"0123456789"}), _padded({b"0123456789"})
    assert len(first) == len(again)
    assert (first != again).any()  # what stands beside a label cannot be computed from it


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
def test_predictions_for_known_groups_have_their_effects(family: Any) -> None:
    whole = table(family)
    model = at_mode(formula="y ~ x + C(sex)", family=family, random_slopes="x")
    model.fit(whole, groups="clinic")
    own = np.array([model.random_effects()[clinic] for clinic in whole.clinic])
    male = (whole.sex == "m").to_numpy(dtype=float)
    eta = (
        model.intercept_
        + np.column_stack([whole.x, male])
        @ np.asarray(model.coef_)[[model.term_names_.index(t) for t in ("x", "C(sex)[T.m]")]]
    )
    eta = eta + own[:, 0] + own[:, 1] * whole.x.to_numpy()
    inverse = {"gaussian": eta, "bernoulli": 1 / (1 + np.exp(-eta)), "poisson": np.exp(eta)}
    given = model.predict(whole, groups="clinic")
    np.testing.assert_allclose(given, inverse[family], rtol=1e-9)
    np.testing.assert_array_equal(model.predict(whole, groups=whole.clinic.to_numpy()), given)
    new = model.predict(whole, groups=np.where(whole.clinic == 3, 99, whole.clinic))
    known = (whole.clinic != 3).to_numpy()
    np.testing.assert_array_equal(new[known], given[known])
    np.testing.assert_array_equal(new[~known], model.predict(whole)[~known])
    with pytest.raises(ValueError, match="groups that are not known"):
        model.predict(whole, return_std=True, groups="clinic")


@pytest.mark.parametrize("network", [None, Network.ring(4)], ids=["pooled", "nodes"])
def test_groups_of_a_list_of_sites_are_those_of_each(network: Network | None) -> None:
    parts = [part.assign(clinic=part.clinic % 7) for part in sites(table())]
    model = at_mode(formula="y ~ x", nested=True, network=network)
    model.fit(parts, groups="clinic")
    answers = model.predict(parts, groups="clinic")
    for site, (part, answer) in enumerate(zip(parts, answers, strict=True)):
        alone = model.predict(part, groups="clinic", site=site)
        np.testing.assert_array_equal(alone, answer)
        own = np.array([model.random_effects(site)[site, c][0] for c in part.clinic])
        fixed = model.intercept_ + model.coef_[0] * part.x.to_numpy()
        np.testing.assert_allclose(answer, fixed + own, rtol=1e-9)
    with pytest.raises(ValueError, match="say whose these are with site="):
        model.predict(parts[0], groups="clinic")


def test_the_table_has_the_correlation_of_effects() -> None:
    rng = np.random.default_rng(7)
    group = np.repeat(np.arange(80), 12)
    x = rng.normal(size=len(group)) + 1
    effects = rng.multivariate_normal([0, 0], [[1.0, -0.4], [-0.4, 0.64]], 80)[group]
    y = 1.0 + effects[:, 0] + (0.5 + effects[:, 1]) * x + 0.5 * rng.normal(size=len(group))
    whole = pd.DataFrame({"x": x, "y": y, "clinic": group})
    model = MixedModel(formula="y ~ x", random_slopes="x").fit(whole, groups="clinic")
    theirs = smf.mixedlm("y ~ x", whole, groups=whole.clinic, re_formula="~x").fit(reml=False)
    covariance = np.asarray(theirs.cov_re)
    expected = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    row = model.summary_frame().loc["correlation of Intercept and x by group"]
    assert row.lower < expected < row.upper
    assert abs(row.estimate - expected) < 0.3 * row.sd
    assert 0.02 < row.sd < 0.2


def test_groups_that_were_forgotten_are_said() -> None:
    whole = table()
    with pytest.warns(UserWarning, match=r"no groups are given.*pass groups"):
        at_mode(formula="y ~ x").fit(whole)
    model = at_mode(formula="y ~ x", network=Network.ring(4)).fit(sites(whole))
    assert "groups 4, the sites" in str(model.summary())


@pytest.mark.parametrize("network", [None, Network.ring(4)], ids=["pooled", "nodes"])
def test_groups_that_are_one_everywhere_need_no_site(network: Network | None) -> None:
    whole = table()
    model = at_mode(formula="y ~ x", network=network).fit(sites(whole), groups="clinic")
    expected = at_mode(formula="y ~ x").fit(whole, groups="clinic")
    for part in sites(whole)[::-1]:
        np.testing.assert_allclose(
            model.predict([part], groups="clinic")[0],
            expected.predict(part, groups="clinic"),
            rtol=1e-6,
        )
