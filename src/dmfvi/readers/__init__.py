"""Files in: tables, tracks, ratings.

``sheets`` and ``tables`` know no model, the others import them: names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmfvi.models.sfm.tracks import Tracks
    from dmfvi.readers.ratings import read_probe, read_ratings
    from dmfvi.readers.tables import Table, read_table
    from dmfvi.readers.tracks import read_tracks

__all__ = ["Table", "Tracks", "read_probe", "read_ratings", "read_table", "read_tracks"]
#: modules that have them
_HOME = {
    "Table": "dmfvi.readers.tables",
    "Tracks": "dmfvi.models.sfm.tracks",
    "read_probe": "dmfvi.readers.ratings",
    "read_ratings": "dmfvi.readers.ratings",
    "read_table": "dmfvi.readers.tables",
    "read_tracks": "dmfvi.readers.tracks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
