"""Factorization of a rating matrix with learned biases, prior means and noise (docs/ratings.md).

    x_ui ~ N(z_u . w_i + b_u + c_i, 1/g_u)      g_u ~ Gamma(a, b), or one precision for all
    (z_u, b_u) ~ N(C_U f_u, S_U)      (w_i, c_i) ~ N(C_I f_i, S_I)

Users are local, items global. C, S, a, b maximise the bound (S_U and S_I up to a change of coordinates are
the identity and ARD's diagonal). With both free the coordinates of z need no separate expansion:
a change z -> R z is taken up by S_U and S_I at once, which is what parameter expansion is for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.special import digamma, polygamma

from dmfvi.inference.model import Model, Update
from dmfvi.linalg import FloatArray, relative_norm, unpack_symmetric
from dmfvi.models.ratings.belief import PriorKnowledge, RatingBelief, SidePrior
from dmfvi.models.ratings.kernels import RecordLayout, RowPosteriors, records_of, solve_items
from dmfvi.models.ratings.posterior import RatingPosterior
from dmfvi.models.ratings.shard import RatingShard
from dmfvi.models.ratings.start import ChoiceBasis, RatingUnits, item_features, start_factors
from dmfvi.models.ratings.statistics import RatingStatistics

#: alternations of q(z, b) and q(g) of a user within a sweep
NOISE_STEPS = 3
#: alternations of q(w, c) and the items' prior on the same statistics
ITEM_STEPS = 2
#: what the hierarchy counts for: like one row; ridge of intercepts, and of other features at the start
PRIOR_WEIGHT = 1.0
INTERCEPT_RIDGE, FEATURE_RIDGE = 1e-3, 10.0
#: prior scatter of users' and items' factors and biases, in units of the ratings' deviation
USER_SCATTER, ITEM_SCATTER = 1.0, 0.05
#: variance of items' factors at the start, part of it known
START_VARIANCE, START_CERTAINTY = 0.1, 1e-2
#: part of the ratings' variance that the start takes for noise
START_NOISE = 0.8
START_NOISE_SHAPE = 10.0
#: range of the shape of users' noise: below, single users; above, all alike
SHAPE_RANGE = (0.5, 1e4)


@dataclass(frozen=True)
class RatingModel(Model):
    """Ratings in units of their deviation; the estimator takes care of units."""

    n_factors: int
    units: RatingUnits
    choice: ChoiceBasis
    noise: Literal["user", "shared"] = "user"
    user_bias: bool = True
    item_bias: bool = True

    @property
    def layout(self) -> RecordLayout:
        """Of records and statistics."""
        return RecordLayout.of(self.n_factors, self.units.n_ratings)

    @property
    def noise_steps(self) -> int:
        """Alternations for a user's noise, none if it is shared."""
        return NOISE_STEPS if self.noise == "user" else 0

    @property
    def item_counts(self) -> FloatArray:
        """Ratings of each item over all nodes, (D,)."""
        return self.units.item_counts

    @cached_property
    def item_features(self) -> FloatArray:
        """What the items' prior means depend on, (D, F); the first is one."""
        return item_features(self.units, self.choice)

    @property
    def n_user_features(self) -> int:
        """F of users."""
        return 2 + len(self.choice.strengths)

    @property
    def memoryless(self) -> bool:
        return False  # the hierarchy above users and items is learned by coordinate steps

    # -- the contract -----------------------------------------------------------------

    def start(self, shard: RatingShard, rng: np.random.Generator) -> RatingBelief:
        """Random factors, with a share of who tends to rate what."""
        return self.begin(start_factors(self.choice, self.n_factors, rng))

    def begin(self, factors: FloatArray) -> RatingBelief:
        """A belief near given item factors (D, M) of about unit variance."""
        k = self.layout.width
        mean = np.zeros((len(factors), k))
        mean[:, :-1] = np.sqrt(START_VARIANCE) * factors
        spread = START_VARIANCE * START_CERTAINTY * np.eye(k)
        covariance = np.tile(spread[np.triu_indices(k)], (len(factors), 1))
        user, item = np.eye(k), np.eye(k) * START_VARIANCE
        user[-1, -1], item[-1, -1] = 0.2, 0.2
        for present, matrix in ((self.user_bias, user), (self.item_bias, item)):
            if not present:
                matrix[-1, -1] = PriorKnowledge.NO_BIAS
        shape = START_NOISE_SHAPE
        n_item_features = self.item_features.shape[1]
        belief = RatingBelief(
            mean,
            covariance,
            records_of(mean, covariance, self.layout),
            SidePrior(np.zeros((k, self.n_user_features)), user, start_ridge(self.n_user_features)),
            SidePrior(np.zeros((k, n_item_features)), item, start_ridge(n_item_features)),
            shape,
            shape * START_NOISE,
            np.zeros(k),
            user,
        )
        return belief

    def local_step(self, shard: RatingShard, belief: RatingBelief) -> FloatArray:
        users = shard.update_users(belief, self.noise_steps, self.layout)
        return RatingStatistics(
            shard.item_sums(users, self.layout),
            unpack_symmetric(users.second),
            np.asarray(users.mean.T @ shard.features),
            shard.gram,
            shard.by_user.n_rows,
            shard.by_user.n_ratings,
            users.residual,
            users.weight,
            users.log_weight,
            users.bound,
        ).pack()

    def absorb(self, total: FloatArray, own: FloatArray, belief: RatingBelief) -> Update:
        s = RatingStatistics.unpack(
            total, self.layout, len(self.item_features), self.n_user_features
        )
        if not (s.n_users > 0 and s.residual > 0 and s.weight > 0):
            return Update(belief, float("nan"), True)
        objective = s.bound + belief.global_bound
        user_prior = self._user_knowledge.learn(
            belief.user_prior, s.second, s.cross, s.gram, s.n_users
        )
        shape, rate = self._noise(s, belief)
        # the first feature is one: sum E v over users
        user_mean = s.cross[:, 0] / s.n_users
        new = replace(
            belief,
            user_prior=user_prior,
            noise_shape=shape,
            noise_rate=rate,
            user_mean=user_mean,
            user_covariance=s.second / s.n_users - np.outer(user_mean, user_mean),
            sweeps=belief.sweeps + 1,
        )
        item_prior = belief.item_prior
        for _ in range(ITEM_STEPS):
            q = solve_items(
                s.items,
                self.item_features @ item_prior.coefficients.T,
                item_prior.precision,
                self.layout,
            )
            if not (np.isfinite(q.log_precision).all() and np.isfinite(q.mean).all()):
                return Update(belief, objective, True)  # not proper yet: wait for more agreement
            item_prior = self._learn_items(q, item_prior)
        new = replace(
            new,
            mean=q.mean,
            covariance=q.covariance,
            records=q.records,
            item_prior=item_prior,
            global_bound=self._global_bound(q, item_prior, user_prior),
        )
        return Update(new, objective)

    def change(self, new: RatingBelief, old: RatingBelief) -> float:
        """Largest relative change of items' means, of their covariances and of the noise."""
        return max(
            relative_norm(new.mean - old.mean, new.mean),
            relative_norm(new.covariance - old.covariance, new.covariance),
            abs(new.noise_precision / old.noise_precision - 1.0),
        )

    def posterior(self, belief: RatingBelief) -> RatingPosterior:
        return RatingPosterior.of(belief, self.units, self.choice, self.noise_steps)

    # -- the hierarchy ----------------------------------------------------------------

    @property
    def _user_knowledge(self) -> PriorKnowledge:
        return _knowledge(self.layout.width, USER_SCATTER, self.user_bias)

    @property
    def _item_knowledge(self) -> PriorKnowledge:
        return _knowledge(self.layout.width, ITEM_SCATTER, self.item_bias)

    def _learn_items(self, q: RowPosteriors, old: SidePrior) -> SidePrior:
        """From the items that have ratings."""
        rated = self.item_counts > 0
        mean, features = q.mean[rated], self.item_features[rated]
        second = mean.T @ mean + unpack_symmetric(q.covariance[rated].sum(0))
        return self._item_knowledge.learn(
            old, second, mean.T @ features, features.T @ features, float(rated.sum())
        )

    def _noise(self, s: RatingStatistics, belief: RatingBelief) -> tuple[float, float]:
        """Shape and rate that make the users' precisions most likely, or one shared precision."""
        if self.noise == "shared":
            return 0.5 * s.n_ratings, 0.5 * s.residual
        mean, log_mean = s.weight / s.n_users, s.log_weight / s.n_users
        shape = gamma_shape(np.log(mean) - log_mean, belief.noise_shape)
        return shape, shape / mean

    def _global_bound(
        self, q: RowPosteriors, item_prior: SidePrior, user_prior: SidePrior
    ) -> float:
        """- KL(q(w, c) || prior) over items, and the log-density of the hierarchy."""
        k = self.layout.width
        deviation = q.mean - self.item_features @ item_prior.coefficients.T
        first, second = np.triu_indices(k)
        twice = np.where(first == second, 1.0, 2.0)
        scatter = (q.covariance + deviation[:, first] * deviation[:, second]).sum(0)
        spread = float(np.sum(twice * item_prior.precision[first, second] * scatter))
        n = len(q.mean)
        kl = 0.5 * (spread - n * k - n * item_prior.log_det_precision + q.log_precision.sum())
        return float(-kl + item_prior.log_density + user_prior.log_density)


def _knowledge(width: int, scatter: float, with_bias: bool) -> PriorKnowledge:
    return PriorKnowledge(scatter * np.eye(width), PRIOR_WEIGHT, with_bias)


def start_ridge(n_features: int) -> FloatArray:
    """Precisions of the coefficients' columns before they are learned."""
    ridge = np.full(n_features, FEATURE_RIDGE)
    ridge[0] = INTERCEPT_RIDGE
    return ridge


def gamma_shape(gap: float, guess: float) -> float:
    """Solve log(a) - digamma(a) = gap for a by Newton's method in log(a), within SHAPE_RANGE."""
    low, high = np.log(SHAPE_RANGE)
    at = float(np.clip(np.log(guess), low, high))
    for _ in range(50):
        a = np.exp(at)
        slope = 1.0 - a * polygamma(1, a)
        step = float((np.log(a) - digamma(a) - gap) / slope)
        new = float(np.clip(at - np.clip(step, -2.0, 2.0), low, high))
        if abs(new - at) < 1e-12:
            break
        at = new
    return float(np.exp(at))
