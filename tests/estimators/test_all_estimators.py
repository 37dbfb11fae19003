"""What every estimator does with input that is odd or wrong; one line enrols an estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dmfvi.models import ESTIMATORS
from dmfvi.models.chains.estimator import CategoricalHMM, GaussianHMM
from dmfvi.models.mixture.estimator import BayesianGaussianMixture
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.models.pca.mixture import MixtureOfPCA
from dmfvi.models.pca.ppca import PPCA
from dmfvi.models.pca.svd import SVDFactorization
from dmfvi.models.regression.estimator import BayesianLinearRegression, BayesianLogisticRegression
from dmfvi.models.topics.estimator import LatentDirichletAllocation
from helpers import documented

RNG = np.random.default_rng(0)
ROWS = np.concatenate([RNG.normal(size=(30, 4)) + 3, RNG.normal(size=(30, 4)) - 3])
COUNTS = RNG.poisson(2.0, size=(40, 6)).astype(float)
SYMBOLS = RNG.integers(3, size=(60, 1)).astype(float)


@dataclass(frozen=True)
class Face:
    """An estimator, data for it, how it predicts, and what it takes."""

    estimator: Any
    data: np.ndarray
    predict: str
    target: np.ndarray | None = None
    missing: bool = False  # NaN is a missing entry, rows say nothing of each other
    sequence: bool = False  # rows are one sequence: one that is missing is nothing unusual

    def fit(self, data: Any, estimator: Any = None) -> Any:
        made = clone(self.estimator) if estimator is None else estimator
        target = None if self.target is None else self.target[: len(data)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return made.fit(data) if target is None else made.fit(data, target)

    def ask(self, fitted: Any, data: Any) -> Any:
        return getattr(fitted, self.predict)(data)


SIDE = np.tile([0, 1], 30)
#: one line enrols an estimator
FACES = {
    "BayesianPCA": Face(BayesianPCA(2, random_state=0), ROWS, "transform", missing=True),
    "PPCA": Face(PPCA(2, random_state=0), ROWS, "transform", missing=True),
    "SVDFactorization": Face(SVDFactorization(2), ROWS, "transform", missing=True),
    "BayesianGaussianMixture": Face(
        BayesianGaussianMixture(2, random_state=0), ROWS, "predict_proba", missing=True
    ),
    "MixtureOfPCA": Face(MixtureOfPCA(2, 1, random_state=0), ROWS, "predict_proba", missing=True),
    "GaussianHMM": Face(
        GaussianHMM(2, random_state=0), ROWS, "predict_proba", missing=True, sequence=True
    ),
    "BayesianLinearRegression": Face(
        BayesianLinearRegression(), ROWS, "predict", ROWS @ [1, 2, 0, 1]
    ),
    "BayesianLogisticRegression": Face(BayesianLogisticRegression(), ROWS, "predict_proba", SIDE),
    "LatentDirichletAllocation": Face(
        LatentDirichletAllocation(2, max_iter=30, random_state=0), COUNTS, "transform"
    ),
    "CategoricalHMM": Face(
        CategoricalHMM(2, random_state=0), SYMBOLS, "predict_proba", sequence=True
    ),
}
every = pytest.mark.parametrize("face", FACES.values(), ids=FACES)
with_missing = pytest.mark.parametrize(
    "face", [f for f in FACES.values() if f.missing], ids=[n for n, f in FACES.items() if f.missing]
)


def refusal(action: Callable[[], Any], kind: type[Exception] = ValueError) -> str:
    """The message of the error that it must raise; in Python's own numbers."""
    with pytest.raises(kind) as caught:
        action()
    assert "np." not in str(caught.value)
    return str(caught.value)


def test_every_estimator_is_enrolled() -> None:
    """Ratings have tables of their own, and tests of their own."""
    assert set(FACES) == set(ESTIMATORS) - {"RatingFactorization", "StructureFromMotion"}


@every
def test_help_shows_every_fitted_attribute(face: Face) -> None:
    fitted = face.fit(face.data)
    shown = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")}
    assert shown <= documented(type(fitted), "Attributes")


@with_missing
def test_a_row_without_entries_is_pointed_out(face: Face) -> None:
    data = face.data.copy()
    data[7] = np.nan
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        fitted = face.fit(data)
    told = [w for w in seen if "samples without any observed entry: 1" in str(w.message)]
    assert len(told) == (0 if face.sequence else 1)
    assert all(w.filename == __file__ for w in told)  # at the caller's line
    assert np.isfinite(face.ask(fitted, data)).all()


@every
def test_missing_entries_are_taken_or_refused(face: Face) -> None:
    data = face.data.copy()
    data[3, 0] = np.nan
    if face.missing or face.sequence:
        assert np.isfinite(face.ask(face.fit(data), data)).all()
    else:
        assert "NaN" in refusal(lambda: face.fit(data))


@with_missing
def test_a_column_that_nobody_observed_is_named(face: Face) -> None:
    data = face.data.copy()
    data[:, 2] = np.nan
    assert "nobody has observed feature 2" in refusal(lambda: face.fit(data))


@every
@pytest.mark.filterwarnings("ignore:zero variance")
def test_a_constant_column_does_no_harm(face: Face) -> None:
    data = face.data.copy()
    data[:, 0] = 1.0
    fitted = face.fit(data)
    assert np.isfinite(face.ask(fitted, data)).all()


@every
@pytest.mark.filterwarnings("ignore:zero variance")
def test_a_single_row_is_fitted_or_refused(face: Face) -> None:
    def attempt() -> str:
        try:
            fitted = face.fit(face.data[:1])
        except ValueError as error:
            return str(error)
        return "" if np.isfinite(face.ask(fitted, face.data[:1])).all() else "np.nan"

    assert "np." not in attempt()


@every
def test_infinity_and_text_are_refused(face: Face) -> None:
    data = face.data.copy()
    data[1, 0] = np.inf
    assert "inf" in refusal(lambda: face.fit(data)).lower()
    with pytest.raises(ValueError, match="could not convert string"):
        face.fit(np.full(face.data.shape, "word"))


@every
def test_other_features_are_refused(face: Face) -> None:
    fitted = face.fit(face.data)
    wider = np.column_stack([face.data, face.data[:, 0]])
    assert any(word in refusal(lambda: face.ask(fitted, wider)) for word in ("features", "column"))


@every
def test_predictions_need_a_fit(face: Face) -> None:
    assert "fit" in refusal(lambda: face.ask(clone(face.estimator), face.data), NotFittedError)


@every
def test_data_and_parameters_stay_as_they_are(face: Face) -> None:
    data = face.data.copy()
    estimator = clone(face.estimator)
    before = estimator.get_params()
    face.ask(face.fit(data, estimator), data)
    np.testing.assert_array_equal(data, face.data)
    assert estimator.get_params() == before
    other = clone(estimator).set_params(tol=1e-3)
    assert other.tol == 1e-3
    assert estimator.tol == before["tol"]
