"""Settings of a neighbour's model, and in which of them it differs from this node's."""

from __future__ import annotations

import json
from collections.abc import Mapping

from dmfvi.engines.net.frames import Malformed

#: bytes of the settings of a model, and how many of them are named where they differ
LONGEST_SETTINGS, MOST_DIFFERENCES = 1 << 20, 5


def read_settings(payload: bytes) -> dict[str, str]:
    """A neighbour's settings by name; raises ``Malformed`` for anything else."""
    try:
        content = json.loads(payload) if len(payload) <= LONGEST_SETTINGS else None
    except (ValueError, RecursionError):
        raise Malformed("settings") from None
    if not isinstance(content, dict) or not all(isinstance(v, str) for v in content.values()):
        raise Malformed("settings")
    return content


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Which settings differ, as text."""
    names = [n for n in sorted({*here, *there}) if here.get(n) != there.get(n)]
    texts = [_one_difference(n, here.get(n), there.get(n)) for n in names[:MOST_DIFFERENCES]]
    return "; ".join(texts) or "their libraries differ"


def _one_difference(name: str, here: str | None, there: str | None) -> str:
    """Of lists of names what only one of them has; of other settings both."""
    mine, theirs = (_names_in(each) for each in (here, there))
    if mine is not None and theirs is not None and mine != theirs:
        only = ((mine - theirs, "here"), (theirs - mine, "there"))
        values = [
            f"{_short(json.dumps(sorted(names)))} only {where}" for names, where in only if names
        ]
        return f"{name} {' and '.join(values)}"
    shown = ["not set" if each is None else _short(each) for each in (here, there)]
    return f"{name} is {shown[0]} here and {shown[1]} there"


def _names_in(text: str | None) -> set[str] | None:
    """The names of a list of them; None for anything else, whatever a neighbour sends."""
    try:
        found = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        return set(found)
    return None


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
