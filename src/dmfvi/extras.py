"""Optional dependencies: what to install where one is missing."""

from __future__ import annotations


def advice(extra: str) -> str:
    """How to install an extra of this package: from a clone, or from the same place as the package."""
    return f"pip install -e '.[{extra}]' in a clone of dmfvi, or install dmfvi with its extra [{extra}] as you installed it"


def lacking(what: str, package: str, extra: str) -> ImportError:
    """The error to raise where an optional package cannot be imported: one line that says what to do."""
    return ImportError(f"{what} needs {package}: {advice(extra)}")
