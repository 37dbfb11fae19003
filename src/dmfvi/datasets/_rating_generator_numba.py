"""Numba code of ``datasets.make_ratings``; every user draws from a stream of its own.

A stream is SplitMix64 (Steele, Lea, Flood 2014) started at a hash of seed and user, so the same seed
gives the same ratings on any number of threads.
"""
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from dmfvi.jit import njit

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: who rates more than one item in so many is busy: drawing until an item is new would take long
BUSY = 8


@njit(cache=True, error_model="numpy")
def _mix(state):
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit(cache=True, error_model="numpy")
def _uniform(bits):
    """In (0, 1)."""
    return (np.float64(bits >> np.uint64(11)) + 0.5) / 9007199254740992.0


@njit(cache=True, error_model="numpy")
def _sort(values):
    """In place, by Shell's method: short rows are sorted as fast as by NumPy's sort, which takes seconds to compile."""
    n = len(values)
    step = n
    while step > 1:
        step = 1 if step < 8 else step // 4
        for i in range(step, n):
            value = values[i]
            j = i
            while j >= step and values[j - step] > value:
                values[j] = values[j - step]
                j -= step
            values[j] = value


@njit(cache=True, nogil=True, error_model="numpy")
def draw_ratings(  # noqa: PLR0912
    first,
    last,
    seed,
    indptr,
    popularity,
    accept,
    alias,
    user_factors,
    user_bias,
    item_factors,
    item_bias,
    centre,
    noise,
    low,
    high,
    n_parts,
    columns,
    values,
):
    """Distinct items for every user, popular ones more often, and a rating for each; parts first..last-1 of the users."""
    n_users, n_items, rank = len(indptr) - 1, len(accept), user_factors.shape[1]
    seen = np.empty(n_items, np.int64)
    times, ranked = np.empty(n_items), np.empty(n_items)
    for part in range(first, last):
        for item in range(n_items):
            seen[item] = -1
        begin = np.searchsorted(indptr, indptr[-1] * part // n_parts)
        end = np.searchsorted(indptr, indptr[-1] * (part + 1) // n_parts)
        if part + 1 == n_parts:
            end = n_users
        for user in range(begin, end):
            state = _mix(seed ^ _mix(np.uint64(user) * GOLDEN))
            at = indptr[user]
            if (indptr[user + 1] - at) * BUSY > n_items:
                # the smallest of exponential times with rates = popularity come without repetition
                for item in range(n_items):
                    state += GOLDEN
                    times[item] = -math.log(_uniform(_mix(state))) / popularity[item]
                    ranked[item] = times[item]
                _sort(ranked)
                latest = ranked[indptr[user + 1] - at - 1]
                for item in range(n_items):
                    if times[item] <= latest and at < indptr[user + 1]:
                        columns[at] = item
                        at += 1
            while at < indptr[user + 1]:
                state += GOLDEN
                bits = _mix(state)
                # Walker's alias method: 32 bits choose the column, 32 whether to take its alias
                item = np.int64(((bits >> np.uint64(32)) * np.uint64(n_items)) >> np.uint64(32))
                if np.float64(bits & np.uint64(0xFFFFFFFF)) / 4294967296.0 >= accept[item]:
                    item = alias[item]
                if seen[item] == user:
                    continue
                seen[item] = user
                columns[at] = item
                at += 1
            _sort(columns[indptr[user] : indptr[user + 1]])
            for e in range(indptr[user], indptr[user + 1]):
                item = columns[e]
                state += GOLDEN
                first = _uniform(_mix(state))
                state += GOLDEN
                second = _uniform(_mix(state))
                normal = math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)
                value = centre + user_bias[user] + item_bias[item] + noise * normal
                for m in range(rank):
                    value += user_factors[user, m] * item_factors[item, m]
                values[e] = min(max(np.rint(value), low), high)
