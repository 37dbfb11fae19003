"""Online Bayesian PCA: what one batch leaves to the next (docs/mathematics.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.models.pca.belief import PcaBelief
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.statistics import Layout, PcaStatistics

#: position of (n_obs/2, residual/2) from the end of the packed statistics
NOISE_BLOCK = slice(-4, -2)


def share_of(
    model: BayesianPcaModel, belief: PcaBelief, parts: int, forgetting: float
) -> FloatArray:
    """This node's share of all that was learned, to be added to its next statistics.

    The posterior's natural parameters are prior + statistics; shares that add up to f x statistics make
    f x posterior + (1 - f) x prior the next prior.
    """
    if belief.total is None:
        return np.zeros(model.layout.size)
    share = forgetting * belief.total / parts
    if model.noise == "per_node" and belief.own_noise is not None:
        share[NOISE_BLOCK] = forgetting * belief.own_noise
    return np.asarray(share)


def widen(
    model: BayesianPcaModel, beliefs: Sequence[PcaBelief]
) -> tuple[BayesianPcaModel, list[PcaBelief]]:
    """From one precision for all features to one for each: entries are missing from now on."""
    old = model.layout
    new = Layout(old.n_features, old.width, shared_rows=False)

    def rows(matrix: FloatArray) -> FloatArray:
        return np.tile(matrix, (old.n_features, 1, 1))

    wide = []
    for belief in beliefs:
        total = belief.total
        if total is not None:
            total = PcaStatistics.unpack(total, old).pack(new)
        wide.append(
            replace(
                belief,
                precision=rows(belief.precision),
                covariance=rows(belief.covariance),
                total=total,
            )
        )
    return replace(model, layout=new), wide
