"""Rating matrices: readers, tables, saved models."""

from dmfvi.ratings.readers import read_probe, read_ratings
from dmfvi.ratings.table import RatingTable

__all__ = ["RatingTable", "read_probe", "read_ratings"]
