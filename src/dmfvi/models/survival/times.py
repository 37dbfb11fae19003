"""Times and events: how users give them, and grids of times that the nodes agree on."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmfvi.linalg import FloatArray, plain
from dmfvi.models.regression.columns import columns_of, is_frame, is_missing
from dmfvi.validation import is_shard_list

#: powers of two between which times may lie, and parts of an octave that are told apart
OCTAVES, PARTS = 64, 256
#: the times that they can tell apart
SHORTEST, LONGEST = 2.0**-OCTAVES, 2.0 ** (OCTAVES - 1)
#: part of a sum of weights that its rounding may be
SUM_ROUNDING = 1e-10
#: cells are relative to this many mean times: a number to which no ratio of times is equal, so that rounding moves no time to another cell
UNIT_OF_MEAN = math.sqrt(2.0)
#: binary digits of that unit that count: nodes add in other orders than one machine
UNIT_DIGITS = 36
TRUTHS = {"true": 1.0, "false": 0.0}


def pair_of(time: Any, event: Any, where: str = "") -> FloatArray:
    """(n, 2): time, and 1 for an event or 0 for a censored time.

    ``time`` alone may be both: a structured array with a field of truth values and one of numbers (scikit-survival), or two columns (time,
    event); one column without ``event`` are all events.
    """
    given = np.asarray(time)
    if event is None and given.dtype.names is not None:
        names = given.dtype.names
        flags = [n for n in names if given.dtype[n].kind == "b"]
        rest = [n for n in names if n not in flags]
        if len(flags) != 1 or len(rest) != 1:
            raise ValueError(
                f"{where}y is a structured array with fields {list(names)}: it needs one of truth values (event) and one of "
                "numbers (time)"
            )
        given, event = given[rest[0]], given[flags[0]]
    elif event is None and given.ndim == 2 and given.shape[1] == 2:
        given, event = given[:, 0], given[:, 1]
    times = numbers_of(given, f"{where}time")
    if times.ndim == 2 and times.shape[1] == 1:
        times = times[:, 0]
    if times.ndim != 1:
        raise ValueError(
            f"{where}y must be times, or two columns (time, event), received shape {times.shape}"
        )
    flags_given = np.ones(len(times)) if event is None else flags_of(event, f"{where}event")
    if flags_given.shape != times.shape:
        raise ValueError(
            f"{where}event must have one entry for each of {len(times)} times, received shape {flags_given.shape}"
        )
    return np.column_stack([times, flags_given])


def numbers_of(given: Any, name: str) -> FloatArray:
    """Times as numbers; words, dates and lengths of time are refused."""
    values = np.asarray(given)
    if values.dtype.kind in "mM":
        raise ValueError(
            f"{name} holds {values.dtype.name}: times are numbers, such as days since the start"
        )
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        wrong = next(v for v in values.ravel().tolist() if not _is_number(v))
        raise ValueError(
            f"{name} holds {plain(wrong)!r}: times are numbers, such as days since the start"
        ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def flags_of(given: Any, name: str) -> FloatArray:
    """Numbers of events: truth values, also as the words True and False, count as 1 and 0; NaN where one is missing."""
    values = np.asarray(given)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    made = np.full(values.shape, np.nan)
    for position, value in np.ndenumerate(values):
        if is_missing(value) or value == "":
            continue
        word = str(value).strip().lower()
        try:
            made[position] = TRUTHS[word] if word in TRUTHS else float(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} holds {plain(value)!r}: events are 1 or True where it happened, and 0 or False where the time is censored"
            ) from None
    return made


def check_pairs(pairs: NDArray[Any], positive: bool) -> None:
    """Refuse times and events that cannot be."""
    times, events = pairs[:, 0], pairs[:, 1]
    if not np.isfinite(pairs).all():
        raise ValueError("y contains NaN or infinity: every row needs a time and an event")
    if (times < 0).any() or (positive and (times <= 0).any()):
        word = "positive" if positive else "zero or more"
        raise ValueError(f"times must be {word}, received {times.min():g}")
    wide = times[(times > 0) & ((times < SHORTEST) | (times > LONGEST))]
    if len(wide):
        raise ValueError(
            f"times other than zero must lie between {SHORTEST:.2g} and {LONGEST:.2g}, received {wide[0]:g}: give them another unit"
        )
    strange = np.setdiff1d(events, [0.0, 1.0])
    if len(strange):
        raise ValueError(
            f"event must be 1 (it happened) or 0 (censored), received {plain(strange[0])!r}: pass status == 2, for example"
        )


def pairs_of(X: Any, time: Any, event: Any, method: str = "fit") -> tuple[Any, list[str]]:
    """Times and events beside X, a list where X is one, and the columns of X that they were taken from."""
    if time is None:
        raise ValueError(
            f"{method} requires y to be passed, but the target y is None: pass times and events, {method}(X, time, event), "
            "or their columns in a frame X, such as time='days', event='died'"
        )
    listed = is_shard_list(X)
    names = [name for name in (time, event) if isinstance(name, str)]
    made = []
    for position, part in enumerate(X if listed else [X]):
        where = f"shard {position}: " if listed else ""
        if names and not is_frame(part):
            raise ValueError(f"{where}{names[0]!r} names a column: pass a frame")
        own = [
            _part(value, part, position, listed, is_event)
            for value, is_event in ((time, False), (event, True))
        ]
        pair = pair_of(own[0], own[1], where)
        if len(pair) != len(part):
            raise ValueError(
                f"{where}X has {len(part)} rows and y {len(pair)}: inconsistent numbers of samples, pass one time per row"
            )
        made.append(pair)
    return (made if listed else made[0]), names


def _part(value: Any, frame: Any, position: int, listed: bool, is_event: bool) -> Any:
    if isinstance(value, str):
        column = columns_of(frame, [value])[value]
        if is_event:
            return flags_of(column.values, f"column {value!r}")
        if column.values.dtype.kind == "f":
            return column.values
        words = [v for v in column.values if v is not None]
        raise ValueError(f"column {value!r} holds {words[0]!r}: times are numbers")
    if value is None:
        return None
    if listed:
        if not isinstance(value, list | tuple):
            raise ValueError(
                "X is a list of shards: pass times and events as lists too, one array per shard"
            )
        return value[position]
    return value


# -- agreed grids ---------------------------------------------------------------------------


def cells_of(times: FloatArray) -> NDArray[np.int64]:
    """The cell of each time: octaves in ``PARTS`` parts, fine enough for quantiles and coarse enough to name nobody's time.

    The first cell is time zero alone.
    """
    safe = np.maximum(times, 2.0**-OCTAVES)
    mantissa, exponent = np.frexp(safe)  # safe = mantissa 2^exponent, mantissa in [1/2, 1)
    octave = np.clip(exponent + OCTAVES, 0, 2 * OCTAVES)
    cells = octave * PARTS + np.floor((2.0 * mantissa - 1.0) * PARTS)
    return np.where(times > 0, cells, 0).astype(np.int64)


def upper_edges(cells: NDArray[np.int64]) -> FloatArray:
    """The right end of each cell."""
    octave, part = np.divmod(np.asarray(cells), PARTS)
    return np.ldexp(0.5 + 0.5 * (part + 1.0) / PARTS, octave - OCTAVES)


def lower_edges(cells: NDArray[np.int64]) -> FloatArray:
    """The left end of each cell."""
    octave, part = np.divmod(np.asarray(cells), PARTS)
    edges = np.ldexp(0.5 + 0.5 * part / PARTS, octave - OCTAVES)
    return np.where(np.asarray(cells) == 0, 0.0, edges)


def rounded_to(value: float, digits: int) -> float:
    """To so many binary digits."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(mantissa, digits)), exponent - digits)


def agree_on_quantiles(
    pairs: FloatArray, weight: FloatArray, n_intervals: int
) -> Generator[FloatArray, FloatArray, FloatArray]:
    """Times that cut all nodes' events into intervals of about as much weight each: three sums.

    The first is the mean time, in whose octaves times are counted; the second finds the octaves that have events, the third weighs them in parts
    of these octaves.
    """
    sums = yield np.array([weight.sum(), weight @ pairs[:, 0]])
    unit = rounded_to(UNIT_OF_MEAN * float(sums[1]) / float(sums[0]), UNIT_DIGITS)
    counted = (pairs[:, 1] > 0) & (weight > 0)
    cells, own_weight = cells_of(pairs[counted, 0] / unit), weight[counted]
    octaves = np.bincount(cells // PARTS, own_weight, minlength=2 * OCTAVES + 1)
    total = yield octaves.astype(np.float64)
    if not total.sum() > 0:
        raise ValueError("no event at any node: nothing is known of the hazard")
    # nodes add in other orders than one machine: what is less than rounding is nothing, and a quantile may be missed by it
    rounding = SUM_ROUNDING * total.sum()
    used = np.flatnonzero(total > rounding)
    here = np.isin(cells // PARTS, used)
    own = np.zeros((len(used), PARTS))
    position = np.searchsorted(used, cells[here] // PARTS)
    np.add.at(own, (position, cells[here] % PARTS), own_weight[here])
    counts = yield own.ravel()
    edges = unit * upper_edges((used[:, None] * PARTS + np.arange(PARTS)).ravel())
    below = np.cumsum(counts)
    wanted = np.arange(1, n_intervals) * below[-1] / n_intervals
    at = np.searchsorted(below, wanted - rounding)
    cuts = np.unique(edges[at])
    last = edges[np.flatnonzero(counts > rounding)[-1]]
    return np.asarray(cuts[cuts < last])


def checked_breakpoints(given: ArrayLike) -> FloatArray:
    """Cut points that a user gives."""
    cuts = increasing_times("breakpoints", given)
    if len(cuts) and cuts[0] <= 0:
        raise ValueError(f"breakpoints must be positive, received {cuts[0]:g}")
    return cuts


def checked_grid(given: ArrayLike) -> FloatArray:
    """A grid of times that a user gives; it may begin with zero."""
    grid = increasing_times("times", given)
    if not len(grid) or grid[0] < 0:
        first = f"{grid[0]:g}" if len(grid) else "none"
        raise ValueError(f"times must be one or more that are not negative, received {first}")
    return grid


def checked_times(given: ArrayLike) -> FloatArray:
    """Times to predict at (n,), in any order."""
    times = numbers_of(given, "times")
    if times.ndim != 1:
        raise ValueError(f"times must be a list of numbers, one axis, received shape {times.shape}")
    if np.isnan(times).any() or (times < 0).any():
        wrong = "NaN" if np.isnan(times).any() else f"{times.min():g}"
        raise ValueError(f"times must be numbers that are not negative, received {wrong}")
    return times


def increasing_times(name: str, given: ArrayLike) -> FloatArray:
    """Finite times, each later than the one before."""
    try:
        times = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be increasing times, received {plain(given)!r}") from None
    if times.ndim != 1 or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
        raise ValueError(f"{name} must be increasing times, received {plain(given)!r}")
    return times


def concordance(risk: FloatArray, pairs: FloatArray) -> float:
    """Harrell's C: of pairs whose order is known, the part in which the higher risk has the event first; ties count half."""
    from dmfvi.models.survival._kernels_numba import concordant_pairs

    if not len(risk):
        return 0.5
    time, event = pairs[:, 0], pairs[:, 1] > 0
    order = np.lexsort((event, -time))
    rank = np.unique(risk, return_inverse=True)[1]
    good, known = concordant_pairs(rank[order], event[order], time[order])
    return float(good / known) if known else 0.5
