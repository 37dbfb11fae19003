"""The result of ``infer`` in a file: posteriors and how the run went, without the model and the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
