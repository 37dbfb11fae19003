"""Mixture of Bayesian PCAs (Ghahramani & Beal 2000), ARD inside each component.

    k_n ~ Categorical(pi)   x_n | k ~ N(W_k z~, 1/tau_k)   z_n ~ N(0, I)   pi ~ Dirichlet   W_k, tau_k as in Bayesian PCA

Each component is a Bayesian PCA whose sums are weighted by responsibilities r_nk; its update, switching off of unused
columns and change of coordinates are those of ``BayesianPcaModel``. Per row and component

    b_nk = n_obs/2 (E[log tau] - log 2 pi) - E[tau]/2 E|x_n - W_k z~|^2 - KL(q(z_n | k) || p(z)),  r_nk ~ exp(E[log pi_k] + b_nk)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dmfvi.families import Dirichlet
from dmfvi.inference.model import Broadcast, Coroutine, Model, Update
from dmfvi.inference.sensitivity import family_tilts
from dmfvi.inference.starts import consensus_kmeans
from dmfvi.linalg import (
    FloatArray,
    inverse,
    pack_symmetric,
    relative_norm,
    unpack_symmetric,
    upper_triangle,
)
from dmfvi.models.mixture.shard import normalise
from dmfvi.models.pca.belief import PcaBelief
from dmfvi.models.pca.kernels import latent_posteriors
from dmfvi.models.pca.model import LOG_2PI, BayesianPcaModel
from dmfvi.models.pca.posterior import PcaPosterior
from dmfvi.models.pca.statistics import PcaStatistics
from dmfvi.tags import stored_as

#: a component with fewer rows than this has switched off: its belief stays as it is
SWITCHED_OFF = 1e-6
#: sweeps before ARD may switch columns off
WARM_UP_SWEEPS = 5
#: updates of loadings and precisions at most, and the relative change at which they have settled
MOST_UPDATES, SETTLED = 200, 1e-13
#: least part of the average variance that a component's noise has at the start
NOISE_FLOOR = 1e-3


@dataclass(frozen=True)
class MixtureRows:
    """One node's standardised rows, zero where missing, and the mask of what is observed."""

    filled: FloatArray  # (n, D)
    mask: FloatArray | None  # (n, D), None when complete
    n_observed: FloatArray  # (n,)
    weight: FloatArray | None = None  # (n,): how many rows each counts for, one where None

    @classmethod
    def of(cls, data: FloatArray, weight: FloatArray | None = None) -> MixtureRows:
        """From rows with NaN for missing entries."""
        seen = np.isfinite(data)
        mask = None if seen.all() else seen.astype(np.float64)
        return cls(np.where(seen, data, 0.0), mask, seen.sum(1).astype(np.float64), weight)

    @property
    def data(self) -> FloatArray:
        """The rows with NaN for missing entries."""
        return self.filled if self.mask is None else np.where(self.mask > 0, self.filled, np.nan)


@dataclass(frozen=True)
class RowMoments:
    """For one component: E[z~] (n, K), E[z~ z~'] packed (n, P), E|x - W z~|^2 and KL(q(z)) of each row."""

    first: FloatArray
    second: FloatArray
    residual: FloatArray
    divergence: FloatArray


@stored_as("mixture-of-pca-belief")
@dataclass(frozen=True)
class MixturePcaBelief:
    """q(pi) and one Bayesian PCA belief per component."""

    weights: Dirichlet
    components: tuple[PcaBelief, ...]
    divergence: float


@dataclass(frozen=True)
class MixturePcaPosterior:
    """q(pi), and q(W, mu, tau) of each cluster in the data's units."""

    weights: Dirichlet
    clusters: tuple[PcaPosterior, ...]
    prior_weights: Dirichlet

    def aligned_to(self, other: MixturePcaPosterior) -> MixturePcaPosterior:
        """With the order and signs of columns that match ``other`` best."""
        pairs = zip(self.clusters, other.clusters, strict=True)
        return replace(self, clusters=tuple(mine.aligned_to(theirs) for mine, theirs in pairs))

    def distance(self, other: MixturePcaPosterior) -> float:
        """Largest relative difference of natural parameters over blocks and clusters.

        A cluster that has no rows in either has nothing to compare but its weight.
        """
        mine, theirs = (p.weights.concentration_minus_one for p in (self, other))
        worst = relative_norm(mine - theirs, theirs)
        rows = theirs - self.prior_weights.concentration_minus_one
        for a, b, count in zip(self.clusters, other.clusters, rows, strict=True):
            if count > SWITCHED_OFF:
                worst = max(worst, a.distance(b))
        return worst


@dataclass(frozen=True)
class MixtureOfPcaModel(Model):
    """The node loop's view of the mixture; all components share layout and prior."""

    n_clusters: int
    component: BayesianPcaModel
    weight_concentration: float
    start_covariance: FloatArray  # (D, D) of the standardised rows, for the start's centres

    @property
    def prior_weights(self) -> Dirichlet:
        """p(pi)."""
        return Dirichlet.from_parameters(np.full(self.n_clusters, self.weight_concentration))

    # -- the contract -----------------------------------------------------------------

    def local_step(self, shard: MixtureRows, belief: MixturePcaBelief) -> FloatArray:
        moments, share, log_sums = self.responsibilities(shard, belief)
        if shard.weight is not None:
            share, log_sums = shard.weight[:, None] * share, shard.weight * log_sums
        parts = [
            self._statistics(shard, b, m, r).pack(self.component.layout)
            for b, m, r in zip(belief.components, moments, share.T, strict=True)
        ]
        return np.append(np.concatenate(parts), log_sums.sum())

    def absorb(self, total: FloatArray, own: FloatArray, belief: MixturePcaBelief) -> Update:
        if not np.isfinite(total).all():
            return Update(belief, float("nan"), True)
        objective = float(total[-1]) - belief.divergence
        size = self.component.layout.size
        counts, made, limited = [], [], False
        for k, old in enumerate(belief.components):
            part = slice(k * size, (k + 1) * size)
            count = float(total[part][-2])
            counts.append(max(count, 0.0))
            if count < SWITCHED_OFF:
                made.append(old)
                continue
            new = self.component.absorb(total[part], own[part], old)
            limited = limited or new.limited
            made.append(new.belief)
        weights = Dirichlet(self.prior_weights.concentration_minus_one + np.array(counts))
        return Update(self.belief(weights, tuple(made)), objective, limited)

    def change(self, new: MixturePcaBelief, old: MixturePcaBelief) -> float:
        natural = new.weights.concentration_minus_one
        change = relative_norm(natural - old.weights.concentration_minus_one, natural)
        for a, b in zip(new.components, old.components, strict=True):
            if a is not b:
                change = max(change, self.component.change(a, b))
        return change

    @property
    def memoryless(self) -> bool:
        # a component without rows keeps its belief, which does not follow from the sum of statistics; near a fitted
        # belief, where linear response needs this, it stays without rows
        return not self.component.expansion

    def blocks(self, total: FloatArray) -> Sequence[slice]:
        size = self.component.layout.size
        return [
            slice(k * size + block.start, k * size + block.stop)
            for k in range(self.n_clusters)
            for block in (*self.component.layout.blocks, slice(size - 2, size - 1))
        ]

    def posterior(self, belief: MixturePcaBelief) -> MixturePcaPosterior:
        clusters = tuple(self.component.posterior(b) for b in belief.components)
        return MixturePcaPosterior(belief.weights, clusters, self.prior_weights)

    def posteriors(self, beliefs: Sequence[MixturePcaBelief]) -> list[MixturePcaPosterior]:
        """Columns in the same order and with the same signs at all nodes."""
        first, *others = super().posteriors(beliefs)
        return [first, *(p.aligned_to(first) for p in others)]

    # -- linear response --------------------------------------------------------------

    def for_response(self) -> MixtureOfPcaModel:
        return replace(self, component=self.component.for_response())

    def belief_from(
        self, total: FloatArray, own: FloatArray, belief: MixturePcaBelief
    ) -> MixturePcaBelief:
        """Loadings and the prior precisions of their columns follow from each other: both are updated until they settle."""
        for _ in range(MOST_UPDATES):
            before, belief = belief, self.absorb(total, own, belief).belief
            if self.change(belief, before) < SETTLED:
                break
        return belief

    def expected(self, belief: MixturePcaBelief) -> FloatArray:
        found = np.concatenate([*(self.component.expected(b) for b in belief.components), [0.0]])
        found[self._counts] = belief.weights.expected.log
        return found

    def tilts(
        self, belief: MixturePcaBelief, values: Callable[[MixturePcaBelief], FloatArray]
    ) -> FloatArray:
        """Of quantities of the clusters' E[W~] and q(tau), and of q(pi)."""
        parts = []
        for k, old in enumerate(belief.components):

            def of_cluster(new: PcaBelief, k: int = k) -> FloatArray:
                changed = (*belief.components[:k], new, *belief.components[k + 1 :])
                return values(replace(belief, components=changed))

            parts.append(self.component.tilts(old, of_cluster))
        found = np.concatenate([*parts, np.zeros((len(parts[0]), 1))], axis=1)
        found[:, self._counts] = family_tilts(
            belief.weights, lambda weights: values(replace(belief, weights=weights))
        )
        return found

    @property
    def _counts(self) -> slice:
        """Where the total has the number of rows of each cluster."""
        size = self.component.layout.size
        return slice(size - 2, self.n_clusters * size, size)

    # -- start ------------------------------------------------------------------------

    def belief(self, weights: Dirichlet, components: tuple[PcaBelief, ...]) -> MixturePcaBelief:
        """With what the bound loses to the global variables."""
        lost = float(weights.kl(self.prior_weights)) - sum(c.global_bound for c in components)
        return MixturePcaBelief(weights, components, lost)

    def start(self, shard: MixtureRows, rng: np.random.Generator) -> Coroutine:
        """Agreed k-means, then counts, means and covariances of its clusters: (K, 1 + D + D(D+1)/2) numbers."""
        data = shard.data
        clusters = yield from consensus_kmeans(
            data, self.n_clusters, self.start_covariance, rng, shard.weight
        )
        member = clusters.memberships(data)
        filled = np.where(np.isfinite(data), data, member @ clusters.centres)
        if shard.weight is not None:
            member = shard.weight[:, None] * member
        rows, columns = upper_triangle(data.shape[1])
        sums = np.column_stack(
            [member.sum(0), member.T @ filled, member.T @ (filled[:, rows] * filled[:, columns])]
        )
        total = (yield sums.ravel()).reshape(sums.shape)
        total[:, 1:] /= np.maximum(total[:, :1], 1e-9)
        mean = total[:, 1 : 1 + data.shape[1]]
        total[:, 1 + data.shape[1] :] -= mean[:, rows] * mean[:, columns]
        return self.begin((yield Broadcast(total.ravel())))

    def begin(self, summary: FloatArray) -> MixturePcaBelief:
        """Probabilistic PCA of each cluster, from its agreed moments (Tipping & Bishop 1999)."""
        d, m = self.component.layout.n_features, self.component.n_latent
        clusters = summary.reshape(self.n_clusters, -1)
        average = max(
            float(np.mean([np.trace(unpack_symmetric(c[1 + d :])) / d for c in clusters])), 1e-12
        )
        made = []
        for cluster in clusters:
            values, vectors = np.linalg.eigh(unpack_symmetric(cluster[1 + d :]))
            noise = max(float(values[: d - m].mean()) if d > m else 0.0, NOISE_FLOOR * average)
            strength = np.sqrt(np.maximum(values[::-1][:m] - noise, NOISE_FLOOR * average))
            loadings = vectors[:, ::-1][:, :m] * strength
            largest = np.abs(loadings).argmax(0)
            loadings = loadings * np.where(loadings[largest, np.arange(m)] < 0, -1.0, 1.0)
            begun = self.component.begin(loadings, 1.0 / noise, WARM_UP_SWEEPS)
            mean = begun.mean.copy()
            mean[:, m] = cluster[1 : 1 + d]
            made.append(replace(begun, mean=mean))
        counts = np.maximum(clusters[:, 0], 0.0)
        return self.belief(
            Dirichlet(self.prior_weights.concentration_minus_one + counts), tuple(made)
        )

    # -- rows -------------------------------------------------------------------------

    def responsibilities(
        self, shard: MixtureRows, belief: MixturePcaBelief
    ) -> tuple[list[RowMoments], FloatArray, FloatArray]:
        """Moments by component, r (n, K) and each row's part of the bound (n,)."""
        moments = [self._row_moments(shard, b) for b in belief.components]
        scores = np.stack(
            [
                0.5 * shard.n_observed * (float(b.noise.expected.log) - LOG_2PI)
                - 0.5 * b.noise_precision * m.residual
                - m.divergence
                for b, m in zip(belief.components, moments, strict=True)
            ]
        )
        scores += belief.weights.expected.log[:, None]
        log_sums = normalise(scores) if scores.size else np.zeros(0)
        return moments, scores.T, log_sums

    def _row_moments(self, shard: MixtureRows, b: PcaBelief) -> RowMoments:
        m, width = self.component.n_latent, self.component.layout.width
        n, d = shard.filled.shape
        tau = b.noise_precision
        covariance = np.broadcast_to(b.covariance, (d, width, width))
        second = b.mean[:, :, None] * b.mean[:, None, :] + covariance  # E[w~ w~'] by feature
        seen = np.ones((1, d)) if shard.mask is None else shard.mask
        by_row = seen @ pack_symmetric(second)  # (n or 1, P)
        inner = seen @ pack_symmetric(np.ascontiguousarray(second[:, :m, :m]))
        score = shard.filled @ b.mean[:, :m] - seen @ second[:, :m, m]
        if shard.mask is None:  # one precision for all rows
            precision = np.eye(m) + tau * unpack_symmetric(inner[0])
            shared = inverse(precision)
            z = tau * score @ shared
            spread, logs = pack_symmetric(shared)[None, :], np.linalg.slogdet(precision)[1]
        else:
            q = latent_posteriors(inner, score, tau)
            z, spread, logs = q.mean, q.covariance, q.log_precision
        extended = np.column_stack([z, np.ones(n)])
        first, other = upper_triangle(width)
        outer = extended[:, first] * extended[:, other]
        latent = (first < m) & (other < m)  # where the packed latent block lies
        outer[:, latent] += spread
        twice = np.where(first == other, 1.0, 2.0)
        residual = (shard.filled**2).sum(1) - 2.0 * np.einsum(
            "nd,nd->n", shard.filled, extended @ b.mean.T
        )
        residual += (outer * twice * by_row).sum(1)
        diagonal = np.flatnonzero((first == other) & latent)
        divergence = 0.5 * (outer[:, diagonal].sum(1) - m + logs)
        return RowMoments(extended, outer, residual, divergence)

    def _statistics(
        self, shard: MixtureRows, b: PcaBelief, moments: RowMoments, share: FloatArray
    ) -> PcaStatistics:
        """The component's sums, weighted by responsibilities, in shared coordinates."""
        weighted = share[:, None] * moments.second
        latent = unpack_symmetric(weighted.sum(0))
        rows = latent if shard.mask is None else unpack_symmetric(shard.mask.T @ weighted)
        linear = shard.filled.T @ (share[:, None] * moments.first)
        tau = b.noise_precision
        statistics = PcaStatistics(
            tau * rows,
            tau * linear,
            latent,
            0.5 * float(share @ shard.n_observed),
            0.5 * float(share @ moments.residual),
            float(share.sum()),
            0.0,
        )
        if not self.component.expansion:
            return statistics
        return statistics.in_coordinates(inverse(b.coordinates))
