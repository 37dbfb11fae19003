"""What every estimator of tables does with input that is odd or wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dmfvi.deploy.kinds import KINDS
from estimator_cases import CASES


class Face:
    """An estimator with complete data for it, how it predicts, and what it takes."""

    def __init__(self, kind: str) -> None:
        case = CASES[kind]
        self.estimator = case.model.estimator()
        self.data, _, further = case.model.arguments(case.pooled)
        self.target = further.get("y")
        if np.isnan(self.data).any():
            self.data = self.data[np.isfinite(self.data).all(1)]
        known = ("predict_proba", "transform", "predict", "score_samples")
        self.predict = next(name for name in known if hasattr(self.estimator, name))
        #: rows are one sequence: one that is missing is nothing unusual
        self.sequence = KINDS[kind]._data_form == "sequences"
        #: NaN is a missing entry
        self.missing = self.estimator.__sklearn_tags__().input_tags.allow_nan

    def fit(self, data: Any, estimator: Any = None) -> Any:
        made = clone(self.estimator) if estimator is None else estimator
        target = None if self.target is None else self.target[: len(data)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "the posterior is approximated at its mode")
            return made.fit(data) if target is None else made.fit(data, target)

    def ask(self, fitted: Any, data: Any) -> Any:
        return getattr(fitted, self.predict)(data)


#: every estimator of tables; tracks and ratings have tests of their own
FACES = {
    KINDS[kind].__name__: Face(kind)
    for kind in CASES
    if KINDS[kind]._data_form in ("rows", "sequences")
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
    if face.missing:
        assert np.isfinite(face.ask(face.fit(data), data)).all()
    else:
        assert "NaN" in refusal(lambda: face.fit(data))


@with_missing
def test_a_column_that_nobody_observed_is_named(face: Face) -> None:
    data = face.data.copy()
    data[:, -1] = np.nan
    last = data.shape[1] - 1
    said = (
        f"no node has an observed value of feature {last}"
        if last
        else "all observations are missing"
    )
    assert said in refusal(lambda: face.fit(data))


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
