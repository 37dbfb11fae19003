"""Rating matrices: readers, tables, saved models."""

from dmfvi.ratings.table import RatingTable

__all__ = ["RatingTable"]
