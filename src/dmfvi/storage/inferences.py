"""The result of ``infer`` in a file: posteriors and how the run went, without the model and the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.inference.result import Inference
from dmfvi.linalg import FloatArray
from dmfvi.storage.structured import write_structured


@dataclass(frozen=True)
class SavedInference:
    """What ``infer`` returned, as far as a file keeps it; names as in ``Inference``."""

    model_name: str
    posteriors: list[Any]
    history: dict[str, FloatArray]
    lower_bound: float
    converged: bool
    n_iter: int
    n_rounds: int
    consensus: dict[str, Any]

    @property
    def posterior(self) -> Any:
        """Node 0's."""
        return self.posteriors[0]

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return f"the result of infer for a {self.model_name}"

    def summary(self) -> str:
        """How the run went."""
        ended = "converged" if self.converged else "NOT converged"
        return (
            f"{self.model_name}: {ended}\n{self.n_iter} sweeps, {self.n_rounds} message rounds, "
            f"{len(self.posteriors)} nodes\nevidence lower bound {self.lower_bound:.8g}"
        )

    def marginals(self) -> list[tuple[str, float, float]]:
        """Name, mean and standard deviation of every entry of node 0's posterior."""
        q = self.posterior
        return [
            (name, mean, variance**0.5)
            for name, mean, variance in _entries(q.mean_value(), q.variance())
        ]


def save_inference(
    result: Inference, path: Path, kind: Any, details: Mapping[str, Any] | None
) -> Path:
    """Write it, whole or not at all."""
    content = {
        "inference": {
            "model_name": type(result.model).__name__,
            "posteriors": list(result.posteriors),
            "history": result.history,
            "lower_bound": float(result.lower_bound),
            "converged": bool(result.converged),
            "n_iter": int(result.n_iter),
            "n_rounds": int(result.n_rounds),
            "consensus": dict(result.consensus),
        }
    }
    return write_structured(path, content, kind, details=details)


def _entries(mean: Any, variance: Any, name: str = "") -> Iterator[tuple[str, float, float]]:
    """Entries of arrays, of tuples and of blocks with names."""
    if isinstance(mean, Mapping):
        for key in mean:
            yield from _entries(mean[key], variance[key], f"{name}.{key}" if name else str(key))
    elif isinstance(mean, tuple):
        for at, (one, spread) in enumerate(zip(mean, variance, strict=True)):
            yield from _entries(one, spread, f"{name}.{at}" if name else str(at))
    else:
        spreads = np.broadcast_to(variance, np.shape(mean))
        for place, value in np.ndenumerate(mean):
            where = ", ".join(map(str, place))
            yield f"{name}[{where}]" if place else name, float(value), float(spreads[place])
