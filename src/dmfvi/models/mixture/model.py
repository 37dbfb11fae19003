"""Bayesian Gaussian mixture (Attias 2000; Bishop 2006, section 10.2), missing entries marginalised.

    z_n ~ Categorical(pi)   x_n | z_n = k ~ N(mu_k, L_k^-1)   pi ~ Dirichlet   (mu_k, L_k) ~ NormalWishart

With ``diagonal`` each feature of each component has its own NormalGamma. The missing part of a row is a local
variable: q(x_m | z = k) is normal with precision E[L]_mm, so its mean and spread enter the statistics.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmfvi.families import Dirichlet, NormalGamma, NormalWishart, Product
from dmfvi.families.base import Family
from dmfvi.families.normal import HALF_LOG_2PI
from dmfvi.inference.model import ConjugateModel, Coroutine, Statistics
from dmfvi.inference.starts import consensus_kmeans
from dmfvi.linalg import FloatArray, inverse, log_det, pack_symmetric, unpack_symmetric
from dmfvi.models.mixture.scattered import moments_of
from dmfvi.models.mixture.shard import (
    MixtureShard,
    PatternGroup,
    blocks,
    normalise,
    quadratic_features,
    quadratic_weights,
    square_features,
)

#: of memberships that look random: waves in a deviation of a feature, and their height on the scale of the logit
WAVE_NUMBER, WAVE_HEIGHT = 1000.0, 2.0


@dataclass(frozen=True)
class Moments:
    """Per component: sum of r, r E[x] and r E[x x'], where r are responsibilities."""

    count: FloatArray  # (K,)
    first: FloatArray  # (K, D)
    second: FloatArray  # (K, D, D)


def full_components(prior: Any, k: int) -> NormalWishart:
    """k times the prior (mean, confidence, dof, inverse_scale) of correlated features."""
    scatter = prior.inverse_scale + prior.confidence * np.outer(prior.mean, prior.mean)
    return NormalWishart(
        np.tile(prior.confidence * prior.mean, (k, 1)),
        np.full(k, -0.5 * prior.confidence),
        np.tile(-0.5 * scatter, (k, 1, 1)),
        np.full(k, 0.5 * (prior.dof - len(prior.mean))),
    )


def diagonal_components(prior: Any, k: int) -> NormalGamma:
    """k times the prior (mean, confidence, dof, inverse_scale) of independent features."""
    every = np.ones((k, len(prior.mean)))
    return NormalGamma.from_parameters(
        (prior.mean * every)[..., None],
        prior.confidence * every[..., None, None],
        0.5 * prior.dof * every,
        0.5 * prior.inverse_scale * every,
    )


@dataclass(frozen=True)
class Mixture(ConjugateModel):
    """Mixture with one prior for all components, for standardised rows."""

    n_components: int
    weight_concentration: float
    mean: FloatArray  # (D,)
    confidence: float
    dof: float
    inverse_scale: FloatArray  # prior scatter: (D, D), or (D,) for independent features
    start_covariance: FloatArray  # (D, D) of the standardised rows, for the start's centres
    mixed_start: bool = False  # memberships that have nothing to do with clusters
    start_clusters: int | None = (
        None  # components that the start gives rows to; None is all of them
    )

    @property
    def n_features(self) -> int:
        """D."""
        return len(self.mean)

    @property
    def prior(self) -> Product:
        weights = Dirichlet.from_parameters(np.full(self.n_components, self.weight_concentration))
        return Product(weights=weights, components=self._components())

    def restarted(self, number: int) -> Mixture:
        """Every second start has mixed memberships: clusters of two seeds are often the same, and components that overlap are no clusters."""
        return replace(self, mixed_start=number % 2 == 1)

    def starts(self) -> list[Mixture]:
        """Clusters for all components, two thirds of them, two thirds of those, ... and one; the others begin without rows.

        Sweeps hardly ever empty a component that the data do not support: the bound has another optimum with it.
        """
        counts = [self.n_components]
        while counts[-1] > 1:
            counts.append(2 * counts[-1] // 3)
        return [replace(self, start_clusters=count) for count in counts]

    def start(self, shard: MixtureShard, rng: np.random.Generator) -> Coroutine:
        """Memberships of agreed k-means clusters, read as responsibilities; or those of ``mixed_memberships``."""
        data = dense_rows(shard, self.n_features)
        if self.mixed_start:
            filled, missing = np.nan_to_num(data), np.isnan(data).astype(np.float64)
            member = mixed_memberships(filled, self.n_components, rng)
            if shard.weight is not None:
                member = shard.weight[:, None] * member
            total = yield self._of_members(filled, missing, member).pack()
            return self.from_statistics(total)
        count = self.n_components if self.start_clusters is None else self.start_clusters
        clusters = yield from consensus_kmeans(
            data, count, self.start_covariance, rng, shard.weight
        )
        member = clusters.memberships(data)
        filled, missing = fill_with_centres(data, member, clusters.centres)
        member = np.pad(member, ((0, 0), (0, self.n_components - count)))
        if shard.weight is not None:
            member = shard.weight[:, None] * member
        total = yield self._of_members(filled, missing, member).pack()
        return self.from_statistics(total)

    @abstractmethod
    def _components(self) -> Family:
        """Prior of the components."""

    @abstractmethod
    def _of_members(self, filled: FloatArray, missing: FloatArray, member: FloatArray) -> Product:
        """Statistics of filled rows with given (weighted) memberships (n, K), at the start."""


@dataclass(frozen=True)
class GaussianMixture(Mixture):
    """Full Gaussians."""

    def _components(self) -> NormalWishart:
        return full_components(self, self.n_components)

    def _of_members(self, filled: FloatArray, missing: FloatArray, member: FloatArray) -> Product:
        second = np.einsum("nk,ni,nj->kij", member, filled, filled, optimize=True)
        # a missing entry varies about as much as the whole feature
        second += np.einsum("nk,ni->ki", member, missing)[:, :, None] * np.eye(self.n_features)
        return self._statistics(Moments(member.sum(0), member.T @ filled, second))

    def local_step(self, shard: MixtureShard, q: Product) -> Statistics:
        moments, bound = self._expected_moments(shard, q)
        return Statistics(self._statistics(moments), bound)

    def _statistics(self, m: Moments) -> Product:
        return Product(
            weights=Dirichlet(m.count),
            components=NormalWishart(m.first, -0.5 * m.count, -0.5 * m.second, 0.5 * m.count),
        )

    def _expected_moments(self, shard: MixtureShard, q: Product) -> tuple[Moments, float]:
        k, d = self.n_components, self.n_features
        total = Moments(np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d)))
        bound = 0.0
        densities = ComponentDensities.of(q)
        patterns, scattered = shard.by_work
        for rows in (part for each in scattered for part in each.blocks(k)):
            count, first, second, log_sum = moments_of(rows, densities)
            total = Moments(total.count + count, total.first + first, total.second + second)
            bound += log_sum
        for group in patterns:
            if not group.observed.any():
                continue  # a row without observed entries adds nothing
            score, complete = densities.marginal(group.observed)
            sums, log_sum = group_sums(group.values, score, weight=group.weight)
            bound += log_sum
            count, first, second = _unpacked_sums(sums, int(group.observed.sum()))
            if not group.observed.all():
                first, second = complete(count, first, second)
            total = Moments(total.count + count, total.first + first, total.second + second)
        return total, bound

    def responsibilities(self, shard: MixtureShard, q: Product) -> tuple[FloatArray, FloatArray]:
        """q(z_n = k) of every row (n, K), and each row's part of the bound (n,)."""
        out, logs = np.empty((shard.n_samples, self.n_components)), np.empty(shard.n_samples)
        densities = ComponentDensities.of(q)
        for group in shard.groups:
            score, _ = densities.marginal(group.observed)
            scores = score @ quadratic_features(group.values)
            logs[group.rows] = normalise(scores)
            out[group.rows] = scores.T
        return out, logs


@dataclass(frozen=True)
class ComponentDensities:
    """E[log pi_k] + E[log N(x | mu_k, L_k)] as coefficients of (1, x, x x')."""

    log_weight: FloatArray  # (K,)
    location: FloatArray  # (K, D)
    precision: FloatArray  # (K, D, D): E[L]
    constant: FloatArray  # (K,): E[log|L|]/2 - D / 2 confidence

    @classmethod
    def of(cls, q: Product) -> ComponentDensities:
        """From q(pi) and q(mu, L)."""
        return cls.given(q["components"], q["weights"].expected.log)

    @classmethod
    def given(cls, components: Family, log_weight: FloatArray) -> ComponentDensities:
        """From q(mu, L) and E[log pi]."""
        confidence = -2.0 * components.negative_half_confidence
        _, _, precision, log_mean = components.mean()
        d = components.scaled_mean.shape[-1]
        return cls(
            log_weight,
            components.scaled_mean / confidence[:, None],
            precision,
            0.5 * log_mean - 0.5 * d / confidence,
        )

    def marginal(self, observed: np.ndarray) -> tuple[FloatArray, Completion]:
        """Coefficients for the observed part of a row, and how to complete its moments."""
        o = np.flatnonzero(observed)
        m = np.flatnonzero(~observed)
        precision = self.precision[:, o[:, None], o]
        constant = self.log_weight + self.constant - HALF_LOG_2PI * len(o)
        completion = Completion(o, m, self.location, np.empty(0), np.empty(0))
        if len(m):
            hidden = self.precision[:, m[:, None], m]
            cross = self.precision[:, m[:, None], o]
            spread = inverse(hidden)
            slope = -spread @ cross
            precision = precision + np.swapaxes(cross, -1, -2) @ slope
            constant = constant - 0.5 * log_det(hidden)
            completion = Completion(o, m, self.location, slope, spread)
        centre = self.location[:, o]
        linear = np.einsum("kij,kj->ki", precision, centre)
        constant = constant - 0.5 * np.einsum("ki,ki->k", linear, centre)
        quadratic = quadratic_weights(len(o)) * pack_symmetric(precision)
        return np.column_stack([constant, linear, quadratic]), completion


@dataclass(frozen=True)
class Completion:
    """E[x_m | x_o, k] = location_m + slope (x_o - location_o), with covariance ``spread``."""

    observed: np.ndarray
    missing: np.ndarray
    location: FloatArray
    slope: FloatArray
    spread: FloatArray

    def __call__(
        self, count: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """First and second moments of whole rows from those of their observed parts."""
        k, d = self.location.shape
        o, m = self.observed, self.missing
        lift = np.zeros((k, d, 1 + len(o)))  # x = lift (1, x_o)
        lift[:, o, 1 + np.arange(len(o))] = 1.0
        lift[:, m[:, None], 1 + np.arange(len(o))] = self.slope
        lift[:, m, 0] = self.location[:, m] - np.einsum(
            "kij,kj->ki", self.slope, self.location[:, o]
        )
        bordered = np.empty((k, 1 + len(o), 1 + len(o)))
        bordered[:, 0, 0] = count
        bordered[:, 0, 1:] = bordered[:, 1:, 0] = first
        bordered[:, 1:, 1:] = second
        whole = lift @ bordered @ np.swapaxes(lift, -1, -2)
        whole[:, m[:, None], m] += count[:, None, None] * self.spread
        return np.einsum("kij,kj->ki", lift, bordered[:, 0]), whole


@dataclass(frozen=True)
class DiagonalGaussianMixture(Mixture):
    """Gaussians with independent features; missing entries drop out."""

    def _components(self) -> NormalGamma:
        return diagonal_components(self, self.n_components)

    def _of_members(self, filled: FloatArray, missing: FloatArray, member: FloatArray) -> Product:
        seen = 1.0 - missing
        filled = seen * filled
        sums = [member.T @ seen, member.T @ filled, member.T @ filled**2]
        return self._statistics(member.sum(0), *sums)

    def local_step(self, shard: MixtureShard, q: Product) -> Statistics:
        k, d = self.n_components, self.n_features
        count = np.zeros(k)
        seen, first, second = (np.zeros((k, d)) for _ in range(3))
        bound = 0.0
        for group in shard.groups:
            o, n_seen = group.observed, int(group.observed.sum())
            if n_seen == 0:
                continue
            scores = self._scores(q, group)
            sums, log_sum = group_sums(group.values, scores, square_features, group.weight)
            bound += log_sum
            count += sums[:, 0]
            seen[:, o] += sums[:, :1]
            first[:, o] += sums[:, 1 : 1 + n_seen]
            second[:, o] += sums[:, 1 + n_seen :]
        return Statistics(self._statistics(count, seen, first, second), bound)

    def responsibilities(self, shard: MixtureShard, q: Product) -> tuple[FloatArray, FloatArray]:
        """q(z_n = k) of every row (n, K), and each row's part of the bound (n,)."""
        out, logs = np.empty((shard.n_samples, self.n_components)), np.empty(shard.n_samples)
        for group in shard.groups:
            scores = self._scores(q, group) @ square_features(group.values)
            logs[group.rows] = normalise(scores)
            out[group.rows] = scores.T
        return out, logs

    def _statistics(
        self, count: FloatArray, seen: FloatArray, first: FloatArray, second: FloatArray
    ) -> Product:
        return Product(
            weights=Dirichlet(count),
            components=NormalGamma(
                first[..., None], -0.5 * seen[..., None, None], 0.5 * seen, -0.5 * second
            ),
        )

    def _scores(self, q: Product, group: PatternGroup) -> FloatArray:
        linear, square, log_mean, scale = q["components"].mean()
        o = group.observed
        constant = 0.5 * log_mean[:, o] - HALF_LOG_2PI - 0.5 * square[:, o, 0, 0]
        return np.column_stack(
            [q["weights"].expected.log + constant.sum(1), linear[:, o, 0], -0.5 * scale[:, o]]
        )


def group_sums(
    values: FloatArray,
    score: FloatArray,
    features: object = quadratic_features,
    weight: FloatArray | None = None,
) -> tuple[FloatArray, float]:
    """sum_n r_nk features_n (K, P) and sum_n log sum_k exp(score), block by block."""
    assert callable(features)
    total, log_sum = np.zeros_like(score), 0.0
    for part in blocks(values.shape[1], score.shape[1]):
        phi = features(values[:, part])
        scores = score @ phi
        logs = normalise(scores)
        if weight is not None:
            scores *= weight[part]
            logs = weight[part] * logs
        log_sum += float(logs.sum())
        total += scores @ phi.T
    return total, log_sum


def mixed_memberships(rows: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """Memberships (n, k) that look random, yet are functions of the row: softmax of waves much shorter than the rows' distances.

    The same wherever a row lies. Components begin with nearly the same mean and covariance, and part as the data want it.
    """
    waves = WAVE_NUMBER * rng.standard_normal((rows.shape[1], k))
    scores = WAVE_HEIGHT * np.sin(rows @ waves + rng.uniform(0.0, 2.0 * np.pi, k)).T
    normalise(scores)
    return np.asarray(scores.T)


def dense_rows(shard: MixtureShard, n_features: int) -> FloatArray:
    """The shard's rows with NaN for missing entries."""
    data = np.full((shard.n_samples, n_features), np.nan)
    for group in shard.groups:
        data[np.ix_(group.rows, group.observed)] = group.values.T
    return data


def fill_with_centres(
    data: FloatArray, member: FloatArray, centres: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Rows with missing entries taken from their centre, and where they were missing."""
    missing = np.isnan(data)
    return np.where(missing, member @ centres, data), missing.astype(np.float64)


def _unpacked_sums(sums: FloatArray, size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    return sums[:, 0], sums[:, 1 : 1 + size], unpack_symmetric(sums[:, 1 + size :])
