"""Saved rating models and checkpoints: .npz of plain arrays, written whole or not at all, never pickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.files import replacing
from dmfvi.models.ratings_belief import RatingBelief
from dmfvi.models.ratings_posterior import RatingPosterior, UserPosteriors

MODEL_FORMAT, CHECKPOINT_FORMAT = "dmfvi-ratings", "dmfvi-ratings-checkpoint"
VERSION = 1
MODEL_FILE, CHECKPOINT_FILE = "ratings.npz", "checkpoint.npz"


class SavedRatings(NamedTuple):
    """What a model file holds."""

    posterior: RatingPosterior
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    scale: tuple[float, float]
    indptr: list[NDArray[np.int64]]  # what each user has rated, node by node
    columns: list[NDArray[Any]]
    n_sweeps: int
    max_sweeps: int


class Checkpoint(NamedTuple):
    """A fit on its way: node 0's belief, and what it takes to go on."""

    belief: RatingBelief
    seed: int
    sizes: tuple[int, int, int]  # users, items, ratings
    mean: float  # of the ratings
    errors: tuple[float, ...]  # held-out RMSE after each sweep
    max_sweeps: int
    settings: str = ""  # of the command that began the fit

    @property
    def sweeps(self) -> int:
        """Sweeps done."""
        return self.belief.sweeps


def save_ratings(saved: SavedRatings, directory: str | Path) -> Path:
    """Write the model into a directory."""
    users = saved.posterior.users
    assert users is not None
    content = saved.posterior.arrays() | {
        "user_mean": users.mean,
        "user_covariance": users.covariance,
        "user_noise": users.noise,
        "user_ids": saved.user_ids,
        "item_ids": saved.item_ids,
        "scale": np.array(saved.scale),
        "n_sweeps": saved.n_sweeps,
        "max_sweeps": saved.max_sweeps,
        "n_nodes": len(saved.indptr),
    }
    for i, (indptr, columns) in enumerate(zip(saved.indptr, saved.columns, strict=True)):
        content |= {f"indptr_{i}": indptr, f"columns_{i}": columns}
    return _write(Path(directory), MODEL_FILE, content | {"format": MODEL_FORMAT})


def load_ratings(directory: str | Path) -> SavedRatings:
    """Read what ``save_ratings`` wrote; a torn or foreign file is refused with the reason."""
    file, content = _read(Path(directory), MODEL_FILE, MODEL_FORMAT)
    try:
        users = UserPosteriors(
            content["user_mean"], content["user_covariance"], content["user_noise"]
        )
        posterior = RatingPosterior.from_arrays(content, users)
        nodes = range(int(content["n_nodes"]))
        low, high = (float(v) for v in content["scale"])
        return SavedRatings(
            posterior,
            content["user_ids"],
            content["item_ids"],
            (low, high),
            [content[f"indptr_{i}"] for i in nodes],
            [content[f"columns_{i}"] for i in nodes],
            int(content["n_sweeps"]),
            int(content["max_sweeps"]),
        )
    except KeyError as error:
        raise ValueError(f"{file} lacks {error}: fit the model again") from error


def save_checkpoint(checkpoint: Checkpoint, directory: str | Path) -> Path:
    """Write a checkpoint beside where the model will be."""
    content = {f"belief_{k}": v for k, v in checkpoint.belief.arrays().items()}
    content |= {
        "seed": checkpoint.seed,
        "sizes": np.array(checkpoint.sizes),
        "mean": checkpoint.mean,
        "errors": np.array(checkpoint.errors),
        "max_sweeps": checkpoint.max_sweeps,
        "settings": checkpoint.settings,
        "format": CHECKPOINT_FORMAT,
    }
    return _write(Path(directory), CHECKPOINT_FILE, content)


def load_checkpoint(directory: str | Path) -> Checkpoint:
    """Read what ``save_checkpoint`` wrote."""
    file, content = _read(Path(directory), CHECKPOINT_FILE, CHECKPOINT_FORMAT)
    try:
        belief = {k[len("belief_") :]: v for k, v in content.items() if k.startswith("belief_")}
        users, items, ratings = (int(v) for v in content["sizes"])
        return Checkpoint(
            RatingBelief.from_arrays(belief),
            int(content["seed"]),
            (users, items, ratings),
            float(content["mean"]),
            tuple(float(v) for v in content["errors"]),
            int(content["max_sweeps"]),
            str(content["settings"]),
        )
    except KeyError as error:
        raise ValueError(f"{file} lacks {error}: begin the fit again") from error


def _write(folder: Path, name: str, content: dict[str, Any]) -> Path:
    with replacing(folder / name) as file:
        np.savez(file, **content, version=VERSION)
    return folder / name


def _read(path: Path, name: str, wanted: str) -> tuple[Path, dict[str, Any]]:
    file = path / name if path.is_dir() else path
    if not file.exists():
        ranks = sorted(str(found) for found in Path(path).glob("rank-*"))
        hint = f"give one of {ranks}" if ranks else f"run dmfvi ratings fit --out {path} first"
        raise FileNotFoundError(f"{file} does not exist: {hint}")
    try:
        with np.load(file, allow_pickle=False) as archive:
            content = {key: archive[key] for key in archive.files}
    except Exception as error:  # a damaged archive raises nearly anything
        raise ValueError(f"{file} is truncated or no .npz file ({error}): fit again") from error
    if str(content.get("format")) != wanted:
        raise ValueError(f"{file} is not a {wanted} file")
    if int(content.get("version", -1)) != VERSION:
        raise ValueError(
            f"{file} has version {content.get('version')}, this library reads version {VERSION}"
        )
    return file, content
