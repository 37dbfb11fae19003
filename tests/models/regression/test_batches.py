"""partial_fit of models whose statistics add up: after every batch the posterior of one fit to all rows so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import dmfvi
from dmfvi import BayesianLinearRegression, KaplanMeier, Network
from dmfvi.models.pca.belief import GammaPrior

GRAPHS = [Network.chain(3), Network.from_networkx(nx.barbell_graph(3, 1), "barbell")]


def rows(n: int = 120, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Columns in different units, sorted by the first: every batch has other means."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])
    x = x[np.argsort(x[:, 0])]
    y = x @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=n)
    return (x + offset) * [1e-6, 1.0, 1e6], 5.0 + 100.0 * y


def same(streamed: Any, whole: Any, accuracy: float = 1e-9) -> None:
    """Every node's posterior, what is derived from it, and the evidence."""
    sd = np.sqrt(np.diag(whole.coef_covariance_))
    for node in range(len(streamed.node_posteriors_)):
        seen = streamed.at_node(node)
        gap = np.append(seen.coef_ - whole.coef_, seen.intercept_ - whole.intercept_)[: len(sd)]
        assert np.abs(gap / sd).max() < accuracy
        scaled = (seen.coef_covariance_ - whole.coef_covariance_) / np.outer(sd, sd)
        assert np.abs(scaled).max() < accuracy
    assert streamed.lower_bound_ == pytest.approx(whole.lower_bound_, rel=accuracy)
    assert streamed.n_samples_ == whole.n_samples_


@pytest.mark.parametrize(
    "network", [None, *GRAPHS], ids=lambda n: "pooled" if n is None else n.name
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"fit_intercept": False},
        {"prior_precision": 0.7, "noise_prior": GammaPrior(2.0, 3.0)},
    ],
    ids=str,
)
def test_batches_end_with_the_posterior_of_all_rows(
    network: Network | None, settings: dict[str, Any]
) -> None:
    x, y = rows()
    model = BayesianLinearRegression(network=network, **settings)
    for end, batch in ((40, slice(0, 40)), (47, slice(40, 47)), (120, slice(47, 120))):
        model.partial_fit(x[batch], y[batch])
        whole = BayesianLinearRegression(**settings).fit(x[:end], y[:end])
        same(model, whole)
    np.testing.assert_allclose(model.predict(x), whole.predict(x), rtol=1e-9)


def test_columns_far_from_zero_cost_no_digits() -> None:
    """An offset of 1e6 deviations has 1e-10 of them left as rounding of the input."""
    x, y = rows(offset=1e6)
    model = BayesianLinearRegression(network=Network.ring(3))
    for batch in np.array_split(np.arange(len(y)), 4):
        model.partial_fit(x[batch], y[batch])
    whole = BayesianLinearRegression().fit(x, y)
    mean, sd = whole.predict(x, return_std=True)
    assert np.abs((model.predict(x) - mean) / sd).max() < 1e-8
    scale = np.sqrt(np.diag(whole.coef_covariance_))[:3]
    assert np.abs((model.coef_ - whole.coef_) / scale).max() < 1e-8


def test_a_batch_of_one_row_and_nodes_without_rows() -> None:
    x, y = rows()
    cut = np.split(np.arange(60), [20, 45])
    model = BayesianLinearRegression(network=Network.ring(3))
    model.partial_fit([x[i] for i in cut], [y[i] for i in cut])
    model.partial_fit([x[60:61], x[:0], x[:0]], [y[60:61], y[:0], y[:0]])
    same(model, BayesianLinearRegression().fit(x[:61], y[:61]))


def test_a_saved_model_goes_on(tmp_path: Path) -> None:
    x, y = rows()
    dmfvi.save(BayesianLinearRegression().fit(x[:50], y[:50]), tmp_path / "model.npz")
    model = dmfvi.load(tmp_path / "model.npz")
    same(model.partial_fit(x[50:], y[50:]), BayesianLinearRegression().fit(x, y))


def frame() -> pd.DataFrame:
    x, y = rows()
    made = pd.DataFrame({"y": y, "a": x[:, 1], "ward": np.tile(["n", "s", "w"], 40)})
    made.loc[[3, 77], "a"] = np.nan
    return made


def test_frames_keep_the_levels_of_the_first_batch() -> None:
    table, settings = frame(), {"formula": "y ~ a * C(ward)"}
    model = BayesianLinearRegression(**settings, network=Network.chain(2))
    model.partial_fit([table[:20], table[20:50]])
    model.partial_fit([table[50:99], table[99:][table.ward[99:] == "n"]])
    seen = pd.concat([table[:99], table[99:][table.ward[99:] == "n"]])
    whole = BayesianLinearRegression(**settings).fit(seen)
    same(model, whole)
    assert model.n_dropped_ == whole.n_dropped_ == 2
    assert model.term_names_ == whole.term_names_


def test_frames_of_which_nodes_have_no_rows() -> None:
    table, settings = frame(), {"formula": "log(y + 1e4) ~ a + C(ward)"}
    model = BayesianLinearRegression(**settings, network=Network.chain(3))
    model.partial_fit([table[:20], table[20:40], table[40:60]])
    model.partial_fit([table[60:90], table[:0], table[77:78]])  # the last lacks a covariate
    model.partial_fit(table[90:91])  # one row for three nodes
    seen = pd.concat([table[:90], table[77:78], table[90:91]])
    whole = BayesianLinearRegression(**settings).fit(seen)
    same(model, whole)
    assert model.n_dropped_ == whole.n_dropped_ == 3
    with pytest.raises(ValueError, match="no node has a row"):
        model.partial_fit([table[:0]] * 3)
    weights = [np.empty(0)] * 3
    with pytest.raises(ValueError, match="nothing is left to learn from"):
        model.partial_fit([table[:0]] * 3, sample_weight=weights)
    same(model, whole)


def test_columns_of_frames_are_found_by_their_names() -> None:
    x, y = rows()
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(w=2.0)
    whole = BayesianLinearRegression().fit(table[["a", "b", "c"]], y, np.repeat([2.0, 1.0], 60))
    for names in (["c", "a", "b"], ["a", "b", "c", "w"]):
        model = BayesianLinearRegression().fit(table[:60], y[:60], "w")
        same(model.partial_fit(table[names][60:], y[60:]), whole)
    same(BayesianLinearRegression().fit(table[:60], y[:60], "w").partial_fit(x[60:], y[60:]), whole)


def test_a_batch_of_another_form_is_refused() -> None:
    table = frame().dropna()
    model = BayesianLinearRegression(formula="y ~ a").fit(table)
    for formula in ("y ~ a + C(ward)", None):
        with pytest.raises(ValueError, match="not that of the batches so far"):
            model.set_params(formula=formula).partial_fit(table)
    model = BayesianLinearRegression().fit(table[["a", "ward"]], table.y)
    with pytest.raises(ValueError, match="pass a pandas or polars frame"):
        model.partial_fit(np.ones((5, 2)), np.ones(5))
    with pytest.raises(ValueError, match="no column"):
        model.partial_fit(table[["ward"]], table.y)


def test_a_refused_batch_changes_nothing() -> None:
    table = frame()
    model = BayesianLinearRegression(formula="y ~ a + C(ward)").fit(table[:60])
    known = model.coefficient_table()
    with pytest.raises(ValueError, match="ward"):
        model.partial_fit(table[60:].assign(ward="elsewhere"))
    with pytest.raises(ValueError, match="column"):
        model.partial_fit(table[60:].drop(columns="y"))
    assert model.coefficient_table().rows == known.rows
    same(
        model.partial_fit(table[60:]),
        BayesianLinearRegression(formula="y ~ a + C(ward)").fit(table),
    )
    x, y = rows()
    plain = BayesianLinearRegression().fit(x, y)
    with pytest.raises(ValueError, match="features"):
        plain.partial_fit(x[:, :2], y)
    with pytest.raises(ValueError, match="missing='drop'"):
        BayesianLinearRegression(missing="impute").fit(x, y).partial_fit(x, y)


@pytest.mark.parametrize(
    "network", [None, *GRAPHS], ids=lambda n: "pooled" if n is None else n.name
)
@pytest.mark.parametrize("times", [None, np.arange(1.0, 60.0)], ids=["agreed", "given"])
def test_survival_curves_of_batches(network: Network | None, times: Any) -> None:
    rng = np.random.default_rng(1)
    pairs = np.column_stack([np.ceil(rng.exponential(20.0, 90)), rng.random(90) < 0.7])
    model = KaplanMeier(times=times, network=network)
    for begin, end in ((0, 30), (30, 37), (37, 90)):
        model.partial_fit(pairs[begin:end])
        whole = KaplanMeier(times=times).fit(pairs[:end])
        for name in ("timeline_", "observed_", "at_risk_", "survival_function_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(whole, name))
        assert model.n_samples_ == end
        assert max(q.distance(whole.posterior_) for q in model.node_posteriors_) < 1e-9
    if times is not None:
        with pytest.raises(ValueError, match="give the same grid"):
            model.set_params(times=times[:5]).partial_fit(pairs)
        np.testing.assert_array_equal(model.timeline_, times)
        with pytest.raises(ValueError, match="give the same grid"):
            model.set_params(times=None).partial_fit(pairs)


def test_a_batch_whose_rows_do_not_count_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    model = BayesianLinearRegression().partial_fit(x[:40], y[:40])
    before = model.coef_.copy()
    model.partial_fit(x[40:], y[40:], np.zeros(20))
    np.testing.assert_array_equal(model.coef_, before)
    model.partial_fit(x[40:], y[40:])
    np.testing.assert_allclose(model.coef_, BayesianLinearRegression().fit(x, y).coef_, rtol=1e-12)


def test_weights_beyond_double_precision_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="sample_weight has values of size 1e"):
        BayesianLinearRegression().fit(rng.normal(size=(9, 2)), np.arange(9.0), np.full(9, 1e300))


def test_times_beyond_the_agreed_grid_are_refused() -> None:
    times = np.random.default_rng(0).exponential(size=50)
    for unit in (1e-25, 1e25):
        with pytest.raises(ValueError, match="times other than zero must lie between"):
            KaplanMeier().fit(unit * times, np.ones(50))
