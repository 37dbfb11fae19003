"""Predictions for tables with incomplete rows: NaN for these rows (labels: None) where a model leaves such rows out of its fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: whether rows of a table are zeros, where an answer is wanted for its shape alone
ZEROS_STAND_IN: ContextVar[bool] = ContextVar("zeros_stand_in", default=False)
#: keywords that have one value for each row
OF_ROWS = frozenset({"y", "sample_weight", "offset", "exposure", "trials", "groups"})


class IncompleteRows(ValueError):
    """Some rows of a table lack a covariate; ``complete`` marks the others."""

    def __init__(self, text: str, complete: NDArray[np.bool_]) -> None:
        super().__init__(text)
        self.complete = complete


def rows_at(table: Any, positions: NDArray[np.intp]) -> Any:
    """Rows of a pandas or polars frame, a list or an array."""
    if hasattr(table, "iloc"):
        return table.iloc[positions]
    if isinstance(table, list | tuple):  # labels may be tuples
        return [table[position] for position in positions]
    return table[positions] if hasattr(table, "__array__") else np.asarray(table)[positions]


def values_at(named: Mapping[str, Any], positions: NDArray[np.intp], n: int) -> dict[str, Any]:
    """Keywords; those with one value for each of n rows at these positions."""
    return {
        name: rows_at(value, positions)
        if name in OF_ROWS
        and hasattr(value, "__len__")
        and len(value) == n
        and not isinstance(value, str)
        else value
        for name, value in named.items()
    }


def answer_of_complete_rows(
    method: Callable[..., Any], self: Any, X: Any, others: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """What the method returns for X, with NaN for incomplete rows if the model leaves such rows out.

    The method itself gets a complete row in their place, or zeros where there is none.
    """
    try:
        return method(self, X, *others, **named)
    except IncompleteRows as found:
        if not getattr(self, "_leaves_out_rows", False):
            raise
        kept = found.complete
    if kept.any():
        positions = np.where(kept, np.arange(len(kept)), np.flatnonzero(kept)[0])
        own = values_at(named, positions, len(kept))
        answer = method(self, rows_at(X, positions), *others, **own)
    else:
        token = ZEROS_STAND_IN.set(True)
        try:
            answer = method(self, X, *others, **named)
        finally:
            ZEROS_STAND_IN.reset(token)
    if isinstance(answer, tuple):
        return tuple(_blanked(part, kept) for part in answer)
    return _blanked(answer, kept)


def _blanked(answer: NDArray[Any], kept: NDArray[np.bool_]) -> NDArray[Any]:
    """The result with NaN in the incomplete rows; None if it has labels."""
    numbers = answer.dtype.kind == "f"
    made = answer.copy() if numbers else answer.astype(object)
    made[~kept] = np.nan if numbers else None
    return made
