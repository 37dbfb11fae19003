"""Bayesian PCA whose statistics are those of scalar Gaussians, as the paper's appendix has them.

For coordinate k of row d, with the other coordinates at their current means:

    a_dk = alpha_k + tau sum E[z_k^2]      b_dk = alpha_k prior_dk + tau (sum x E[z_k] - sum_{l != k} E[z_k z_l] m_dl)

The vector is [a, b, noise, samples, bound]. Used with ``MomentsADMM``; no parameter expansion, since
the nodes must share coordinates for means and variances to be comparable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmfvi.families import Gamma
from dmfvi.inference.model import Update
from dmfvi.linalg import FloatArray
from dmfvi.models.pca.belief import PcaBelief
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.shard import Shard
from dmfvi.models.pca.statistics import PcaStatistics


@dataclass(frozen=True)
class FactorisedPcaModel(BayesianPcaModel):
    """The diagonal model in scalar coordinates; ``prior_share`` is 1/V, or 1 when replicated."""

    prior_share: float = 1.0

    @property
    def memoryless(self) -> bool:
        return False  # coordinates are updated one by one, given the belief's means

    @property
    def n_scalars(self) -> int:
        """Number of scalar Gaussians, D K."""
        return self.layout.n_features * self.layout.width

    def gaussian_scalars(self, belief: PcaBelief) -> tuple[int, float]:
        # a coordinate's posterior variance is about 1 / (tau x samples that observe it)
        observers = self.units.n_observed / self.layout.n_features
        return self.n_scalars, 3.0 * float((belief.noise_precision * observers) ** -0.5)

    def local_step(self, shard: Shard, belief: PcaBelief) -> FloatArray:
        s = PcaStatistics.unpack(super().local_step(shard, belief), self.layout)
        d, k = belief.mean.shape
        diagonal = np.broadcast_to(np.diagonal(s.rows, axis1=-2, axis2=-1), (d, k))
        rows = np.broadcast_to(s.rows, (d, k, k))
        others = np.einsum("dkl,dl->dk", rows, belief.mean) - diagonal * belief.mean
        share = self.prior_share * belief.prior_precision
        location = self._prior_location()
        linear = s.linear - others + (0.0 if location is None else share * location)
        tail = [s.half_count, s.half_residual, s.n_samples, s.bound]
        return np.concatenate([(diagonal + share).ravel(), linear.ravel(), tail])

    def absorb(self, total: FloatArray, own: FloatArray, belief: PcaBelief) -> Update:
        d, k = belief.mean.shape
        n = self.n_scalars
        a, b = total[:n].reshape(d, k), total[n : 2 * n].reshape(d, k)
        source = own if self.noise == "per_node" else total
        half_count, half_residual = source[2 * n : 2 * n + 2]
        if not (a > 0).all() or half_residual <= 0 or half_count <= 0:
            return Update(belief, float("nan"), True)
        precision = np.zeros((d, k, k))
        precision[:, np.arange(k), np.arange(k)] = a
        covariance = np.zeros((d, k, k))
        covariance[:, np.arange(k), np.arange(k)] = 1.0 / a
        noise_source = PcaStatistics(
            precision, b, np.eye(k), float(half_count), float(half_residual), 0.0, 0.0
        )
        new = replace(
            belief,
            mean=b / a,
            precision=precision,
            covariance=covariance,
            noise=self._noise_posterior(noise_source),
            total=total,
        )
        shapes, rates = self._hyper_posterior(new)
        hyper = Gamma.from_parameters(shapes, rates)
        new = replace(new, hyper=hyper, prior_precision=shapes / rates)
        objective = float(total[-1]) + belief.global_bound
        return Update(replace(new, global_bound=self._global_bound(new)), objective)
