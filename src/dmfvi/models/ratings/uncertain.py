"""``uncertainty`` of a rating factorization: of items as the average user rates them, and of predicted ratings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dmfvi.inference.response import MAX_SUMS, Quantities, Response, linear_response
from dmfvi.linalg import FloatArray, unpack_symmetric
from dmfvi.models.ratings.belief import RatingBelief
from dmfvi.models.ratings.posterior import UNKNOWN
from dmfvi.models.ratings.predictor import RatingPredictor
from dmfvi.models.ratings.response import RatingResponse, average_user, belief_of
from dmfvi.models.ratings.shard import RatingShard, make_rating_shard
from dmfvi.uncertainty import Context, Uncertainty, check_asked

#: pairs whose deviations linear response predicts at once, at most: each is a quantity of its own
MOST_PAIRS = 500


class UncertainRatings(RatingPredictor):
    """Linear response of items and predictions; the fit leaves a ``Context`` with a ``RatingResponse``."""

    _uncertain: ClassVar[Mapping[str, str | Callable[[Any], ArrayLike]]] = MappingProxyType(
        {"item_means": "item_means_"}
    )

    def uncertainty(  # type: ignore[override]
        self,
        quantity: str = "item_means",
        *,
        items: ArrayLike | None = None,
        method: Literal["linear-response", "mean-field"] = "linear-response",
        level: float = 0.9,
    ) -> Uncertainty:
        """Mean, deviation, interval and covariance of items' expected ratings by the average user.

        Linear response adds what mean field leaves out: that factors of items depend on each other through users who rated
        several. The learned prior is taken as known. It needs the ratings, so that it can be asked for in the process of
        the fit only; where nodes run in processes of their own, all must ask for it, for the same items.

        Parameters
        ----------
        quantity : {"item_means"}
            What ``item_means_`` holds.
        items : array of ids or None
            Of which items; None is all of them, in the order of ``item_ids_``.
        method : {"linear-response", "mean-field"}
            "mean-field" is what the fitted posterior itself says.
        level : float
            Of the interval, between 0 and 1.
        """
        check_asked(self, method, level)
        made = (
            self._kept_or_found(quantity, method, level)
            if items is None
            else self._of_some(items, quantity, method, level)
        )
        for note in made.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        return made

    def _draws(self, rng: np.random.Generator, n_draws: int) -> dict[str, FloatArray]:
        """Of ``item_means_``, each item by itself, as the fitted posterior has it."""
        posterior = self.posterior_
        average = np.append(posterior.population_mean[:-1], 1.0)
        spread = unpack_symmetric(posterior.item_covariance[:-1])
        deviation = np.sqrt(np.einsum("i,dij,j->d", average, spread, average))
        moves = rng.standard_normal((n_draws, len(deviation)))
        return {"item_means": self.item_means_ + posterior.units.scale * deviation * moves}

    def _feature_labels(self, draws: dict[str, FloatArray]) -> dict[str, list[str]]:
        """Items by their ids."""
        return {"item_means_dim_0": [str(each) for each in self.item_ids_.tolist()]}

    def _of_some(self, items: ArrayLike, quantity: str, method: str, level: float) -> Uncertainty:
        """Of items by their ids."""
        self._reader_of(quantity)
        rows = self._items.rows(items)
        if not len(rows):
            raise ValueError("items is empty: name some, or leave it out for all of them")
        if (rows == UNKNOWN).any():
            first = np.asarray(items).ravel()[np.flatnonzero(rows == UNKNOWN)[0]]
            raise ValueError(f"item {first} was not in the fit: ask for items of item_ids_")
        return self._of_items(rows, method, level, self._known_context())

    def _found(
        self,
        quantity: str | Callable[[Any], ArrayLike],
        method: str,
        level: float,
        context: Context,
    ) -> Uncertainty:
        if not isinstance(quantity, str):
            raise ValueError(
                "the uncertainty of ratings takes no function: ask for 'item_means', or for predictions by "
                "predict(users, items, return_std=True, uncertainty='linear-response')"
            )
        self._reader_of(quantity)
        return self._of_items(np.arange(len(self.item_ids_)), method, level, context)

    def _of_items(
        self, items: NDArray[np.int64], method: str, level: float, context: Context
    ) -> Uncertainty:
        model: RatingResponse = context.model  # type: ignore[assignment]
        if len(items) > model.most_quantities:
            raise ValueError(
                f"linear response of this fit takes at most {model.most_quantities} items at once, received {len(items)}: "
                "pass items=[...] with fewer ids"
            )
        units = self.posterior_.units

        def values(belief: RatingBelief) -> FloatArray:
            mean = belief.mean[items] @ average_user(belief) + belief.user_mean[-1]
            return np.asarray(units.mean + units.scale * mean)

        tilts = units.scale * model.item_tilts(self._fitted_belief, items)
        found = self._respond(context, Quantities(tilts, values), method)
        covariance = (
            found.covariance if method == "linear-response" else found.mean_field_covariance
        )
        return Uncertainty(found.mean, covariance, level, method, found, tuple(self._doubts()))

    def _response_variance(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> FloatArray:
        """What linear response adds to the variances of predicted pairs."""
        check_asked(self, "linear-response", 0.9)
        context = self._known_context()
        if not context.session.whole:
            raise ValueError(
                "uncertainty='linear-response' of predictions needs all nodes in one process: use uncertainty='mean-field', "
                "or uncertainty('item_means', items=...), which works on every engine"
            )
        for note in self._doubts():
            warnings.warn(note, UserWarning, stacklevel=4)
        if len(rows) > MOST_PAIRS:
            raise ValueError(
                f"linear response predicts at most {MOST_PAIRS} pairs at once, received {len(rows)}: pass fewer, or use "
                "uncertainty='mean-field', which covers as well where users and items have many ratings"
            )
        # a rating of an unknown item still follows from what its user gave to others
        asked = np.flatnonzero((columns != UNKNOWN) | (rows != UNKNOWN))
        added = np.zeros(len(rows))
        step = context.model.most_quantities  # type: ignore[attr-defined]
        for begin in range(0, len(asked), step):
            part = asked[begin : begin + step]
            added[part] = self._added_variance(context, rows[part], columns[part])
        return np.asarray(self.posterior_.units.scale**2 * added)

    def _added_variance(
        self, context: Context, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> FloatArray:
        """Var(f) less z' Var(w) z, which mean field counts already, in the fit's units."""
        model: RatingResponse = context.model  # type: ignore[assignment]
        belief, shards = self._fitted_belief, self._response_shards(model)
        unrated = self.posterior_.item_mean[-1]
        ends = np.cumsum([shard.by_user.n_rows for shard in shards])
        node = np.searchsorted(ends, rows, side="right") * (rows >= 0)
        tilts = np.zeros((len(rows), model.n_numbers + 1))
        for k, shard in enumerate(shards):
            here = node == k
            if here.any():
                own = np.where(rows >= 0, rows - (ends[k] - shard.by_user.n_rows), UNKNOWN)[here]
                tilts[here] = model.rating_tilts(shard, belief, own, columns[here], unrated)
        users = self._user_posteriors.mean[rows].astype(np.float64)
        users[rows < 0] = belief.user_mean
        direct = np.concatenate([users[:, :-1], np.ones((len(rows), 1))], axis=1)
        known = unpack_symmetric(belief.covariance[columns])
        counted = np.einsum("ri,rij,rj->r", direct, known, direct) * (columns != UNKNOWN)
        found = self._respond(
            context, Quantities(tilts, lambda belief: np.zeros(len(rows))), "linear-response"
        )
        return np.asarray(np.diagonal(found.covariance) - counted)

    def _respond(self, context: Context, quantities: Quantities, method: str) -> Response:
        model: RatingResponse = context.model  # type: ignore[assignment]
        return linear_response(
            context.session,
            model,
            self._response_shards(model),
            [belief_of(posterior) for posterior in self.node_posteriors_],
            quantities,
            MAX_SUMS if method == "linear-response" else 0,
        )

    def _response_shards(self, model: RatingResponse) -> list[RatingShard]:
        """The ratings by user and by item, as in the fit; they are not kept by item, which would double their memory."""
        units, choice = model.model.units, model.model.choice
        n_items = len(self.item_ids_)
        pairs = [(rows, rows.transposed(n_items)) for rows in self._rated]
        return [make_rating_shard(pair, units, choice) for pair in pairs]

    @property
    def _fitted_belief(self) -> RatingBelief:
        return belief_of(self.node_posteriors_[self._shown])
