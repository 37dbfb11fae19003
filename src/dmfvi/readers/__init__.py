"""Files in: tables, tracks, ratings."""

from dmfvi.readers.ratings import read_probe, read_ratings
from dmfvi.readers.tables import Table, read_table
from dmfvi.readers.tracks import Tracks, read_tracks

__all__ = ["Table", "Tracks", "read_probe", "read_ratings", "read_table", "read_tracks"]
