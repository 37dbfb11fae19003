"""Survival: sites have the pooled posterior, and it is what other programs find on pooled data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from statsmodels.duration.hazard_regression import PHReg
from statsmodels.duration.survfunc import SurvfuncRight

import dmfvi
from cli_run import dmfvi_command
from dmfvi import CoxRegression, KaplanMeier, Network, PiecewiseExponentialRegression
from dmfvi.models.survival.cox import breslow
from dmfvi.models.survival.model import CoxShard
from dmfvi.models.survival.times import concordance

NETWORKS = [Network.ring(4), Network(nx.lollipop_graph(3, 1), "lollipop")]
on_networks = pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)


def table(n: int = 150, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "age": rng.uniform(40, 80, n),
            "sex": rng.choice(["f", "m"], n),
            "dose": rng.normal(size=n),
        }
    )
    risk = 0.03 * (made.age - 60) + 0.5 * (made.sex == "m") - 0.4 * made.dose
    made["time"] = np.ceil(200 * rng.exponential(np.exp(-risk)))
    made["died"] = rng.random(n) < 0.7
    return made


def sites(whole: pd.DataFrame) -> list[pd.DataFrame]:
    """Sorted by events and time: the first has one row, the second no event, the last only events."""
    ordered = whole.sort_values(["died", "time"], kind="stable")
    made = [ordered.iloc[a:b] for a, b in ((0, 1), (1, 35), (35, 90), (90, len(whole)))]
    assert not made[1].died.any()
    return made


def of_columns(model: Any, data: Any) -> Any:
    return model.fit(data, time="time", event="died")


@on_networks
@pytest.mark.parametrize("time_varying", [(), ("age",)])
def test_piecewise_exponential_sites_have_the_pooled_posterior(
    network: Network, time_varying: tuple[str, ...]
) -> None:
    whole = table()
    settings: dict[str, Any] = {"formula": "~ age + C(sex) + dose", "time_varying": time_varying}
    pooled = of_columns(PiecewiseExponentialRegression(**settings), whole)
    model = of_columns(PiecewiseExponentialRegression(**settings, network=network), sites(whole))
    np.testing.assert_array_equal(model.breakpoints_, pooled.breakpoints_)
    assert max(q.distance(pooled.posterior_) for q in model.node_posteriors_) < 1e-9
    assert (model.n_subjects_, model.n_events_) == (150, whole.died.sum())
    grid = [50.0, 400.0]
    np.testing.assert_allclose(
        model.predict_survival_function(whole, grid),
        pooled.predict_survival_function(whole, grid),
        rtol=1e-9,
    )


@on_networks
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_cox_sites_have_the_posterior_of_strata_on_one_machine(network: Network, ties: Any) -> None:
    parts = sites(table())
    settings = {"formula": "~ age + C(sex) + dose", "ties": ties, "prior_precision": 1e-10}
    model = of_columns(CoxRegression(**settings, network=network), parts)
    pooled = of_columns(CoxRegression(**settings), parts)
    assert max(q.distance(pooled.posterior_) for q in model.node_posteriors_) < 1e-9
    whole = pd.concat(parts).assign(site=np.repeat(np.arange(4), [len(p) for p in parts]))
    by_strata = CoxRegression(**settings).fit(whole, time="time", event="died", strata="site")
    assert by_strata.posterior_.distance(pooled.posterior_) < 1e-9
    rows = np.column_stack([whole.age, whole.sex == "m", whole.dose]).astype(float)
    theirs = PHReg(
        whole.time.to_numpy(), rows, whole.died.to_numpy(), strata=whole.site.to_numpy(), ties=ties
    ).fit()
    frame = model.summary_frame().loc[["age", "C(sex)[T.m]", "dose"]]
    np.testing.assert_allclose(frame.estimate, theirs.params, atol=1e-6)
    np.testing.assert_allclose(frame.sd, theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(frame.ratio, np.exp(theirs.params), rtol=1e-5)


def test_lung_cancer_in_three_sites() -> None:
    """Log hazard ratios within 0.1 standard errors of pooled Cox, and the stratified Cox estimate itself."""
    folder = Path(os.environ.get("DMFVI_DATA", Path(__file__).parents[4] / "shared" / "data"))
    file = folder / "sites" / "lung2.csv"
    if not file.exists():
        pytest.skip(f"no {file}: set DMFVI_DATA")
    lung = pd.read_csv(file)
    parts = [part for _, part in lung.groupby("site")]
    network = Network.ring(3)
    arguments = {"time": "time", "event": "status"}
    rows = lung[["age", "sex"]]
    model = PiecewiseExponentialRegression(formula="~ age + sex", network=network)
    model.fit(parts, **arguments)
    pooled = PHReg(lung.time, rows, lung.status, ties="efron").fit()
    assert np.abs((model.coef_ - pooled.params) / pooled.bse).max() < 0.1
    cox = CoxRegression(formula="~ age + sex", prior_precision=1e-10, network=network)
    cox.fit(parts, **arguments)
    strata = PHReg(lung.time, rows, lung.status, strata=lung.site, ties="efron").fit()
    np.testing.assert_allclose(cox.coef_, strata.params, atol=1e-6)


@on_networks
def test_kaplan_meier_is_the_pooled_estimate(network: Network) -> None:
    whole, parts = table(), sites(table())
    theirs = SurvfuncRight(whole.time, whole.died.astype(int))
    given = [part[["time", "died"]].to_numpy(dtype=float) for part in parts]
    model = KaplanMeier(times=np.unique(whole.time), network=network).fit(given)
    np.testing.assert_allclose(model.predict(theirs.surv_times), theirs.surv_prob, rtol=1e-12)
    pooled = KaplanMeier().fit(whole.time, whole.died)
    spread = KaplanMeier(network=network).fit(
        [part.time.to_numpy() for part in parts], [part.died.to_numpy() for part in parts]
    )
    np.testing.assert_array_equal(spread.survival_function_, pooled.survival_function_)
    # whole numbers up to 512 are not rounded
    early = theirs.surv_times[theirs.surv_times < 512]
    np.testing.assert_allclose(pooled.predict(early), theirs.surv_prob[: len(early)], rtol=1e-9)
    low, high = model.confidence_interval(0.95)
    se = theirs.surv_prob_se
    inside = (theirs.surv_prob > 0) & (theirs.surv_prob < 1)
    s, se = theirs.surv_prob[inside], se[inside]
    reach = np.exp(1.959964 * se / (s * np.log(s)))
    at = np.searchsorted(model.timeline_, theirs.surv_times[inside])
    np.testing.assert_allclose(low[at], s ** (1 / reach), rtol=1e-5)
    np.testing.assert_allclose(high[at], s**reach, rtol=1e-5)


def test_times_and_events_come_as_other_packages_have_them() -> None:
    whole = table()
    x = whole[["age", "dose"]].to_numpy()
    structured = np.array(
        list(zip(whole.died, whole.time, strict=True)), dtype=[("died", bool), ("time", float)]
    )
    columns = whole[["time", "died"]].to_numpy(dtype=float)
    for kind in (CoxRegression, PiecewiseExponentialRegression):
        expected = kind().fit(x, whole.time, whole.died).coef_
        for model in (
            kind().fit(x, structured),
            kind().fit(x, columns),
            kind().fit(x, time=whole.time, event=whole.died),
            kind().fit(whole[["age", "dose", "time", "died"]], time="time", event="died"),
        ):
            np.testing.assert_allclose(model.coef_, expected, rtol=1e-9)
    np.testing.assert_array_equal(
        KaplanMeier().fit(structured).survival_function_,
        KaplanMeier().fit(whole, time="time", event="died").survival_function_,
    )


def test_effects_that_vary_are_found() -> None:
    rng = np.random.default_rng(2)
    n = 4000
    x = rng.normal(size=n)
    early = rng.exponential(np.exp(-x))  # hazard e^x before one, e^-x after it
    late = 1.0 + rng.exponential(np.exp(x))
    time = np.where(early < 1.0, early, late)
    model = PiecewiseExponentialRegression(breakpoints=[1.0], time_varying=("x0",))
    model.fit(x[:, None], time, np.ones(n))
    np.testing.assert_allclose(model.coef_, [1.0, -1.0], atol=0.1)
    np.testing.assert_allclose(model.log_hazard_, [0.0, 0.0], atol=0.1)


def test_survival_curves_hold_the_true_one() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, 1))
    time = rng.exponential(np.exp(-0.7 * x[:, 0]))
    model = PiecewiseExponentialRegression().fit(x, time, np.ones(2000))
    at = np.array([0.2, 1.0])
    truth = np.exp(-np.exp(0.7 * np.array([[0.0], [1.0]])) * at)
    low, high = model.predict_survival_function([[0.0], [1.0]], at, level=0.999)
    assert ((low < truth) & (truth < high)).all()
    cox = CoxRegression().fit(x, time, np.ones(2000))
    np.testing.assert_allclose(cox.predict_survival_function([[0.0], [1.0]], at), truth, atol=0.05)
    assert cox.score(x, time, np.ones(2000)) > 0.6


@pytest.mark.parametrize("kind", [CoxRegression, PiecewiseExponentialRegression])
def test_units_and_origins_of_columns_do_not_matter(kind: Any) -> None:
    whole = table()
    x = whole[["age", "dose"]].to_numpy()
    plain = kind().fit(x, whole.time, whole.died)
    far = kind().fit(x * [1e6, 1e-6] + [1e10, 5.0], 2.0**-10 * whole.time, whole.died)
    np.testing.assert_allclose(far.coef_ * [1e6, 1e-6], plain.coef_, rtol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"time_varying": "x0"}, {"breakpoints": [100.0, 300.0]}])
@pytest.mark.parametrize("unit", [1e-8, 1 / 365.25, 86400.0, 1e8])
def test_the_unit_of_time_does_not_matter(settings: dict[str, Any], unit: float) -> None:
    whole = table()
    x, times = whole[["age", "dose"]].to_numpy(), whole.time.to_numpy()
    plain = PiecewiseExponentialRegression(**settings).fit(x, times, whole.died)
    if "breakpoints" in settings:
        settings = {"breakpoints": unit * np.array(settings["breakpoints"])}
    other = PiecewiseExponentialRegression(**settings).fit(x, unit * times, whole.died)
    deviation = np.sqrt(np.diag(plain.coef_covariance_))
    assert (np.abs(other.coef_ - plain.coef_) / deviation[: len(plain.coef_)]).max() < 1e-8
    np.testing.assert_allclose(np.sqrt(np.diag(other.coef_covariance_)), deviation, rtol=1e-8)
    np.testing.assert_allclose(other.breakpoints_, unit * plain.breakpoints_, rtol=1e-10)
    np.testing.assert_allclose(other.log_hazard_ + np.log(unit), plain.log_hazard_, atol=1e-8)
    at = np.array([50.0, 400.0])
    curves = plain.predict_survival_function(x[:5], at)
    np.testing.assert_allclose(other.predict_survival_function(x[:5], unit * at), curves, atol=1e-8)
    assert other.lower_bound_ == pytest.approx(plain.lower_bound_, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"died": 2}, "event must be 1 .* or 0 .*, received 2"),
        ({"died": False}, "no event at any node"),
        ({"time": -1.0}, "times must be"),
        ({"died": "yes"}, "column 'died' holds 'yes': events are 1 or True"),
        ({"time": "long"}, "column 'time' holds 'long': times are numbers"),
    ],
)
@pytest.mark.parametrize("kind", [CoxRegression, PiecewiseExponentialRegression])
def test_what_cannot_be_is_refused(kind: Any, change: dict[str, Any], message: str) -> None:
    whole = table().assign(**change)
    with pytest.raises(ValueError, match=message):
        kind(formula="~ age").fit(whole, time="time", event="died")
    with pytest.raises(ValueError, match="name times and events in fit"):
        kind(formula="time ~ age").fit(whole, time="time", event="died")


def test_separated_and_collinear_covariates_have_a_proper_posterior() -> None:
    rng = np.random.default_rng(4)
    time = np.arange(1.0, 41.0)
    x = np.column_stack([time < 20, time < 20, np.ones(40), rng.normal(size=40)])
    for kind in (CoxRegression, PiecewiseExponentialRegression):
        model = kind().fit(x, time, (time < 20).astype(float))
        assert np.isfinite(model.coef_).all()
        assert (np.diag(model.coef_covariance_) > 0).all()


def test_files_and_the_shell(tmp_path: Path) -> None:
    whole = table().assign(died=lambda d: d.died.astype(int))
    files = []
    for place, part in enumerate(sites(whole)):
        files.append(tmp_path / f"site{place}.csv")
        part.to_csv(files[-1], index=False)
    for kind, estimator in (
        ("cox", CoxRegression(formula="~ age + C(sex)")),
        ("piecewise-exponential", PiecewiseExponentialRegression(formula="~ age + C(sex)")),
    ):
        out = tmp_path / kind
        said = dmfvi_command(
            "fit", *files, "--model", kind, "--formula", "~ age + C(sex)", "--set", "time=time",
            "--set", "event=died", "--out", out,
        )  # fmt: skip
        assert said.code == 0, said.err
        pooled = of_columns(estimator, sites(whole))
        loaded = dmfvi.load(out)
        assert loaded.posterior_.distance(pooled.posterior_) < 1e-9
        predicted = tmp_path / f"{kind}.csv"
        assert dmfvi_command("predict", files[2], "--model", out, "--out", predicted).code == 0
        np.testing.assert_allclose(
            pd.read_csv(predicted).prediction, pooled.predict(sites(whole)[2]), rtol=1e-8
        )
    said = dmfvi_command("fit", *files, "--model", "kaplan-meier", "--columns", "time,died", "--out", tmp_path / "km")  # fmt: skip
    assert said.code == 0, said.err
    assert dmfvi.load(tmp_path / "km").observed_.sum() == whole.died.sum()


def test_missing_strata_are_refused_or_dropped() -> None:
    whole = table().assign(ward=lambda d: (np.arange(len(d)) % 3).astype(float))
    whole.loc[::10, "ward"] = np.nan
    words = (
        whole.ward.map({0.0: "a", 1.0: 5, 2.0: "c"}).astype(object).where(whole.ward.notna(), None)
    )
    rest = whole.dropna()
    expected = CoxRegression().fit(
        rest[["age"]].to_numpy(), rest.time, rest.died, strata=rest.ward.to_numpy()
    )
    for strata in (whole.ward.to_numpy(), words.to_numpy()):
        with pytest.raises(ValueError, match="strata has no label in 15 of 150 rows"):
            CoxRegression().fit(whole[["age"]].to_numpy(), whole.time, whole.died, strata=strata)
        dropped = CoxRegression(missing="drop").fit(
            whole[["age"]].to_numpy(), whole.time, whole.died, strata=strata
        )
        assert (dropped.n_dropped_, dropped.n_subjects_) == (15, 135)
        assert dropped.posterior_.distance(expected.posterior_) < 1e-9
    model = CoxRegression(formula="~ age").fit(whole, time="time", event="died", strata="ward")
    assert model.n_dropped_ == 15
    assert model.posterior_.distance(expected.posterior_) < 1e-9


def test_strata_beyond_the_whole_numbers_of_floats_stay_apart() -> None:
    whole = table().assign(ward=lambda d: np.arange(len(d)) % 2)
    far = whole.assign(ward=whole.ward + 2**60)
    fits = [
        CoxRegression(formula="~ age").fit(each, time="time", event="died", strata="ward")
        for each in (whole, far)
    ]
    assert fits[0].posterior_.distance(fits[1].posterior_) == 0.0


def test_a_stratum_is_named_by_its_label() -> None:
    whole = table().assign(ward=lambda d: np.where(np.arange(len(d)) % 2 == 0, 2, 10))
    # whoever lies in ward 10 lives a hundred times as long
    whole["time"] = np.where(whole.ward == 10, 100.0, 1.0) * whole.time
    settings = {"formula": "~ age"}
    model = CoxRegression(**settings).fit(whole, time="time", event="died", strata="ward")
    head, at = whole.head(2), [300.0]
    short = model.predict_survival_function(head, at, stratum=2)
    long = model.predict_survival_function(head, at, stratum=10)
    assert (short < long).all()
    for wrong in (0, "2", None):
        with pytest.raises(ValueError, match=r"strata, \[2, 10\], received"):
            model.predict_survival_function(head, at, stratum=wrong)
    with pytest.raises(ValueError, match=r"site 1 is none of this process's, which are \[0\]"):
        model.predict_survival_function(head, at, site=1, stratum=2)
    # a list of sites has one baseline a site, pooled and over nodes
    parts = [whole[whole.ward == 2], whole[whole.ward == 10]]
    for network in (None, Network.chain(2)):
        spread = of_columns(CoxRegression(**settings, network=network), parts)
        for site, expected in enumerate((short, long)):
            np.testing.assert_allclose(
                spread.predict_survival_function(head, at, site=site), expected, rtol=1e-6
            )
        with pytest.raises(ValueError, match=r"say whose with site=, one of \[0, 1\]"):
            spread.predict_survival_function(head, at)
        by_site = spread.predict_survival_function([head, head], at)
        np.testing.assert_allclose(np.stack(by_site), np.stack([short, long]), rtol=1e-6)
    with pytest.warns(UserWarning, match="one table is cut into 2 parts"):
        cut = CoxRegression(network=Network.chain(2)).fit(whole[["age"]], whole.time, whole.died)
    assert cut.predict_survival_function(whole[["age"]], at, site=1).shape == (150, 1)


@pytest.mark.parametrize("kind", [CoxRegression, PiecewiseExponentialRegression])
@pytest.mark.parametrize("formula", ["~ 0 + age", "~ 0 + C(sex)", "~ age - 1"])
def test_a_formula_without_an_intercept_is_refused(kind: Any, formula: str) -> None:
    with pytest.raises(ValueError, match="part of the baseline hazard"):
        of_columns(kind(formula=formula), table())


@on_networks
@pytest.mark.parametrize("kind", [CoxRegression, PiecewiseExponentialRegression])
def test_rows_of_weight_zero_are_no_rows(kind: Any, network: Network) -> None:
    """Among them the last event."""
    whole = table().assign(weight=1.0)
    whole.loc[::9, "weight"] = 0.0
    whole.loc[whole.time.idxmax(), ["weight", "died"]] = (0.0, True)
    rest = whole[whole.weight > 0]
    settings = {"formula": "~ age"}
    expected = of_columns(kind(**settings), rest)
    model = kind(**settings).fit(whole, time="time", event="died", sample_weight="weight")
    assert (model.n_subjects_, model.n_events_) == (len(rest), rest.died.sum())
    assert model.posterior_.distance(expected.posterior_) < 1e-9
    at = [10.0, 1e9]
    curves = model.predict_survival_function(whole.head(2), at)
    assert np.isfinite(curves).all()
    np.testing.assert_allclose(
        curves, expected.predict_survival_function(whole.head(2), at), rtol=1e-6
    )
    spread = kind(**settings, network=network).fit(
        sites(whole), time="time", event="died", sample_weight="weight"
    )
    assert (spread.n_subjects_, spread.n_events_) == (len(rest), rest.died.sum())
    nothing = whole.assign(weight=np.where(whole.died, 0.0, 1.0))
    for more in ({}, {"breakpoints": [100.0]}) if kind is not CoxRegression else ({},):
        with pytest.raises(ValueError, match="no event at any node"):
            kind(**settings, **more).fit(nothing, time="time", event="died", sample_weight="weight")


@on_networks
@pytest.mark.parametrize("unit", [1.0, 0.1])
def test_a_weight_of_two_is_two_rows(network: Network, unit: float) -> None:
    rng = np.random.default_rng(5)
    whole = table().assign(weight=unit * rng.integers(0, 4, 150))
    twice = whole.loc[np.repeat(whole.index, np.rint(whole.weight / unit).astype(int))]
    settings = {"formula": "~ age + dose"}
    expected = of_columns(PiecewiseExponentialRegression(**settings), twice)
    arguments = {"time": "time", "event": "died", "sample_weight": "weight"}
    model = PiecewiseExponentialRegression(**settings).fit(whole, **arguments)
    np.testing.assert_array_equal(model.breakpoints_, expected.breakpoints_)
    spread = PiecewiseExponentialRegression(**settings, network=network)
    spread.fit(sites(whole), **arguments)
    np.testing.assert_array_equal(spread.breakpoints_, expected.breakpoints_)
    assert max(q.distance(model.posterior_) for q in spread.node_posteriors_) < 1e-9
    if unit == 1.0:
        assert model.posterior_.distance(expected.posterior_) < 1e-9


@pytest.mark.parametrize("network", [None, Network.chain(2)], ids=["pooled", "nodes"])
@pytest.mark.parametrize("times", [None, [0, 1, 2]])
def test_kaplan_meier_has_events_at_time_zero(network: Any, times: Any) -> None:
    pairs = np.column_stack([[0, 0, 1, 2], [1, 1, 1, 1]]).astype(float)
    model = KaplanMeier(times=times, network=network).fit(pairs)
    np.testing.assert_array_equal(model.timeline_, [0.0, 1.0, 2.0])
    np.testing.assert_allclose(model.predict([0.0, 0.5, 1.0, 2.0]), [0.5, 0.5, 0.25, 0.0])
    theirs = SurvfuncRight(pairs[:, 0], pairs[:, 1])
    np.testing.assert_allclose(model.survival_function_, theirs.surv_prob, atol=1e-15)
    assert model.median_survival_time_ == 0.0


@pytest.mark.parametrize("times", [[-1, 1], [2, 1], [], [1, np.nan], ["a"], [[1.0]]])
def test_a_grid_that_cannot_be_is_refused_by_name(times: Any) -> None:
    with pytest.raises(ValueError, match=r"^times must be"):
        KaplanMeier(times=times).fit([1.0, 2.0], [1, 1])


@pytest.mark.parametrize("kind", [CoxRegression, PiecewiseExponentialRegression])
def test_events_are_truth_values_numbers_or_their_words(kind: Any) -> None:
    whole = table()
    x, expected = whole[["age"]].to_numpy(), of_columns(kind(formula="~ age"), table())
    numbers = whole.died.astype(int)
    for died in (numbers, whole.died.astype(str), numbers.astype(str), whole.died.astype(object)):
        model = of_columns(kind(formula="~ age"), whole.assign(died=died))
        assert model.posterior_.distance(expected.posterior_) < 1e-9
        beside = kind().fit(x, whole.time, died.to_numpy())
        assert beside.posterior_.distance(expected.posterior_) < 1e-9
    with pytest.raises(ValueError, match=r"event holds '(yes|no)'"):
        kind().fit(x, whole.time, np.where(whole.died, "yes", "no"))
    with pytest.raises(ValueError, match=r"event holds '(yes|no)'"):
        KaplanMeier().fit(whole.time, np.where(whole.died, "yes", "no"))


def test_one_varying_term_may_be_given_as_a_word() -> None:
    settings: dict[str, Any] = {"formula": "~ age", "n_intervals": 3}
    one, same = (
        of_columns(PiecewiseExponentialRegression(time_varying=name, **settings), table())
        for name in ("age", ("age",))
    )
    np.testing.assert_array_equal(one.coef_, same.coef_)
    assert len(one.coef_) == 3


@pytest.mark.parametrize("count", [24, 28, 30, 118])
def test_the_median_is_where_half_survive(count: int) -> None:
    times = np.arange(1.0, count + 1)
    assert KaplanMeier().fit(times, np.ones(count)).median_survival_time_ == count / 2


def test_survival_curves_of_many_rows_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table()
    model = of_columns(PiecewiseExponentialRegression(formula="~ age + dose"), whole)
    grid = [50.0, 400.0]
    answers = [
        model.predict_survival_function(whole, grid),
        *model.predict_survival_function(whole, grid, level=0.9),
        model.predict_cumulative_hazard(whole, grid),
    ]
    asked = []
    hazards = type(model)._hazards

    def counted(self: Any, x: Any, *others: Any) -> Any:
        asked.append(len(x))
        return hazards(self, x, *others)

    monkeypatch.setattr("dmfvi.models.survival.piecewise.MOST_CELLS", 20_000)
    monkeypatch.setattr(type(model), "_hazards", counted)
    again = [
        model.predict_survival_function(whole, grid),
        *model.predict_survival_function(whole, grid, level=0.9),
        model.predict_cumulative_hazard(whole, grid),
    ]
    assert max(asked) == 10
    for one, other in zip(answers, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n", [1, 2, 40])
def test_concordance_compares_every_pair_whose_order_is_known(n: int, tied: bool) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        risk = rng.integers(0, 5, n) / 3 if tied else rng.normal(size=n)
        time = rng.integers(1, 9, n).astype(float) if tied else rng.exponential(size=n)
        event = rng.integers(0, 2, n) > 0
        good, known = 0.0, 0
        for i in np.flatnonzero(event):
            for j in range(n):
                if time[j] > time[i] or (time[j] == time[i] and not event[j]):
                    known += 1
                    good += 1.0 if risk[i] > risk[j] else 0.5 * (risk[i] == risk[j])
        found = concordance(risk, np.column_stack([time, event]))
        assert found == pytest.approx(good / known if known else 0.5, abs=1e-14)


def test_baseline_hazards_are_those_of_their_stratum() -> None:
    rng = np.random.default_rng(0)
    n = 60
    x, time, weight = rng.normal(size=(n, 2)), rng.integers(1, 12, n) * 1.0, rng.integers(0, 3, n)
    event, stratum = rng.integers(0, 2, n) * 1.0, rng.integers(0, 4, n)
    event[stratum == 2] = 0.0  # a stratum without events
    theta = np.array([0.4, -0.7])
    found = breslow(CoxShard.of(x, time, event, weight * 1.0, stratum), theta)
    assert sorted(found) == [0, 1, 2, 3]
    for label, (steps, hazard) in found.items():
        own = stratum == label
        times = sorted(
            {t for t, e, w in zip(time[own], event[own], weight[own], strict=True) if e and w}
        )
        total, expected = 0.0, []
        for t in times:
            deaths = weight[own & (time == t) & (event > 0)].sum()
            total += deaths / (weight * np.exp(x @ theta))[own & (time >= t)].sum()
            expected.append(total)
        np.testing.assert_array_equal(steps, times)
        np.testing.assert_allclose(hazard, expected, rtol=1e-12)


def test_sampled_times_follow_the_fitted_hazards() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(4000, 1))
    time = rng.weibull(1.5, 4000) * 10.0 * np.exp(-0.5 * x[:, 0])
    model = PiecewiseExponentialRegression(n_intervals=20).fit(x, time, np.ones(4000))
    rows = np.repeat([[-1.0], [1.0]], 20_000, axis=0)
    drawn = model.sample(rows, random_state=1)
    for at in (2.0, 8.0):
        alive = [float((part > at).mean()) for part in np.split(drawn, 2)]
        np.testing.assert_allclose(
            alive, model.predict_survival_function(rows[[0, -1]], [at])[:, 0], atol=0.05
        )


def test_a_fit_that_has_failed_is_no_fit() -> None:
    whole = table()
    model = PiecewiseExponentialRegression(formula="~ age", time_varying="stage")
    with pytest.raises(ValueError, match="time_varying names 'stage'"):
        model.fit(whole, time="time", event="died")
    with pytest.raises(NotFittedError):
        model.predict(whole)


@pytest.mark.parametrize("name", ["sex", "C(sex)", "C(sex)[T.m]"])
def test_a_column_names_its_levels_as_terms_that_vary(name: str) -> None:
    whole = table()
    model = PiecewiseExponentialRegression(
        formula="~ age + C(sex)", time_varying=name, n_intervals=2
    )
    model.fit(whole, time="time", event="died")
    assert [t.split(" ")[0] for t in model.term_names_] == ["age", *["C(sex)[T.m]"] * 2]


def test_tables_state_the_prior_and_the_strata() -> None:
    whole = table().assign(ward=lambda d: np.arange(len(d)) % 2)
    cox = of_columns(CoxRegression(formula="~ age", prior_precision=1e-6), whole)
    assert "prior precision 1e-06" in str(cox.summary())
    assert "stratified by site," in str(cox.summary())
    cox.fit(whole, time="time", event="died", strata="ward")
    assert "stratified by site and strata" in str(cox.summary())


@pytest.mark.parametrize("column", ["time", "died"])
def test_scores_leave_out_rows_without_a_time_or_an_event(column: str) -> None:
    """A missing time made the count of pairs endless."""
    whole = table().assign(died=lambda d: d.died.astype(float))
    gaps = whole.copy()
    gaps.loc[3, column] = np.nan
    model = of_columns(CoxRegression(formula="~ age"), gaps)
    scored = model.score(gaps, time="time", event="died")
    assert scored == model.score(whole.drop(index=3), time="time", event="died")
    plain = CoxRegression().fit(whole[["age"]], whole.time, whole.died)
    with pytest.raises(ValueError, match="every row needs a time and an event"):
        plain.score(gaps[["age"]].to_numpy(), gaps.time, gaps.died)
    assert 0.0 <= concordance(np.arange(3.0), np.array([[1.0, 1], [np.nan, 1], [2, 1]])) <= 1.0


def test_the_curve_is_a_frame() -> None:
    whole = table()
    curve = KaplanMeier().fit(whole[["time", "died"]].to_numpy(dtype=float))
    frame = curve.summary_frame(level=0.8)
    np.testing.assert_array_equal(frame.index, curve.timeline_)
    np.testing.assert_array_equal(frame.survival, curve.survival_function_)
    np.testing.assert_array_equal(frame[["lower", "upper"]].T, curve.confidence_interval(0.8))
    assert frame.events.sum() == whole.died.sum()


@pytest.mark.parametrize("kind", [CoxRegression, PiecewiseExponentialRegression])
def test_times_are_no_values_of_rows(kind: Any) -> None:
    """Four rows, one of them incomplete, and four times."""
    whole = table()
    model = of_columns(kind(formula="~ age"), whole)
    rows = whole.head(4).assign(age=lambda d: d.age.where(d.index != 1))
    at = [10.0, 50.0, 100.0, 300.0]
    found = model.predict_survival_function(rows, times=at)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(
        found[[0, 2, 3]], model.predict_survival_function(rows.drop(index=1), at)
    )
    both = model.predict_survival_function([rows, rows.head(1)], at)
    np.testing.assert_array_equal(both[0], found)


def test_levels_with_a_colon_belong_to_their_column() -> None:
    whole = table().assign(hour=lambda d: np.where(d.age > 60, "08:00-12:00", "12:00-16:00"))
    model = PiecewiseExponentialRegression(formula="~ hour", time_varying="hour", n_intervals=2)
    assert len(of_columns(model, whole).term_names_) == 2
