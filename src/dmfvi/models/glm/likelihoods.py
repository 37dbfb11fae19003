"""Likelihoods of generalized linear models: how a row's target depends on its linear predictors.

A likelihood has ``n_outputs`` linear predictors x.w_l + offset and ``n_shared`` parameters psi that all rows share (a log
dispersion, cut points). Under a Gaussian q they are jointly Gaussian, and a row adds

    linear  Z' (E[dl] + H u)      precision  Z' H Z,   H = -E[d2l],   u = Z m,   Z = d(predictors, psi) / d theta
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy

from dmfvi.linalg import FloatArray, cholesky
from dmfvi.models.glm.quadrature import Rules, cubature, cubatures, rules

#: numbers of a design that are worked on at a time: with their product they fit into a core's cache
BLOCK = 65_536
#: logarithms of gaps between cut points are cut here
LARGEST_LOG_SIZE = 50.0
#: counts from which Stirling's series has all digits
LARGE_COUNT = 1000.0
#: rows of a block at least
FEWEST_ROWS = 256


class DesignUnits(NamedTuple):
    """The design of raw rows: (x - shift) / scale, with a column of ones or without."""

    shift: FloatArray
    scale: FloatArray
    intercept: bool

    def design(self, rows: FloatArray) -> FloatArray:
        """Rows in agreed units."""
        from dmfvi.models.glm._kernels_numba import standard_rows

        made = np.empty((len(rows), rows.shape[1] + int(self.intercept)))
        standard_rows(np.ascontiguousarray(rows), self.shift, self.scale, made)
        return made


@dataclass(frozen=True)
class GlmShard:
    """One node's rows: design (n, p), targets as the likelihood has them, and what each row has besides.

    With ``units`` the design is made block by block from raw rows: a second table of all rows would cost more than its use.
    """

    design: FloatArray
    target: FloatArray
    offset: FloatArray
    weight: FloatArray
    trials: FloatArray
    constant: float = 0.0  # part of the log likelihood that depends on no parameter
    units: DesignUnits | None = None

    def blocks(self) -> Iterator[GlmShard]:
        """Consecutive rows that fit into a cache."""
        n, size = len(self.target), max(BLOCK // max(self.design.shape[1], 1), FEWEST_ROWS)
        whole = [getattr(self, name) for name in ROWS]
        for i in range(0, n, size):
            design, *others = (part[i : i + size] for part in whole)
            yield GlmShard(design if self.units is None else self.units.design(design), *others)

    def thinned(self, most: int) -> GlmShard:
        """One of k rows with k times its weight, about ``most`` rows; of less than twice as many, all.

        Which ones is pseudo-random, and the same in every run: every k-th row could be all of one kind.
        """
        n = len(self.target)
        of = n // most
        if of < 2:
            return self
        chosen = np.sort(np.random.default_rng(n).choice(n, -(-n // of), replace=False))
        parts: list[Any] = [np.ascontiguousarray(getattr(self, name)[chosen]) for name in ROWS]
        kept = GlmShard(*parts)
        weight = kept.weight * (n / len(kept.target))
        return replace(kept, weight=weight, constant=self.constant, units=self.units)


ROWS = ("design", "target", "offset", "weight", "trials")


class RowSums(NamedTuple):
    """What rows add to the natural parameters, and their part of the bound."""

    linear: FloatArray
    precision: FloatArray
    value: float


class Likelihood(ABC):
    """Expected log likelihood of rows and its derivatives."""

    n_outputs: int = 1
    n_shared: int = 0

    @property
    def dispersed(self) -> bool:
        """Whether the shared parameter is a log dispersion."""
        return False

    @abstractmethod
    def sums(self, rows: GlmShard, mean: FloatArray, root: FloatArray | None) -> RowSums:
        """Sums over rows under theta ~ N(mean, root root'); at a point where root is None."""

    def constant(self, target: FloatArray, weight: FloatArray, trials: FloatArray) -> float:
        """Weighted sum of the log likelihood's terms that depend on no parameter."""
        return 0.0


def weighted_sums(
    design: FloatArray, slope: FloatArray, curve: FloatArray, inner: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """X' (slope + curve inner) and X' diag(curve) X; half the work where no curve is negative."""
    from dmfvi.models.glm._kernels_numba import scaled_rows

    scaled, linear = np.empty(design.shape), np.zeros(design.shape[1])
    if scaled_rows(design, slope, curve, inner, scaled, linear):
        return linear, np.asarray(scaled.T @ scaled)
    return linear, np.asarray((design * curve[:, None]).T @ design)


@cache
def _one_parameter_kernel(name: str) -> Any:
    """The compiled loop over rows of a link; imported when it is used."""
    if name == "logit":
        from dmfvi.models.glm._logit_numba import logit_rows

        return logit_rows
    from dmfvi.models.glm._kernels_numba import one_parameter_rows

    return partial(one_parameter_rows, OneParameter.CODES.index(name))


@dataclass(frozen=True)
class OneParameter(Likelihood):
    """Bernoulli or binomial with logit or probit link, Poisson with log link: nothing is shared."""

    name: str  # logit, probit or log

    CODES = ("logit", "probit", "log")

    def sums(self, rows: GlmShard, mean: FloatArray, root: FloatArray | None) -> RowSums:
        x, n = rows.design, len(rows.target)
        inner = x @ mean
        spread = np.zeros(n) if root is None else np.einsum("ni,ni->n", *[x @ root] * 2)
        slope, curve = np.empty(n), np.empty(n)
        given = inner + rows.offset, spread, rows.target, rows.trials, rows.weight
        value = _one_parameter_kernel(self.name)(*given, *rules(), slope, curve)
        return RowSums(*weighted_sums(x, slope, curve, inner), value)

    def constant(self, target: FloatArray, weight: FloatArray, trials: FloatArray) -> float:
        if self.name == "log":
            return -float(weight @ gammaln(target + 1.0))
        if (trials == 1.0).all():
            return 0.0
        ways = gammaln(trials + 1.0) - gammaln(target + 1.0) - gammaln(trials - target + 1.0)
        return float(weight @ ways)


@dataclass(frozen=True)
class SharedParameters(Likelihood):
    """Gaussian, Student, negative binomial, Gamma: psi is the log dispersion. Ordinal: psi are the cut points.

    psi's points are the same for all rows; given a point, a row's predictor is Gaussian.
    """

    name: str
    n_shared: int = 1
    degrees_of_freedom: float = 4.0

    CODES = ("gaussian", "student-t", "negative-binomial", "gamma")

    @property
    def dispersed(self) -> bool:
        return not self.name.startswith("ordinal")

    def sums(self, rows: GlmShard, mean: FloatArray, root: FloatArray | None) -> RowSums:
        x, n, m, p = rows.design, len(rows.target), self.n_shared, rows.design.shape[1]
        inner = x @ mean[:p]
        if root is None:
            points, shares = np.zeros((1, m)), np.ones(1)
            outer = mean[None, p:]
            along, spread = np.zeros((n, m)), np.zeros(n)
        else:
            # theta = mean + root z with psi's rows first in z: psi = mean + low z[:m]
            low = root[p:, :m]
            spread_of_psi = float(np.max(np.sum(low**2, 1)))
            if m > 1:  # cut points move against predictors
                spread_of_psi += float(np.sum(root[:p, :m] ** 2))
            points, shares = cubature(m, spread_of_psi)
            outer = mean[p:] + points @ low.T
            along = x @ root[:p, :m]
            spread = np.einsum("ni,ni->n", *[x @ root[:p, m:]] * 2)
        slope, curve, mixed = np.empty(n), np.empty(n), np.empty((n, m))
        psi_slope, psi_curve = np.zeros(m), np.zeros((m, m))
        given = inner + rows.offset, along, spread, rows.target, rows.weight
        made = slope, curve, mixed, psi_slope, psi_curve
        value = self._expected(given, np.ascontiguousarray(points), shares, outer, made)
        cross = x.T @ mixed
        own, gram = weighted_sums(x, slope, curve, inner)
        precision = np.block([[gram, cross], [cross.T, psi_curve]])
        linear = np.concatenate([own, psi_slope + mixed.T @ inner])
        linear[:p] += cross @ mean[p:]
        linear[p:] += psi_curve @ mean[p:]
        return RowSums(linear, precision, value)

    def _expected(
        self,
        given: tuple[FloatArray, ...],
        points: FloatArray,
        shares: FloatArray,
        outer: FloatArray,
        made: tuple[FloatArray, ...],
    ) -> float:
        """Fill ``made`` with expected slopes and curves; the expected log likelihood."""
        if self.dispersed:
            from dmfvi.models.glm._kernels_numba import shared_rows

            code, dof = self.CODES.index(self.name), self.degrees_of_freedom
            psi = np.ascontiguousarray(outer)
            return float(shared_rows(code, *given, dof, points, shares, psi, *rules(), *made))
        from dmfvi.models.glm._ordinal_numba import ordinal_rows

        # c_1 = psi_1, c_k = c_k-1 + exp(psi_k)
        sizes = np.exp(np.minimum(outer, LARGEST_LOG_SIZE))
        cuts = np.cumsum(np.column_stack([outer[:, :1], sizes[:, 1:]]), axis=1)
        sizes[:, 0] = 1.0
        logit = self.name == "ordinal-logit"
        return float(ordinal_rows(logit, *given, points, shares, cuts, sizes, *rules(), *made))

    def constant(self, target: FloatArray, weight: FloatArray, trials: FloatArray) -> float:
        if self.name == "gaussian":
            return -0.5 * np.log(2.0 * np.pi) * float(weight.sum())
        if self.name == "student-t":
            dof = self.degrees_of_freedom
            norm = gammaln(0.5 * (dof + 1.0)) - gammaln(0.5 * dof) - 0.5 * np.log(np.pi * dof)
            return float(norm * weight.sum())
        if self.name == "negative-binomial":
            return float(weight @ log_at_own_mean(target))
        return -float(weight @ target) if self.name == "gamma" else 0.0  # 1/y, y's logarithm given


def log_at_own_mean(counts: FloatArray) -> FloatArray:
    """log(y^y e^-y / y!), the Poisson probability of y where the mean is y; by Stirling's series where its parts would cancel."""
    large = np.maximum(counts, LARGE_COUNT)
    series = -0.5 * np.log(2.0 * np.pi * large) - 1.0 / (12.0 * large) + 1.0 / (360.0 * large**3)
    small = np.minimum(counts, LARGE_COUNT)
    direct = xlogy(small, small) - small - gammaln(small + 1.0)
    return np.asarray(np.where(counts < LARGE_COUNT, direct, series))


@dataclass(frozen=True)
class Softmax(Likelihood):
    """K classes with log odds B u: B (K, K - 1) has orthonormal columns that sum to zero, so no class is special."""

    n_classes: int

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return self.n_classes - 1

    @property
    def contrast(self) -> FloatArray:
        """B."""
        return contrasts(self.n_classes)

    def sums(self, rows: GlmShard, mean: FloatArray, root: FloatArray | None) -> RowSums:
        from dmfvi.models.glm._kernels_numba import softmax_rows

        x, n, size, p = rows.design, len(rows.target), self.n_outputs, rows.design.shape[1]
        inner = x @ mean.reshape(size, p).T
        if root is None:
            given = Rules(np.zeros((1, size)), np.ones(1), np.array([0, 1]), np.zeros(0))
            roots = np.zeros((n, size, size))
        else:
            given = cubatures(size)
            parts = np.stack([x @ root[i * p : (i + 1) * p] for i in range(size)], 1)
            covariance = np.einsum("nik,njk->nij", parts, parts)
            ridge = 1e-14 * np.trace(covariance, axis1=1, axis2=2) + 1e-300
            roots = cholesky(covariance + ridge[:, None, None] * np.eye(size))
        slope, curve = np.empty((n, size)), np.empty((n, size, size))
        value = softmax_rows(
            inner,
            np.ascontiguousarray(roots),
            self.contrast,
            rows.target.astype(np.int64),
            rows.weight,
            *given,
            slope,
            curve,
        )
        pull = slope + np.einsum("nij,nj->ni", curve, inner)
        precision = np.empty((size, p, size, p))
        for i in range(size):
            for j in range(size):
                precision[i, :, j] = (x * curve[:, i, j, None]).T @ x
        return RowSums((pull.T @ x).ravel(), precision.reshape(size * p, size * p), value)


def contrasts(n_classes: int) -> FloatArray:
    """Orthonormal columns (K, K - 1) that sum to zero (Helmert)."""
    made = np.zeros((n_classes, n_classes - 1))
    for j in range(1, n_classes):
        made[:j, j - 1] = 1.0
        made[j, j - 1] = -j
        made[:, j - 1] /= np.sqrt(j * (j + 1.0))
    return made


def likelihood_of(family: str, link: str, **settings: Any) -> Likelihood:
    """The likelihood of a family and link, the link checked already."""
    if family in ("bernoulli", "binomial", "poisson"):
        return OneParameter(link)
    if family == "multinomial":
        return Softmax(settings["n_classes"])
    if family == "ordinal":
        return SharedParameters(f"ordinal-{link}", settings["n_classes"] - 1)
    return SharedParameters(family, 1, settings.get("degrees_of_freedom", 4.0))
