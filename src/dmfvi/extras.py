"""Optional dependencies: what to install where one is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


def advice(extra: str) -> str:
    """How to install an extra of this package: from a clone, or from the same place as the package."""
    return f"pip install -e '.[{extra}]' in a clone of dmfvi, or install dmfvi with its extra [{extra}] as you installed it"


def lacking(what: str, package: str, extra: str) -> ImportError:
    """The error to raise where an optional package cannot be imported: one line that says what to do."""
    return ImportError(f"{what} needs {package}: {advice(extra)}")


@contextmanager
def left_out(package: str) -> Iterator[None]:
    """Imports in this block do without a package that is optional to them; it can be imported afterwards.

    scikit-learn loads pandas, and pandas pyarrow, wherever they are installed: 60 MB that a node does not use.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # makes an import of it raise ImportError
    try:
        yield
    finally:
        del sys.modules[package]
