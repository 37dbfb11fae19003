"""How well predictions do on ratings that were held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dmfvi.inference.result import Inference
from dmfvi.linalg import FloatArray
from dmfvi.models.ratings.posterior import UNKNOWN, UserPosteriors
from dmfvi.models.ratings.shard import RatedUsers, RatingShard

#: users at most whose held-out ratings are predicted after every sweep
WATCHED_USERS = 20_000


class Evaluation(NamedTuple):
    """Root mean squared error of clipped means, part of the ratings inside the intervals."""

    rmse: float
    coverage: float
    n_ratings: int
    n_unknown: int  # of users or items without a rating in the fit
    n_unknown_users: int = 0  # different users without a rating in the fit
    n_unknown_items: int = 0  # different items
    recall: float | None = None  # of relevant items among the best top_n, mean over users
    ndcg: float | None = None  # normalised discounted cumulative gain of them


def ranking(
    ranked: NDArray[np.int64], relevant: Sequence[NDArray[np.int64]]
) -> tuple[float, float]:
    """Recall and NDCG (binary gains) of items ranked for each user (n_users, top_n), means over users.

    Recall is of min(top_n, number of relevant items), so that one is possible
    (Järvelin and Kekäläinen, ACM Transactions on Information Systems 20, 2002, for the gains).
    """
    discount = 1.0 / np.log2(np.arange(2, ranked.shape[1] + 2))
    recalls, gains = [], []
    for best, wanted in zip(ranked, relevant, strict=True):
        hits = np.isin(best, wanted)
        most = min(len(best), len(wanted))
        recalls.append(hits.sum() / most)
        gains.append(discount[hits].sum() / discount[:most].sum())
    return float(np.mean(recalls)), float(np.mean(gains))


def evaluate(
    mean: FloatArray,
    variance: FloatArray,
    ratings: FloatArray,
    scale: tuple[float, float],
    level: float,
) -> tuple[float, float]:
    """RMSE and coverage of predictions."""
    error = np.clip(mean, *scale) - ratings
    half = ndtri(0.5 + 0.5 * level) * np.sqrt(variance)
    inside = (ratings >= mean - half) & (ratings <= mean + half)
    return float(np.sqrt(np.mean(error**2))), float(inside.mean())


class Watched:
    """Held-out ratings of some users, predicted from beliefs during a run."""

    def __init__(
        self,
        users: NDArray[np.int64],
        items: NDArray[np.int64],
        ratings: FloatArray,
        scale: tuple[float, float],
    ) -> None:
        known = np.unique(users[users != UNKNOWN])
        if len(known) > WATCHED_USERS:  # evenly spread over all nodes
            known = known[:: -(-len(known) // WATCHED_USERS)]
        chosen = (users == UNKNOWN) | np.isin(users, known)
        self.known = known
        self.users, self.items, self.ratings = users[chosen], items[chosen], ratings[chosen]
        self.scale = scale
        self._parts: list[RatedUsers] | None = None

    def rmse(self, inference: Inference, shards: Sequence[RatingShard]) -> float:
        """Of the beliefs as they are now."""
        if self._parts is None:
            self._parts = self._gather(shards)
        steps = inference.model.noise_steps  # type: ignore[attr-defined]
        pairs = [
            (part, belief)
            for part, belief in zip(self._parts, inference.beliefs, strict=True)
            if part.by_user.n_rows
        ]
        users = UserPosteriors.of_nodes(pairs, steps) if pairs else None
        rows = np.where(self.users == UNKNOWN, UNKNOWN, np.searchsorted(self.known, self.users))
        posterior = inference.model.posterior(inference.beliefs[0])
        mean, _ = posterior.predict(rows, self.items, users)
        return float(np.sqrt(np.mean((np.clip(mean, *self.scale) - self.ratings) ** 2)))

    def _gather(self, shards: Sequence[RatingShard]) -> list[RatedUsers]:
        """The users' own ratings, at the nodes that hold them."""
        ends = np.cumsum([shard.by_user.n_rows for shard in shards])
        parts, begin = [], 0
        for shard, end in zip(shards, ends, strict=True):
            here = self.known[(self.known >= begin) & (self.known < end)] - begin
            parts.append(shard.some(here))
            begin = int(end)
        return parts
