"""Generators and masks."""

from dmfvi.datasets.cube import CubeTracks, make_cube
from dmfvi.datasets.masks import (
    mask_at_random,
    mask_by_depth,
    mask_large_values,
    mask_points_at_random,
)
from dmfvi.datasets.ratings import RatingData, make_ratings, split_ratings
from dmfvi.datasets.synthetic import LowRankData, make_gaussian, make_low_rank

__all__ = [
    "CubeTracks",
    "LowRankData",
    "RatingData",
    "make_cube",
    "make_gaussian",
    "make_low_rank",
    "make_ratings",
    "mask_at_random",
    "mask_by_depth",
    "mask_large_values",
    "mask_points_at_random",
    "split_ratings",
]
