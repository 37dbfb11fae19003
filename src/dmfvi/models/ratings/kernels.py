"""The two passes of a sweep over ratings, and what surrounds them; the compiled code is in ``_kernels_numba`` and ``_rows_numba``.

A rating of row n (a user, say) and column d (an item) is x_nd = f_d . v_n + s_d + bias_n + noise. Both
sides have the same shape, so one record serves both: for each column, times its weight,

    E ff' packed | E f, 1 | E[s f], E s | E s^2        M(M+1)/2 + 2(M+1) + 1 numbers

in double precision where there are few ratings, else in single precision, which halves the memory that a sweep
reads: results then depend on the order of ratings by about 1e-7.

A row's posterior needs the sum of its columns' records (A and part of L) and the sum of
rating x (f, 1): A = sum E (f,1)(f,1)', L = sum x E(f,1) - E s(f,1), q = sum E (x - s)^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.chunks import over_chunks
from dmfvi.linalg import FloatArray

#: rows are shared out in so many parts whatever the number of threads: sums never depend on it
N_CHUNKS = 64
#: rows and ratings that a chunk should have at least
LEAST_ROWS, LEAST_RATINGS = 32, 1024
#: ratings over all nodes up to which records are in double precision
MOST_DOUBLE = 1_000_000
#: users whose sums are kept at a time
BATCH = 1 << 14
GRAIN = 8
#: ratings and rows from which more than one thread is worth waking
PARALLEL_RATINGS, PARALLEL_ROWS = 1 << 19, 1 << 12


@dataclass(frozen=True)
class RecordLayout:
    """How the record of a row with M factors and a bias is laid out."""

    n_factors: int
    double: bool = True  # in double precision

    @classmethod
    def of(cls, n_factors: int, n_ratings: float) -> RecordLayout:
        """For so many ratings over all nodes."""
        return cls(n_factors, n_ratings <= MOST_DOUBLE)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """Of the numbers in a record."""
        return np.float64 if self.double else np.float32

    @property
    def width(self) -> int:
        """K = M + 1: factors and bias."""
        return self.n_factors + 1

    @property
    def triangle(self) -> int:
        """K(K+1)/2."""
        return self.width * (self.width + 1) // 2

    @property
    def sums(self) -> int:
        """Numbers per row that the item pass gives: A packed (factors first, then bias) and L."""
        return self.triangle + self.width

    @property
    def lead(self) -> tuple[int, ...]:
        """Grains that the rating does not multiply."""
        return (0,) * ((self.triangle - self.width) // GRAIN)

    @property
    def rest(self) -> tuple[int, ...]:
        """The other grains."""
        return (0,) * (self.size // GRAIN - len(self.lead))

    @property
    def size(self) -> int:
        """Length of a record, a multiple of two grains."""
        return -(-(self.sums + 1) // (2 * GRAIN)) * 2 * GRAIN


class RatingRows(NamedTuple):
    """Ratings row by row; a rating is offset + step x code."""

    indptr: NDArray[np.int64]
    columns: NDArray[Any]
    codes: NDArray[Any]
    offset: float
    step: float

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def n_ratings(self) -> int:
        """Number of ratings."""
        return len(self.columns)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Ratings in each row."""
        return np.diff(self.indptr)

    def values(self) -> FloatArray:
        """The ratings themselves."""
        return np.asarray(self.offset + self.step * self.codes.astype(np.float64))

    def in_units(self, shift: float, scale: float) -> RatingRows:
        """Ratings as (x - shift) / scale."""
        return self._replace(offset=(self.offset - shift) / scale, step=self.step / scale)

    def slice(self, begin: int, end: int) -> RatingRows:
        """Rows begin..end, without a copy of the ratings."""
        low, high = int(self.indptr[begin]), int(self.indptr[end])
        return self._replace(
            indptr=self.indptr[begin : end + 1] - low,
            columns=self.columns[low:high],
            codes=self.codes[low:high],
        )

    def take(self, chosen: NDArray[np.int64]) -> RatingRows:
        """A copy of some rows."""
        counts = self.counts[chosen]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        where = np.repeat(self.indptr[chosen] - indptr[:-1], counts) + np.arange(indptr[-1])
        return self._replace(indptr=indptr, columns=self.columns[where], codes=self.codes[where])

    def transposed(self, n_columns: int) -> RatingRows:
        """The same ratings by column."""
        from dmfvi.models.ratings._rows_numba import transpose_rows

        indptr = np.empty(n_columns + 1, dtype=np.int64)
        rows = np.empty(self.n_ratings, dtype=index_type(self.n_rows))
        codes = np.empty_like(self.codes)
        transpose_rows(self.indptr, self.columns, self.codes, n_columns, indptr, rows, codes)
        return self._replace(indptr=indptr, columns=rows, codes=codes)


def index_type(size: int) -> type[np.unsignedinteger[Any]] | type[np.signedinteger[Any]]:
    """The shortest integer that can number so many rows."""
    return np.uint16 if size <= 2**16 else np.int32


def grouped(
    rows: NDArray[Any],
    columns: NDArray[Any],
    codes: NDArray[Any],
    n_rows: int,
    n_columns: int,
    offset: float,
    step: float,
) -> RatingRows:
    """Triples row by row, in one counting sort."""
    from dmfvi.models.ratings._rows_numba import group_rows

    indptr = np.empty(n_rows + 1, dtype=np.int64)
    out_columns = np.empty(len(columns), dtype=index_type(n_columns))
    out_codes = np.empty_like(codes)
    group_rows(rows, columns, codes, n_rows, indptr, out_columns, out_codes)
    return RatingRows(indptr, out_columns, out_codes, offset, step)


def _threads(many: bool) -> int | None:
    """All threads for much work, one for little: on a busy machine waiting for another costs more."""
    return None if many else 1


def _by_precision(records: NDArray[Any]) -> tuple[NDArray[np.float32], FloatArray]:
    """The records where their precision belongs, and nothing in the other position."""
    if records.dtype == np.float32:
        return records, np.empty((0, records.shape[1]))
    return np.empty((0, records.shape[1]), dtype=np.float32), records


class RowPosteriors(NamedTuple):
    """Means (n, K), packed covariances (n, K(K+1)/2), log-determinants of precisions, records."""

    mean: FloatArray
    covariance: FloatArray
    log_precision: FloatArray
    records: NDArray[Any]


class NoisePrior(NamedTuple):
    """Gamma(shape, rate) of each row's noise precision; ``steps`` = 0: certainly shape/rate."""

    shape: float
    rate: float
    steps: int


class UserPass(NamedTuple):
    """What the user pass gives: posteriors as far as they were asked for, and sums over users."""

    records: NDArray[Any]
    mean: FloatArray
    covariance: NDArray[np.float32]  # empty unless asked for
    noise: FloatArray  # (n, 2) shape and rate; empty unless asked for
    second: FloatArray  # sum E vv', packed
    residual: float
    weight: float  # sum E g
    log_weight: float  # sum E log g
    bound: float


def even_chunks(n: int) -> NDArray[np.int64]:
    """Rows in parts of equal length, whole lanes each."""
    parts = max(1, min(N_CHUNKS, n // LEAST_ROWS))
    inner = (n * np.arange(1, parts) // parts) // GRAIN * GRAIN
    return np.concatenate([[0], inner, [n]]).astype(np.int64)


def row_chunks(indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows in parts with about equally many ratings."""
    n = len(indptr) - 1
    parts = max(1, min(N_CHUNKS, n // LEAST_ROWS))
    inner = np.searchsorted(indptr, indptr[-1] * np.arange(1, parts) / parts)
    return np.unique(np.concatenate([[0], inner, [n]])).astype(np.int64)


def row_sums(rows: RatingRows, records: NDArray[Any], layout: RecordLayout) -> FloatArray:
    """For each row A packed, L and q over its ratings, (n, K(K+1)/2 + K + 1)."""
    from dmfvi.models.ratings._kernels_numba import sum_ratings

    out = np.zeros((rows.n_rows, layout.sums + 1))
    parts = max(1, min(N_CHUNKS, rows.n_ratings // LEAST_RATINGS))
    cuts = (rows.n_ratings * np.arange(parts + 1)) // parts
    carried = np.zeros((parts, layout.sums + 1))
    over_chunks(
        sum_ratings,
        parts,
        rows.indptr,
        rows.columns,
        rows.codes,
        rows.offset,
        rows.step,
        records,
        layout.n_factors,
        layout.lead,
        layout.rest,
        cuts,
        out,
        carried,
        threads=_threads(rows.n_ratings >= PARALLEL_RATINGS),
    )
    begun = np.searchsorted(rows.indptr, cuts[:-1], side="right") - 1
    for part, row in enumerate(begun):  # rows that were cut
        if row < rows.n_rows and rows.indptr[row] < cuts[part]:
            out[row] += carried[part]
    return out


def item_pass(rows: RatingRows, user_records: NDArray[Any], layout: RecordLayout) -> FloatArray:
    """For each item A packed and L, (n_items, K(K+1)/2 + K), weighted by the users' precisions."""
    return row_sums(rows, user_records, layout)[:, :-1]


def user_pass(
    rows: RatingRows,
    item_records: NDArray[Any],
    prior_mean: FloatArray,
    prior_precision: FloatArray,
    noise: NoisePrior,
    layout: RecordLayout,
    keep: bool = False,
) -> UserPass:
    """q(z, b) and q(g) of every user; ``keep`` gives covariances and noise, else records.

    In batches of users, so that their sums stay in the cache.
    """
    n, width = prior_mean.shape
    records = np.zeros((0 if keep else n, layout.size), dtype=layout.dtype)
    mean = np.empty((n, width))
    covariance = np.empty((n if keep else 0, layout.triangle), dtype=np.float32)
    noise_out = np.empty((n if keep else 0, 2))
    total = np.zeros(layout.triangle + 4)
    for begin in range(0, n, BATCH):
        batch = slice(begin, min(begin + BATCH, n))
        part = rows.slice(batch.start, batch.stop)
        sums = row_sums(part, item_records, layout)
        out = records[batch], mean[batch], covariance[batch], noise_out[batch]
        total += solve_users(sums, part.counts, prior_mean[batch], prior_precision, noise, out)
    residual, weight, log_weight, bound = (float(v) for v in total[-4:])
    return UserPass(
        records, mean, covariance, noise_out, total[:-4], residual, weight, log_weight, bound
    )


def solve_users(
    sums: FloatArray,
    counts: NDArray[np.int64],
    prior_mean: FloatArray,
    prior_precision: FloatArray,
    noise: NoisePrior,
    out: tuple[NDArray[Any], FloatArray, NDArray[np.float32], FloatArray],
) -> FloatArray:
    """Fill ``out`` (records, mean, covariance, noise); sums of E vv', error, E g, E log g and bound."""
    from dmfvi.models.ratings._kernels_numba import solve_user_rows

    chunks = even_chunks(len(sums))
    totals = np.empty((len(chunks) - 1, sums.shape[1] - prior_mean.shape[1] - 1 + 4))
    sign, log_det = np.linalg.slogdet(prior_precision)
    assert sign > 0
    records, *others = out
    over_chunks(
        solve_user_rows,
        len(chunks) - 1,
        sums,
        counts,
        np.ascontiguousarray(prior_mean),
        np.ascontiguousarray(prior_precision),
        float(log_det),
        (float(noise.shape), float(noise.rate), int(noise.steps)),
        chunks,
        (*_by_precision(records), *others),
        totals,
        threads=_threads(len(sums) >= PARALLEL_ROWS),
    )
    return np.asarray(totals.sum(0))


def solve_items(
    sums: FloatArray, prior_mean: FloatArray, prior_precision: FloatArray, layout: RecordLayout
) -> RowPosteriors:
    """q(w, c) of every item: Lambda = P + A, Lambda m = P mu + L."""
    from dmfvi.models.ratings._kernels_numba import solve_item_rows

    n, width = prior_mean.shape
    mean = np.empty((n, width))
    covariance = np.empty((n, layout.triangle))
    log_precision = np.empty(n)
    records = np.zeros((n, layout.size), dtype=layout.dtype)
    chunks = even_chunks(n)
    over_chunks(
        solve_item_rows,
        len(chunks) - 1,
        np.ascontiguousarray(sums),
        np.ascontiguousarray(prior_mean),
        np.ascontiguousarray(prior_precision),
        chunks,
        mean,
        covariance,
        log_precision,
        *_by_precision(records),
        threads=_threads(n >= PARALLEL_ROWS),
    )
    return RowPosteriors(mean, covariance, log_precision, records)


def records_of(mean: FloatArray, covariance: FloatArray, layout: RecordLayout) -> Any:
    """Records of weight 1 for given posteriors."""
    s = layout.n_factors
    first, second = np.triu_indices(layout.width)
    moments = covariance + mean[:, first] * mean[:, second]
    free = (first < s) & (second < s)
    bias = (second == s) & (first < s)
    parts = [moments[:, free], mean[:, :s], np.ones((len(mean), 1)), moments[:, bias]]
    parts += [mean[:, s:], moments[:, -1:]]
    records = np.zeros((len(mean), layout.size), dtype=layout.dtype)
    filled = np.concatenate(parts, axis=1)
    records[:, : filled.shape[1]] = filled
    return records


def neighbour_sums(rows: RatingRows, table: FloatArray) -> FloatArray:
    """For each row the sum of the table's rows that it has rated."""
    from dmfvi.models.ratings._rows_numba import sum_table_rows

    out = np.empty((rows.n_rows, table.shape[1]))
    chunks, threads = row_chunks(rows.indptr), _threads(rows.n_ratings >= PARALLEL_RATINGS)
    table = np.ascontiguousarray(table)
    over_chunks(
        sum_table_rows,
        len(chunks) - 1,
        rows.indptr,
        rows.columns,
        table,
        chunks,
        out,
        threads=threads,
    )
    return out


class SideBeliefs(NamedTuple):
    """Means (n, K), packed covariances and, for users, the variance of the noise."""

    mean: NDArray[Any]
    covariance: NDArray[Any]
    noise: FloatArray | None = None


def predict(
    users: NDArray[np.int64], items: NDArray[np.int64], of_users: SideBeliefs, of_items: SideBeliefs
) -> tuple[FloatArray, FloatArray]:
    """Predictive means and variances of the pairs, in the fit's units."""
    from dmfvi.models.ratings._kernels_numba import predict_pairs

    assert of_users.noise is not None
    mean, variance = np.empty(len(users)), np.empty(len(users))
    over_chunks(
        predict_pairs,
        len(users),
        np.ascontiguousarray(users),
        np.ascontiguousarray(items),
        of_users.mean,
        of_users.covariance,
        of_users.noise,
        of_items.mean,
        of_items.covariance,
        mean,
        variance,
        threads=_threads(len(users) >= PARALLEL_RATINGS),
    )
    return mean, variance
