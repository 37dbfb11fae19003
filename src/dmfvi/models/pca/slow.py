"""Directions in which the location of a PCA responds slowly: shifts of all latent coordinates.

z' = z + b and mu' = mu - W b leave the likelihood unchanged, so that only the prior of z stops sweeps from moving along
them. Totals change as under the change of coordinates T = [I, b; 0, 1] (``PcaStatistics.in_coordinates``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dmfvi.linalg import FloatArray, pack_symmetric
from dmfvi.models.pca.belief import PcaBelief
from dmfvi.models.pca.statistics import Layout, PcaStatistics

if TYPE_CHECKING:
    from dmfvi.models.pca.derivative import Moves


def shifts(total: FloatArray, belief: PcaBelief, layout: Layout) -> FloatArray:
    """Changes (M, n) of the total when one latent coordinate of all samples is shifted."""
    statistics = PcaStatistics.unpack(total, layout)
    (d, k), m = belief.mean.shape, belief.n_latent
    latent = np.arange(m)
    rows = np.zeros((m, *statistics.rows.shape))
    rows[latent, ..., latent, :] = statistics.rows[..., m, :]
    rows += np.swapaxes(rows, -1, -2)
    linear = np.zeros((m, d, k))
    linear[latent, :, latent] = statistics.linear[:, m]
    second = belief.mean[:, :, None] * belief.mean[:, None, :] + belief.covariance
    each = rows if rows.ndim == 4 else rows[:, None]
    residual = np.sum(each * second, axis=(2, 3)) - 2.0 * np.sum(belief.mean * linear, axis=2)
    residual *= 0.5 / np.atleast_1d(belief.noise_precision)
    found = np.zeros((m, layout.size))
    found[:, layout.blocks[0]] = pack_symmetric(rows).reshape(m, -1)
    found[:, layout.blocks[1]] = linear.reshape(m, -1)
    found[:, layout.half_residuals] = (
        residual if layout.noise_per_feature else residual.sum(1)[:, None]
    )
    return found


def expected_seconds(moves: Moves, belief: PcaBelief, layout: Layout) -> FloatArray:
    """Changes of -E[w~ w~']/2 as the statistic of the packed rows of the total: entries off the diagonal count twice."""
    change = moves.mean[..., :, None] * belief.mean[:, None, :]
    change = change + np.swapaxes(change, -1, -2)
    change += moves.covariance if moves.covariance.ndim == 4 else moves.covariance[:, None]
    diagonal = np.arange(belief.mean.shape[1])
    change[..., diagonal, diagonal] *= 0.5
    if layout.shared_rows:
        change = change.sum(1)
    return -pack_symmetric(change).reshape(len(change), -1)
