"""Fitted models as files: one checksummed .npz with plain arrays and words, never pickled.

What a model has learned is written, with the settings it was made with; not the data (an estimator names those of its
attributes that hold data in ``_data_attributes``), and not what belongs to the machine (engine, threads, progress).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dmfvi import estimators
from dmfvi.consensus import ConsensusRule
from dmfvi.sfm import StructureFromMotion
from dmfvi.structured import FileKind, read_structured, write_structured

FILE_NAME = "model.npz"
MODEL = FileKind(
    "dmfvi-model",
    1,
    "saved model",
    f"give a file that dmfvi.save wrote, a node's {FILE_NAME} for example",
)
#: settings of a machine: a model that is read has their defaults
OF_THE_MACHINE = {"engine", "n_jobs", "verbose"}
#: estimators by name; ratings have a directory of their own (``RatingFactorization.save``)
KNOWN: dict[str, type[BaseEstimator]] = {
    made.__name__: made
    for made in (
        *(getattr(estimators, name) for name in estimators.__all__),
        StructureFromMotion,
    )
    if made is not estimators.RatingFactorization
}


def save(model: Any, path: str | Path) -> Path:
    """Write a fitted estimator to ``path`` (.npz), whole or not at all."""
    name = type(model).__name__
    if KNOWN.get(name) is not type(model):
        hint = ": use its method save" if hasattr(model, "save") else ""
        raise TypeError(f"cannot save a {name}, known are {sorted(KNOWN)}{hint}")
    check_is_fitted(model)
    settings = {
        key: _plain(key, value)
        for key, value in model.get_params(deep=False).items()
        if key not in OF_THE_MACHINE
    }
    left_out = {*model.get_params(deep=False), *getattr(model, "_data_attributes", ())}
    learned = {key: value for key, value in vars(model).items() if key not in left_out}
    target = Path(path)
    if target.suffix != ".npz":
        raise ValueError(f"{target} must end in .npz")
    return write_structured(target, (name, settings, learned), MODEL)


def load(path: str | Path) -> Any:
    """The fitted estimator that ``save`` wrote; a torn, altered or foreign file is refused with the reason."""
    given = Path(path)
    file = given / FILE_NAME if given.is_dir() else given
    content = read_structured(file, MODEL)
    try:
        name, settings, learned = content
        model = KNOWN[name](**settings)
        for key, value in learned.items():
            if callable(getattr(type(model), key, None)):
                raise TypeError(f"{key} is a method")
            setattr(model, str(key), value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{file} was written by another version ({error}): fit again") from error
    return model


def _plain(name: str, value: Any) -> Any:
    """A setting as it can be written: rules by name, generators of luck left out."""
    if isinstance(value, ConsensusRule):
        return value.name
    if name == "random_state" and not isinstance(value, int):
        return None
    return value
