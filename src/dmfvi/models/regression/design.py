"""The design of a table: from columns of numbers and words to the columns of a regression, the same at every site and for new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmfvi.incomplete_rows import IncompleteRows
from dmfvi.linalg import FloatArray, row_words
from dmfvi.models.regression import formula as formulas
from dmfvi.models.regression.columns import (
    NUMBER,
    Column,
    Level,
    categorical,
    columns_of,
    is_frame,
    with_known_levels,
)
from dmfvi.models.regression.imputation import JointGaussian
from dmfvi.tags import stored_as


@stored_as("table-design")
@dataclass(frozen=True)
class TableDesign:
    """What the sites have agreed on: columns, levels, terms, and what the formula has learned.

    Without a formula a column of words becomes one indicator for each level but the first, which is the reference.
    """

    columns: tuple[str, ...]
    levels: Mapping[str, tuple[Level, ...]]
    formula: str | None = None
    transforms: Mapping[str, Any] = field(default_factory=dict)
    gaussian: JointGaussian | None = None
    terms: tuple[str, ...] = ()

    @property
    def intercept(self) -> bool | None:
        """Whether the formula has one; None where there is no formula."""
        return None if self.formula is None else formulas.parsed(self.formula).intercept

    @property
    def numeric(self) -> list[str]:
        """Columns of numbers."""
        return [name for name in self.columns if name not in self.levels]

    @property
    def references(self) -> dict[str, Level]:
        """The level that the others of a column are compared with, where there is no formula to say it."""
        if self.formula is not None:
            return {}
        return {name: levels[0] for name, levels in self.levels.items() if levels}

    def columns_in(self, data: Any) -> dict[str, Column]:
        """The columns of new rows as they are."""
        if not is_frame(data):
            names = self.columns
            width = np.shape(data)[1] if np.ndim(data) == 2 else 0
            if self.levels or self.formula is not None or width != len(names):
                raise ValueError(
                    f"the model was fitted to a frame with columns {list(names)[:10]}: pass a pandas or polars frame, received "
                    f"{type(data).__name__} of shape {np.shape(data)}"
                )
            return dict(zip(names, columns_of(data).values(), strict=True))
        words = self.columns if self.formula is not None else self.levels
        return columns_of(data, self.columns, words)

    def read(self, data: Any, where: str = "") -> dict[str, Column]:
        """The columns of new rows, levels checked."""
        made = self.columns_in(data)
        return {name: self._typed(name, made[name], where) for name in self.columns}

    @property
    def with_levels(self) -> list[str]:
        """Columns that are not imputed: those of words, and numbers that are also categories."""
        keys = {formulas.levels_key(name): name for name in self.columns}
        return list(dict.fromkeys(keys.get(name, name) for name in self.levels))

    def _typed(self, name: str, column: Column, where: str) -> Column:
        if name not in self.levels:
            known = self.levels.get(formulas.levels_key(name))
            if known is not None:
                with_known_levels(name, categorical(column), known, where)
            if column.kind != NUMBER and not column.missing.all():
                raise ValueError(f"{where}column {name!r} holds {column.kind}, numbers were fitted")
            return column if column.kind == NUMBER else Column(column.values.astype(float), NUMBER)
        made = categorical(column, all(isinstance(level, str) for level in self.levels[name]))
        return with_known_levels(name, made, self.levels[name], where)

    def filled(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        """Missing numbers by the joint Gaussian, where there is one."""
        made = dict(columns)
        numeric = self.numeric
        if self.gaussian is not None and numeric:
            table = self.gaussian.filled(np.column_stack([made[n].values for n in numeric]))
            made |= {name: Column(table[:, j], NUMBER) for j, name in enumerate(numeric)}
        return made

    def matrix(self, columns: Mapping[str, Column]) -> tuple[tuple[str, ...], FloatArray]:
        """Terms and design of complete rows."""
        if self.formula is not None:
            terms, table = formulas.terms_and_matrix(
                self.formula, columns, self.levels, self.transforms
            )
        else:
            terms, table = self._indicators(columns)
        bad = np.argwhere(~np.isfinite(table))
        if len(bad):
            row, position = (int(v) for v in bad[0])
            raise ValueError(
                f"term {terms[position]!r} is not finite in {row_words(row)}, perhaps log of zero, division by zero or an infinite value: "
                "mend the row or drop it"
            )
        return tuple(terms), table

    def further(self, columns: Mapping[str, Column]) -> FloatArray:
        """The design of rows of a further batch, of which there may be none."""
        if not len(next(iter(columns.values())).values):
            return np.zeros((0, len(self.terms)))
        return self.matrix(columns)[1]

    def _indicators(self, columns: Mapping[str, Column]) -> tuple[list[str], FloatArray]:
        terms: list[str] = []
        made: list[FloatArray] = []
        for name in self.columns:
            values = columns[name].values
            if name not in self.levels:
                terms.append(name)
                made.append(np.asarray(values, dtype=np.float64))
                continue
            for level in self.levels[name][1:]:
                terms.append(f"{name}[T.{level}]")
                made.append(np.array([value == level for value in values], dtype=np.float64))
        rows = len(next(iter(columns.values())).values)
        return terms, np.column_stack(made) if made else np.zeros((rows, 0))

    def incomplete(self, columns: Mapping[str, Column]) -> np.ndarray:
        """Rows without a value in some column; where numbers are imputed, in some column of words."""
        names = self.with_levels if self.gaussian is not None else list(self.columns)
        gaps: Sequence[Any] = [columns[name].missing for name in names]
        rows = len(next(iter(columns.values())).values)
        return np.any(gaps, axis=0) if gaps else np.zeros(rows, dtype=bool)

    def rows(self, data: Any, who: str, where: str = "") -> FloatArray:
        """The design of new rows."""
        columns = self.read(data, where)
        gaps = self.incomplete(columns)
        if gaps.any():
            row = int(np.flatnonzero(gaps)[0])
            lacking = [name for name in self.columns if columns[name].missing[row]]
            raise IncompleteRows(
                f"{where}X contains NaN, {row_words(row)} has no value in column {lacking[0]!r}: a {who} predicts complete rows, "
                "drop the row, or fit with missing='impute'",
                ~gaps,
            )
        return self.matrix(self.filled(columns))[1]
