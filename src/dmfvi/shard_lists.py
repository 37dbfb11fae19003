"""Questions about several shards at once: wherever ``fit`` takes a list, one answer per shard comes back."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from dmfvi.incomplete_rows import answer_of_complete_rows
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


def answering_lists(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method with a list of answers for a list of shards; keywords may be lists of one value per shard.

    Where a model leaves out rows that lack something, such rows of a frame are answered by NaN (labels: None).
    """

    @wraps(method)
    def answer(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        if not is_list_of_shards(X, getattr(self, "_data_form", "rows")):
            return answer_of_complete_rows(method, self, X, others, named)
        made = []
        for i, part in enumerate(X):
            own = {
                name: each[i] if isinstance(each, list) and len(each) == len(X) else each
                for name, each in named.items()
            }
            try:
                made.append(answer_of_complete_rows(method, self, part, others, own))
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
