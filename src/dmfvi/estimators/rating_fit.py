"""From ratings at the nodes to posteriors: the start, the run, the users at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dmfvi.agreement import Meeting
from dmfvi.consensus import ConsensusRule, Place
from dmfvi.engines.base import Engine, RoundRecord, Run
from dmfvi.kernels.ratings import RatingRows
from dmfvi.models.ratings import RatingModel
from dmfvi.models.ratings_belief import RatingBelief
from dmfvi.models.ratings_posterior import RatingPosterior, UserPosteriors
from dmfvi.models.ratings_shard import RatingShard
from dmfvi.models.ratings_start import (
    ITERATIONS,
    OVERSAMPLING,
    ChoiceBasis,
    RatingUnits,
    choice_product,
    item_features,
    start_factors,
    user_features,
)
from dmfvi.network import Network
from dmfvi.node import Job

#: accuracy of the sums agreed on before the fit
START_ACCURACY = 1e-10


@dataclass(frozen=True)
class RatingSettings:
    """What to fit."""

    n_components: int = 12
    user_bias: bool = True
    item_bias: bool = True
    noise: Literal["user", "shared"] = "user"
    n_choice_features: int = 16
    max_sweeps: int = 20
    tol: float | None = None
    model: type[RatingModel] = RatingModel


@dataclass(frozen=True)
class RatingStart:
    """What the nodes have agreed on before the first sweep."""

    units: RatingUnits
    choice: ChoiceBasis
    model: RatingModel
    belief: RatingBelief


@dataclass
class RatingRun:
    """The nodes' beliefs as they are, and how the run goes; kept up to date during the run."""

    start: RatingStart
    shards: list[RatingShard]
    beliefs: list[RatingBelief]
    history: list[RoundRecord] = field(default_factory=list)
    converged: bool = False
    start_rounds: int = 0
    start_bytes: int = 0

    @property
    def sweeps(self) -> int:
        """Sweeps that node 0 has finished."""
        return self.beliefs[0].sweeps

    def posterior(self, node: int = 0, users: UserPosteriors | None = None) -> RatingPosterior:
        """A node's posterior of items, together with users where they are known."""
        return RatingPosterior.of(
            self.beliefs[node], self.start.units, self.start.choice, self.start.model, users
        )

    def users(self) -> UserPosteriors:
        """Every node's users by its own belief, in the order of the nodes."""
        parts = []
        for shard, belief in zip(self.shards, self.beliefs, strict=True):
            parts.append(UserPosteriors.of(shard, belief, self.start.model))
        return UserPosteriors.joined(parts)


#: called after every sweep with the run so far; returning True ends it
SweepObserver = Callable[[RatingRun], bool | None]


def agree_on_rating_start(
    blocks: Sequence[tuple[RatingRows, RatingRows]],
    n_items: int,
    meeting: Meeting,
    settings: RatingSettings,
    rng: np.random.Generator,
) -> RatingStart:
    """Units, coordinates of choice and a belief that all nodes share to the last bit."""
    vectors = [RatingUnits.vector(by_user, n_items) for by_user, _ in blocks]
    units = RatingUnits.read(meeting.broadcast(meeting.sum(vectors, START_ACCURACY)[0])[0])
    choice = ChoiceBasis.none(n_items)
    n_kept = min(settings.n_choice_features, n_items - 2, int(units.n_users) - 2)
    if n_kept > 0:
        n_columns = min(n_kept + 1 + OVERSAMPLING, n_items)
        basis = np.linalg.qr(rng.standard_normal((n_items, n_columns)))[0]
        for turn in range(ITERATIONS):
            parts = [choice_product(a, b, units, basis).ravel() for a, b in blocks]
            total = meeting.sum(parts, START_ACCURACY)[0]
            product = meeting.broadcast(total)[0].reshape(n_items, n_columns)
            if turn + 1 < ITERATIONS:
                basis = np.linalg.qr(product)[0]
        choice = ChoiceBasis.read(basis, product, n_kept)
    model = settings.model(
        settings.n_components,
        item_features(units, choice),
        units.item_counts,
        2 + len(choice.strengths),
        settings.noise,
        settings.user_bias,
        settings.item_bias,
    )
    belief = model.start(start_factors(choice, settings.n_components, rng))
    return RatingStart(units, choice, model, belief)


def fit_ratings(
    blocks: Sequence[tuple[RatingRows, RatingRows]],
    n_items: int,
    network: Network,
    rule: ConsensusRule,
    engine: Engine,
    settings: RatingSettings,
    rng: np.random.Generator,
    observer: SweepObserver | None = None,
    resume: RatingBelief | None = None,
    on_start: Callable[[RatingRun], None] | None = None,
) -> RatingRun:
    """Fit over a network; each node's ratings, by user and by item, stay where they are."""
    meeting = Meeting(network, engine, rule.collective)
    start = agree_on_rating_start(blocks, n_items, meeting, settings, rng)
    shards = [_shard(block, start) for block in blocks]
    first = start.belief if resume is None else resume
    run = RatingRun(start, shards, [first] * len(shards))
    run.start_rounds, run.start_bytes = meeting.n_rounds, meeting.bytes_sent
    if on_start is not None:
        on_start(run)
    left = settings.max_sweeps - first.sweeps
    if left <= 0:
        return run
    job = Job(
        start.model,
        rule,
        tol=settings.tol or 1.0,
        fixed_sweeps=left if settings.tol is None else None,
    )

    def watch(record: RoundRecord, beliefs: list[RatingBelief]) -> bool:
        run.history.append(record)
        if not record.swept:
            return False
        run.beliefs = list(beliefs)
        stop = bool(observer(run)) if observer is not None else False
        return stop or run.sweeps >= settings.max_sweeps

    per_sweep = max(1, rule.rounds_per_sweep(Place.of(network, 0)))
    # where every message arrives all nodes sweep in step, and the rounds are known beforehand
    rounds = left * per_sweep if engine.reliable else 20 * left * per_sweep + 100
    ended: Run = engine.run(job, network, shards, run.beliefs, rounds, watch)
    run.beliefs, run.converged = list(ended.beliefs), ended.converged
    return run


def _shard(block: tuple[RatingRows, RatingRows], start: RatingStart) -> RatingShard:
    units = start.units
    by_user, by_item = (rows.in_units(units.mean, units.scale) for rows in block)
    return RatingShard(by_user, user_features(by_user, units, start.choice), by_item)
