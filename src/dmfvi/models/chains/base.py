"""What all hidden Markov estimators share: states, transitions, decoding."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from dmfvi.estimator import NetworkEstimator, generator_of
from dmfvi.inference.result import InferenceObserver
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.chains.emissions import Emission
from dmfvi.models.chains.kernels import chain_posteriors, most_probable_states
from dmfvi.models.chains.model import HiddenMarkov, Sequences
from dmfvi.models.chains.sequences import Joined, join, nodes_of_sequences
from dmfvi.shard_lists import joined
from dmfvi.validation import check_numeric, check_positive, check_whole


@dataclass(eq=False, repr=False)
class HiddenMarkovEstimator(NetworkEstimator):
    """Fits and decodes; subclasses define what a state emits."""

    n_components: int = 1
    _: KW_ONLY
    startprob_prior: float | None = None
    transmat_prior: float | None = None
    n_init: int = 1
    _data_form = "sequences"
    _takes_missing = True
    #: whether a sequence may be one number an observation
    _flat: ClassVar[bool] = False

    @staticmethod
    def _from_columns(sequence: FloatArray | None = None) -> dict[str, Any]:
        """Rows with the same number one after the other are a sequence; without numbers all rows are one."""
        if sequence is None:
            return {}
        named = np.asarray(sequence)
        if named.dtype.kind == "f" and np.isnan(named).any():
            row = int(np.flatnonzero(np.isnan(named))[0])
            raise ValueError(f"sample {row + 1} has no sequence: the column must number them all")
        edges = np.flatnonzero(np.r_[True, named[1:] != named[:-1], True])
        return {"lengths": np.diff(edges)}

    def predict(self, X: Any, lengths: Any = None) -> NDArray[np.int64]:
        """The jointly most probable states (Viterbi), one per observation."""
        shard = self._prepared(self._arrays(X), lengths)
        model: HiddenMarkov = self._model
        return most_probable_states(*model.scores(shard, self._belief), shard.starts)

    def predict_proba(self, X: Any, lengths: Any = None) -> FloatArray:
        """Probability of each state at each observation (T, K), given the whole sequence."""
        shard = self._prepared(self._arrays(X), lengths)
        return np.asarray(self._model.states(shard, self._belief).states)

    def score_samples(self, X: Any, lengths: Any = None) -> FloatArray:
        """Log probability of each sequence at the posterior mean of initial and transition probabilities.

        Emission parameters are integrated out, observation by observation.
        """
        X = self._arrays(X)
        shard = self._prepared(X, lengths)
        emission = self._emission_predictive(X, lengths)
        found = chain_posteriors(
            emission, np.log(self.startprob_), np.log(self.transmat_), shard.starts
        )
        return found.log_sums

    def score(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """Sum of the sequences' log probabilities."""
        return float(joined(self.score_samples(X, lengths)).sum())

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        lengths: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to sequences (see the class)."""
        session = self._open()
        X = self._arrays(X, reset=True)
        nodes = nodes_of_sequences(X, lengths, session, session.pooled, flat=self._flat)
        check_whole("n_components", self.n_components, 1)
        for name in ("startprob_prior", "transmat_prior"):
            check_positive(name, getattr(self, name), optional=True)
        shards, log_volume = self._shards([join(part) for part in nodes], session)
        count = sum(len(sequence) for part in nodes for sequence in part)
        self._rows_given = count if session.whole else None
        return self._fit(
            session,
            self._make_model(),
            shards,
            n_init=self.n_init,
            log_volume=log_volume,
            observer=observer,
        )

    def _arrays(self, X: Any, reset: bool = False) -> Any:
        """Data frames as arrays, wherever they are in X; their columns are those of the fit."""
        if not reset:
            check_is_fitted(self)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if isinstance(X, list | tuple):
            return type(X)(self._array_of(part, reset) for part in X)
        return self._array_of(X, reset)

    def _checked_widths(self, rows: FloatArray, reset: bool) -> FloatArray:
        """Validated rows; names have been compared already, and stay as they are."""
        names = getattr(self, "feature_names_in_", None)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            made = self._validated(rows, reset=reset)
        if names is not None:
            self.feature_names_in_ = names
        return made

    def _array_of(self, part: Any, reset: bool) -> Any:
        if isinstance(part, list | tuple) and any(hasattr(each, "columns") for each in part):
            return [self._array_of(each, reset) for each in part]
        if not hasattr(part, "columns"):
            if not reset and isinstance(part, np.ndarray):
                _check_feature_names(self, part, reset=False)  # warns where the fit had names
            return part
        check_numeric(part)
        # the first frame of a fit names the columns, all others are compared with it
        _check_feature_names(self, part, reset=reset and not hasattr(self, "feature_names_in_"))
        return np.asarray(part, dtype=np.float64)

    @abstractmethod
    def _shards(self, nodes: list[Joined], session: Session) -> tuple[list[Sequences], float]:
        """Every node's checked observations in the units that the nodes agree on, and log of these units' volume."""

    def _make_model(self) -> HiddenMarkov:
        k = int(self.n_components)
        start, step = self.startprob_prior, self.transmat_prior
        return HiddenMarkov(
            k,
            self._emission(),
            np.full(k, 1.0 / k if start is None else float(start)),
            np.full((k, k), 1.0 / k if step is None else float(step)),
        )

    @abstractmethod
    def _emission(self) -> Emission:
        """What a state emits, with its prior."""

    @abstractmethod
    def _prepared(self, X: Any, lengths: Any) -> Sequences:
        """Checked sequences as the model wants them."""

    @abstractmethod
    def _emission_predictive(self, X: Any, lengths: Any) -> FloatArray:
        """log E[p(x_t | k)] (T, K)."""

    def _take(self, node: int) -> None:
        initial = self.posterior_["initial"].parameters()["concentration"]
        transition = self.posterior_["transition"].parameters()["concentration"]
        self.startprob_ = initial / initial.sum()
        self.transmat_ = transition / transition.sum(1, keepdims=True)

    def _walk(self, n_samples: int, random_state: Any) -> tuple[np.random.Generator, Any, Any]:
        """The generator, parameters drawn from the posterior, and the states of a new sequence."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        rng = generator_of(random_state)
        draw = self.posterior_.sample(rng)
        start, step = draw["initial"], draw["transition"]
        states = np.empty(n_samples, dtype=np.int64)
        states[0] = rng.choice(len(start), p=start)
        for t in range(1, n_samples):
            states[t] = rng.choice(len(start), p=step[states[t - 1]])
        return rng, draw, states
