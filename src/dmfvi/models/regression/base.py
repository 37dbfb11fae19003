"""What all regressions share: rows and targets in, agreed units inside, coefficients in the data's units out."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d, validate_data

from dmfvi.inference.response import Response
from dmfvi.inference.result import Inference
from dmfvi.inference.session import Session
from dmfvi.inference.starts import FeatureUnits
from dmfvi.linalg import FloatArray, label_words, row_words
from dmfvi.models.regression.columns import common_order, is_frame
from dmfvi.models.regression.digits import check_digits
from dmfvi.models.regression.far_products import warn_of_far_products
from dmfvi.models.regression.tabular import TabularRegression, named_column, refuse_scalar
from dmfvi.summary_table import SummaryTable
from dmfvi.uncertainty import Uncertainty, check_asked
from dmfvi.validation import is_shard_list

#: growth of rounding in a sweep at which nodes that damp their steps by their own sums still settle: they did up to 117
#: (chain of 24), and did not at 244 (barbell(6, 8), one node with nearly all rows)
MOST_ROUNDING_GROWTH = 200.0
#: default prior precision of intercepts in agreed units
VAGUE_INTERCEPT = 1e-2
#: rows that are worked on at a time
BLOCK = 1024
#: what to say where matrices cannot be solved
SINGULAR = (
    "the posterior is singular to rounding: columns are combinations of others (without an intercept also columns far from zero), and neither "
    "the rows nor the prior tell them apart; leave columns out, or raise prior_precision"
)


@dataclass(eq=False, repr=False)
class Regression(TabularRegression):
    """Rows and targets in, coefficients in the data's units out."""

    _uncertain = MappingProxyType({"coef": "coef_"})

    #: the default prior precision of a coefficient, for people
    _usual_precision: ClassVar[str] = "1"
    _default_precision: ClassVar[float] = 1.0

    _: KW_ONLY
    prior_precision: float | ArrayLike | None = None

    #: whether ``prior_precision="learned"`` has a meaning
    _learns_prior: ClassVar[bool] = False

    def _exact_session(self) -> Session:
        """The session of a fit whose nodes must decide alike."""
        session = self._open()
        view = session.rule.local_view(session.network, 0)
        if not session.exact or session.rule.rounding_growth(view) > MOST_ROUNDING_GROWTH:
            raise ValueError(
                f"a {type(self).__name__} needs sums that agree exactly, by which nodes damp their steps alike; consensus "
                f"{session.rule.name!r} does not reach that on {session.network.name}: use consensus='exact-sum'"
            )
        return session

    def _fit(self, *given: Any, **settings: Any) -> Self:
        try:
            return super()._fit(*given, **settings)
        except np.linalg.LinAlgError as error:
            raise ValueError(SINGULAR) from error

    def _keep(self, inference: Inference, log_volume: float = 0.0) -> None:
        names = self._names()
        try:
            check_digits(inference.posteriors[0].precision, names, len(names) + self._has_intercept)
        except ValueError:
            self._forget_fit()
            raise
        super()._keep(inference, log_volume)

    # -- rows ---------------------------------------------------------------------------------

    def _pairs(
        self, X: Any, y: Any, session: Session, reset: bool = True, allow_empty: bool = False
    ) -> list[tuple[FloatArray, Any]]:
        """One (rows, targets) per node of this process; without ``reset`` rows of a further batch.

        With ``allow_empty`` nodes may have none.
        """
        if y is None:
            raise ValueError(
                f"requires y to be passed, but the target y is None: {type(self).__name__} learns from targets"
            )
        if is_shard_list(X):
            session.refuse_parts(len(X), "rows and targets as one array each")
            target = np.concatenate(_parts_of("y", y, X))
        else:
            # missing cells are refused below, by their place
            _, target = validate_data(
                self,
                X,
                y,
                dtype=np.float64,
                y_numeric=False,
                ensure_all_finite="allow-nan",
                reset=reset,
            )
        # designs are made of them
        shards = self._row_shards(X, session, reset=reset, copy=False, allow_empty=allow_empty)
        self._name_sources()
        return list(zip(shards, _cut(column_or_1d(target), shards), strict=True))

    def _row_values(
        self, name: str, given: Any, X: Any, shards: list[FloatArray]
    ) -> list[FloatArray]:
        """One finite number a row beside the features, for each node of this process."""
        if isinstance(given, str):
            parts = X if is_shard_list(X) else [X]
            whole = np.concatenate([named_column(part, given, name) for part in parts])
        elif is_shard_list(X):
            whole = np.concatenate(_parts_of(name, given, X))
        else:
            whole = given
        refuse_scalar(name, whole)
        values = np.asarray(column_or_1d(whole), dtype=np.float64)
        rows = sum(len(shard) for shard in shards)
        if len(values) != rows or not np.isfinite(values).all():
            raise ValueError(
                f"{name} must have one finite number for each of {rows} rows, received {len(values)}"
                + ("" if np.isfinite(values).all() else ", some of them not finite")
            )
        return _cut(values, shards)

    def _known_targets(self, X: Any, y: Any, rows: FloatArray) -> NDArray[Any]:
        """Targets of rows, one each: y, or the formula's left-hand side."""
        if y is None and self.formula is not None:
            y = self._scored(X, None)
        if isinstance(y, str):
            raise ValueError(f"y must be the targets themselves, received the name {y!r}")
        if y is None or np.shape(y) != (len(rows),):
            raise ValueError(
                f"y must have one target for each of {len(rows)} rows, received {np.shape(y) if y is not None else None}"
            )
        return np.asarray(y)

    # -- units --------------------------------------------------------------------------------

    def _coefficient_precision(self, units: FeatureUnits, default: float) -> FloatArray:
        """Prior precisions of standardised coefficients (d,)."""
        d = len(units.shift)
        if isinstance(self.prior_precision, str) and not self._learns_prior:
            raise ValueError(
                f"prior_precision of a {type(self).__name__} must be positive, one number or {d}, received "
                f"{self.prior_precision!r}"
            )
        if self.prior_precision is None or isinstance(self.prior_precision, str):
            return np.full(d, default)
        given = self._numbers_of_prior()
        if given.shape not in {(), (d,)} or not ((given > 0) & (given < np.inf)).all():
            raise ValueError(
                f"prior_precision must be positive and finite, one number or {d}, received {self.prior_precision!r}: "
                "1e-6 is nearly flat"
            )
        # w' = w scale: the same prior for standardised features
        return np.asarray(np.broadcast_to(given, (d,)) / units.scale**2)

    def _numbers_of_prior(self) -> FloatArray:
        try:
            return np.asarray(self.prior_precision, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"prior_precision must be one number, or a list of one for each of {', '.join(self._names()[:5])} in this order, received "
                f"{self.prior_precision!r}"
            ) from None

    def _warn_of_far_products(self) -> None:
        """Under the default prior, of products in the formula of columns far from zero."""
        if self.formula is None or not self._centred or not self._prior_is_standardised:
            return
        units: FeatureUnits = self._units
        far = np.abs(units.shift) / units.scale
        # log hazards come after the terms
        distances = dict(zip(self._names(), far.tolist(), strict=False))
        rows = float(units.n_samples)
        warn_of_far_products(self.formula, distances, self._default_precision, rows)

    @property
    def _prior_is_standardised(self) -> bool:
        """Whether the prior is one of standardised columns, rather than in the data's units."""
        return self.prior_precision is None or isinstance(self.prior_precision, str)

    def _design(self, data: FloatArray) -> FloatArray:
        """Rows in agreed units, a column of ones last."""
        units: FeatureUnits = self._units
        if not self._has_intercept:
            return np.asarray((data - units.shift if self._centred else data) / units.scale)
        design = np.empty((len(data), data.shape[1] + 1))
        for i in range(0, len(data), BLOCK):  # rows stay in the cache between the two steps
            rows = design[i : i + BLOCK, :-1]
            np.subtract(data[i : i + BLOCK], units.shift, out=rows)
            rows /= units.scale
        design[:, -1] = 1.0
        return design

    @property
    def _has_intercept(self) -> bool:
        return self._wants_intercept

    @property
    def _centred(self) -> bool:
        """Whether rows are moved to the agreed means, which something like an intercept must make up for."""
        return self._has_intercept

    def _to_data(self) -> FloatArray:
        """A: coefficients and intercept in the data's units are A times the standardised ones."""
        units: FeatureUnits = self._units
        d = len(units.shift)
        if not self._has_intercept:
            return np.diag(1.0 / units.scale)
        change = np.zeros((d + 1, d + 1))
        change[:d, :d] = np.diag(1.0 / units.scale)
        change[d, :d] = -units.shift / units.scale
        change[d, d] = 1.0
        return change

    def __sklearn_is_fitted__(self) -> bool:
        """Attributes of a fit that has failed halfway do not count."""
        return hasattr(self, "posterior_")

    # -- the table ----------------------------------------------------------------------------

    def coefficient_table(self, level: float = 0.9) -> SummaryTable:
        """The table of coefficients in the data's units, with central intervals."""
        raise NotImplementedError

    def _draws(self, rng: np.random.Generator, n_draws: int) -> dict[str, FloatArray]:
        """Draws of the coefficients, of the intercept, and of the noise precision where it is part of the posterior."""
        coefficients = np.asarray(self.coef_)
        if coefficients.ndim > 1 and len(coefficients) > 1:
            raise ValueError(
                f"{type(self).__name__} has one softmax over several classes, no coefficients that can be drawn from by "
                "themselves: use predict_proba"
            )
        drawn = self.posterior_.sample(rng, n_draws)
        values, precision = drawn if isinstance(drawn, tuple) else (drawn, None)
        values, d = np.asarray(values), coefficients.shape[-1]
        found = {"coef": values[..., :d]}
        mean = np.asarray(self.posterior_.parameters()["mean"]).ravel()
        # other families have cut points or hazards there
        known = np.ravel(getattr(self, "intercept_", ()))
        if len(mean) > d and len(known) == 1 and mean[d] == known[0]:
            found["intercept"] = values[..., d]
        if precision is not None:
            found["noise_precision"] = np.asarray(precision)
        return found

    def uncertainty(
        self,
        quantity: str | Callable[[Any], ArrayLike],
        *,
        method: Literal["linear-response", "mean-field"] = "linear-response",
        level: float = 0.9,
    ) -> Uncertainty:
        """Mean, deviation, interval and covariance of a fitted quantity; "coef" are the coefficients.

        Their posterior is one Gaussian over all of them (linear regression: Student, whose deviations these are), which linear response
        leaves as it is: nothing is exchanged, and the answer is there after ``load`` too. Where q treats coefficients as
        independent of something else that is learned (``approximation="polya-gamma"``, ``prior_precision="learned"``) it is as for other models.

        Parameters
        ----------
        quantity : str or callable
            "coef", or a function of the fitted estimator that returns an array.
        method : {"linear-response", "mean-field"}
            The same for coefficients.
        level : float
            Of the interval, between 0 and 1.
        """
        if quantity != "coef" or self._factorised:
            return super().uncertainty(quantity, method=method, level=level)
        check_asked(self, method, level)
        coef, n_classes = np.asarray(self.coef_), np.shape(self.coef_)[0]
        if coef.ndim > 1 and n_classes > 1:
            raise ValueError(
                f"coefficients of {n_classes} classes have no covariance of their own: use coefficient_table(), or draws "
                "of to_xarray()"
            )
        d = coef.shape[-1]
        whole = np.asarray(self.coef_covariance_).reshape(-1, *np.shape(self.coef_covariance_)[-2:])
        covariance = whole[0, :d, :d]
        known = Response(coef.ravel(), covariance, covariance, 0, 0.0, 0.0)
        return Uncertainty(coef, covariance, level, method, known)

    @property
    def _factorised(self) -> bool:
        """Whether q treats coefficients as independent of something else that is learned."""
        polya_gamma = getattr(self, "approximation", "") == "polya-gamma"
        return polya_gamma or isinstance(self.prior_precision, str)

    @property
    def _has_table(self) -> bool:
        return True

    def _parameter_table(self, level: float) -> SummaryTable:
        """The table of coefficients, which needs no data."""
        return self.coefficient_table(level)

    def _facts(self) -> list[tuple[str, str]]:
        sites = getattr(self, "consensus_", {}).get("nodes", 1)
        rows, counted = getattr(self, "n_samples_", None), self._whole_weight
        same = rows is None or abs(rows - counted) <= 1e-9 * counted
        words = f"{round(counted)}" if same else f"{rows} rows of weight {counted:.6g} in all"
        count = ("n", words)
        classes: Any = getattr(self, "classes_", None)
        two = classes is not None and len(classes) == 2
        about = [self._modelled(classes[1])] if two else []
        return [
            count,
            *about,
            *self._table_facts(),
            ("sites", f"{sites}"),
            ("prior", self._prior_words()),
        ]

    @property
    def _whole_weight(self) -> float:
        """That of all rows; one for each where none is given."""
        return float(self._units.n_samples)

    def _modelled(self, label: Any) -> tuple[str, str]:
        """Which probability grows with a positive coefficient."""
        return "probability of", f"{self._target_name or 'y'} = {label_words(label)}"

    def _prior_words(self) -> str:
        """The prior of the coefficients, for people."""
        given: Any = self.prior_precision
        if given is None:
            return f"precision {self._usual_precision} of standardised columns (the default)"
        if isinstance(given, str):
            return f"precision {given} from the data"
        shown = f"{float(given):g}" if np.ndim(given) == 0 else "given for each coefficient"
        return f"precision {shown}"

    @property
    def term_names_(self) -> list[str]:
        """Names of the coefficients: the columns, or the terms of a formula."""
        return self._names()

    def _names(self) -> list[str]:
        """Names of the design's columns."""
        if self._design_of_table is not None:
            return list(self._design_of_table.terms)
        names = getattr(self, "feature_names_in_", None)
        d = len(self._units.shift)
        return [f"x{j}" for j in range(d)] if names is None else [str(name) for name in names]


def agree_on_weighted_units(
    data: FloatArray, weight: FloatArray
) -> Generator[FloatArray, FloatArray, FeatureUnits]:
    """Means and deviations of all features, rows counted by their weights: two sums.

    A row of weight two is two rows, and one of weight zero is none.
    """
    n, d = data.shape
    total = yield np.concatenate([[n, weight.sum()], weight @ data])
    if not total[1] > 0:
        raise ValueError(
            "sample_weight is zero for all rows of all nodes: nothing is left to learn from"
        )
    shift = total[2:] / total[1]
    gaps, squares = np.zeros(d), np.zeros(d)
    for i in range(0, n, BLOCK):
        gap, times = data[i : i + BLOCK] - shift, weight[i : i + BLOCK]
        gaps += times @ gap
        squares += times @ np.square(gap, out=gap)
    centred = yield np.concatenate([gaps, squares])
    rest = centred[:d] / total[1]  # what rounding left of the mean
    shift = shift + rest
    spread = np.maximum(centred[d:] - total[1] * rest**2, 0.0)
    variance = spread / max(float(total[1]) - 1.0, 0.5 * float(total[1]))
    constant = variance <= (1e-14 * np.maximum(np.abs(shift), 1e-300)) ** 2
    away = np.where(shift == 0, 1.0, np.abs(shift))
    scale = np.where(constant, away, np.sqrt(np.maximum(variance, 0.0)))
    return FeatureUnits(shift, scale, np.eye(d), float(round(total[0])), np.full(d, total[0]))


def check_one_type(labels: NDArray[Any]) -> None:
    """Refuse labels that have no order: text beside numbers, or beside None."""
    kinds = {type(label).__name__ for label in labels} if labels.dtype == object else set()
    if "NoneType" in kinds:
        row = next(i for i, label in enumerate(labels) if label is None)
        raise ValueError(f"y has no label in {row_words(row)}: leave rows without a label out")
    if "str" in kinds and len(kinds) > 1:
        raise ValueError(
            f"y has labels of several types {sorted(kinds)}: give all of them as text, or all as numbers"
        )


def declared_order(formula: str | None, X: Any, y: Any) -> list[Any] | None:
    """Labels in the order of ordered categorical targets, one order of which those of all sites are parts; None without one."""
    from dmfvi.models.regression.formula import target_of

    name = None if not isinstance(formula, str) else target_of(formula)
    parts = (X if is_shard_list(X) else [X]) if y is None else y if is_shard_list(X) else [y]
    orders: dict[int, list[Any]] = {}
    for position, part in enumerate(parts):
        known = name is not None and y is None and is_frame(part) and name in part.columns
        dtype: Any = getattr(part[name] if known else part, "dtype", None)
        if getattr(dtype, "ordered", str(dtype).lower().startswith("enum")):
            orders[position] = list(dtype.categories)
    if not orders:
        return None
    merged = list(common_order(name or "y", orders, set().union(*orders.values())))
    if len(orders) < len(parts):
        if all(isinstance(label, int | float) for label in merged) and merged == sorted(merged):
            return None  # numbers have this order anyway
        other = next(position for position in range(len(parts)) if position not in orders)
        raise ValueError(
            f"y has ordered categories {orders[min(orders)]} at site {min(orders)}, and no order at site {other}: declare them at all sites, or pass "
            "classes="
        )
    return merged


def known_classes(given: ArrayLike | None, labels: NDArray[Any], session: Session) -> NDArray[Any]:
    """Which labels exist is part of the schema, like the names of the columns."""
    seen = np.unique(labels)
    if given is None:
        if not session.whole:
            raise ValueError(
                "classes are needed where a process sees the labels of one node only, received None: "
                f"pass all labels that any node may have, here there are {seen[:10].tolist()}"
            )
        return seen
    listed = np.asarray(given)
    strange = np.setdiff1d(seen, listed)
    if len(strange):
        raise ValueError(
            f"y has labels {strange[:5].tolist()} that are not in classes={np.unique(listed).tolist()}: add them"
        )
    return listed


def _parts_of(name: str, given: Any, X: Any) -> list[Any]:
    """One array per shard, as long as the shard."""
    if not isinstance(given, list | tuple) or any(np.ndim(part) == 0 for part in given):
        raise ValueError(
            f"X is a list of {len(X)} shards: pass {name} as a list too, one array per shard"
        )
    parts = [column_or_1d(part, warn=True) for part in given]
    texts = [part.dtype.kind in "US" for part in parts]
    if any(texts) and not all(texts) and "O" not in {part.dtype.kind for part in parts}:
        raise ValueError(
            f"{name} is text in shard {texts.index(True)} and numbers in shard {texts.index(False)}: give one of them everywhere"
        )
    rows, received = [len(part) for part in X], [len(part) for part in parts]
    if rows != received:
        raise ValueError(
            f"rows per shard {rows} and {'targets' if name == 'y' else name} {received} do not match: "
            f"pass one {name} per shard"
        )
    return parts


def _cut(values: NDArray[Any], shards: list[FloatArray]) -> list[NDArray[Any]]:
    return np.split(values, np.cumsum([len(shard) for shard in shards])[:-1])
