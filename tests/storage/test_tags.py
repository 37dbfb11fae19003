"""Types are stored under tags: every class that a model or a checkpoint holds has one and comes back."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dmfvi
from dmfvi import Federation, tags
from dmfvi.consensus import RULES
from dmfvi.datasets import make_ratings
from dmfvi.engines.base import Task
from dmfvi.engines.local import LocalEngine
from dmfvi.families import FAMILIES, Gamma, Product
from dmfvi.network import Network
from dmfvi.node import NodeState
from dmfvi.storage.archive import FileKind
from dmfvi.storage.journal import Journal, save_checkpoint
from dmfvi.storage.structured import read_structured, write_structured
from dmfvi.tags import class_of, stored_as, stored_classes, tag_of

KIND = FileKind("dmfvi-test", 1, "test file", "do it again")
SOURCES = Path(dmfvi.__file__).parent


@pytest.fixture
def own_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_CLASSES", "_TAGS", "_VERSIONS"):
        monkeypatch.setattr(tags, name, dict(getattr(tags, name)))


def back_from_a_file(folder: Path, value: Any) -> Any:
    file = write_structured(folder / "a.npz", value, KIND)
    assert b"dmfvi." not in np.load(file)["head"].tobytes()
    return read_structured(file, KIND)


def example(made: type) -> Any:
    """An instance whose fields hold something of every kind; what they mean is not looked at."""
    names = [f.name for f in fields(made) if f.init] if is_dataclass(made) else made._fields  # type: ignore[attr-defined]
    if made in (dmfvi.GammaPrior, dmfvi.PcaPrior):  # these look at their fields
        return made(2.0, 3.0)
    if made is Federation:
        return made(Network.ring(3), "all-reduce")
    kinds = [np.arange(3.0), 1, Gamma.from_parameters(2.0, 3.0), None, (1.5, "x"), {2: [True]}]
    return made(**{name: kinds[i % len(kinds)] for i, name in enumerate(names)})


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if is_dataclass(one):
        one, other = ({f.name: getattr(v, f.name) for f in fields(v)} for v in (one, other))
        for name in one:
            same(one[name], other[name])
    elif isinstance(one, Network):
        assert (one.edges, one.name) == (other.edges, other.name)
    elif isinstance(one, Gamma):
        np.testing.assert_equal(one.natural, other.natural)
    elif isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        np.testing.assert_equal(one, other)


@pytest.mark.parametrize("tag", sorted(stored_classes()))
def test_every_class_with_a_tag_comes_back(tmp_path: Path, tag: str) -> None:
    made = stored_classes()[tag]
    assert class_of(tag_of(made)) is made
    value = example(made)
    same(value, back_from_a_file(tmp_path, value))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_comes_back(tmp_path: Path, name: str) -> None:
    axes = FAMILIES[name].event_axes
    q = FAMILIES[name](*[np.ones((2, *[3] * n)) for n in axes])
    back = back_from_a_file(tmp_path, Product(block=q))["block"]
    assert type(back) is type(q)
    np.testing.assert_equal(back.natural, q.natural)


def test_every_belief_and_every_state_of_a_rule_has_a_tag() -> None:
    """By their names, which this library gives to what a node carries from round to round."""
    tagged = {made.__name__ for made in stored_classes().values()}
    for file in SOURCES.rglob("*.py"):
        for name in re.findall(r"^class (\w+(?:Belief|State))\b", file.read_text(), re.MULTILINE):
            assert name in tagged, f"{name} in {file} has no tag"


RULES_WITH_PLACE = [
    rule() for name, rule in RULES.items() if name not in ("moments-admm", "parameter-admm")
]


@pytest.mark.parametrize("rule", RULES_WITH_PLACE, ids=lambda rule: rule.name)
def test_a_journal_holds_the_state_of_every_rule(tmp_path: Path, rule: Any) -> None:
    view = rule.local_view(Network.ring(4), 1)
    state = NodeState(view, None, rule.start(view, np.arange(5.0)), {"any": 1}, np.ones(2))
    journal = Journal(tmp_path, 1, "mine")
    journal.note(0, 3, state)
    journal.finish(0, (np.arange(3.0), 1))
    again = Journal(tmp_path, 1, "mine")
    assert again.resume()
    np.testing.assert_equal(again.finished, journal.finished)
    found = again.at(0, 3)
    assert found is not None
    assert type(found.rule) is type(state.rule)
    np.testing.assert_array_equal(rule.payload(found.rule), rule.payload(state.rule))
    assert b"dmfvi." not in np.load(again.path)["head"].tobytes()


class Recorder(LocalEngine):
    """A local engine that writes its beliefs into a checkpoint after every round, as a rank would."""

    folder: Path

    def run(self, task: Task) -> Any:
        observer = task.observer

        def both(record: Any, now: list[Any]) -> Any:
            save_checkpoint(self.folder / "kept.npz", (record, list(now)), "")
            return None if observer is None else observer(record, now)

        return super().run(replace(task, observer=both))


X = np.random.default_rng(0).normal(size=(40, 4))
ONE = Network.ring(1)
ESTIMATORS = {
    "pca": lambda where: dmfvi.BayesianPCA(2, network=Federation(ONE, engine=where)).fit(X),
    "moments": lambda where: dmfvi.BayesianPCA(
        2,
        network=Federation(Network.ring(2), "moments-admm", where),
        covariance_type="diag",
        max_iter=20,
    ).fit(X),
    "mixture": lambda where: dmfvi.BayesianGaussianMixture(
        2, network=Federation(ONE, engine=where)
    ).fit(X),
    "mixture of pca": lambda where: dmfvi.MixtureOfPCA(
        2, 1, network=Federation(ONE, engine=where)
    ).fit(X),
    "stochastic topics": lambda where: dmfvi.LatentDirichletAllocation(
        2, learning_method="online", n_passes=1, network=Federation(ONE, engine=where)
    ).fit(np.arange(20).reshape(4, 5)),
    "structure": lambda where: dmfvi.StructureFromMotion(
        network=Federation(ONE, engine=where), metric=None
    ).fit(np.random.default_rng(0).normal(size=(12, 7))),
    "ratings": lambda where: dmfvi.RatingFactorization(
        1, network=Federation(ONE, engine=where), max_iter=2
    ).fit(make_ratings(500, n_users=30, n_items=30, seed=0).ratings),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_a_checkpoint_holds_of_every_estimator_can_be_written(
    tmp_path: Path, name: str
) -> None:
    engine = Recorder()
    engine.folder = tmp_path
    ESTIMATORS[name](engine)
    assert (tmp_path / "kept.npz").exists()


@pytest.mark.usefixtures("own_tags")
def test_a_tag_is_given_once() -> None:
    @stored_as("test-thing")
    @dataclass
    class Thing:
        a: int

    with pytest.raises(ValueError, match=r"tag 'test-thing' of .*Other belongs to .*Thing already"):

        @stored_as("test-thing")
        class Other(NamedTuple):
            a: int

    with pytest.raises(ValueError, match="lower-case words"):
        stored_as("dmfvi.models:Thing")
    assert tag_of(Thing) == "test-thing/1"


@pytest.mark.usefixtures("own_tags")
def test_a_class_may_move_and_a_changed_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @stored_as("test-thing")
    class Thing(NamedTuple):
        a: int

    file = write_structured(tmp_path / "a.npz", Thing(3), KIND)
    for name in ("_CLASSES", "_TAGS", "_VERSIONS"):
        getattr(tags, name).pop("test-thing", None)

    @stored_as("test-thing")
    class Moved(NamedTuple):
        a: int

    assert read_structured(file, KIND) == Moved(3)
    tags._VERSIONS["test-thing"] = 2
    with pytest.raises(ValueError, match=r"'test-thing' has version 1, known is version 2.*do it"):
        read_structured(file, KIND)
    del tags._CLASSES["test-thing"]
    with pytest.raises(
        ValueError, match=r"another version .unknown tag 'test-thing'.: do it again"
    ):
        read_structured(file, KIND)


def test_what_has_no_tag_is_not_written(tmp_path: Path) -> None:
    class Untagged(NamedTuple):
        a: int

    class Own(Gamma):
        pass

    for value, words in (
        (Untagged(1), "cannot write a .*Untagged.*: give the class a tag"),
        (Own(np.ones(()), -np.ones(())), "enrol the family"),
        ({"f": open}, "cannot write a builtin"),
        (np.array([(1, 2)], dtype=[("a", int), ("b", int)]), "cannot write an array of"),
    ):
        with pytest.raises(TypeError, match=words):
            write_structured(tmp_path / "a.npz", value, KIND)
    assert not list(tmp_path.iterdir())
