"""Optional dependencies: what to install where one is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
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


#: what imports, and programs that list all modules, look at
OF_THE_FILE = {"__spec__", "__class__", "__name__", "__file__", "__loader__", "__package__"}


class _Deferred(ModuleType):
    """Stands for a module until something of it is used: where its file is, it knows; all else is the module's.

    ``importlib.util.LazyLoader`` takes the look at ``__spec__`` that every import statement has for use, and loads at once.
    """

    def __getattribute__(self, name: str) -> Any:
        if name in OF_THE_FILE:
            return super().__getattribute__(name)
        return getattr(_loaded(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_loaded(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_loaded(self), name)

    def __dir__(self) -> list[str]:
        return dir(_loaded(self))


def _loaded(module: _Deferred) -> ModuleType:
    """The module itself, imported under the locks of the import system."""
    name = module.__spec__.name  # type: ignore[union-attr]
    if sys.modules.get(name) is module:
        del sys.modules[name]
    return import_module(name)


class _Present(Loader):
    """Hands an import the module that is there."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _Children(MetaPathFinder):
    """Modules that were loaded with a deferred package are not loaded once more.

    ``import package.child`` looks for the child first, then reads the package's path, which loads the package and may load the child with it.
    """

    def __init__(self) -> None:
        self.packages: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = sys.modules.get(fullname)
        if target is not None or module is None or fullname.rpartition(".")[0] not in self.packages:
            return None
        return ModuleSpec(fullname, _Present(module))


_CHILDREN = _Children()


def defer(module: str) -> None:
    """Let a module be loaded when something of it is first used, not by ``import module``; one that is not installed stays so.

    scikit-learn imports scipy.stats for one function: 37 MB that most nodes do not use.
    """
    spec = None if module in sys.modules else find_spec(module)
    if spec is None:
        return
    if _CHILDREN not in sys.meta_path:
        sys.meta_path.insert(0, _CHILDREN)
    _CHILDREN.packages.add(module)
    made = module_from_spec(spec)
    made.__class__ = _Deferred
    sys.modules[module] = made
