"""Generators and readers."""

from dmfvi.datasets.ratings import RatingData, make_ratings, split_ratings
from dmfvi.datasets.synthetic import LowRankData, make_low_rank, mask_at_random
from dmfvi.datasets.tables import read_table

__all__ = [
    "LowRankData",
    "RatingData",
    "make_low_rank",
    "make_ratings",
    "mask_at_random",
    "read_table",
    "split_ratings",
]
