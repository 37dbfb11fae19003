"""Engines by name: where the nodes run. Each is imported when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dmfvi.engines.links import Links

#: engine name -> "module:class"
ENGINES = {
    "local": "dmfvi.engines.local:LocalEngine",
    "mpi": "dmfvi.engines.mpi:MpiEngine",
    "net": "dmfvi.engines.net.engine:NetworkEngine",
    "inproc": "dmfvi.engines.net.inproc_engine:InProcessEngine",
}


def make(name: str, **settings: Any) -> Any:
    """The engine of that name, constructed with ``settings``.

    Parameters
    ----------
    name : str
        One of ``ENGINES``.
    **settings : Any
        Those of the engine's class.
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {sorted(ENGINES)}, received {name!r}")
    module, _, class_name = ENGINES[name].partition(":")
    return getattr(import_module(module), class_name)(**settings)


def open_engine(where: Any, links: Links | None = None, n_jobs: int | None = None) -> Any:
    """The engine that an estimator's ``engine`` means: a name, or one made already."""
    if links is not None and not isinstance(links, Links):
        raise TypeError(
            f"links must be dmfvi.Links or None, received {type(links).__name__}: "
            "write Links(loss=0.1), for example"
        )
    if isinstance(where, str):
        if where == "local":
            return make(where, links=links, n_jobs=n_jobs)
        if links is not None and not links.reliable:
            raise ValueError(f"simulated links need engine='local', received engine={where!r}")
        return make(where)
    if isinstance(where, type) or not all(
        hasattr(where, name) for name in ("owned", "run", "reliable")
    ):
        kind = where.__name__ if isinstance(where, type) else type(where).__name__
        raise TypeError(
            f"engine must be one of {sorted(ENGINES)} or an engine that was made already, received {kind}"
        )
    if links is not None:
        raise ValueError(
            f"links are simulated by engine='local', received an engine ({where.name}) that has its own: "
            "drop links"
        )
    return where


__all__ = ["ENGINES", "Links", "make", "open_engine"]
