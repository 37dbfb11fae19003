"""What a hidden state emits: Gaussians (full or diagonal) or symbols."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.families import Dirichlet, NormalGamma, NormalWishart
from dmfvi.families.base import Family
from dmfvi.families.normal import HALF_LOG_2PI
from dmfvi.inference.starts import consensus_kmeans
from dmfvi.linalg import FloatArray, unpack_symmetric
from dmfvi.models.mixture.model import (
    ComponentDensities,
    dense_rows,
    diagonal_components,
    fill_with_centres,
    full_components,
)
from dmfvi.models.mixture.shard import MixtureShard, blocks, quadratic_features, square_features

#: a node's side of agreeing on memberships (T, K)
Memberships = Generator[FloatArray, FloatArray, FloatArray]
MISSING = -1


class Emission(ABC):
    """One family of distributions of what is observed in a state."""

    @abstractmethod
    def prior(self, n_states: int) -> Family:
        """p(emission parameters), one per state."""

    @abstractmethod
    def memberships(
        self, observations: Any, n_states: int, rng: np.random.Generator
    ) -> Memberships:
        """First memberships from agreed sums."""

    @abstractmethod
    def scores(self, observations: Any, q: Any) -> FloatArray:
        """E[log p(x_t | k)] (T, K), zero for what is missing."""

    @abstractmethod
    def statistics(self, observations: Any, weight: FloatArray, q: Any) -> Family:
        """sum_t weight_tk of the natural statistics; ``q`` (None at the start) completes missing parts."""


@dataclass(frozen=True)
class RowEmission(Emission):
    """Gaussians; observations are a MixtureShard of standardised rows."""

    mean: FloatArray  # (D,)
    confidence: float
    dof: float
    inverse_scale: FloatArray  # prior scatter: (D, D), or (D,) for independent features
    start_covariance: FloatArray  # (D, D)

    def memberships(
        self, observations: MixtureShard, n_states: int, rng: np.random.Generator
    ) -> Memberships:
        data = dense_rows(observations, len(self.mean))
        clusters = yield from consensus_kmeans(data, n_states, self.start_covariance, rng)
        return clusters.memberships(data)


@dataclass(frozen=True)
class GaussianEmission(RowEmission):
    """Gaussians with full covariance."""

    def prior(self, n_states: int) -> NormalWishart:
        return full_components(self, n_states)

    def scores(self, observations: MixtureShard, q: NormalWishart) -> FloatArray:
        densities = _densities(q)
        out = np.zeros((observations.n_samples, len(densities.location)))
        for group in observations.groups:
            if not group.observed.any():
                continue
            score, _ = densities.marginal(group.observed)
            for part in blocks(group.values.shape[1], score.shape[1]):
                phi = quadratic_features(group.values[:, part])
                out[group.rows[part]] = (score @ phi).T
        return out

    def statistics(
        self, observations: MixtureShard, weight: FloatArray, q: NormalWishart | None
    ) -> NormalWishart:
        k, d = weight.shape[1], len(self.mean)
        count, first, second = np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d))
        if q is None and len(observations.groups) > 1:
            return _filled_statistics(observations, weight, d)
        for group in observations.groups:
            size = int(group.observed.sum())
            if size == 0:
                continue  # a missing observation adds nothing to its state's emission
            sums = np.zeros((k, 1 + size + size * (size + 1) // 2))
            for part in blocks(group.values.shape[1], sums.shape[1]):
                phi = quadratic_features(group.values[:, part])
                sums += weight[group.rows[part]].T @ phi.T
            n, one, two = sums[:, 0], sums[:, 1 : 1 + size], unpack_symmetric(sums[:, 1 + size :])
            if size < d:
                assert q is not None
                one, two = _densities(q).marginal(group.observed)[1](n, one, two)
            count, first, second = count + n, first + one, second + two
        return NormalWishart(first, -0.5 * count, -0.5 * second, 0.5 * count)


@dataclass(frozen=True)
class DiagonalGaussianEmission(RowEmission):
    """Gaussians with independent features."""

    def prior(self, n_states: int) -> NormalGamma:
        return diagonal_components(self, n_states)

    def scores(self, observations: MixtureShard, q: NormalGamma) -> FloatArray:
        linear, square, log_mean, scale = q.mean()
        constant = 0.5 * log_mean - HALF_LOG_2PI - 0.5 * square[..., 0, 0]
        out = np.empty((observations.n_samples, len(constant)))
        for group in observations.groups:
            o = group.observed
            score = np.column_stack([constant[:, o].sum(1), linear[:, o, 0], -0.5 * scale[:, o]])
            out[group.rows] = (score @ square_features(group.values)).T
        return out

    def statistics(
        self, observations: MixtureShard, weight: FloatArray, q: NormalGamma | None
    ) -> NormalGamma:
        shape = (weight.shape[1], len(self.mean))
        seen, first, second = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for group in observations.groups:
            o, size = group.observed, int(group.observed.sum())
            sums = weight[group.rows].T @ square_features(group.values).T
            seen[:, o] += sums[:, :1]
            first[:, o] += sums[:, 1 : 1 + size]
            second[:, o] += sums[:, 1 + size :]
        return NormalGamma(
            first[..., None], -0.5 * seen[..., None, None], 0.5 * seen, -0.5 * second
        )


@dataclass(frozen=True)
class CategoricalEmission(Emission):
    """Symbols 0..S-1; observations are integers, -1 where missing."""

    concentration: FloatArray  # (S,)

    def prior(self, n_states: int) -> Dirichlet:
        return Dirichlet.from_parameters(np.tile(self.concentration, (n_states, 1)))

    def memberships(
        self, observations: NDArray[np.int64], n_states: int, rng: np.random.Generator
    ) -> Memberships:
        """Each symbol is shared out over the states at random, the same at all nodes."""
        yield np.zeros(1)  # nothing to agree on: the draws are seeded alike
        shares = rng.dirichlet(np.full(n_states, 0.5), size=len(self.concentration))
        member = np.full((len(observations), n_states), 1.0 / n_states)
        seen = observations != MISSING
        member[seen] = shares[observations[seen]]
        return member

    def scores(self, observations: NDArray[np.int64], q: Dirichlet) -> FloatArray:
        padded = np.column_stack([q.expected.log, np.zeros(len(q.concentration_minus_one))])
        return padded.T[observations]  # -1 finds the column of zeros

    def statistics(
        self, observations: NDArray[np.int64], weight: FloatArray, q: Dirichlet | None
    ) -> Dirichlet:
        size = len(self.concentration)
        counts = [
            np.bincount(observations + 1, weights=weight[:, k], minlength=size + 1)[1:]
            for k in range(weight.shape[1])
        ]
        return Dirichlet(np.array(counts))


def _densities(q: NormalWishart) -> ComponentDensities:
    return ComponentDensities.given(q, np.zeros(len(q.negative_half_confidence)))


def _filled_statistics(shard: MixtureShard, weight: FloatArray, d: int) -> NormalWishart:
    """For a start: missing entries are their features' mean (zero), and vary as much as the feature."""
    data = dense_rows(shard, d)
    filled, missing = fill_with_centres(data, weight, np.zeros((weight.shape[1], d)))
    count = weight.sum(0)
    second = np.einsum("tk,ti,tj->kij", weight, filled, filled, optimize=True)
    second += (weight.T @ missing)[:, :, None] * np.eye(d)
    return NormalWishart(weight.T @ filled, -0.5 * count, -0.5 * second, 0.5 * count)
