"""Linear response of ratings: deviations that know how the factors of items and users depend on each other.

Mean field treats users and items as independent. Linear response (``inference.response``) varies the items' posterior, users
following from it; the learned hierarchy (prior means and covariances, the prior of noise) stays at its fitted values. Entries
of the total are natural parameters of q(v_i), v = (w, c), so that a quantity g tilts A_i by -2 dg/dE[v v'] and L_i by dg/dE[v].

For a user with q(z, b) = N(m, C), noise precision h and ratings x_j, the expected rating f = m . (E w_i, 1) + E c_i has, with
a = C (E w_i, 1), m = (z, b) and a = (a_w, a_b), over the items j that the user has rated:

    df = (z, 1) . dE v_i + h sum_j [((x_j - b) a_w - a_b z) . dE w_j - a_b dE c_j - a_w' dE[w w']_j z - a_w . dE[c w]_j]

where h is taken as known: with ``noise="user"``, what a prediction owes to the uncertainty of its own user's noise is left out.
An item that was not in the fit has its prior, which depends on nothing: of df the sum is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmfvi.inference.model import Model, Update
from dmfvi.linalg import FloatArray, unpack_symmetric
from dmfvi.models.ratings.belief import RatingBelief
from dmfvi.models.ratings.kernels import RecordLayout, records_of, solve_items
from dmfvi.models.ratings.model import RatingModel
from dmfvi.models.ratings.posterior import RatingPosterior
from dmfvi.models.ratings.shard import RatingShard

#: alternations of a user's factors and noise: here they must have converged, since a derivative follows from them
NOISE_STEPS = 30
#: quantities times numbers of the total that are solved for at once, at most: about a gigabyte
MOST_NUMBERS = 6_000_000


@dataclass(frozen=True)
class RatingResponse(Model):
    """A rating model whose hierarchy is known, in double precision: only items and users vary."""

    model: RatingModel

    @property
    def layout(self) -> RecordLayout:
        """Of records and statistics."""
        return RecordLayout(self.model.n_factors, True)

    @property
    def n_numbers(self) -> int:
        """Numbers of the total, without the bound."""
        return len(self.model.item_features) * self.layout.sums

    @property
    def most_quantities(self) -> int:
        """How many quantities can be solved for at once."""
        return max(1, MOST_NUMBERS // self.n_numbers)

    def start(self, shard: RatingShard, rng: np.random.Generator) -> RatingBelief:
        return self.model.start(shard, rng)

    def local_step(self, shard: RatingShard, belief: RatingBelief) -> FloatArray:
        users = shard.update_users(belief, self.noise_steps, self.layout)
        return np.append(shard.item_sums(users, self.layout).ravel(), users.bound)

    @property
    def noise_steps(self) -> int:
        """Alternations for a user's noise, none if it is shared."""
        return NOISE_STEPS if self.model.noise == "user" else 0

    def absorb(self, total: FloatArray, own: FloatArray, belief: RatingBelief) -> Update:
        return Update(self.belief_from(total, own, belief), float("nan"))

    def change(self, new: RatingBelief, old: RatingBelief) -> float:
        return self.model.change(new, old)

    def belief_from(self, total: FloatArray, own: FloatArray, belief: RatingBelief) -> RatingBelief:
        q = solve_items(
            total[:-1].reshape(len(belief.mean), -1),
            self.model.item_features @ belief.item_prior.coefficients.T,
            belief.item_prior.precision,
            self.layout,
        )
        return replace(belief, mean=q.mean, covariance=q.covariance, records=q.records)

    def expected(self, belief: RatingBelief) -> FloatArray:
        first, second = self._pairs
        moments = unpack_symmetric(belief.covariance)[:, first, second]
        moments = moments + belief.mean[:, first] * belief.mean[:, second]
        signed = np.where(first == second, -0.5, -1.0) * moments
        return np.append(np.concatenate([signed, belief.mean], axis=1).ravel(), 0.0)

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of A as the statistics pack it: the factors' triangle, then the row of the bias."""
        s = self.model.n_factors
        first, second = np.triu_indices(s)
        return np.append(first, np.arange(s + 1)), np.append(second, np.full(s + 1, s))

    def item_tilts(self, belief: RatingBelief, items: NDArray[np.int64]) -> FloatArray:
        """Of the rating that the average user would give to each of some items, (r, n)."""
        blocks = np.zeros((len(items), len(belief.mean), self.layout.sums))
        blocks[np.arange(len(items)), items, -self.layout.width :] = average_user(belief)
        return self._flat(blocks)

    def rating_tilts(
        self,
        shard: RatingShard,
        belief: RatingBelief,
        users: NDArray[np.int64],
        items: NDArray[np.int64],
        unrated: FloatArray,
    ) -> FloatArray:
        """Of expected ratings of pairs (a shard's user, an item), (r, n).

        A user or an item of which nothing is known is -1; ``unrated`` is what is expected of such an item's factors and bias.
        """
        blocks = np.zeros((len(items), len(belief.mean), self.layout.sums))
        known = np.unique(users[users >= 0])
        some = shard.some(known)
        found = some.update_users(belief, self.noise_steps, self.layout, keep=True)
        for block, user, item in zip(blocks, users, items, strict=True):
            if user < 0:
                if item >= 0:
                    block[item, -self.layout.width :] = average_user(belief)
                continue
            at = int(np.searchsorted(known, user))
            m = found.mean[at]
            spread = unpack_symmetric(found.covariance[at].astype(np.float64))
            noise = found.noise[at, 0] / found.noise[at, 1]
            rated = slice(*some.by_user.indptr[at : at + 2])
            columns = some.by_user.columns[rated].astype(np.int64)
            values = some.by_user.values()[rated]
            factors = (belief.mean[item] if item >= 0 else unrated)[:-1]
            block[columns] = self._user_part(spread @ np.append(factors, 1.0), m, values, noise)
            if item >= 0:
                block[item, -self.layout.width :] += np.append(m[:-1], 1.0)
        return self._flat(blocks)

    def _user_part(
        self, a: FloatArray, m: FloatArray, values: FloatArray, noise: float
    ) -> FloatArray:
        """What an expected rating adds to the total through a user's factors, (rated items, sums)."""
        first, second = self._pairs
        s = self.model.n_factors
        of_bias = np.where(first == s, 0.0, a[first])
        quadratic = np.where(second == s, of_bias, a[first] * m[second] + a[second] * m[first])
        linear = np.empty((len(values), s + 1))
        linear[:, :-1] = (values - m[-1])[:, None] * a[:-1] - a[-1] * m[:-1]
        linear[:, -1] = -a[-1]
        return noise * np.concatenate(
            [np.broadcast_to(quadratic, (len(values), len(quadratic))), linear], axis=1
        )

    def _flat(self, blocks: FloatArray) -> FloatArray:
        """One row a quantity, with nothing for the bound."""
        flat = blocks.reshape(len(blocks), -1)
        return np.concatenate([flat, np.zeros((len(flat), 1))], axis=1)


def average_user(belief: RatingBelief) -> FloatArray:
    """(E z, 1) over all users: what it weighs an item's factors and bias with."""
    return np.append(belief.user_mean[:-1], 1.0)


def belief_of(posterior: RatingPosterior) -> RatingBelief:
    """The belief of a fitted posterior, in its canonical coordinates and double precision."""
    mean, covariance = posterior.item_mean[:-1], posterior.item_covariance[:-1]
    return RatingBelief(
        mean,
        covariance,
        records_of(mean, covariance, RecordLayout(mean.shape[1] - 1, True)),
        posterior.user_prior,
        posterior.item_prior,
        posterior.noise_shape,
        posterior.noise_rate,
        posterior.population_mean,
        posterior.population_covariance,
    )
