"""RatingFactorization: Bayesian factorization of a rating matrix, pooled or over a network."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from dmfvi.consensus import StatisticsTracking
from dmfvi.engines.base import RoundRecord
from dmfvi.inference.federation import Federation
from dmfvi.inference.session import Inference, Session
from dmfvi.models.ratings.belief import RatingBelief
from dmfvi.models.ratings.catalogue import agree_on_catalogue
from dmfvi.models.ratings.checkpoint import Checkpoint
from dmfvi.models.ratings.ids import IdIndex
from dmfvi.models.ratings.kernels import RatingRows
from dmfvi.models.ratings.model import RatingModel
from dmfvi.models.ratings.posterior import UserPosteriors
from dmfvi.models.ratings.predictor import RatingPredictor
from dmfvi.models.ratings.shard import make_rating_shard
from dmfvi.models.ratings.start import agree_on_choice, agree_on_rating_units
from dmfvi.models.ratings.table import RatingInput, joined, read_input, split_block
from dmfvi.models.ratings.validation import Watched
from dmfvi.network import Network
from dmfvi.progress import live_sweeps
from dmfvi.validation import check_choice, check_whole

#: a sweep is dear and a message cheap: agreement within a sweep goes nearly all the way
DAMPING = 1e-9
#: a compiled sweep unrolls the rank
MOST_COMPONENTS = 32


class RatingFactorization(RatingPredictor):
    """Bayesian matrix factorization with biases, learned prior means and honest intervals.

    x_ui ~ N(z_u . w_i + b_u + c_i, 1/g_u). Users are local to their node, items are shared; every node
    ends with the posterior of the items that one machine holding all ratings would have computed.

    Parameters
    ----------
    n_components : int
        Rank; columns that the data do not support are switched off by the learned prior (ARD).
    user_bias, item_bias : bool
        Whether users and items have a bias, learned together with their factors.
    noise : {"user", "shared"}
        Each user a noise level of their own, with a learned prior, or one for all.
    n_choice_features : int
        Prior means depend on how many ratings a user or item has, and on this many coordinates of who rates
        what (docs/ratings.md); 0 for none of the latter.
    rating_scale : (low, high) or None
        Predictions are clipped to it and ratings outside are refused; None: as the data have it.
    network : Network, Federation or None
        Who talks to whom; None is one machine with all ratings. A ``Federation`` also says how the nodes agree
        (consensus="auto" is statistics tracking, which needs half of Bregman ADMM's memory: that counts when a message
        has millions of numbers) and where they run: with engine="mpi" every rank is a node and passes its own users'
        ratings; it ends with the posterior of all items and of its own users (docs/deploy.md).
    tol : float or None
        Stop when the items' posterior changes by less from sweep to sweep; None: never.
    max_iter : int
        Sweeps over all ratings.
    random_state : int, RandomState or None
        Seed of the start.
    verbose : int
        1 shows progress.

    Attributes
    ----------
    user_ids_, item_ids_ : ids in the order of the rows below; users of this process only
    user_factors_, user_bias_, item_factors_, item_bias_ : posterior means, in units of ratings; users'
        factors have unit prior variance, so items' carry the strength, strongest first
    component_deviations_ : prior deviation of each column, ARD's; near zero is switched off
    rating_mean_, noise_deviation_ : of all ratings; of a typical user's noise
    posterior_ : RatingPosterior of node 0; node_posteriors_ : items' posterior at every node
    lower_bound_ : evidence lower bound at the last but one sweep, up to the hierarchy's constants
    history_ : dict of arrays, one entry a sweep: objective, change, disagreement, bytes_sent, and
        rmse where ratings were held out
    n_iter_ (sweeps), n_rounds_, n_start_rounds_, n_start_bytes_, converged_, rating_scale_

    Examples
    --------
    >>> from dmfvi import RatingFactorization
    >>> from dmfvi.datasets import make_ratings
    >>> R = make_ratings(20_000, seed=0).ratings
    >>> model = RatingFactorization(3, max_iter=5, random_state=0).fit(R)
    >>> mean, std = model.predict([0, 1], [5, 6], return_std=True)
    >>> mean.shape
    (2,)
    """

    _data_form = "ratings"
    _model_type: ClassVar[type[RatingModel]] = RatingModel
    _consensus = StatisticsTracking.name
    _consensus_settings = MappingProxyType({"damping": DAMPING})

    def __init__(
        self,
        n_components: int = 12,
        *,
        user_bias: bool = True,
        item_bias: bool = True,
        noise: Literal["user", "shared"] = "user",
        n_choice_features: int = 16,
        rating_scale: tuple[float, float] | None = None,
        network: Network | Federation | None = None,
        tol: float | None = None,
        max_iter: int = 20,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            network=network,
            tol=tol,  # type: ignore[arg-type]
            max_iter=max_iter,
            random_state=random_state,
            verbose=verbose,
        )
        self.n_components = n_components
        self.user_bias = user_bias
        self.item_bias = item_bias
        self.noise = noise
        self.n_choice_features = n_choice_features
        self.rating_scale = rating_scale

    # -- fitting --------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        held_out: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
        on_sweep: Callable[[Checkpoint], bool | None] | None = None,
        resume: Checkpoint | None = None,
    ) -> Self:
        """Fit to a sparse matrix users x items (stored entries are ratings, absent ones unknown), an array with NaN, to
        (users, items, ratings) with ids of your own, to a ``RatingTable``, or to a list of these, one per node.

        ``held_out`` (users, items, ratings) are predicted after every sweep. ``on_sweep`` receives a
        checkpoint after every sweep, and may return True to end the fit; ``resume`` goes on from
        one. Interrupted (Ctrl-C) after a sweep, what was learned so far is kept in the estimator,
        and KeyboardInterrupt is raised again.
        """
        session = self._open()
        self._check_parameters()
        given, seed = self._given(X, session)
        n_items = len(given.item_ids)
        self.rating_scale_ = given.scale
        self.item_ids_ = given.item_ids
        self.user_ids_ = np.concatenate([block.user_ids for block in given.blocks])
        self._users, self._items = IdIndex(self.user_ids_), IdIndex(self.item_ids_)
        self._rated = [block.rows for block in given.blocks]
        watched = self._watched(held_out)
        belief = None if resume is None else self._resumed(resume, n_items)
        seed = seed if resume is None else resume.seed
        self._errors: list[float] = [] if resume is None else list(resume.errors)
        pairs = [(block.rows, block.rows.transposed(n_items)) for block in given.blocks]
        # the kernels use all cores; threads inside BLAS would only stand in their way
        with threadpool_limits(1, user_api="blas"):
            model = self._agreed_model(session, pairs, seed)
            # only the agreed counts know which items nobody has rated
            _say_what_is_empty(given.n_empty_users, int((model.item_counts < 0.5).sum()))
            self._shards = [make_rating_shard(pair, model.units, model.choice) for pair in pairs]
            self._sweep(session, model, belief, seed, watched, on_sweep)
        del self._shards  # the ratings by item are not needed any more
        return self

    def _agreed_model(
        self, session: Session, pairs: list[tuple[RatingRows, RatingRows]], seed: int
    ) -> RatingModel:
        """The model with the units and coordinates of choice that the nodes agree on."""
        count = partial(agree_on_rating_units, n_items=len(self.item_ids_))
        units = session.agree(count, pairs)[0]
        choose = partial(
            agree_on_choice, units=units, n_features=int(self.n_choice_features), seed=seed
        )
        choice = session.agree(choose, pairs)[0]
        biases = bool(self.user_bias), bool(self.item_bias)
        return self._model_type(int(self.n_components), units, choice, self.noise, *biases)

    def _sweep(
        self,
        session: Session,
        model: RatingModel,
        belief: RatingBelief | None,
        seed: int,
        watched: Watched | None,
        on_sweep: Callable[[Checkpoint], bool | None] | None,
    ) -> None:
        already = 0 if belief is None else belief.sweeps
        latest: list[Inference] = []
        with live_sweeps("ratings", int(self.max_iter), self.verbose > 0, already) as show:

            def observe(record: RoundRecord, so_far: Inference) -> bool:
                if not record.swept:
                    return False
                latest[:] = [so_far]
                if watched is not None:
                    self._errors.append(watched.rmse(so_far, self._shards))
                now = so_far.beliefs[0]
                show(now.sweeps, record, self._errors[-1] if self._errors else None)
                if on_sweep is None:
                    return False
                return bool(on_sweep(self._checkpoint(now, model, seed)))

            try:
                made = session.fit(
                    model,
                    self._shards,
                    start=belief,
                    tol=self.tol,
                    max_iter=max(1, int(self.max_iter) - already),
                    random_state=seed,
                    observer=observe,
                )
            except KeyboardInterrupt:
                if latest:
                    self._keep(latest[0])
                raise
        self._keep(made)

    def _given(self, X: Any, session: Session) -> tuple[RatingInput, int]:
        """One block of ratings for each node that runs here, everybody's items, and a seed for all."""
        given = read_input(X, self.rating_scale)
        seed, blocks, n_nodes = (
            session.seed(self.random_state),
            given.blocks,
            session.network.n_nodes,
        )
        if not session.whole:
            if len(blocks) > 1:
                raise ValueError(
                    f"received {len(blocks)} blocks, but this process runs node {session.here[0]} only: "
                    "pass its own ratings"
                )
            scale_given = self.rating_scale is not None
            return agree_on_catalogue(given, session.collective, scale_given), seed
        if len(blocks) == 1 and n_nodes > 1:
            blocks = split_block(blocks[0], n_nodes)
        elif len(blocks) > 1 and session.pooled:
            blocks = [joined(blocks)]
        if len(blocks) != n_nodes:
            raise ValueError(
                f"received {len(blocks)} blocks for a network of {n_nodes} nodes: "
                "pass one block per node"
            )
        return given._replace(blocks=blocks), seed

    def _check_parameters(self) -> None:
        check_whole("n_components", self.n_components, 1)
        if self.n_components > MOST_COMPONENTS:
            raise ValueError(
                f"n_components must be at most {MOST_COMPONENTS}, the largest that the compiled sweep "
                f"takes, received {self.n_components}"
            )
        check_whole("n_choice_features", self.n_choice_features, 0)
        check_choice("noise", self.noise, ["user", "shared"])
        if self.rating_scale is not None:
            ends = np.asarray(self.rating_scale)
            if ends.shape != (2,) or ends.dtype.kind not in "fiu" or not ends[0] < ends[1]:
                raise ValueError(
                    f"rating_scale must be (lowest, highest), received {self.rating_scale!r}"
                )

    def _watched(self, held_out: Any) -> Watched | None:
        if held_out is None:
            return None
        users, items, ratings = held_out
        values = np.asarray(ratings, dtype=np.float64)
        if not len(values):
            raise ValueError("held_out has no rating: leave it out or give some")
        rows, columns = self._users.rows(users), self._items.rows(items)
        if not len(rows) == len(columns) == len(values):
            raise ValueError(
                f"held_out needs equal lengths, received {len(rows)}, {len(columns)}, {len(values)}"
            )
        return Watched(rows, columns, values, self.rating_scale_)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Users, items, ratings of this process."""
        n_ratings = sum(rows.n_ratings for rows in self._rated)
        return len(self.user_ids_), len(self.item_ids_), n_ratings

    def _checkpoint(self, belief: RatingBelief, model: RatingModel, seed: int) -> Checkpoint:
        errors = tuple(self._errors)
        return Checkpoint(belief, seed, self._sizes, model.units.mean, errors, int(self.max_iter))

    def _resumed(self, checkpoint: Checkpoint, n_items: int) -> RatingBelief:
        if checkpoint.sizes != self._sizes:
            raise ValueError(
                f"the checkpoint is of {checkpoint.sizes} (users, items, ratings), the data have {self._sizes}: "
                "resume with the data that the fit began with"
            )
        belief = checkpoint.belief
        if belief.mean.shape[1] != self.n_components + 1:
            raise ValueError(
                f"the checkpoint has {belief.mean.shape[1] - 1} components, received n_components={self.n_components}"
            )
        if belief.sweeps >= self.max_iter:
            raise ValueError(
                f"the checkpoint has {belief.sweeps} sweeps, received max_iter={self.max_iter}: raise it to go on"
            )
        return belief

    def _keep(self, inference: Inference, log_volume: float = 0.0) -> None:
        """Fitted attributes from the nodes' beliefs as they are; the history has one entry a sweep."""
        steps = inference.model.noise_steps  # type: ignore[attr-defined]
        pairs = zip(self._shards, inference.beliefs, strict=True)
        self._user_posteriors = UserPosteriors.joined(
            [UserPosteriors.of(shard, belief, steps) for shard, belief in pairs]
        )
        super()._keep(inference)
        swept = np.flatnonzero([record.swept for record in inference.run.history])
        sent = np.cumsum(self.history_["bytes_sent"])[swept]
        self.history_ = {
            name: self.history_[name][swept] for name in ("objective", "change", "disagreement")
        }
        self.history_["bytes_sent"] = np.diff(sent, prepend=0)
        if self._errors:
            self.history_["rmse"] = np.array(self._errors)
        self.n_iter_ = inference.beliefs[0].sweeps
        del self._node_beliefs  # the posteriors say it all


def _say_what_is_empty(n_users: int, n_items: int) -> None:
    said = [f"{n} {what}" for n, what in ((n_users, "users"), (n_items, "items")) if n]
    if said:
        warnings.warn(
            f"{' and '.join(said)} have no rating: they are predicted by their prior",
            UserWarning,
            stacklevel=5,
        )
