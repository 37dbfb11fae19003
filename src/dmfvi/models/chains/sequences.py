"""Sequences in all the forms that users hold them in."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray

#: the rows of all sequences, and where each begins, with the number of rows last
Joined = tuple[FloatArray, NDArray[np.int64]]


def sequences_of(
    X: Any, lengths: Any = None, *, flat: bool = False, label: str = ""
) -> list[FloatArray]:
    """A list of sequences (T, D) from one array (with lengths), or a list of arrays.

    ``flat`` sequences may have one axis only: (T,) stands for (T, 1).
    """
    if _is_list_of_arrays(X, flat):
        if lengths is not None:
            raise ValueError("lengths belong to one array, received a list of sequences: drop them")
        found = [_checked(part, f"{label}sequence {i}", flat) for i, part in enumerate(X)]
    else:
        whole = _checked(X, f"{label}X", flat)
        found = [whole] if lengths is None else _split(whole, lengths)
    widths = {part.shape[1] for part in found}
    if len(widths) > 1:
        raise ValueError(f"{label}sequences have different numbers of features {sorted(widths)}")
    return found


def nodes_of_sequences(
    X: Any, lengths: Any, session: Session, pooled: bool, *, flat: bool = False
) -> list[list[FloatArray]]:
    """One list of sequences per node of this process."""
    network = session.network
    if _is_list_of_lists(X):
        session.refuse_parts(len(X), "sequences as one list")
        nodes = [
            sequences_of(list(part), flat=flat, label=f"node {i}, ") if len(part) else []
            for i, part in enumerate(X)
        ]
        empty = [i for i, part in enumerate(nodes) if not part]
        if empty:
            raise ValueError(f"node {empty[0]} has no sequence: leave it out of the network")
        if pooled:
            return [[sequence for part in nodes for sequence in part]]
        if len(nodes) != network.n_nodes:
            raise ValueError(
                f"received sequences of {len(nodes)} nodes for a network of {network.n_nodes} nodes"
            )
        return nodes
    every = sequences_of(X, lengths, flat=flat)
    if not session.whole:
        return [every]
    if len(every) < network.n_nodes:
        raise ValueError(
            f"{len(every)} sequences cannot be split over {network.n_nodes} nodes: pass more sequences "
            "(lists, or lengths; a column that numbers them in files), or a smaller network"
        )
    edges = np.linspace(0, len(every), network.n_nodes + 1).astype(int)
    return [every[a:b] for a, b in pairwise(edges)]


def join(sequences: list[FloatArray]) -> Joined:
    """All observations one after the other, and the offsets of the sequences."""
    starts = np.concatenate([[0], np.cumsum([len(s) for s in sequences])]).astype(np.int64)
    return np.concatenate(sequences), starts


def _checked(part: Any, label: str, flat: bool) -> FloatArray:
    if flat and np.ndim(part) == 1:
        part = np.asarray(part)[:, None]
    if np.ndim(part) == 2 and len(part) == 0:
        raise ValueError(f"{label} is empty: a sequence needs at least 1 observation")
    return np.asarray(
        check_array(part, dtype=np.float64, ensure_all_finite="allow-nan", input_name=label)
    )


def _split(whole: FloatArray, lengths: Any) -> list[FloatArray]:
    sizes = np.asarray(lengths)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 1).any():
        raise ValueError(
            f"lengths must be whole numbers of at least 1, received {np.array2string(sizes, threshold=9)}"
        )
    if sizes.sum() != len(whole):
        raise ValueError(f"lengths add up to {sizes.sum()}, X has {len(whole)} observations")
    return list(np.split(whole, np.cumsum(sizes)[:-1]))


def _is_list_of_arrays(X: Any, flat: bool) -> bool:
    """A list of arrays, rather than one array written as a list of rows."""
    axes = (1, 2) if flat else (2,)
    return (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(isinstance(part, np.ndarray) and part.ndim in axes for part in X)
    )


def _is_list_of_lists(X: Any) -> bool:
    return (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(isinstance(part, list | tuple) for part in X)
        and all(all(isinstance(s, np.ndarray) for s in part) for part in X)
    )
