"""Compiled loops in several threads: every chunk once, from many threads at once, and after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from dmfvi import LatentDirichletAllocation, RatingFactorization
from dmfvi.chunks import over_chunks, thread_count
from dmfvi.datasets import make_ratings
from dmfvi.models.ratings import kernels as rating_kernels
from dmfvi.models.topics import kernels as topic_kernels


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("n_chunks", [1, 5, 64])
def test_every_chunk_is_done_once(n_chunks: int, threads: int) -> None:
    done = np.zeros(n_chunks, dtype=int)

    def kernel(first: int, last: int, out: np.ndarray) -> None:
        out[first:last] += 1

    over_chunks(kernel, n_chunks, done, threads=threads)
    assert done.tolist() == [1] * n_chunks


def test_one_call_for_one_thread() -> None:
    calls: list[tuple[int, int]] = []
    over_chunks(lambda first, last: calls.append((first, last)), 64, threads=1)
    assert calls == [(0, 64)]


def test_an_error_of_any_thread_is_raised() -> None:
    both = threading.Barrier(2)

    def kernel(first: int, last: int) -> None:
        both.wait(timeout=60)  # so that each thread has one range
        if threading.current_thread() is not threading.main_thread():
            raise ArithmeticError("in a thread")

    with pytest.raises(ArithmeticError, match="in a thread"):
        over_chunks(kernel, 2, threads=2)


def test_as_many_threads_as_numba_would_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 5)
    assert thread_count() == 5


@pytest.fixture
def always_threaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads, for little work too."""
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 3)
    monkeypatch.setattr(topic_kernels, "PARALLEL_FROM", 0)
    monkeypatch.setattr(rating_kernels, "PARALLEL_RATINGS", 0)
    monkeypatch.setattr(rating_kernels, "PARALLEL_ROWS", 0)


def ratings_fit() -> np.ndarray:
    """Item factors of a small table."""
    made = make_ratings(6000, n_users=200, n_items=90, rank=2, seed=0).ratings
    return np.asarray(RatingFactorization(12, max_iter=2, random_state=0).fit(made).item_factors_)


def topics_fit() -> np.ndarray:
    """Topics of a few documents."""
    counts = np.random.default_rng(0).poisson(1.0, size=(60, 25)).astype(float)
    model = LatentDirichletAllocation(3, max_iter=3, random_state=0).fit(counts)
    return np.asarray(model.components_)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("always_threaded")
@pytest.mark.parametrize("fit", [ratings_fit, topics_fit])
def test_fits_in_many_threads_at_once(fit) -> None:  # type: ignore[no-untyped-def]
    alone = fit()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: fit(), range(4)):
            np.testing.assert_array_equal(found, alone)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("always_threaded")
def test_ratings_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ratings_fit()
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 1)
    np.testing.assert_array_equal(many, ratings_fit())


FORK = """
import os, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
import test_chunks
from dmfvi.models.ratings import kernels
kernels.PARALLEL_RATINGS = kernels.PARALLEL_ROWS = 0
before = test_chunks.ratings_fit()
child = os.fork()
if child == 0:
    os._exit(0 if (test_chunks.ratings_fit() == before).all() else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert (test_chunks.ratings_fit() == before).all()
sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_after_a_fit_can_fit() -> None:
    said = subprocess.run(
        [sys.executable, "-c", FORK, os.path.dirname(__file__)],
        env=os.environ | {"NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert said.returncode == 0, said.stderr
