"""What survival regressions share: times and events in, risks and concordance out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils.validation import validate_data

from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.regression.base import Regression
from dmfvi.models.regression.columns import is_frame, summed
from dmfvi.models.regression.labels import labels_of, numbered, without_missing
from dmfvi.models.survival.times import check_pairs, concordance, pair_of, pairs_of
from dmfvi.shard_lists import joined
from dmfvi.validation import check_level, is_shard_list, unmasked

#: one node's rows with their times and events
Part = tuple[FloatArray, FloatArray]


class SurvivalRegression(Regression):
    """Rows, times and events in."""

    _kept: ClassVar[tuple[str, ...]] = ("n_subjects_", "n_events_")

    n_subjects_: int
    n_events_: int
    #: (site, label) of each stratum of this process, by its number
    _stratum_keys: list[tuple[int, Any]]

    @staticmethod
    def _from_columns(  # type: ignore[override]
        time: FloatArray, event: FloatArray, weight: FloatArray | None = None
    ) -> dict[str, Any]:
        more = {} if weight is None else {"sample_weight": weight}
        return {"y": pair_of(time, event), **more}

    def _subjects(
        self,
        X: Any,
        y: Any,
        event: Any,
        time: Any,
        session: Session,
        *,
        weight: Any = None,
        strata: Any = None,
    ) -> tuple[list[Part], list[FloatArray], list[NDArray[Any]]]:
        """Rows with times and events, weights, and strata, for each node of this process."""
        if y is not None and time is not None:
            raise ValueError("y and time are both given: times are one of them")
        self._check_sides()
        if not is_shard_list(X) and not is_frame(X):
            X = validate_data(self, unmasked(X), dtype=np.float64, ensure_all_finite="allow-nan")
        pairs, names = pairs_of(X, y if time is None else time, event)
        given = {"sample_weight": weight}
        labels, of_strata = labels_of(X, strata, "strata")
        gone: list[float] = []
        how = self.missing or ("drop" if self.formula is not None else "raise")
        if labels is not None:
            others = [pairs, weight]
            X, labels, others, gone = without_missing(X, labels, others, "strata", how)
            pairs, given = others[0], {"sample_weight": others[1]}
        X, pairs, given = self._tabulated(
            X, pairs, {**given, "strata": labels}, session, [*names, *of_strata]
        )
        if gone and how != "raise":
            self.n_dropped_ += round(float(summed(session, [np.array([n]) for n in gone])[0]))
        listed = is_shard_list(X)
        sizes = [len(part) for part in X] if listed else [len(X)]
        if listed:
            session.refuse_parts(len(X), "rows, times and events as one array each")
        shards = self._row_shards(X, session, stacklevel=5)
        self._name_sources()
        ends = np.cumsum([len(shard) for shard in shards])[:-1]
        whole = np.concatenate(pairs) if listed else np.asarray(pairs)
        n_rows = len(whole)
        marks = given.get("strata")
        if marks is None:
            marks = np.full(n_rows, None)
        numbers, known = numbered(np.concatenate(marks) if isinstance(marks, list) else marks)
        site = np.repeat(np.arange(len(sizes)), sizes)
        both = site * len(known) + numbers
        self._stratum_keys = [
            (position, label) for position in range(len(sizes)) for label in known
        ]
        weights = np.ones(n_rows)
        if "sample_weight" in given:
            weights = np.concatenate(
                self._row_values("sample_weight", given["sample_weight"], X, shards)
            )
            if (weights < 0).any():
                raise ValueError(f"sample_weight must not be negative, received {weights.min():g}")
        split = np.split(whole, ends)
        counts = [
            np.array([float(np.sum(w > 0)), float(np.nansum(pair[w > 0, 1]))])
            for pair, w in zip(split, np.split(weights, ends), strict=True)
        ]
        total = np.rint(summed(session, counts))
        self.n_subjects_, self.n_events_ = int(total[0]), int(total[1])
        if not self.n_subjects_:
            raise ValueError(
                "sample_weight is zero for all rows of all nodes: nothing is left to learn from"
            )
        return (
            list(zip(shards, split, strict=True)),
            np.split(weights, ends),
            np.split(both, ends),
        )

    def _check_sides(self) -> None:
        """Refuse a formula with a left-hand side, or without an intercept."""
        from dmfvi.models.regression.formula import parsed, target_of

        if not isinstance(self.formula, str):
            return
        if target_of(self.formula) is not None:
            raise ValueError(
                f"formula {self.formula!r} has a left-hand side: write ~ a + b, and name times and events in fit "
                "(time='...', event='...')"
            )
        if not parsed(self.formula).intercept:
            raise ValueError(
                f"formula {self.formula!r} takes the intercept out: it is part of the baseline hazard, which every survival model has, so "
                "write the formula without 0 + and - 1"
            )

    def _terms_of(self, width: int) -> list[str]:
        """Names of the covariates before any unit is known."""
        if self._design_of_table is not None:
            return list(self._design_of_table.terms)
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(width)] if names is None else [str(name) for name in names]

    def _facts(self) -> list[tuple[str, str]]:
        sites = getattr(self, "consensus_", {}).get("nodes", 1)
        counts = [("n", f"{self.n_subjects_}"), ("events", f"{self.n_events_}")]
        return [
            *counts,
            *self._table_facts(),
            ("sites", f"{sites}"),
            ("prior", self._prior_words()),
        ]

    # -- predictions --------------------------------------------------------------------------

    @abstractmethod
    def _relative(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each row's log hazard relative to the mean row's."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Log hazard of each row relative to that of the mean row (higher is riskier); with ``return_std`` also its posterior deviation."""
        mean, variance = self._relative(X)
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Ends of central intervals of the relative log hazard."""
        check_level(level)
        mean, variance = self._relative(X)
        reach = float(ndtri(0.5 + 0.5 * level)) * np.sqrt(variance)
        return mean - reach, mean + reach

    def score(self, X: Any, y: Any = None, event: Any = None, *, time: Any = None) -> float:
        """Harrell's concordance of predicted risks with the order of events."""
        risk = joined(self.predict(X))
        given, _ = pairs_of(X, y if time is None else time, event, "score")
        pairs = np.concatenate(given) if is_shard_list(X) else given
        if self._leaves_out_rows:
            kept = np.isfinite(risk) & np.isfinite(pairs).all(1)
            risk, pairs = risk[kept], pairs[kept]
            if not len(risk):
                raise ValueError("no row is complete and has a time: there is nothing to score")
        check_pairs(pairs, positive=False)
        return concordance(risk, pairs)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = None
        tags.regressor_tags = None
        tags.target_tags.required = True
        tags.target_tags.two_d_labels = True
        return tags
