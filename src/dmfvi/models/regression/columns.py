"""Columns of a data frame: numbers, or words with levels that all sites have in common.

Sites send each other the names of the levels that they have seen, never rows; the union is the same at all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray

NUMBER, TEXT, TRUTH, EMPTY = "numbers", "text", "true or false", "nothing"
#: what sites call a column of numbers that may also be words
DIGITS = "digits in quotes"
#: levels from which on a column of which more than this part of the rows have a level of their own is one of ids
FEWEST_IDS, OWN_LEVELS = 10, 0.5
#: from here on floating point does not have all whole numbers
LARGEST_EXACT = 2.0**53
#: levels in the name of a term
IN_BRACKETS = re.compile(r"\[[^\]]*\]")
#: what text files make of truth values
TRUTH_WORDS = {"true": True, "false": False}
#: a level of a column
Level = str | int | float | bool


class Column(NamedTuple):
    """Values (NaN or None where missing), what they are, and the levels that a categorical type declares, in order if it has one.

    Numbers that were digits in quotes are also kept as the words that they may be, whole numbers that floating point does not have as they are.
    """

    values: NDArray[Any]
    kind: str
    declared: tuple[Level, ...] | None = None
    ordered: bool = False
    words: NDArray[Any] | None = None
    exact: NDArray[Any] | None = None

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where there is no value."""
        if self.kind in (NUMBER, EMPTY) and self.values.dtype.kind == "f":
            return np.isnan(self.values)
        return np.array([value is None for value in self.values], dtype=bool)

    def taking(self, rows: NDArray[Any]) -> Column:
        """Some rows."""
        words = None if self.words is None else self.words[rows]
        exact = None if self.exact is None else self.exact[rows]
        return self._replace(values=self.values[rows], words=words, exact=exact)

    def levels(self) -> list[Level]:
        """Declared levels, or those seen, sorted."""
        if self.declared is not None:
            return list(self.declared)
        seen = {plain_level(value) for value in self.values[~self.missing].tolist()}
        return sorted(seen, key=in_order)


def in_order(level: Level) -> Any:
    """Key that sorts levels of one type."""
    return level


def plain_level(value: Any) -> Level:
    """A level as JSON has it: whole numbers as whole numbers."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return int(number) if number.is_integer() else number
    return str(value)


def is_frame(data: Any) -> bool:
    """Whether it is a pandas or polars frame."""
    return hasattr(data, "columns") and (hasattr(data, "iloc") or hasattr(data, "get_columns"))


def columns_of(
    data: Any, names: Sequence[str] | None = None, words: Collection[str] | bool = False
) -> dict[str, Column]:
    """The columns of a frame or an array, all or those named; in columns of ``words`` (True: all) digits in quotes are words."""
    if not is_frame(data):
        table = np.asarray(data, dtype=np.float64)
        return {f"x{j}": Column(table[:, j], NUMBER) for j in range(table.shape[1])}
    found = [str(name) for name in data.columns]
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(f"columns {twice[:5]} occur more than once, rename them")
    lacking = [name for name in names or () if name not in found]
    if lacking:
        raise ValueError(f"the frame has no column {lacking[:5]}, its columns are {found[:20]}")
    wanted = found if names is None else list(names)
    positions = {name: found.index(name) for name in wanted}
    series = {
        name: data.iloc[:, position] if hasattr(data, "iloc") else data.get_columns()[position]
        for name, position in positions.items()
    }
    quoted = set(series) if words is True else set(words or ())
    return {name: _column(name, each, name in quoted) for name, each in series.items()}


def _column(name: str, series: Any, words: bool) -> Column:
    """One column of pandas or polars."""
    dtype = series.dtype
    if _is_plain_number(dtype):
        given = np.asarray(series.to_numpy())
        return _of_numbers(
            given.astype(np.float64), given.tolist() if given.dtype.kind in "iu" else []
        )
    categories = getattr(dtype, "categories", None)  # pandas' category, polars' Enum
    listed = series.to_list() if hasattr(series, "to_list") else list(series)
    values = np.empty(len(listed), dtype=object)
    values[:] = [None if is_missing(value) else value for value in listed]
    declared = None
    if categories is not None and str(dtype).lower().startswith(("category", "enum")):
        declared = tuple(plain_level(value) for value in list(categories))
    present = [value for value in values if value is not None]
    strange = [v for v in present if not isinstance(v, bool | np.bool_ | Real | str)]
    if strange:
        raise ValueError(
            f"column {name!r} holds {type(strange[0]).__name__} values as {strange[0]}: turn them into numbers or words, "
            "or leave the column out"
        )
    if declared is not None:
        ordered = bool(getattr(dtype, "ordered", str(dtype).lower().startswith("enum")))
        return Column(_with_levels(values), TEXT, declared, ordered)
    if not present:
        return Column(np.full(len(values), np.nan), EMPTY)
    if all(isinstance(value, bool | np.bool_) for value in present):
        return Column(_with_levels(values), TRUTH, (False, True))
    found = _parsed(values) if not words or all(isinstance(v, Real) for v in present) else None
    if found is None:
        return Column(_with_levels(values), TEXT)
    quoted = all(isinstance(value, str) for value in present)
    made = _of_numbers(
        found, values.tolist() if all(isinstance(v, Integral) for v in present) else []
    )
    return made._replace(words=_with_levels(values) if quoted else None)


def _of_numbers(numbers: FloatArray, whole: Sequence[Any]) -> Column:
    """A column of numbers; ``whole`` are its whole numbers as given, None where missing."""
    kind = EMPTY if len(numbers) and np.isnan(numbers).all() else NUMBER
    exact = None
    if len(whole) and np.nanmax(np.abs(numbers), initial=0.0) >= LARGEST_EXACT:
        exact = _with_levels(np.array([*whole, None], dtype=object)[:-1])
    return Column(numbers, kind, exact=exact)


def _is_plain_number(dtype: Any) -> bool:
    """Whole numbers and floating point, of NumPy in pandas or of polars."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "iuf"
    return hasattr(dtype, "is_float") and (dtype.is_float() or dtype.is_integer())


def is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _numbers(values: NDArray[Any]) -> FloatArray:
    return np.array([np.nan if v is None else float(v) for v in values], dtype=np.float64)


def _parsed(values: NDArray[Any]) -> FloatArray | None:
    """Numbers in quotes as numbers."""
    try:
        return _numbers(values)
    except (TypeError, ValueError):
        return None


def _with_levels(values: NDArray[Any]) -> NDArray[Any]:
    made = np.empty(len(values), dtype=object)
    made[:] = [None if value is None else plain_level(value) for value in values]
    return made


def categorical(column: Column, words: bool = False) -> Column:
    """A column of numbers as one of levels; with ``words`` the levels are words like "1"."""
    if column.kind != NUMBER:
        return column
    if words and column.words is not None:
        return Column(column.words, TEXT)
    values = np.empty(len(column.values), dtype=object)
    if column.exact is not None:
        levels = column.exact.tolist()
    else:
        levels = [None if np.isnan(v) else plain_level(v) for v in column.values]
    values[:] = [str(v) if words and v is not None else v for v in levels]
    return Column(values, TEXT)


def terms_named(wanted: Sequence[str], terms: Sequence[str], what: str) -> list[str]:
    """The terms that are named, each by itself, as part of a formula or, all levels of it, as a column."""
    found: list[str] = []
    for name in wanted:
        quoted = f"Q({name!r})"
        starts = f"{name}[", f"C({name})[", f"C({name},", f"{quoted}[", f"C({quoted})["
        own = [term for term in terms if term in (name, quoted)] or [
            term
            for term in terms
            if ":" not in IN_BRACKETS.sub("", term) and term.startswith(starts)
        ]
        if not own:
            raise ValueError(
                f"{what} names {name!r}, which is none of the terms {list(terms)[:20]}"
            )
        found += [term for term in own if term not in found]
    return found


# -- what sites agree on --------------------------------------------------------------------


def gathered(session: Session, sent: Sequence[Any]) -> list[Any]:
    """What every site sends, as JSON: one entry for each of this process, those of all sites back."""
    vectors = [np.frombuffer(json.dumps(each).encode(), dtype=np.uint8) for each in sent]
    received = session.collective.gather([vector.astype(np.float64) for vector in vectors])
    return [json.loads(np.rint(vector).astype(np.uint8).tobytes().decode()) for vector in received]


def summed(session: Session, sent: Sequence[FloatArray]) -> FloatArray:
    """The sum over all sites, of one vector for each of this process."""
    if session.whole:
        return np.asarray(np.sum(sent, axis=0))
    return np.asarray(session.collective.sum(list(sent))[0])


def agreed_levels(
    session: Session, parts: Sequence[Mapping[str, Column]]
) -> dict[str, tuple[Level, ...]]:
    """Levels of the columns that are no numbers, the same at all sites."""
    for part in parts:
        _refuse_ids(part)
    sites = gathered(
        session, [{n: _description(column) for n, column in part.items()} for part in parts]
    )
    names = list(sites[0])
    for position, site in enumerate(sites):
        if list(site) != names:
            odd = sorted(set(site) ^ set(names))
            raise ValueError(
                f"site {position} has columns {list(site)[:10]}, site 0 has {names[:10]}"
                + (f": {odd[:5]} are not at both" if odd else ": bring them into one order")
            )
    # digits in quotes are words where another site has words; only then they are sent
    kinds = {name: {site[name][0] for site in sites} - {EMPTY} for name in names}
    mixed = [name for name in names if kinds[name] == {DIGITS, TEXT}]
    if mixed:
        words = [{n: categorical(part[n], words=True) for n in mixed} for part in parts]
        for part in words:
            _refuse_ids(part)
        sent = [{n: _description(column) for n, column in part.items()} for part in words]
        for site, more in zip(sites, gathered(session, sent), strict=True):
            site.update(more)
    return {
        name: levels
        for name in names
        if (levels := _merged(name, [site[name] for site in sites])) is not None
    }


def _refuse_ids(part: Mapping[str, Column]) -> None:
    """Words that differ from row to row name the rows: they are not sent to anybody."""
    for name, column in part.items():
        if column.kind in (NUMBER, EMPTY):
            continue
        seen = column.values[~column.missing].tolist()
        levels = len(set(seen))
        if levels >= FEWEST_IDS and levels > OWN_LEVELS * len(seen):
            raise ValueError(
                f"column {name!r} has {levels} levels in {len(seen)} rows, as an id has: leave it out"
            )


def _description(column: Column) -> list[Any]:
    """Kind, levels, and whether these are declared and have an order."""
    if column.kind in (NUMBER, EMPTY):
        return [DIGITS if column.words is not None else column.kind, [], False, False]
    return [column.kind, column.levels(), column.declared is not None, column.ordered]


def _merged(name: str, described: list[list[Any]]) -> tuple[Level, ...] | None:
    """Levels of one column over all sites; None for numbers."""
    kinds = {kind for kind, *_ in described if kind != EMPTY}
    if not kinds:
        raise ValueError(f"column {name!r} has no value at any site: leave it out")
    if kinds <= {NUMBER, DIGITS}:
        return None
    if len(kinds) > 1 and kinds & {NUMBER, DIGITS}:
        at = {kind: site for site, (kind, *_) in reversed(list(enumerate(described)))}
        words = " and ".join(f"{kind} at site {at[kind]}" for kind in sorted(kinds))
        raise ValueError(f"column {name!r} holds {words}: give it one type at all sites")
    seen = {site: levels for site, (kind, levels, *_) in enumerate(described) if kind != EMPTY}
    union = {level for levels in seen.values() for level in levels}
    truths = {_truth_of(level) for level in union}
    if kinds <= {TRUTH, TEXT} and None not in truths and len(union) > len(truths):
        return (False, True)  # words and values, or the words of several programs
    _refuse_two_types(name, union)
    ordered = {site: seen[site] for site in seen if described[site][3]}
    if ordered:
        return common_order(name, ordered, union)
    declared = [levels for site, levels in seen.items() if described[site][2]]
    if declared and all(levels == declared[0] for levels in declared):
        rest = union - set(declared[0])
        return (*declared[0], *_sorted(rest))
    return tuple(_sorted(union))


def common_order(
    name: str, orders: Mapping[int, list[Level]], union: set[Level]
) -> tuple[Level, ...]:
    """The one order that agrees with those of all sites; refused where there is none, or more than one."""
    before = {level: set[Level]() for levels in orders.values() for level in levels}
    for levels in orders.values():
        for low, high in pairwise(levels):
            before[high].add(low)
    made: list[Level] = []
    while len(made) < len(before):
        first = [level for level in before if level not in made and before[level] <= set(made)]
        if len(first) != 1:
            one, other = _unlike(orders)
            raise ValueError(
                f"column {name!r} has ordered categories {orders[one]} at site {one} and {orders[other]} at site {other}, which are not parts of one "
                "order: declare the same categories at all sites"
            )
        made += first
    if rest := union - set(made):
        raise ValueError(
            f"column {name!r} has ordered categories {made}, and {sorted(map(str, rest))[:5]} at a site that declares no order: declare the same "
            "categories at all sites"
        )
    return tuple(made)


def _unlike(orders: Mapping[int, list[Level]]) -> tuple[int, int]:
    """Two sites with different orders, those that contradict each other first."""
    pairs = [(a, b) for a in orders for b in orders if a < b and orders[a] != orders[b]]

    def agree(pair: tuple[int, int]) -> bool:
        one, other = (orders[site] for site in pair)
        return [v for v in one if v in other] == [v for v in other if v in one]

    return min(pairs, key=agree)


def _truth_of(level: Level) -> bool | None:
    """The truth value that a level is, or names."""
    return level if isinstance(level, bool) else TRUTH_WORDS.get(str(level).lower())


def _refuse_two_types(name: str, levels: set[Level]) -> None:
    words = [isinstance(level, str) for level in levels]
    if any(words) and not all(words):
        raise ValueError(
            f"column {name!r} has words and numbers (or truth values) as levels, {sorted(map(repr, levels))[:6]}: use one of them at all sites"
        )


def _sorted(levels: set[Level]) -> list[Level]:
    if any(not isinstance(level, bool) for level in levels):  # 1 and True are one level
        levels = {int(level) if isinstance(level, bool) else level for level in levels}
    return sorted(levels, key=in_order)


def with_known_levels(name: str, column: Column, known: Sequence[Level], where: str = "") -> Column:
    """The column with its values as ``known`` has them, where 1 is True; levels that no site had at the fit are refused.

    Truth values may be words in one place, as in text files, and values or other words (TRUE, True) in the other.
    """
    same, missing = {level: level for level in known}, column.missing
    present = set(column.values[~missing].tolist())
    by_truth = {truth: level for level in known if (truth := _truth_of(level)) is not None}
    for level in present - set(known):
        truth = _truth_of(level)
        if truth in by_truth:
            same[level] = by_truth[truth]
    strange = present - set(same)
    if strange:
        shown = sorted(strange, key=str)[:5]
        raise ValueError(
            f"{where}column {name!r} has the unknown level{'s' if len(shown) > 1 else ''} "
            f"{', '.join(map(repr, shown))}: known are {list(known)[:20]}"
        )
    values = np.empty(len(column.values), dtype=object)
    pairs = zip(column.values.tolist(), missing.tolist(), strict=True)
    values[:] = [None if lacking else same[value] for value, lacking in pairs]
    return column._replace(values=values)
