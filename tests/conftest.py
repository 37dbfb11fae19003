"""Fixtures of all tests."""

from __future__ import annotations

import os
import signal

# before numpy is imported: two workers with two threads each would wait for each other, and products are small here
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest


def pytest_configure() -> None:
    """Heed Ctrl-C: a shell lets programs in the background ignore it, and what they start would ignore it too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cases that ``slow_cases`` lists are slow."""
    from slow_cases import is_slow

    for item in items:
        if is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def rng() -> np.random.Generator:
    """A seeded generator."""
    return np.random.default_rng(0)


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Any]]:
    """A maker of clusters of nodes in threads; none outlives the test."""
    from bus import Cluster

    made: list[Cluster] = []

    def make(*arguments: Any, **settings: Any) -> Cluster:
        made.append(Cluster(*arguments, **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
