"""A seeded generator of ratings shaped like the Netflix Prize's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dmfvi.chunks import over_chunks
from dmfvi.linalg import FloatArray

#: the Netflix Prize's training set
NETFLIX_USERS, NETFLIX_ITEMS, NETFLIX_RATINGS = 480_189, 17_770, 100_480_507
#: spread of log-popularity of films, and of log-activity of users
ITEM_SPREAD, USER_SPREAD = 1.9, 1.15
#: no user rates more than this part of the films
MOST_RATED = 0.7
CENTRE = 3.6
USER_BIAS, ITEM_BIAS, TASTE, NOISE = 0.42, 0.45, 0.45, 0.85
#: strength of each further direction of taste, relative to the one before
DECAY = 0.85
N_PARTS = 64


class RatingData(NamedTuple):
    """Ratings and the truth behind them: centre + z_u . w_i + b_u + c_i + noise, rounded and clipped."""

    ratings: sp.csr_matrix  # (users, items), single precision
    user_factors: FloatArray
    user_bias: FloatArray
    item_factors: FloatArray
    item_bias: FloatArray
    noise: float


def make_ratings(
    n_ratings: int = 1_000_000,
    *,
    n_users: int | None = None,
    n_items: int | None = None,
    rank: int = 12,
    noise: float = NOISE,
    scale: tuple[int, int] = (1, 5),
    seed: int = 0,
) -> RatingData:
    """Users x films with power-law activity and popularity, low-rank taste, biases and noise.

    Sizes that are not given follow the Netflix Prize: 209 ratings a user, and films in
    proportion to the ratings to the power 0.4. 100 million ratings take well under two minutes.

    Parameters
    ----------
    n_ratings : int
        Number of ratings.
    n_users, n_items : int or None
        Numbers of users and items; None: in the proportions above.
    rank : int
        Dimension of the taste.
    noise : float
        Standard deviation of the noise, before ratings are rounded to the scale.
    scale : tuple of two int
        Lowest and highest rating.
    seed : int
        Of the random numbers.
    """
    n_ratings, low, high = _checked(n_ratings, scale)
    if not noise >= 0:
        raise ValueError(f"noise must be a deviation >= 0, received {noise!r}")
    part = n_ratings / NETFLIX_RATINGS
    n_items = max(20, round(NETFLIX_ITEMS * part**0.4)) if n_items is None else int(n_items)
    most = max(1, int(MOST_RATED * n_items))
    if n_users is None:  # in a small set, so many that no user is near the most allowed
        n_users = max(round(NETFLIX_USERS * part), -(-10 * n_ratings // most))
    n_users = int(n_users)
    if n_users < 1 or n_items < 1 or rank < 0:
        raise ValueError(
            f"n_users and n_items must be positive and rank at least 0, received {n_users}, {n_items}, {rank}"
        )
    if n_ratings > n_users * most:
        raise ValueError(
            f"{n_ratings} ratings do not fit {n_users} users x {n_items} items "
            f"with at most {most} ratings a user: ask for more users or items"
        )
    rng = np.random.default_rng(seed)
    counts = _activity(n_ratings, n_users, most, rng)
    popularity = np.exp(ITEM_SPREAD * rng.standard_normal(n_items))
    # popular films are liked a little better, as they are everywhere
    liked = np.log(popularity) / ITEM_SPREAD
    item_bias = ITEM_BIAS * (0.35 * liked + np.sqrt(1 - 0.35**2) * rng.standard_normal(n_items))
    strengths = DECAY ** np.arange(rank)
    strengths *= TASTE / np.sqrt(np.sum(strengths**2)) if rank else 1.0
    user_factors = rng.standard_normal((n_users, rank))
    item_factors = rng.standard_normal((n_items, rank)) * strengths
    user_bias = USER_BIAS * rng.standard_normal(n_users)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    columns = np.empty(n_ratings, dtype=np.int32)
    values = np.empty(n_ratings, dtype=np.float32)
    accept, alias = _alias_table(popularity)
    from dmfvi.datasets._rating_generator_numba import draw_ratings

    over_chunks(
        draw_ratings,
        N_PARTS,
        np.uint64(rng.integers(2**63)),
        indptr,
        popularity,
        accept,
        alias,
        user_factors,
        user_bias,
        item_factors,
        item_bias,
        CENTRE if (low, high) == (1, 5) else 0.5 * (low + high),
        float(noise),
        float(low),
        float(high),
        N_PARTS,
        columns,
        values,
    )
    matrix = sp.csr_matrix((values, columns, indptr), shape=(n_users, n_items), copy=False)
    matrix.has_sorted_indices = True
    return RatingData(matrix, user_factors, user_bias, item_factors, item_bias, float(noise))


def split_ratings(
    ratings: Any, held_out: float = 0.1, *, seed: int = 0
) -> tuple[Any, tuple[NDArray[Any], NDArray[Any], FloatArray]]:
    """The others, and a random part of the ratings as (users, items, ratings).

    The others come as what was given: a sparse matrix, users x items, or (users, items, ratings) with any ids.

    Parameters
    ----------
    ratings : sparse matrix or tuple of arrays
        Users x items, or (users, items, ratings).
    held_out : float
        The part that is held out, on average.
    seed : int
        Of the random numbers.
    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must lie in (0, 1), received {held_out!r}")
    if isinstance(ratings, (tuple, list)) and len(ratings) == 3:
        parts = [np.asarray(part) for part in ratings]
        if len({len(part) for part in parts}) > 1:
            raise ValueError(
                f"users, items and ratings must be as many, received {[len(p) for p in parts]}"
            )
        taken = np.random.default_rng(seed).random(len(parts[0]), dtype=np.float32) < held_out
        users, items, values = (part[taken] for part in parts)
        return tuple(part[~taken] for part in parts), (users, items, values.astype(np.float64))
    if not sp.issparse(ratings):
        raise TypeError(
            "ratings must be a scipy sparse matrix, users x items, or (users, items, ratings), received "
            f"{type(ratings).__name__}"
        )
    matrix: sp.csr_matrix = ratings.tocsr()  # type: ignore[attr-defined]
    return _split_matrix(matrix, held_out, seed)


def _split_matrix(
    ratings: sp.csr_matrix, held_out: float, seed: int
) -> tuple[sp.csr_matrix, tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]]:
    chosen = np.random.default_rng(seed).random(ratings.nnz, dtype=np.float32) < held_out
    rows = np.repeat(np.arange(ratings.shape[0], dtype=np.int32), np.diff(ratings.indptr))
    test = (
        rows[chosen].astype(np.int64),
        ratings.indices[chosen].astype(np.int64),
        ratings.data[chosen].astype(np.float64),
    )
    rest = ~chosen
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[rest], minlength=ratings.shape[0]))])
    train = sp.csr_matrix(
        (ratings.data[rest], ratings.indices[rest], indptr), shape=ratings.shape, copy=False
    )
    return train, test


def _checked(n_ratings: int, scale: tuple[int, int]) -> tuple[int, int, int]:
    if int(n_ratings) != n_ratings or n_ratings < 1:
        raise ValueError(f"n_ratings must be a positive whole number, received {n_ratings!r}")
    low, high = scale
    if not low < high:
        raise ValueError(f"scale must be (lowest, highest), received {scale!r}")
    return int(n_ratings), int(low), int(high)


def _activity(
    n_ratings: int, n_users: int, most: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Ratings of each user, heavy-tailed, between 0 and ``most``, that add up."""
    weights = np.exp(USER_SPREAD * rng.standard_normal(n_users))
    share = weights * n_ratings / weights.sum()
    for _ in range(50):  # what the busiest may not have goes to the others
        over = share > most
        share[over] = most
        gap = n_ratings - share.sum()
        if gap < 0.5:
            break
        share[~over] *= 1.0 + gap / share[~over].sum()
    counts = np.minimum(np.floor(share), most).astype(np.int64)
    free = np.flatnonzero(counts < most)
    missing = n_ratings - int(counts.sum())
    while missing > 0:
        lucky = rng.permutation(free)[:missing]
        counts[lucky] += 1
        missing -= len(lucky)
        free = np.flatnonzero(counts < most)
    return counts


def _alias_table(weights: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Walker's alias table: draw a column, keep it with probability ``accept``, else its alias."""
    n = len(weights)
    accept = weights * n / weights.sum()
    alias = np.arange(n)
    small = [i for i in range(n) if accept[i] < 1.0]
    large = [i for i in range(n) if accept[i] >= 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        alias[low] = high
        accept[high] -= 1.0 - accept[low]
        if accept[high] < 1.0:
            small.append(large.pop())
    for i in (*small, *large):
        accept[i] = 1.0
    return accept, alias
