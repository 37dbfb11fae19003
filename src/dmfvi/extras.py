"""Optional dependencies: what to install where one is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


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


class _Deferred(ModuleType):
    """Stands for a module until something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # what an import looks at
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def defer(module: str) -> None:
    """Let a module be loaded when something of it is first used, not by ``import module``.

    scikit-learn imports scipy.stats for one function: 37 MB that most nodes do not use.
    """
    sys.modules.setdefault(module, _Deferred(module))
