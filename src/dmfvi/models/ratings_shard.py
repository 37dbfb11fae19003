"""One node's ratings: by user and by item, with what is known of each user beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dmfvi._numeric import FloatArray
from dmfvi.kernels.ratings import RatingRows, RecordLayout, UserPass, item_pass, user_pass
from dmfvi.models.ratings_belief import RatingBelief


@dataclass(frozen=True)
class RatingShard:
    """Users with at least one rating each, in the fit's units."""

    by_user: RatingRows
    by_item: RatingRows
    features: FloatArray  # (n_users, F), what the users' prior means depend on

    @cached_property
    def gram(self) -> FloatArray:
        """F'F."""
        return np.asarray(self.features.T @ self.features)

    def update_users(
        self, belief: RatingBelief, noise_steps: int, layout: RecordLayout, keep: bool = False
    ) -> UserPass:
        """q of every user's factors, bias and noise."""
        prior = belief.user_prior
        return user_pass(
            self.by_user,
            belief.records,
            self.features @ prior.coefficients.T,
            prior.precision,
            belief.noise_prior(noise_steps),
            layout,
            keep,
        )

    def item_sums(self, users: UserPass, layout: RecordLayout) -> FloatArray:
        """What this node's ratings say of every item."""
        return item_pass(self.by_item, users.records, layout)
