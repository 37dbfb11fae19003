"""Questions about several shards at once: wherever ``fit`` takes a list, one answer per shard comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.validation import is_shard_list

#: methods that answer for rows; scores are pooled instead
PER_SHARD = (
    "predict",
    "predict_proba",
    "predict_proba_interval",
    "predict_interval",
    "predict_survival_function",
    "predict_cumulative_hazard",
    "decision_function",
    "transform",
    "score_samples",
    "impute",
    "impute_interval",
)


def is_list_of_shards(X: Any, form: str) -> bool:
    """Whether X has one shard per node: tables, sparse counts, or (``form`` "sequences") lists of sequences."""
    if not isinstance(X, list | tuple) or not len(X):
        return False
    if form == "sequences":
        return all(
            isinstance(part, list | tuple) and len(part) > 0 and all(map(_is_array, part))
            for part in X
        )
    return is_shard_list(X) or all(hasattr(part, "tocsr") for part in X)


def _is_array(part: Any) -> bool:
    return isinstance(part, np.ndarray) or hasattr(part, "columns")


class IncompleteRows(ValueError):
    """Rows of one table that lack something; ``complete`` says which do not."""

    def __init__(self, text: str, complete: NDArray[np.bool_]) -> None:
        super().__init__(text)
        self.complete = complete


#: whether rows of a table are zeros, where an answer is wanted for its shape alone
ZEROS_STAND_IN: ContextVar[bool] = ContextVar("zeros_stand_in", default=False)
#: keywords that have one value for each row
OF_ROWS = frozenset({"y", "sample_weight", "offset", "exposure", "trials", "groups"})


def some_rows(part: Any, kept: NDArray[np.bool_]) -> Any:
    """Some rows of a pandas or polars frame, a list or an array."""
    if hasattr(part, "columns"):
        return part[kept] if hasattr(part, "iloc") else part.filter(kept)
    if isinstance(part, list | tuple):  # labels may be tuples
        return [value for value, keep in zip(part, kept, strict=True) if keep]
    return part[kept] if isinstance(part, np.ndarray) else np.asarray(part)[kept]


def values_of(named: Mapping[str, Any], kept: NDArray[np.bool_]) -> dict[str, Any]:
    """Keywords; those with one value a row for some rows."""
    n = len(kept)
    return {
        name: some_rows(value, kept)
        if name in OF_ROWS and np.ndim(value) and len(value) == n
        else value
        for name, value in named.items()
    }


def _answer_of_complete_rows(
    method: Callable[..., Any], self: Any, X: Any, others: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """The method's answer, with nothing for rows that lack something where a model leaves out such rows.

    A complete row stands in for them, or zeros where there is none.
    """
    try:
        return method(self, X, *others, **named)
    except IncompleteRows as found:
        if not getattr(self, "_leaves_out_rows", False):
            raise
        kept = found.complete
    if kept.any():
        rows = np.where(kept, np.arange(len(kept)), np.flatnonzero(kept)[0])
        own = {
            name: _at(value, rows) if name in OF_ROWS else value for name, value in named.items()
        }
        answer = method(self, _at(X, rows), *others, **own)
    else:
        token = ZEROS_STAND_IN.set(True)
        try:
            answer = method(self, X, *others, **named)
        finally:
            ZEROS_STAND_IN.reset(token)
    if isinstance(answer, tuple):
        return tuple(_blanked(part, kept) for part in answer)
    return _blanked(answer, kept)


def _at(value: Any, rows: NDArray[np.intp]) -> Any:
    """Rows of a table or values of rows, at these positions; anything else as it is."""
    if (np.ndim(value) == 0 and not hasattr(value, "columns")) or len(value) != len(rows):
        return value
    if hasattr(value, "iloc"):
        return value.iloc[rows]
    if (isinstance(value, list | tuple) and value and np.ndim(value[0]) == 0) or _holds_tuples(
        value
    ):
        return [value[row] for row in rows]
    return value[rows] if hasattr(value, "__array__") else np.asarray(value)[rows]


def _holds_tuples(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(each, tuple) for each in value)


def _blanked(answer: NDArray[Any], kept: NDArray[np.bool_]) -> NDArray[Any]:
    """The answers with NaN in the other rows; None beside labels."""
    numbers = answer.dtype.kind == "f"
    made = answer.copy() if numbers else answer.astype(object)
    made[~kept] = np.nan if numbers else None
    return made


def answering_lists(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method with a list of answers for a list of shards; keywords may be lists of one value per shard.

    Where a model leaves out rows that lack something, such rows of a frame are answered by NaN (labels: None).
    """

    @wraps(method)
    def answer(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        if not is_list_of_shards(X, getattr(self, "_data_form", "rows")):
            return _answer_of_complete_rows(method, self, X, others, named)
        made = []
        for i, part in enumerate(X):
            own = {
                name: each[i] if isinstance(each, list) and len(each) == len(X) else each
                for name, each in named.items()
            }
            try:
                made.append(_answer_of_complete_rows(method, self, part, others, own))
            except ValueError as error:
                text = str(error)
                prefix = "" if "shard " in text else f"shard {i}: "
                raise ValueError(f"{prefix}{text}") from error
        return made

    answer._answers_lists = True  # type: ignore[attr-defined]
    return answer


def answering_sites(method: Callable[..., Any]) -> Callable[..., Any]:
    """As ``answering_lists``; without a ``site``, rows in a list are those of the sites, one after the other, if these differ."""
    answer = answering_lists(method)

    @wraps(method)
    def by_site(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        listed = is_list_of_shards(X, getattr(self, "_data_form", "rows"))
        if listed and named.get("site") is None and self._sites_differ:
            named["site"] = list(range(len(X)))
        return answer(self, X, *others, **named)

    by_site._answers_lists = True  # type: ignore[attr-defined]
    return by_site


def joined(answer: Any) -> Any:
    """The answers for all shards one after the other."""
    return np.concatenate(answer) if isinstance(answer, list) else answer


def joined_weights(given: Any) -> Any:
    """Weights of rows one after the other, where they are a list with an array for each shard."""
    listed = isinstance(given, list | tuple) and any(np.ndim(part) for part in given)
    return np.concatenate([np.ravel(part) for part in given]) if listed else given
