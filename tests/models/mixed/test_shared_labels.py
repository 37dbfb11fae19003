"""A label at several sites: one group on one machine, refused on a network, two groups where groups are nested in sites."""

from __future__ import annotations

import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi import MixedModel, Network
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.inference.session import Session
from dmfvi.models.mixed.shared_labels import _digest, _padded, common_labels

at_mode = partial(MixedModel, formula="y ~ x", approximation="laplace")


def wards(labels: list[list[Any]], rows: int = 8) -> list[pd.DataFrame]:
    """Sites with some rows for each label, whose effects go with the place of the label and the site."""
    rng = np.random.default_rng(0)
    made = []
    for site, names in enumerate(labels):
        place = np.repeat(np.arange(len(names)), rows)
        x = rng.normal(size=len(place))
        y = x + place + 2.0 * site + 0.5 * rng.normal(size=len(place))
        ward = pd.Series([names[i] for i in place], dtype=object)
        made.append(pd.DataFrame({"x": x, "ward": ward, "y": y}))
    return made


SHARED = [["a", "b", "c"], ["d", "e"], ["f", "b"]]
APART = [["0a", "0b", "0c"], ["1d", "1e"], ["2f", "2b"]]


def test_a_network_refuses_a_label_at_two_sites_and_says_what_to_do() -> None:
    with pytest.raises(
        ValueError, match=r"1 label at more than one site, as 'b' \(sites 0 and 2\).*nested=True"
    ):
        at_mode(network=Network.ring(3)).fit(wards(SHARED), groups="ward")


def test_one_machine_puts_the_rows_of_a_label_together() -> None:
    parts = wards(SHARED)
    model = at_mode().fit(parts, groups="ward")
    whole = at_mode().fit(pd.concat(parts), groups="ward")
    assert model.n_groups_ == 6
    assert model.posterior_.distance(whole.posterior_) < 1e-9
    assert set(model.random_effects()) == set("abcdef")


@pytest.mark.parametrize("network", [None, Network.ring(3)], ids=["pooled", "nodes"])
def test_nested_groups_are_those_with_the_site_in_their_label(network: Any) -> None:
    expected = at_mode().fit(pd.concat(wards(APART)), groups="ward")
    model = at_mode(network=network, nested=True).fit(wards(SHARED), groups="ward")
    assert model.n_groups_ == 7
    assert max(q.distance(expected.posterior_) for q in model.node_posteriors_) < 1e-9
    plain = at_mode(network=network).fit(wards(APART), groups="ward")
    assert plain.posterior_.distance(model.posterior_) < 1e-9


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (1.0, 1),
        ("007", 7),
        (True, 1),
        (2**60 + 1, str(2**60 + 1)),
        ("w ", "w"),
        (pd.Timestamp("2020-03-01"), datetime.date(2020, 3, 1)),
        (np.datetime64("2020-03-01"), "2020-03-01"),
    ],
    ids=repr,
)
def test_labels_that_differ_in_type_only_are_not_two_groups_silently(one: Any, other: Any) -> None:
    parts = wards([[one, "a"], [other, "b"]])
    with pytest.raises(ValueError, match="1 label at more than one site"):
        at_mode(network=Network.complete(2)).fit(parts, groups="ward")
    if one != other:
        with pytest.raises(ValueError, match="write the same group in the same way"):
            at_mode().fit(parts, groups="ward")


def test_neighbouring_labels_are_told_apart() -> None:
    parts = wards([[2**60, 1.5, "a"], [2**60 + 1, 2.5, "A"]])
    assert at_mode(network=Network.complete(2)).fit(parts, groups="ward").n_groups_ == 6


@pytest.mark.parametrize("network", [None, Network.ring(3)], ids=["pooled", "nodes"])
def test_without_groups_a_site_is_one(network: Any) -> None:
    parts = [part[["x", "y"]] for part in wards(SHARED)]
    assert at_mode(network=network).fit(parts).n_groups_ == 3


def test_only_digests_leave_a_site_and_their_number_is_a_power_of_two() -> None:
    digests = {_digest(f"patient {i}") for i in range(21)}
    told = _padded(digests)
    assert len(told) == 32 * 10
    assert b"patient" not in told.astype(np.uint8).tobytes()
    assert len(_padded(set())) == 16 * 10
    # no two sites share the digests that stand for no label
    assert not np.array_equal(_padded(set()), _padded(set()))
    found = common_labels(Session.open(Network.ring(3)), [{None}, {None}, {"a"}], refuse=True)
    assert found.n_shared == 0


def test_two_spellings_of_a_shared_label_are_refused_and_others_kept() -> None:
    session = Session.open(Network.ring(3))
    with pytest.raises(ValueError, match=r"two labels at site 1 .*'01' and '1'\).* site 0 has"):
        common_labels(session, [{"1", "2"}, {"1", "01", "3"}, {"2"}], refuse=False)
    found = common_labels(session, [{"1", "2"}, {"4", "04", "2"}, {"3"}], refuse=False)
    assert (found.n_shared, found.repeated) == (1, 1)
    assert found.numbers == [{"2": 0}, {"2": 0}, {}]


def test_nodes_by_themselves_refuse_two_spellings_of_a_shared_label(monkeypatch: Any) -> None:
    # sites of one process are compared beforehand, nodes of their own are not
    monkeypatch.setattr("dmfvi.models.mixed.estimator.check_one_form", lambda labels: None)
    parts = wards([["1", "01", "2"], ["1", "5"]])
    with pytest.raises(ValueError, match="two labels at site 0"):
        at_mode(network=Network.chain(2), across_sites=True).fit(parts, groups="ward")


def test_every_node_refuses_also_those_without_the_label_or_knows_that_groups_are_nested(
    make_cluster: Any, tmp_path: Path
) -> None:
    numbers = [[1, 2, 3], [4, 5], [6, 2]]
    rows = [part.astype(float)[["x", "y", "ward"]].to_numpy() for part in wards(numbers)]
    columns = {"target": 2, "groups": 3}
    refused = make_cluster(
        tmp_path, Network.ring(3), rows, model=ModelSettings.of("mixed-model", **columns)
    )
    refused.start_all()
    for node in range(3):
        refused.until_dead(node)
    said = sorted(map(str, refused.errors))
    assert len(said) == 3
    assert all("1 label at more than one site" in text and "sites 0 and 2" in text for text in said)
    assert sum("as 2" in text for text in said) == 2
    settings = ModelSettings.of("mixed-model", nested=True, approximation="laplace", **columns)
    nested = make_cluster(tmp_path, Network.ring(3), rows, model=settings)
    nested.start_all()
    nested.wait()
    expected = MixedModel(approximation="laplace", nested=True).fit(
        [part[:, :1] for part in rows],
        [part[:, 1] for part in rows],
        [part[:, 2] for part in rows],
    )
    for node in range(3):
        assert nested.saved(node).n_groups_ == 7
        assert nested.saved(node).posterior_.distance(expected.posterior_) < 1e-9


def test_the_shell_refuses_and_takes_nested(tmp_path: Path) -> None:
    files = []
    for site, part in enumerate(wards(SHARED)):
        files.append(tmp_path / f"site{site}.csv")
        part.to_csv(files[-1], index=False)
    words = ["fit", *files, "--model", "mixed-model", "--formula", "y ~ x", "--groups", "ward"]
    said = dmfvi_command(*words, "--out", tmp_path / "refused")
    assert said.code != 0
    assert "nested" in said.err
    assert "Traceback" not in said.err
    said = dmfvi_command(*words, "--set", "nested=true", "--out", tmp_path / "model")
    assert said.code == 0, said.err
    assert dmfvi.load(tmp_path / "model").n_groups_ == 7


def test_nested_is_a_truth_value() -> None:
    with pytest.raises(ValueError, match="nested must be True or False"):
        at_mode(nested="site").fit(wards(APART), groups="ward")
