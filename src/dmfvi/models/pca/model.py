"""Bayesian PCA (docs/mathematics.md; paper, section 3).

    x_nd ~ N(w~_d . z~_n, 1/tau_d)    w~_d = (w_d, mu_d)    z~_n = (z_n, 1)    z_n ~ N(0, I)
    w~_d ~ N(prior_d, diag(alpha, theta)^-1)    tau, alpha_m, theta ~ Gamma or fixed

tau_d is the same for all features, or one for each (factor analysis). W~ and tau are global, z local. alpha and theta follow from q(W~) alone. Each node works in its own
coordinates of z (``PcaBelief.coordinates``), which parameter expansion changes after every sweep;
statistics leave the node in the shared ones, so that expansion needs no message and no leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from dmfvi.families import Gamma
from dmfvi.inference.expansion import (
    ExpansionInput,
    general_change,
    located_change,
    rotating_change,
)
from dmfvi.inference.model import Coroutine, Model, Update
from dmfvi.inference.sensitivity import SMALL_STEP, family_tilts, gradient
from dmfvi.linalg import (
    FloatArray,
    inverse,
    log_det,
    max_step_definite,
    max_step_positive,
    relative_norm,
    symmetrize,
)
from dmfvi.models.pca.belief import GammaPrior, PcaBelief, PcaPrior
from dmfvi.models.pca.derivative import PcaDerivative
from dmfvi.models.pca.posterior import PcaPosterior
from dmfvi.models.pca.shard import Shard, Weights
from dmfvi.models.pca.start import WARM_UP_SWEEPS, SpectralStart, Units, agree_on_loadings
from dmfvi.models.pca.statistics import Layout, PcaStatistics

LOG_2PI = float(np.log(2 * np.pi))
#: alternations of q(W~) and q(alpha), q(theta) on the same statistics: at most, at most with one
#: precision per feature, and before the change of coordinates
HYPER_STEPS, HYPER_STEPS_PER_ROW, HYPER_STEPS_BEFORE = 10, 6, 2
HYPER_TOLERANCE = 1e-12
#: how far to go along a change of coordinates that is only near the optimum
STEP_FRACTIONS = (1.0, 0.5, 0.2, 0.05)
#: below this size of the change, bounds differ by their rounding: a choice by them would make 1e-8 of a difference
#: of 1e-15 between nodes and pooled data, so that the same part of every change is taken
SURE_CHANGE, SURE_FRACTION = 1e-5, 0.5
#: relative difference of bounds that is not rounding: components that are switched off can be turned without any
SURE_DIFFERENCE = 1e-12
#: part of the way to the domain's edge that a limited step goes
EDGE_FRACTION = 0.9
#: prior precision of every column, in standardised units, during the warm-up
WARM_UP_PRECISION = 1e-2
#: shape of the Gamma that stands for a fixed precision
FIXED_SHAPE = 1e15


@dataclass(frozen=True)
class BayesianPcaModel(Model):
    """Bayesian PCA for standardised data; posteriors are in the data's units."""

    layout: Layout
    n_latent: int
    covariance: Literal["full", "diag"] = "full"
    noise: Literal["shared", "feature", "per_node"] = "shared"
    prior: PcaPrior = field(default_factory=PcaPrior)
    expansion: bool = True
    init: Literal["spectral", "random"] = "spectral"
    data_units: Units | None = (
        None  # of the data that were standardised; None: the data are as they are
    )

    @property
    def units(self) -> Units:
        """What posteriors are translated back to."""
        return self.data_units or Units(np.zeros(self.layout.n_features))

    @property
    def with_mean(self) -> bool:
        """Whether the mean is part of W~."""
        return self.layout.width > self.n_latent

    # -- the contract -----------------------------------------------------------------

    def start(self, shard: Shard, rng: np.random.Generator) -> Coroutine:
        """Loadings from the agreed covariance, or random ones."""
        d, m = self.layout.n_features, self.n_latent
        found: SpectralStart = yield from agree_on_loadings(shard.spread, d, m, rng)
        loadings, noise, warm_up = found.loadings, found.noise_precision, found.warm_up
        if self.init == "random":
            loadings, noise, warm_up = rng.standard_normal((d, m)), 1.0, WARM_UP_SWEEPS
        location = self.prior.component_location
        if location is not None:
            # a prior that distinguishes the columns: turn the start towards it (orthogonal Procrustes)
            left, _, right = np.linalg.svd(loadings.T @ location)
            loadings = loadings @ left @ right
        return self.begin(loadings, noise, warm_up)

    def begin(self, loadings: FloatArray, noise_precision: float, warm_up: int = 0) -> PcaBelief:
        """A belief concentrated at given loadings (D, M), zero mean and a noise level.

        ``warm_up`` sweeps pass before alpha and theta are learned: from a poor start ARD would switch
        columns off before they have found their direction.
        """
        d, k = self.layout.n_features, self.layout.width
        mean = np.zeros((d, k))
        mean[:, : self.n_latent] = loadings
        prior_precision = np.ones(k)
        precision = (
            1e6 * np.eye(k) if self.layout.shared_rows else np.tile(1e6 * np.eye(k), (d, 1, 1))
        )
        belief = PcaBelief(
            mean,
            precision,
            inverse(precision),
            self._start_noise(noise_precision),
            prior_precision,
            Gamma.from_parameters(np.ones(k), np.ones(k)),
            np.eye(k),
            self.covariance == "diag",
            self.n_latent,
            warm_up,
        )
        shapes, rates = self._hyper_posterior(belief)
        hyper = Gamma.from_parameters(shapes, rates)
        belief = replace(belief, hyper=hyper, prior_precision=shapes / rates)
        return replace(belief, global_bound=self._global_bound(belief))

    def _start_noise(self, noise_precision: float) -> Gamma:
        prior = self.prior.noise
        if not isinstance(prior, GammaPrior):
            return self._fixed_noise(prior)
        # as vague as the knowledge of one sample
        if self.layout.noise_per_feature:
            shape = np.full(self.layout.n_features, prior.shape + 0.5)
        else:
            shape = np.asarray(prior.shape + 0.5 * self.layout.n_features)
        return Gamma.from_parameters(shape, shape / noise_precision)

    def local_step(self, shard: Shard, belief: PcaBelief) -> FloatArray:
        tau = belief.noise_precision
        weights = Weights(belief.mean, belief.covariance, tau, self.n_latent)
        moments = shard.moments(weights)
        log_noise = belief.noise.expected.log
        fit = moments.n_observed * (log_noise - LOG_2PI) - tau * moments.residual
        bound = 0.5 * float(np.sum(fit)) - moments.latent_kl
        if self.noise == "per_node":
            bound -= self._noise_kl(belief.noise)
        statistics = moments.weighted(tau, bound)
        if self.expansion:
            statistics = statistics.in_coordinates(inverse(belief.coordinates))
        return statistics.pack(self.layout)

    def absorb(self, total: FloatArray, own: FloatArray, belief: PcaBelief) -> Update:
        inside = self._inside_domain(total, belief)
        if inside is None:  # nothing usable yet: wait for more agreement
            return Update(belief, float("nan"), True)
        objective = float(total[-1]) + belief.global_bound
        total, limited = inside
        shared = PcaStatistics.unpack(total, self.layout)
        statistics = shared.in_coordinates(belief.coordinates) if self.expansion else shared
        noise_source = statistics
        if self.noise == "per_node":
            noise_source = PcaStatistics.unpack(own, self.layout)
        new = replace(
            belief,
            noise=self._noise_posterior(noise_source),
            total=total,
            own_noise=own[self.layout.half_counts.start : self.layout.half_residuals.stop],
        )
        try:
            new = self._from_statistics(new, statistics)
        except np.linalg.LinAlgError:  # proper on paper, singular in floating point
            return Update(belief, objective, True)
        left = max(0, belief.warm_up - 1)
        new = replace(new, global_bound=self._global_bound(new), warm_up=left)
        return Update(new, objective, limited)

    def _from_statistics(self, belief: PcaBelief, statistics: PcaStatistics) -> PcaBelief:
        """q(W~) and hyper-parameters, then the change of coordinates and both again."""
        last = HYPER_STEPS if self.layout.shared_rows else HYPER_STEPS_PER_ROW
        if not self.expansion:
            return self._update_rows(belief, statistics, last)
        before = self._update_rows(belief, statistics, HYPER_STEPS_BEFORE)
        if self.covariance == "full" or self.layout.shared_rows:
            change = self._change_of_coordinates(before, statistics)
            return self._moved(before, statistics, change, last)
        # a factorised q(W) with missing entries: the change is only near the optimum,
        # so it is taken as far as the bound does not fall
        identity = np.eye(self.layout.width)
        x = self._expansion_input(before, statistics)
        general = general_change(x)
        if general is not None and np.abs(general - identity).max() < SURE_CHANGE:
            change = identity + SURE_FRACTION * (general - identity)
            return self._moved(before, statistics, change, last)
        plain = self._moved(before, statistics, identity, last)
        here = self._bound_given(plain, statistics, 0.0)
        rounding = SURE_DIFFERENCE * (abs(here) + statistics.n_samples)
        candidate = rotating_change(x) if general is None else general
        unsure = plain
        for fraction in STEP_FRACTIONS:
            change = identity + fraction * (candidate - identity)
            sign, log_det_change = np.linalg.slogdet(change)
            if sign <= 0:
                continue
            moved = self._moved(before, statistics, change, last)
            turned = statistics.in_coordinates(change)
            gain = self._bound_given(moved, turned, float(log_det_change)) - here
            if gain > rounding:
                return moved
            # too small to be seen in the bound: a whole change may lead as far to the other side, for ever
            if fraction == SURE_FRACTION and gain >= -rounding:
                unsure = moved
        return unsure

    def _moved(
        self, belief: PcaBelief, statistics: PcaStatistics, change: FloatArray, steps: int
    ) -> PcaBelief:
        """The belief after a change of coordinates."""
        turned = replace(
            belief,
            coordinates=change @ belief.coordinates,
            prior_precision=self._turned_precisions(belief, change),
        )
        return self._update_rows(turned, statistics.in_coordinates(change), steps)

    def _turned_precisions(self, belief: PcaBelief, change: FloatArray) -> FloatArray:
        """E[alpha], E[theta] of the columns that a change of coordinates makes.

        Components that are switched off have nearly equal energies, and rounding decides how they are turned: with
        precisions that do not turn with them, it would also decide the posterior.
        """
        if belief.warm_up or self._prior_location() is not None:
            return belief.prior_precision
        back = inverse(change)
        second = belief.mean.T @ belief.mean + self._covariance_sum(belief)
        energies = np.einsum("ki,kl,li->i", back, second, back)
        learned, shapes, rates = self._hyper_prior
        shapes = shapes + 0.5 * self.layout.n_features * learned
        return np.asarray(shapes / (rates + 0.5 * learned * energies))

    def _bound_given(
        self, belief: PcaBelief, statistics: PcaStatistics, log_det_change: float
    ) -> float:
        """The bound up to what a change of coordinates cannot alter, for statistics in own coordinates."""
        m = self.n_latent
        second = belief.mean[:, :, None] * belief.mean[:, None, :] + belief.covariance
        fit = np.sum(belief.mean * statistics.linear) - 0.5 * np.sum(second * statistics.rows)
        latent = -0.5 * np.trace(statistics.latent[:m, :m]) + statistics.n_samples * log_det_change
        return float(fit + latent + self._global_bound(belief))

    def change(self, new: PcaBelief, old: PcaBelief) -> float:
        """Largest relative change of a block: precision, mean times precision, noise."""
        if new.precision.shape != old.precision.shape:
            return np.inf
        linear, old_linear = _mean_times_precision(new), _mean_times_precision(old)
        # a mean of zero has no relative error: there a posterior deviation is the unit
        diagonal = np.diagonal(new.precision, axis1=-2, axis2=-1)
        units = np.sqrt(linear**2 + diagonal)
        largest = max(
            relative_norm(new.precision - old.precision, new.precision),
            relative_norm(linear - old_linear, units),
        )
        noise = np.max(np.abs(new.noise_precision / old.noise_precision - 1.0))
        return max(largest, float(noise))

    def posterior(self, belief: PcaBelief) -> PcaPosterior:
        # a prior that distinguishes the columns keeps their order and signs
        return PcaPosterior.of(belief, self.units, self.prior.component_location is None)

    def posteriors(self, beliefs: Sequence[PcaBelief]) -> list[PcaPosterior]:
        made = super().posteriors(beliefs)
        if self.prior.component_location is not None:
            return made
        return [made[0], *(p.aligned_to(made[0]) for p in made[1:])]

    @property
    def beliefs_alike(self) -> bool:
        return self.noise != "per_node"  # a node's own noise is not part of the sum

    @property
    def memoryless(self) -> bool:
        return self.beliefs_alike

    def extrapolates(self, belief: PcaBelief) -> bool:
        return not belief.warm_up

    def blocks(self, total: FloatArray) -> Sequence[slice]:
        return self.layout.blocks

    def block_sizes(self, total: FloatArray) -> list[float]:
        """As ``change``: where all components are switched off, the linear block is rounding, and deviations are its unit."""
        rows, linear, *others = super().block_sizes(total)
        precisions = np.diagonal(PcaStatistics.unpack(total, self.layout).rows, axis1=-2, axis2=-1)
        variance = np.broadcast_to(precisions, (self.layout.n_features, self.layout.width)).sum()
        return [rows, float(np.sqrt(linear**2 + max(variance, 0.0))), *others]

    def implied_total(self, belief: PcaBelief) -> FloatArray | None:
        return belief.total

    def is_usable(self, belief: PcaBelief) -> bool:
        return bool(np.isfinite(belief.global_bound)) and bool(np.all(belief.hyper.in_domain()))

    # -- linear response --------------------------------------------------------------

    def for_response(self) -> BayesianPcaModel:
        if self.noise == "per_node":
            from dmfvi.models.pca.own_noise import OwnNoiseResponse

            return OwnNoiseResponse.of(self)
        return replace(self, expansion=False)

    def expected(self, belief: PcaBelief) -> FloatArray:
        found = np.zeros(self.layout.size)
        found[self.layout.blocks[1]] = belief.mean.ravel()
        found[self.layout.half_counts] = belief.noise.expected.log
        found[self.layout.half_residuals] = -belief.noise_precision
        return found

    def derivative(self, shard: Shard, belief: PcaBelief) -> PcaDerivative:
        return PcaDerivative(self, shard, belief)

    def named_tilts(self, belief: PcaBelief, name: str) -> FloatArray | None:
        """The location is the last column of E[W~], times the units."""
        if name != "location" or not self.with_mean:
            return None
        d, k = belief.mean.shape
        slopes = np.zeros((d, d, k))
        slopes[np.arange(d), np.arange(d), k - 1] = np.broadcast_to(self.units.scale, (d,))
        tilts = np.zeros((d, self.layout.size))
        tilts[:, self.layout.blocks[1]] = slopes.reshape(d, -1)
        return tilts

    def tilts(self, belief: PcaBelief, values: Callable[[PcaBelief], FloatArray]) -> FloatArray:
        """Of quantities of E[W~] and q(tau), in the positions of linear and of the noise."""
        layout, d, k = self.layout, *belief.mean.shape
        variances = np.diagonal(belief.covariance, axis1=-2, axis2=-1)
        steps = SMALL_STEP * np.sqrt(np.broadcast_to(variances, (d, k))).ravel()

        def moved(move: FloatArray) -> FloatArray:
            return values(replace(belief, mean=belief.mean + move.reshape(d, k)))

        slopes = gradient(moved, steps)
        tilts = np.zeros((slopes.shape[1], layout.size))
        tilts[:, layout.blocks[1]] = slopes.T
        if isinstance(self.prior.noise, GammaPrior):
            of_noise = family_tilts(
                belief.noise, lambda noise: values(replace(belief, noise=noise))
            )
            # of the shapes, then of the negative rates
            tilts[:, layout.half_counts] = of_noise[:, : layout.n_noise]
            tilts[:, layout.half_residuals] = -of_noise[:, layout.n_noise :]
        return tilts

    # -- conjugate updates ------------------------------------------------------------

    def _noise_posterior(self, statistics: PcaStatistics) -> Gamma:
        prior = self.prior.noise
        if not isinstance(prior, GammaPrior):
            return self._fixed_noise(prior)
        return Gamma.from_parameters(
            prior.shape + statistics.half_count, prior.rate + statistics.half_residual
        )

    def _fixed_noise(self, value: float) -> Gamma:
        """A Gamma so narrow that its mean and log mean are those of a fixed value."""
        shape = np.full(
            self.layout.n_features if self.layout.noise_per_feature else (), FIXED_SHAPE
        )
        return Gamma.from_parameters(shape, shape / value)

    def _update_rows(self, belief: PcaBelief, statistics: PcaStatistics, steps: int) -> PcaBelief:
        """q(W~) and its hyper-parameters, alternated on the same statistics until they settle."""
        k = self.layout.width
        location = self._prior_location()
        diagonal = np.arange(k)
        precisions = belief.prior_precision
        for _ in range(steps):
            precision = statistics.rows.copy()
            precision[..., diagonal, diagonal] += precisions
            full = symmetrize(inverse(precision))
            linear = statistics.linear + (0.0 if location is None else precisions * location)
            mean = linear @ full if full.ndim == 2 else np.einsum("dij,dj->di", full, linear)
            covariance = full
            if self.covariance == "diag":
                covariance = np.zeros_like(full)
                covariance[..., diagonal, diagonal] = 1.0 / precision[..., diagonal, diagonal]
            new = replace(belief, mean=mean, precision=precision, covariance=covariance)
            shapes, rates = self._hyper_posterior(new)
            if belief.warm_up:  # any q(alpha) gives a bound; this one keeps every column on
                learned = self._hyper_prior[0] > 0
                rates = np.where(learned, shapes / WARM_UP_PRECISION, rates)
            updated = shapes / rates
            settled = np.max(np.abs(updated - precisions) / updated) < HYPER_TOLERANCE
            precisions = updated
            if settled:
                break
        return replace(new, hyper=Gamma.from_parameters(shapes, rates), prior_precision=precisions)

    def _prior_location(self) -> FloatArray | None:
        """Prior means of W~ (D, K), or None when all are zero."""
        parts = []
        prior = self.prior
        d = self.layout.n_features
        if prior.component_location is None and (not self.with_mean or prior.mean_location is None):
            return None
        components = prior.component_location
        parts.append(np.zeros((d, self.n_latent)) if components is None else components)
        if self.with_mean:
            parts.append(
                np.zeros((d, 1)) if prior.mean_location is None else prior.mean_location[:, None]
            )
        return np.hstack(parts)

    def _energies(self, belief: PcaBelief) -> FloatArray:
        """sum_d E[(w~_dk - prior_dk)^2], (K,)."""
        location = self._prior_location()
        deviation = belief.mean if location is None else belief.mean - location
        variances = np.diagonal(self._covariance_sum(belief))
        return np.asarray((deviation**2).sum(0) + variances)

    def _covariance_sum(self, belief: PcaBelief) -> FloatArray:
        if belief.covariance.ndim == 2:
            return self.layout.n_features * belief.covariance
        return np.asarray(belief.covariance.sum(0))

    def _hyper_posterior(self, belief: PcaBelief) -> tuple[FloatArray, FloatArray]:
        """Shapes and rates of q(alpha_m) = Gamma(a + D/2, b + sum_d E[w_dm^2]/2), the same for theta."""
        learned, shapes, rates = self._hyper_prior
        d = self.layout.n_features
        return shapes + 0.5 * d * learned, rates + 0.5 * learned * self._energies(belief)

    @cached_property
    def _hyper_prior(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """For each column: 1 where its precision is learned, prior shape, prior rate."""
        priors = [self.prior.components] * self.n_latent
        priors += [self.prior.mean] * (self.layout.width - self.n_latent)
        rows = [
            (1.0, p.shape, p.rate)
            if isinstance(p, GammaPrior)
            else (0.0, FIXED_SHAPE, FIXED_SHAPE / p)
            for p in priors
        ]
        learned, shapes, rates = np.array(rows).T
        return learned, shapes, rates

    # -- parameter expansion ------------------------------------------------------------

    def _expansion_input(self, belief: PcaBelief, statistics: PcaStatistics) -> ExpansionInput:
        """The moments that decide a change of coordinates."""
        location = self._prior_location()
        components = self.prior.components
        spread = self._covariance_sum(belief)
        stiffness = np.zeros_like(spread)
        if self.covariance == "full":
            gamma = (
                self.layout.n_features * np.eye(self.layout.width)
                - belief.prior_precision[:, None] * spread
            )
        elif self.layout.shared_rows:
            gamma = statistics.rows * np.diagonal(spread)
        else:
            variances = np.diagonal(belief.covariance, axis1=-2, axis2=-1)
            gamma = np.einsum("dlk,dk->lk", statistics.rows, variances)
            data = np.diagonal(statistics.rows, axis1=-2, axis2=-1)
            differences = data[:, :, None] - data[:, None, :]
            stiffness = np.einsum(
                "dlk,dlk->lk", differences, variances[:, None, :] - variances[:, :, None]
            )
        x = ExpansionInput(
            latent=statistics.latent,
            mean=belief.mean,
            deviation=belief.mean if location is None else belief.mean - location,
            covariance_sum=spread,
            gamma=gamma,
            prior_precision=belief.prior_precision,
            energy_slope=(components.shape, components.rate)
            if isinstance(components, GammaPrior)
            else None,
            n_latent=self.n_latent,
            n_samples=statistics.n_samples,
            turn_stiffness=stiffness,
        )
        return x

    def _change_of_coordinates(self, belief: PcaBelief, statistics: PcaStatistics) -> FloatArray:
        """The change that is the identity at the fixed point."""
        x = self._expansion_input(belief, statistics)
        return rotating_change(x) if self.prior.component_location is None else located_change(x)

    # -- domain ---------------------------------------------------------------------------

    def _inside_domain(
        self, total: FloatArray, belief: PcaBelief
    ) -> tuple[FloatArray, bool] | None:
        """The statistics themselves, or the point on the way to them that stays proper."""
        if not np.isfinite(total).all():
            return None
        if self._proper(total, belief):
            return total, False
        origin = belief.total
        if origin is None or not self._proper(origin, belief):
            return None
        here = PcaStatistics.unpack(origin, self.layout)
        along = PcaStatistics.unpack(total - origin, self.layout)
        reach = min(
            1.0,
            float(np.min(max_step_definite(self._with_prior(here, belief), along.rows))),
            float(max_step_definite(here.latent, along.latent)),
            float(
                np.min(
                    max_step_positive(np.array(here.half_residual), np.array(along.half_residual))
                )
            ),
            float(np.min(max_step_positive(np.array(here.half_count), np.array(along.half_count)))),
            float(max_step_positive(np.array(here.n_samples), np.array(along.n_samples))),
        )
        return origin + EDGE_FRACTION * reach * (total - origin), True

    def _with_prior(self, statistics: PcaStatistics, belief: PcaBelief) -> FloatArray:
        """Precisions in shared coordinates, prior included."""
        back = inverse(belief.coordinates)
        return statistics.rows + back @ np.diag(belief.prior_precision) @ back.T

    def _proper(self, total: FloatArray, belief: PcaBelief) -> bool:
        if not np.isfinite(total).all():
            return False
        s = PcaStatistics.unpack(total, self.layout)
        if min(np.min(s.half_residual), np.min(s.half_count), s.n_samples) <= 0:
            return False
        try:
            np.linalg.cholesky(s.latent)
            np.linalg.cholesky(self._with_prior(s, belief))
        except np.linalg.LinAlgError:
            return False
        return True

    # -- bound ------------------------------------------------------------------------------

    def _noise_kl(self, noise: Gamma) -> float:
        prior = self.prior.noise
        if not isinstance(prior, GammaPrior):
            return 0.0
        return float(np.sum(noise.kl(prior.family(noise.batch_shape))))

    def _global_bound(self, belief: PcaBelief) -> float:
        """E[log p(W~|alpha,theta)] + H[q(W~)] - KL of the hyper-parameters and the noise."""
        d, k = belief.mean.shape
        energies = self._energies(belief)
        bound = 0.5 * d * k  # entropy and prior both carry log 2 pi: it cancels
        if self.covariance == "diag":
            spread = np.log(np.diagonal(belief.covariance, axis1=-2, axis2=-1)).sum(-1)
        else:
            spread = -log_det(belief.precision)
        bound += 0.5 * float(np.sum(np.broadcast_to(spread, (d,))))
        learned, shapes, rates = self._hyper_prior
        log_precision = belief.hyper.expected.log
        bound += float(np.sum(0.5 * d * log_precision - 0.5 * belief.prior_precision * energies))
        divergence = belief.hyper.kl(Gamma.from_parameters(shapes, rates))
        bound -= float(divergence[learned > 0].sum())
        if self.noise != "per_node":
            bound -= self._noise_kl(belief.noise)
        return float(bound)


def _mean_times_precision(belief: PcaBelief) -> FloatArray:
    if belief.precision.ndim == 2:
        return belief.mean @ belief.precision
    return np.asarray(np.einsum("dij,dj->di", belief.precision, belief.mean))
