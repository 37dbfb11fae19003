"""Settings of an estimator as files and the shell can say them, derived from its constructor's type hints."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from numpy.typing import ArrayLike

#: parameters of a constructor that are not settings of a model
NOT_SETTINGS = {"network", "verbose"}
#: the setting that lists labels, which are numbers or words
LABELS = "classes"
#: how files say None, where a setting may be None
NOTHING = "none"
#: what a union with ArrayLike contains
ARRAY_LIKE = set(get_args(ArrayLike)) or {ArrayLike}
#: the hint of settings that list names
NAMES_OF_TERMS = tuple[str, ...]
#: entries of lists without brackets that are numbers
WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)")
NUMBER = re.compile(rf"{WHOLE.pattern}(\.[0-9]+)?([eE][+-]?[0-9]+)?")
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True)
class Setting:
    """One parameter of a constructor."""

    name: str
    hint: Any
    default: Any

    def parsed(self, value: Any, kind: str) -> Any:
        """A value from a file as the estimator takes it, or an error that says what is allowed."""
        if isinstance(value, str) and "," in value and self._is_list:
            return self.parsed(_listed(value), kind)
        if self.name == LABELS and isinstance(value, list | tuple) and value:
            if all(
                type(each) is type(value[0]) and type(each) in (int, float, str) for each in value
            ):
                return tuple(value)  # labels keep their type
            raise ValueError(
                f"{self.name} of a {kind} must be a list of labels of one type, received {value!r}"
            )
        if self.name == LABELS and value not in (None, NOTHING):  # one label is no list
            raise ValueError(f"{self.name} of a {kind} must be {self.words}, received {value!r}")
        options = _options(self.hint)
        if value == NOTHING and NoneType in options and str in options:
            return None  # or it would be text
        for option in options:
            try:
                return _as(option, value)
            except (TypeError, OverflowError):
                continue
        objects = [o.__name__ for o in _options(self.hint) if _is_object(o)]
        if objects:
            raise ValueError(
                f"{self.name} of a {kind} is a {' or '.join(objects)}, which only Python can make, received {value!r}: "
                "leave it out, or fit the estimator in Python"
            )
        raise ValueError(f"{self.name} of a {kind} must be {self.words}, received {value!r}")

    @property
    def _is_list(self) -> bool:
        """Whether a list is allowed, and text with commas is nothing else."""
        options = _options(self.hint)
        lists = [o for o in options if o is ArrayLike or get_origin(o) is tuple]
        return bool(lists) and str not in options

    @property
    def words(self) -> str:
        """What is allowed."""
        if self.name == LABELS:
            return 'a list of labels, as low,high or ["low", "high"], or "none"'
        return " or ".join(_words(option) for option in _options(self.hint))


def settings_of(estimator: type[Any]) -> dict[str, Setting]:
    """The settings of an estimator by name, in the order of its constructor.

    A seed is a whole number, 0 unless given, so that nodes without a given seed agree. Defaults are the constructor's, or
    what the estimator says is better for tables.
    """
    hints, better = get_type_hints(estimator), getattr(estimator, "_table_defaults", {})
    found = {
        name: Setting(name, hints[name], better.get(name, parameter.default))
        for name, parameter in inspect.signature(estimator).parameters.items()
        if name not in NOT_SETTINGS
    }
    if "random_state" in found:
        found["random_state"] = Setting("random_state", int, 0)
    return found


def _options(hint: Any) -> list[Any]:
    """The alternatives of a union; the many of an array as one, and None last."""
    parts = list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]
    if set(parts) >= ARRAY_LIKE:
        parts = [part for part in parts if part not in ARRAY_LIKE] + [ArrayLike]
    return sorted(parts, key=lambda part: part is NoneType)


def _as(option: Any, value: Any) -> Any:
    """The value as one alternative has it; TypeError where it is something else."""
    if option is NoneType and (value is None or value == NOTHING):
        return None
    if option == NAMES_OF_TERMS and isinstance(value, str):
        value = [value]
    if get_origin(option) is tuple and isinstance(value, list | tuple):
        items = get_args(option)
        items = items[:1] * len(value) if items[-1] is ... else items
        if len(items) == len(value):
            return tuple(_as(item, each) for item, each in zip(items, value, strict=True))
    if option is ArrayLike:
        if isinstance(value, list | tuple) and value:
            return tuple(_as(ArrayLike, each) for each in value)
        return _as(float, value)
    if option is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    words = get_args(option) if get_origin(option) is Literal else ()
    if (option in (bool, int, str) and type(value) is option) or value in words:
        return value
    raise TypeError


def _listed(text: str) -> list[Any]:
    """The entries of ``low,mid,high``: whole numbers or numbers if all of them are, else words; 007 is a word."""
    cells = [cell.strip() for cell in _between_commas(text)]
    if not all(cells):
        raise ValueError(f"{text!r} has an empty entry: write a,b,c without a comma at the end")
    for pattern, made in ((WHOLE, int), (NUMBER, float)):
        if all(pattern.fullmatch(cell) for cell in cells):
            return [made(cell) for cell in cells]
    return cells


def _between_commas(text: str) -> list[str]:
    """The parts between commas outside brackets, as those in C(sex, Sum)[S.f] are not."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def _is_object(option: Any) -> bool:
    """Whether only Python can make one."""
    return (
        isinstance(option, type) and get_origin(option) is None and option not in (*NAMES, NoneType)
    )


def _words(option: Any) -> str:
    if option is NoneType:
        return f'"{NOTHING}"'
    if get_origin(option) is Literal:
        return " or ".join(f'"{word}"' for word in get_args(option))
    if option == NAMES_OF_TERMS:
        return 'a name or a list of names, ["a", "b"]'
    if get_origin(option) is tuple:
        items = get_args(option)
        return "a list of numbers" if items[-1] is ... else f"a list of {len(items)} numbers"
    if option is ArrayLike:
        return "a list of numbers"
    return NAMES.get(option, f"a {getattr(option, '__name__', option)} (in Python only)")
