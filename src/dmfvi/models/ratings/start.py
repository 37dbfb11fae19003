"""What the nodes agree on before the first sweep: units, and who tends to rate what.

Which items a user has chosen to rate carries information about taste before any rating is read. With B the
matrix of zeros and ones, the leading singular vectors of n_u^(-1/2) B n_i^(-1/4), without the
first (which only counts), are coordinates of that choice; prior means depend on them
linearly. They are found by subspace iteration on sums over users, so no node shows its rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dmfvi.inference.model import Broadcast, Coroutine, Sum
from dmfvi.linalg import FloatArray
from dmfvi.models.ratings.kernels import RatingRows, neighbour_sums
from dmfvi.tags import stored_as

#: more columns than are kept, and iterations, of the subspace iteration
OVERSAMPLING, ITERATIONS = 7, 6
#: accuracy of the sums agreed on before the fit
START_ACCURACY = 1e-10
#: exponents of the numbers of ratings of users and items
USER_POWER, ITEM_POWER = -0.5, -0.25
#: share of choice in the start, and where its coordinates are cut, in deviations
CHOICE_SHARE, CHOICE_LIMIT = 0.5, 2.0
#: a deviation of less than this part of the mean is rounding
EQUAL = 1e-14
#: a coordinate weaker than this part of the strongest is dropped
LEAST_STRENGTH = 1e-6


@stored_as("rating-units")
@dataclass(frozen=True)
class RatingUnits:
    """Sums that all nodes agree on: how many, how high, how spread."""

    item_counts: FloatArray
    n_users: float
    n_ratings: float
    mean: float
    scale: float

    @property
    def item_weights(self) -> FloatArray:
        """n_i^(-1/4), zero for items without ratings."""
        return np.where(self.item_counts > 0, np.maximum(self.item_counts, 1.0) ** ITEM_POWER, 0.0)


@stored_as("rating-choice")
@dataclass(frozen=True)
class ChoiceBasis:
    """Right singular vectors (D, P), orthonormal, and the squared singular values (P,)."""

    vectors: FloatArray
    strengths: FloatArray

    @classmethod
    def none(cls, n_items: int) -> ChoiceBasis:
        """No coordinates of choice."""
        return cls(np.empty((n_items, 0)), np.empty(0))

    @classmethod
    def read(cls, basis: FloatArray, product: FloatArray, n_kept: int) -> ChoiceBasis:
        """From an orthonormal basis and the agreed X'X basis; the leading vector is left out."""
        values, rotation = np.linalg.eigh(0.5 * (basis.T @ product + product.T @ basis))
        order = np.argsort(values)[::-1][1 : n_kept + 1]
        vectors = basis @ rotation[:, order]
        # a sign that does not depend on rounding
        signs = np.sign(vectors[np.abs(vectors).argmax(0), np.arange(len(order))])
        real = values[order] > LEAST_STRENGTH * values.max()
        return cls(vectors * np.where(real, signs, 0.0), np.where(real, values[order], 1.0))


def agree_on_rating_units(block: tuple[RatingRows, RatingRows], n_items: int) -> Coroutine:
    """How many, how high, and about that mean how spread: two sums. Returns ``RatingUnits``."""
    rows = block[0]
    levels, times = np.unique(rows.codes, return_counts=True)
    values = rows.offset + rows.step * levels.astype(np.float64)
    counts = np.bincount(rows.columns, minlength=n_items).astype(np.float64)
    moments = [rows.n_rows, rows.n_ratings, values @ times]
    total = yield Sum(np.concatenate([counts, moments]), START_ACCURACY)
    total = yield Broadcast(total)
    n_users, n, first = (float(v) for v in total[-3:])
    mean = first / n
    spread = yield Sum(np.array([(values - mean) ** 2 @ times]), START_ACCURACY)
    scale = float(np.sqrt((yield Broadcast(spread))[0] / n))
    if scale <= EQUAL * abs(mean):  # every rating is the same
        scale = 1.0
    # sums agreed over a network are whole numbers up to rounding
    return RatingUnits(np.rint(total[:-3]), round(n_users), round(n), mean, scale)


def agree_on_choice(
    block: tuple[RatingRows, RatingRows], units: RatingUnits, n_features: int, seed: int
) -> Coroutine:
    """Who tends to rate what, by subspace iteration. Returns ``ChoiceBasis``."""
    n_items = len(units.item_counts)
    n_kept = min(n_features, n_items - 2, int(units.n_users) - 2)
    if n_kept <= 0:
        return ChoiceBasis.none(n_items)
    n_columns = min(n_kept + 1 + OVERSAMPLING, n_items)
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((n_items, n_columns)))[0]
    for turn in range(ITERATIONS):
        part = choice_product(*block, units, basis).ravel()
        total = yield Broadcast((yield Sum(part, START_ACCURACY)))
        product = total.reshape(n_items, n_columns)
        if turn + 1 < ITERATIONS:
            basis = np.linalg.qr(product)[0]
    return ChoiceBasis.read(basis, product, n_kept)


def choice_product(
    by_user: RatingRows, by_item: RatingRows, units: RatingUnits, basis: FloatArray
) -> FloatArray:
    """One node's part of X'X basis."""
    weights = units.item_weights[:, None]
    users = neighbour_sums(by_user, weights * basis)
    users /= np.maximum(by_user.counts, 1)[:, None]  # n_u^(-1/2) twice
    return weights * neighbour_sums(by_item, users)


def user_features(by_user: RatingRows, units: RatingUnits, choice: ChoiceBasis) -> FloatArray:
    """One, how many ratings, and the coordinates of choice in units of their deviation, (n, 2 + P)."""
    counts = by_user.counts.astype(np.float64)
    typical = units.n_ratings / units.n_users
    features = np.empty((len(counts), 2 + len(choice.strengths)))
    features[:, 0] = 1.0
    features[:, 1] = np.log((counts + 1.0) / (typical + 1.0))
    projected = neighbour_sums(by_user, units.item_weights[:, None] * choice.vectors)
    projected *= np.maximum(counts, 1.0)[:, None] ** USER_POWER
    features[:, 2:] = projected * np.sqrt(units.n_users / choice.strengths)
    return features


def item_features(units: RatingUnits, choice: ChoiceBasis) -> FloatArray:
    """One, how many ratings, and the coordinates of choice, (D, 2 + P)."""
    counts = units.item_counts
    rated = np.maximum((counts > 0).sum(), 1)
    typical = units.n_ratings / rated
    features = np.empty((len(counts), 2 + len(choice.strengths)))
    features[:, 0] = 1.0
    features[:, 1] = np.log((counts + 1.0) / (typical + 1.0))
    features[:, 2:] = choice.vectors * np.sqrt(rated)
    return features


def start_factors(choice: ChoiceBasis, n_factors: int, rng: np.random.Generator) -> FloatArray:
    """Item factors of about unit variance: random, with a share of choice where there is a coordinate.

    Coordinates of choice have heavy tails, so they are cut: a start that hangs on few items would
    let other columns be switched off before they have found a direction.
    """
    n_items, known = len(choice.vectors), min(n_factors, len(choice.strengths))
    factors = rng.standard_normal((n_items, n_factors))
    informed = np.clip(choice.vectors[:, :known] * np.sqrt(n_items), -CHOICE_LIMIT, CHOICE_LIMIT)
    factors[:, :known] *= np.sqrt(1.0 - CHOICE_SHARE**2)
    factors[:, :known] += CHOICE_SHARE * informed
    return factors
