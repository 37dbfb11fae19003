"""Generalized linear models: the Gaussian q(theta) = N(m, S) that is closest to the posterior in KL(q || posterior).

    bound(q) = sum_n E_q[log p(y_n | theta)] - KL(q || prior)
    precision = P0 + sum_n Z_n' H_n Z_n        linear = P0 m0 + sum_n Z_n' (E[dl_n] + H_n Z_n m),   H_n = -E[d2l_n]

at the optimum (Opper & Archambeau 2009). One sweep is one agreed sum. A step that lowers the bound is halved; all nodes see the same
bound, so all halve. The start is the posterior's mode, found by Newton steps whose sums the nodes agree on.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from dmfvi.families import MultivariateNormal
from dmfvi.inference.model import Broadcast, Model, Update
from dmfvi.linalg import (
    FloatArray,
    cholesky,
    log_det,
    lost_digits,
    pack_symmetric,
    relative_norm,
    solve_definite,
    symmetrize,
    unpack_symmetric,
)
from dmfvi.models.glm.learned_precision import self_consistent
from dmfvi.models.glm.likelihoods import GlmShard, Likelihood
from dmfvi.tags import stored_as

#: Newton steps towards the mode at most, and the squared length of a step (in posterior deviations) that is the last
NEWTON_STEPS, NEAR_MODE = 200, 1e-2
#: rows of a node with which the search for the mode begins, and the squared step at which it goes on with all rows: the
#: mode of a part is several deviations away in every direction
START_ROWS, NEAR_PART = 50_000, 1.0
#: squared length of the step that need not be taken any more
NEXT_STEP = 1e-6
#: a step is halved when the bound falls by more than this part of it
BOUND_ROUNDING = 1e-11
#: KL between beliefs below which a step is taken as it is: there a quadrature's error can outweigh the gain
SURE_STEP = 1e-5
#: growth of steps that keep their direction, and the step that is not shortened any more because they change it
STEP_GROWTH, SHORTEST_STEP = 1.5, 1 / 64
#: a step shorter than this is none
STALLED = 1e-6
#: halvings of a step whose precision is not definite by rounding
HALVINGS = 60
#: how far one sweep may move a log dispersion or the logarithm of a gap
LARGEST_MOVE = 2.0
#: expected curvature under the start, in units of that at the mode, from which the start is too wide, and how much narrower the next one
#: is: with counts of zero only and a wide prior it is exp(variance / 2) times as large
STEEPEST, NARROWER = 1e6, 4.0
#: precision, in agreed units, that the data must give to an entry with a flat prior
LEAST_INFORMATION = 0.04


#: where a posterior is too wide for the quadrature
SEPARATED = (
    "most likely columns separate the targets or are combinations of each other, and a vague prior leaves coefficients without a "
    "bound; raise prior_precision, or leave such columns out"
)


#: where targets have noise
OR_COLLINEAR = ", or for columns that are combinations of others under a vague prior: leave them out, or raise prior_precision"


@stored_as("glm-belief")
@dataclass(frozen=True)
class GlmBelief:
    """q(theta), and what damping needs: the belief before it, that one's bound, and the length of steps."""

    q: MultivariateNormal
    kept: MultivariateNormal | None = None
    objective: float = float("-inf")
    step: float = 1.0
    residual: float = float("inf")  # relative length of the last whole step


class Climbed(NamedTuple):
    """A mode, minus the log density's second derivative beside it, the rows of all nodes that were left out, and whether all went well.

    ``smooth`` is a climb that ended with no step halved and a concave density all the way, as one from near the mode does.
    """

    mode: FloatArray
    precision: FloatArray
    left_out: float
    smooth: bool


@dataclass(frozen=True)
class LearnedPrecision:
    """One precision for some entries of theta: lambda ~ Gamma(shape, rate), q(lambda) in closed form."""

    entries: tuple[int, ...]
    shape: float = 1e-3
    rate: float = 1e-3


@dataclass(frozen=True)
class GeneralizedLinear(Model):
    """theta = coefficients of each output one after the other, then the likelihood's shared parameters.

    A prior precision of zero is a flat prior, whose density counts as one in the bound.
    """

    likelihood: Likelihood
    prior_mean: FloatArray  # (P,)
    prior_precision: FloatArray  # (P,)
    learned: LearnedPrecision | None = field(default=None)

    @property
    def improper_hint(self) -> str:
        if not self.likelihood.dispersed:
            return SEPARATED
        return f"{super().improper_hint}{OR_COLLINEAR}"

    @property
    def memoryless(self) -> bool:
        """Steps are damped by the bound before: sweeps are not extrapolated."""
        return False

    # -- the prior ----------------------------------------------------------------------------

    def precision_posterior(self, q: MultivariateNormal) -> tuple[float, float]:
        """Shape and rate of the learned precision's q."""
        assert self.learned is not None
        entries = list(self.learned.entries)
        mean, root = self.location(q)
        square = mean[entries] ** 2 + np.square(root).sum(1)[entries]
        return self.learned.shape + 0.5 * len(entries), self.learned.rate + 0.5 * float(
            square.sum()
        )

    def precisions(self, q: MultivariateNormal | None) -> FloatArray:
        """Expected prior precisions; those of the prior's own guess where there is no q yet."""
        if self.learned is None or q is None:
            return self.prior_precision
        shape, rate = self.precision_posterior(q)
        expected = self.prior_precision.copy()
        expected[list(self.learned.entries)] = shape / rate
        return expected

    def prior_gain(self, q: MultivariateNormal) -> float:
        """E[log p(theta)] + H[q], what the bound has beside the data; with a learned precision, at its best q."""
        mean, root = self.location(q)
        gap = (mean - self.prior_mean) ** 2 + np.square(root).sum(1)
        proper = self.prior_precision > 0
        n, log_2pi = len(gap), float(np.log(2.0 * np.pi))
        value = 0.5 * n * (1.0 + log_2pi) - 0.5 * float(log_det(q.precision))
        value -= 0.5 * log_2pi * int(proper.sum())
        if self.learned is not None:
            chosen = np.zeros(n, dtype=bool)
            chosen[list(self.learned.entries)] = True
            proper &= ~chosen
            a0, b0 = self.learned.shape, self.learned.rate
            shape, rate = self.precision_posterior(q)
            value += a0 * np.log(b0) - gammaln(a0) + gammaln(shape) - shape * np.log(rate)
        fixed = self.prior_precision[proper]
        value += 0.5 * float(np.log(fixed).sum() - fixed @ gap[proper])
        return float(value)

    # -- statistics ---------------------------------------------------------------------------

    def row_sums(self, shard: GlmShard, mean: FloatArray, root: FloatArray | None) -> FloatArray:
        """Linear term, packed precision and expected log likelihood of a shard."""
        size = len(self.prior_mean)
        linear, precision, value = np.zeros(size), np.zeros((size, size)), shard.constant
        for rows in shard.blocks():
            made = self.likelihood.sums(rows, mean, root)
            linear += made.linear
            precision += made.precision
            value += made.value
        return np.concatenate([linear, pack_symmetric(symmetrize(precision)), [value]])

    def location(self, q: MultivariateNormal) -> tuple[FloatArray, FloatArray]:
        """Mean of q, and a factor of its covariance in which the shared parameters depend on the first columns only.

        With precision L L' the factor is L^-T, columns turned: no covariance is inverted or factored.
        """
        try:
            factor = cholesky(q.precision)
        except np.linalg.LinAlgError:
            raise ValueError(
                "the posterior is singular to rounding: targets without noise and collinear columns (or more columns than "
                "rows); drop columns, or raise prior_precision"
            ) from None
        half = solve_triangular(factor, q.mean_times_precision, lower=True)
        turned = solve_triangular(factor, np.eye(len(half)), lower=True).T
        m = self.likelihood.n_shared
        return turned @ half, np.ascontiguousarray(np.roll(turned, m, axis=1))

    def local_step(self, shard: GlmShard, belief: GlmBelief) -> FloatArray:
        return self.row_sums(shard, *self.location(belief.q))

    def parts(self, total: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Linear term, precision, value."""
        size = len(self.prior_mean)
        return total[:size], unpack_symmetric(total[size:-1]), float(total[-1])

    # -- the start ----------------------------------------------------------------------------

    def start(self, shard: GlmShard, rng: np.random.Generator) -> Generator[Any, FloatArray, Any]:
        """The mode and the curvature there, by agreed Newton sums; of many rows from the mode of a part of them."""
        part = shard.thinned(START_ROWS)
        climbed = yield from self._climb(part, self.prior_mean, len(shard.target))
        if climbed.left_out:
            usable = bool(np.isfinite(climbed.mode).all())
            if usable:
                climbed = yield from self._climb(shard, climbed.mode, len(shard.target))
            if not usable or not climbed.smooth:  # some rows did not stand for all
                climbed = yield from self._climb(shard, self.prior_mean, len(shard.target))
        self._refuse_improper(climbed.precision)
        q = MultivariateNormal(climbed.precision @ climbed.mode, -0.5 * climbed.precision)
        packed = yield Broadcast(q.pack())
        return GlmBelief(q.unpack(packed))

    def _climb(
        self, shard: GlmShard, here: FloatArray, rows: int
    ) -> Generator[Any, FloatArray, Climbed]:
        """Newton steps from here; steps that lower the density are halved."""
        prior = self.precisions(None)
        best, left_out, length, smooth, ended = -np.inf, 0.0, 0.0, True, False
        step: FloatArray = np.zeros(len(prior))
        definite: FloatArray = np.diag(np.maximum(prior, 1e-8))
        for _ in range(NEWTON_STEPS):
            tried = here + step
            total = yield np.append(
                self.row_sums(shard, tried, None), float(rows - len(shard.target))
            )
            linear, precision, value = self.parts(total[:-1])
            left_out = float(total[-1])
            value -= 0.5 * float(prior @ (tried - self.prior_mean) ** 2)
            if not value >= best - BOUND_ROUNDING * abs(best):
                step, smooth = 0.5 * step, False
                continue
            here, best = tried, value
            wanted = np.diag(prior) + precision
            definite = made_definite(wanted)
            smooth &= definite is wanted
            # linear = gradient + precision here, so the whole gradient of the log density is
            gradient = linear - precision @ here - prior * (here - self.prior_mean)
            definite = self._without_dispersion(definite, gradient)
            step = solve_definite(definite, gradient)
            length, before = float(gradient @ step), length
            # Newton steps shrink quadratically: the next would have the squared length length^3 / before^2
            if length < (NEAR_PART if left_out else NEAR_MODE) or (
                length < NEAR_PART and length**3 < NEXT_STEP * before**2
            ):
                ended = True
                break
        return Climbed(here + step, definite, left_out, smooth and ended)

    def _without_dispersion(self, definite: FloatArray, gradient: FloatArray) -> FloatArray:
        """Hold a dispersion where the prior has it: with more columns than rows the joint mode has none at all."""
        if not self.likelihood.dispersed:
            return definite
        gradient[-1] = 0.0
        held = definite.copy()
        held[-1, :-1] = held[:-1, -1] = 0.0
        return held

    def _refuse_improper(self, precision: FloatArray) -> None:
        """A flat prior needs data that bound its entry: less than part of one event does not."""
        flat = np.flatnonzero(self.prior_precision == 0)
        if len(flat) and np.diag(precision)[flat].min() < LEAST_INFORMATION:
            raise ValueError(
                "the posterior is improper: the intercept has a flat prior and the data do not bound it (all targets "
                "alike?); give it an intercept_precision"
            )

    # -- the sweep ----------------------------------------------------------------------------

    def absorb(self, total: FloatArray, own: FloatArray, belief: GlmBelief) -> Update:
        q = belief.q
        if not np.isfinite(total).all():
            return Update(belief, belief.objective, True)
        linear, precision, value = self.parts(total)
        objective = value + self.prior_gain(q)
        kept = belief.kept
        if kept is None and np.max(np.diag(precision) / np.diag(q.precision)) > STEEPEST:
            narrower = MultivariateNormal(*(NARROWER * part for part in q.natural))
            return Update(replace(belief, q=narrower), objective)
        rounding = BOUND_ROUNDING * abs(objective)
        if kept is not None and not objective >= belief.objective - rounding:
            rounding += lost_digits(q.precision)
        if kept is not None and not objective >= belief.objective - rounding:
            if belief.step < STALLED:  # no step from there raises the bound beyond rounding
                return Update(replace(belief, q=kept), belief.objective)
            if float(q.kl(kept)) > SURE_STEP or not np.isfinite(objective):
                shorter = replace(belief, q=between(kept, q, 0.5), step=0.5 * belief.step)
                return Update(shorter, belief.objective, True)
            objective = belief.objective
        prior = self._next_precisions(q, linear, precision)
        wanted = np.diag(prior) + precision
        pull = prior * self.prior_mean + linear
        residual = relative_norm(
            np.append(pull - q.mean_times_precision, (wanted - q.precision).ravel()),
            np.append(q.mean_times_precision, q.precision.ravel()),
        )
        step = belief.step
        # where steps go back and forth over the optimum, by less than a bound can tell, they are shortened
        turned = kept is not None and opposite(q, kept, wanted)
        if turned and residual > 0.5 * belief.residual:
            step = max(0.5 * step, SHORTEST_STEP)
        elif not turned:
            step = min(1.0, STEP_GROWTH * step)
        if is_definite(wanted):
            target = self._within_reach(q, MultivariateNormal(pull, -0.5 * wanted))
            tried: MultivariateNormal | None = target if step == 1.0 else between(q, target, step)
        else:
            mean = self.location(q)[0]
            tried = retracted(q, mean, wanted - q.precision, pull - wanted @ mean, step)
        new = nearest_definite(q, tried)
        if new is None:
            return Update(belief, objective, True)
        return Update(GlmBelief(new, q, objective, step, residual), objective)

    def _next_precisions(
        self, q: MultivariateNormal, linear: FloatArray, precision: FloatArray
    ) -> FloatArray:
        """Prior precisions of the next q; a learned one belongs to this next q.

        That of the last q leads to the same optimum, in hundreds of sweeps where rows say little of it.
        """
        plain = self.precisions(q)
        if self.learned is None:
            return plain
        chosen = np.zeros(len(plain), dtype=bool)
        chosen[list(self.learned.entries)] = True
        found = self_consistent(
            self.learned.shape,
            self.learned.rate,
            np.diag(np.where(chosen, 0.0, plain)) + precision,
            plain * self.prior_mean + linear,
            chosen,
            float(plain[chosen][0]),
        )
        return plain if found is None else np.where(chosen, found, plain)

    def _within_reach(
        self, q: MultivariateNormal, target: MultivariateNormal
    ) -> MultivariateNormal:
        """The target, its mean no further away than shared parameters, which are logarithms, may move."""
        m = self.likelihood.n_shared
        if m == 0:
            return target
        here, there = self.location(q)[0], self.location(target)[0]
        part = LARGEST_MOVE / max(float(np.abs(there - here)[-m:].max()), 1e-300)
        if part >= 1.0:
            return target
        mean = here + part * (there - here)
        return MultivariateNormal(target.precision @ mean, target.negative_half_precision)

    def change(self, new: GlmBelief, old: GlmBelief) -> float:
        return float(new.q.distance(old.q)) / max(new.step, STALLED)

    def posterior(self, belief: GlmBelief) -> MultivariateNormal:
        return belief.q

    def describe(self, position: int) -> str:
        size = len(self.prior_mean)
        if position < size:
            return f"statistic {position} (linear term)"
        return (
            f"statistic {position} (precision)"
            if position < size * (size + 3) // 2
            else "the bound"
        )


def opposite(q: MultivariateNormal, kept: MultivariateNormal, wanted: FloatArray) -> bool:
    """Whether the next step turns back on the last one, in precisions measured by q's own."""
    scale = np.sqrt(np.diag(q.precision))
    last = (q.precision - kept.precision) / np.outer(scale, scale)
    coming = (wanted - q.precision) / np.outer(scale, scale)
    return float(np.sum(last * coming)) < 0


def is_definite(matrix: FloatArray) -> bool:
    """Whether a symmetric matrix has a Cholesky factor."""
    try:
        cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def nearest_definite(
    q: MultivariateNormal, new: MultivariateNormal | None
) -> MultivariateNormal | None:
    """The part of the way from q to new that rounding leaves positive definite; None where there is none."""
    for _ in range(HALVINGS):
        if new is None or is_definite(new.precision):
            return new
        new = between(q, new, 0.5)
    return None


def retracted(
    q: MultivariateNormal, mean: FloatArray, move: FloatArray, gradient: FloatArray, step: float
) -> MultivariateNormal | None:
    """The step where the wanted precision P + move is not definite: P + s move + s^2 move P^-1 move / 2 always is.

    Where the move is small it is the plain step (Lin, Schmidt & Khan 2020). None where a precision is singular to rounding.
    """
    try:
        bend = move @ solve_definite(q.precision, move)
        precision = symmetrize(q.precision + step * move + 0.5 * step**2 * bend)
        moved = mean + step * solve_definite(precision, gradient)
    except np.linalg.LinAlgError:
        return None
    return MultivariateNormal(precision @ moved, -0.5 * precision)


def made_definite(matrix: FloatArray) -> FloatArray:
    """The matrix with the absolute values of its eigenvalues: where a density is not concave, steps still lead up."""
    if is_definite(matrix):
        return matrix
    values, vectors = np.linalg.eigh(matrix)
    size = np.maximum(np.abs(values), 1e-8 * np.abs(values).max())
    return symmetrize((vectors * size) @ vectors.T)


def between(one: MultivariateNormal, other: MultivariateNormal, share: float) -> MultivariateNormal:
    """Natural parameters (1 - share) one + share other."""
    return MultivariateNormal(
        *((1.0 - share) * a + share * b for a, b in zip(one.natural, other.natural, strict=True))
    )
