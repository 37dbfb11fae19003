"""Generators and readers."""

from dmfvi.datasets.synthetic import LowRankData, make_low_rank, mask_at_random
from dmfvi.datasets.tables import read_table

__all__ = ["LowRankData", "make_low_rank", "mask_at_random", "read_table"]
