"""Fitted models as files: what was learned and the settings, not the data and not what belongs to the machine.

``_saved`` of an estimator returns what must be written, each number once; ``_restore`` rebuilds the rest from it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dmfvi.consensus import RULES, ConsensusRule
from dmfvi.inference.federation import Federation
from dmfvi.inference.result import Inference
from dmfvi.models import ESTIMATORS
from dmfvi.storage.archive import FileKind, read_archive
from dmfvi.storage.files import model_file
from dmfvi.storage.inferences import SavedInference, save_inference
from dmfvi.storage.structured import read_structured, write_structured
from dmfvi.tags import stored_as

MODEL = FileKind(
    "dmfvi-model",
    2,
    "saved model",
    "fit the model again with this version and save it with dmfvi.save",
)
#: settings of a machine: a model that is read has their defaults
OF_THE_MACHINE = {"verbose"}


def save(model: Any, path: str | Path, details: Mapping[str, Any] | None = None) -> Path:
    """Write a fitted estimator, or the result of ``infer``, to ``path`` (.npz), whole or not at all.

    ``details`` are plain facts of the run that are not the estimator's, for ``dmfvi.storage.details``.

    Parameters
    ----------
    model : estimator or Inference
        What was fitted.
    path : path
        File to write, .npz.
    details : mapping or None
        Further facts of the run: texts, numbers, lists and mappings of them.
    """
    if isinstance(model, Inference):
        return save_inference(model, _named_npz(path), MODEL, details)
    name, known = type(model).__name__, ESTIMATORS
    if known.get(name) is not type(model):
        if hasattr(model, "estimator_"):
            raise TypeError(f"a file holds no {name}: save its estimator_")
        raise TypeError(f"cannot save a {name}, known are {sorted(known)}")
    check_is_fitted(model)
    target = _named_npz(path)
    settings = {
        key: _plain(key, value)
        for key, value in model.get_params(deep=False).items()
        if key not in OF_THE_MACHINE
    }
    content = {"estimator": name, "settings": settings, "fitted": model._saved()}
    return write_structured(target, content, MODEL, details=details)


def _named_npz(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix != ".npz":
        raise ValueError(f"{target} must end in .npz")
    return target


def save_or_keep(model: Any, path: Path, details: Mapping[str, Any] | None = None) -> Path:
    """As ``save``; where the path cannot be written to, the model is kept elsewhere and the error says where."""
    try:
        return save(model, path, details)
    except OSError as reason:
        try:
            other = Path(tempfile.mkdtemp(prefix="dmfvi-")) / path.name
            save(model, other, details)
        except OSError:
            raise OSError(
                f"{path} cannot be written ({reason.strerror or reason}), nor can {tempfile.gettempdir()}: free space on "
                "the disk or make the folder writable"
            ) from reason
        raise OSError(
            f"{path} cannot be written ({reason.strerror or reason}): free space on the disk or make the folder "
            f"writable. The model is kept in {other}"
        ) from reason


def load(path: str | Path, kind: type[Any] = BaseEstimator) -> Any:
    """The fitted estimator or result of ``infer`` that ``save`` wrote, from its file or from the directory of its ``model.npz``.

    ``kind`` is the class that is needed. A damaged, altered or foreign file, or one of another version, is refused with the reason and what to do.

    Parameters
    ----------
    path : path
        The file, or the directory of a ``model.npz``.
    kind : type
        Class that the content must have.
    """
    file = model_file(path)
    content = read_structured(file, MODEL)
    if "inference" in content:
        kept = SavedInference(**content["inference"])
        if kind is BaseEstimator:
            return kept
        raise ValueError(
            f"{file} holds {kept.words}, here a {kind.__name__} is needed: give another file"
        )
    try:
        settings = {name: _made(value) for name, value in content["settings"].items()}
        model = ESTIMATORS[content["estimator"]](**settings)
        model._restore(content["fitted"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise MODEL.refusal(file, f"was written by another version ({error!r})") from error
    if not isinstance(model, kind):
        raise ValueError(
            f"{file} holds a {type(model).__name__}, here a {kind.__name__} is needed: give another file"
        )
    return model


def details(path: str | Path) -> dict[str, Any]:
    """The ``details`` that ``save`` was given: the members of the network, for example."""
    head, _ = read_archive(model_file(path), MODEL)
    return dict(head["details"])


@stored_as("consensus-rule")
@dataclass(frozen=True)
class StoredRule:
    """A consensus rule in a file: its name and settings."""

    name: str
    settings: dict[str, Any]


def _stored(rule: str | ConsensusRule) -> str | StoredRule:
    """A rule as it can be written; one that is not enrolled in RULES by its name only."""
    if isinstance(rule, str):
        return rule
    if RULES.get(rule.name) is not type(rule):
        return rule.name
    return StoredRule(rule.name, rule.settings)


def _made(value: Any) -> Any:
    """A setting as it was read, with its rule made."""
    if isinstance(value, Federation) and isinstance(value.consensus, StoredRule):
        rule = value.consensus
        return replace(value, consensus=RULES[rule.name](**rule.settings))
    return value


def _plain(name: str, value: Any) -> Any:
    """A setting as it can be written: engines, links and random generators left out."""
    if isinstance(value, Federation):
        return replace(
            Federation(value.network),
            consensus=_stored(value.consensus),  # type: ignore[arg-type]
        )
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if name == "random_state" and not isinstance(value, Integral):
        return None
    return value
