"""Nested states as plain arrays and JSON, and back: what checkpoints and saved models are made of. Nothing is pickled.

Known are arrays, numbers, words, None, tuples, lists, mappings with number or word keys, networks, and the data
classes, named tuples and families of this library. Reading builds only those classes, looked up by name in this library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from dmfvi.families.base import Family
from dmfvi.families.product import Product
from dmfvi.files import replacing
from dmfvi.network import Network

PACKAGE = "dmfvi"


def encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:  # noqa: PLR0911
    """JSON for ``value``; its arrays go into ``arrays`` and are named in the JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype == object:  # names of columns, for example
        return {"objects": [encode(v, arrays) for v in value.tolist()]}
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Family):
        return {"family": _name(type(value)), "parts": encode(list(value.natural), arrays)}
    if isinstance(value, Product):
        return {"product": {name: encode(block, arrays) for name, block in value.items()}}
    if isinstance(value, Network):
        known = [encode(list(value.labels), arrays), [list(edge) for edge in value.edges]]
        return {"network": [value.name, *known]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = {f: encode(v, arrays) for f, v in zip(value._fields, value, strict=True)}
        return {"record": _name(type(value)), "parts": parts}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: encode(getattr(value, f.name), arrays) for f in fields(value) if f.init}
        return {"record": _name(type(value)), "parts": parts}
    if isinstance(value, list | tuple):
        return {"tuple" if isinstance(value, tuple) else "list": [encode(v, arrays) for v in value]}
    if isinstance(value, Mapping):
        return {"map": [[encode(k, arrays), encode(v, arrays)] for k, v in value.items()]}
    raise TypeError(f"cannot write a {type(value).__name__} into a checkpoint")


def decode(spec: Any, arrays: Mapping[str, np.ndarray]) -> Any:  # noqa: PLR0911
    """Inverse of ``encode``; anything that it would not have written is refused."""
    if spec is None or isinstance(spec, bool | int | float | str):
        return spec
    if not isinstance(spec, dict):
        raise ValueError(f"unexpected {type(spec).__name__} in a checkpoint")
    kind = next(iter(spec), None)
    if kind == "array":
        return arrays[spec["array"]]
    if kind == "family":
        made = _class(spec["family"])
        if not issubclass(made, Family):
            raise ValueError(f"{spec['family']} is no family")
        return made(*decode(spec["parts"], arrays))
    if kind == "objects":
        return np.array([decode(part, arrays) for part in spec["objects"]], dtype=object)
    if kind == "network":
        name, labels, edges = spec["network"]
        return _network(name, decode(labels, arrays), edges)
    if kind == "product":
        return Product(**{name: decode(part, arrays) for name, part in spec["product"].items()})
    if kind == "record":
        made = _class(spec["record"])
        if not (is_dataclass(made) or hasattr(made, "_fields")):
            raise ValueError(f"{spec['record']} is no record")
        return made(**{name: decode(part, arrays) for name, part in spec["parts"].items()})
    if kind in ("list", "tuple"):
        parts = [decode(part, arrays) for part in spec[kind]]
        return tuple(parts) if kind == "tuple" else parts
    if kind == "map":
        return {decode(k, arrays): decode(v, arrays) for k, v in spec["map"]}
    raise ValueError(f"unknown entry {kind!r} in a checkpoint")


def _name(made: type) -> str:
    if not made.__module__.startswith(f"{PACKAGE}."):
        raise TypeError(f"cannot write a {made.__module__}.{made.__qualname__} into a checkpoint")
    return f"{made.__module__}:{made.__qualname__}"


def _class(name: str) -> Any:
    module, _, attribute = str(name).partition(":")
    if not module.startswith(f"{PACKAGE}.") or not attribute.isidentifier():
        raise ValueError(f"{name!r} is not a class of this library")
    found = getattr(import_module(module), attribute, None)
    if not isinstance(found, type):
        raise ValueError(f"{name!r} is not a class of this library")
    return found


def _network(name: str, labels: list[Any], edges: list[list[int]]) -> Network:
    graph = nx.Graph()
    graph.add_nodes_from(labels)
    graph.add_edges_from((labels[a], labels[b]) for a, b in edges)
    return Network(graph, name)


class FileKind(NamedTuple):
    """What a file says it is, and what people call it."""

    format: str
    version: int
    noun: str
    remedy: str


def write_structured(path: Path, content: Any, kind: FileKind, mark: str = "") -> Path:
    """Write ``content`` as one checksummed .npz, whole or not at all; ``mark`` says what it belongs to."""
    arrays: dict[str, np.ndarray] = {}
    spec = json.dumps(encode(content, arrays))
    head = {"format": kind.format, "version": kind.version, "fingerprint": mark, "spec": spec}
    digest = _digest(head, arrays)
    with replacing(path) as file:
        np.savez(file, head=json.dumps(head), digest=digest, **arrays)  # type: ignore[arg-type]
    return path


def read_structured(path: Path, kind: FileKind, mark: str = "") -> Any:
    """Read what ``write_structured`` wrote; a torn, altered or foreign file is refused with the reason."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        head = json.loads(str(arrays.pop("head")))
        digest = str(arrays.pop("digest"))
    except Exception as error:  # a damaged archive raises nearly anything
        raise ValueError(f"{path} is torn or no {kind.noun} ({error}): {kind.remedy}") from error
    if not isinstance(head, dict) or head.get("format") != kind.format:
        raise ValueError(f"{path} is not a {kind.format} file: {kind.remedy}")
    if head.get("version") != kind.version:
        raise ValueError(
            f"{path} has version {head.get('version')}, this library reads version {kind.version}: "
            f"{kind.remedy}"
        )
    if digest != _digest(head, arrays):
        raise ValueError(f"{path} has been altered: its checksum does not match, {kind.remedy}")
    if head["fingerprint"] != mark:
        raise ValueError(
            f"{path} belongs to another model, data or network: remove it or start without resuming"
        )
    try:
        return decode(json.loads(head["spec"]), arrays)
    except Exception as error:  # classes move, and a file may say anything
        raise ValueError(
            f"{path} was written by another version ({error}): {kind.remedy}"
        ) from error


def _digest(head: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
