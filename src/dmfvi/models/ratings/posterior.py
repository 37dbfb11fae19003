"""Posterior of a rating matrix: predictions with their variances, for known and unknown users and items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray, pack_symmetric, unpack_symmetric
from dmfvi.models.ratings.belief import RatingBelief, SidePrior, canonical, layout_of
from dmfvi.models.ratings.kernels import (
    NoisePrior,
    RatingRows,
    RecordLayout,
    SideBeliefs,
    predict,
    records_of,
    user_pass,
)
from dmfvi.models.ratings.shard import RatedUsers
from dmfvi.models.ratings.start import ChoiceBasis, RatingUnits, item_features, user_features
from dmfvi.tags import stored_as

UNKNOWN = -1


@stored_as("rating-users")
@dataclass(frozen=True)
class UserPosteriors:
    """q of every user's factors and bias, in single precision, and of the noise, (n, 2)."""

    mean: NDArray[np.float32]
    covariance: NDArray[np.float32]
    noise: FloatArray

    @classmethod
    def _of(cls, shard: RatedUsers, belief: RatingBelief, noise_steps: int) -> UserPosteriors:
        """One node's users, by its belief in canonical coordinates."""
        users = shard.update_users(belief, noise_steps, layout_of(belief), keep=True)
        return cls(users.mean.astype(np.float32), users.covariance, users.noise)

    @classmethod
    def of_nodes(
        cls, pairs: Iterable[tuple[RatedUsers, RatingBelief]], noise_steps: int
    ) -> UserPosteriors:
        """All nodes' users, one after the other; coordinates of a belief that several nodes hold are found once."""
        known: dict[int, tuple[RatingBelief, RatingBelief]] = {}
        parts = []
        for shard, belief in pairs:
            if id(belief) not in known:  # the belief is kept there: its id stays its own
                known[id(belief)] = belief, canonical(belief)
            parts.append(cls._of(shard, known[id(belief)][1], noise_steps))
        return cls.joined(parts)

    @classmethod
    def joined(cls, parts: Sequence[UserPosteriors]) -> UserPosteriors:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.mean for part in parts]),
            np.concatenate([part.covariance for part in parts]),
            np.concatenate([part.noise for part in parts]),
        )

    def beliefs(self) -> SideBeliefs:
        """As predictions take them."""
        return SideBeliefs(self.mean, self.covariance, noise_variance(self.noise))


def noise_variance(noise: FloatArray) -> FloatArray:
    """E 1/g under Gamma(shape, rate); where that is infinite, 1/E g."""
    shape, rate = noise[:, 0], noise[:, 1]
    return np.asarray(rate / np.where(shape > 1.5, shape - 1.0, shape))


@stored_as("rating-posterior")
@dataclass(frozen=True)
class RatingPosterior:
    """Everything a prediction needs; factors are in canonical coordinates and units of ``scale``.

    Row D of the items is an item without ratings; index -1 stands for it, and for a user
    of whom nothing is known.
    """

    item_mean: FloatArray  # (D + 1, K): factors, bias
    item_covariance: FloatArray  # (D + 1, K(K+1)/2)
    user_prior: SidePrior
    item_prior: SidePrior
    population_mean: FloatArray  # (K,) of users
    population_covariance: FloatArray  # (K, K)
    noise_shape: float
    noise_rate: float
    noise_steps: int
    units: RatingUnits
    choice: ChoiceBasis
    users: UserPosteriors | None = None

    @classmethod
    def of(
        cls,
        belief: RatingBelief,
        units: RatingUnits,
        choice: ChoiceBasis,
        noise_steps: int,
        users: UserPosteriors | None = None,
    ) -> RatingPosterior:
        """From a node's belief; users must come from the same belief."""
        b = canonical(belief)
        nobody = replace(units, item_counts=np.append(units.item_counts, 0.0))
        unrated = np.vstack([choice.vectors, np.zeros((1, choice.vectors.shape[1]))])
        feature = item_features(nobody, ChoiceBasis(unrated, choice.strengths))[-1]
        mean = np.vstack([b.mean, feature @ b.item_prior.coefficients.T])
        covariance = np.vstack([b.covariance, pack_symmetric(b.item_prior.covariance)])
        return cls(
            mean,
            covariance,
            b.user_prior,
            b.item_prior,
            b.user_mean,
            b.user_covariance,
            b.noise_shape,
            b.noise_rate,
            noise_steps,
            units,
            choice,
            users,
        )

    @property
    def n_items(self) -> int:
        """D."""
        return len(self.item_mean) - 1

    @property
    def layout(self) -> RecordLayout:
        """Of records."""
        return RecordLayout.of(self.item_mean.shape[1] - 1, self.units.n_ratings)

    def population(self) -> UserPosteriors:
        """One user of whom nothing is known."""
        return UserPosteriors(
            self.population_mean[None].astype(np.float32),
            pack_symmetric(self.population_covariance)[None].astype(np.float32),
            np.array([[self.noise_shape, self.noise_rate]]),
        )

    def predict(
        self, users: NDArray[np.int64], items: NDArray[np.int64], known: UserPosteriors | None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of new ratings, noise included, in the ratings' units; -1: unknown."""
        mean, variance = np.empty(len(users)), np.empty(len(users))
        of_items = SideBeliefs(self.item_mean, self.item_covariance)
        rows = np.where(items == UNKNOWN, self.n_items, items).astype(np.int64)
        strangers = users == UNKNOWN
        for mask, source in ((~strangers, known), (strangers, self.population())):
            if not mask.any():
                continue
            assert source is not None
            who = np.where(strangers, 0, users)[mask].astype(np.int64)
            mean[mask], variance[mask] = predict(who, rows[mask], source.beliefs(), of_items)
        units = self.units
        return units.mean + units.scale * mean, units.scale**2 * variance

    def fold_in(self, rows: RatingRows) -> UserPosteriors:
        """Posteriors of users that were not in the fit, from their ratings, items as they are."""
        units = self.units
        layout = self.layout
        inside = rows.in_units(units.mean, units.scale)
        features = user_features(inside, units, self.choice)
        d = self.n_items
        users = user_pass(
            inside,
            records_of(self.item_mean[:d], self.item_covariance[:d], layout),
            features @ self.user_prior.coefficients.T,
            self.user_prior.precision,
            NoisePrior(self.noise_shape, self.noise_rate, self.noise_steps),
            layout,
            keep=True,
        )
        return UserPosteriors(users.mean.astype(np.float32), users.covariance, users.noise)

    def sample_scores(
        self, mean: FloatArray, covariance: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """One joint draw of a user (mean (K,), covariance (K, K)) and all items: their ratings without noise."""
        user = rng.multivariate_normal(mean, covariance, method="cholesky")
        roots = np.linalg.cholesky(unpack_symmetric(self.item_covariance[: self.n_items]))
        draws = rng.standard_normal((self.n_items, len(mean)))
        items = self.item_mean[: self.n_items] + np.einsum("dij,dj->di", roots, draws)
        scores = items[:, :-1] @ user[:-1] + items[:, -1] + user[-1]
        return np.asarray(self.units.mean + self.units.scale * scores)

    def distance(self, other: RatingPosterior) -> float:
        """Largest relative difference of items' natural parameters (Lambda, Lambda m) and of the noise.

        Factors are compared after the best rotation: columns of nearly equal strength may come turned.
        """
        d, k = self.n_items, self.layout.width
        largest = abs(self.noise_shape / self.noise_rate * other.noise_rate / other.noise_shape - 1)
        left, _, right = np.linalg.svd(other.item_mean[:d, :-1].T @ self.item_mean[:d, :-1])
        turn = np.eye(k)
        turn[:-1, :-1] = left @ right
        natural = []
        for p, change in ((self, np.eye(k)), (other, turn)):
            precision = np.linalg.inv(unpack_symmetric(p.item_covariance[:d]))
            linear = np.einsum("dij,dj->di", precision, p.item_mean[:d])
            natural.append((change.T @ precision @ change, linear @ change))
        for a, b in zip(*natural, strict=True):
            largest = max(largest, float(np.linalg.norm(a - b) / np.linalg.norm(b)))
        return float(largest)
