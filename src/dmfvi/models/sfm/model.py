"""Bayesian affine structure from motion: points are global, cameras and their offsets are local.

    x_np ~ N(m_n . s_p + t_n, 1/tau)    m_n ~ N(0, I)    t_n flat    s_p ~ N(0, diag(alpha)^-1)
    alpha_k, tau ~ Gamma

It is Bayesian PCA in which one more factor has the loading 1 for every point: the offset t of a row is learned
together with its direction, so that a row needs no centroid. The likelihood is unchanged by m' = T m,
s' = T^-T (s - o), t' = t + m . o; after every sweep each node moves to the coordinates that maximise the bound
(o = mean of s; T as for PCA), and statistics leave it in the shared ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dmfvi.families import Gamma
from dmfvi.inference.expansion import ExpansionInput, rotating_change
from dmfvi.inference.model import Coroutine, Model, Update
from dmfvi.linalg import (
    FloatArray,
    inverse,
    log_det,
    pack_symmetric,
    relative_norm,
    symmetrize,
    unpack_symmetric,
)
from dmfvi.models.pca.belief import GammaPrior
from dmfvi.models.pca.start import agree_on_loadings
from dmfvi.models.sfm.shard import DIMENSIONS, AffineShard, Points
from dmfvi.tags import stored_as

PACKED = DIMENSIONS * (DIMENSIONS + 1) // 2
#: alternations of q(S) and q(alpha) on the same statistics, before and after the change of coordinates
STEPS_BEFORE, STEPS_AFTER = 2, 8
#: prior precision of every axis, in standardised units, while it is not learned yet
WARM_UP_PRECISION = 1e-2


@stored_as("affine-belief")
@dataclass(frozen=True)
class AffineBelief:
    """q(S), q(tau), q(alpha) in the node's own coordinates s' = axes^-T (s - origin)."""

    mean: FloatArray  # (P, 3)
    precision: FloatArray  # (P, 3, 3)
    covariance: FloatArray  # (P, 3, 3)
    noise: Gamma
    hyper: Gamma  # (3,)
    axes: FloatArray  # (3, 3)
    origin: FloatArray  # (3,)
    warm_up: int = 0  # sweeps for which alpha still stays vague
    total: FloatArray | None = None  # the statistics it was made from
    global_bound: float = float("nan")

    @property
    def noise_precision(self) -> float:
        """E[tau]."""
        return float(self.noise.expected.value)

    @property
    def points(self) -> Points:
        """What the E-step needs."""
        return Points(self.mean, self.covariance, self.noise_precision)


@stored_as("structure")
class Structure(NamedTuple):
    """Points with their uncertainty, and the noise of an image coordinate."""

    mean: FloatArray  # (P, 3)
    covariance: FloatArray  # (P, 3, 3)
    noise_precision: float

    @classmethod
    def of(cls, belief: AffineBelief, scale: float = 1.0) -> Structure:
        """A node's q(S) in the coordinates that all nodes share, in pixels: s = axes' s' + origin."""
        own = cls(belief.mean, belief.covariance, belief.noise_precision)
        shared = own.transformed(belief.axes.T)
        return cls(
            scale * (shared.mean + belief.origin),
            scale**2 * shared.covariance,
            belief.noise_precision / scale**2,
        )

    def transformed(self, matrix: FloatArray, origin: FloatArray | None = None) -> Structure:
        """s -> matrix (s - origin)."""
        moved = self.mean if origin is None else self.mean - origin
        return Structure(
            moved @ matrix.T, matrix @ self.covariance @ matrix.T, self.noise_precision
        )

    def normalised(self) -> Structure:
        """Around its middle and along its principal axes: the coordinates are free, the model does not know them."""
        middle = self.mean.mean(0)
        axes = np.linalg.svd(self.mean - middle, full_matrices=False)[2]
        turned = self.transformed(axes, middle)
        widest = turned.mean[np.abs(turned.mean).argmax(0), np.arange(DIMENSIONS)]
        return turned.transformed(np.diag(np.where(widest < 0, -1.0, 1.0)))

    def distance(self, other: Structure) -> float:
        """Largest relative difference of natural parameters, in normalised coordinates."""
        mine, theirs = self.normalised(), other.normalised()
        precision, reference = inverse(mine.covariance), inverse(theirs.covariance)
        linear = np.einsum("pij,pj->pi", precision, mine.mean)
        wanted = np.einsum("pij,pj->pi", reference, theirs.mean)
        return max(
            relative_norm(precision - reference, reference),
            relative_norm(linear - wanted, wanted),
            abs(mine.noise_precision / theirs.noise_precision - 1.0),
        )


@dataclass(frozen=True)
class AffineStatistics:
    """Statistics of the points from all rows, weighted by tau; the flat vector that nodes agree on."""

    rows: FloatArray  # (P, 3, 3)
    linear: FloatArray  # (P, 3)
    latent: FloatArray  # (3, 3)
    n_rows: float
    half_count: float
    half_residual: float
    bound: float

    def pack(self) -> FloatArray:
        """One flat vector."""
        tail = [self.n_rows, self.half_count, self.half_residual, self.bound]
        return np.concatenate(
            [
                pack_symmetric(self.rows).ravel(),
                self.linear.ravel(),
                pack_symmetric(self.latent),
                tail,
            ]
        )

    @classmethod
    def unpack(cls, flat: FloatArray, n_points: int) -> AffineStatistics:
        """Inverse of ``pack``."""
        parts = np.split(flat[:-4], np.cumsum([n_points * PACKED, n_points * DIMENSIONS]))
        rows = unpack_symmetric(parts[0].reshape(n_points, PACKED))
        linear = parts[1].reshape(n_points, DIMENSIONS)
        return cls(rows, linear, unpack_symmetric(parts[2]), *(float(v) for v in flat[-4:]))

    def seen_from(self, axes: FloatArray, origin: FloatArray) -> AffineStatistics:
        """In coordinates m' = axes m, s' = axes^-T (s - origin)."""
        return replace(
            self,
            rows=axes @ self.rows @ axes.T,
            linear=(self.linear - self.rows @ origin) @ axes.T,
            latent=axes @ self.latent @ axes.T,
        )

    def seen_back(self, axes: FloatArray, origin: FloatArray) -> AffineStatistics:
        """Inverse of ``seen_from``."""
        back = inverse(axes)
        rows = back @ self.rows @ back.T
        return replace(
            self,
            rows=rows,
            linear=self.linear @ back.T + rows @ origin,
            latent=back @ self.latent @ back.T,
        )


@dataclass(frozen=True)
class AffineModel(Model):
    """Affine structure from motion for standardised tracks; the estimator takes care of units."""

    n_points: int
    noise: GammaPrior = GammaPrior(1e-6, 1e-6)
    axes: GammaPrior = GammaPrior(1e-3, 1e-3)

    def start(self, shard: AffineShard, rng: np.random.Generator) -> Coroutine:
        """Structure from the agreed covariance of the points' tracks."""
        found = yield from agree_on_loadings(shard.spread, self.n_points, DIMENSIONS, rng)
        return self.begin(found.loadings, found.noise_precision, found.warm_up)

    def begin(self, structure: FloatArray, noise_precision: float, warm_up: int) -> AffineBelief:
        """A belief concentrated at a given structure (P, 3)."""
        precision = np.tile(1e6 * np.eye(DIMENSIONS), (self.n_points, 1, 1))
        shape = self.noise.shape + 0.5 * self.n_points
        belief = AffineBelief(
            structure - structure.mean(0),
            precision,
            inverse(precision),
            Gamma.from_parameters(shape, shape / noise_precision),
            Gamma.from_parameters(np.ones(DIMENSIONS), np.ones(DIMENSIONS)),
            np.eye(DIMENSIONS),
            np.zeros(DIMENSIONS),
            warm_up,
        )
        belief = replace(belief, hyper=self._hyper(belief))
        return replace(belief, global_bound=self._global_bound(belief))

    # -- the contract -----------------------------------------------------------------

    def local_step(self, shard: AffineShard, belief: AffineBelief) -> FloatArray:
        moments = shard.moments(belief.points)
        log_noise, tau = (float(v) for v in belief.noise.mean())
        bound = 0.5 * moments.n_observed * (log_noise - np.log(2 * np.pi))
        bound += moments.latent_bound - 0.5 * tau * moments.residual
        statistics = AffineStatistics(
            tau * moments.rows,
            tau * moments.linear,
            moments.latent,
            float(moments.n_rows),
            0.5 * moments.n_observed,
            0.5 * moments.residual,
            float(bound),
        )
        return statistics.seen_back(belief.axes, belief.origin).pack()

    def absorb(self, total: FloatArray, own: FloatArray, belief: AffineBelief) -> Update:
        shared = AffineStatistics.unpack(total, self.n_points)
        objective = shared.bound + belief.global_bound
        if not self._proper(shared):  # wait for more agreement
            return Update(belief, objective, True)
        noise = Gamma.from_parameters(
            self.noise.shape + shared.half_count, self.noise.rate + shared.half_residual
        )
        new = replace(
            belief,
            noise=noise,
            total=total,
        )
        try:
            new = self._moved(new, shared)
        except np.linalg.LinAlgError:  # proper on paper, singular in floating point
            return Update(belief, objective, True)
        new = replace(new, global_bound=self._global_bound(new), warm_up=max(0, belief.warm_up - 1))
        return Update(new, objective)

    def change(self, new: AffineBelief, old: AffineBelief) -> float:
        """Largest relative change of precision, mean times precision, and noise."""
        linear = np.einsum("pij,pj->pi", new.precision, new.mean)
        old_linear = np.einsum("pij,pj->pi", old.precision, old.mean)
        units = np.sqrt(linear**2 + np.diagonal(new.precision, axis1=-2, axis2=-1))
        return max(
            relative_norm(new.precision - old.precision, new.precision),
            relative_norm(linear - old_linear, units),
            abs(new.noise_precision / old.noise_precision - 1.0),
        )

    def posterior(self, belief: AffineBelief) -> Structure:
        """In the node's own coordinates, which maximise the bound; shared ones are free."""
        return Structure(belief.mean, belief.covariance, belief.noise_precision)

    def extrapolates(self, belief: AffineBelief) -> bool:
        return not belief.warm_up

    def blocks(self, total: FloatArray) -> Sequence[slice]:
        """Rows, linear, latent and the squared residual."""
        ends = np.cumsum([self.n_points * PACKED, self.n_points * DIMENSIONS, PACKED])
        parts = [slice(int(a), int(b)) for a, b in pairwise([0, *ends])]
        return [*parts, slice(len(total) - 2, len(total) - 1)]

    def implied_total(self, belief: AffineBelief) -> FloatArray | None:
        return belief.total

    def is_usable(self, belief: AffineBelief) -> bool:
        return bool(np.isfinite(belief.global_bound)) and bool(np.all(belief.hyper.in_domain()))

    # -- steps ------------------------------------------------------------------------

    def _moved(self, belief: AffineBelief, shared: AffineStatistics) -> AffineBelief:
        """q(S) and q(alpha), then the change of coordinates and both again."""
        here = shared.seen_from(belief.axes, belief.origin)
        before = self._update(belief, here, STEPS_BEFORE)
        origin = before.mean.mean(0)
        turn = self._turn(before, here, origin)
        after = replace(
            before,
            axes=turn @ before.axes,
            origin=before.origin + before.axes.T @ origin,
        )
        return self._update(after, here.seen_from(turn, origin), STEPS_AFTER)

    def _update(
        self, belief: AffineBelief, statistics: AffineStatistics, steps: int
    ) -> AffineBelief:
        for _ in range(steps):
            precision = statistics.rows + np.diag(belief.hyper.expected.value)
            covariance = symmetrize(inverse(precision))
            mean = np.einsum("pij,pj->pi", covariance, statistics.linear)
            belief = replace(belief, mean=mean, precision=precision, covariance=covariance)
            belief = replace(belief, hyper=self._hyper(belief))
        return belief

    def _turn(
        self, belief: AffineBelief, statistics: AffineStatistics, origin: FloatArray
    ) -> FloatArray:
        """T of Bayesian PCA's expansion for the structure around its middle."""
        spread = belief.covariance.sum(0)
        alpha = belief.hyper.expected.value
        return rotating_change(
            ExpansionInput(
                latent=statistics.latent,
                mean=belief.mean - origin,
                deviation=belief.mean - origin,
                covariance_sum=spread,
                gamma=self.n_points * np.eye(DIMENSIONS) - alpha[:, None] * spread,
                prior_precision=alpha,
                energy_slope=(self.axes.shape, self.axes.rate),
                n_latent=DIMENSIONS,
                n_samples=statistics.n_rows,
                turn_stiffness=np.zeros((DIMENSIONS, DIMENSIONS)),
            )
        )

    def _hyper(self, belief: AffineBelief) -> Gamma:
        """q(alpha_k) = Gamma(a + P/2, b + sum_p E[s_pk^2]/2); vague during the warm-up."""
        energy = (belief.mean**2).sum(0) + np.einsum("pkk->k", belief.covariance)
        shape = np.full(DIMENSIONS, self.axes.shape + 0.5 * self.n_points)
        rate = self.axes.rate + 0.5 * energy
        return Gamma.from_parameters(shape, shape / WARM_UP_PRECISION if belief.warm_up else rate)

    def _proper(self, statistics: AffineStatistics) -> bool:
        numbers = (statistics.half_residual, statistics.half_count, statistics.n_rows)
        finite = np.isfinite(statistics.rows).all() and np.isfinite(statistics.linear).all()
        if not finite or min(numbers) <= 0 or not np.isfinite(statistics.latent).all():
            return False
        scale = np.trace(statistics.rows, axis1=1, axis2=2).max()
        smallest = np.linalg.eigvalsh(statistics.rows)[:, 0].min()
        # rounding may leave a point that few rows see a trifle below zero
        return bool(smallest > -1e-12 * scale and np.linalg.eigvalsh(statistics.latent)[0] > 0.0)

    def _global_bound(self, belief: AffineBelief) -> float:
        """E[log p(S|alpha)] + H[q(S)] - KL(q(alpha)) - KL(q(tau))."""
        log_alpha, alpha = belief.hyper.mean()
        energy = (belief.mean**2).sum(0) + np.einsum("pkk->k", belief.covariance)
        bound = 0.5 * self.n_points * DIMENSIONS - 0.5 * float(log_det(belief.precision).sum())
        bound += float(np.sum(0.5 * self.n_points * log_alpha - 0.5 * alpha * energy))
        bound -= float(np.sum(belief.hyper.kl(self.axes.family((DIMENSIONS,)))))
        return bound - float(belief.noise.kl(self.noise.family()))
