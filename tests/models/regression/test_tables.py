"""Frames, formulas, levels and missing entries: every site has the pooled design and the pooled posterior."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import cross_val_score

import dmfvi
from cli_run import dmfvi_command
from dmfvi import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    GeneralizedLinearModel,
    Network,
)
from mpi_runs import run as run_ranks

FORMULA = "~ age + C(sex) * dose + ward + center(np.log(age)) + scale(dose):smoker"
ESTIMATORS: dict[str, Any] = {
    "linear": BayesianLinearRegression,
    "logistic": lambda **more: BayesianLogisticRegression(classes=["no", "yes"], **more),
    "poisson": BayesianPoissonRegression,
    "student-t": lambda **more: GeneralizedLinearModel(family="student-t", **more),
    "ordinal": lambda **more: GeneralizedLinearModel(family="ordinal", **more),
}
TARGETS = {
    "linear": "level",
    "logistic": "ill",
    "poisson": "visits",
    "student-t": "level",
    "ordinal": "grade",
}
each = pytest.mark.parametrize("name", list(ESTIMATORS))
NETWORKS = [Network.ring(4), Network(nx.lollipop_graph(3, 1), "lollipop")]


def table(n: int = 160, seed: int = 0, missing: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "age": rng.uniform(20, 90, n),
            "sex": rng.choice(["female", "male"], n),
            "dose": rng.normal(size=n),
            "ward": rng.choice(["east", "north", "west"], n),
            "smoker": rng.random(n) < 0.4,
            "years": rng.uniform(0.5, 2.0, n),
        }
    )
    eta = 0.02 * (made.age - 50) + 0.5 * (made.sex == "male") * made.dose
    made["level"] = eta + rng.normal(size=n)
    made["ill"] = np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), "yes", "no")
    made["visits"] = rng.poisson(np.exp(eta) * made.years)
    made["grade"] = np.digitize(eta + rng.logistic(size=n), [-0.5, 0.8])
    if missing:
        made["weight"] = made.age + 5 * rng.normal(size=n)
        for column in ("age", "dose"):
            made.loc[rng.random(n) < missing, column] = np.nan
    return made


def sites(whole: pd.DataFrame, by: str) -> list[pd.DataFrame]:
    """Four sites of unequal size, sorted: some lack a level or a class."""
    ordered = whole.sort_values(by, kind="stable")
    return [ordered.iloc[a:b] for a, b in ((0, 11), (11, 60), (60, 130), (130, len(whole)))]


@each
@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
def test_sites_that_lack_levels_have_the_pooled_posterior(name: str, network: Network) -> None:
    whole = table()
    formula = f"{TARGETS[name]} {FORMULA}"
    pooled = ESTIMATORS[name](formula=formula).fit(whole)
    for by in ("ward", TARGETS[name]):
        parts = sites(whole, by)
        assert parts[0][by].nunique() < whole[by].nunique()
        model = ESTIMATORS[name](formula=formula, network=network).fit(parts)
        assert model.term_names_ == pooled.term_names_
        for posterior in model.node_posteriors_:
            assert posterior.distance(pooled.posterior_) < 1e-9
        ask = getattr(pooled, "predict_proba", pooled.predict)
        theirs = getattr(model, "predict_proba", model.predict)(parts[0])
        np.testing.assert_allclose(theirs, ask(parts[0]), rtol=1e-8, atol=1e-10)


def test_terms_are_named_as_in_statsmodels_and_have_its_least_squares_estimates() -> None:
    import statsmodels.formula.api as smf

    whole = table()
    formula = "level ~ age + C(sex) * dose + ward + smoker + np.log(years)"
    model = BayesianLinearRegression(formula=formula, prior_precision=1e-10).fit(whole)
    theirs = smf.ols(formula, whole).fit()
    frame = model.summary_frame()
    assert frame.loc["sd of noise", "estimate"] == pytest.approx(theirs.mse_resid**0.5, rel=0.02)
    frame = frame.drop("sd of noise")
    assert set(frame.index) == set(theirs.params.index)
    gap = (frame.estimate - theirs.params[frame.index]) / theirs.bse[frame.index]
    assert gap.abs().max() < 1e-3


def test_a_frame_with_words_is_coded_with_the_first_level_as_reference() -> None:
    whole = table()
    columns = ["age", "sex", "ward", "smoker"]
    model = BayesianLinearRegression().fit(whole[columns], whole.level)
    assert model.term_names_ == [
        "age",
        "sex[T.male]",
        "ward[T.north]",
        "ward[T.west]",
        "smoker[T.True]",
    ]
    assert list(model.feature_names_in_) == columns
    assert "reference sex=female ward=east smoker=False" in model.summary()
    by_formula = BayesianLinearRegression(formula="level ~ age + sex + ward + smoker").fit(whole)
    np.testing.assert_allclose(model.coef_, by_formula.coef_, rtol=1e-9)
    # declared categories have an order of their own
    ordered = whole.assign(ward=pd.Categorical(whole.ward, ["west", "north", "east"]))
    turned = BayesianLinearRegression().fit(ordered[columns], whole.level)
    assert turned.term_names_[2:4] == ["ward[T.north]", "ward[T.east]"]


def test_polars_frames_are_pandas_frames() -> None:
    whole = table(missing=0.1)
    formula = "visits ~ age + C(sex) * dose + ward + smoker"
    one = BayesianPoissonRegression(formula=formula).fit(whole, exposure="years")
    frames = [pl.from_pandas(part) for part in sites(whole, "ward")]
    other = BayesianPoissonRegression(formula=formula, network=Network.ring(4)).fit(
        frames, exposure="years"
    )
    assert other.posterior_.distance(one.posterior_) < 1e-9
    assert one.n_dropped_ == other.n_dropped_ > 0
    complete = whole.dropna()
    np.testing.assert_allclose(
        other.predict(pl.from_pandas(complete), exposure="years"),
        one.predict(complete, exposure="years"),
        rtol=1e-9,
    )


def test_columns_of_a_polars_frame_need_no_common_type() -> None:
    days = np.datetime64("2020-01-01") + np.arange(160)
    whole = table().assign(old=days > days[9], day=days)
    frame = pl.from_pandas(whole[["old", "day", "level", "age"]])
    with pytest.raises(TypeError):
        np.asarray(frame)
    plain = BayesianLinearRegression(formula="level ~ age").fit(frame)
    halves = [frame[:80], frame[80:]]
    other = BayesianLinearRegression(formula="level ~ age", network=Network.chain(2)).fit(halves)
    assert other.posterior_.distance(plain.posterior_) < 1e-9
    assert other.predict(frame).shape == (160,)


FAR = {
    "visits ~ year * age": True,
    "visits ~ C(sex) * year": True,
    "visits ~ year + I(year**2)": True,
    "visits ~ center(year) * age": False,
    "visits ~ year + age + C(sex) * age": False,
}


@pytest.mark.parametrize("formula", list(FAR))
@pytest.mark.parametrize("kind", [BayesianPoissonRegression, BayesianLinearRegression])
def test_products_of_columns_far_from_zero_are_warned_of(kind: Any, formula: str) -> None:
    """The standardised product is nearly one of its parts: the default prior takes its effect away."""
    frame = table().assign(year=np.random.default_rng(1).normal(2000.0, 4.0, 160))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        kind(formula=formula, network=Network.chain(2)).fit([frame[:60], frame[60:]])
        kind(formula=formula, prior_precision=1e-9).fit(frame)  # in the columns' own units
    told = [str(warning.message) for warning in heard if "center(year)" in str(warning.message)]
    assert len(told) == FAR[formula]


@pytest.mark.parametrize("term", ["`the year`", "Q('the year')"])
def test_columns_whose_names_no_function_takes_are_to_be_renamed(term: str) -> None:
    frame = table().assign(**{"the year": np.random.default_rng(1).normal(2000.0, 4.0, 160)})
    with pytest.warns(UserWarning, match="the mean of 'the year'.*give the column a name"):
        BayesianPoissonRegression(formula=f"visits ~ {term} * age").fit(frame)
    with pytest.raises(ValueError, match="rename the column"):
        BayesianPoissonRegression(formula=f"visits ~ center({term}) * age").fit(frame)


@pytest.mark.parametrize("how", ["drop", "impute"])
@pytest.mark.parametrize("with_formula", [True, False])
def test_missing_entries_are_dropped_or_imputed_alike_everywhere(
    how: Any, with_formula: bool
) -> None:
    whole = table(missing=0.15)
    whole.loc[3, "ward"] = None
    columns = ["age", "dose", "weight", "ward"]
    whole.loc[7, "level"] = np.nan
    more: dict[str, Any] = {"missing": how}
    if with_formula:
        more["formula"] = "level ~ age + dose + weight + ward"
    fits = []
    for parts in ([whole], sites(whole, "ward")):
        network = Network.ring(4) if len(parts) > 1 else None
        model = BayesianLinearRegression(network=network, **more)
        if with_formula:
            model.fit(parts if network else whole)
        elif network:
            model.fit([part[columns] for part in parts], [part.level for part in parts])
        else:
            model.fit(whole[columns], whole.level)
        fits.append(model)
    pooled, spread = fits
    assert spread.posterior_.distance(pooled.posterior_) < 1e-9
    incomplete = whole[["age", "dose"]].isna().any(axis=1)
    unusable = whole.ward.isna() | whole.level.isna()
    if how == "drop":
        assert (pooled.n_dropped_, pooled.n_imputed_) == ((incomplete | unusable).sum(), 0)
        assert f"{pooled.n_dropped_} rows with missing cells dropped" in spread.summary()
        complete = BayesianLinearRegression(formula="level ~ age + dose + weight + ward")
        complete.fit(whole.dropna(subset=["level", *columns]))
        np.testing.assert_allclose(pooled.coef_, complete.coef_, rtol=1e-9)
    else:
        assert (spread.n_dropped_, spread.n_imputed_) == (2, (incomplete & ~unusable).sum())
        assert "imputed by the joint Gaussian" in spread.summary()
        assert "taken as observed, intervals lack their uncertainty" in spread.summary()
        assert np.isfinite(spread.predict(whole[whole.ward.notna()])).all()


def test_imputation_finds_the_coefficients_of_the_complete_data() -> None:
    rng = np.random.default_rng(5)
    n = 4000
    x = rng.multivariate_normal([1.0, -2.0], [[1.0, 0.8], [0.8, 1.0]], size=n)
    y = x @ [1.0, -0.5] + 0.3 * rng.normal(size=n)
    # the second is missing where the first is large: dropping rows is fine, filling in the mean is not
    x[(x[:, 0] > 1.5) & (rng.random(n) < 0.8), 1] = np.nan
    model = BayesianLinearRegression(missing="impute").fit(x, y)
    np.testing.assert_allclose(model.coef_, [1.0, -0.5], atol=0.05)
    filled = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    assert abs(BayesianLinearRegression().fit(filled, y).coef_[0] - 1.0) > 0.1


def test_arrays_with_missing_entries_are_still_refused_by_default() -> None:
    whole = table(missing=0.2)
    with pytest.raises(ValueError, match="contains NaN"):
        BayesianLinearRegression().fit(whole[["age", "dose"]].to_numpy(), whole.level)
    with pytest.raises(ValueError, match=r"no value in column 'age'.*missing='drop'"):
        BayesianLinearRegression().fit(whole[["age", "ward"]], whole.level)
    dropped = BayesianLinearRegression(missing="drop")
    dropped.fit(whole[["age", "dose"]].to_numpy(), whole.level.to_numpy())
    assert dropped.n_dropped_ == whole[["age", "dose"]].isna().any(axis=1).sum()


@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_a_saved_model_builds_the_same_design(name: str, tmp_path: Path) -> None:
    whole = table(missing=0.1)
    formula = f"{TARGETS[name]} ~ center(age) + C(sex) * dose + bs(weight, df=4) + poly(years, 2)"
    model = ESTIMATORS[name](formula=formula, missing="impute").fit(whole)
    dmfvi.save(model, tmp_path / "model.npz")
    loaded = dmfvi.load(tmp_path / "model.npz")
    ask = "predict_proba" if name == "logistic" else "predict"
    new = table(20, seed=9, missing=0.1)
    new["weight"] = whole.weight[:20]
    np.testing.assert_array_equal(getattr(loaded, ask)(new), getattr(model, ask)(new))
    assert loaded.summary() == model.summary()


def test_unknown_levels_are_refused_with_the_known_ones() -> None:
    whole = table()
    new = whole.assign(ward="south")
    for model in (
        BayesianLinearRegression(formula="level ~ C(ward) + age").fit(whole),
        BayesianLinearRegression().fit(whole[["age", "ward"]], whole.level),
    ):
        with pytest.raises(
            ValueError, match=r"column 'ward' has the unknown level 'south': known are \['east'"
        ):
            model.predict(new)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"formula": "level ~ nothing"}, "no column \\['nothing'\\]"),
        ({"formula": "level ~ age +"}, "cannot be read"),
        ({"formula": "level ~ 1"}, "no column beside the intercept"),
        ({"formula": "level ~ foo(age)"}, "uses 'foo'"),
        ({"formula": "level ~ ."}, "write their names"),
        ({"formula": "level ~ age + (1|dose)"}, "MixedModel"),
        ({"formula": "level ~ age + offset(dose)"}, "fit\\(offset=...\\)"),
        ({"formula": "cbind(level, dose) ~ age"}, "fit\\(trials=...\\)"),
        ({"formula": "level ~ I(age.__class__)"}, "uses"),
        ({"formula": "level ~ I([x for x in age])"}, "uses"),
        ({"formula": "level ~ np.log(dose)"}, r"term 'np.log\(dose\)' is not finite"),
        ({"formula": "level ~ age", "fit_intercept": False}, "write 0 \\+"),
        ({"formula": "level + visits ~ age"}, "2 targets"),
        ({"formula": "~ age"}, "y is None"),
        ({"missing": "ignore", "formula": "level ~ age"}, "missing must be one of"),
    ],
)
def test_formulas_that_cannot_work_say_why(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BayesianLinearRegression(**change).fit(table())


def test_sites_that_do_not_fit_together_say_why() -> None:
    whole = table()
    parts = sites(whole, "ward")
    parts[2] = parts[2].assign(sex=np.where(parts[2].sex == "male", 1.0, 0.0))
    model = BayesianLinearRegression(formula="level ~ sex", network=Network.ring(4))
    with pytest.raises(ValueError, match="column 'sex' holds numbers at site 2 and text at site 0"):
        model.fit(parts)
    named = whole.assign(name=[f"patient {i}" for i in range(len(whole))])
    with pytest.raises(ValueError, match="column 'name' has 160 levels in 160 rows, as an id has"):
        BayesianLinearRegression().fit(named[["age", "name"]], whole.level)
    learned = BayesianLinearRegression(formula="level ~ bs(age, df=5)", network=Network.ring(4))
    with pytest.raises(ValueError, match=r"bs\(age, df=5\) learns from a site's own rows"):
        learned.fit(sites(whole, "ward"))
    with pytest.raises(ValueError, match="the formula has the target 'level': leave y out, or"):
        BayesianLinearRegression(formula="level ~ age").fit(whole, whole.level)
    with pytest.raises(ValueError, match="pass a pandas or polars frame"):
        BayesianLinearRegression(formula="level ~ age").fit(whole[["age", "dose"]].to_numpy())


def test_a_formula_without_intercept_codes_all_levels() -> None:
    model = BayesianLinearRegression(formula="level ~ 0 + ward + age").fit(table())
    assert model.term_names_ == ["ward[east]", "ward[north]", "ward[west]", "age"]
    assert model.intercept_ == 0.0
    assert "Intercept" not in model.summary()


def test_levels_travel_between_processes(tmp_path: Path) -> None:
    """Each rank has its own file, and one of them lacks a level."""
    whole = table()
    parts = [part[["ill", "age", "ward"]] for part in sites(whole, "ward")[1:]]
    for rank, part in enumerate(parts):
        part.to_csv(tmp_path / f"site{rank}.csv", index=False)
    formula = "ill ~ scale(age) + ward"
    done = run_ranks(
        tmp_path, 3, "-m", "dmfvi", "fit", "site{rank}.csv", "--engine", "mpi", "--model", "logistic",
        "--formula", formula, "--set", "classes=['no', 'yes']", "--out", "model",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pooled = BayesianLogisticRegression(formula=formula).fit(pd.concat(parts))
    loaded = dmfvi.load(tmp_path / "model")
    assert loaded.posterior_.distance(pooled.posterior_) < 1e-9
    assert loaded.term_names_ == pooled.term_names_


def test_the_shell_fits_a_formula_and_predicts(tmp_path: Path) -> None:
    whole = table()
    whole.loc[5, "ward"] = None
    whole.loc[6, "age"] = np.nan
    files = []
    for place, part in enumerate(sites(whole, "visits")):
        files.append(tmp_path / f"site{place}.csv")
        part.to_csv(files[-1], index=False)
    out = tmp_path / "model"
    formula = "visits ~ age + C(ward) + smoker"
    arguments = ["fit", *map(str, files), "--model", "poisson", "--formula", formula]
    fitted = dmfvi_command(*arguments, "--set", "exposure=years", "--out", out)
    assert fitted.code == 0, fitted.err
    loaded = dmfvi.load(out)
    pooled = BayesianPoissonRegression(formula=formula).fit(whole, exposure="years")
    assert loaded.posterior_.distance(pooled.posterior_) < 1e-9
    assert loaded.n_dropped_ == 2
    new = tmp_path / "new.csv"
    whole.dropna().head(5).to_csv(new, index=False)
    said = dmfvi_command("predict", new, "--model", out, "--out", tmp_path / "predicted.csv")
    assert said.code == 0, said.err
    predicted = pd.read_csv(tmp_path / "predicted.csv")
    expected = pooled.predict(whole.dropna().head(5), exposure="years")
    np.testing.assert_allclose(predicted.prediction, expected, rtol=1e-9)


def test_categories_that_a_formula_computes_are_refused_before_anything_is_told() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": np.repeat([0.0, 1.0, 2.0], 20), "y": rng.normal(size=60)})
    for formula in ("y ~ C(np.floor(k))", "y ~ C(I(k))", "y ~ C(k > 1)"):
        with pytest.raises(ValueError, match="compute the column first"):
            BayesianLinearRegression(formula=formula).fit(frame)


def test_levels_of_a_quoted_column_are_those_of_the_fit() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"my k": np.repeat([2.0, 3.0, 10.0], 20)})
    frame["y"] = frame["my k"] + 0.1 * rng.normal(size=60)
    formula = "y ~ C(Q('my k'))"
    pooled = BayesianLinearRegression(formula=formula).fit(frame)
    sites = [frame[:20], frame[20:]]
    parted = BayesianLinearRegression(formula=formula, network=Network.chain(2)).fit(sites)
    np.testing.assert_allclose(parted.coef_, pooled.coef_, rtol=1e-9)
    alone = pooled.predict(pd.DataFrame({"my k": [10.0]}))
    np.testing.assert_allclose(alone, [10.0], atol=0.1)
    with pytest.raises(ValueError, match="unknown level 4"):
        pooled.predict(pd.DataFrame({"my k": [4.0]}))


def test_a_level_of_a_dropped_row_only_is_no_level() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "s": rng.choice(list("ab"), 60)})
    frame["y"] = frame["x"] + rng.normal(size=60)
    frame.loc[0, "s"], frame.loc[0, "x"] = "only", np.nan
    model = BayesianLinearRegression(formula="y ~ x + s").fit(frame)
    assert model.n_dropped_ == 1
    assert list(model.term_names_) == ["x", "s[T.b]"]


def test_imputation_where_a_site_lacks_a_whole_column() -> None:
    rng = np.random.default_rng(0)
    sites = [
        pd.DataFrame({"x": rng.normal(size=30), "s": rng.choice(levels, 30)})
        for levels in (["a", "b"], ["a", "c"])
    ]
    sites[1]["x"] = np.nan
    y = [rng.normal(size=30) for _ in sites]
    model = BayesianLinearRegression(missing="impute", network=Network.chain(2)).fit(sites, y)
    assert list(model.term_names_) == ["x", "s[T.b]", "s[T.c]"]
    assert model.n_imputed_ == 30


def test_words_that_look_like_numbers_stay_words() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"k": np.resize(["1", "2", "unk"], 30), "x": rng.normal(size=30)})
    model = BayesianLinearRegression().fit(frame, rng.normal(size=30))
    some = pd.DataFrame({"k": ["1", "2"], "x": [0.0, 0.0]})
    of_numbers = pd.DataFrame({"k": [1, 2], "x": [0.0, 0.0]})
    np.testing.assert_array_equal(model.predict(some), model.predict(of_numbers))


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ I('a' * 2000000000)",
        "y ~ I(9 ** 9 ** 9)",
        "y ~ (a + b + c + d) ** 18",
        "y ~ " + " + ".join(["x"] * 3000),
        "y ~ x | z",
        "y ~ Intercept + x",
    ],
)
def test_formulas_that_are_too_large_or_strange_are_refused(formula: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        BayesianLinearRegression(formula=formula).fit(pd.DataFrame({"x": [1.0], "y": [1.0]}))


def test_what_a_spline_learns_is_compared_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from dmfvi.models.regression import formula as formulas

    told: list[object] = []
    kept = formulas.gathered
    monkeypatch.setattr(
        formulas, "gathered", lambda session, each: told.append(each) or kept(session, each)
    )
    rng = np.random.default_rng(0)
    sites = [pd.DataFrame({"x": rng.normal(size=30), "y": rng.normal(size=30)}) for _ in range(2)]
    model = BayesianLinearRegression(formula="y ~ bs(x, df=4)", network=Network.chain(2))
    with pytest.raises(ValueError, match="learns from a site's own rows"):
        model.fit(sites)
    assert str(sites[0]["x"].max())[:6] not in str(told)


def test_ids_are_refused_in_small_sites_with_repeats_and_as_categories() -> None:
    rng = np.random.default_rng(0)
    names = [f"patient {i}" for i in range(15)]
    for values in (names, [*names, names[0]], pd.Categorical(names)):
        frame = pd.DataFrame({"name": values, "x": rng.normal(size=len(values))})
        with pytest.raises(ValueError, match="as an id has"):
            BayesianLinearRegression().fit(frame, rng.normal(size=len(values)))


def test_labels_of_a_linear_regression_are_refused_with_the_model_that_takes_them() -> None:
    rows = np.arange(12.0).reshape(6, 2) ** 2
    with pytest.raises(ValueError, match=r"numbers, received 'yes'.*BayesianLogisticRegression"):
        BayesianLinearRegression().fit(rows, ["yes", "no"] * 3)


def gappy() -> pd.DataFrame:
    rng = np.random.default_rng(11)
    made = pd.DataFrame({"x": rng.normal(size=80), "ward": rng.choice(list("ew"), 80)})
    made["count"] = rng.poisson(np.exp(0.4 * made.x)).astype(float)
    made["years"] = rng.uniform(0.5, 2.0, 80)
    made["died"] = np.where(made.x + rng.normal(size=80) > 0, "yes", "no")
    made.loc[[3, 8], "x"] = np.nan
    made.loc[5, "ward"] = None
    made.loc[9, "count"] = np.nan
    return made


@pytest.mark.parametrize("polars_frame", [False, True])
def test_rows_that_a_fit_leaves_out_are_answered_by_nan(polars_frame: bool) -> None:
    whole = gappy()
    model = GeneralizedLinearModel(family="poisson", formula="count ~ x + ward").fit(whole)
    given = pl.from_pandas(whole) if polars_frame else whole
    lacking = [3, 5, 8]
    answers = [model.predict(given), *model.predict_interval(given)]
    answers.append(model.predict(given, exposure=whole.years.to_numpy()))
    for answer in answers:
        assert np.flatnonzero(np.isnan(answer)).tolist() == lacking
    kept = whole.drop(index=lacking)
    np.testing.assert_array_equal(answers[0][kept.index], model.predict(kept))
    scored = model.score(given)
    assert scored == model.score(kept.drop(index=9))
    assert model.score([whole, kept]) == model.score(pd.concat([whole, kept]))
    assert np.isnan(model.predict(given[3:4])).all()
    strict = GeneralizedLinearModel(
        family="poisson", formula="count ~ x + ward", missing="raise"
    ).fit(kept.drop(index=9))
    with pytest.raises(ValueError, match=r"row 3 .* has no value in column 'x'"):
        strict.predict(whole)


def test_labels_of_rows_that_are_left_out_are_none() -> None:
    whole = gappy()
    model = BayesianLogisticRegression(formula="died ~ x + ward").fit(whole)
    labels = model.predict(whole)
    assert [labels[row] for row in (3, 5, 8)] == [None] * 3
    assert set(np.delete(labels, [3, 5, 8])) <= {"yes", "no"}
    assert np.isnan(model.predict_proba(whole)[[3, 5, 8]]).all()
    assert model.score(whole) == model.score(whole.drop(index=[3, 5, 8]))


def test_cross_validation_leaves_out_incomplete_rows() -> None:
    whole = gappy().drop(index=9)
    model = GeneralizedLinearModel(family="poisson", formula="~ x + ward")
    scores = cross_val_score(model, whole, whole["count"], cv=3)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "term", ["scale(a)", "scale(a, center=False)", "center(np.log(a + 9)) * b"]
)
@pytest.mark.parametrize("first", [1, 39])
def test_a_site_with_one_row_has_its_part_in_what_a_formula_learns(term: str, first: int) -> None:
    rng = np.random.default_rng(0)
    whole = pd.DataFrame({"a": rng.normal(size=40) + 3, "b": rng.normal(size=40)})
    whole["y"] = whole.a + rng.normal(size=40)
    pooled = BayesianLinearRegression(formula=f"y ~ {term}").fit(whole)
    model = BayesianLinearRegression(formula=f"y ~ {term}", network=Network.chain(2))
    model.fit([whole[:first], whole[first:]])
    assert max(q.distance(pooled.posterior_) for q in model.node_posteriors_) < 1e-9


def test_sites_may_have_the_columns_of_a_formula_in_any_order() -> None:
    whole = gappy().dropna()
    formula = "count ~ x + ward"
    model = GeneralizedLinearModel(family="poisson", formula=formula, network=Network.chain(2))
    turned = whole[whole.columns[::-1]]
    model.fit([whole[:30], turned[30:]])
    pooled = GeneralizedLinearModel(family="poisson", formula=formula).fit(whole)
    assert model.posterior_.distance(pooled.posterior_) < 1e-9


def test_scores_of_sites_take_the_weights_of_all_rows_in_one_array() -> None:
    whole = gappy().drop(columns="died").dropna()
    model = BayesianLinearRegression(formula="years ~ x").fit(whole)
    parts, weight = [whole[:40], whole[40:]], np.arange(1.0, len(whole) + 1)
    expected = model.score(whole, sample_weight=weight)
    assert model.score(parts, sample_weight=weight) == pytest.approx(expected, rel=1e-12)
    assert model.score(parts, sample_weight=list(weight)) == pytest.approx(expected, rel=1e-12)
    apart = [weight[:40], weight[40:]]
    assert model.score(parts, sample_weight=apart) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("how", ["drop", "impute"])
def test_arrays_with_gaps_are_answered_as_they_were_fitted(how: Any) -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(50, 2))
    y = x[:, 0] + rng.normal(size=50)
    x[4, 1] = np.nan
    model = BayesianLinearRegression(missing=how).fit(x, y)
    assert np.isfinite(model.score(x, y))
    assert np.isnan(model.predict(x)[4]) == (how == "drop")


@pytest.mark.parametrize("term", ["center(flag)", "scale(flag)"])
def test_truth_values_are_centred_as_numbers(term: str) -> None:
    rng = np.random.default_rng(6)
    whole = pd.DataFrame({"flag": np.arange(60) % 4 == 0})
    whole["y"] = whole.flag + rng.normal(size=60)
    values = BayesianLinearRegression(formula=f"y ~ 0 + {term}").fit(whole.astype(float))
    model = BayesianLinearRegression(formula=f"y ~ 0 + {term}").fit(whole)
    np.testing.assert_allclose(model.coef_, values.coef_, rtol=1e-9)
    words = whole.assign(flag=np.where(whole.flag, "yes", "no"))
    with pytest.raises(ValueError, match=r"(center|scale)\(flag\)"):
        BayesianLinearRegression(formula=f"y ~ {term}").fit(words)


@pytest.mark.parametrize("term", ["np.log(x + 9)", "x + C(k) + k"])
def test_rows_without_any_complete_one_are_answered_by_nan(term: str) -> None:
    whole = gappy().dropna().assign(k=lambda d: 10 * (1 + np.arange(len(d)) % 3))
    model = GeneralizedLinearModel(family="poisson", formula=f"count ~ {term}")
    model.fit(whole, exposure="years")
    rows = whole.head(3).assign(x=np.nan)
    assert np.isnan(model.predict(rows, exposure="years")).all()
    both = model.predict([whole, rows], exposure="years")
    np.testing.assert_array_equal(both[0], model.predict(whole, exposure="years"))
    with pytest.raises(ValueError, match="nothing to score"):
        model.score(rows)


@pytest.mark.parametrize("kind", [np.array, list, pd.Series])
def test_exposures_of_incomplete_rows_may_be_missing_too(kind: Any) -> None:
    whole = gappy().dropna()
    model = GeneralizedLinearModel(family="poisson", formula="count ~ x")
    model.fit(whole, exposure="years")
    rows = whole.head(4).copy()
    rows.iloc[1, 0] = np.nan
    years = rows.years.to_numpy().copy()
    years[1] = np.nan
    found = model.predict(rows, exposure=kind(years))
    assert np.flatnonzero(np.isnan(found)).tolist() == [1]
    expected = model.predict(whole.head(4), exposure="years")
    np.testing.assert_array_equal(found[[0, 2, 3]], expected[[0, 2, 3]])
