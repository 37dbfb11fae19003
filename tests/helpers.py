"""Data and small functions that several tests use."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmfvi.datasets import make_low_rank, mask_at_random


def low_rank_shards(
    sizes: list[int],
    n_features: int = 12,
    n_components: int = 3,
    missing: float = 0.0,
    seed: int = 0,
) -> list[np.ndarray]:
    """Unequal shards of one low-rank data set."""
    data = make_low_rank(sum(sizes), n_features, n_components, noise=0.5, seed=seed).data
    if missing:
        data = mask_at_random(data, missing, seed=seed + 1)
    return np.split(data, np.cumsum(sizes)[:-1])


def uneven_sizes(n_nodes: int, base: int = 12) -> list[int]:
    """Shard sizes from base to 3 base."""
    return [base + (7 * i) % (2 * base) for i in range(n_nodes)]


def shared_data() -> Path:
    """The folder of recorded data, or a skip that says where it was looked for."""
    places = [Path(os.environ.get("DMFVI_DATA", "")), Path(__file__).parents[2] / "shared" / "data"]
    for place in places:
        if place.name and place.is_dir():
            return place
    pytest.skip("no recorded data: set DMFVI_DATA or put them in ../shared/data")


def distance(one: object, other: object) -> float:
    """Largest relative difference of two posteriors."""
    return one.distance(other)  # type: ignore[attr-defined]


def documented(estimator: Any, section: str) -> set[str]:
    """Names in a section of a class's docstring, numpydoc's ``name, name : type``."""
    text = inspect.getdoc(estimator) or ""
    body = re.split(r"^\w[\w ]*\n-{4,}\n", text, flags=re.MULTILINE)
    titles = re.findall(r"^(\w[\w ]*)\n-{4,}\n", text, flags=re.MULTILINE)
    lines = dict(zip(titles, body[1:], strict=True)).get(section, "").splitlines()
    heads = [line.partition(" :")[0] for line in lines if re.match(r"[\w, *]+ : ", line)]
    return {name.strip(" *") for head in heads for name in head.split(",")}
