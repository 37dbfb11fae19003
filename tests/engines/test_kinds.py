"""Every kind of model that a node runs: the local answer, faults or not, and a posterior that can be read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bus import Killed
from dmfvi import Network
from dmfvi.deploy.config import read_config
from dmfvi.deploy.kinds import KINDS
from dmfvi.engines.net.endpoint import Timing
from dmfvi.engines.net.faults import Faults
from dmfvi.readers.tables import Table
from dmfvi.storage import details, load, save
from node_cases import CASES, N_NODES, apart

CHAIN = Network.chain(N_NODES)


def test_every_kind_has_a_case() -> None:
    assert set(CASES) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(KINDS))
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
        assert saved.converged_
        about = details(tmp_path / f"node-{node}")
        assert about["kind"] == kind
        assert about["members"] == list(range(N_NODES))
        assert apart(saved.posterior_, local.node_posteriors_[node]) < 1e-9


@pytest.mark.parametrize("kind", ["gaussian-mixture", "logistic-regression"])
def test_a_killed_node_of_another_kind_comes_back(make_cluster, tmp_path: Path, kind: str) -> None:
    case = CASES[kind]
    faults = Faults(loss=0.1)
    if kind == "gaussian-mixture":  # its start takes many sums: with lost messages, a minute
        case, faults = replace(case, model=replace(case.model, starts=1)), Faults()
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
        assert apart(cluster.saved(node).posterior_, pooled.posterior_) < 1e-6


def test_a_saved_model_knows_the_columns_that_it_was_fitted_to(tmp_path: Path) -> None:
    case = CASES["logistic-regression"]
    table = Table(np.concatenate(case.shards), ["a", "y", "b", "c"])
    model = case.model.fit(table, Network.complete(1), "local")
    file = save(model, tmp_path / "model.npz", case.model.details())
    assert details(file) == {"target": 2, "classes": [0.0, 1.0]}
    assert load(file).feature_names_in_.tolist() == ["a", "b", "c"]


HEAD = '[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = "a.npy"\n[model]\n'


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_settings_of_a_file(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'{HEAD}kind = "{kind}"\n{CASES[kind].toml}')
    assert read_config(file, insecure=True).model == CASES[kind].model
    file.write_text(f'{HEAD}kind = "{kind}"\nspeed = 3')
    with pytest.raises(ValueError, match=f"node.toml.*{kind} has unknown .'speed'."):
        read_config(file, insecure=True)
    file.write_text(f'{HEAD}kind = "{kind}"\ntol = "x"')
    with pytest.raises(ValueError, match=r"node.toml: tol in .*must be int or float"):
        read_config(file, insecure=True)


def test_an_unknown_kind_is_named(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'{HEAD}kind = "magic"')
    with pytest.raises(ValueError, match=r"node.toml: kind in \[model\] must be one of .*magic"):
        read_config(file, insecure=True)


def test_kinds_and_settings_tell_nodes_apart() -> None:
    marks = {case.model.fingerprint(4) for case in CASES.values()}
    assert len(marks) == len(CASES)
    one = CASES["linear-regression"].model
    assert one.fingerprint(4) != type(one)(target=3).fingerprint(4)
    assert one.fingerprint(4) == type(one)(target=2, max_iter=7).fingerprint(4)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("linear-regression", {"target": ""}, "needs target"),
        ("linear-regression", {"target": "price"}, "have no names"),
        ("linear-regression", {"target": 9}, "not in 1..4"),
        ("logistic-regression", {"classes": (0.0, 2.0)}, "labels .1.0. that are not in classes"),
        ("logistic-regression", {"classes": (1.0,)}, "two labels or more"),
        ("gaussian-hmm", {"sequence": 7}, "not in 1..3"),
        ("gaussian-mixture", {"components": 0}, "components must be"),
        ("bayesian-pca", {"components": 9}, "larger than n_features"),
    ],
)
def test_settings_that_do_not_fit_the_rows_are_refused(kind, changes, message: str) -> None:
    case = CASES[kind]
    with pytest.raises(ValueError, match=message):
        replace(case.model, **changes).check(Table(case.shards[0], None))


def test_a_node_leaves_a_model_that_predicts(make_cluster, tmp_path: Path) -> None:
    case = CASES["gaussian-mixture"]
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
