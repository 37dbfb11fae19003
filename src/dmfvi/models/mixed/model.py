"""Mixed models: effects of groups are integrated out at the node that has the group.

    eta_gi = x_i.w + v_i.(L z_g),   z_g ~ N(0, I),   y_gi ~ family(eta_gi)        log p(y) = sum_g log int p(y_g | z) N(z) dz

Adaptive Gauss-Hermite quadrature around each group's mode (Naylor & Smith 1982; Pinheiro & Bates 1995), exact for Gaussian targets; gradient
by Fisher's identity and curvature by Louis' (1982). theta = (w, [psi], L row by row, logarithms on its diagonal), psi the log noise variance
(gaussian) or log dispersion (negative-binomial, gamma).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.inference.model import Coroutine, Update
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.model import OR_COLLINEAR
from dmfvi.models.laplace import SURE_STEP, Expansion, LaplaceBelief, LaplaceModel

#: numbers of the families in the kernels
CODES = {
    "gaussian": 0,
    "bernoulli": 1,
    "binomial": 1,
    "poisson": 2,
    "negative-binomial": 3,
    "gamma": 4,
}
FAMILIES = tuple(CODES)
#: families with a psi
DISPERSED = ("gaussian", "negative-binomial", "gamma")
#: quadrature points along each effect, by the number of effects, three at most
POINTS = {1: 25, 2: 19, 3: 11}
#: the same where weights of draws need two or three digits only
FEWER_POINTS = {1: 9, 2: 7, 3: 5}
#: the logarithm of one effect's deviation beyond which a group's integrand has an edge that these points miss, and the points then
WIDE_LOG, WIDE_POINTS, FEWER_WIDE_POINTS = 2.0, 129, 65
#: reach of the wide rule's points in deviations of the integrand, and where they begin to thin out
WIDE_REACH, WIDE_CENTRE = 30.0, 0.3
#: a step shorter than this, in posterior deviations, is taken whatever the quadrature's error says of the density
QUADRATURE_STEP = 0.02
#: a logarithm of a deviation beyond which draws of a nearly flat posterior would overflow
LARGEST_LOG = 300.0
#: c^2 of the growth of log odds, (16 sqrt(3) / 15 pi)^2, and the variance from which draws have no weight
LOGIT_GROWTH, LARGEST_VARIANCE = (16.0 * np.sqrt(3.0) / (15.0 * np.pi)) ** 2, 1e12
#: how far one step may move a logarithm of a deviation
LARGEST_MOVE = 1.5
#: psi, in targets of variance one, below which the sums have nothing but rounding left
LEAST_LOG_NOISE = -36.0


@dataclass(frozen=True)
class GroupedShard:
    """One node's rows sorted by group: design, columns whose effects vary, targets (gamma: their logarithms), offsets, where groups begin, and trials."""

    design: FloatArray
    varying: FloatArray
    target: FloatArray
    offset: FloatArray
    starts: NDArray[np.int64]
    trials: FloatArray

    @classmethod
    def of(
        cls,
        design: FloatArray,
        varying: FloatArray,
        target: FloatArray,
        offset: FloatArray,
        group: NDArray[np.int64],
        trials: FloatArray | None = None,
    ) -> GroupedShard:
        """From rows in any order; one trial each where nothing is said."""
        order = np.argsort(group, kind="stable")
        sizes = np.unique(group, return_counts=True)[1]
        trials = np.ones(len(target)) if trials is None else trials
        parts = design, varying, target, offset, trials
        rows = [np.ascontiguousarray(part[order]) for part in parts]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(rows[0], rows[1], rows[2], rows[3], starts, rows[4])


@dataclass(frozen=True)
class MixedEffects(LaplaceModel):
    """The marginal likelihood of coefficients and variance components."""

    family: str = "gaussian"
    n_effects: int = 1
    #: whether the prior of psi alone keeps it where floats can follow, as with a handful of rows
    bounded_noise: bool = False

    @property
    def improper_hint(self) -> str:
        return f"{super().improper_hint}{OR_COLLINEAR}"

    @property
    def has_noise(self) -> bool:
        """Whether theta has a psi."""
        return self.family in DISPERSED

    @property
    def code(self) -> int:
        """The family's number in the kernels."""
        return CODES[self.family]

    def psi(self, theta: FloatArray) -> FloatArray:
        """That of parameters (..., P); zero without any."""
        at = -len(self.entries[0]) - 1
        return np.asarray(theta[..., at] if self.has_noise else np.zeros(theta.shape[:-1]))

    @property
    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of L's entries in theta's order."""
        rows, columns = np.tril_indices(self.n_effects)
        return rows.astype(np.int64), columns.astype(np.int64)

    def factor(self, theta: FloatArray) -> FloatArray:
        """L."""
        rows, columns = self.entries
        made = np.zeros((self.n_effects, self.n_effects))
        made[rows, columns] = theta[-len(rows) :]
        at = np.arange(self.n_effects)
        made[at, at] = np.exp(np.minimum(made[at, at], LARGEST_LOG))
        return made

    @property
    def open_ended(self) -> NDArray[np.bool_]:
        """Logarithms of effects' deviations, and of a dispersion of counts: what differs little does not say how little."""
        rows, columns = self.entries
        made = np.zeros(len(self.prior_mean), dtype=bool)
        made[-len(rows) :] = rows == columns
        if self.family == "negative-binomial":
            made[-len(rows) - 1] = True
        return made

    def growth(self, thetas: FloatArray) -> FloatArray:
        """How much larger log odds are in a group than averaged over groups, sqrt(1 + c^2 variance) (Zeger, Liang & Albert 1988)."""
        if self.family not in ("bernoulli", "binomial"):
            return np.ones(len(thetas))
        roots = np.array([self.factor(theta)[0] for theta in thetas])
        return np.sqrt(1.0 + LOGIT_GROWTH * np.minimum(np.square(roots).sum(1), LARGEST_VARIANCE))

    @property
    def largest_move(self) -> FloatArray:
        made = np.full(len(self.prior_mean), np.inf)
        count = len(self.entries[0]) + int(self.has_noise)
        made[-count:] = LARGEST_MOVE
        return made

    def absorb(self, total: FloatArray, own: FloatArray, belief: LaplaceBelief) -> Update:
        """As every mode is found; refuse targets without noise, whose density has no bound that floats could reach."""
        theta = self.point(belief)
        checked = self.family in ("gaussian", "gamma") and not self.bounded_noise
        if checked and self.psi(theta) < LEAST_LOG_NOISE:
            least = np.exp(0.5 * LEAST_LOG_NOISE)
            raise ValueError(
                f"targets have no noise: covariates and groups explain y up to {least:.0e} of its deviation, so the noise variance has no "
                "posterior; look whether y is constant or computed from the columns, or whether there are as many columns as rows"
            )
        return super().absorb(total, own, belief)

    @property
    def sure_step(self) -> float:
        return SURE_STEP if self.family == "gaussian" else QUADRATURE_STEP

    def expand(self, shard: GroupedShard, theta: FloatArray) -> Expansion:
        return self.expand_with_effects(shard, theta)[0]

    def expand_with_effects(
        self, shard: GroupedShard, theta: FloatArray
    ) -> tuple[Expansion, FloatArray]:
        """Also the posterior means of the groups' effects L z."""
        from dmfvi.models.mixed._kernels_numba import groups_rows

        size, factor = len(theta), self.factor(theta)
        gradient, curvature = np.zeros(size), np.zeros((size, size))
        means = np.zeros((len(shard.starts) - 1, self.n_effects))
        value = groups_rows(
            self.code,
            *self.rows_of(shard),
            theta,
            factor,
            *self.entries,
            *(self._wide_rule(WIDE_POINTS) if self.is_wide(theta) else self._rule()),
            self.has_noise,
            gradient,
            curvature,
            means,
        )
        beside = self.constants(shard, theta)
        return (
            Expansion(
                float(value) + beside.value,
                gradient + beside.gradient,
                curvature + beside.curvature,
            ),
            means @ factor.T,
        )

    def rows_of(self, shard: GroupedShard) -> tuple[Any, ...]:
        """As kernels take them."""
        given = shard.design, shard.varying, shard.target, self._known(shard)
        return *given, shard.offset, shard.starts

    def _known(self, shard: GroupedShard) -> FloatArray:
        """Trials, or the logarithms of counts."""
        if self.family in ("poisson", "negative-binomial"):
            return np.log(np.where(shard.target > 0, shard.target, 1.0))
        return shard.trials

    def constants(self, shard: GroupedShard, theta: FloatArray) -> Expansion:
        """What the log likelihood of rows has that does not depend on linear predictors."""
        from dmfvi.models.mixed._families_numba import constants

        size = len(theta)
        gradient, curvature = np.zeros(size), np.zeros((size, size))
        given = self.code, shard.target, self._known(shard), float(self.psi(theta))
        value, slope, bend = constants(*given)
        if self.has_noise:
            at = size - len(self.entries[0]) - 1
            gradient[at], curvature[at, at] = slope, -bend
        return Expansion(float(value), gradient, curvature)

    def constant_values(self, shard: GroupedShard, thetas: FloatArray) -> FloatArray:
        """Its values at many theta (N, P)."""
        from dmfvi.models.mixed._families_numba import constants_at

        psis = np.ascontiguousarray(self.psi(thetas if self.has_noise else thetas[:1]))
        found = constants_at(self.code, shard.target, self._known(shard), psis)
        return np.asarray(np.broadcast_to(found, len(thetas)))

    def values(self, shard: GroupedShard, thetas: FloatArray) -> FloatArray:
        """The log likelihood of one node's data at many theta (N, P), without derivatives and with fewer points."""
        found, wide = np.zeros(len(thetas)), self.is_wide(thetas)
        for part, rule in ((~wide, self._rule_of_draws(False)), (wide, self._rule_of_draws(True))):
            if part.any():
                found[part] = self._values_by(shard, thetas[part], rule)
        return found + self.constant_values(shard, thetas)

    def _values_by(
        self, shard: GroupedShard, thetas: FloatArray, rule: tuple[FloatArray, FloatArray]
    ) -> FloatArray:
        """By one quadrature rule, without constants."""
        from dmfvi.models.mixed._kernels_numba import group_values

        return np.asarray(
            group_values(
                self.code,
                *self.rows_of(shard),
                np.ascontiguousarray(thetas),
                np.array([self.factor(theta) for theta in thetas]),
                *rule,
                self.has_noise,
            )
        )

    def agreed_values(self, shard: Any, thetas: FloatArray) -> Coroutine:
        """The log likelihood of all nodes' data at many theta: one sum."""
        return (yield self.values(shard, thetas))

    def _rule(self, by_size: Mapping[int, int] = POINTS) -> tuple[FloatArray, FloatArray]:
        """Points (K, q) and weights of E[f(z)] for z ~ N(0, I)."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(by_size[self.n_effects])
        weights = weights / weights.sum()
        grid = np.meshgrid(*[nodes] * self.n_effects, indexing="ij")
        shares = np.meshgrid(*[weights] * self.n_effects, indexing="ij")
        points = np.stack([part.ravel() for part in grid], axis=1)
        return np.ascontiguousarray(points), np.prod([s.ravel() for s in shares], axis=0)

    def is_wide(self, theta: FloatArray) -> NDArray[np.bool_]:
        """Where the integrand of a group may be a Gaussian with an edge, of parameters (..., P); Gaussian targets have none."""
        edged = self.n_effects == 1 and self.family != "gaussian"
        return np.asarray(edged & (theta[..., -1] > WIDE_LOG))

    def _rule_of_draws(self, wide: bool) -> tuple[FloatArray, FloatArray]:
        """Fewer points, for values whose weights need two or three digits only."""
        return self._wide_rule(FEWER_WIDE_POINTS) if wide else self._rule(FEWER_POINTS)

    @staticmethod
    def _wide_rule(count: int) -> tuple[FloatArray, FloatArray]:
        """Points (K, 1) and weights of E[f(z)] for z ~ N(0, 1): the trapezoidal rule in t, z = c sinh(t), dense in the middle and far into the tails."""
        t = np.linspace(-1.0, 1.0, count) * np.arcsinh(WIDE_REACH / WIDE_CENTRE)
        points = WIDE_CENTRE * np.sinh(t)
        slopes = WIDE_CENTRE * np.cosh(t) * (t[1] - t[0])
        return points[:, None], slopes * np.exp(-0.5 * points**2) / np.sqrt(2.0 * np.pi)
