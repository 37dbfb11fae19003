"""What a fitted rating model answers: ratings with intervals, recommendations, new users."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import NetworkEstimator, generator_of
from dmfvi.linalg import FloatArray, plain, unpack_symmetric
from dmfvi.models.ratings.ids import IdIndex
from dmfvi.models.ratings.kernels import RatingRows, index_type
from dmfvi.models.ratings.posterior import UNKNOWN, RatingPosterior, UserPosteriors
from dmfvi.models.ratings.table import Scale
from dmfvi.models.ratings.validation import Evaluation, evaluate, ranking
from dmfvi.validation import check_choice, check_level, check_whole

STRATEGIES = ("mean", "ucb", "thompson")
#: users whose items are ranked at once
RANKED_AT_ONCE = 256


class Recommendations(NamedTuple):
    """Items, best first: their ids, predicted ratings, deviations without noise, and scores."""

    items: NDArray[Any]
    ratings: FloatArray
    std: FloatArray
    scores: FloatArray


class RatingPredictor(NetworkEstimator):
    """Predictions from ``posterior_``; subclasses fit it."""

    _kept: ClassVar[tuple[str, ...]] = (
        "node_posteriors_",
        "_user_posteriors",
        "user_ids_",
        "item_ids_",
        "rating_scale_",
        "_folded",
        "_folded_items",
        "_all_sweeps",
        "calibration_",
    )

    posterior_: RatingPosterior
    node_posteriors_: list[RatingPosterior]
    user_ids_: NDArray[Any]
    item_ids_: NDArray[Any]
    rating_scale_: Scale
    _users: IdIndex
    _items: IdIndex
    _rated: list[RatingRows]
    _user_posteriors: UserPosteriors
    _folded: dict[Any, UserPosteriors]
    _folded_items: dict[Any, NDArray[np.int64]]

    # -- predicting -----------------------------------------------------------------------

    def predict(
        self,
        users: ArrayLike,
        items: ArrayLike,
        return_std: bool = False,
        *,
        uncertainty: Literal["mean-field", "linear-response"] = "mean-field",
    ) -> Any:
        """Expected ratings of the pairs, clipped to the scale.

        ``return_std`` also returns the standard deviation of a new rating, noise included. Unknown users and items are
        predicted by their prior, with a warning. ``uncertainty="linear-response"`` adds how users and items depend on each
        other (docs/uncertainty.md), for at most 500 pairs in the process of the fit, and for no user of ``fold_in``.
        """
        check_choice("uncertainty", uncertainty, ["mean-field", "linear-response"])
        # means are the same by both
        wanted = uncertainty if return_std else "mean-field"
        mean, variance = self._predict(users, items, uncertainty=wanted)
        clipped = np.clip(mean, *self.rating_scale_)
        return (clipped, np.sqrt(variance)) if return_std else clipped

    def predict_interval(
        self,
        users: ArrayLike,
        items: ArrayLike,
        level: float = 0.9,
        *,
        quiet: bool = False,
        uncertainty: Literal["mean-field", "linear-response"] = "mean-field",
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends between which a new rating lies with probability ``level``.

        ``quiet`` leaves out the warning of unknown users and items. ``uncertainty`` is that of ``predict``.
        """
        check_level(level)
        check_choice("uncertainty", uncertainty, ["mean-field", "linear-response"])
        mean, variance = self._predict(users, items, quiet, uncertainty)
        half = ndtri(0.5 + 0.5 * level) * np.sqrt(variance)
        low, high = self.rating_scale_
        return np.clip(mean - half, low, high), np.clip(mean + half, low, high)

    def plot_calibration(
        self, users: ArrayLike, items: ArrayLike, ratings: ArrayLike, ax: Any = None
    ) -> Any:
        """Draw the share of ratings that lie in their intervals against the intervals' level; returns the matplotlib Axes."""
        from dmfvi.report.figures import plot_calibration

        def interval(level: float) -> tuple[FloatArray, FloatArray]:
            return self.predict_interval(users, items, level, quiet=True)

        return plot_calibration(np.asarray(ratings, dtype=np.float64), interval, ax)

    def _calibration(
        self, users: ArrayLike, items: ArrayLike, ratings: ArrayLike
    ) -> dict[str, Any]:
        """Levels of intervals, and the share of held-out ratings that lie inside."""
        values = np.asarray(ratings, dtype=np.float64)
        mean, variance = self._predict(users, items, quiet=True)
        levels = np.linspace(0.1, 0.9, 9)
        scale = self.rating_scale_
        held = [evaluate(mean, variance, values, scale, float(level))[1] for level in levels]
        return {"level": levels, "share": np.array(held), "n_ratings": len(values)}

    def _data_in_words(self) -> str:
        units = self.posterior_.units
        return (
            f"{round(units.n_ratings):,} ratings of {int((units.item_counts > 0.5).sum()):,} items "
            f"by {round(units.n_users):,} users"
        )

    def evaluate(
        self,
        users: ArrayLike,
        items: ArrayLike,
        ratings: ArrayLike,
        level: float = 0.9,
        *,
        top_n: int | None = None,
        relevant: float | None = None,
    ) -> Evaluation:
        """RMSE of the predictions and coverage of the intervals on ratings that were not in the fit.

        With ``top_n`` also recall and NDCG of the ``top_n`` best items that a user has not rated in the fit; relevant are
        items rated at least ``relevant``, by default the mean of all ratings.
        """
        check_level(level)
        values = np.asarray(ratings, dtype=np.float64)
        if not len(values):
            raise ValueError("there is nothing to evaluate: received no rating")
        rows, columns = self._rows(users, items)
        mean, variance = self._predict(users, items, quiet=True)
        rmse, coverage = evaluate(mean, variance, values, self.rating_scale_, level)
        new_user, new_item = self._without_ratings(rows, columns)
        counts = (
            int((new_user | new_item).sum()),
            len(np.unique(np.broadcast_to(np.asarray(users), new_user.shape)[new_user])),
            len(np.unique(np.broadcast_to(np.asarray(items), new_item.shape)[new_item])),
        )
        found: tuple[float | None, float | None] = (None, None)
        if top_n is not None:
            check_whole("top_n", top_n, 1)
            least = self.rating_mean_ if relevant is None else float(relevant)
            wanted = (values >= least) & (rows != UNKNOWN) & (columns != UNKNOWN)
            found = self._ranking(rows[wanted], columns[wanted], int(top_n), least)
        return Evaluation(rmse, coverage, len(values), *counts, *found)

    def _without_ratings(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whose user, and whose item, has no rating in the fit, whether or not the id is known."""
        per_user = np.concatenate([np.diff(part.indptr) for part in self._rated])
        per_item = self.posterior_.units.item_counts
        new_user = (rows == UNKNOWN) | (per_user[np.maximum(rows, 0)] == 0)
        new_item = (columns == UNKNOWN) | (per_item[np.maximum(columns, 0)] < 0.5)
        return new_user, new_item

    def _ranking(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64], top_n: int, least: float
    ) -> tuple[float, float]:
        """Recall and NDCG over the users of these rows."""
        if not len(rows):
            raise ValueError(
                f"no rating of a known user and item is at least {least:g}: lower relevant"
            )
        order = np.argsort(rows, kind="stable")
        people, first = np.unique(rows[order], return_index=True)
        wanted = np.split(columns[order], first[1:])
        best = np.concatenate(
            [
                self._best(people[begin : begin + RANKED_AT_ONCE], top_n)
                for begin in range(0, len(people), RANKED_AT_ONCE)
            ]
        )
        return ranking(best, wanted)

    def _best(self, people: NDArray[np.int64], top_n: int) -> NDArray[np.int64]:
        """The best items of each user by expected rating, without those rated in the fit."""
        items = self.posterior_.item_mean[:-1]
        users = self.posterior_.users
        assert users is not None
        # a user's own bias does not change the order
        scores = users.mean[people][:, :-1] @ items[:, :-1].T + items[:, -1]
        starts = np.cumsum([0, *(part.n_rows for part in self._rated)])
        for score, row in zip(scores, people, strict=True):
            node = int(np.searchsorted(starts, row, side="right")) - 1
            part, at = self._rated[node], row - starts[node]
            score[part.columns[part.indptr[at] : part.indptr[at + 1]]] = -np.inf
        return np.argsort(-scores, axis=1, kind="stable")[:, :top_n]

    def recommend(
        self,
        user: Any,
        n: int = 10,
        strategy: Literal["mean", "ucb", "thompson"] = "mean",
        *,
        level: float = 0.9,
        exclude_rated: bool = True,
        random_state: Any = None,
    ) -> Recommendations:
        """The best ``n`` items for a user.

        ``strategy`` ranks them by expected rating ("mean"), by the upper end at ``level`` of the posterior of that
        expectation ("ucb"), or by one draw from the posterior ("thompson"), which explores.
        """
        check_is_fitted(self)
        check_whole("n", n, 1)
        check_choice("strategy", strategy, STRATEGIES)
        check_level(level)
        belief, rated = self._who(user)
        d = self.posterior_.n_items
        everything = np.arange(d)
        mean, variance = self.posterior_.predict(np.zeros(d, np.int64), everything, belief)
        scale = self.posterior_.units.scale
        noise = scale**2 * float(_noise_of(belief))
        std = np.sqrt(np.maximum(variance - noise, 0.0))
        scores = mean
        if strategy == "ucb":
            scores = mean + ndtri(level) * std
        elif strategy == "thompson":
            rng = generator_of(random_state)
            covariance = unpack_symmetric(belief.covariance[0].astype(np.float64))
            scores = self.posterior_.sample_scores(
                belief.mean[0].astype(np.float64), covariance, rng
            )
        scores = scores.copy()
        if exclude_rated:
            scores[rated] = -np.inf
        order = np.argsort(-scores, kind="stable")[:n]
        order = order[np.isfinite(scores[order])]
        clipped = np.clip(mean[order], *self.rating_scale_)
        return Recommendations(self.item_ids_[order], clipped, std[order], scores[order])

    def fold_in(self, items: ArrayLike, ratings: ArrayLike, *, user: Any = "new user") -> Any:
        """Learn a new user from their ratings without a new fit; returns the id to use from now on.

        The items' posterior stays as it is. A user with that id is replaced; items that the fit has not
        seen are left out, with a warning.
        """
        check_is_fitted(self)
        values = np.asarray(ratings, dtype=np.float64)
        columns = self._items.rows(items)
        if columns.shape != values.shape:
            raise ValueError(
                f"items and ratings must have equal lengths, received {columns.shape} and {values.shape}"
            )
        low, high = self.rating_scale_
        if not ((values >= low) & (values <= high)).all():
            wrong = values[~((values >= low) & (values <= high))][0]
            raise ValueError(f"rating {wrong:g} is outside the scale {low:g}..{high:g}")
        known = columns != UNKNOWN
        if not known.all():
            warnings.warn(
                f"{int((~known).sum())} of {len(known)} items were not in the fit and are left out",
                UserWarning,
                stacklevel=2,
            )
        if not known.any():
            raise ValueError("none of the items was in the fit: nothing can be learned from them")
        where, back = np.unique(columns[known], return_inverse=True)
        times = np.bincount(back)
        if (times > 1).any():
            warnings.warn("items rated twice: their mean is used", UserWarning, stacklevel=2)
        means = np.bincount(back, weights=values[known]) / times
        rows = RatingRows(
            np.array([0, len(where)]),
            where.astype(index_type(self.posterior_.n_items)),
            means.astype(np.float32),
            0.0,
            1.0,
        )
        self._folded[user] = self.posterior_.fold_in(rows)
        self._folded_items[user] = where
        return user

    # -- helpers --------------------------------------------------------------------------

    def _saved(self) -> dict[str, Any]:
        """Of the ratings only who has rated what, so that no user is recommended items they have rated."""
        rated = [(rows.indptr, rows.columns) for rows in self._rated]
        return super()._saved() | {"rated": rated}

    def _restore(self, content: dict[str, Any]) -> None:
        super()._restore(content)
        self._folded, self._folded_items = content["folded"], content["folded_items"]
        self._users, self._items = IdIndex(self.user_ids_), IdIndex(self.item_ids_)
        self._rated = [
            RatingRows(indptr, columns, np.empty(0, np.uint8), 0.0, 1.0)
            for indptr, columns in content["rated"]
        ]

    def _rebuild(self) -> None:
        """The posteriors are kept as they are."""

    def _show(self, node: int) -> None:
        """A node's items, with the users of all nodes of this process."""
        self._shown = node
        self.posterior_ = replace(self.node_posteriors_[node], users=self._user_posteriors)
        self._take(node)

    def _take(self, node: int) -> None:
        posterior = self.posterior_
        assert posterior.users is not None
        scale = posterior.units.scale
        self.item_factors_ = scale * posterior.item_mean[:-1, :-1]
        self.item_bias_ = scale * posterior.item_mean[:-1, -1]
        self.user_factors_ = posterior.users.mean[:, :-1]
        self.user_bias_ = scale * posterior.users.mean[:, -1]
        spread = np.diag(posterior.item_prior.covariance)[:-1]
        self.component_deviations_ = scale * np.sqrt(spread)
        average = posterior.population_mean
        means = posterior.item_mean[:-1] @ np.append(average[:-1], 1.0) + average[-1]
        self.item_means_ = posterior.units.mean + scale * means
        self.rating_mean_ = posterior.units.mean
        self.noise_deviation_ = scale * float(np.sqrt(posterior.noise_rate / posterior.noise_shape))
        self._folded, self._folded_items = {}, {}

    def _rows(
        self, users: ArrayLike, items: ArrayLike
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows, columns = self._users.rows(users), self._items.rows(items)
        if len(rows) != len(columns) and 1 not in (len(rows), len(columns)):
            raise ValueError(
                f"users and items must have equal lengths (or one of them 1), received {len(rows)} and {len(columns)}"
            )
        size = max(len(rows), len(columns)) if min(len(rows), len(columns)) else 0
        return (
            np.ascontiguousarray(np.broadcast_to(rows, size)),
            np.ascontiguousarray(np.broadcast_to(columns, size)),
        )

    def _response_variance(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> FloatArray:
        """What linear response adds to the variances of predicted pairs."""
        raise ValueError(f"{type(self).__name__} has no linear response")

    def _predict(
        self,
        users: ArrayLike,
        items: ArrayLike,
        quiet: bool = False,
        uncertainty: str = "mean-field",
    ) -> tuple[FloatArray, FloatArray]:
        check_is_fitted(self)
        rows, columns = self._rows(users, items)
        strangers = rows == UNKNOWN
        new = self._folded_among(users, strangers)
        mean, variance = self.posterior_.predict(rows, columns, self.posterior_.users)
        if uncertainty == "linear-response":
            if new:
                raise ValueError(
                    f"user {plain(next(iter(new)))!r} came by fold_in, after the fit: use uncertainty='mean-field'"
                )
            variance = variance + self._response_variance(rows, columns)
        for name, here in new.items():
            nought = np.zeros(int(here.sum()), np.int64)
            mean[here], variance[here] = self.posterior_.predict(
                nought, columns[here], self._folded[name]
            )
            strangers = strangers & ~here
        if not quiet:
            _say_unknown("users", strangers, users)
            _say_unknown("items", columns == UNKNOWN, items)
        return mean, variance

    def _folded_among(
        self, users: ArrayLike, strangers: NDArray[np.bool_]
    ) -> dict[Any, NDArray[np.bool_]]:
        """Where users of ``fold_in`` are among those whom the fit does not know."""
        if not (self._folded and strangers.any()):
            return {}
        asked = np.broadcast_to(np.atleast_1d(np.asarray(users, dtype=object)), strangers.shape)
        places = {
            name: strangers & np.array([value == name for value in asked]) for name in self._folded
        }
        return {name: here for name, here in places.items() if here.any()}

    def _who(self, user: Any) -> tuple[UserPosteriors, NDArray[np.int64]]:
        """One user's posterior, and what they have rated."""
        if user in self._folded:
            return self._folded[user], self._folded_items[user]
        row = int(self._users.rows([user])[0])
        if row == UNKNOWN:
            warnings.warn(
                f"user {plain(user)!r} is unknown: recommendations are those for a typical user",
                UserWarning,
                stacklevel=3,
            )
            return self.posterior_.population(), np.empty(0, np.int64)
        users = self.posterior_.users
        assert users is not None
        one = slice(row, row + 1)
        belief = UserPosteriors(users.mean[one], users.covariance[one], users.noise[one])
        for rows in self._rated:
            if row < rows.n_rows:
                return belief, rows.columns[rows.indptr[row] : rows.indptr[row + 1]].astype(
                    np.int64
                )
            row -= rows.n_rows
        raise AssertionError("a user belongs to a node")


def _noise_of(belief: UserPosteriors) -> float:
    noise = belief.beliefs().noise
    assert noise is not None
    return float(noise[0])


def _say_unknown(what: str, unknown: NDArray[np.bool_], asked: ArrayLike) -> None:
    if unknown.any():
        values = np.broadcast_to(np.atleast_1d(np.asarray(asked)), unknown.shape)
        first = values[np.flatnonzero(unknown)[0]]
        warnings.warn(
            f"{int(unknown.sum())} of {len(unknown)} {what} are unknown (first: {first}): "
            "predicted by their prior",
            UserWarning,
            stacklevel=4,
        )
