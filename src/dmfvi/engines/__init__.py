"""Where it runs: engines by name, imported when asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dmfvi.engines.links import Links

#: engine name -> "module:class"
ENGINES = {
    "local": "dmfvi.engines.local:LocalEngine",
    "mpi": "dmfvi.engines.mpi:MpiEngine",
}


def engine(name: str, **settings: Any) -> Any:
    """The engine of that name, constructed with ``settings``."""
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {sorted(ENGINES)}, received {name!r}")
    module, _, class_name = ENGINES[name].partition(":")
    return getattr(import_module(module), class_name)(**settings)


__all__ = ["ENGINES", "Links", "engine"]
