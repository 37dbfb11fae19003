"""Input checks shared by the estimators: every error says what was received and what to do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from dmfvi.linalg import FloatArray, plain, row_words
from dmfvi.network import Network


def is_shard_list(data: Any) -> bool:
    """Whether ``data`` is one two-dimensional array per node rather than one array."""
    return isinstance(data, list | tuple) and len(data) > 0 and all(is_table(part) for part in data)


def is_table(data: Any) -> bool:
    """Whether ``data`` has rows and columns; asks frames for their shape, whose columns may have no common type."""
    shape = getattr(data, "shape", None)
    return (len(shape) if isinstance(shape, tuple) else np.ndim(data)) == 2


def unmasked(data: Any) -> Any:
    """A masked array as a float array with NaN where it is masked; anything else as it is."""
    if isinstance(data, np.ma.MaskedArray):
        return np.ma.filled(np.ma.asarray(data, dtype=np.float64), np.nan)
    return data


def check_numeric(data: Any, where: str = "") -> None:
    """Refuse columns of words in a data frame, by name, and a dict that is meant as a frame."""
    if isinstance(data, dict) and not hasattr(data, "toarray"):  # a sparse matrix may be one
        raise TypeError(
            f"{where}received a dict: pass an array or a frame, for example pandas.DataFrame(data)"
        )
    if not hasattr(data, "columns") or not hasattr(data, "iloc"):
        return
    words = [
        str(name)
        for position, name in enumerate(data.columns)
        if getattr(data.dtypes.iloc[position], "kind", "O") in "OSUMm"
        and not _holds_numbers(data.iloc[:, position])
    ]
    if words:
        raise ValueError(
            f"{where}columns {words[:5]} hold text or dates, not numbers: leave them out or encode them"
        )


def _holds_numbers(column: Any) -> bool:
    try:
        np.asarray(column, dtype=np.float64)
    except (ValueError, TypeError):
        return False
    return getattr(column.dtype, "kind", "O") not in "Mm"


def check_complete(
    data: FloatArray, names: Sequence[Any] | None, who: str, what: str = "X"
) -> None:
    """Refuse missing entries, with their place."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isnan(data.sum()):
            return
    missing = np.argwhere(np.isnan(data))
    if len(missing):
        row, column = (int(v) for v in missing[0])
        name = repr(str(names[column])) if names is not None else str(column)
        raise ValueError(
            f"{what} contains NaN, {row_words(row)} has no value in column {name}: a {who} needs complete rows, drop the "
            "row or impute first (BayesianPCA.impute, dmfvi impute)"
        )


def check_shards(parts: Sequence[Any], allow_empty: bool = False) -> list[FloatArray]:
    """One float array per node, all with the same number of columns."""
    names = [list(part.columns) if hasattr(part, "columns") else None for part in parts]
    for i, columns in enumerate(names):
        if columns is not None and names[0] is not None and columns != names[0]:
            raise ValueError(
                f"shard {i} has columns {_differing(columns, names[0])} where shard 0 has "
                f"{_differing(names[0], columns)}: bring all shards to the same columns in the same order"
            )
    shards = []
    for i, part in enumerate(parts):
        check_numeric(part, f"shard {i}: ")
        if np.shape(part)[0] == 0 and not allow_empty:
            raise ValueError(
                f"shard {i} is empty (shape {np.shape(part)}): "
                "give every node at least one sample, or leave the node out of the network"
            )
        shards.append(
            check_array(
                unmasked(part),
                dtype=np.float64,
                ensure_all_finite="allow-nan",
                ensure_min_samples=0 if allow_empty else 1,
                input_name=f"shard {i}",
            )
        )
    widths = [shard.shape[1] for shard in shards]
    if len(set(widths)) > 1:
        raise ValueError(
            f"shards have different numbers of features {widths}: "
            "all nodes must measure the same features in the same order"
        )
    return shards


def split_evenly(data: FloatArray, network: Network, allow_empty: bool = False) -> list[FloatArray]:
    """Contiguous, nearly equal shards."""
    if len(data) < network.n_nodes and not allow_empty:
        raise ValueError(
            f"{len(data)} samples cannot be split over {network.n_nodes} nodes: "
            "use a smaller network or more samples"
        )
    return list(np.array_split(data, network.n_nodes))


def check_one_shard_per_node(shards: Sequence[FloatArray], network: Network) -> None:
    """Nodes and shards must match."""
    if len(shards) != network.n_nodes:
        raise ValueError(
            f"received {len(shards)} shards for a network of {network.n_nodes} nodes: "
            "pass one array per node"
        )


def check_observed(shards: Sequence[FloatArray], names: Sequence[str] | None) -> None:
    """Refuse features without observations; warn of constant features."""
    counts = np.sum([np.isfinite(shard).sum(0) for shard in shards], axis=0)

    def label(index: int) -> str:
        return f"{index}" if names is None else f"{index} ({names[index]!r})"

    unseen = np.flatnonzero(counts == 0)
    if len(unseen):
        shown = ", ".join(label(int(j)) for j in unseen[:5])
        raise ValueError(
            f"no node has an observed value of feature {shown}: drop it, it is missing in every sample of every node"
            + (f" ({len(unseen)} such features)" if len(unseen) > 5 else "")
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a node may not see a feature at all
        low = np.nanmin([np.nanmin(shard, axis=0) for shard in shards], axis=0)
        high = np.nanmax([np.nanmax(shard, axis=0) for shard in shards], axis=0)
    constant = np.flatnonzero(low == high)
    if len(constant) and sum(len(shard) for shard in shards) > 1:
        shown = ", ".join(label(int(j)) for j in constant[:5])
        warnings.warn(
            f"zero variance in feature {shown}: modelled by the mean alone",
            UserWarning,
            stacklevel=3,
        )


def warn_of_empty_samples(shards: Sequence[FloatArray], stacklevel: int = 3) -> None:
    """Rows that are missing altogether are allowed, but rarely meant."""
    empty = sum(int((~np.isfinite(shard).any(1)).sum()) for shard in shards)
    if empty:
        warnings.warn(
            f"samples without any observed entry: {empty}; they have no influence",
            UserWarning,
            stacklevel=stacklevel,
        )


#: names of columns that identify rows
ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|key|index|idx|rowid|row|mrn|ssn|serial)($|[_\W])", re.IGNORECASE
)
ID_ENDING = re.compile(
    r"[a-z]I[dD]$|^(patient|subject|customer|user|record|case|sample)_?(no|nr|num|number)?$"
)
#: ratio of the columns' standard deviations from which they have different units
UNITS_APART = 1000.0
#: fewer rows may well have different whole numbers, whatever the column is called
FEWEST_IDS = 4
#: fewer rows may well be 0, 1, 2, ...
FEWEST_COUNTED = 10


def warn_of_ids(parts: Sequence[Any], names: Sequence[Any] | None, stacklevel: int = 4) -> None:
    """Columns that identify rows are rarely features: whole numbers, no two alike, named like an id."""
    if names is None or not len(parts):
        return
    whole = [np.asarray(part, dtype=np.float64) for part in parts if is_table(part)]
    if not whole or any(part.shape[1] != len(names) for part in whole):
        return
    data = np.concatenate(whole)
    if len(data) < FEWEST_IDS:
        return
    found = []
    for name, cells in zip(names, data.T, strict=True):
        column = cells[~np.isnan(cells)]  # some ids may be missing
        if (
            len(column) < FEWEST_IDS
            or not (np.isfinite(column) & (column == np.floor(column))).all()
        ):
            continue
        # floats do not tell whole numbers apart from here on
        beyond = bool((np.abs(column) >= 2.0**53).any())
        distinct = beyond or len(np.unique(column)) == len(column)
        called_so = bool(ID_NAME.search(str(name)) or ID_ENDING.search(str(name)))
        counted = cells[0] in (0, 1) and (np.diff(cells) == 1).all()
        if (called_so and distinct) or (counted and len(cells) >= FEWEST_COUNTED):
            found.append(str(name))
    if found:
        warnings.warn(
            f"column {', '.join(map(repr, found[:5]))} looks like an id, and takes part as a feature: leave it out "
            f"(--id {found[0]} or --drop {found[0]}; drop the column in Python), or ignore this",
            UserWarning,
            stacklevel=stacklevel,
        )


def warn_of_units(parts: Sequence[Any], names: Sequence[Any] | None, stacklevel: int = 4) -> None:
    """One noise variance for all columns says nothing of columns that vary in much smaller units."""
    whole = [np.asarray(part, dtype=np.float64) for part in parts if is_table(part)]
    if not whole or any(part.shape[1] != whole[0].shape[1] for part in whole):
        return
    data = np.concatenate(whole)
    seen = np.flatnonzero(np.isfinite(data).sum(0) > 1)
    spread = np.array([np.std(column[np.isfinite(column)]) for column in data.T[seen]])
    varying = np.flatnonzero(spread > 0)
    if len(varying) < 2:
        return
    small, large = (varying[pick(spread[varying])] for pick in (np.argmin, np.argmax))
    if spread[large] < UNITS_APART * spread[small]:
        return
    shown = [seen[at] + 1 if names is None else repr(str(names[seen[at]])) for at in (large, small)]
    warnings.warn(
        f"column {shown[0]} has a standard deviation of {spread[large]:.3g}, column {shown[1]} of {spread[small]:.3g}, and this "
        "model has one noise for all columns: the widest decide, and deviations of the others are too large. Fit a "
        "bayesian-pca with noise=feature or a bayesian-gaussian-mixture, or give the columns like units (thousands, for example)",
        UserWarning,
        stacklevel=stacklevel,
    )


def check_choice(name: str, value: Any, choices: Sequence[str | None]) -> None:
    """A parameter that must be one of a few words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, received {plain(value)!r}")


def check_n_components(n_components: Any, n_features: int) -> None:
    """A whole number from 1 to the number of features."""
    check_whole("n_components", n_components, 1)
    check_at_most("n_components", n_components, "n_features", n_features)


def check_at_most(name: str, value: Any, limit_name: str, limit: int) -> None:
    """A parameter that the data limit."""
    if value > limit:
        raise ValueError(
            f"{name}={value} is larger than {limit_name}={limit}: choose at most {limit}"
        )


def check_instance(name: str, value: Any, wanted: type[Any]) -> None:
    """A parameter that must be None or an object of one of this package's classes."""
    if value is not None and not isinstance(value, wanted):
        raise TypeError(
            f"{name} must be dmfvi.{wanted.__name__} or None, received {type(value).__name__}"
        )


def check_whole(name: str, value: Any, least: int) -> None:
    """A parameter that must be a whole number of at least ``least``."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, received {plain(value)!r}"
        )


def check_level(level: Any) -> None:
    """The probability of an interval."""
    if not isinstance(level, Real) or not 0 < float(level) < 1:
        raise ValueError(f"level must lie in (0, 1), received {plain(level)!r}")


def check_seed(value: Any, name: str = "random_state") -> None:
    """What ``sklearn.utils.check_random_state`` takes."""
    if value is None or value is np.random or isinstance(value, np.random.RandomState):
        return
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not 0 <= value < 2**32:
        raise ValueError(
            f"{name} must be a whole number from 0 to {2**32 - 1}, received {plain(value)!r}"
        )


def check_positive(name: str, value: Any, optional: bool = False) -> None:
    """A parameter that must be a positive number, or None if it is ``optional``."""
    if value is None and optional:
        return
    number = isinstance(value, Real) and not isinstance(value, bool)
    if number and float(value) == np.inf:
        raise ValueError(f"{name} must be finite, received {plain(value)!r}")
    if not number or not float(value) > 0:
        raise ValueError(f"{name} must be positive, received {plain(value)!r}")


def _differing(columns: list[Any], other: list[Any]) -> list[Any]:
    """The first few names that differ from the other list's at the same index."""
    pairs = list(zip(columns, other, strict=False))
    found = [a for a, b in pairs if a != b] + columns[len(other) :]
    return found[:5]


def name_features(model: Any, columns: Sequence[str] | None) -> None:
    """Let a model that was fitted to an array know the names of its columns."""
    if columns is not None:
        model.feature_names_in_ = np.array(columns, dtype=object)
