"""Saved posteriors: one .npz of plain arrays that says its kind, written whole or not at all, never pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmfvi.families.base import Family
from dmfvi.families.product import Product
from dmfvi.files import replacing
from dmfvi.models.pca_posterior import PcaPosterior
from dmfvi.structured import decode, encode

#: Bayesian PCA's file, and that of any other kind: families as natural parameters
FORMAT, FAMILY_FORMAT = "dmfvi-pca-posterior", "dmfvi-posterior"
VERSION = 1
FILE_NAME = "posterior.npz"
PCA = "bayesian-pca"
ARRAYS = (
    "mean",
    "covariance",
    "noise_shape",
    "noise_rate",
    "column_precision",
    "n_latent",
    "factorised",
)


class SavedPosterior(NamedTuple):
    """What a model file holds."""

    posterior: Any  # PcaPosterior, or a family or product of families
    columns: list[str] | None
    converged: bool
    kind: str = PCA
    details: dict[str, Any] = {}  # noqa: RUF012 - what the kind adds, classes for example


def save_posterior(
    posterior: PcaPosterior | Family | Product,
    directory: str | Path,
    columns: list[str] | None = None,
    converged: bool = True,
    kind: str = PCA,
    details: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``posterior.npz`` into a directory; an interrupted write leaves nothing behind."""
    content: dict[str, Any] = {"version": VERSION, "kind": kind, "converged": converged}
    content["columns"] = np.array(columns or [], dtype=str)
    content["details"] = json.dumps(dict(details or {}))
    if isinstance(posterior, PcaPosterior):
        content |= {name: getattr(posterior, name) for name in ARRAYS}
        content["format"] = FORMAT
    elif isinstance(posterior, Family | Product):
        arrays: dict[str, np.ndarray] = {}
        content |= {"spec": json.dumps(encode(posterior, arrays)), **arrays}
        content["format"] = FAMILY_FORMAT
    else:
        raise TypeError(f"cannot save a {type(posterior).__name__}: it is no posterior")
    target = Path(directory) / FILE_NAME
    with replacing(target) as file:
        np.savez_compressed(file, **content)
    return target


def load_posterior(directory: str | Path, kind: str | None = None) -> SavedPosterior:
    """Read what ``save_posterior`` wrote; a torn or foreign file, or one of another kind, is refused with the reason."""
    path = Path(directory)
    file = path / FILE_NAME if path.is_dir() else path
    content = _content(file)
    saved = _pca(content, file) if str(content["format"]) == FORMAT else _family(content, file)
    if kind is not None and saved.kind != kind:
        raise ValueError(f"{file} holds a {saved.kind} model, here a {kind} model is needed")
    return saved


def _content(file: Path) -> dict[str, np.ndarray]:
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist: fit a model there first")
    if file.suffix != ".npz":
        raise ValueError(f"{file} is no model: give the directory that dmfvi fit wrote")
    try:
        with np.load(file, allow_pickle=False) as archive:
            content = {name: archive[name] for name in archive.files}
    except Exception as error:  # a damaged archive raises nearly anything
        raise ValueError(
            f"{file} is truncated or no .npz file ({error}): fit the model again"
        ) from error
    if str(content.get("format")) not in (FORMAT, FAMILY_FORMAT):
        raise ValueError(f"{file} is not a {FORMAT} file, nor a {FAMILY_FORMAT} one")
    version = int(content.get("version", -1))
    if version != VERSION:
        raise ValueError(f"{file} has version {version}, this library reads version {VERSION}")
    return content


def _pca(content: dict[str, np.ndarray], file: Path) -> SavedPosterior:
    missing = [name for name in ARRAYS if name not in content]
    if missing:
        raise ValueError(f"{file} lacks {missing}: fit the model again")
    shape = np.shape(content["mean"])
    if len(shape) != 2 or np.shape(content["covariance"]) != (*shape, shape[-1]):
        raise ValueError(
            f"{file} holds a mean of shape {shape} and a covariance of shape "
            f"{np.shape(content['covariance'])}: they do not belong together, fit the model again"
        )
    posterior = PcaPosterior(
        content["mean"],
        content["covariance"],
        float(content["noise_shape"]),
        float(content["noise_rate"]),
        content["column_precision"],
        int(content["n_latent"]),
        bool(content["factorised"]),
    )
    return _described(posterior, content, PCA)


def _family(content: dict[str, np.ndarray], file: Path) -> SavedPosterior:
    try:
        posterior = decode(json.loads(str(content["spec"])), content)
        saved = _described(posterior, content, str(content["kind"]))
    except (KeyError, TypeError, ValueError, AttributeError, ImportError) as error:
        raise ValueError(f"{file} cannot be read ({error}): fit the model again") from error
    if not isinstance(posterior, Family | Product):
        raise ValueError(
            f"{file} holds a {type(posterior).__name__}, no posterior: fit the model again"
        )
    return saved


def _described(posterior: Any, content: dict[str, np.ndarray], kind: str) -> SavedPosterior:
    columns = [str(name) for name in content.get("columns", [])]
    details = json.loads(str(content.get("details", "{}")))
    return SavedPosterior(
        posterior, columns or None, bool(content.get("converged", True)), kind, details
    )
