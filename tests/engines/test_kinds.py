"""Every kind of model that a node runs: the local answer, faults or not, and a posterior that can be read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bus import Killed
from dmfvi import Network
from dmfvi.deploy.config import read_config
from dmfvi.deploy.kinds import NETWORK_KINDS
from dmfvi.engines.net.endpoint import Timing
from dmfvi.engines.net.faults import Faults
from dmfvi.readers.tables import Table
from dmfvi.storage import details, load, save
from estimator_cases import CASES, N_NODES, as_data, changed, toml_of

CHAIN = Network.chain(N_NODES)


@pytest.mark.parametrize("kind", sorted(NETWORK_KINDS))
def test_without_faults_it_is_the_local_engines_answer(
    make_cluster, tmp_path: Path, kind: str
) -> None:
    case = CASES[kind]
    timing = Timing(patience=20.0, settle=0.3)
    cluster = make_cluster(tmp_path, CHAIN, case.shards, timing=timing, model=case.model)
    cluster.start_all()
    cluster.wait()
    local = case.local(network=CHAIN)
    for node in range(N_NODES):
        saved = cluster.saved(node)
        assert saved._ended_well
        about = details(tmp_path / f"node-{node}")
        assert about["kind"] == kind
        assert [each["node"] for each in about["members"]] == list(range(N_NODES))
        assert saved.members_ == about["members"]
        assert saved.missing_ == []
        assert saved.posterior_.distance(local.node_posteriors_[node]) < 1e-6


@pytest.mark.parametrize("kind", ["bayesian-gaussian-mixture", "bayesian-logistic-regression"])
def test_a_killed_node_of_another_kind_comes_back(make_cluster, tmp_path: Path, kind: str) -> None:
    case = CASES[kind]
    faults = Faults(loss=0.1)
    if "n_init" in case.model.settings:  # its start takes many sums: with lost messages, a minute
        case, faults = replace(case, model=changed(case.model, n_init=1)), Faults()
    quick = Timing(patience=0.02, silence=30.0, settle=0.3, linger=30.0)
    cluster = make_cluster(
        tmp_path, CHAIN, case.shards, timing=quick, model=case.model, faults=faults
    )

    def die(rounds: int) -> None:
        if rounds == 9:
            raise Killed

    cluster.hooks[1] = die
    cluster.start_all()
    cluster.until_dead(1)
    del cluster.hooks[1]
    cluster.start(1, None)
    cluster.wait()
    pooled = case.local(tol=1e-10)
    for node in range(N_NODES):
        assert cluster.saved(node).posterior_.distance(pooled.posterior_) < 1e-6


def test_a_saved_model_knows_the_columns_that_it_was_fitted_to(tmp_path: Path) -> None:
    case = CASES["bayesian-logistic-regression"]
    table = Table(np.concatenate(case.shards), ["a", "y", "b", "c"])
    model = changed(case.model, target="y")
    fitted = model.fit(table)
    file = save(fitted, tmp_path / "model.npz", model.details(table))
    assert details(file) == {"kind": model.kind, "target": "y", "columns": ["a", "y", "b", "c"]}
    assert load(file).feature_names_in_.tolist() == ["a", "b", "c"]
    by_number = case.model.fit(table)
    np.testing.assert_array_equal(by_number.coef_, fitted.coef_)


def test_columns_are_matched_by_name(make_cluster, tmp_path: Path) -> None:
    """Two nodes whose files have the same columns in another order: one posterior, the pooled one."""
    whole = np.concatenate(CASES["bayesian-logistic-regression"].shards)
    names = ["bmi", "outcome", "age", "dose"]
    kind = changed(CASES["bayesian-logistic-regression"].model, target="outcome", tol=1e-10)
    first, second = Table(whole[:40], names), Table(whole[40:], names)
    mixed = second.in_order(["dose", "bmi", "age", "outcome"])
    cluster = make_cluster(tmp_path, Network.chain(2), [first, mixed], model=kind)
    cluster.start_all()
    cluster.wait()
    pooled = kind.fit(kind.in_agreed_order(Table(whole, names)))
    for node in range(2):
        saved = cluster.saved(node)
        assert saved.feature_names_in_.tolist() == ["age", "bmi", "dose"]
        np.testing.assert_allclose(saved.coef_, pooled.coef_, rtol=1e-6, atol=1e-8)
    usual = kind.fit(Table(whole, names))  # as one file in its own order
    at = [usual.feature_names_in_.tolist().index(name) for name in ("age", "bmi", "dose")]
    np.testing.assert_allclose(pooled.coef_, usual.coef_[:, at], rtol=1e-6, atol=1e-8)


def test_other_columns_are_refused_by_name(make_cluster, tmp_path: Path) -> None:
    whole = np.concatenate(CASES["bayesian-logistic-regression"].shards)
    kind = changed(CASES["bayesian-logistic-regression"].model, target="outcome")
    shards = [
        Table(whole[:40], ["bmi", "outcome", "age", "dose"]),
        Table(whole[40:], ["dose", "outcome", "weight", "bmi"]),
    ]
    cluster = make_cluster(tmp_path, Network.chain(2), shards, model=kind)
    cluster.wait_seconds = 5.0
    cluster.start_all()
    for node in range(2):
        cluster.until_dead(node)
    said = sorted(str(error) for error in cluster.errors)
    assert len(said) == 2
    assert any('columns ["age"] only here and ["weight"] only there' in text for text in said)
    assert any('columns ["weight"] only here and ["age"] only there' in text for text in said)


def test_columns_that_are_numbered_stay_where_they_are() -> None:
    table = Table(np.arange(6.0).reshape(2, 3), ["c", "a", "b"])
    numbered = changed(CASES["bayesian-logistic-regression"].model, target=2)
    assert numbered.in_agreed_order(table) is table
    assert changed(numbered, target="a").in_agreed_order(table).columns == ["a", "b", "c"]


HEAD = '[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = "a.npy"\n[model]\n'


@pytest.mark.parametrize("kind", sorted(NETWORK_KINDS))
def test_settings_of_a_file(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f"{HEAD}{toml_of(CASES[kind].model)}")
    assert read_config(file, insecure=True).model == CASES[kind].model
    file.write_text(f'{HEAD}kind = "{kind}"\nspeed = 3')
    with pytest.raises(ValueError, match=f"node.toml.*{kind} has no .'speed'., known are"):
        read_config(file, insecure=True)
    columns = "".join(f"{name} = {number}\n" for name, number in CASES[kind].model.columns.items())
    file.write_text(f'{HEAD}kind = "{kind}"\n{columns}tol = "x"')
    with pytest.raises(ValueError, match=r"node.toml, \[model\]: tol of .*must be a number.*'x'"):
        read_config(file, insecure=True)


@pytest.mark.parametrize("kind", ["magic", "gaussian-mixture", "svd-factorization"])
def test_an_unknown_kind_is_named(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'{HEAD}kind = "{kind}"')
    with pytest.raises(ValueError, match=rf"node.toml: kind in \[model\] must be one of .*{kind}"):
        read_config(file, insecure=True)


def test_kinds_and_settings_tell_nodes_apart() -> None:
    table = Table(np.ones((3, 4)), None)
    cases = [CASES[kind] for kind in NETWORK_KINDS]
    assert len({case.model.fingerprint(table) for case in cases}) == len(cases)
    one = CASES["bayesian-linear-regression"].model
    assert one.fingerprint(table) != changed(one, target=3).fingerprint(table)
    assert one.fingerprint(table) != changed(one, random_state=1).fingerprint(table)
    assert one.fingerprint(table) != one.fingerprint(Table(np.ones((3, 5)), None))
    assert one.fingerprint(table) != one.fingerprint(Table(np.ones((3, 4)), list("abcd")))
    # a node that gives up earlier than the others would leave them without a result
    assert one.fingerprint(table) != changed(one, max_iter=7).fingerprint(table)
    sweeps = CASES[
        "rating-factorization"
    ].model  # without tol, max_iter is how many sweeps are made
    assert sweeps.fingerprint(table) != changed(sweeps, max_iter=7).fingerprint(table)


def test_versions_tell_nodes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(np.ones((3, 4)), None)
    model = CASES["bayesian-linear-regression"].model
    here = model.fingerprint(table)
    monkeypatch.setattr("dmfvi.deploy.kinds.__version__", "another")
    assert model.fingerprint(table) != here


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("bayesian-linear-regression", {"target": 1.5}, "name or number of a column"),
        ("bayesian-linear-regression", {"target": "price"}, "have no names"),
        ("bayesian-linear-regression", {"target": 9}, "not in 1..4"),
        ("bayesian-logistic-regression", {"classes": [0, 2]}, "labels .1.0. that are not in"),
        ("bayesian-logistic-regression", {"classes": "none"}, "classes are needed"),
        ("categorical-hmm", {"n_features": "none"}, "n_features is needed"),
        ("gaussian-hmm", {"sequence": 7}, "not in 1..3"),
        ("gaussian-hmm", {"n_init": 0}, "n_init must be"),
        ("bayesian-gaussian-mixture", {"n_components": 0}, "n_components must be"),
        ("bayesian-pca", {"n_components": 9}, "larger than n_features"),
        ("bayesian-pca", {"max_iter": 0}, "max_iter must be"),
        ("bayesian-pca", {"random_state": -1}, "random_state must be a whole number"),
        ("rating-factorization", {"rating_scale": [2, 3]}, "outside the scale"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(kind, changes, message: str) -> None:
    case = CASES[kind]
    with pytest.raises(ValueError, match=message):
        changed(case.model, **changes).check(case.data[0])


@pytest.mark.parametrize("kind", ["bayesian-linear-regression", "latent-dirichlet-allocation"])
def test_a_cell_that_is_needed_is_named(kind: str) -> None:
    rows = CASES[kind].shards[0].copy()
    rows[4, 2] = np.nan
    with pytest.raises(
        ValueError, match=f"sample 5 .counted from 1. has no value in column 3: a {kind} needs"
    ):
        CASES[kind].model.check(as_data(rows))


@pytest.mark.parametrize("kind", sorted(NETWORK_KINDS))
def test_what_works_is_not_refused(kind: str) -> None:
    for part in CASES[kind].data:
        CASES[kind].model.check(part)


def test_a_node_leaves_a_model_that_predicts(make_cluster, tmp_path: Path) -> None:
    case = CASES["bayesian-gaussian-mixture"]
    timing = Timing(patience=20.0, settle=0.3)
    cluster = make_cluster(tmp_path, CHAIN, case.shards, timing=timing, model=case.model)
    cluster.start_all()
    cluster.wait()
    local = case.local(network=CHAIN)
    for node in range(N_NODES):
        model = load(tmp_path / f"node-{node}" / "model.npz")
        rows = case.shards[node]
        np.testing.assert_allclose(
            model.predict_proba(rows), local.predict_proba(rows), rtol=1e-6, atol=1e-9
        )
