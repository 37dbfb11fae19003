"""What all estimators of conjugate models share: shards in, one session, posteriors kept."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dmfvi.consensus import ConsensusRule
from dmfvi.engines.base import Engine
from dmfvi.engines.links import Links
from dmfvi.estimators.kept import OF_A_RUN, Kept
from dmfvi.estimators.validation import (
    check_one_shard_per_node,
    check_positive,
    check_shards,
    check_whole,
    is_shard_list,
    split_evenly,
    unmasked,
    warn_of_empty_samples,
)
from dmfvi.families.base import FloatArray
from dmfvi.inference import Inference, Session, warn_unless_converged
from dmfvi.models.base import Belief, ConjugateModel
from dmfvi.network import Network

#: bounds that differ by less than this part are the same
SAME_BOUND = 1e-7


class ConjugateEstimator(Kept, BaseEstimator):
    """Runs a conjugate model on one node or many and keeps every node's posterior.

    Fitted attributes of all: ``posterior_`` (node 0's, natural parameters in the data's units), ``node_posteriors_``,
    ``lower_bound_`` with all constants, ``history_`` per round, ``n_rounds_`` (= ``n_iter_``), ``n_start_rounds_``,
    ``n_start_bytes_``, ``converged_``.
    """

    network: Network | None
    penalty: float | Literal["auto"]
    rounds_per_sweep: int | Literal["auto"]
    consensus: str | ConsensusRule
    tol: float
    max_rounds: int
    links: Links | None
    n_jobs: int | None
    random_state: Any
    verbose: int
    engine: str | Engine
    acceleration: bool | Literal["auto"] = "auto"
    posterior_: Any
    node_posteriors_: list[Any]
    _belief: Any
    _node_beliefs: list[Any]
    _kept: ClassVar[tuple[str, ...]] = ("_node_beliefs", "_units", "n_start_bytes_", *OF_A_RUN)

    @abstractmethod
    def _in_data_units(self, q: Any) -> Belief:
        """A node's posterior in the data's units."""

    @abstractmethod
    def _take(self, node: int) -> None:
        """Set the fitted attributes that depend on whose posterior it is."""

    def at_node(self, node: int) -> Self:
        """The same model as one node sees it: with that node's own posterior."""
        check_is_fitted(self)
        check_whole("node", node, 0)
        if node >= len(self.node_posteriors_):
            raise ValueError(f"node must be below {len(self.node_posteriors_)}, received {node}")
        seen = copy.copy(self)
        seen._show(node)
        return seen

    # -- for subclasses -----------------------------------------------------------------------

    def _open(self) -> Session:
        check_positive("tol", self.tol)
        check_whole("max_rounds", self.max_rounds, 1)
        if self.rounds_per_sweep != "auto":
            check_whole("rounds_per_sweep", self.rounds_per_sweep, 1)
        return Session.open(
            self.network,
            self.consensus,
            self.penalty,
            self.rounds_per_sweep,
            self.links,
            self.n_jobs,
            self.engine,
        )

    def _row_shards(
        self, X: Any, session: Session, *, reset: bool = True, allow_nan: bool = True
    ) -> list[FloatArray]:
        """One float array per node of this process, from one array or a list of arrays."""
        finite: Any = "allow-nan" if allow_nan else True
        if is_shard_list(X):
            session.refuse_parts(len(X))
            shards = check_shards(X, allow_empty=not reset)
            for i, shard in enumerate(shards):
                if not allow_nan and np.isnan(shard).any():
                    raise ValueError(
                        f"shard {i} contains NaN: {type(self).__name__} needs complete rows, impute first"
                    )
            validate_data(self, X[0], ensure_all_finite=finite, dtype=np.float64, reset=reset)
            if self.network is not None:
                check_one_shard_per_node(shards, session.network)
        else:
            shards = [
                validate_data(
                    self, unmasked(X), ensure_all_finite=finite, dtype=np.float64, reset=reset
                )
            ]
        if reset and allow_nan:
            warn_of_empty_samples(shards, stacklevel=4)
        if self.network is None:
            return [np.concatenate(shards)]
        if is_shard_list(X) or not session.whole:
            return shards
        return split_evenly(shards[0], session.network, allow_empty=not reset)

    def _checked_rows(self, X: Any, allow_nan: bool = True) -> FloatArray:
        """One validated array for predictions; a list of shards is stacked."""
        check_is_fitted(self)
        if is_shard_list(X):
            X = np.concatenate(check_shards(X, allow_empty=True))
        finite: Any = "allow-nan" if allow_nan else True
        return np.asarray(
            validate_data(
                self, unmasked(X), ensure_all_finite=finite, dtype=np.float64, reset=False
            )
        )

    def _best_of(
        self,
        n_init: int,
        session: Session,
        model: ConjugateModel,
        shards: Sequence[Any],
        **settings: Any,
    ) -> Inference:
        """Several starts; the one whose agreed bound is highest wins, at all nodes alike."""
        check_whole("n_init", n_init, 1)
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=n_init)
        best = Best(session)
        for seed in seeds:
            made = session.infer(
                model,
                [model.refreshed(shard) for shard in shards],
                acceleration=self.acceleration,
                tol=self.tol,
                max_rounds=int(self.max_rounds),
                random_state=int(seed),
                verbose=self.verbose,
                **settings,
            )
            best.offer(made)
        return best.chosen

    def _keep(self, inference: Inference, session: Session, log_volume: float = 0.0) -> Self:
        """Fitted attributes of one run; warns when it did not converge."""
        self._node_beliefs = inference.posteriors
        self.lower_bound_ = inference.lower_bound + log_volume
        self.history_ = inference.history
        self.history_["objective"] = self.history_["objective"] + log_volume
        self.n_rounds_ = self.n_iter_ = inference.n_rounds
        self.n_start_rounds_ = session.meeting.n_rounds
        self.n_start_bytes_ = session.meeting.bytes_sent
        self.converged_ = inference.converged
        self.node_posteriors_ = [self._in_data_units(q) for q in inference.posteriors]
        self._show(0)
        warn_unless_converged(inference.run, self.tol, stacklevel=4)
        return self

    def _restore(self, content: dict[str, Any]) -> None:
        """Subclasses that predict with ``_model`` make it first."""
        super()._restore(content)
        self.n_iter_ = self.n_rounds_
        self.node_posteriors_ = [self._in_data_units(q) for q in self._node_beliefs]
        self._show(content["node"])

    def _show(self, node: int) -> None:
        self.posterior_ = self.node_posteriors_[node]
        self._belief = self._node_beliefs[node]
        self._take(node)


class Best:
    """The best of several runs by node 0's bound, so that all nodes choose the same one wherever they run.

    A bound must be higher by more than its rounding: starts that end alike keep the first's labels.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.bound = -np.inf
        self._chosen: Inference | None = None

    def offer(self, made: Inference) -> None:
        """Keep the run if it is clearly better than those before."""
        bound = self.session.of_first(made.lower_bound)
        if self._chosen is None or bound > self.bound + SAME_BOUND * abs(self.bound):
            self._chosen, self.bound = made, bound

    @property
    def chosen(self) -> Inference:
        """The best one so far."""
        assert self._chosen is not None
        return self._chosen


def generator_of(random_state: Any) -> np.random.Generator:
    """NumPy's generator from whatever scikit-learn takes as a seed."""
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
