"""Probabilistic PCA by maximum likelihood (Tipping & Bishop 1999), pooled and distributed (D-PPCA).

    x_n = W z_n + mu + noise,  z_n ~ N(0, I),  noise precision a

EM with missing entries: the E-step is that of Bayesian PCA with certain loadings. The M-step of D-PPCA
for node i with |B| neighbours, dual (L, g, b) and penalty eta, sums over the observers of each feature:

    w_d (a sum E[zz'] + 2 eta |B| I) = a sum (x_nd - mu_d) E[z]' - 2 L_d + eta sum_j (W_i + W_j)_d
    mu_d (N_d a + 2 eta |B|) = a sum (x_nd - w_d . E[z]) - 2 g_d + eta sum_j (mu_i + mu_j)_d
    2 eta |B| a^2 + (S/2 + 2 b - eta sum_j (a_i + a_j)) a - n_obs/2 = 0, its positive root
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dmfvi.inference.model import Coroutine, Model, Update
from dmfvi.linalg import FloatArray, pack_symmetric, relative_norm, unpack_symmetric
from dmfvi.models.pca.posterior import PcaPosterior
from dmfvi.models.pca.shard import Shard, Weights
from dmfvi.models.pca.start import Units, agree_on_loadings
from dmfvi.tags import stored_as


@stored_as("ppca-belief")
class PpcaBelief(NamedTuple):
    """A point estimate: W~ (D, K) and the noise precision."""

    mean: FloatArray
    noise_precision: float

    def pack(self) -> FloatArray:
        """One flat vector, the noise precision last."""
        return np.append(self.mean.ravel(), self.noise_precision)


class PpcaSums(NamedTuple):
    """What the M-step needs of the E-step."""

    rows: FloatArray  # (D, K, K): sum E[z~ z~'] over the observers of each feature
    linear: FloatArray  # (D, K)
    n_observed: float
    residual: float


@dataclass(frozen=True)
class PpcaModel(Model):
    """Maximum likelihood PPCA by EM on sums over all nodes' samples."""

    n_features: int
    n_latent: int
    width: int
    units: Units

    def start(self, shard: Shard, rng: np.random.Generator) -> Coroutine:
        """Loadings from the agreed covariance."""
        found = yield from agree_on_loadings(shard.spread, self.n_features, self.n_latent, rng)
        mean = np.zeros((self.n_features, self.width))
        mean[:, : self.n_latent] = found.loadings
        return PpcaBelief(mean, found.noise_precision)

    def unpack(self, vector: FloatArray) -> PpcaBelief:
        """Inverse of ``PpcaBelief.pack``."""
        return PpcaBelief(vector[:-1].reshape(self.n_features, self.width), float(vector[-1]))

    def local_step(self, shard: Shard, belief: PpcaBelief) -> FloatArray:
        certain = np.zeros((self.width, self.width))
        weights = Weights(belief.mean, certain, belief.noise_precision, self.n_latent)
        m = shard.moments(weights)
        rows = np.broadcast_to(m.rows, (self.n_features, self.width, self.width))
        bound = 0.5 * m.n_observed * np.log(belief.noise_precision / (2 * np.pi))
        bound -= 0.5 * belief.noise_precision * m.residual + m.latent_kl
        return np.concatenate(
            [pack_symmetric(rows).ravel(), m.linear.ravel(), [m.n_observed, m.residual, bound]]
        )

    def sums(self, statistics: FloatArray) -> PpcaSums:
        """The sums of ``local_step``, unpacked."""
        d, k = self.n_features, self.width
        n_rows = d * k * (k + 1) // 2
        rows = unpack_symmetric(statistics[:n_rows].reshape(d, -1))
        linear = statistics[n_rows : n_rows + d * k].reshape(d, k)
        n_observed, residual, _ = statistics[-3:]
        return PpcaSums(rows, linear, float(n_observed), float(residual))

    def absorb(self, total: FloatArray, own: FloatArray, belief: PpcaBelief) -> Update:
        """The M-step of all nodes together."""
        none = np.zeros(self.n_features * self.width + 1)
        if not np.isfinite(total).all():
            return Update(belief, float("nan"), True)
        return Update(
            self.unpack(self.solve(total, belief.pack(), none, none, none, 0)), float(total[-1])
        )

    def change(self, new: PpcaBelief, old: PpcaBelief) -> float:
        return relative_norm(new.pack() - old.pack(), new.pack())

    def posterior(self, belief: PpcaBelief) -> PcaPosterior:
        return PcaPosterior.point(belief.mean, belief.noise_precision, self.n_latent, self.units)

    def posteriors(self, beliefs: Sequence[PpcaBelief]) -> list[PcaPosterior]:
        first, *others = super().posteriors(beliefs)
        return [first, *(p.aligned_to(first) for p in others)]

    @property
    def memoryless(self) -> bool:
        return False  # the textbook's plain iteration, for comparison

    def solve(
        self,
        statistics: FloatArray,
        own: FloatArray,
        dual: FloatArray,
        pull: FloatArray,
        eta: FloatArray,
        degree: int,
    ) -> FloatArray:
        """The M-step of the module's docstring; with no neighbour it is plain EM's."""
        s, m = self.sums(statistics), self.n_latent
        here, duals, pulls = self.unpack(own), self.unpack(dual), self.unpack(pull)
        a, etas = here.noise_precision, self.unpack(eta)
        mean = here.mean.copy()
        stiff = 2.0 * degree * etas.mean
        gram = a * s.rows[:, :m, :m] + stiff[:, :m, None] * np.eye(m)
        drawn = etas.mean * pulls.mean
        right = a * s.linear[:, :m] - 2.0 * duals.mean[:, :m] + drawn[:, :m]
        if self.width > m:
            right -= a * here.mean[:, m:] * s.rows[:, :m, m]
        mean[:, :m] = np.linalg.solve(gram, right[..., None])[..., 0]
        if self.width > m:
            # plain EM uses the new W; with neighbours all right-hand sides are of the last round
            loadings = here.mean[:, :m] if degree else mean[:, :m]
            explained = np.einsum("dk,dk->d", loadings, s.rows[:, :m, m])
            right_mean = a * (s.linear[:, m] - explained) - 2.0 * duals.mean[:, m]
            mean[:, m] = (right_mean + drawn[:, m]) / (a * s.rows[:, m, m] + stiff[:, m])
        if degree:
            curve = 2.0 * degree * etas.noise_precision
            middle = 0.5 * s.residual + 2.0 * duals.noise_precision
            middle -= etas.noise_precision * pulls.noise_precision
            root = np.sqrt(middle**2 + 4.0 * curve * 0.5 * s.n_observed)
            precision = (
                s.n_observed / (middle + root) if middle > 0 else (root - middle) / (2.0 * curve)
            )
        else:
            precision = s.n_observed / max(s.residual, np.finfo(float).tiny)
        return np.append(mean.ravel(), precision)


@dataclass(frozen=True)
class DistributedPpcaModel(PpcaModel):
    """D-PPCA: nodes agree on parameters, each from its own statistics (the rule "parameter-admm")."""

    n_nodes: int = 1

    @property
    def beliefs_alike(self) -> bool:
        return False

    def absorb(self, total: FloatArray, own: FloatArray, belief: PpcaBelief) -> Update:
        """``total`` is the node's parameter vector; no node knows the others' likelihood."""
        return Update(self.unpack(total), float("nan"))

    def eta(self, penalty: float | Literal["auto"], belief: PpcaBelief) -> FloatArray:
        """Penalty per coordinate, in standardised units (x = scale x'), the noise precision last.

        "auto" weighs each parameter by the curvature of a node's likelihood.
        """
        eta = np.empty(self.n_features * self.width + 1)
        if penalty == "auto":
            precision, share = belief.noise_precision, self.units.n_observed / self.n_nodes
            eta[:-1] = precision * share / self.n_features
            eta[-1] = 0.5 * share / precision**2
        else:
            eta[:-1] = penalty * self.units.scale**2
            eta[-1] = penalty / self.units.scale**4
        return eta
