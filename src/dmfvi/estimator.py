"""NetworkEstimator: what all estimators share. Shards in, one session, posteriors kept, one node's view out."""

from __future__ import annotations

import copy
import inspect
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from textwrap import indent
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_feature_names, check_is_fitted, validate_data

from dmfvi.export import ExportMixin
from dmfvi.inference.federation import Federation
from dmfvi.inference.model import Model
from dmfvi.inference.result import Inference, InferenceObserver, warn_unless_converged
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.presentation import PresentationMixin
from dmfvi.shard_lists import PER_SHARD, answering_lists
from dmfvi.sizes import check_size
from dmfvi.uncertainty import Context, UncertaintyMixin
from dmfvi.validation import (
    check_complete,
    check_numeric,
    check_one_shard_per_node,
    check_positive,
    check_seed,
    check_shards,
    check_whole,
    is_shard_list,
    split_evenly,
    unmasked,
    warn_of_empty_samples,
    warn_of_ids,
)

#: stands in docstrings for the parameters and attributes below
SHARED_PARAMETERS, SHARED_ATTRIBUTES = "{shared parameters}", "{shared attributes}"
PARAMETERS = """\
network : Network, Federation or None
    The graph of nodes; None is one machine with all data. A ``Federation`` also chooses the consensus rule
    (``consensus``) and where the nodes run (``engine``, ``links``, ``n_jobs``).
tol : float
    Relative accuracy of the posterior's natural parameters at which the nodes stop.
max_iter : int
    Largest number of sweeps (iterations); reaching it gives a ``ConvergenceWarning``.
random_state : int, RandomState or None
    Seed of the start. All nodes use that of node 0.
verbose : int
    0 is silent, 1 shows a progress bar (without a terminal, a line every five seconds), 2 shows a row for each node."""
ATTRIBUTES = """\
posterior_ : object
    Posterior of node 0, in the units of the data; of node i in ``at_node(i)``.
node_posteriors_ : list
    The posterior of every node that runs in this process.
lower_bound_ : float
    Evidence lower bound, with all constants.
n_samples_ : int
    Number of rows of all nodes, if the data are rows and all nodes run in this process.
n_iter_ : int
    Number of sweeps.
n_rounds_ : int
    Number of message rounds of the fit, without its start.
n_start_rounds_ : int
    Number of message rounds of the start, including fits from other starts that were not kept.
n_start_bytes_ : int
    Number of bytes sent in these rounds.
history_ : dict of arrays
    One entry per round: ``round``, ``objective`` (the bound), ``change``, ``disagreement``, ``bytes_sent``,
    ``limited_steps``, and for exact sums ``expected_bytes``: what the cost model that chose the transport expects a round to send.
node_history_ : dict of arrays
    Of up to 150 rounds (``round``) and every node of this process: ``change``, ``disagreement`` and ``known``, the share of the
    nodes whose data its present sum includes. Empty for one node, or more than 200.
converged_ : bool
    Whether the nodes met ``tol`` and stopped by themselves.
n_features_in_ : int
    Number of columns, if the data are a table.
feature_names_in_ : array of str
    Names of the columns, if the data had names.
consensus_ : dict
    The rule that ran, how its sums travel, nodes, numbers of a vector, and rounds of a sweep without loss; of exact sums also ``cost``:
    rounds, bytes and seconds of a sum by each transport in the cost model. The choice between them counts shorter vectors as 1,000 numbers."""


class Fitted:
    """Attributes of every fitted estimator that are no parameters."""

    posterior_: Any
    node_posteriors_: list[Any]
    _model: Any
    _belief: Any
    _node_beliefs: list[Any]
    _units: Any


@dataclass(eq=False, repr=False)
class NetworkEstimator(PresentationMixin, UncertaintyMixin, ExportMixin, Fitted, BaseEstimator):
    """Runs a model on one node or many and keeps every node's posterior.

    Estimators are dataclasses whose fields are their parameters, so that no constructor is written by hand.
    """

    _: KW_ONLY
    network: Network | Federation | None = None
    tol: float = 1e-6
    max_iter: int = 5000
    random_state: Any = None
    verbose: int = 0

    #: fitted attributes that a file keeps, here or in a base class; the rest follows from them
    _kept: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "feature_names_in_",
        "_node_beliefs",
        "_units",
        "_shown",
        "_quantities",
        "n_samples_",
        "history_",
        "node_history_",
        "lower_bound_",
        "n_iter_",
        "n_rounds_",
        "n_start_rounds_",
        "n_start_bytes_",
        "converged_",
        "consensus_",
        "members_",
        "missing_",
    )
    #: what a file of its data holds; the rows of "sequences" are in order of time, those of "rows" in any
    _data_form: ClassVar[Literal["rows", "sequences", "tracks", "ratings"]] = "rows"
    #: what consensus="auto" means for this estimator
    _consensus: ClassVar[str] = "exact-sum"
    #: whether entries of its tables may be missing (NaN)
    _takes_missing: ClassVar[bool] = False
    #: whether the columns of its rows are features; those of a survival curve are its times and events
    _has_features: ClassVar[bool] = True
    #: whether all columns have the same noise variance, as columns of one unit have
    _one_noise: ClassVar[bool] = False
    #: parameters whose default is another one where the data are tables in files
    _table_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init_subclass__(cls, **options: Any) -> None:
        """Docstrings name the shared parameters once, ``help`` shows them in full; answers to lists of shards are lists."""
        super().__init_subclass__(**options)
        if cls._data_form in ("rows", "sequences"):
            for name in PER_SHARD:
                method = inspect.getattr_static(cls, name, None)
                if inspect.isfunction(method) and not hasattr(method, "_answers_lists"):
                    setattr(cls, name, answering_lists(method))
        if cls.__doc__:
            for mark, text in ((SHARED_PARAMETERS, PARAMETERS), (SHARED_ATTRIBUTES, ATTRIBUTES)):
                cls.__doc__ = cls.__doc__.replace(f"    {mark}", indent(text, "    "))

    def at_node(self, node: int) -> Self:
        """The same model as one node sees it: with that node's own posterior."""
        check_is_fitted(self)
        check_whole("node", node, 0)
        if node >= len(self.node_posteriors_):
            raise ValueError(f"node must be below {len(self.node_posteriors_)}, received {node}")
        seen = copy.copy(self)
        seen._context = getattr(self, "_context", None)
        if node != self._shown:  # they are of the node that is shown
            seen._quantities = {}
        seen._show(node)
        return seen

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to the process."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_context"}

    # -- for subclasses -----------------------------------------------------------------------

    @staticmethod
    def _from_columns() -> dict[str, Any]:
        """What ``fit`` takes beside rows, from columns of a table that are no features.

        The parameters name these columns, for files and the command line; one with a default may be left out.
        """
        return {}

    @abstractmethod
    def _take(self, node: int) -> None:
        """Set the fitted attributes that depend on whose posterior it is."""

    def _make_model(self) -> Model:
        """The model, from the parameters and from what a file keeps."""
        raise NotImplementedError(f"{type(self).__name__} has no model of its own")

    def _open(self) -> Session:
        """The session of one fit."""
        if self.tol is not None:
            check_positive("tol", self.tol)
        check_seed(getattr(self, "random_state", None))
        check_whole("max_iter", self.max_iter, 1)
        n_init = getattr(self, "n_init", 1)
        # "auto" where it is the default: the model has several kinds of starts
        usual = {each.name: each.default for each in fields(self)}.get("n_init", 1)
        if not (isinstance(n_init, str) and n_init == usual):
            check_whole("n_init", n_init, 1)
        return Session.open(self.network, self._usual_consensus())

    def _usual_consensus(self) -> str:
        """What consensus="auto" means."""
        return self._consensus

    def _row_shards(
        self,
        X: Any,
        session: Session,
        *,
        reset: bool = True,
        least: int = 1,
        stacklevel: int = 4,
        copy: bool = True,
        allow_empty: bool = False,
    ) -> list[FloatArray]:
        """One float array per node of this process, from one array or a list of arrays; without ``copy`` maybe X itself."""
        allow_empty = allow_empty or not reset
        if is_shard_list(X):
            session.refuse_parts(len(X))
            shards = check_shards(X, allow_empty=allow_empty)
            for i, shard in enumerate(shards):
                names = list(X[i].columns) if hasattr(X[i], "columns") else None
                check_size([shard], names, f"shard {i}: ", whole=False)
                if not self._takes_missing:
                    check_complete(shard, names, type(self).__name__, f"shard {i}")
            filled = next((part for part in X if len(part)), X[0])
            self._validated(filled, reset, min(least, len(filled)))
            if not session.pooled:
                check_one_shard_per_node(shards, session.network)
        else:
            shards = [self._validated(unmasked(X), reset, least)]
        if reset:
            if session.whole:
                check_size(shards, getattr(self, "feature_names_in_", None))
            warn_of_ids(shards, getattr(self, "feature_names_in_", None), stacklevel)
            if self._takes_missing:
                warn_of_empty_samples(shards, stacklevel)
        before = 0 if reset else getattr(self, "n_samples_", 0)
        count = sum(len(shard) for shard in shards)
        self._rows_given = before + count if session.whole else None
        if session.pooled:
            return [np.concatenate(shards)] if copy or len(shards) > 1 else shards
        if is_shard_list(X) or not session.whole:
            return shards
        return split_evenly(shards[0], session.network, allow_empty=allow_empty)

    def _weighted_shards(
        self, X: Any, shards: list[FloatArray], sample_weight: Any
    ) -> tuple[list[FloatArray], list[FloatArray | None]]:
        """Rows that count, and what each counts for; None for each node where no weights are given.

        Rows of weight zero are left out.
        """
        if sample_weight is None:
            return shards, [None] * len(shards)
        given = list(sample_weight) if is_shard_list(X) else [sample_weight]
        if is_shard_list(X) and [np.shape(w) for w in given] != [(len(x),) for x in X]:
            raise ValueError(
                f"sample_weight must be a list of one weight per row for each of {len(X)} shards, received shapes "
                f"{[np.shape(w) for w in given]}"
            )
        whole = np.concatenate([np.asarray(w, dtype=np.float64).reshape(-1) for w in given])
        rows = sum(len(shard) for shard in shards)
        if len(whole) != rows:
            raise ValueError(
                f"sample_weight must have one number for each of {rows} rows, received {len(whole)}"
            )
        if not (np.isfinite(whole).all() and (whole >= 0).all()):
            raise ValueError(
                f"sample_weight must be finite and not negative, received {float(np.min(whole)):g}"
            )
        weights = np.split(whole, np.cumsum([len(shard) for shard in shards])[:-1])
        for node, weight in enumerate(weights):
            if not weight.any():
                where = f" of node {node}" if len(weights) > 1 else ""
                raise ValueError(
                    f"sample_weight is zero for all rows{where}: nothing to learn from"
                )
        kept = [(x[w > 0], w[w > 0]) for x, w in zip(shards, weights, strict=True)]
        return [x for x, _ in kept], [w for _, w in kept]

    def _checked_rows(self, X: Any) -> FloatArray:
        """One validated array for predictions; a list of shards is stacked."""
        check_is_fitted(self)
        if is_shard_list(X):
            for part in X:
                _check_feature_names(self, part, reset=False)
            with warnings.catch_warnings():  # names have been compared
                warnings.filterwarnings("ignore", message="X does not have valid feature names")
                return self._validated(np.concatenate(check_shards(X, allow_empty=True)), False)
        return self._validated(unmasked(X), False)

    def _validated(self, X: Any, reset: bool, least: int = 1) -> FloatArray:
        check_numeric(X)
        made = np.asarray(
            validate_data(
                self,
                X,
                ensure_all_finite="allow-nan",
                dtype=np.float64,
                reset=reset,
                ensure_min_samples=least,
            )
        )
        names = getattr(self, "feature_names_in_", None)
        check_size([made], names, whole=False)
        if not self._takes_missing:
            check_complete(made, names, type(self).__name__)
        return made

    def _fit(
        self,
        session: Session,
        model: Model,
        shards: Sequence[Any],
        *,
        log_volume: float = 0.0,
        observer: InferenceObserver | None = None,
        **settings: Any,
    ) -> Self:
        """Run the session and keep its result; warns when it did not converge."""
        self._model = model
        in_batches = settings.get("carried") is not None or settings.get("replicated", False)
        usable = model.for_response().memoryless and not in_batches
        self._context = Context(session, model, shards) if usable else None
        fixed = {"tol": self.tol, "max_iter": int(self.max_iter), "verbose": self.verbose}
        try:
            made = session.fit(
                model,
                shards,
                **({"random_state": self.random_state} | fixed | settings),
                observer=observer,
                log_volume=log_volume,
            )
        except BaseException:
            if settings.get("carried") is None:  # or it would be mixed from two fits
                self._forget_fit()
            raise
        self._keep(made, log_volume)
        warn_unless_converged(made.run, self.tol, stacklevel=3)
        return self

    def _forget_fit(self) -> None:
        """Not fitted any more: what a fit that has failed leaves behind belongs to no posterior."""
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)
        for name in ("_node_beliefs", "_belief", "_model", "_context", "_quantities"):
            self.__dict__.pop(name, None)

    def _keep(self, inference: Inference, log_volume: float = 0.0) -> None:
        """Fitted attributes of one run."""
        self._keep_run(inference, log_volume)
        self._quantities = {}
        self._node_beliefs = inference.beliefs
        self.node_posteriors_ = [self._in_data_units(q) for q in inference.posteriors]
        self._show(0)

    def _keep_run(self, inference: Inference, log_volume: float) -> None:
        """How the run went."""
        self.lower_bound_ = inference.lower_bound + log_volume
        self._other_bounds = [bound + log_volume for bound in inference.other_bounds]
        self.history_ = inference.history
        self.history_["objective"] = self.history_["objective"] + log_volume
        self.node_history_ = inference.node_history
        self.n_iter_ = inference.n_iter
        self.n_rounds_ = inference.n_rounds
        self.n_start_rounds_ = inference.start_rounds
        self.n_start_bytes_ = inference.start_bytes
        self.converged_ = inference.converged
        self.consensus_ = inference.consensus
        self.__dict__.pop("n_samples_", None)
        rows = self.__dict__.pop("_rows_given", None)
        if rows is not None:
            self.n_samples_ = rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing
        return tags

    # -- files --------------------------------------------------------------------------------

    def _saved(self) -> dict[str, Any]:
        """What a file keeps, by the attributes' names without outer underscores."""
        found = {name: getattr(self, name) for name in self._all_kept() if hasattr(self, name)}
        return {name.strip("_"): value for name, value in found.items()}

    def _restore(self, content: dict[str, Any]) -> None:
        """Inverse of ``_saved``."""
        for name in self._all_kept():
            if name.strip("_") in content:
                setattr(self, name, content[name.strip("_")])
        self._rebuild()
        self._show(self._shown)

    def _rebuild(self) -> None:
        """The model and the posteriors in the data's units, from what a file keeps."""
        self._model = self._make_model()
        found = self._model.posteriors(self._node_beliefs)
        self.node_posteriors_ = [self._in_data_units(q) for q in found]

    def _all_kept(self) -> list[str]:
        return [name for made in type(self).__mro__ for name in vars(made).get("_kept", ())]

    def _show(self, node: int) -> None:
        self._shown = node
        self.posterior_ = self.node_posteriors_[node]
        self._belief = self._node_beliefs[node]
        self._take(node)


def generator_of(random_state: Any) -> np.random.Generator:
    """NumPy's generator from whatever scikit-learn takes as a seed."""
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
