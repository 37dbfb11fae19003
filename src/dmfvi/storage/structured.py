"""Nested states as JSON and a few flat arrays, and back: what checkpoints and saved models are made of.

Known are arrays, numbers, words, None, tuples, lists, mappings, networks, families, products of families, and the data
classes and named tuples that have a tag (``dmfvi.tags``). Reading builds only those; nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dmfvi.families import FAMILIES
from dmfvi.families.base import Family
from dmfvi.families.product import Product
from dmfvi.network import Network
from dmfvi.storage.archive import FileKind, read_archive, write_archive
from dmfvi.tags import class_of, tag_of

#: kinds of arrays that can be written: numbers, words, bytes, dates
PLAIN_KINDS = "biufcSUMm"
#: bytes below which an array shares a member of the file with others of its type
POOL_BELOW = 1 << 16


def write_structured(
    path: Path,
    content: Any,
    kind: FileKind,
    mark: str = "",
    details: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``content``, whole or not at all; ``mark`` names what it belongs to, ``details`` are plain facts."""
    arrays = ArrayWriter()
    head = {"mark": mark, "details": dict(details or {}), "content": encode(content, arrays)}
    return write_archive(path, kind, head, arrays.members())


def read_structured(path: Path, kind: FileKind, mark: str = "") -> Any:
    """Read what ``write_structured`` wrote; anything else is refused with the reason and what to do."""
    head, arrays = read_archive(path, kind)
    if head.get("mark") != mark:
        raise ValueError(
            f"{path} belongs to another model, data or network: remove it or start without resuming"
        )
    try:
        return decode(head["content"], arrays)
    except Exception as error:  # a file may contain anything
        raise kind.refusal(path, f"was written by another version ({error})") from error


class ArrayWriter:
    """Arrays of a file: small ones share a flat member by type, one that occurs twice is kept once."""

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {}
        self._sizes: dict[str, int] = {}
        self._pools: dict[str, str] = {}
        self._known: dict[tuple[Any, ...], list[Any]] = {}

    def add(self, array: NDArray[Any]) -> list[Any]:
        """Where it will be: member, first element, shape, and "F" for columns first."""
        if array.dtype.kind not in PLAIN_KINDS:
            raise TypeError(f"cannot write an array of {array.dtype} into a file")
        # sums depend on the order of memory in their last digit: it is kept
        turned = array.ndim > 1 and abs(array.strides[0]) < abs(array.strides[-1])
        flat = array.ravel(order="F" if turned else "C")
        same = (array.dtype.str, array.shape, turned, sha256(flat.view(np.uint8).data).digest())
        if same not in self._known:
            name = self._member(flat)
            position: list[Any] = [name, self._sizes[name], list(array.shape)]
            self._parts[name].append(flat)
            self._sizes[name] += array.size
            self._known[same] = [*position, "F"] if turned else position
        return self._known[same]

    def members(self) -> dict[str, NDArray[Any]]:
        """The flat arrays of the file."""
        return {
            name: parts[0] if len(parts) == 1 else np.concatenate(parts)
            for name, parts in self._parts.items()
        }

    def _member(self, array: NDArray[Any]) -> str:
        name = f"a{len(self._parts)}"
        if array.nbytes < POOL_BELOW:
            name = self._pools.setdefault(array.dtype.str, name)
        self._parts.setdefault(name, [])
        self._sizes.setdefault(name, 0)
        return name


def _array(position: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    name, start, shape, *order = position
    flat, size = arrays[name], prod(shape)
    if min([start, *shape]) < 0 or start + size > len(flat):
        raise ValueError(f"array {position} lies outside its member of {len(flat)}")
    # a copy of what is shared: changing it must not change other arrays
    held = flat if size == len(flat) else flat[start : start + size].copy()
    return held.reshape(shape, order="F" if order else "C")


def encode(value: Any, arrays: ArrayWriter) -> Any:  # noqa: PLR0911, PLR0912
    """JSON for ``value``; its arrays go into ``arrays`` and are named in the JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        # subclasses (NumPy's numbers, enumerations) as what they stand for
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype == object:  # names of columns, for example
        flat = [encode(v, arrays) for v in value.ravel().tolist()]
        return {"objects": flat, "shape": list(value.shape)}
    if isinstance(value, np.ndarray):
        return {"array": arrays.add(value)}
    if isinstance(value, Product):
        return {"product": {name: encode(block, arrays) for name, block in value.items()}}
    if isinstance(value, Family):
        return {"family": _family_name(value), "natural": [arrays.add(v) for v in value.natural]}
    if isinstance(value, Network):
        edges = arrays.add(np.array(value.edges, dtype=np.int64).reshape(-1, 2))
        return {"network": [value.name, encode(list(value.labels), arrays), edges]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = {f: encode(v, arrays) for f, v in zip(value._fields, value, strict=True)}
        return {"record": tag_of(type(value)), "fields": parts}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: encode(getattr(value, f.name), arrays) for f in fields(value) if f.init}
        return {"record": tag_of(type(value)), "fields": parts}
    if isinstance(value, list | tuple):
        return {"tuple" if isinstance(value, tuple) else "list": [encode(v, arrays) for v in value]}
    if isinstance(value, frozenset):
        return {"set": [encode(v, arrays) for v in sorted(value)]}
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {"dict": {key: encode(v, arrays) for key, v in value.items()}}
    if isinstance(value, Mapping):
        return {"map": [[encode(k, arrays), encode(v, arrays)] for k, v in value.items()]}
    raise TypeError(f"cannot write a {type(value).__name__} into a file")


def digest_of(value: Any) -> bytes | None:
    """SHA-256 of all bits of a value; None for one that cannot be written."""
    arrays = ArrayWriter()
    try:
        text = json.dumps(encode(value, arrays))
    except (TypeError, ValueError):
        return None
    mark = sha256(text.encode())
    for array in arrays.members().values():
        mark.update(np.ascontiguousarray(array).view(np.uint8).data)
    return mark.digest()


def decode(spec: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: PLR0911
    """Inverse of ``encode``; anything that it would not have written is refused."""
    if spec is None or isinstance(spec, bool | int | float | str):
        return spec
    if not isinstance(spec, dict) or not spec:
        raise ValueError(f"unexpected {type(spec).__name__}")
    kind, held = next(iter(spec.items()))
    if kind == "array":
        return _array(held, arrays)
    if kind == "objects":
        made = np.empty(len(held), dtype=object)
        made[:] = [decode(part, arrays) for part in held]
        return made.reshape(spec["shape"])
    if kind == "family":
        if held not in FAMILIES:
            raise ValueError(f"unknown family {held!r}")
        return FAMILIES[held](*[_array(part, arrays) for part in spec["natural"]])
    if kind == "product":
        return Product(**{name: decode(part, arrays) for name, part in held.items()})
    if kind == "network":
        name, labels, edges = held
        return _network(name, decode(labels, arrays), _array(edges, arrays).tolist())
    if kind == "record":
        parts = {name: decode(part, arrays) for name, part in spec["fields"].items()}
        return class_of(held)(**parts)
    if kind in ("list", "tuple", "set"):
        items = [decode(part, arrays) for part in held]
        return {"list": list, "tuple": tuple, "set": frozenset}[kind](items)
    if kind == "dict":
        return {key: decode(part, arrays) for key, part in held.items()}
    if kind == "map":
        return {decode(k, arrays): decode(v, arrays) for k, v in held}
    raise ValueError(f"unknown entry {kind!r}")


def _family_name(value: Family) -> str:
    name = type(value).__name__
    if FAMILIES.get(name) is not type(value):
        raise TypeError(
            f"cannot write a {name} into a file: enrol the family in dmfvi.families.FAMILIES"
        )
    return name


def _network(name: str, labels: list[Any], edges: list[list[int]]) -> Network:
    graph = nx.Graph()
    graph.add_nodes_from(labels)
    graph.add_edges_from((labels[a], labels[b]) for a, b in edges)
    return Network(graph, name)
