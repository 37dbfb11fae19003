"""Checkpoints of rating fits, as structured files beside where the model will be."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dmfvi.models.ratings.belief import RatingBelief
from dmfvi.storage.archive import FileKind
from dmfvi.storage.structured import read_structured, write_structured
from dmfvi.tags import stored_as

CHECKPOINT_FILE = "checkpoint.npz"
RATING_CHECKPOINT = FileKind(
    "dmfvi-ratings-checkpoint",
    2,
    "checkpoint",
    "begin the fit again, without --resume",
    compressed=False,
)


@stored_as("rating-checkpoint")
class Checkpoint(NamedTuple):
    """An unfinished fit: node 0's belief, and what is needed to continue."""

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


def save_checkpoint(checkpoint: Checkpoint, directory: str | Path) -> Path:
    """Write a checkpoint into a directory."""
    return write_structured(Path(directory) / CHECKPOINT_FILE, checkpoint, RATING_CHECKPOINT)


def load_checkpoint(directory: str | Path) -> Checkpoint:
    """Read what ``save_checkpoint`` wrote."""
    path = Path(directory) / CHECKPOINT_FILE
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: fit without --resume first")
    checkpoint: Checkpoint = read_structured(path, RATING_CHECKPOINT)
    return checkpoint
