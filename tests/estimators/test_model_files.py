"""Saved models: every estimator comes back as it was, and nothing else comes in."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmfvi
from dmfvi import Network
from dmfvi.datasets import make_cube
from dmfvi.model_files import KNOWN, MODEL
from dmfvi.structured import write_structured

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)) + 4.0 * (np.arange(60) % 3 == 0)[:, None]
Y = X @ [1.0, 2.0, 0.0, -1.0] + RNG.normal(size=60)
COUNTS = RNG.poisson(1.0, size=(30, 12))
RING = Network.ring(3)

#: one line enrols an estimator: how it is fitted, and what it is asked
CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "BayesianPCA": (
        lambda: dmfvi.BayesianPCA(2, network=RING, prior=dmfvi.PcaPrior()).fit(X),
        lambda m: m.transform(X, return_std=True),
    ),
    "PPCA": (lambda: dmfvi.PPCA(2, network=RING).fit(X), lambda m: m.transform(X)),
    "SVDFactorization": (
        lambda: dmfvi.SVDFactorization(2).fit(X),
        lambda m: m.transform(X),
    ),
    "BayesianGaussianMixture": (
        lambda: dmfvi.BayesianGaussianMixture(2, network=RING).fit(X),
        lambda m: (m.predict_proba(X), m.score_samples(X)),
    ),
    "MixtureOfPCA": (
        lambda: dmfvi.MixtureOfPCA(2, 2).fit(X),
        lambda m: m.predict_proba(X),
    ),
    "LatentDirichletAllocation": (
        lambda: dmfvi.LatentDirichletAllocation(3, max_iter=50).fit(COUNTS),
        lambda m: m.transform(COUNTS),
    ),
    "GaussianHMM": (lambda: dmfvi.GaussianHMM(2).fit(X), lambda m: m.predict(X)),
    "CategoricalHMM": (
        lambda: dmfvi.CategoricalHMM(2).fit((X[:, :1] > 0).astype(float)),
        lambda m: m.predict((X[:, :1] > 0).astype(float)),
    ),
    "BayesianLinearRegression": (
        lambda: dmfvi.BayesianLinearRegression(network=RING).fit(X, Y),
        lambda m: m.predict(X, return_std=True),
    ),
    "BayesianLogisticRegression": (
        lambda: dmfvi.BayesianLogisticRegression().fit(X, np.where(Y > 0, "ill", "well")),
        lambda m: (m.predict(X), m.predict_proba(X)),
    ),
    "StructureFromMotion": (
        lambda: dmfvi.StructureFromMotion(network=Network.ring(5)).fit(make_cube().hidden),
        lambda m: m.reconstruct(return_std=True),
    ),
}


def test_every_estimator_has_a_case() -> None:
    assert set(CASES) == set(KNOWN)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_model_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    fit, ask = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit()
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    assert type(back) is type(model)
    np.testing.assert_equal(ask(back), ask(model))
    if "network" in model.get_params() and model.network is not None:
        assert back.network.edges == model.network.edges
        assert back.network.name == model.network.name
    if hasattr(model, "at_node") and len(model.node_posteriors_) > 1:
        np.testing.assert_equal(ask(back.at_node(1)), ask(model.at_node(1)))


def test_names_of_columns_are_kept_and_luck_is_not(tmp_path: Path) -> None:
    model = dmfvi.BayesianPCA(2, random_state=np.random.RandomState(3)).fit(X)
    model.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)  # as from a data frame
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    np.testing.assert_array_equal(back.feature_names_in_, ["a", "b", "c", "d"])
    assert back.feature_names_in_.dtype == object
    assert back.random_state is None


def test_a_stream_goes_on_after_a_pause(tmp_path: Path) -> None:
    model = dmfvi.BayesianPCA(2, network=RING, random_state=0).fit(X[:30])
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    one, other = model.partial_fit(X[30:]), back.partial_fit(X[30:])
    np.testing.assert_array_equal(one.components_, other.components_)


def test_foreign_torn_and_unfitted_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot save a dict"):
        dmfvi.save({}, tmp_path / "a.npz")
    with pytest.raises(TypeError, match="use its method save"):
        dmfvi.save(dmfvi.RatingFactorization(), tmp_path / "a.npz")
    with pytest.raises(Exception, match="not fitted"):
        dmfvi.save(dmfvi.BayesianPCA(), tmp_path / "a.npz")
    model = dmfvi.SVDFactorization(2).fit(X)
    with pytest.raises(ValueError, match=re.escape("must end in .npz")):
        dmfvi.save(model, tmp_path / "a.pickle")
    assert not list(tmp_path.iterdir())
    file = dmfvi.save(model, tmp_path / "a.npz")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="torn or no saved model"):
        dmfvi.load(file)
    np.savez(file, head='{"format": "else"}', digest="")
    with pytest.raises(ValueError, match="not a dmfvi-model file"):
        dmfvi.load(file)
    write_structured(file, ("SVDFactorization", {}, {"fit": 1}), MODEL)
    with pytest.raises(ValueError, match="fit is a method"):
        dmfvi.load(file)
    write_structured(file, ("os", {}, {}), MODEL)
    with pytest.raises(ValueError, match="another version"):
        dmfvi.load(file)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        dmfvi.load(tmp_path / "b.npz")


def test_tracks_stay_where_they_are(tmp_path: Path) -> None:
    """A model may be taken away, the data may not."""
    model = CASES["StructureFromMotion"][0]()
    back = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
    assert not hasattr(back, "_tracks")
    with pytest.raises(ValueError, match="does not hold the tracks"):
        back.impute()
