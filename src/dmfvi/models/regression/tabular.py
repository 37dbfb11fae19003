"""Frames in: formulas, columns of words and missing entries become the rows of a regression, by what the sites agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from textwrap import indent
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import NetworkEstimator
from dmfvi.incomplete_rows import ZEROS_STAND_IN, rows_at, values_at
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray, row_words
from dmfvi.models.regression import formula as formulas
from dmfvi.models.regression.columns import (
    EMPTY,
    NUMBER,
    TRUTH,
    Column,
    agreed_levels,
    categorical,
    columns_of,
    is_frame,
    is_missing,
    summed,
)
from dmfvi.models.regression.design import TableDesign
from dmfvi.models.regression.imputation import agree_on_gaussian
from dmfvi.validation import check_choice, is_shard_list, is_table, warn_of_ids

#: stands in docstrings for the parameters below
TABLE_PARAMETERS = "{table parameters}"
PARAMETERS = """\
formula : str or None
    As in R and statsmodels, ``"y ~ age + C(sex) * dose"`` (extra ``formula``): then ``fit`` takes frames, one or one per site, and no y
    unless the formula has no left-hand side. It also says whether there is an intercept (``0 + ...``: none). Without a formula
    columns of words, categories and truth values become indicators of all levels but the first.
missing : "raise", "drop", "impute" or None
    What is done with rows that lack a covariate: refused, left out and counted (as are rows without a target), or filled with means given the row's
    other numbers under the joint Gaussian of all sites' rows, whose own uncertainty is not part of the posterior. None is "drop"
    with a formula, as in statsmodels, and "raise" without."""


@dataclass(eq=False, repr=False)
class TabularRegression(NetworkEstimator):
    """What regressions do with frames before they see rows of numbers."""

    _: KW_ONLY
    formula: str | None = None
    missing: Literal["raise", "drop", "impute"] | None = None
    fit_intercept: bool = True

    _kept: ClassVar[tuple[str, ...]] = ("_table", "n_dropped_", "n_imputed_", "_target_name")

    #: what the target is called, where that is known
    _target_name = cast("str | None", None)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__doc__:
            cls.__doc__ = cls.__doc__.replace(f"    {TABLE_PARAMETERS}", indent(PARAMETERS, "    "))

    def _tabulated(
        self,
        X: Any,
        y: Any,
        beside: Mapping[str, Any],
        session: Session,
        left_out: Sequence[str] = (),
        known: TableDesign | None = None,
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Rows of numbers, targets and what else rows have; arrays without missing entries as they are.

        Columns that are ``left_out`` are no features. With a ``known`` design nothing is agreed on: rows of a further batch.
        """
        check_choice("missing", self.missing, ["raise", "drop", "impute", None])
        self._table: TableDesign | None = known
        self._target_name = self._name_of_target(y)
        self.n_dropped_ = self.n_imputed_ = 0
        given = {name: value for name, value in beside.items() if value is not None}
        listed = is_shard_list(X)
        parts = list(X) if listed else [X]
        framed = all(is_frame(part) for part in parts)
        how = self.missing or ("drop" if self.formula is not None else "raise")
        self._check_formula(framed, y)
        named = sorted({v for v in given.values() if isinstance(v, str)} | set(left_out))
        plain = how == "raise" or not all(is_table(part) for part in parts)
        if known is None and not framed and plain:
            return X, y, given
        if listed:
            session.refuse_parts(len(parts), "frame")
        pieces = self._pieces(parts, listed, y, given, named, known)
        design = known
        if design is None:
            design = self._agreed_design(pieces, how, session)
            if not design.levels and self.formula is None and how == "raise" and not named:
                return X, y, given
        some_empty = known is not None and listed
        rows, targets, others = self._complete(pieces, design, how, session, some_empty)
        if known is None:
            weights = [part.get("sample_weight") for part in others]
            made = self._designed(rows, weights, design, how, session)
        else:
            made = [design.further(part) for part in rows]
        if listed:
            return made, targets, {n: [part[n] for part in others] for n in given}
        return made[0], None if targets is None else targets[0], others[0]

    def _name_of_target(self, y: Any) -> str | None:
        """That in the formula, or of a series."""
        target = formulas.target_of(self.formula) if isinstance(self.formula, str) else None
        first = y[0] if isinstance(y, list | tuple) and len(y) else y
        name = getattr(first, "name", None) if target is None else target
        return name if isinstance(name, str) and name else None

    def _check_formula(self, framed: bool, y: Any) -> None:
        if self.formula is None:
            return
        if not isinstance(self.formula, str):
            raise ValueError(f"formula must be text, received {type(self.formula).__name__}")
        if not framed:
            raise ValueError(
                f"formula {self.formula!r} names columns: pass a pandas or polars frame, or a list of one per site"
            )
        target = formulas.target_of(self.formula)
        if target is not None and y is not None:
            raise ValueError(
                f"y is given, and the formula has the target {target!r}: leave y out, or its target (formula="
                f"{'~' + self.formula.split('~', 1)[1]!r}), as where scikit-learn passes y"
            )
        if not self.fit_intercept:
            raise ValueError(
                "fit_intercept=False goes without a formula: write 0 + ... in the formula"
            )
        if not formulas.parsed(self.formula).variables:
            raise ValueError(
                f"formula {self.formula!r} has no column beside the intercept: name one"
            )

    def _pieces(
        self,
        parts: list[Any],
        listed: bool,
        y: Any,
        given: Mapping[str, Any],
        named: list[str],
        known: TableDesign | None,
    ) -> list[_Piece]:
        """Columns, targets and what else rows have, part by part."""
        text = self.formula
        target = None if text is None else formulas.target_of(text)
        made = []
        for position, part in enumerate(parts):
            names = None if text is None else formulas.parsed(text).variables
            if names is None and named:
                names = tuple(c for c in map(str, part.columns) if c not in named)
            if known is None:
                columns = columns_of(part, names, text is not None)
            else:
                columns = known.columns_in(part)
            if text is not None:
                levels = formulas.parsed(text).as_levels
                columns = {n: categorical(c) if n in levels else c for n, c in columns.items()}
            n_rows = len(part)
            own = y[position] if listed and isinstance(y, list | tuple) else y
            if target is not None:
                own = _target(str(text), part) if n_rows else np.empty(0)
            elif own is not None:
                own = np.asarray(own)
            others = {}
            for name, value in given.items():
                whole = listed and isinstance(value, list | tuple)
                each = value[position] if whole else value
                others[name] = named_column(part, each, name) if isinstance(each, str) else each
            for name, values in (("y", own), *others.items()):
                if values is not None:
                    refuse_scalar(name, values)
                if values is not None and len(np.asarray(values)) != n_rows:
                    raise ValueError(
                        f"{name} must have one entry for each of {n_rows} rows, received {len(np.asarray(values))}"
                    )
            ready = {name: np.asarray(value) for name, value in others.items()}
            made.append(_Piece(columns, own, ready))
        return made

    def _agreed_design(self, pieces: list[_Piece], how: str, session: Session) -> TableDesign:
        """Columns and levels of all sites; of rows that are left out nothing is sent."""
        sent = []
        both = frozenset() if self.formula is None else formulas.parsed(self.formula).as_both
        for piece in pieces:
            for name in sorted(both):
                if piece.columns[name].exact is not None:
                    raise ValueError(
                        f"column {name!r} is used as categories and as numbers, and has whole numbers from 2^53 on, which floating "
                        "point rounds: use it as C() only, or subtract a constant"
                    )
            words = [
                n for n, c in piece.columns.items() if c.kind not in (NUMBER, EMPTY) or n in both
            ]
            names = words if how == "impute" else list(piece.columns)
            gaps = _any([piece.columns[n].missing for n in names], piece.n_rows)
            left_out = (gaps | piece.lacks_target) & (how != "raise")
            kept = np.flatnonzero(~left_out)
            own = {n: c.taking(kept) for n, c in piece.columns.items()}
            sent.append(
                own | {formulas.levels_key(n): categorical(own[n]) for n in own if n in both}
            )
        levels = agreed_levels(session, sent)
        return TableDesign(tuple(pieces[0].columns), levels, self.formula)

    def _complete(
        self,
        pieces: list[_Piece],
        design: TableDesign,
        how: str,
        session: Session,
        some_empty: bool,
    ) -> tuple[list[dict[str, Column]], list[Any] | None, list[dict[str, Any]]]:
        """Rows that take part, with a count of the others; with ``some_empty`` a part may have none."""
        rows, targets, others, dropped = [], [], [], 0
        for position, piece in enumerate(pieces):
            where = f"shard {position}: " if len(pieces) > 1 else ""
            needed = design.with_levels if how == "impute" else list(design.columns)
            gaps = _any([piece.columns[n].missing for n in needed], piece.n_rows)
            if how == "raise":
                _refuse(gaps, piece.columns, type(self).__name__, where)
                kept = np.arange(piece.n_rows)
            else:
                kept = np.flatnonzero(~(gaps | piece.lacks_target))
            if not len(kept) and not some_empty:
                if piece.n_rows and piece.lacks_target.all():
                    raise ValueError(
                        f"{where}no row has a target: {self.formula or 'y'} has no finite value in any row"
                    )
                raise ValueError(
                    f"{where}no row is complete in the columns {needed[:10]}: leave the site out, or columns"
                )
            dropped += piece.n_rows - len(kept)
            taken = {n: c.taking(kept) for n, c in piece.columns.items()}
            rows.append({n: design._typed(n, c, where) for n, c in taken.items()})
            targets.append(None if piece.target is None else _tidy(piece.target[kept]))
            others.append({n: value[kept] for n, value in piece.others.items()})
        if how != "raise":
            gaps_here = [
                _any([c.missing for c in part.values()], 0).sum() if part else 0 for part in rows
            ]
            share = dropped / len(rows)  # every part adds its share of this process's count
            total = summed(session, [np.array([share, float(n)]) for n in gaps_here])
            self.n_dropped_, self.n_imputed_ = (int(n) for n in np.rint(total))
        return rows, None if targets[0] is None else targets, others

    def _designed(
        self,
        rows: list[dict[str, Column]],
        weights: list[Any],
        design: TableDesign,
        how: str,
        session: Session,
    ) -> list[FloatArray]:
        """Impute, learn what the formula learns, and keep the design."""
        numeric = design.numeric
        if how == "impute" and numeric:
            tables = [np.column_stack([part[n].values for n in numeric]) for part in rows]
            counts = [
                np.ones(len(table)) if weight is None else np.asarray(weight, dtype=np.float64)
                for table, weight in zip(tables, weights, strict=True)
            ]
            shards = list(
                zip(_one_per_node(tables, session), _one_per_node(counts, session), strict=True)
            )
            agreed = session.agree(lambda part: agree_on_gaussian(*part), shards)
            design = replace(design, gaussian=agreed[0])
        filled = [design.filled(part) for part in rows]
        if self.formula is not None:
            transforms = formulas.agreed_states(
                self.formula, session, filled, design.levels, weights
            )
            design = replace(design, transforms=transforms)
        elif numeric:
            tables = [np.column_stack([part[n].values for n in numeric]) for part in filled]
            warn_of_ids(tables, numeric, stacklevel=5)
        made = [design.matrix(part) for part in filled]
        terms = made[0][0]
        if not terms:
            raise ValueError("no column varies over the sites: a regression needs one at least")
        self._table = replace(design, terms=terms)
        return [table for _, table in made]

    def _name_sources(self) -> None:
        """The columns of the frames are the features, not those of the design."""
        if self._table is not None:
            self.n_features_in_ = len(self._table.columns)
            self.feature_names_in_ = np.array(self._table.columns, dtype=object)

    # -- new rows -----------------------------------------------------------------------------

    @property
    def _design_of_table(self) -> TableDesign | None:
        return getattr(self, "_table", None)

    @property
    def _wants_intercept(self) -> bool:
        """What the formula says, or the parameter."""
        table = self._design_of_table
        said = None if table is None else table.intercept
        return self.fit_intercept if said is None else said

    def _checked_rows(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        table = self._design_of_table
        if table is None:
            return super()._checked_rows(X)
        if ZEROS_STAND_IN.get():
            return np.zeros((len(X), len(table.terms)))
        who = type(self).__name__
        if is_shard_list(X):
            return np.concatenate(
                [table.rows(part, who, f"shard {i}: ") for i, part in enumerate(X)]
            )
        return table.rows(X, who)

    @property
    def _leaves_out_rows(self) -> bool:
        """Whether rows that lack something are left out, as in the fit."""
        how = self.missing or ("drop" if self.formula is not None else "raise")
        return how != "raise" and self._design_of_table is not None

    def _scorable(
        self, X: Any, y: Any, given: Mapping[str, Any]
    ) -> tuple[Any, Any, dict[str, Any]]:
        """The rows that can be scored: those with all covariates and a target, where others are left out."""
        table, listed = self._design_of_table, is_shard_list(X)
        parts = list(X) if listed else [X]
        weight = given.get("sample_weight")
        if isinstance(weight, str):
            each = [named_column(part, weight, "sample_weight") for part in parts]
            given = {**given, "sample_weight": each if listed else each[0]}
        if table is None or not self._leaves_out_rows:
            return X, y, dict(given)
        ends = np.cumsum([len(part) for part in parts])
        beside = {"y": y, **given}
        rows, values = [], []
        for position, part in enumerate(parts):
            at = slice(ends[position] - len(part), ends[position])
            own = {
                name: _of_part(value, position, at, ends) if listed else value
                for name, value in beside.items()
            }
            target = own["y"]
            if target is None and self.formula is not None and formulas.target_of(self.formula):
                target = _target(self.formula, part)
            piece = _Piece(table.read(part), None if target is None else np.asarray(target), {})
            kept = np.flatnonzero(~(table.incomplete(piece.columns) | piece.lacks_target))
            if not len(kept) and not listed:
                raise ValueError("no row is complete and has a target: there is nothing to score")
            rows.append(rows_at(part, kept))
            values.append(values_at(own, kept, len(part)))
        made = {
            name: value
            if value is None or isinstance(value, str)
            else [own[name] for own in values]
            for name, value in beside.items()
        }
        if not listed:
            made = values[0]
        return rows if listed else rows[0], made.pop("y"), made

    def _scored(self, X: Any, y: Any) -> Any:
        """Targets of rows to score, those of all sites in one array: y, or the formula's left-hand side."""
        parts = X if is_shard_list(X) else [X]
        if y is None:
            if self.formula is None or formulas.target_of(self.formula) is None:
                raise ValueError("score needs y, the targets of the rows")
            y = [_tidy(_target(self.formula, part)) for part in parts]
            return np.concatenate(y)
        return np.concatenate([np.asarray(part) for part in y]) if is_shard_list(X) else y

    def _table_facts(self) -> list[tuple[str, str]]:
        """Rows that lacked something, and reference levels, for the summary."""
        facts = []
        table = self._design_of_table
        dropped, imputed = getattr(self, "n_dropped_", 0), getattr(self, "n_imputed_", 0)
        if dropped:
            facts.append((f"{dropped}", f"{_rows_with_gaps(dropped)} dropped"))
        if imputed:
            how = (
                "imputed by the joint Gaussian: taken as observed, intervals lack their uncertainty"
            )
            facts.append((f"{imputed}", f"{_rows_with_gaps(imputed)} {how}"))
        looked = table is not None and (table.gaussian is not None or self.formula)
        if not (dropped or imputed) and (looked or (table is not None and self.missing == "drop")):
            facts.append(("no", "rows with missing cells"))
        if table is not None and table.references:
            facts.append(
                ("reference", " ".join(f"{n}={level}" for n, level in table.references.items()))
            )
        return facts


def _rows_with_gaps(count: int) -> str:
    return f"row{'s' if count > 1 else ''} with missing cells"


class _Piece:
    """One part of the data before rows are left out."""

    def __init__(
        self, columns: dict[str, Column], target: Any, others: dict[str, NDArray[Any]]
    ) -> None:
        self.columns, self.target, self.others = columns, target, others
        self.n_rows = len(next(iter(columns.values())).values)

    @property
    def lacks_target(self) -> NDArray[np.bool_]:
        """Rows without a target."""
        if self.target is None or not self.n_rows:
            return np.zeros(self.n_rows, dtype=bool)
        if self.target.dtype.kind == "f":
            return np.isnan(self.target).reshape(self.n_rows, -1).any(1)
        if self.target.dtype.kind != "O":
            return np.zeros(self.n_rows, dtype=bool)
        return np.array([is_missing(value) for value in self.target], dtype=bool)


def _target(text: str, part: Any) -> NDArray[Any]:
    """The formula's left-hand side, whole numbers as such."""
    names = formulas.target_variables(text)
    columns = columns_of(part, names, True)
    values = np.asarray(formulas.evaluated_target(text, columns))
    name = formulas.target_of(text)
    if name in columns and columns[name].kind == NUMBER and _holds_integers(part, name):
        return np.asarray(part[name])
    return values


def _of_part(value: Any, position: int, at: slice, ends: NDArray[Any]) -> Any:
    """One part's share of what is given for a list of parts: an entry of a list, or some of all rows' values."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return value
    if len(value) == len(ends) and all(np.ndim(each) for each in value):
        return value[position]
    return value[at] if len(value) == ends[-1] else value


def _holds_integers(part: Any, name: str) -> bool:
    return np.asarray(part[name]).dtype.kind in "iu"


def _tidy(target: NDArray[Any]) -> NDArray[Any]:
    """Words, truth values and numbers in an array of their own type."""
    return np.array(target.tolist()) if target.dtype.kind == "O" else target


def named_column(part: Any, name: str, what: str) -> FloatArray:
    """What rows have beside the features, from the column of that name."""
    if not is_frame(part):
        raise ValueError(f"{what}={name!r} names a column: pass a frame, or an array as {what}")
    column = columns_of(part, [name])[name]
    if column.kind == TRUTH:
        return np.array([float(value) for value in column.values])
    if column.kind != NUMBER:
        raise ValueError(f"{what}={name!r}: the column holds {column.kind}, numbers are needed")
    return np.asarray(column.values)


def refuse_scalar(name: str, values: Any) -> None:
    """What rows have is one entry each."""
    if np.ndim(np.asarray(values)) == 0:
        raise ValueError(
            f"{name} must be an array of one entry for each row, or the name of a column of a frame, received {values!r}"
        )


def _any(gaps: Sequence[NDArray[np.bool_]], rows: int) -> NDArray[np.bool_]:
    return np.any(gaps, axis=0) if len(gaps) else np.zeros(rows, dtype=bool)


def _refuse(gaps: NDArray[np.bool_], columns: Mapping[str, Column], who: str, where: str) -> None:
    if gaps.any():
        row = int(np.flatnonzero(gaps)[0])
        name = next(n for n, c in columns.items() if c.missing[row])
        raise ValueError(
            f"{where}X contains NaN, {row_words(row)} has no value in column {name!r}: a {who} needs complete rows, drop them "
            "(missing='drop') or impute them (missing='impute')"
        )


def _one_per_node(tables: list[FloatArray], session: Session) -> list[FloatArray]:
    """As the fit will have them."""
    if session.pooled:
        return [np.concatenate(tables)]
    if len(tables) > 1 or not session.whole:
        return tables
    return list(np.array_split(tables[0], session.network.n_nodes))
