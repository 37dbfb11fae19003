"""RatingFactorization: Bayesian factorization of a rating matrix, pooled or over a network."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from dmfvi.agreement import Meeting
from dmfvi.consensus import AllReduce, BregmanADMM, ConsensusRule, StatisticsTracking
from dmfvi.engines import open_engine
from dmfvi.engines.base import Engine
from dmfvi.estimators.kept import OF_A_RUN
from dmfvi.estimators.rating_agreement import agree_on_catalogue
from dmfvi.estimators.rating_fit import RatingRun, RatingSettings, fit_ratings
from dmfvi.estimators.rating_predictor import RatingPredictor
from dmfvi.estimators.rating_validation import Watched
from dmfvi.estimators.validation import check_choice, check_positive, check_whole
from dmfvi.models.ratings_belief import RatingBelief
from dmfvi.network import Network
from dmfvi.progress import live_sweeps
from dmfvi.ratings.checkpoint import Checkpoint
from dmfvi.ratings.ids import IdIndex
from dmfvi.ratings.table import Block, RatingInput, joined, read_input, split_block

#: a sweep is dear and a message cheap: agreement within a sweep goes nearly all the way
DAMPING = 1e-9
RULES = (BregmanADMM.name, StatisticsTracking.name, AllReduce.name)

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
    network : Network or None
        Who talks to whom; None is the pooled fit.
    user_bias, item_bias : bool
        Whether users and items have a bias, learned together with their factors.
    noise : {"user", "shared"}
        Each user a noise level of their own, with a learned prior, or one for all.
    n_choice_features : int
        Prior means depend on how many ratings a user or item has, and on this many coordinates of who rates
        what (docs/ratings.md); 0 for none of the latter.
    max_sweeps : int
        Sweeps over all ratings.
    tol : float or None
        Stop earlier, when the items' posterior changes by less from sweep to sweep; None: never.
    rating_scale : (low, high) or None
        Predictions are clipped to it and ratings outside are refused; None: as the data have it.
    consensus : {"statistics-tracking", "bregman-admm", "all-reduce"} or ConsensusRule
        How the nodes agree on sums. The first needs half of Bregman ADMM's memory, which counts when a
        message has millions of numbers; both give the same answer.
    random_state : seed of the start
    verbose : int, 1 shows progress
    engine : {"local", "mpi"} or Engine
        Where the nodes run. With "mpi" every rank is a node and passes its own users' ratings; it ends with the
        posterior of all items and of its own users (docs/deploy.md).

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
    n_sweeps_ (= n_iter_), n_rounds_, n_start_rounds_, converged_, rating_scale_

    Examples
    --------
    >>> from dmfvi import RatingFactorization
    >>> from dmfvi.datasets import make_ratings
    >>> R = make_ratings(20_000, seed=0).ratings
    >>> model = RatingFactorization(3, max_sweeps=5, random_state=0).fit(R)
    >>> mean, std = model.predict([0, 1], [5, 6], return_std=True)
    >>> mean.shape
    (2,)
    """

    _kept = ("n_sweeps_", *OF_A_RUN)

    def __init__(
        self,
        n_components: int = 12,
        *,
        network: Network | None = None,
        user_bias: bool = True,
        item_bias: bool = True,
        noise: Literal["user", "shared"] = "user",
        n_choice_features: int = 16,
        max_sweeps: int = 20,
        tol: float | None = None,
        rating_scale: tuple[float, float] | None = None,
        consensus: str | ConsensusRule = "statistics-tracking",
        random_state: Any = None,
        verbose: int = 0,
        engine: str | Engine = "local",
    ) -> None:
        self.n_components = n_components
        self.network = network
        self.user_bias = user_bias
        self.item_bias = item_bias
        self.noise = noise
        self.n_choice_features = n_choice_features
        self.max_sweeps = max_sweeps
        self.tol = tol
        self.rating_scale = rating_scale
        self.consensus = consensus
        self.random_state = random_state
        self.verbose = verbose
        self.engine = engine

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
        self._check_parameters()
        network = Network.ring(1) if self.network is None else self.network
        rule, where = self._rule(network), self._engine()
        given, seed = self._given(X, network, where, rule)
        blocks = given.blocks
        n_items = len(given.item_ids)
        self.rating_scale_ = given.scale
        self.item_ids_ = given.item_ids
        self.user_ids_ = np.concatenate([block.user_ids for block in blocks])
        self._users, self._items = IdIndex(self.user_ids_), IdIndex(self.item_ids_)
        self._rated = [block.rows for block in blocks]
        watched = self._watched(held_out)
        belief = None if resume is None else self._resumed(resume, blocks, n_items)
        if resume is not None:
            seed = resume.seed
        pairs = [(block.rows, block.rows.transposed(n_items)) for block in blocks]
        self._run: RatingRun | None = None
        self._errors: list[float] = [] if resume is None else list(resume.errors)
        already = 0 if belief is None else belief.sweeps
        with live_sweeps("ratings", self.max_sweeps, self.verbose > 0, already) as show:

            def started(run: RatingRun) -> None:
                self._run = run
                # only the agreed counts know which items nobody has rated
                n_empty_items = int((run.start.units.item_counts < 0.5).sum())
                _say_what_is_empty(given.n_empty_users, n_empty_items)

            def observe(run: RatingRun) -> bool:
                if watched is not None:
                    self._errors.append(watched.rmse(run))
                show(run.sweeps, run.history[-1], self._errors[-1] if self._errors else None)
                if on_sweep is None:
                    return False
                return bool(on_sweep(self._checkpoint(run, seed)))

            try:
                # the kernels use all cores; threads inside BLAS would only stand in their way
                with threadpool_limits(1, user_api="blas"):
                    fit_ratings(
                        pairs,
                        n_items,
                        network,
                        rule,
                        where,
                        self._settings(),
                        np.random.default_rng(seed),
                        observe,
                        belief,
                        started,
                    )
            except KeyboardInterrupt:
                if self._run is not None and self._run.sweeps > already:
                    self._keep(self._run)
                raise
        assert self._run is not None
        self._keep(self._run)
        return self

    def _given(
        self, X: Any, network: Network, where: Engine, rule: ConsensusRule
    ) -> tuple[RatingInput, int]:
        """One block of ratings for each node that runs here, everybody's items, and a seed for all."""
        given = read_input(X, self.rating_scale)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        here, blocks = where.owned(network), given.blocks
        if len(here) < network.n_nodes:
            if len(blocks) > 1:
                raise ValueError(
                    f"received {len(blocks)} blocks, but this process runs node {here[0]} only: "
                    "pass its own ratings"
                )
            meeting = Meeting(network, where, rule.collective)
            seed = int(meeting.broadcast(np.array([float(seed)]))[0][0])
            return agree_on_catalogue(given, meeting, self.rating_scale is not None), seed
        if len(blocks) == 1 and network.n_nodes > 1:
            blocks = split_block(blocks[0], network.n_nodes)
        elif len(blocks) > 1 and self.network is None:
            blocks = [joined(blocks)]
        if len(blocks) != network.n_nodes:
            raise ValueError(
                f"received {len(blocks)} blocks for a network of {network.n_nodes} nodes: "
                "pass one block per node"
            )
        return given._replace(blocks=blocks), seed

    def _engine(self) -> Engine:
        made: Engine = open_engine(self.engine)
        return made

    def _settings(self) -> RatingSettings:
        return RatingSettings(
            int(self.n_components),
            bool(self.user_bias),
            bool(self.item_bias),
            self.noise,
            int(self.n_choice_features),
            int(self.max_sweeps),
            self.tol,
        )

    def _rule(self, network: Network) -> ConsensusRule:
        if isinstance(self.consensus, ConsensusRule):
            return self.consensus
        if network.n_nodes == 1 or self.consensus == AllReduce.name:
            return AllReduce()
        if self.consensus == StatisticsTracking.name:
            return StatisticsTracking(damping=DAMPING)
        return BregmanADMM(damping=DAMPING)

    def _check_parameters(self) -> None:
        check_whole("n_components", self.n_components, 1)
        if self.n_components > MOST_COMPONENTS:
            raise ValueError(
                f"n_components must be at most {MOST_COMPONENTS}, the largest that the compiled sweep "
                f"takes, received {self.n_components}"
            )
        check_whole("max_sweeps", self.max_sweeps, 1)
        check_whole("n_choice_features", self.n_choice_features, 0)
        check_choice("noise", self.noise, ["user", "shared"])
        if not isinstance(self.consensus, ConsensusRule):
            check_choice("consensus", self.consensus, RULES)
        if self.tol is not None:
            check_positive("tol", self.tol)
        if self.network is not None and not isinstance(self.network, Network):
            raise TypeError(
                f"network must be dmfvi.Network or None, received {type(self.network).__name__}"
            )
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

    def _checkpoint(self, run: RatingRun, seed: int) -> Checkpoint:
        sizes = (
            len(self.user_ids_),
            len(self.item_ids_),
            sum(rows.n_ratings for rows in self._rated),
        )
        return Checkpoint(
            run.beliefs[0], seed, sizes, run.start.units.mean, tuple(self._errors), self.max_sweeps
        )

    def _resumed(self, checkpoint: Checkpoint, blocks: list[Block], n_items: int) -> RatingBelief:
        n_ratings = sum(block.rows.n_ratings for block in blocks)
        sizes = (len(self.user_ids_), n_items, n_ratings)
        if checkpoint.sizes != sizes:
            raise ValueError(
                f"the checkpoint is of {checkpoint.sizes} (users, items, ratings), the data have {sizes}: "
                "resume with the data that the fit began with"
            )
        belief = checkpoint.belief
        if belief.mean.shape[1] != self.n_components + 1:
            raise ValueError(
                f"the checkpoint has {belief.mean.shape[1] - 1} components, received n_components={self.n_components}"
            )
        return belief

    def _restore(self, content: dict[str, Any]) -> None:
        super()._restore(content)
        self.n_iter_ = content["n_sweeps"]

    def _keep(self, run: RatingRun) -> None:
        """Fitted attributes from the nodes' beliefs as they are."""
        users = run.users()
        self.node_posteriors_ = [run.posterior(node) for node in range(len(run.beliefs))]
        self._set_posterior(replace(self.node_posteriors_[0], users=users))
        self.lower_bound_ = run.beliefs[0].objective
        swept = [record for record in run.history if record.swept]
        self.history_ = {
            name: np.array([getattr(record, name) for record in swept])
            for name in ("objective", "change", "disagreement")
        }
        sent = np.cumsum([record.bytes_sent for record in run.history])
        ends = [i for i, record in enumerate(run.history) if record.swept]
        self.history_["bytes_sent"] = np.diff(np.concatenate([[0], sent[ends]]))
        if self._errors:
            self.history_["rmse"] = np.array(self._errors)
        self.n_sweeps_ = self.n_iter_ = run.sweeps
        self.n_rounds_ = len(run.history)
        self.n_start_rounds_ = run.start_rounds
        self.converged_ = run.converged
        self._run = None  # the ratings by item are not needed any more


def _say_what_is_empty(n_users: int, n_items: int) -> None:
    said = [f"{n} {what}" for n, what in ((n_users, "users"), (n_items, "items")) if n]
    if said:
        warnings.warn(
            f"{' and '.join(said)} have no rating: they are predicted by their prior",
            UserWarning,
            stacklevel=5,
        )
