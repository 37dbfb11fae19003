"""What all hidden Markov estimators share: states, transitions, decoding."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmfvi.estimators.conjugate_estimator import ConjugateEstimator
from dmfvi.estimators.validation import check_positive, check_whole
from dmfvi.families.base import FloatArray
from dmfvi.inference import Session
from dmfvi.kernels.chains import chain_posteriors, most_probable_states
from dmfvi.models.emissions import Emission
from dmfvi.models.hmm import HiddenMarkov, Sequences


class HiddenMarkovEstimator(ConjugateEstimator):
    """Fits and decodes; subclasses say what a state emits."""

    n_components: int
    start_concentration: float | None
    transition_concentration: float | None
    n_init: int
    _model: HiddenMarkov

    def predict(self, X: Any, lengths: Any = None) -> NDArray[np.int64]:
        """The jointly most probable states (Viterbi), one per observation."""
        shard = self._prepared(X, lengths)
        scores = self._model.scores(shard, self._belief)
        return most_probable_states(*scores, shard.starts)

    def predict_proba(self, X: Any, lengths: Any = None) -> FloatArray:
        """Probability of each state at each observation (T, K), given the whole sequence."""
        shard = self._prepared(X, lengths)
        return self._model.states(shard, self._belief).states

    def score_samples(self, X: Any, lengths: Any = None) -> FloatArray:
        """Log probability of each sequence at the posterior mean of initial and transition probabilities.

        Emission parameters are integrated out, observation by observation.
        """
        shard = self._prepared(X, lengths)
        emission = self._emission_predictive(X, lengths)
        found = chain_posteriors(
            emission, np.log(self.startprob_), np.log(self.transmat_), shard.starts
        )
        return found.log_sums

    def score(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """Sum of the sequences' log probabilities."""
        return float(self.score_samples(X, lengths).sum())

    def _make_model(self) -> HiddenMarkov:
        k = int(self.n_components)
        start, step = self.start_concentration, self.transition_concentration
        return HiddenMarkov(
            k,
            self._emission(),
            np.full(k, 1.0 / k if start is None else float(start)),
            np.full((k, k), 1.0 / k if step is None else float(step)),
        )

    def _restore(self, content: dict[str, Any]) -> None:
        super()._restore(content)
        self._model = self._make_model()

    def _fit_model(self, session: Session, shards: list[Sequences]) -> Self:
        self._model = self._make_model()
        best = self._best_of(self.n_init, session, self._model, shards)
        return self._keep(best, session, getattr(self, "_log_volume", 0.0))

    def _check_common(self) -> None:
        check_whole("n_components", self.n_components, 1)
        for name in ("start_concentration", "transition_concentration"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

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

    def _walk(self, n: int, rng: np.random.Generator, start: FloatArray, step: FloatArray) -> Any:
        states = np.empty(n, dtype=np.int64)
        states[0] = rng.choice(len(start), p=start)
        for t in range(1, n):
            states[t] = rng.choice(len(start), p=step[states[t - 1]])
        return states
