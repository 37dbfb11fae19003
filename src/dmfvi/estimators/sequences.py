"""Sequences in all the forms that users hold them in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from dmfvi.families.base import FloatArray
from dmfvi.network import Network


def sequences_of(X: Any, lengths: Any = None, label: str = "") -> list[FloatArray]:
    """A list of sequences (T, D) from one array (with lengths), or a list of arrays."""
    if _is_list_of_arrays(X):
        if lengths is not None:
            raise ValueError("lengths belong to one array, received a list of sequences: drop them")
        found = [_checked(part, f"{label}sequence {i}") for i, part in enumerate(X)]
    else:
        whole = _checked(X, f"{label}X")
        found = [whole] if lengths is None else _split(whole, lengths)
    widths = {part.shape[1] for part in found}
    if len(widths) > 1:
        raise ValueError(f"{label}sequences have different numbers of features {sorted(widths)}")
    return found


def nodes_of_sequences(
    X: Any, lengths: Any, network: Network, pooled: bool
) -> list[list[FloatArray]]:
    """One list of sequences per node."""
    if _is_list_of_lists(X):
        nodes = [sequences_of(list(part), None, f"node {i}, ") for i, part in enumerate(X)]
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
    flat = sequences_of(X, lengths)
    if len(flat) < network.n_nodes:
        raise ValueError(
            f"{len(flat)} sequences cannot be split over {network.n_nodes} nodes: pass more sequences "
            "(lists, or lengths), or a smaller network"
        )
    edges = np.linspace(0, len(flat), network.n_nodes + 1).astype(int)
    return [flat[a:b] for a, b in zip(edges[:-1], edges[1:], strict=True)]


def join(sequences: list[FloatArray]) -> tuple[FloatArray, NDArray[np.int64]]:
    """All observations one after the other, and the offsets of the sequences."""
    starts = np.concatenate([[0], np.cumsum([len(s) for s in sequences])]).astype(np.int64)
    return np.concatenate(sequences), starts


def _checked(part: Any, label: str) -> FloatArray:
    array = np.asarray(part)
    if array.ndim == 1 and array.dtype.kind in "fiub":
        array = array[:, None]
    if array.ndim == 2 and len(array) == 0:
        raise ValueError(f"{label} is empty: a sequence needs at least 1 observation")
    return np.asarray(
        check_array(
            part if np.ndim(part) == 2 else array,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            input_name=label,
        )
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


def _is_list_of_arrays(X: Any) -> bool:
    """A list whose members are arrays (or a ragged list), rather than rows of one array."""
    if not isinstance(X, list | tuple) or not len(X):
        return False
    return all(isinstance(part, np.ndarray) and part.ndim >= 1 for part in X) and (
        X[0].ndim == 2 or X[0].dtype.kind in "iu" or len({len(p) for p in X}) > 1
    )


def _is_list_of_lists(X: Any) -> bool:
    return (
        isinstance(X, list | tuple)
        and len(X) > 0
        and all(isinstance(part, list | tuple) for part in X)
        and all(all(isinstance(s, np.ndarray) for s in part) for part in X)
    )
