"""The derivative of a sweep of Bayesian PCA in the total, for many directions at once.

A sweep is total -> q(W~), q(alpha), q(tau) -> q(Z) -> statistics (docs/mathematics.md), without change of coordinates.
With P_d = rows_d + diag(a), C_d = P_d^-1, m_d = C_d (h_d + a prior_d) and a = E[alpha] that follows from the energies:

    dm_d = C_d (dh_d + da (prior_d - m_d) - drows_d m_d)      dC_d = -C_d dP_d C_d

and with A_n the precision of z_n, b_n its score, z_n = A_n^-1 b_n:

    dz_n = A_n^-1 (db_n - dA_n z_n)                            dA_n^-1 = -A_n^-1 dA_n A_n^-1

Directions are the first axis of every array.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dmfvi.inference.deflation import SlowDirections
from dmfvi.linalg import (
    FloatArray,
    inverse,
    pack_symmetric,
    symmetrize,
    unpack_symmetric,
    upper_triangle,
)
from dmfvi.models.pca.belief import GammaPrior, PcaBelief
from dmfvi.models.pca.shard import CompleteShard, MaskedShard, Shard, Weights
from dmfvi.models.pca.slow import expected_seconds, shifts

if TYPE_CHECKING:
    from dmfvi.models.pca.model import BayesianPcaModel

#: latent dimensions and numbers at most for which rows with gaps keep the matrix of their response: it has O(M^4) numbers
MOST_LATENT, MOST_NUMBERS = 8, 2**23
#: for fewer directions it takes longer to make than it saves
FEW_DIRECTIONS = 16


class Moves(NamedTuple):
    """Changes of a belief, one for each direction."""

    mean: FloatArray  # (s, D, K)
    covariance: FloatArray  # (s, K, K) or (s, D, K, K)
    log_noise: FloatArray  # (s, 1) or (s, D): of E[log tau]
    noise: FloatArray  # (s, 1) or (s, D): of E[tau]


@dataclass(frozen=True)
class PcaDerivative:
    """At a belief that follows from the fitted total."""

    model: BayesianPcaModel
    shard: Shard
    belief: PcaBelief

    @property
    def rank(self) -> int:
        """The latent dimensions and the mean, and one to spare."""
        return self.belief.mean.shape[1] + 1

    def sweep(self, directions: FloatArray) -> FloatArray:
        """This node's part of J times directions (s, n)."""
        moves = self._belief_moves(directions)
        parts = (
            _complete(self.shard, self.belief, moves)
            if isinstance(self.shard, CompleteShard)
            else self._masked.moved(moves)
        )
        return self._pack(moves, *parts)

    def expected(self, directions: FloatArray) -> FloatArray:
        """Change of the model's ``expected`` along directions (s, n)."""
        return self._expected(self._belief_moves(directions))

    def _expected(self, moves: Moves) -> FloatArray:
        layout = self.model.layout
        found = np.zeros((len(moves.mean), layout.size))
        found[:, layout.blocks[1]] = moves.mean.reshape(len(found), -1)
        found[:, layout.half_counts] = moves.log_noise
        found[:, layout.half_residuals] = -moves.noise
        return found

    def slow(self, total: FloatArray, tilts: FloatArray) -> SlowDirections | None:
        """Shifts of the latent coordinates, where the quantities are about the location alone."""
        layout, k = self.model.layout, self.belief.mean.shape[1]
        elsewhere = np.asarray(tilts.any(0))
        elsewhere[layout.blocks[1]][k - 1 :: k] = False
        if not self.model.with_mean or elsewhere.any():
            return None
        directions = shifts(total, self.belief, layout)
        moves = self._belief_moves(directions)
        expected = self._expected(moves)
        expected[:, layout.blocks[0]] = expected_seconds(moves, self.belief, layout)
        full = symmetrize(inverse(self.belief.precision))
        return SlowDirections(directions, expected, self._spread(tilts, full))

    def own_covariance(self, tilts: FloatArray) -> FloatArray:
        """What q itself says of tilts (r, n): rows of W~ are independent of each other and of the noise."""
        return self._spread(tilts, self.belief.covariance)

    def _spread(self, tilts: FloatArray, covariance: FloatArray) -> FloatArray:
        layout, (d, k) = self.model.layout, self.belief.mean.shape
        rows = tilts[:, layout.blocks[1]].reshape(-1, d, k)
        used = np.flatnonzero(rows.any((0, 1)))  # the location is one column of W~
        rows = np.ascontiguousarray(rows[..., used].transpose(1, 0, 2))
        spread = rows @ np.broadcast_to(covariance, (d, k, k))[:, used[:, None], used]
        found = np.tensordot(spread, rows, axes=((0, 2), (0, 2)))
        noise = slice(layout.half_counts.start, layout.half_residuals.stop)
        if tilts[:, noise].any():
            alone = np.zeros((len(tilts), layout.size))
            alone[:, noise] = tilts[:, noise]
            found = found + self.expected(alone) @ alone.T
        return np.asarray(found)

    @cached_property
    def _masked(self) -> _Masked:
        assert isinstance(self.shard, MaskedShard)
        return _Masked.of(self.shard, self.belief)

    # -- total -> belief ------------------------------------------------------------------

    def _belief_moves(self, directions: FloatArray) -> Moves:
        model, belief, layout = self.model, self.belief, self.model.layout
        (d, k), s = belief.mean.shape, len(directions)
        rows = directions[:, layout.blocks[0]].reshape(s, -1, layout.triangle)
        rows = unpack_symmetric(rows[:, 0] if layout.shared_rows else rows)
        linear = directions[:, layout.blocks[1]].reshape(s, d, k)
        location = model._prior_location()
        deviation = belief.mean if location is None else belief.mean - location
        full = symmetrize(inverse(belief.precision))  # (K, K) or (D, K, K)
        mean, covariance = self._row_moves(full, rows, linear)
        count = d if full.ndim == 2 else 1  # rows that share one covariance
        change = 2.0 * np.einsum("dk,sdk->sk", deviation, mean)
        change += count * np.einsum("s...kk->s...k", covariance).reshape(s, -1, k).sum(1)
        # alpha and theta follow from the energies, which follow from them
        learned = model._hyper_prior[0]
        slope = 0.5 * learned * belief.prior_precision / belief.hyper.rate
        if learned.any():
            back = -2.0 * np.einsum(
                "dk,...kj,dj->kj" if full.ndim == 2 else "dk,dkj,dj->kj",
                deviation,
                full,
                deviation,
                optimize=True,
            )
            if model.covariance == "full":
                back -= count * (full**2 if full.ndim == 2 else (full**2).sum(0))
            else:
                squares = np.diagonal(belief.covariance, axis1=-2, axis2=-1) ** 2
                back -= count * np.diag(squares if squares.ndim == 1 else squares.sum(0))
            system = np.eye(k) + slope[:, None] * back
            hyper = np.linalg.solve(system, -(slope * change).T).T  # (s, K)
            extra = np.zeros((s, k, k))
            extra[:, np.arange(k), np.arange(k)] = hyper
            towards = -hyper[:, None, :] * deviation
            mean = mean + (
                towards @ full if full.ndim == 2 else np.einsum("sdk,dkl->sdl", towards, full)
            )
            spread = extra if full.ndim == 2 else extra[:, None]
            covariance = covariance + self._covariance_moves(full, spread)
        return Moves(mean, covariance, *self._noise_moves(directions))

    def _row_moves(
        self, full: FloatArray, rows: FloatArray, linear: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        mean = self.belief.mean
        if full.ndim == 2:
            return (linear - mean @ rows) @ full, self._covariance_moves(full, rows)
        push = linear - np.einsum("sdij,dj->sdi", rows, mean)
        return np.einsum("sdi,dij->sdj", push, full), self._covariance_moves(full, rows)

    def _covariance_moves(self, full: FloatArray, precision: FloatArray) -> FloatArray:
        if self.model.covariance == "full":
            return -(full @ precision @ full)
        found = np.zeros(np.broadcast_shapes(full.shape, precision.shape))
        at = np.arange(full.shape[-1])
        variances = np.diagonal(self.belief.covariance, axis1=-2, axis2=-1)
        found[..., at, at] = -(variances**2) * precision[..., at, at]
        return found

    def _noise_moves(self, directions: FloatArray) -> tuple[FloatArray, FloatArray]:
        from scipy.special import polygamma

        layout, noise = self.model.layout, self.belief.noise
        counts, residuals = directions[:, layout.half_counts], directions[:, layout.half_residuals]
        if not isinstance(self.model.prior.noise, GammaPrior):
            return np.zeros_like(counts), np.zeros_like(counts)
        shape, rate = np.atleast_1d(noise.shape), np.atleast_1d(noise.rate)
        log = polygamma(1, shape) * counts - residuals / rate
        return log, counts / rate - shape / rate**2 * residuals

    # -- moments -> statistics ------------------------------------------------------------

    def _pack(
        self,
        moves: Moves,
        rows: FloatArray,
        linear: FloatArray,
        d_rows: FloatArray,
        d_linear: FloatArray,
    ) -> FloatArray:
        """Statistics are moments times tau; latent and bound play no part in the belief."""
        belief, layout, s = self.belief, self.model.layout, len(d_linear)
        d, k = belief.mean.shape
        second = belief.mean[:, :, None] * belief.mean[:, None, :] + belief.covariance
        turned = np.einsum("...ij,dj->di" if rows.ndim == 2 else "dij,dj->di", rows, belief.mean)
        residual = 2.0 * np.sum(moves.mean * (turned - linear), axis=2)
        residual -= 2.0 * np.sum(belief.mean * d_linear, axis=2)
        d_flat = np.broadcast_to(d_rows, (s, d, k, k)) if d_rows.ndim == 4 else d_rows[:, None]
        residual += np.sum(d_flat * second, axis=(2, 3))
        spread = moves.covariance if moves.covariance.ndim == 4 else moves.covariance[:, None]
        residual += np.sum(spread * rows, axis=(2, 3))  # (s, D)
        tau = np.atleast_1d(belief.noise_precision)
        noise = moves.noise
        out = np.zeros((s, layout.size))
        out[:, layout.blocks[1]] = (tau[:, None] * d_linear + noise[:, :, None] * linear).reshape(
            s, -1
        )
        if layout.shared_rows:
            weighted = tau[0] * d_rows + noise[:, :, None] * rows
            out[:, layout.blocks[0]] = pack_symmetric(weighted)
        else:
            packed, d_packed = pack_symmetric(rows), pack_symmetric(d_rows)
            if d_packed.ndim == 2:
                d_packed = d_packed[:, None]
            weighted = tau[:, None] * d_packed + noise[:, :, None] * packed
            full = np.broadcast_to(weighted, (s, d, layout.triangle))
            out[:, layout.blocks[0]] = full.reshape(s, -1)
        each = layout.noise_per_feature
        out[:, layout.half_residuals] = 0.5 * (residual if each else residual.sum(1)[:, None])
        return out


def _second_moves(belief: PcaBelief, moves: Moves, m: int) -> tuple[FloatArray, FloatArray]:
    """Changes of tau E[w~ w~'] for each feature, first M rows, packed (s, D, P) and cross (s, D, M) parts apart."""
    tau = np.atleast_1d(belief.noise_precision)[:, None, None]
    mean = belief.mean
    product = moves.mean[:, :, :m, None] * mean[:, None, :]
    change = product + mean[:, :m, None] * moves.mean[:, :, None, :]
    spread = moves.covariance[..., :m, :]
    change += spread if spread.ndim == 4 else spread[:, None]
    here = mean[:, :m, None] * mean[:, None, :] + belief.covariance[..., :m, :]
    change = tau * change + moves.noise[:, :, None, None] * here
    cross = change[..., m] if mean.shape[1] > m else np.zeros((*change.shape[:2], m))
    return change[..., :m], cross


def _loading_moves(belief: PcaBelief, moves: Moves, m: int) -> FloatArray:
    """Changes of tau E[w], (D, s M)."""
    tau = np.atleast_1d(belief.noise_precision)
    change = tau[:, None] * moves.mean[:, :, :m] + moves.noise[:, :, None] * belief.mean[:, :m]
    return change.transpose(1, 0, 2).reshape(len(belief.mean), -1)


def _complete(
    shard: CompleteShard, belief: PcaBelief, moves: Moves
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sum of E[z~ z~'] and of x E[z~], and their changes (s, K, K), (s, D, K)."""
    (d, k), m, s = belief.mean.shape, belief.n_latent, len(moves.mean)
    tau = np.broadcast_to(np.atleast_1d(belief.noise_precision), (d,))
    weighted = tau[:, None] * belief.mean
    spread = np.broadcast_to(belief.covariance, (d, k, k))
    second = weighted.T @ belief.mean + np.einsum("d,dij->ij", tau, spread)
    covariance = inverse(np.eye(m) + second[:m, :m])
    score = shard.rows @ weighted[:, :m]
    change, cross = (each.sum(1) for each in _second_moves(belief, moves, m))
    d_score = (shard.rows @ _loading_moves(belief, moves, m)).reshape(-1, s, m)
    if k > m:
        score = score - np.outer(shard.ones, second[:m, m])
        d_score = d_score - shard.ones[:, None, None] * cross
    z = score @ covariance
    d_z = (d_score - np.einsum("ni,sij->nsj", z, change)) @ covariance  # (n, s, M)
    wide = np.column_stack([z, shard.ones]) if k > m else z
    latent = wide.T @ wide
    latent[:m, :m] += shard.n_samples * covariance
    flat = d_z.reshape(len(z), -1)
    d_linear = np.zeros((s, d, k))
    d_linear[..., :m] = (shard.rows.T @ flat).reshape(d, s, m).transpose(1, 0, 2)
    half = (wide.T @ flat).reshape(k, s, m).transpose(1, 0, 2)  # (s, K, M)
    d_rows = np.zeros((s, k, k))
    d_rows[:, :, :m] += half
    d_rows[:, :m, :] += half.transpose(0, 2, 1)
    d_rows[:, :m, :m] -= shard.n_samples * (covariance @ change @ covariance)
    return latent, shard.rows.T @ wide, d_rows, d_linear


@dataclass(frozen=True)
class _Masked:
    """q(Z) of rows with gaps, and its change: as ``_complete``, for each feature over the rows that observe it."""

    shard: MaskedShard
    belief: PcaBelief
    wide: FloatArray  # (n, K): E[z~]
    covariance: FloatArray  # (n, M, M)
    rows: FloatArray  # (D, K, K)
    linear: FloatArray  # (D, K)
    seen: list[int] = field(default_factory=list)  # numbers of directions so far

    @classmethod
    def of(cls, shard: MaskedShard, belief: PcaBelief) -> _Masked:
        m, k = belief.n_latent, belief.mean.shape[1]
        q = shard.posterior(Weights(belief.mean, belief.covariance, belief.noise_precision, m))
        covariance = unpack_symmetric(q.covariance)
        wide = np.column_stack([q.mean, np.ones(len(q.mean))]) if k > m else q.mean
        second = wide[:, :, None] * wide[:, None, :]
        second[:, :m, :m] += covariance
        rows = unpack_symmetric(shard.mask.T @ shard._times(pack_symmetric(second)))
        return cls(shard, belief, wide, covariance, rows, shard.filled.T @ shard._times(wide))

    def moved(self, moves: Moves) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Moments, and their changes (s, D, K, K), (s, D, K)."""
        shard = self.shard
        (d, k), m, s = self.belief.mean.shape, self.belief.n_latent, len(moves.mean)
        n, p = len(self.wide), m * (m + 1) // 2
        # of each row: the change of the precision of z, packed, and of its score, (n, s, P + M)
        change, cross = _second_moves(self.belief, moves, m)
        wanted = np.concatenate([pack_symmetric(change), -cross], axis=2)
        pushes = (shard.mask @ wanted.transpose(1, 0, 2).reshape(d, -1)).reshape(n, s, p + m)
        pushes[..., p:] += (shard.filled @ _loading_moves(self.belief, moves, m)).reshape(n, s, m)
        self.seen.append(s)
        many = self._few_numbers and sum(self.seen) > FEW_DIRECTIONS
        flat, d_z = self._by_maps(pushes) if many else self._by_products(pushes)
        flat, d_z = shard._times(flat.reshape(n, -1)), shard._times(d_z.reshape(n, -1))
        d_rows = unpack_symmetric((shard.mask.T @ flat).reshape(d, s, -1).transpose(1, 0, 2))
        d_linear = np.zeros((s, d, k))
        d_linear[..., :m] = (shard.filled.T @ d_z).reshape(d, s, m).transpose(1, 0, 2)
        return self.rows, self.linear, d_rows, d_linear

    def _by_products(self, pushes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """d E[z~ z~'] packed (n, s, Q) and d E[z] (n, s, M) from (dA packed, db) of each row."""
        wide, covariance = self.wide, self.covariance
        (n, s, _), m, k = pushes.shape, covariance.shape[1], wide.shape[1]
        d_precision = unpack_symmetric(pushes[..., :-m])
        turned = (d_precision.reshape(n, s * m, m) @ wide[:, :m, None]).reshape(n, s, m)
        d_z = (pushes[..., -m:] - turned) @ covariance
        half = (d_precision.reshape(n, s * m, m) @ covariance).reshape(n, s, m, m)
        first, second = upper_triangle(k)
        whole = np.concatenate([d_z, np.zeros((n, s, k - m))], axis=2)
        flat = whole[..., first] * wide[:, None, second] + whole[..., second] * wide[:, None, first]
        flat[..., second < m] -= pack_symmetric(np.matmul(covariance[:, None], half))
        return flat, d_z

    def _by_maps(self, pushes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The same by one matrix for each row, which all directions of all sweeps share."""
        to_second, to_first = self._maps
        return pushes @ to_second, pushes @ to_first

    @property
    def _few_numbers(self) -> bool:
        """Whether these matrices are small: there are few latent dimensions."""
        n, m, k = len(self.wide), self.covariance.shape[1], self.wide.shape[1]
        each = (m + m * (m + 1) // 2) * (m + k * (k + 1) // 2)
        return m <= MOST_LATENT and n * each <= MOST_NUMBERS

    @cached_property
    def _maps(self) -> tuple[FloatArray, FloatArray]:
        """Matrices (n, P + M, Q) and (n, P + M, M)."""
        wide, covariance = self.wide, self.covariance
        n, m, k = len(wide), covariance.shape[1], wide.shape[1]
        one, other = upper_triangle(m)
        # an entry off the diagonal of dA is there twice
        times = np.where(one == other, 0.5, 1.0)[:, None]
        left, right = covariance[:, one], covariance[:, other]  # (n, P, M): rows of A^-1
        z_left, z_right = wide[:, one, None], wide[:, other, None]
        to_first = np.concatenate([-times * (left * z_right + right * z_left), covariance], axis=1)
        first, second = upper_triangle(k)
        whole = np.zeros((n, to_first.shape[1], k))
        whole[..., :m] = to_first
        to_second = whole[..., first] * wide[:, None, second]
        to_second += whole[..., second] * wide[:, None, first]
        inner = np.flatnonzero(second < m)
        i, j = first[inner], second[inner]
        spread = left[..., i] * right[..., j] + left[..., j] * right[..., i]
        to_second[:, : len(one), inner] -= times * spread
        return to_second, to_first
