"""Saved models: every estimator comes back as it was, and nothing else comes in."""

from __future__ import annotations

import json
import re
import warnings
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmfvi
from cli_run import dmfvi_command
from dmfvi import Network
from dmfvi.deploy.kinds import NETWORK_KINDS
from dmfvi.models import PoissonGamma
from dmfvi.storage.models import MODEL
from dmfvi.storage.structured import write_structured
from estimator_cases import CASES
from helpers import low_rank_shards

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)) + 4.0 * (np.arange(60) % 3 == 0)[:, None]
Y = X @ [1.0, 2.0, 0.0, -1.0] + RNG.normal(size=60)
COUNTS = RNG.poisson(1.0, size=(30, 12))
RING = Network.ring(3)
#: where an array is, in the head of a file
PLACE = re.compile(r'\["(a\d+)",(\d+),\[([\d,]*)\]')


@lru_cache
def fitted(kind: str) -> Any:
    network = RING if kind in NETWORK_KINDS else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CASES[kind].local(network=network, accelerated=True)


def answers(model: Any, kind: str) -> Any:
    """What a fitted estimator says of its data."""
    if hasattr(model, "reconstruct"):
        return model.reconstruct(return_std=True)
    if hasattr(model, "recommend"):
        return model.predict([3, 4], [5, 6], return_std=True), model.recommend(3, 5)
    rows, _, _ = CASES[kind].model.arguments(CASES[kind].data[0])
    known = ("predict_proba", "transform", "predict", "score_samples")
    return [getattr(model, name)(rows) for name in known if hasattr(model, name)]


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_model_comes_back_as_it_was(tmp_path: Path, kind: str) -> None:
    model, ask = fitted(kind), partial(answers, kind=kind)
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    assert type(back) is type(model)
    np.testing.assert_equal(ask(back), ask(model))
    for key, value in model.get_params().items():
        if key != "network":
            assert getattr(back, key) == value
    if getattr(model, "network", None) is not None:
        assert back.network.edges == model.network.edges
        assert back.network.name == model.network.name
    if hasattr(model, "at_node") and len(model.node_posteriors_) > 1:
        np.testing.assert_equal(ask(back.at_node(1)), ask(model.at_node(1)))
        seen = dmfvi.load(dmfvi.save(model.at_node(1), tmp_path / "seen.npz"))
        np.testing.assert_equal(ask(seen), ask(model.at_node(1)))


@pytest.mark.parametrize("kind", sorted(CASES))
def test_every_public_attribute_comes_back(tmp_path: Path, kind: str) -> None:
    model = fitted(kind)
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    public = {key for key in vars(model) if key.endswith("_") and not key.startswith("_")}
    assert {key for key in vars(back) if key.endswith("_") and not key.startswith("_")} == public
    for key in public:
        mine, theirs = getattr(model, key), getattr(back, key)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype, key
        if isinstance(mine, np.ndarray | int | float | str | bool | dict):
            np.testing.assert_equal(theirs, mine, err_msg=key)


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_file_holds_no_array_twice_and_no_place_of_a_class(tmp_path: Path, kind: str) -> None:
    file = dmfvi.save(fitted(kind), tmp_path / "model.npz")
    held = np.load(file)
    head = held["head"].tobytes().decode()
    assert "dmfvi." not in head
    places = {tuple(map(str, place)) for place in re.findall(PLACE, head)}
    parts = [
        (shape, held[member][int(start) :][: prod(map(int, filter(None, shape.split(","))))])
        for member, start, shape in places
    ]
    distinct = {(shape, part.dtype.str, part.tobytes()) for shape, part in parts}
    assert len(distinct) == len(parts) > 1


def test_a_prior_comes_back(tmp_path: Path) -> None:
    prior = dmfvi.PcaPrior(mean_location=np.arange(4.0))
    model = dmfvi.BayesianPCA(2, prior=prior, random_state=0).fit(X)
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    np.testing.assert_array_equal(back.prior.mean_location, prior.mean_location)
    np.testing.assert_array_equal(back.transform(X), model.transform(X))


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    model = fitted("bayesian-pca")
    one, other = dmfvi.save(model, tmp_path / "a.npz"), dmfvi.save(model, tmp_path / "b.npz")
    assert one.read_bytes() == other.read_bytes()
    again = dmfvi.save(dmfvi.load(one), tmp_path / "c.npz")
    assert again.read_bytes() == one.read_bytes()


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_model_of_eight_features_and_five_nodes_is_small(tmp_path: Path, missing: float) -> None:
    shards = low_rank_shards([40] * 5, n_features=8, n_components=3, missing=missing)
    model = dmfvi.BayesianPCA(3, network=Network.ring(5), random_state=0).fit(shards)
    assert dmfvi.save(model, tmp_path / "model.npz").stat().st_size < 20_000


def test_names_of_columns_are_kept_and_luck_is_not(tmp_path: Path) -> None:
    model = dmfvi.BayesianPCA(2, random_state=np.random.RandomState(3)).fit(X)
    model.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)  # as from a data frame
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    np.testing.assert_array_equal(back.feature_names_in_, ["a", "b", "c", "d"])
    assert back.feature_names_in_.dtype == object
    assert back.random_state is None


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["ill", "well"]),
        np.array(["ill", "well"], dtype=object),
        np.array([3, 7], dtype=np.int16),
        np.array([True, False]),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels_keep_their_type(tmp_path: Path, labels: np.ndarray) -> None:
    model = dmfvi.BayesianLogisticRegression().fit(X, labels[(Y > 0).astype(int)])
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    assert back.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


@pytest.mark.parametrize("noise", ["shared", "per_node"])
def test_a_stream_goes_on_after_a_pause(tmp_path: Path, noise: Any) -> None:
    rng = np.random.default_rng(0)
    model = dmfvi.BayesianPCA(2, network=RING, noise=noise, random_state=0).fit(X[:30])
    holes = np.where(
        rng.random((30, 4)) < 0.1, np.nan, X[30:]
    )  # one precision a feature from now on
    for batch in (X[30:], holes, X[:30]):
        back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
        one, other = model.partial_fit(batch), back.partial_fit(batch)
        np.testing.assert_array_equal(one.components_, other.components_)
        assert one.lower_bound_ == other.lower_bound_
        np.testing.assert_equal(one.history_, other.history_)


def test_a_stream_of_documents_goes_on_after_a_pause(tmp_path: Path) -> None:
    model = dmfvi.LatentDirichletAllocation(3, learning_method="online", random_state=0)
    model.partial_fit(COUNTS[:15])
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    one, other = model.partial_fit(COUNTS[15:]), back.partial_fit(COUNTS[15:])
    np.testing.assert_array_equal(one.components_, other.components_)


def test_a_rule_with_settings_of_its_own_is_kept(tmp_path: Path) -> None:
    rule = dmfvi.consensus.StatisticsTracking(damping=1e-6)
    federation = dmfvi.Federation(RING, rule, links=dmfvi.Links())
    model = dmfvi.BayesianPCA(2, network=federation).fit(X)
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    assert type(back.network.consensus) is type(rule)
    assert vars(back.network.consensus) == vars(rule)
    assert back.network.links is None
    again = dmfvi.BayesianPCA(2, network=back.network, random_state=0).fit(X)
    assert again.converged_


@pytest.mark.parametrize("name", sorted(dmfvi.consensus.RULES))
def test_settings_of_every_rule_are_kept(tmp_path: Path, name: str) -> None:
    from dmfvi.storage.models import _made, _plain

    rule = dmfvi.consensus.RULES[name]()
    back = _made(_plain("network", dmfvi.Federation(RING, rule))).consensus
    assert type(back) is type(rule)
    np.testing.assert_equal(vars(back), vars(rule))


def test_numpy_seeds_are_kept(tmp_path: Path) -> None:
    model = dmfvi.BayesianPCA(2, random_state=np.int64(3)).fit(X)
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    assert back.random_state == 3
    np.testing.assert_array_equal(back.fit(X).components_, model.components_)


def test_details_are_kept_beside_the_model(tmp_path: Path) -> None:
    file = dmfvi.save(fitted("ppca"), tmp_path / "model.npz", {"members": [0, 2], "note": "x"})
    assert dmfvi.storage.details(tmp_path) == {"members": [0, 2], "note": "x"}
    assert dmfvi.storage.details(dmfvi.save(fitted("ppca"), file)) == {}


def test_what_is_no_fitted_estimator_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot save a dict"):
        dmfvi.save({}, tmp_path / "a.npz")
    with pytest.raises(Exception, match="not fitted"):
        dmfvi.save(dmfvi.BayesianPCA(), tmp_path / "a.npz")
    with pytest.raises(ValueError, match=re.escape("must end in .npz")):
        dmfvi.save(fitted("ppca"), tmp_path / "a.pickle")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        {"estimator": "os", "settings": {}, "fitted": {}},
        {"estimator": "SVDFactorization", "settings": {"depth": 3}, "fitted": {}},
        {"estimator": "SVDFactorization", "settings": {}, "fitted": {"node": 0}},
        {"estimator": "SVDFactorization", "settings": {}, "fitted": []},
        [],
    ],
    ids=str,
)
def test_what_no_estimator_wrote_is_refused(tmp_path: Path, content: Any) -> None:
    file = write_structured(tmp_path / "a.npz", content, MODEL)
    with pytest.raises(ValueError, match=r"another version .*: fit the model again with this"):
        dmfvi.load(file)


def test_where_there_is_no_model_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.npz does not exist: fit a model there"):
        dmfvi.load(tmp_path)
    (tmp_path / "model.npz.old").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"the last run there failed, .*model\.npz\.old is"):
        dmfvi.load(tmp_path)
    dmfvi.save(fitted("ppca"), tmp_path / "rank-1" / "model.npz")
    with pytest.raises(FileNotFoundError, match=r"give one of .*rank-1"):
        dmfvi.load(tmp_path)
    np.savez(tmp_path / "posterior.npz", format="dmfvi-pca-posterior", version=1)
    with pytest.raises(FileNotFoundError, match="former version, fit the model again"):
        dmfvi.load(tmp_path)


def test_tracks_stay_where_they_are(tmp_path: Path) -> None:
    """A model may be taken away, the data may not."""
    model = fitted("structure-from-motion")
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    assert not hasattr(back, "_tracks")
    with pytest.raises(ValueError, match="does not hold the tracks"):
        back.impute()


def test_the_result_of_infer_is_kept(tmp_path: Path) -> None:
    from dmfvi import infer

    counts = np.random.default_rng(0).poisson(3.0, size=(30, 2)).astype(float)
    made = infer(PoissonGamma(2), np.split(counts, 3), dmfvi.Network.ring(3))
    again = dmfvi.load(dmfvi.save(made, tmp_path / "result.npz"))
    assert again.model_name == "PoissonGamma"
    assert [q.distance(p) for q, p in zip(again.posteriors, made.posteriors, strict=True)] == [
        0.0
    ] * 3
    assert again.lower_bound == made.lower_bound
    assert (again.converged, again.n_iter, again.n_rounds) == (True, made.n_iter, made.n_rounds)
    np.testing.assert_array_equal(again.history["objective"], made.history["objective"])
    np.testing.assert_array_equal(again.posterior.mean_value(), made.posterior.mean_value())
    with pytest.raises(
        ValueError, match="the result of infer for a PoissonGamma, here a BayesianPCA"
    ):
        dmfvi.load(tmp_path / "result.npz", dmfvi.BayesianPCA)


def test_the_result_of_infer_is_shown(tmp_path: Path) -> None:
    from dmfvi import families as f
    from dmfvi.storage.inferences import SavedInference

    q = f.Product(
        rate=f.Gamma.from_parameters([2.0, 3.0], [1.0, 4.0]),
        line=f.NormalGamma.from_parameters([0.5, 1.5], np.eye(2), 4.0, 3.0),
        share=f.Dirichlet.from_parameters([1.0, 3.0]),
        heads=f.Bernoulli.from_parameters(0.25),
    )
    kept = SavedInference("Own", [q, q], {}, -1.5, True, 3, 4, {})
    rows = {name: (mean, deviation) for name, mean, deviation in kept.marginals()}
    assert [*rows] == [
        "rate[0]",
        "rate[1]",
        "line.0[0]",
        "line.0[1]",
        "line.1",
        "share[0]",
        "share[1]",
        "heads",
    ]
    np.testing.assert_allclose(rows["rate[1]"], (0.75, np.sqrt(3.0) / 4.0))
    np.testing.assert_allclose(rows["line.1"], (4.0 / 3.0, 2.0 / 3.0))
    assert kept.summary().startswith("Own: converged")

    counts = np.random.default_rng(0).poisson(3.0, size=(30, 2)).astype(float)
    made = dmfvi.infer(PoissonGamma(2), [counts])
    path = dmfvi.save(made, tmp_path / "result.npz")
    said = dmfvi_command("show", path)
    assert "PoissonGamma: converged" in said.out
    assert f"{made.posterior.mean_value()[1]:.5g}" in said.out
    told = json.loads(dmfvi_command("show", path, "--json").out)
    assert told["model"] == "PoissonGamma"
    assert told["posterior"][1]["mean"] == made.posterior.mean_value()[1]
