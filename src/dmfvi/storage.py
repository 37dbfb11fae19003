"""Saved posteriors: one .npz of plain arrays, written whole or not at all, never pickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmfvi.files import replacing
from dmfvi.models.pca_posterior import PcaPosterior

FORMAT = "dmfvi-pca-posterior"
VERSION = 1
FILE_NAME = "posterior.npz"
ARRAYS = (
    "mean",
    "covariance",
    "noise_shape",
    "noise_rate",
    "column_precision",
    "n_latent",
    "factorised",
)


def save_posterior(
    posterior: PcaPosterior,
    directory: str | Path,
    columns: list[str] | None = None,
    converged: bool = True,
) -> Path:
    """Write ``posterior.npz`` into a directory; an interrupted write leaves nothing behind."""
    folder = Path(directory)
    content: dict[str, Any] = {name: getattr(posterior, name) for name in ARRAYS}
    content |= {"format": FORMAT, "version": VERSION, "columns": np.array(columns or [], dtype=str)}
    content["converged"] = converged
    target = folder / FILE_NAME
    with replacing(target) as file:
        np.savez_compressed(file, **content)
    return target


class SavedPosterior(NamedTuple):
    """What a model file holds."""

    posterior: PcaPosterior
    columns: list[str] | None
    converged: bool


def load_posterior(directory: str | Path) -> SavedPosterior:
    """Read what ``save_posterior`` wrote; a torn or foreign file is refused with the reason."""
    path = Path(directory)
    file = path / FILE_NAME if path.is_dir() else path
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
    if str(content.get("format")) != FORMAT:
        raise ValueError(f"{file} is not a {FORMAT} file")
    version = int(content.get("version", -1))
    if version != VERSION:
        raise ValueError(f"{file} has version {version}, this library reads version {VERSION}")
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
    columns = [str(name) for name in content.get("columns", [])]
    return SavedPosterior(posterior, columns or None, bool(content.get("converged", True)))
