"""The posterior of Bayesian PCA in the data's units, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from dmfvi.families import Gamma, MultivariateNormal, Normal, Product
from dmfvi.families.base import Family
from dmfvi.linalg import FloatArray, log_det, relative_norm, unpack_symmetric
from dmfvi.models.pca.belief import PcaBelief
from dmfvi.models.pca.shard import MaskedShard, Weights
from dmfvi.models.pca.start import Units
from dmfvi.tags import stored_as

#: samples handled at once where memory grows with samples x features x components
CHUNK_ENTRIES = 4_000_000
#: shape of the Gamma that stands for a known noise precision
POINT_SHAPE = 1e15
#: squared loadings below this part of their variance are zero up to rounding and the tolerance of a fit
FAINT = 1e-12


@stored_as("pca-posterior")
@dataclass(frozen=True)
class PcaPosterior:
    """q(W~), q(tau), q(alpha), q(theta): what one node ends with.

    mean (D, K) and covariance (D, K, K) describe row d of W~ = (W, mu); with ``fit_mean=False`` there is
    no last column. Columns are sorted by strength, the largest loading of each is positive; with a noise level for
    each feature loadings count in noise deviations, so that the order does not depend on the features' units.
    """

    mean: FloatArray
    covariance: FloatArray
    noise_shape: float | FloatArray  # (D,) with a noise level for each feature
    noise_rate: float | FloatArray
    column_precision: (
        FloatArray  # (K,): E[alpha_1..M], E[theta]; of scaled features where each has a noise level
    )
    n_latent: int
    factorised: bool

    @classmethod
    def of(cls, belief: PcaBelief, units: Units, sort: bool = True) -> PcaPosterior:
        """Back from standardised units: W = scale W', mu = shift + scale mu'.

        ``sort=False`` keeps order and signs, for a prior that distinguishes the columns.
        """
        d, k = belief.mean.shape
        m = belief.n_latent
        mean = in_data_units(belief.mean, units, m)
        scale, each = units.scale, belief.noise.batch_shape != ()
        factor = scale[:, None, None] if isinstance(scale, np.ndarray) else scale
        covariance = factor**2 * np.broadcast_to(belief.covariance, (d, k, k))
        shape, rate = belief.noise.shape, belief.noise.rate
        posterior = cls(
            mean,
            covariance,
            np.array(shape) if each else float(shape),
            rate * scale**2 if each else float(rate) * scale**2,
            belief.prior_precision / (1.0 if isinstance(scale, np.ndarray) else scale**2),
            m,
            belief.factorised,
        )
        return posterior.sorted() if sort else posterior

    @classmethod
    def point(
        cls, mean: FloatArray, noise_precision: float, n_latent: int, units: Units
    ) -> PcaPosterior:
        """A point estimate in standardised units: no uncertainty of W~ and tau."""
        d, k = mean.shape
        return cls(
            in_data_units(mean, units, n_latent),
            np.zeros((d, k, k)),
            POINT_SHAPE,
            POINT_SHAPE / noise_precision * units.scale**2,
            np.full(k, np.nan),
            n_latent,
            False,
        ).sorted()

    def sorted(self) -> PcaPosterior:
        """Columns by strength, the largest loading of each positive."""
        m = self.n_latent
        unitless = self._unitless
        strength = np.where(self._faint, 0.0, (unitless**2).sum(0))
        order = np.lexsort((self.column_precision[:m], -strength))
        largest = np.abs(unitless).argmax(0)
        signs = np.where(self.mean[largest, np.arange(m)] < 0, -1.0, 1.0)
        return self.with_columns(order, signs[order])

    # -- parameters ---------------------------------------------------------------------

    @property
    def loadings(self) -> FloatArray:
        """E[W], (D, M)."""
        return self.mean[:, : self.n_latent]

    @property
    def _unitless(self) -> FloatArray:
        """Loadings in units in which features can be compared: their own, or noise deviations of each."""
        if np.ndim(self.noise_rate) == 0:
            return self.loadings
        return np.asarray(self.loadings * np.sqrt(self.noise_precision)[:, None])

    @property
    def _faint(self) -> NDArray[np.bool_]:
        """Columns whose means are rounding beside their deviations, (M,): they are told apart by their prior precision."""
        variances = np.diagonal(self.covariance, axis1=-2, axis2=-1)[:, : self.n_latent]
        return np.asarray((self.loadings**2 < FAINT * variances).all(axis=0))

    @property
    def location(self) -> FloatArray:
        """E[mu], (D,); zeros without a mean."""
        if self.mean.shape[1] > self.n_latent:
            return self.mean[:, self.n_latent]
        return np.zeros(len(self.mean))

    @property
    def noise_precision(self) -> Any:
        """E[tau], a number or (D,)."""
        return self.noise_shape / self.noise_rate

    @property
    def noise_variance(self) -> Any:
        """E[1/tau], a number or (D,)."""
        shape = self.noise_shape
        if np.ndim(shape):
            return self.noise_rate / np.maximum(shape - 1.0, 0.5 * shape)
        return self.noise_rate / max(shape - 1.0, 0.5 * shape)

    def family(self) -> Product:
        """The same as named exponential families, in natural parameters."""
        if not self.covariance.any():
            raise ValueError("a point estimate is no distribution: it has no natural parameters")
        rows: Family
        if self.factorised:
            rows = Normal.from_parameters(
                self.mean, np.diagonal(self.covariance, axis1=-2, axis2=-1)
            )
        else:
            rows = MultivariateNormal.from_parameters(self.mean, self.covariance)
        return Product(rows=rows, noise=Gamma.from_parameters(self.noise_shape, self.noise_rate))

    def natural(self) -> FloatArray:
        """Natural parameters of q(W~) and q(tau) as one flat vector."""
        return self.family().pack()

    # -- comparison ---------------------------------------------------------------------

    def with_columns(self, order: Any, signs: FloatArray) -> PcaPosterior:
        """Columns of W reordered and flipped: the model does not distinguish them."""
        k, m = self.mean.shape[1], self.n_latent
        index = np.concatenate([np.asarray(order, dtype=np.intp), np.arange(m, k)])
        sign = np.concatenate([signs, np.ones(k - m)])
        return replace(
            self,
            mean=self.mean[:, index] * sign,
            covariance=self.covariance[:, index][:, :, index] * np.outer(sign, sign),
            column_precision=self.column_precision[index],
        )

    def aligned_to(self, other: PcaPosterior) -> PcaPosterior:
        """With the order and signs of columns that match ``other`` best."""
        overlap = other._unitless.T @ self._unitless
        match = np.abs(overlap)
        faint, here = (
            np.flatnonzero(each._faint)[
                np.argsort(each.column_precision[: each.n_latent][each._faint])
            ]
            for each in (other, self)
        )
        if len(faint) == len(here):
            match[faint], match[:, here] = 0.0, 0.0
            match[faint, here] = 1.0
        order = match.argmax(axis=1)
        if len(set(order.tolist())) < self.n_latent:  # two columns have the same best match
            _, order = optimize.linear_sum_assignment(-match)
        signs = np.where(overlap[np.arange(self.n_latent), order] < 0, -1.0, 1.0)
        return self.with_columns(order, signs)

    def distance(self, other: PcaPosterior) -> float:
        """Largest relative difference of natural parameters, block by block, up to column order and sign.

        Means near zero are measured against their posterior deviation. Point estimates are compared as they are.
        """
        if not other.covariance.any():
            gap = relative_norm(self.aligned_to(other).mean - other.mean, other.mean)
            noise = np.max(np.abs(self.noise_precision / other.noise_precision - 1.0))
            return max(gap, float(noise))
        mine, theirs = self.aligned_to(other).family(), other.family()
        linear, half_precision = theirs["rows"].natural
        diagonal = (
            -2.0 * half_precision
            if self.factorised
            else -2.0 * np.diagonal(half_precision, axis1=-2, axis2=-1)
        )
        scales = {"rows": (np.sqrt(linear**2 + diagonal), half_precision)}
        return max(
            relative_norm(a - b, scale)
            for name in mine
            for a, b, scale in zip(
                mine[name].natural,
                theirs[name].natural,
                scales.get(name, theirs[name].natural),
                strict=True,
            )
        )

    # -- predictions --------------------------------------------------------------------

    def latent(self, data: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (n, M) and covariances (n, M, M) of z given rows of data with NaN for missing."""
        weights = Weights(
            np.column_stack([self.loadings, np.zeros(len(self.mean))])
            if self.mean.shape[1] > self.n_latent
            else self.mean,
            self.covariance,
            self.noise_precision,
            self.n_latent,
        )
        means, spreads = [], []
        for block in self._chunks(data):
            q = MaskedShard.of(block - self.location).posterior(weights)
            means.append(q.mean)
            spreads.append(unpack_symmetric(q.covariance))
        return np.concatenate(means), np.concatenate(spreads)

    def predict(self, data: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Predictive mean and variance of every entry (n, D), from what is observed of its row.

        Var = E[1/tau] + z~' Cov_d z~ + w_d' C w_d + tr(C Cov_d)
        """
        m = self.n_latent
        wide = self.mean.shape[1] > m
        z, spread = self.latent(data)
        means = z @ self.loadings.T + self.location
        variances = np.empty_like(means)
        second = self.covariance[:, :m, :m] + self.loadings[:, :, None] * self.loadings[:, None, :]
        step = max(1, CHUNK_ENTRIES // (len(self.mean) + self.mean.shape[1] ** 2))
        for a in range(0, len(z), step):
            rows = slice(a, a + step)
            extended = np.column_stack([z[rows], np.ones(len(z[rows]))]) if wide else z[rows]
            outer = (extended[:, :, None] * extended[:, None, :]).reshape(len(extended), -1)
            variances[rows] = outer @ self.covariance.reshape(len(self.mean), -1).T
            variances[rows] += (
                spread[rows].reshape(len(extended), -1) @ second.reshape(len(self.mean), -1).T
            )
        return means, variances + self.noise_variance

    def draws(self, data: FloatArray, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Whole rows (n_draws, n, D) from q(W~) q(tau) q(z | x) and the noise; means and variances are those of ``predict``."""
        m = self.n_latent
        z, spread = self.latent(data)
        root = np.linalg.cholesky(spread + 1e-300 * np.eye(m))
        rows = None if not self.covariance.any() else self.family()["rows"]
        made = np.empty((n_draws, *data.shape))
        for i in range(n_draws):
            weights = self.mean if rows is None else rows.sample(rng)
            latent = z + np.einsum("nij,nj->ni", root, rng.standard_normal(z.shape))
            location = weights[:, m] if weights.shape[1] > m else 0.0
            noise = rng.gamma(self.noise_shape, 1.0 / self.noise_rate)
            error = rng.standard_normal(data.shape) / np.sqrt(noise)
            made[i] = latent @ weights[:, :m].T + location + error
        return made

    def log_likelihood(self, data: FloatArray) -> FloatArray:
        """log p(x_n) of the observed part of each row under the posterior mean model.

        x ~ N(mu, W W' + diag(psi)), psi_d = E[1/tau] + tr Cov_d: uncertain loadings widen the noise.
        """
        m = self.n_latent
        psi = self.noise_variance + np.trace(self.covariance, axis1=-2, axis2=-1)
        scaled = self.loadings / psi[:, None]
        second = scaled[:, :, None] * self.loadings[:, None, :]
        out = []
        for block in self._chunks(data):
            mask = np.isfinite(block)
            centred = np.where(mask, block - self.location, 0.0)
            weight = mask.astype(np.float64)
            inner = np.eye(m) + (weight @ second.reshape(len(psi), -1)).reshape(-1, m, m)
            score = centred @ scaled
            solved = np.linalg.solve(inner, score[..., None])[..., 0]
            square = (centred**2) @ (1.0 / psi) - np.einsum("ni,ni->n", score, solved)
            constant = weight @ np.log(2 * np.pi * psi) + log_det(inner)
            out.append(-0.5 * (square + constant))
        return np.concatenate(out)

    def sample(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        """New rows from the posterior predictive: parameters are drawn anew for each row."""
        m = self.n_latent
        family = self.family()
        rows = np.empty((n_samples, len(self.mean)))
        for n in range(n_samples):
            weights = family["rows"].sample(rng)
            z = rng.standard_normal(m)
            location = weights[:, m] if weights.shape[1] > m else 0.0
            noise = rng.gamma(self.noise_shape, 1.0 / self.noise_rate)
            rows[n] = weights[:, :m] @ z + location
            rows[n] += rng.standard_normal(len(rows[n])) / np.sqrt(noise)
        return rows

    def _chunks(self, data: FloatArray) -> list[FloatArray]:
        step = max(1, CHUNK_ENTRIES // (len(self.mean) + self.n_latent**2))
        return [data[a : a + step] for a in range(0, max(len(data), 1), step)]


def in_data_units(mean: FloatArray, units: Units, n_latent: int) -> FloatArray:
    """W = scale W', mu = shift + scale mu'."""
    scaled = units.of_rows * mean
    if mean.shape[1] > n_latent:
        scaled[:, n_latent] += units.shift
    return scaled
