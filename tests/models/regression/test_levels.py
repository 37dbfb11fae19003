"""Categories of formulas and frames: C() applies where it is written, orders are agreed on, digits in quotes may be words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
import statsmodels.formula.api as smf

import dmfvi
from dmfvi import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    GeneralizedLinearModel,
    MixedModel,
    Network,
)


def table(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    k = rng.integers(1, 5, n)
    x = rng.normal(size=n)
    y = 0.4 * k + 2.0 * (k == 3) + x + 0.3 * rng.normal(size=n)
    return pd.DataFrame({"k": k, "x": x, "y": y, "count": rng.poisson(np.exp(0.3 * x))})


def halves(whole: pd.DataFrame) -> list[pd.DataFrame]:
    """The first site has no k of 4."""
    return [whole[whole.k < 4], whole[whole.k == 4], whole[whole.k == 2]]


@pytest.mark.parametrize("formula", ["y ~ C(k) + x:k", "y ~ C(k) + x:np.log(k)", "y ~ k + x:C(k)"])
def test_c_makes_a_category_where_it_is_written_only(formula: str) -> None:
    whole = table()
    model = BayesianLinearRegression(formula=formula, prior_precision=1e-9).fit(whole)
    theirs = smf.ols(formula, whole).fit()
    np.testing.assert_allclose(model.predict(whole), theirs.fittedvalues, atol=1e-5)
    parts = halves(pd.concat([whole, whole[whole.k == 2]]))
    nodes = BayesianLinearRegression(formula=formula, network=Network.ring(3)).fit(parts)
    pooled = BayesianLinearRegression(formula=formula).fit(pd.concat(parts))
    assert max(q.distance(pooled.posterior_) for q in nodes.node_posteriors_) < 1e-9


def test_new_rows_with_an_unknown_level_of_a_number_are_refused(tmp_path: Path) -> None:
    model = BayesianLinearRegression(formula="y ~ C(k) + k").fit(table())
    dmfvi.save(model, tmp_path / "model.npz")
    loaded = dmfvi.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(table()), model.predict(table()))
    with pytest.raises(
        ValueError, match=r"column 'k' has the unknown level 7: known are \[1, 2, 3, 4\]"
    ):
        loaded.predict(table().assign(k=7))


def test_a_number_that_is_also_a_category_is_not_imputed() -> None:
    whole = table().astype({"k": float})
    whole.loc[3, "k"] = whole.loc[5, "x"] = np.nan
    model = BayesianLinearRegression(formula="y ~ C(k) + k + x", missing="impute").fit(whole)
    assert (model.n_dropped_, model.n_imputed_) == (1, 1)


def rated(levels: list[str] | None, seed: int, kind: str = "pandas", ordered: bool = True) -> Any:
    rng = np.random.default_rng(seed)
    words = rng.choice(levels or ["low", "high"], 30)
    y = rng.normal(size=30)
    if kind == "polars":
        return polars.DataFrame(
            {"risk": words, "y": y}, schema_overrides={"risk": polars.Enum(levels)}
        )
    column = words if levels is None else pd.Categorical(words, levels, ordered=ordered)
    return pd.DataFrame({"risk": column, "y": y})


@pytest.mark.parametrize("kind", ["pandas", "polars"])
@pytest.mark.parametrize(
    "orders",
    [
        [["low", "mid", "high"], ["low", "high"], ["low", "mid"]],
        [["low", "mid"], ["mid", "high"]],
    ],
)
def test_orders_that_are_parts_of_one_are_put_together(orders: list[list[str]], kind: str) -> None:
    frames = [rated(levels, place, kind) for place, levels in enumerate(orders)]
    network = Network.complete(len(frames))
    model = BayesianLinearRegression(formula="y ~ risk", network=network).fit(frames)
    assert model.term_names_ == ["risk[T.mid]", "risk[T.high]"]


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([["low", "mid", "high"], ["high", "mid", "low"]], r"\['low', 'mid', 'high'\] at site 0 and \['high', 'mid', 'low'\] at site 1"),
        ([["a", "b"], ["a", "c"]], r"\['a', 'b'\] at site 0 and \['a', 'c'\] at site 1, which are not parts of one order"),
        ([["low", "top"], None], r"ordered categories \['low', 'top'\], and \['high'\] at a site that declares no order"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("network", [None, Network.complete(2)], ids=["pooled", "nodes"])
def test_orders_that_contradict_each_other_are_refused(
    orders: list[Any], message: str, network: Any
) -> None:
    frames = [rated(levels, place) for place, levels in enumerate(orders)]
    with pytest.raises(ValueError, match=message):
        BayesianLinearRegression(formula="y ~ risk", network=network).fit(frames)


def test_categories_without_an_order_are_sorted_where_sites_declare_them_differently() -> None:
    frames = [rated(["b", "a"], 0, ordered=False), rated(["c", "a", "b"], 1, ordered=False)]
    model = BayesianLinearRegression(formula="y ~ risk", network=Network.complete(2)).fit(frames)
    assert model.term_names_ == ["risk[T.b]", "risk[T.c]"]


@pytest.mark.parametrize("formula", ["y ~ ward", None])
@pytest.mark.parametrize("network", [None, Network.complete(2)], ids=["pooled", "nodes"])
def test_digits_in_quotes_are_words_where_another_site_has_words(
    formula: Any, network: Any
) -> None:
    rng = np.random.default_rng(0)
    frames = [
        pd.DataFrame({"ward": rng.choice(["007", "12"], 30), "y": rng.normal(size=30)}),
        pd.DataFrame({"ward": rng.choice(["12", "north"], 30), "y": rng.normal(size=30)}),
    ]
    model = BayesianLinearRegression(formula=formula, network=network)
    if formula is None:
        model.fit([part[["ward"]] for part in frames], [part.y for part in frames])
    else:
        model.fit(frames)
    assert model.term_names_ == ["ward[T.12]", "ward[T.north]"]
    answers = model.predict(frames[0][["ward"]].assign(ward="007"))
    np.testing.assert_allclose(answers, model.intercept_)


def test_digits_in_quotes_at_all_sites_are_numbers_and_real_numbers_beside_words_are_refused() -> (
    None
):
    rng = np.random.default_rng(0)
    y = [rng.normal(size=30), rng.normal(size=30)]
    digits = [pd.DataFrame({"dose": rng.choice(["1", "2.5"], 30)}) for _ in range(2)]
    model = BayesianLinearRegression(network=Network.complete(2)).fit(digits, y)
    assert model.term_names_ == ["dose"]
    words = pd.DataFrame({"dose": rng.choice(["1", "n/a"], 30)})
    with pytest.raises(ValueError, match="holds numbers at site 0 and text at site 1"):
        BayesianLinearRegression(network=Network.complete(2)).fit(
            [digits[0].astype(float), words], y
        )


@pytest.mark.parametrize(
    ("model", "of_y"),
    [
        (BayesianLinearRegression(formula="y ~ x + C(k)"), lambda t: t.y),
        (BayesianLinearRegression(formula="np.square(y) ~ x"), lambda t: t.y**2),
        (BayesianPoissonRegression(formula="count ~ x"), lambda t: t["count"]),
        (BayesianLogisticRegression(formula="late ~ x"), lambda t: t.late),
        (MixedModel(formula="y ~ x", approximation="laplace"), lambda t: t.y),
    ],
    ids=lambda value: getattr(value, "formula", ""),
)
def test_score_takes_the_target_of_the_formula(model: Any, of_y: Any) -> None:
    whole = table().assign(late=lambda t: np.where(t.x > 0.2, "yes", "no"))
    model.fit(whole)
    expected = model.score(whole, of_y(whole))
    assert model.score(whole) == expected
    assert model.score([whole[:50], whole[50:]]) == pytest.approx(expected, abs=1e-12)


def test_score_without_targets_anywhere_is_refused() -> None:
    whole = table()
    model = BayesianLinearRegression(formula="~ x").fit(whole, whole.y)
    with pytest.raises(ValueError, match="score needs y"):
        model.score(whole)
    with pytest.raises(ValueError, match="score needs y"):
        BayesianPoissonRegression().fit(whole[["x"]], whole["count"]).score(whole[["x"]])


@pytest.mark.parametrize("given", [[True, False], [1, 0], [1.0, 0.0]])
@pytest.mark.parametrize("formula", ["y ~ s", "y ~ C(s)"])
def test_truth_values_and_their_numbers_are_one_level(given: list[Any], formula: str) -> None:
    """Otherwise a row of an unknown level would become one of the reference level."""
    rows = pd.DataFrame({"s": [True, True, False, False] * 10, "y": [3.0, 3.1, 0.0, 0.2] * 10})
    model = BayesianLinearRegression(formula=formula).fit(rows)
    made = model.predict(pd.DataFrame({"s": given}))
    np.testing.assert_allclose(made, [3.05, 0.1], atol=0.01)


@pytest.mark.parametrize("swapped", [False, True])
def test_sites_may_have_truth_values_or_their_numbers(swapped: bool) -> None:
    rng = np.random.default_rng(3)
    sites = []
    for _ in range(2):
        frame = pd.DataFrame({"x": rng.normal(size=40), "k": rng.integers(0, 2, 40)})
        sites.append(frame.assign(y=frame.x + 2.0 * frame.k + rng.normal(size=40)))
    plain = BayesianLinearRegression(formula="y ~ x + C(k)").fit(pd.concat(sites))
    at = int(swapped)
    sites[at] = sites[at].assign(k=sites[at].k.astype(bool))
    model = BayesianLinearRegression(formula="y ~ x + C(k)", network=Network.chain(2)).fit(sites)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["int64", "Int64", "uint64"])
def test_codes_that_floating_point_does_not_have_stay_apart(dtype: str, tmp_path: Path) -> None:
    first = 900_000_000_000_207_000
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"code": first + rng.integers(0, 3, 90)}).astype({"code": dtype})
    rows["y"] = 5.0 * (rows.code - first).astype(float) + 0.1 * rng.normal(size=90)
    model = BayesianLinearRegression(formula="y ~ C(code)").fit(rows)
    assert model.term_names_ == [f"C(code)[T.{first + i}]" for i in (1, 2)]
    np.testing.assert_allclose(model.coef_, [5.0, 10.0], atol=0.2)
    dmfvi.save(model, tmp_path / "m.npz")
    np.testing.assert_array_equal(dmfvi.load(tmp_path / "m.npz").predict(rows), model.predict(rows))
    with pytest.raises(ValueError, match=r"categories and as numbers.*2\^53"):
        BayesianLinearRegression(formula="y ~ C(code) + code").fit(rows)


def test_a_column_without_any_value_in_new_rows_is_missing() -> None:
    whole = table().assign(ward=lambda t: np.where(t.x > 0, "e", "w"))
    formula = "y ~ x + ward"
    model = BayesianLinearRegression(formula=formula).fit(whole)
    strict = BayesianLinearRegression(formula=formula, missing="raise").fit(whole)
    for empty in (
        whole.assign(ward=None),
        whole.assign(ward=np.nan),
        whole.head(1).assign(ward=None),
    ):
        assert np.isnan(model.predict(empty)).all()
        with pytest.raises(ValueError, match=r"row 0 .* has no value in column 'ward'"):
            strict.predict(empty)


def test_labels_of_a_formula_are_those_of_the_frame_at_any_size() -> None:
    codes = np.array([2**63 + 5, 2**63 + 6], dtype=np.uint64)
    whole = table().assign(code=lambda t: codes[(t.x > 0).astype(int)])
    model = BayesianLogisticRegression(formula="code ~ y").fit(whole)
    assert model.classes_.tolist() == codes.tolist()


def sites_with_truth() -> list[pd.DataFrame]:
    rng = np.random.default_rng(5)
    made = []
    for n in (30, 40, 50):
        frame = pd.DataFrame({"s": rng.random(n) < 0.5, "x": rng.normal(size=n)})
        made.append(frame.assign(y=frame.x - 2.0 * frame.s + rng.normal(size=n)))
    return made


@pytest.mark.parametrize("formula", ["y ~ x + s", "y ~ x + C(s)"])
def test_truth_values_are_words_in_the_files_of_some_sites(formula: str) -> None:
    """CSV files have the words True and False, data bases and frames the values."""
    values = sites_with_truth()
    words = {True: "TRUE", False: "FALSE"}
    mixed = [values[0], values[1].assign(s=lambda f: f.s.astype(str))]
    mixed.append(values[2].assign(s=lambda f: f.s.map(words)))
    plain = BayesianLinearRegression(formula=formula, network=Network.chain(3)).fit(values)
    model = BayesianLinearRegression(formula=formula, network=Network.chain(3)).fit(mixed)
    assert model.term_names_ == plain.term_names_
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    for given, expected in zip(mixed, values, strict=True):
        np.testing.assert_array_equal(model.predict(given), plain.predict(expected))


def test_words_of_several_programs_for_truth_values_are_the_same() -> None:
    """R writes TRUE where Python writes True."""
    values = sites_with_truth()
    words = [
        values[0].assign(s=lambda f: f.s.map({True: "TRUE", False: "FALSE"})),
        *(part.assign(s=lambda f: f.s.astype(str)) for part in values[1:]),
    ]
    plain = BayesianLinearRegression(formula="y ~ x + s", network=Network.chain(3)).fit(values)
    model = BayesianLinearRegression(formula="y ~ x + s", network=Network.chain(3)).fit(words)
    assert model.term_names_ == plain.term_names_
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    alone = BayesianLinearRegression(formula="y ~ x + s").fit(pd.concat(words[1:]))
    given, same = words[0], values[0].assign(s=lambda f: f.s.astype(str))
    np.testing.assert_array_equal(alone.predict(given), alone.predict(same))


def test_a_model_of_words_answers_for_truth_values_and_the_other_way_round() -> None:
    values = pd.concat(sites_with_truth())
    words = values.assign(s=values.s.astype(str))
    of_values = BayesianLinearRegression(formula="y ~ x + s").fit(values)
    of_words = BayesianLinearRegression(formula="y ~ x + s").fit(words)
    for model in (of_values, of_words):
        np.testing.assert_allclose(model.predict(words), of_values.predict(values), rtol=1e-12)
        np.testing.assert_allclose(model.predict(values), of_values.predict(values), rtol=1e-12)


def test_truth_values_beside_digits_in_quotes_are_refused() -> None:
    values = sites_with_truth()
    values[2] = values[2].assign(s=lambda f: f.s.astype(int).astype(str))
    with pytest.raises(ValueError, match="words and numbers"):
        BayesianLinearRegression(formula="y ~ C(s)", network=Network.chain(3)).fit(values)


@pytest.mark.parametrize("kind", ["formula", "series", "sites", "polars"])
def test_ordered_categories_of_the_targets_are_the_order_of_the_classes(kind: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=90)
    words = np.array(["low", "mid", "high"])[np.digitize(x + rng.normal(size=90), [-0.5, 0.8])]
    ordered = pd.CategoricalDtype(["none", "low", "mid", "high"], ordered=True)
    whole = pd.DataFrame({"x": x, "grade": pd.Series(words).astype(ordered)})
    given = GeneralizedLinearModel(family="ordinal", classes=["low", "mid", "high"])
    expected = given.fit(whole[["x"]], words)
    formula = None if kind in ("series", "sites") else "grade ~ x"
    network = Network.chain(2) if kind == "sites" else None
    model = GeneralizedLinearModel(family="ordinal", formula=formula, network=network)
    if kind == "sites":
        model.fit([whole[["x"]][:40], whole[["x"]][40:]], [whole.grade[:40], whole.grade[40:]])
    elif kind == "series":
        model.fit(whole[["x"]], whole.grade)
    else:
        levels = polars.Enum(["low", "mid", "high"])
        frame = polars.DataFrame({"x": x, "grade": polars.Series(words.tolist(), dtype=levels)})
        model.fit(frame if kind == "polars" else whole)
    assert model.classes_.tolist() == ["low", "mid", "high"]
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)


def test_orders_of_classes_are_parts_of_one_order() -> None:
    rng = np.random.default_rng(2)
    x = pd.DataFrame({"x": rng.normal(size=60)})
    three = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    two = pd.CategoricalDtype(["low", "high"], ordered=True)
    first = pd.Series(np.array(["low", "mid", "high"])[rng.integers(0, 3, 30)]).astype(three)
    second = pd.Series(np.array(["low", "high"])[rng.integers(0, 2, 30)]).astype(two)
    model = GeneralizedLinearModel(family="ordinal", network=Network.chain(2))
    model.fit([x[:30], x[30:]], [first, second])
    assert model.classes_.tolist() == ["low", "mid", "high"]
    turned = second.astype(pd.CategoricalDtype(["high", "low"], ordered=True))
    with pytest.raises(ValueError, match="not parts of one order"):
        model.fit([x[:30], x[30:]], [first, turned])
    mixed = [first, second.astype(str)]
    with pytest.raises(ValueError, match="no order at site 1"):
        model.fit([x[:30], x[30:]], mixed)
    named = GeneralizedLinearModel(family="ordinal", classes=["low", "mid", "high"])
    named.set_params(network=Network.chain(2)).fit([x[:30], x[30:]], mixed)
    plain = GeneralizedLinearModel(family="multinomial", network=Network.chain(2))
    assert len(plain.fit([x[:30], x[30:]], mixed).classes_) == 3
