"""Ratings by maximum likelihood: PPCA on the entries that are there (the paper's C-PPCA).

    x_ui ~ N(z_u . w_i + c_i, 1/tau)    z_u ~ N(0, I)    w, c, tau: points, found by EM

The E-step is the user pass of the Bayesian model with certain items; the M-step solves each item's own
equations, so the sums over users that nodes agree on are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dmfvi.inference.model import Update
from dmfvi.linalg import FloatArray
from dmfvi.models.ratings.belief import PriorKnowledge, RatingBelief
from dmfvi.models.ratings.kernels import records_of, solve_items
from dmfvi.models.ratings.model import RatingModel
from dmfvi.models.ratings.statistics import RatingStatistics

#: keeps the equations of an item without ratings solvable
TINY_PRECISION = 1e-6
#: covariance of a point, as far as predictions need one
POINT_VARIANCE = 1e-12


@dataclass(frozen=True)
class RatingPpcaModel(RatingModel):
    """PPCA for ratings; noise must be "shared"."""

    def begin(self, factors: FloatArray) -> RatingBelief:
        k = self.layout.width
        users = np.eye(k)
        users[-1, -1] = PriorKnowledge.NO_BIAS
        begun = super().begin(factors)
        prior = replace(begun.user_prior, covariance=users)
        return replace(
            self._certain(begun, begun.mean),
            user_prior=prior,
            item_prior=replace(begun.item_prior, covariance=POINT_VARIANCE * np.eye(k)),
            user_covariance=users,
        )

    def absorb(self, total: FloatArray, own: FloatArray, belief: RatingBelief) -> Update:
        s = RatingStatistics.unpack(
            total, self.layout, len(self.item_features), self.n_user_features
        )
        k = self.layout.width
        q = solve_items(
            s.items, np.zeros((len(s.items), k)), TINY_PRECISION * np.eye(k), self.layout
        )
        if not (s.residual > 0 and np.isfinite(q.mean).all()):
            return Update(belief, float("nan"), True)
        new = replace(
            self._certain(belief, q.mean),
            noise_shape=0.5 * s.n_ratings,
            noise_rate=0.5 * s.residual,
            sweeps=belief.sweeps + 1,
        )
        return Update(new, s.bound)

    def _certain(self, belief: RatingBelief, mean: FloatArray) -> RatingBelief:
        """The belief with items at these points."""
        k = self.layout.width
        packed = (POINT_VARIANCE * np.eye(k))[np.triu_indices(k)]
        covariance = np.tile(packed, (len(mean), 1))
        records = records_of(mean, covariance, self.layout)
        return replace(belief, mean=mean, covariance=covariance, records=records)
