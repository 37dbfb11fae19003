"""The Gaussian at a posterior's mode, found by Newton steps whose sums the nodes agree on.

    total = (sum gradient, sum curvature, sum log likelihood) at theta        theta <- theta + (P + curvature)^-1 (gradient - P (theta - m0))
    q = N(mode, (P + curvature)^-1)           (Laplace; Tierney & Kadane 1986)

The objective of a sweep is the log density log p(data, theta). A step that lowers the log density is halved; all nodes see the same number, so all halve.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dmfvi.families import MultivariateNormal
from dmfvi.inference.model import Model, Update
from dmfvi.linalg import (
    FloatArray,
    log_det,
    pack_symmetric,
    solve_definite,
    symmetrize,
    unpack_symmetric,
)
from dmfvi.models.glm.model import made_definite
from dmfvi.tags import stored_as

#: a step is halved when the log density falls by more than this part of it
ROUNDING = 1e-11
#: a step shorter than this, in posterior deviations, is taken whatever the log density's rounding says
SURE_STEP = 1e-5


class Expansion(NamedTuple):
    """Log likelihood at a point, its gradient, and minus its second derivatives.

    Parameters
    ----------
    value : float
        Log likelihood.
    gradient : array (n_parameters,)
        Its first derivatives.
    curvature : array (n_parameters, n_parameters)
        Minus its second derivatives.
    """

    value: float
    gradient: FloatArray
    curvature: FloatArray


@stored_as("laplace-belief")
@dataclass(frozen=True)
class LaplaceBelief:
    """q, whose mean is the point at which the next sums are taken, and the point and log density before."""

    q: MultivariateNormal
    kept: FloatArray | None = None
    best: float = float("-inf")
    evidence: float | None = None  # log evidence by weighted draws, where there were any
    ess: float | None = None  # effective number of those draws

    @property
    def log_evidence(self) -> float:
        """By weighted draws, or Laplace's at the mode: log p(data, mode) + P/2 log 2 pi - log det(precision) / 2."""
        if self.evidence is not None:
            return self.evidence
        size = len(self.q.mean_times_precision)
        return self.best + 0.5 * (
            size * float(np.log(2.0 * np.pi)) - float(log_det(self.q.precision))
        )


@dataclass(frozen=True)
class LaplaceModel(Model):
    """A log likelihood that is a sum over nodes, and a Gaussian prior; a prior precision of zero is a flat prior.

    Parameters
    ----------
    prior_mean, prior_precision : array (n_parameters,)
        Of the independent Gaussian priors; a precision of zero is a flat prior.
    """

    prior_mean: FloatArray  # (P,)
    prior_precision: FloatArray  # (P,)

    @abstractmethod
    def expand(self, shard: Any, theta: FloatArray) -> Expansion:
        """The log likelihood of one node's data near theta."""

    @property
    def memoryless(self) -> bool:
        """Steps depend on the density before: sweeps are not extrapolated."""
        return False

    def extrapolates(self, belief: LaplaceBelief) -> bool:
        """Newton steps need no help."""
        return False

    @property
    def largest_move(self) -> FloatArray | None:
        """How far one step may move each entry; None is any way."""
        return None

    @property
    def sure_step(self) -> float:
        """A step shorter than this, in posterior deviations, is taken whatever the log density says."""
        return SURE_STEP

    def start(self, shard: Any, rng: np.random.Generator) -> LaplaceBelief:
        precision = np.diag(np.maximum(self.prior_precision, 1.0))
        return LaplaceBelief(MultivariateNormal(precision @ self.prior_mean, -0.5 * precision))

    def local_step(self, shard: Any, belief: LaplaceBelief) -> FloatArray:
        value, gradient, curvature = self.expand(shard, self.point(belief))
        return np.concatenate([gradient, pack_symmetric(symmetrize(curvature)), [value]])

    def point(self, belief: LaplaceBelief) -> FloatArray:
        """Where sums are taken."""
        return np.asarray(belief.q.parameters()["mean"])

    def log_prior(self, theta: FloatArray) -> float:
        """With all constants; a flat prior's density counts as one."""
        proper = self.prior_precision > 0
        known = self.prior_precision[proper]
        gap = (theta - self.prior_mean)[proper]
        return 0.5 * float(np.log(known / (2.0 * np.pi)).sum() - known @ gap**2)

    def absorb(self, total: FloatArray, own: FloatArray, belief: LaplaceBelief) -> Update:
        size = len(self.prior_mean)
        here = self.point(belief)
        gradient, curvature, value = total[:size], unpack_symmetric(total[size:-1]), total[-1]
        density = float(value) + self.log_prior(here)
        if belief.kept is not None:
            step = here - belief.kept
            length = float(step @ belief.q.precision @ step)
            fell = not density >= belief.best - ROUNDING * abs(belief.best)
            if (fell and length > self.sure_step**2) or not np.isfinite(total).all():
                halfway = moved(belief.q, belief.kept + 0.5 * step)
                return Update(replace(belief, q=halfway), belief.best, True)
        if not np.isfinite(total).all():
            raise ValueError("the likelihood is not finite where the fit begins: look at the data")
        wanted = np.diag(self.prior_precision) + curvature
        precision = made_definite(wanted)
        pull = gradient - self.prior_precision * (here - self.prior_mean)
        step = solve_definite(precision, pull)
        if self.largest_move is not None:
            step = step * min(1.0, float(np.min(self.largest_move / np.maximum(abs(step), 1e-300))))
        there = here + step
        q = MultivariateNormal(precision @ there, -0.5 * precision)
        return Update(LaplaceBelief(q, here, density), density)

    def change(self, new: LaplaceBelief, old: LaplaceBelief) -> float:
        return float(new.q.distance(old.q))

    def posterior(self, belief: LaplaceBelief) -> MultivariateNormal:
        return belief.q

    def describe(self, position: int) -> str:
        size = len(self.prior_mean)
        if position < size:
            return f"statistic {position} (gradient)"
        return (
            f"statistic {position} (curvature)"
            if position < size * (size + 3) // 2
            else "the density"
        )


def moved(q: MultivariateNormal, point: FloatArray) -> MultivariateNormal:
    """The same precision around another point."""
    return MultivariateNormal(q.precision @ point, q.negative_half_precision)
