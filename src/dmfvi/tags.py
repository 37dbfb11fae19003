"""Tags under which classes are stored in files: a class may move or be renamed, its tag stays.

    @stored_as("pca-belief")
    @dataclass(frozen=True)
    class PcaBelief: ...

Raise ``version`` when the fields change their number or meaning: files of the earlier version are then refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made", bound=type)

_CLASSES: dict[str, type] = {}
_TAGS: dict[type, str] = {}
_VERSIONS: dict[str, int] = {}


def stored_as(tag: str, version: int = 1) -> Callable[[Made], Made]:
    """Decorator of a data class or named tuple that files may hold."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", tag):
        raise ValueError(f"a tag is lower-case words joined by hyphens, received {tag!r}")

    def enrol(made: Made) -> Made:
        if tag in _CLASSES:
            raise ValueError(
                f"tag {tag!r} of {made.__qualname__} belongs to {_CLASSES[tag].__qualname__} already: choose another"
            )
        _CLASSES[tag], _TAGS[made], _VERSIONS[tag] = made, f"{tag}/{version}", version
        return made

    return enrol


def tag_of(made: type) -> str:
    """The tag and version of a class, ``pca-belief/1``."""
    if made not in _TAGS:
        raise TypeError(
            f"cannot write a {made.__qualname__} into a file: give the class a tag with dmfvi.tags.stored_as"
        )
    return _TAGS[made]


def class_of(written: object) -> type:
    """The class that was written under this tag and version."""
    tag, _, version = str(written).partition("/")
    if tag not in _CLASSES:
        raise ValueError(f"unknown tag {tag!r}")
    if version != str(_VERSIONS[tag]):
        raise ValueError(f"{tag!r} has version {version}, known is version {_VERSIONS[tag]}")
    return _CLASSES[tag]


def stored_classes() -> dict[str, type]:
    """All classes by tag."""
    return dict(_CLASSES)
