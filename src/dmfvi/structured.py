"""Nested states as plain arrays and JSON, and back: what checkpoints are made of. Nothing is pickled.

Known are arrays, numbers, words, None, tuples, lists, mappings with number or word keys, and the data classes,
named tuples and families of this library. Reading builds only those classes, looked up by name in this library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

from dmfvi.families.base import Family
from dmfvi.families.product import Product

PACKAGE = "dmfvi"


def encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:  # noqa: PLR0911
    """JSON for ``value``; its arrays go into ``arrays`` and are named in the JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Family):
        return {"family": _name(type(value)), "parts": encode(list(value.natural), arrays)}
    if isinstance(value, Product):
        return {"product": {name: encode(block, arrays) for name, block in value.items()}}
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
