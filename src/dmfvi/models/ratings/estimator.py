"""RatingFactorization: Bayesian factorization of a rating matrix, pooled or over a network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from dmfvi.engines.base import RoundRecord
from dmfvi.inference.result import Inference
from dmfvi.inference.session import Session
from dmfvi.linalg import one_blas_thread
from dmfvi.models.ratings.belief import RatingBelief
from dmfvi.models.ratings.catalogue import agree_on_catalogue
from dmfvi.models.ratings.checkpoint import Checkpoint
from dmfvi.models.ratings.ids import IdIndex
from dmfvi.models.ratings.kernels import RatingRows
from dmfvi.models.ratings.model import RatingModel
from dmfvi.models.ratings.posterior import UserPosteriors
from dmfvi.models.ratings.response import RatingResponse
from dmfvi.models.ratings.shard import make_rating_shard
from dmfvi.models.ratings.start import RatingUnits, agree_on_choice, agree_on_rating_units
from dmfvi.models.ratings.table import RatingInput, joined, read_input, split_block
from dmfvi.models.ratings.uncertain import UncertainRatings
from dmfvi.models.ratings.validation import Watched
from dmfvi.progress import live_sweeps
from dmfvi.uncertainty import Context
from dmfvi.validation import check_choice, check_whole

#: relative change of the items' posterior below which a fixed number of sweeps counts as converged
SETTLED = 1e-3
#: a compiled sweep unrolls the rank
MOST_COMPONENTS = 32


@dataclass(eq=False, repr=False)
class RatingFactorization(UncertainRatings):
    """Bayesian matrix factorization with biases, learned prior means and predictive intervals.

    x_ui ~ N(z_u . w_i + b_u + c_i, 1/g_u). Users are local to their node, items are shared; every node
    ends with the posterior of the items that one machine holding all ratings would have computed.

    Parameters
    ----------
    n_components : int
        Rank, at most 32. Columns that the data do not support are switched off by the learned prior (ARD).
    user_bias : bool
        Whether users have a bias, learned together with their factors.
    item_bias : bool
        Whether items have a bias, learned together with their factors.
    noise : {"user", "shared"}
        One noise level for each user, with a learned prior, or one for all.
    n_choice_features : int
        Prior means depend on the number of ratings of a user or item, and on this many coordinates of who rates
        what (docs/ratings.md); 0 for none of the latter.
    rating_scale : (float, float) or None
        Lowest and highest rating. Predictions are clipped to it and ratings outside are refused; None is the range of the data.
    network : Network, Federation or None
        The graph of nodes; None is one machine with all ratings. A ``Federation`` also chooses the consensus rule
        and where the nodes run. With ``engine="mpi"`` every rank is a node and passes its own users' ratings; it ends
        with the posterior of all items and of its own users (docs/deploy.md).
    tol : float or None
        Relative change of the items' posterior at which to stop; None makes exactly ``max_iter`` sweeps,
        after which the bound still grows; ``converged_`` tells whether the last one changed little.
    max_iter : int
        Largest number of sweeps (iterations) over all ratings.
    random_state : int, RandomState or None
        Seed of the start. All nodes use node 0's.
    verbose : int
        0 is silent, 1 shows a progress bar, 2 a row for each node.

    Attributes
    ----------
    user_ids_ : array
        Ids of the users of this process, in the order of the rows of ``user_factors_``.
    item_ids_ : array
        Ids of the items, in the order of the rows of ``item_factors_``.
    user_factors_ : array (n_users, n_components)
        Posterior means, with unit prior variance: the items' factors carry the strength, strongest first.
    user_bias_ : array (n_users,)
        Posterior means, in units of ratings.
    item_factors_ : array (n_items, n_components)
        Posterior means, in units of ratings.
    item_bias_ : array (n_items,)
        Posterior means, in units of ratings.
    item_means_ : array (n_items,)
        Expected rating of each item by the average user.
    component_deviations_ : array (n_components,)
        Prior deviation of each column; near zero, the column is switched off.
    rating_mean_ : float
        Mean of all ratings.
    noise_deviation_ : float
        Standard deviation of a typical user's noise.
    rating_scale_ : (float, float)
        Lowest and highest rating.
    posterior_ : RatingPosterior
        Items at node 0 (``at_node(i)``: at node i), and the users of this process.
    node_posteriors_ : list of RatingPosterior
        Items at every node that runs in this process.
    lower_bound_ : float
        Evidence lower bound before the last sweep, in the units of the ratings and with all constants; coefficients and
        variances of the hierarchy are at their best values, as in empirical Bayes. It is nan after a single sweep. Compare
        ranks by it only where ``converged_``: it still grows by hundreds after 20 sweeps.
    history_ : dict of arrays
        One entry per sweep: ``objective``, ``change``, ``disagreement``, ``bytes_sent``, and ``rmse`` if ratings were held out.
    n_iter_ : int
        Number of sweeps.
    n_rounds_ : int
        Number of message rounds of the fit, without its start.
    n_start_rounds_ : int
        Number of message rounds in which the nodes agreed on the start.
    n_start_bytes_ : int
        Bytes sent in those.
    calibration_ : dict
        If ratings were held out: ``level`` of intervals, the ``share`` of those ratings that lie inside, and their number ``n_ratings``.
    converged_ : bool
        Whether ``tol`` was met; with ``tol=None`` whether the last sweep changed the items by less than 1e-3.

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

    n_components: int = 12
    _: KW_ONLY
    user_bias: bool = True
    item_bias: bool = True
    noise: Literal["user", "shared"] = "user"
    n_choice_features: int = 16
    rating_scale: tuple[float, float] | None = None
    tol: float | None = None  # type: ignore[assignment]
    max_iter: int = 20

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
        """Fit to ratings, of all users or as a list with one entry per node.

        ``X`` is a sparse matrix users x items (stored entries are ratings, absent ones unknown), an array with NaN,
        (users, items, ratings) with ids of your own, a ``RatingTable``, or a list of these. ``held_out`` (users, items,
        ratings) are predicted after every sweep. ``on_sweep`` receives a checkpoint after every sweep, and may return
        True to end the fit; ``resume`` continues from one. Interrupted (Ctrl-C) after a sweep, the estimator keeps the
        fit so far, and KeyboardInterrupt is raised again.
        """
        session = self._open()
        self._check_parameters()
        given, seed = self._given(X, session)
        with self._earlier_unless_kept():
            return self._fit_given(session, given, seed, held_out, on_sweep, resume)

    @contextmanager
    def _earlier_unless_kept(self) -> Iterator[None]:
        """A fit that ends before it has kept anything leaves what was there: new ids would name the factors of others."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            if self.__dict__.get("node_posteriors_") is before.get("node_posteriors_"):
                self.__dict__.clear()
                self.__dict__.update(before)
            raise

    def _fit_given(
        self,
        session: Session,
        given: RatingInput,
        seed: int,
        held_out: tuple[ArrayLike, ArrayLike, ArrayLike] | None,
        on_sweep: Callable[[Checkpoint], bool | None] | None,
        resume: Checkpoint | None,
    ) -> Self:
        self._context = None
        n_items = len(given.item_ids)
        self.rating_scale_ = given.scale
        self.item_ids_ = given.item_ids
        self.user_ids_ = np.concatenate([block.user_ids for block in given.blocks])
        self._users, self._items = IdIndex(self.user_ids_), IdIndex(self.item_ids_)
        self._rated = [block.rows for block in given.blocks]
        watched = self._watched(held_out)
        belief = None if resume is None else self._resumed(resume)
        seed = seed if resume is None else resume.seed
        self._errors: list[float] = [] if resume is None else list(resume.errors)
        pairs = [(block.rows, block.rows.transposed(n_items)) for block in given.blocks]
        # the kernels use all cores; threads inside BLAS would only stand in their way
        with one_blas_thread():
            model = self._agreed_model(session, pairs, seed)
            # only the agreed counts show which items no user has rated
            _say_what_is_empty(given.n_empty_users, int((model.item_counts < 0.5).sum()))
            self._shards = [make_rating_shard(pair, model.units, model.choice) for pair in pairs]
            self._sweep(session, model, belief, seed, watched, on_sweep)
        # the ratings by item are made anew when they are needed
        self._context = Context(session, RatingResponse(model), ())
        del self._shards  # the ratings by item are not needed any more
        self.__dict__.pop("calibration_", None)
        if held_out is not None:
            self.calibration_ = self._calibration(*held_out)
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
        done = [0]
        with live_sweeps("ratings", int(self.max_iter), self.verbose, already) as show:

            def observe(record: RoundRecord, so_far: Inference) -> bool:
                if record.least_sweeps == done[0]:  # not all nodes have made another sweep
                    return False
                done[0] = record.least_sweeps
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
        """One block of ratings for each node that runs here, the items of all nodes, and a seed for all."""
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

    def _resumed(self, checkpoint: Checkpoint) -> RatingBelief:
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
        self._user_posteriors = UserPosteriors.of_nodes(pairs, steps)
        units: RatingUnits = inference.model.units  # type: ignore[attr-defined]
        super()._keep(inference, -units.n_ratings * float(np.log(units.scale)))
        least = [record.least_sweeps for record in inference.run.history]
        swept = np.flatnonzero(np.diff(least, prepend=0))
        sent = np.cumsum(self.history_["bytes_sent"])[swept]
        self.history_ = {
            name: self.history_[name][swept] for name in ("objective", "change", "disagreement")
        }
        self.history_["bytes_sent"] = np.diff(sent, prepend=0)
        if self._errors:
            self.history_["rmse"] = np.array(self._errors)
        self._all_sweeps = self.tol is None and bool(self.converged_)
        if (
            self.tol is None
        ):  # the sweeps that were asked for are done; whether they were enough is another question
            self.converged_ = bool(self.converged_ and self.history_["change"][-1] < SETTLED)
        self.n_iter_ = inference.beliefs[0].sweeps
        del self._node_beliefs  # the posteriors hold all of it


def _say_what_is_empty(n_users: int, n_items: int) -> None:
    said = [f"{n} {what}" for n, what in ((n_users, "users"), (n_items, "items")) if n]
    if said:
        warnings.warn(
            f"{' and '.join(said)} have no rating: they are predicted by their prior",
            UserWarning,
            stacklevel=4,
        )
