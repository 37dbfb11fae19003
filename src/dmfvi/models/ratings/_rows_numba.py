"""Numba code that brings ratings into rows and columns; imported only when it is used."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from dmfvi.jit import njit


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def sum_table_rows(first, last, indptr, columns, table, chunks, out):
    """out[n] = sum of table[columns] over row n, whatever the ratings; rows of chunks first..last-1."""
    width = table.shape[1]
    total = np.empty(width)
    for c in range(first, last):
        for row in range(chunks[c], chunks[c + 1]):
            for p in range(width):
                total[p] = 0.0
            for e in range(indptr[row], indptr[row + 1]):
                near = table[columns[e]]
                for p in range(width):
                    total[p] += near[p]
            for p in range(width):
                out[row, p] = total[p]


@njit(cache=True, error_model="numpy")
def _count_offsets(keys, n, indptr):
    """Where the entries of each key begin (``indptr``, n + 1 entries), and the same to count on."""
    for i in range(n + 1):
        indptr[i] = 0
    for e in range(len(keys)):
        indptr[keys[e] + 1] += 1
    for i in range(n):
        indptr[i + 1] += indptr[i]
    place = np.empty(n, np.int64)
    for i in range(n):
        place[i] = indptr[i]
    return place


@njit(cache=True, error_model="numpy")
def group_rows(rows, columns, codes, n_rows, indptr, out_columns, out_codes):
    """Counting sort of triples by row, stable; ``indptr`` has n_rows + 1 entries."""
    place = _count_offsets(rows, n_rows, indptr)
    for e in range(len(rows)):
        at = place[rows[e]]
        place[rows[e]] = at + 1
        out_columns[at] = columns[e]
        out_codes[at] = codes[e]


@njit(cache=True, error_model="numpy")
def transpose_rows(indptr, columns, codes, n_columns, out_indptr, out_columns, out_codes):
    """The same ratings by column, rows ascending."""
    place = _count_offsets(columns, n_columns, out_indptr)
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            at = place[columns[e]]
            place[columns[e]] = at + 1
            out_columns[at] = row
            out_codes[at] = codes[e]


@njit(cache=True, error_model="numpy")
def encode_grid(values, low, per_unit, out):
    """Codes of values on the grid low + code / per_unit; the first index that is not on it, or -1."""
    for e in range(len(values)):
        place = (values[e] - low) * per_unit
        code = np.rint(place)
        if abs(place - code) > 1e-4 or code > 255.0:
            return e
        out[e] = np.uint8(code)
    return -1


@njit(cache=True, error_model="numpy")
def first_outside(values, low, high):
    """The first index where a value is not within [low, high] (NaN never is), or -1."""
    for e in range(len(values)):
        if not (values[e] >= low and values[e] <= high):
            return e
    return -1


@njit(cache=True, error_model="numpy")
def merge_duplicates(indptr, columns, values, n_columns, new_indptr):
    """Means of repeated columns within a row, moved together in place; how many were repeated."""
    place, times = np.empty(n_columns, np.int64), np.zeros(n_columns, np.int64)
    for column in range(n_columns):
        place[column] = -1
    at = 0
    repeated = 0
    new_indptr[0] = 0
    for row in range(len(indptr) - 1):
        begin = at
        for e in range(indptr[row], indptr[row + 1]):
            column = columns[e]
            if place[column] >= begin:
                repeated += 1
                values[place[column]] += values[e]
            else:
                place[column] = at
                times[column] = 0
                columns[at] = column
                values[at] = values[e]
                at += 1
            times[column] += 1
        for e in range(begin, at):
            values[e] /= times[columns[e]]
        new_indptr[row + 1] = at
    return repeated


@njit(cache=True, error_model="numpy")
def count_duplicates(indptr, columns, n_columns):
    """How many entries repeat a column of the same row."""
    seen = np.empty(n_columns, np.int64)
    for column in range(n_columns):
        seen[column] = -1
    repeated = 0
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            if seen[columns[e]] == row:
                repeated += 1
            seen[columns[e]] = row
    return repeated
