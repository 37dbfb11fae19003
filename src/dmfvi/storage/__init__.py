"""Files: fitted models, checkpoints, and writes that are whole or not at all.

``files``, ``archive`` and ``structured`` know no model, and ``journal`` only the node loop; ``models`` imports the
estimators, so it is imported only when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmfvi.storage.files import FILE_NAME
    from dmfvi.storage.models import details, load, save

__all__ = ["FILE_NAME", "details", "load", "save"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "files" if name == "FILE_NAME" else "models"
    return getattr(import_module(f"dmfvi.storage.{home}"), name)
