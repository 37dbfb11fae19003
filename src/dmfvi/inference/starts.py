"""Starts from agreed sums only: units of the features, consensus k-means, and short runs from several starts.

Each is one node's coroutine (see ``Collective.run``): ``total = yield vector`` hands in sums over this node's rows
and receives the sums over all nodes' rows. No row is ever yielded.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dmfvi.inference.model import Coroutine, Model
from dmfvi.linalg import FloatArray, pack_symmetric, unpack_symmetric
from dmfvi.tags import stored_as

#: Lloyd steps, and sets of centres that are tried side by side in the same messages
LLOYD_STEPS, TRIES = 10, 8
#: temperature of memberships as a part of the agreed variance, and the least log share of a cluster in a row
SOFTNESS, LEAST_LOG_SHARE = 0.25, -30.0
#: rows below which a centre counts as empty, and the least variance in standardised units
LEAST_COUNT, LEAST_VARIANCE = 0.5, 1e-6
#: sweeps of a short run, and how many times its last gain a bound may still grow by
SHORT_RUN, GAINS_LEFT = 5, 20.0
#: bounds that differ by less than this part are the same
SAME_BOUND = 1e-7


@stored_as("feature-units")
@dataclass(frozen=True)
class FeatureUnits:
    """x' = (x - shift) / scale feature by feature, the same at all nodes."""

    shift: FloatArray  # (D,) agreed mean
    scale: FloatArray  # (D,) agreed standard deviation, one where there is none
    covariance: (
        FloatArray  # (D, D) of the standardised features; diagonal where entries are missing
    )
    n_samples: float
    n_observed: FloatArray  # (D,)

    @property
    def complete(self) -> bool:
        """Whether no entry is missing at any node."""
        return bool(np.all(np.abs(self.n_observed - self.n_samples) <= 1e-9 * self.n_samples))

    @property
    def log_volume(self) -> float:
        """What a log density of the data has over that of standardised data: -sum n_d log scale_d."""
        return -float(self.n_observed @ np.log(self.scale))

    def apply(self, data: FloatArray) -> FloatArray:
        """Standardise."""
        return np.asarray((data - self.shift) / self.scale)

    @property
    def scatter(self) -> FloatArray:
        """Sum over rows of (x - shift)(x - shift)' in the data's units (D, D); complete data only."""
        freedom = max(self.n_samples - 1.0, 1.0)
        return np.asarray(freedom * self.covariance * np.outer(self.scale, self.scale))

    @classmethod
    def of_moments(
        cls, shift: FloatArray, second: FloatArray, n_samples: float, counts: FloatArray
    ) -> FeatureUnits:
        """From means and covariance in the data's units; the scale of a constant column is its size."""
        variance = np.diag(second)
        constant = variance <= (1e-14 * np.maximum(np.abs(shift), 1e-300)) ** 2
        scale = np.where(
            constant, np.where(shift == 0, 1.0, np.abs(shift)), np.sqrt(np.maximum(variance, 0))
        )
        return cls(shift, scale, second / np.outer(scale, scale), n_samples, counts)

    def with_more(self, more: FeatureUnits) -> FeatureUnits:
        """Units of these rows and others together, without any of them (Chan, Golub & LeVeque 1983); complete data only."""
        n = self.n_samples + more.n_samples
        gap = more.shift - self.shift
        between = (self.n_samples * more.n_samples / n) * np.outer(gap, gap)
        second = (self.scatter + more.scatter + between) / max(n - 1.0, 1.0)
        shift = self.shift + (more.n_samples / n) * gap
        return FeatureUnits.of_moments(shift, second, n, self.n_observed + more.n_observed)


class AgreedMeans(NamedTuple):
    """Rows of all nodes, observed entries of each feature (D,), their means (D,), and whether nothing is missing."""

    n_samples: float
    counts: FloatArray
    means: FloatArray
    complete: bool


def agree_on_means(
    data: FloatArray, weight: FloatArray | None = None
) -> Generator[FloatArray, FloatArray, AgreedMeans]:
    """Counts and means of all features in one sum. A row of weight two counts as two rows."""
    seen, d = np.isfinite(data), data.shape[1]
    times = np.ones(len(data)) if weight is None else weight
    total = yield np.concatenate([[times.sum()], times @ np.where(seen, data, 0.0), times @ seen])
    n_samples, counts = float(total[0]), total[1 + d :]
    if weight is not None and not n_samples > 0:
        raise ValueError(
            "sample_weight is zero for all rows of all nodes: nothing is left to learn from"
        )
    if weight is None:  # whole numbers, whatever the consensus has left of rounding
        n_samples, counts = float(round(n_samples)), np.round(counts)
        if not n_samples:
            raise ValueError("no node has a row: nothing to learn from")
    few = counts < (0.5 if weight is None else 1e-12 * max(n_samples, 1e-300))
    if few.any():  # where each process has one node, only the sum knows
        unseen = ", ".join(str(j) for j in np.flatnonzero(few)[:5])
        raise ValueError(
            f"no node has an observed value of feature {unseen}: drop it at every node"
        )
    complete = bool((np.abs(counts - n_samples) <= 1e-9 * n_samples).all())
    return AgreedMeans(n_samples, counts, total[1 : 1 + d] / counts, complete)


def agree_on_units(
    data: FloatArray, weight: FloatArray | None = None
) -> Generator[FloatArray, FloatArray, FeatureUnits]:
    """Means, deviations and (complete data) the correlation of all features: two sums.

    A row of weight two counts as two rows.
    """
    n_samples, counts, shift, complete = yield from agree_on_means(data, weight)
    seen, times = np.isfinite(data), np.ones(len(data)) if weight is None else weight
    centred = np.where(seen, data - shift, 0.0)
    spread, d = times[:, None] * centred, data.shape[1]
    squares = pack_symmetric(centred.T @ spread) if complete else (centred * spread).sum(0)
    total = yield np.concatenate([spread.sum(0), squares])
    rest = total[:d] / counts  # what rounding left of the means
    if complete:
        scatter = unpack_symmetric(total[d:]) - n_samples * np.outer(rest, rest)
        second = scatter / max(n_samples - 1, 1)
    else:
        second = np.diag((total[d:] - counts * rest**2) / np.maximum(counts - 1, 1))
    shift = shift + rest
    return FeatureUnits.of_moments(shift, second, n_samples, counts)


@dataclass(frozen=True)
class Clusters:
    """Agreed centres (K, D) and the mean squared distance of an entry from its row's centre."""

    centres: FloatArray
    variance: float

    def memberships(self, data: FloatArray) -> FloatArray:
        """Memberships (n, K) of rows with NaN for missing: nearly hard, never quite.

        A hard membership of a single row would make a sum over rows that row itself.
        """
        return soft_memberships(Rows.of(data), self.centres, self.variance)[0]


@dataclass(frozen=True)
class Rows:
    """Rows with zero where missing, and the mask of what is observed."""

    filled: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, data: FloatArray) -> Rows:
        """From rows with NaN for missing entries."""
        seen = np.isfinite(data)
        return cls(np.where(seen, data, 0.0), seen.astype(np.float64))


def soft_memberships(
    rows: Rows, centres: FloatArray, variance: float
) -> tuple[FloatArray, FloatArray]:
    """r_nk ~ exp(-distance^2 / (2 SOFTNESS variance)), and the squared distances (n, K)."""
    square = (rows.filled**2).sum(1)[:, None] - 2.0 * rows.filled @ centres.T
    square += rows.weight @ (centres**2).T
    score = (square - square.min(1, keepdims=True)) / (-2.0 * SOFTNESS * variance)
    member = np.exp(np.maximum(score, LEAST_LOG_SHARE))
    return member / member.sum(1, keepdims=True), square


def consensus_kmeans(
    data: FloatArray,
    n_clusters: int,
    covariance: FloatArray,
    rng: np.random.Generator,
    weight: FloatArray | None = None,
) -> Generator[FloatArray, FloatArray, Clusters]:
    """Centres of standardised rows, NaN allowed: Lloyd's algorithm on agreed sums.

    The first centres are drawn from the agreed normal distribution N(0, covariance); several
    sets of them are improved side by side, and the one with the least spread wins.
    """
    rows, d = Rows.of(data), data.shape[1]
    centres = rng.standard_normal((TRIES, n_clusters, d)) @ _root(covariance).T
    direction = rng.standard_normal(d)
    variances = np.ones(TRIES)
    size = n_clusters * d
    for _ in range(LLOYD_STEPS):
        parts = []
        for one, variance in zip(centres, variances, strict=True):
            member, square = soft_memberships(rows, one, float(variance))
            if weight is not None:
                member = weight[:, None] * member
            sums = [member.T @ rows.filled, member.T @ rows.weight]
            parts += [*(s.ravel() for s in sums), member.sum(0), (member * square).sum(0)]
        total = (yield np.concatenate(parts)).reshape(TRIES, -1)
        sums_of, counts = (total[:, i * size : (i + 1) * size] for i in (0, 1))
        members, spread = total[:, 2 * size : 2 * size + n_clusters], total[:, -n_clusters:]
        for i in range(TRIES):
            seen, summed = counts[i].reshape(n_clusters, d), sums_of[i].reshape(n_clusters, d)
            moved = summed / np.maximum(seen, LEAST_COUNT)
            centres[i] = np.where(seen > LEAST_COUNT, moved, centres[i])
            # a centre without rows moves next to the one with the widest cluster
            widest = int(np.argmax(spread[i]))
            reach = np.sqrt(max(float(spread[i, widest] / members[i, widest]), 0.0) / d)
            for k in np.flatnonzero(members[i] < LEAST_COUNT):
                centres[i, k] = centres[i, widest] + reach * rng.standard_normal(d)
        observed = max(float(counts[0].sum()), 1.0)
        variances = np.maximum(spread.sum(1) / observed, LEAST_VARIANCE)
    # several sets often end in the same place: then the order must not depend on which of them is best
    best = int(np.argmin(variances))
    order = np.argsort(centres[best] @ direction)
    return Clusters(np.asarray(centres[best][order]), float(variances[best]))


def _root(covariance: FloatArray) -> FloatArray:
    """The symmetric root of a covariance, which may be singular.

    It is continuous: nodes and engines whose sums differ in the last bit draw the same centres. Eigenvectors of equal
    eigenvalues, as standardised features have them, are not.
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


class ShortRun(NamedTuple):
    """Where a few sweeps have led, and the bound that more of them may reach."""

    belief: Any
    promise: float


def best_of_short_runs(model: Model, shard: Any, seed: int) -> Coroutine:
    """Of a model's starts after the first the one with the highest bound after a few sweeps, with these sweeps done.

    Short runs (Biernacki, Celeux & Govaert 2003, *Comput. Stat. Data Anal.* 41). All of them share every sum.
    """
    kinds = model.starts()[1:]
    beliefs = yield from side_by_side(
        [kind.start(shard, np.random.default_rng(seed)) for kind in kinds]
    )
    bounds = np.full((SHORT_RUN, len(kinds)), -np.inf)
    for sweep in range(SHORT_RUN):
        own = [model.statistics(shard, belief) for belief in beliefs]
        totals = np.split((yield np.concatenate(own)), len(own))
        made = [model.absorb(*each) for each in zip(totals, own, beliefs, strict=True)]
        beliefs = [each.belief for each in made]
        bounds[sweep] = [each.objective for each in made]
    # a run without a bound is worse than any other
    best, last = 0, np.where(np.isnan(bounds[-1]), -np.inf, bounds[-1])
    for number, bound in enumerate(last):
        if is_better(bound, last[best]):
            best = number
    gain = max(last[best] - bounds[-2, best], 0.0)
    return ShortRun(beliefs[best], float(last[best] + GAINS_LEFT * gain))


def is_better(bound: float, than: float) -> bool:
    """Whether a bound is higher by more than what two ways to the same optimum differ by."""
    return bool(bound > than + SAME_BOUND * abs(than)) if np.isfinite(than) else bool(bound > than)


def side_by_side(coroutines: Sequence[Any]) -> Generator[FloatArray, FloatArray, list[Any]]:
    """What several coroutines that yield plain sums return; what they yield at the same time travels as one vector.

    Anything else counts as returned already.
    """
    returned = list(coroutines)
    received: dict[int, FloatArray | None] = {
        number: None for number, each in enumerate(coroutines) if isinstance(each, Generator)
    }
    while received:
        yielded: dict[int, FloatArray] = {}
        for number, total in received.items():
            try:
                yielded[number] = coroutines[number].send(total)
            except StopIteration as end:
                returned[number] = end.value
        if yielded:
            ends = np.cumsum([len(part) for part in yielded.values()])[:-1]
            total = yield np.concatenate(list(yielded.values()))
            received = dict(zip(yielded, np.split(total, ends), strict=True))
        else:
            received = {}
    return returned
