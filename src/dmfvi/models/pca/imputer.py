"""Imputer: a model that fills gaps, as a step of a scikit-learn pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_array, check_is_fitted

from dmfvi.linalg import FloatArray
from dmfvi.models.mixture.estimator import BayesianGaussianMixture
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.models.pca.held_out import REFERENCE, hold_out, least_scores
from dmfvi.validation import (
    check_choice,
    check_level,
    check_numeric,
    check_whole,
    is_shard_list,
    unmasked,
)

#: rows' worth of the whole table's spread that each component of a candidate mixture begins with
PSEUDO_ROWS = 5
#: factors of the candidates for few rows, at most; those that are not needed are switched off
MOST_FACTORS = (8, 16)
#: values closer than this part of a column's range are equal but for rounding
SAME_VALUE = 1e-9


def usual_candidates(n_features: int, **settings: Any) -> dict[str, Any]:
    """Models to choose from by their bounds: factor analysis, one Gaussian, and mixtures of a few with two priors."""
    found: dict[str, Any] = {}
    settings = {"random_state": 0, **settings}
    for factors in sorted({max(1, min(n_features - 1, most)) for most in MOST_FACTORS}):
        found[f"BayesianPCA({factors}, noise='feature')"] = BayesianPCA(
            factors, noise="feature", **settings
        )
    firm: dict[str, Any] = {
        "degrees_of_freedom_prior": float(n_features + PSEUDO_ROWS),
        "covariance_prior": 1.0 + PSEUDO_ROWS,
    }
    for k in (1, 2, 3):
        found[f"BayesianGaussianMixture({k})"] = BayesianGaussianMixture(k, **settings)
        found[f"BayesianGaussianMixture({k}, firm prior)"] = BayesianGaussianMixture(
            k, **firm, **settings
        )
    return found


def dequantized(table: FloatArray) -> FloatArray:
    """The table with the digits that rounding has taken, drawn evenly; columns in which no value occurs twice as they are.

    E_u[log p(x + u)] <= log int p(x + u) du, u even over a cell of rounding: a bound on the probability of the rounded values (Theis, van den Oord
    & Bethge 2016). The density of the rounded values themselves has none: a component of no width at a value that is repeated.
    """
    cells = np.array([_cell(column[np.isfinite(column)]) for column in table.T])
    return table + cells * (np.random.default_rng(0).random(table.shape) - 0.5)


def _cell(values: FloatArray) -> float:
    """Least distance of two values in a column with repeated ones; zero for one that is constant or not rounded."""
    steps = np.diff(np.sort(values))
    apart = steps[steps > SAME_VALUE * steps.sum()]
    return float(apart.min()) if 0 < len(apart) < len(steps) else 0.0


def _tables(X: Any) -> list[FloatArray]:
    """Plain arrays, one for each node or one for all."""
    parts = X if is_shard_list(X) else [X]
    for position, part in enumerate(parts):
        check_numeric(part, f"shard {position}: " if len(parts) > 1 else "")
    return [
        check_array(
            unmasked(part), dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=0
        )
        for part in parts
    ]


def fitted_by_bound(models: Sequence[Any], X: Any) -> tuple[Any, FloatArray]:
    """The model with the highest bound for the dequantized table, fitted to the table itself, and the bounds."""
    tables = _tables(X)
    spread = dequantized(np.concatenate(tables))
    same = np.array_equal(spread, np.concatenate(tables), equal_nan=True)
    shards = np.split(spread, np.cumsum([len(table) for table in tables])[:-1])
    given = X if same else shards if is_shard_list(X) else shards[0]
    fitted = [clone(model).fit(given) for model in models]
    bounds = np.array([model.lower_bound_ for model in fitted])
    best = int(np.argmax(bounds))
    return fitted[best] if same else clone(models[best]).fit(X), bounds


def _by_column(chosen: NDArray[np.bool_], one: Any, other: Any) -> Any:
    """Ends of intervals, of some columns from one pair and of the rest from another; of lists for each array."""
    if isinstance(one, list):
        return [_by_column(chosen, a, b) for a, b in zip(one, other, strict=True)]
    return tuple(np.where(chosen, a, b) for a, b in zip(one, other, strict=True))


def _stretched(
    gaps: NDArray[np.bool_],
    mean: FloatArray,
    ends: tuple[FloatArray, FloatArray],
    stretch: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Intervals of gaps with their halves times a factor for each column; an infinite one makes them infinite."""
    low, high = (
        np.where(gaps, mean + np.where(np.isinf(stretch), 1.0, stretch) * (end - mean), mean)
        for end in ends
    )
    endless = gaps & np.isinf(stretch)
    return np.where(endless, -np.inf, low), np.where(endless, np.inf, high)


@dataclass(eq=False, repr=False)
class Imputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fills missing entries by a model's predictive means; ``transform`` returns a table with the same columns.

    Parameters
    ----------
    estimator : estimator with ``impute``, list of them, "auto" or None
        The model that is fitted, for example ``BayesianPCA(3, network=...)``. Of a list the model with the highest bound
        is kept; "auto" is a list of factor analysis, one Gaussian and mixtures of two and three, on one machine, compared by their bounds for the
        dequantized table: values that are rounded get the digits back at random. None is ``BayesianPCA(noise="feature")``.
    calibration : {"model", "held-out"} or None
        Intervals as the model has them, or stretched column by column so that they cover observed entries that are hidden in turn: the model is
        fitted once more for each of ``n_folds``, and only counts of entries and scores are summed over nodes. For columns whose shape the model does not have (skewed,
        rounded). A column takes level / (1 - level) scores, 9 for 0.9 and 99 for 0.99: with fewer its intervals are infinite, with a warning.
        A model of another package needs ``impute(X)`` and ``impute_interval(X, level)``, and is fitted on one machine. None is "held-out" for the estimator
        "auto", where columns with too few scores keep the model's intervals, and "model" otherwise.
    n_folds : int or "auto"
        Folds of the held-out calibration; an entry is predicted without its own fold. A fold's fit has fewer entries than the fit that is stretched, which widens
        intervals of small tables: "auto" takes as many folds as make rows times folds 10,000, from 10 (1,000 rows and more) to 50 (200 and fewer).

    Attributes
    ----------
    estimator_ : estimator
        The fitted model. ``dmfvi.save`` takes it, and does not take an Imputer: the calibration is not kept in a file.
    lower_bounds_ : array (n_models,)
        Bounds of the models that were fitted, in the order of the list; of "auto" for the dequantized table.
    candidates_ : list of str
        The models that the bounds are of.
    calibration_ : HeldOut
        Counts of held-out scores, where they were asked for; ``stretch(level)`` is the factor of each column's interval.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns, where the data had names.

    Examples
    --------
    >>> import numpy as np
    >>> from dmfvi import BayesianPCA, Imputer
    >>> X = np.outer(np.arange(20.0), [1.0, 2.0, 3.0])
    >>> X[3, 1] = np.nan
    >>> bool(np.isfinite(Imputer(BayesianPCA(1, random_state=0)).fit_transform(X)).all())
    True
    """

    estimator: Any = None
    calibration: Literal["model", "held-out"] | None = None
    n_folds: int | Literal["auto"] = "auto"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to X (n_samples, n_features) with NaN for missing entries, or to a list with one array per node."""
        check_choice("calibration", self.calibration, ["model", "held-out", None])
        if self.n_folds != "auto":
            check_whole("n_folds", self.n_folds, 2)
        candidates = self._candidates(X)
        for name in ("calibration_", "feature_names_in_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self.candidates_, models = list(candidates), list(candidates.values())
        if isinstance(self.estimator, str):
            self.estimator_, self.lower_bounds_ = fitted_by_bound(models, X)
        else:
            fitted = [clone(model).fit(X) for model in models]
            bounds = [getattr(model, "lower_bound_", np.nan) for model in fitted]
            self.lower_bounds_ = np.array(bounds)
            if len(fitted) > 1 and not np.isfinite(bounds).all():
                raise TypeError(
                    "estimator must be one model, or a list of models that have a bound"
                )
            self.estimator_ = fitted[int(np.argmax(bounds)) if len(fitted) > 1 else 0]
        usual = "held-out" if isinstance(self.estimator, str) else "model"
        if (self.calibration or usual) == "held-out":
            self.calibration_ = hold_out(self.estimator_, _tables(X), self.n_folds)
        self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        return self

    def _candidates(self, X: Any) -> dict[str, Any]:
        """Models by the words for them."""
        given = self.estimator
        if isinstance(given, str):
            if given != "auto":
                raise ValueError(f'estimator must be a model, a list or "auto", received {given!r}')
            first = X[0] if isinstance(X, list) and X and np.ndim(X[0]) == 2 else X
            if np.ndim(first) != 2:
                raise ValueError(
                    f"X must be a table with rows and columns, received shape {np.shape(first)}"
                )
            return usual_candidates(np.shape(first)[1])
        if given is None:
            given = BayesianPCA(noise="feature")
        models = list(given) if isinstance(given, list | tuple) else [given]
        for model in models:
            if not hasattr(model, "impute"):
                raise TypeError(
                    f"estimator must have impute, as BayesianPCA has, received {type(model).__name__}"
                )
            if self.calibration == "held-out" and not hasattr(model, "impute_interval"):
                raise TypeError(
                    f'calibration="held-out" stretches the intervals of impute_interval(X, level), which {type(model).__name__} does not have'
                )
        if not models:
            raise ValueError("estimator must not be an empty list: give a model")
        words = [" ".join(repr(model).split()) for model in models]
        repeated = len(set(words)) < len(words)
        return {
            f"{i + 1}: {w}" if repeated else w: m
            for i, (w, m) in enumerate(zip(words, models, strict=True))
        }

    def transform(self, X: Any) -> FloatArray:
        """X with its missing entries filled."""
        check_is_fitted(self)
        return self.estimator_.impute(X)

    def impute_interval(self, X: Any, level: float = 0.9) -> Any:
        """Lower and upper ends of predictive intervals; equal to X where it is observed. Of a list, such a pair for each array."""
        check_is_fitted(self)
        if not hasattr(self, "calibration_"):
            return self.estimator_.impute_interval(X, level)
        check_level(level)
        mean, ends = self.estimator_.impute(X), self.estimator_.impute_interval(X, REFERENCE)
        gaps = [np.isnan(table) for table in _tables(X)]
        stretch = self.calibration_.stretch(level)
        self._warn_of_few_scores(stretch, np.any([at.any(0) for at in gaps], axis=0), level)
        few = np.isinf(stretch)
        if self.calibration is None and few.any():
            usual = self.estimator_.impute_interval(X, level)
            ends = _by_column(few, usual, ends)
            stretch = np.where(few, 1.0, stretch)
        if not is_shard_list(X):
            return _stretched(gaps[0], mean, ends, stretch)
        return [_stretched(*of_part, stretch) for of_part in zip(gaps, mean, ends, strict=True)]

    def _warn_of_few_scores(
        self, stretch: FloatArray, wanted: NDArray[np.bool_], level: float
    ) -> None:
        few = np.flatnonzero(np.isinf(stretch) & wanted)
        if len(few):
            names = getattr(self, "feature_names_in_", np.arange(len(stretch)))
            scores = self.calibration_.counts.sum(1).astype(int)
            shown = ", ".join(f"{names[j]} ({scores[j]})" for j in few[:5])
            warnings.warn(
                f"intervals of level {level:g} take {least_scores(level)} held-out scores of a column; fewer have: {shown}"
                + (f" and {len(few) - 5} more" if len(few) > 5 else "")
                + f". Their intervals are {'infinite' if self.calibration else 'those of the model'}",
                UserWarning,
                stacklevel=3,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
