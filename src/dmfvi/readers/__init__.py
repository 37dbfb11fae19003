"""Files in: tables, tracks, ratings."""

from dmfvi.models.sfm.tracks import Tracks
from dmfvi.readers.ratings import read_probe, read_ratings
from dmfvi.readers.tables import Table, read_table
from dmfvi.readers.tracks import read_tracks

__all__ = ["Table", "Tracks", "read_probe", "read_ratings", "read_table", "read_tracks"]
