"""One node's ratings: by user and by item, with what is known of each user beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray
from dmfvi.models.ratings.belief import RatingBelief
from dmfvi.models.ratings.kernels import RatingRows, RecordLayout, UserPass, item_pass, user_pass
from dmfvi.models.ratings.start import ChoiceBasis, RatingUnits, user_features


@dataclass(frozen=True)
class RatedUsers:
    """Users with at least one rating each, in the fit's units."""

    by_user: RatingRows
    features: FloatArray  # (n_users, F), what the users' prior means depend on

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

    def some(self, chosen: NDArray[np.int64]) -> RatedUsers:
        """A few of the users, their ratings copied."""
        return RatedUsers(self.by_user.take(chosen), self.features[chosen])


@dataclass(frozen=True)
class RatingShard(RatedUsers):
    """A node's users, with the same ratings by item."""

    by_item: RatingRows

    @cached_property
    def gram(self) -> FloatArray:
        """F'F."""
        return np.asarray(self.features.T @ self.features)

    def item_sums(self, users: UserPass, layout: RecordLayout) -> FloatArray:
        """Statistics of every item from this node's ratings."""
        return item_pass(self.by_item, users.records, layout)


def make_rating_shard(
    block: tuple[RatingRows, RatingRows], units: RatingUnits, choice: ChoiceBasis
) -> RatingShard:
    """A node's ratings, by user and by item, in the fit's units."""
    by_user, by_item = (rows.in_units(units.mean, units.scale) for rows in block)
    return RatingShard(by_user, user_features(by_user, units, choice), by_item)
