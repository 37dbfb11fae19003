"""GaussianHMM and CategoricalHMM: decentralized hidden Markov models; sequences stay where they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dmfvi.families import Dirichlet, Product
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.chains.base import HiddenMarkovEstimator
from dmfvi.models.chains.emissions import (
    MISSING,
    CategoricalEmission,
    DiagonalGaussianEmission,
    GaussianEmission,
)
from dmfvi.models.chains.model import Sequences
from dmfvi.models.chains.sequences import Joined, join, sequences_of
from dmfvi.models.mixture.base import GaussianComponents
from dmfvi.models.mixture.prediction import log_predictive
from dmfvi.models.mixture.shard import MixtureShard
from dmfvi.validation import check_positive, check_whole

#: a symbol beyond this is more likely an id than a code
MOST_SYMBOLS = 1_000_000
#: states with more of their symbols in common than this overlap
SHARED = 0.5
#: part of the steps out of two states below which they are followed by much the same, and of symbols up to which these alone tell states apart
ALIKE, TOLD_APART = 0.4, 0.05
#: states with fewer observations than this are as good as switched off
RARE = 10.0


@dataclass(eq=False, repr=False)
class GaussianHMM(GaussianComponents, HiddenMarkovEstimator):
    """Bayesian hidden Markov model with Gaussian emissions, pooled or over a network of nodes.

    Data are one sequence (T, D), many in one array with ``lengths``, a list of sequences (split over the nodes
    in order), or a list of lists, one per node. NaN marks missing entries: whole observations or parts of them.

    Parameters
    ----------
    n_components : int
        Number of states.
    covariance_type : {"full", "diag"}
        Whether the features of a state are correlated or independent.
    startprob_prior : float or None
        Concentration of the Dirichlet prior of the first state; None is 1 / n_components.
    transmat_prior : float or None
        Concentration of the Dirichlet prior of each row of the transition matrix; None is 1 / n_components.
    mean_prior : array (n_features,) or None
        Prior mean of the states; None is the agreed mean of the data.
    mean_precision_prior : float
        Number of pseudo-observations behind ``mean_prior``.
    degrees_of_freedom_prior : float or None
        Degrees of freedom of the prior of the precisions, larger than n_features - 1; None is n_features.
    covariance_prior : array (n_features, n_features), (n_features,) for "diag", number or None
        Prior scatter matrix; a number is that many times the agreed variances of the features, None the
        agreed covariance (variances where entries are missing).
    n_init : int
        Number of starts. The one with the highest bound is kept.
    {shared parameters}

    Attributes
    ----------
    startprob_ : array (n_components,)
        Posterior mean of the probabilities of the first state.
    transmat_ : array (n_components, n_components)
        Posterior mean of the transition probabilities; rows sum to one.
    means_ : array (n_components, n_features)
        Posterior mean of each state's location.
    covariances_ : array (n_components, n_features, n_features), (n_components, n_features) for "diag"
        Inverse of the posterior mean of each state's precision.
    {shared attributes}
    """

    _uncertain = MappingProxyType(
        {"transitions": "transmat_", "means": "means_", "covariances": "covariances_"}
    )
    _summarised = ("transitions", "means")

    def _shards(self, nodes: list[Joined], session: Session) -> tuple[list[Sequences], float]:
        self._checked_widths(nodes[0][0], reset=True)
        self._check_gaussians(nodes[0][0].shape[1])
        units = self._agree_on_units(session, [rows for rows, _ in nodes], self.n_components)
        made = [Sequences(MixtureShard.of(units.apply(rows)), starts) for rows, starts in nodes]
        return made, units.log_volume

    def impute(
        self,
        X: Any,
        lengths: Any = None,
        return_std: bool = False,
        *,
        n_draws: int | None = None,
        random_state: Any = None,
    ) -> Any:
        """X with missing entries replaced by their means given the whole sequence; optionally deviations.

        With ``n_draws`` multiple imputations (n_draws, n, D), in which the missing entries of an observation are drawn
        jointly, and each observation's state independently of the others'.
        """
        rows, _ = self._rows(X, lengths)
        states = self.predict_proba(X, lengths)
        q = self._as_mixture(self._belief)
        return self._filled(q, rows, states, return_std, n_draws, random_state)

    def impute_interval(
        self, X: Any, lengths: Any = None, level: float = 0.9
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of central predictive intervals; equal to X where it is observed."""
        rows, _ = self._rows(X, lengths)
        states = self.predict_proba(X, lengths)
        return self._filled_interval(self._as_mixture(self._belief), rows, states, level)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[FloatArray, Any]:
        """A new sequence and its states; the parameters are drawn once from the posterior."""
        rng, draw, states = self._walk(n_samples, random_state)
        location, precision = draw["emission"]
        return self._draw(location[states], precision[states], rng), states

    # -- helpers --------------------------------------------------------------------------

    def _emission(self) -> GaussianEmission | DiagonalGaussianEmission:
        kind = GaussianEmission if self.covariance_type == "full" else DiagonalGaussianEmission
        return kind(*self._gaussian_prior())

    def _rows(self, X: Any, lengths: Any) -> Joined:
        check_is_fitted(self)
        rows, starts = join(sequences_of(X, lengths))
        return self._checked_widths(rows, reset=False), starts

    def _prepared(self, X: Any, lengths: Any) -> Sequences:
        rows, starts = self._rows(X, lengths)
        return Sequences(MixtureShard.of(self._units.apply(rows)), starts)

    def _emission_predictive(self, X: Any, lengths: Any) -> FloatArray:
        rows, _ = self._rows(X, lengths)
        flat = self._as_mixture(self.posterior_)
        return log_predictive(flat, rows) + np.log(self.n_components)

    def _as_mixture(self, q: Product) -> Product:
        """The emissions as a mixture of equal weights."""
        flat = Dirichlet.from_parameters(np.ones(int(self.n_components)))
        return Product(weights=flat, components=q["emission"])

    def _in_data_units(self, q: Product) -> Product:
        emission = self._gaussians_in_data_units(q["emission"])
        return Product(initial=q["initial"], transition=q["transition"], emission=emission)

    def _take(self, node: int) -> None:
        super()._take(node)
        self._take_gaussians(self.posterior_["emission"])


@dataclass(eq=False, repr=False)
class CategoricalHMM(HiddenMarkovEstimator):
    """Bayesian hidden Markov model of symbols 0, 1, 2, ..., pooled or over a network of nodes.

    Data are sequences of integers, (T,) or (T, 1), in the forms of ``GaussianHMM``; -1 or NaN is missing.

    Parameters
    ----------
    n_components : int
        Number of states.
    n_features : int or None
        Number of symbols; None is the largest symbol seen, plus one. It must be given where other nodes run in other
        processes.
    startprob_prior : float or None
        Concentration of the Dirichlet prior of the first state; None is 1 / n_components.
    transmat_prior : float or None
        Concentration of the Dirichlet prior of each row of the transition matrix; None is 1 / n_components.
    emissionprob_prior : float or None
        Concentration of the Dirichlet prior of each state's symbols; None is 1 / n_features.
    n_init : int
        Number of starts. The one with the highest bound is kept; starts are random, so the default is more than one.
    {shared parameters}

    Attributes
    ----------
    startprob_ : array (n_components,)
        Posterior mean of the probabilities of the first state.
    transmat_ : array (n_components, n_components)
        Posterior mean of the transition probabilities; rows sum to one.
    emissionprob_ : array (n_components, n_features)
        Posterior mean of each state's probabilities of symbols; rows sum to one.
    n_features_ : int
        Number of symbols.
    {shared attributes}
    """

    _uncertain = MappingProxyType({"transitions": "transmat_", "emissions": "emissionprob_"})
    _summarised = ("transitions", "emissions")

    def _doubts(self) -> Iterable[str]:
        """States that emit much the same symbols, or that the data hardly visit."""
        yield from super()._doubts()
        prior = self._model.prior["emission"].parameters()["concentration"].sum(-1)
        seen = self.posterior_["emission"].parameters()["concentration"].sum(-1) - prior
        for state in np.flatnonzero(seen < RARE):
            yield (
                f"state {state} has {seen[state]:.0f} observations: what belongs to it is the prior's, and fewer states may do"
            )
        for one, other in combinations(range(len(self.emissionprob_)), 2):
            shared = np.minimum(self.emissionprob_[one], self.emissionprob_[other]).sum()
            if shared > SHARED:
                yield (
                    f"states {one} and {other} overlap, they have {shared:.0%} of their symbols in common: intervals of "
                    "what belongs to them are not to be trusted"
                )
                continue
            ahead = self.transmat_[one] - self.transmat_[other]
            differ = 0.5 * np.abs(ahead).sum()
            if differ < ALIKE and shared > TOLD_APART:
                yield (
                    f"states {one} and {other} share symbols, and their transition probabilities differ by {differ:.0%} only: the data "
                    "hardly say which is which, intervals of what belongs to them are not to be trusted"
                )

    _kept = ("n_features_",)

    _: KW_ONLY
    n_features: int | None = None
    emissionprob_prior: float | None = None
    n_init: int = 5
    _flat = True

    def _shards(self, nodes: list[Joined], session: Session) -> tuple[list[Sequences], float]:
        shards = [Sequences(symbols_of(rows), starts) for rows, starts in nodes]
        largest = max(int(shard.observations.max(initial=-1)) for shard in shards)
        if largest < 0:
            raise ValueError("all observations are missing: there is nothing to learn from")
        if self.n_features is None and not session.whole:
            raise ValueError(
                "n_features is needed where a process sees the symbols of one node only: other nodes may "
                f"have seen more than the {largest + 1} of this one"
            )
        if self.n_features is not None:
            check_whole("n_features", self.n_features, 1)
            if largest >= self.n_features:
                raise ValueError(
                    f"symbol {largest} is outside 0..{self.n_features - 1}: raise n_features={self.n_features}"
                )
        elif largest >= MOST_SYMBOLS:
            raise ValueError(
                f"the largest symbol is {largest}, a table of so many columns would be needed: encode "
                "symbols as 0, 1, 2, ... (sklearn.preprocessing.OrdinalEncoder), or pass n_features"
            )
        # how many symbols exist is part of the schema, like the names of columns
        self.n_features_ = int(largest + 1 if self.n_features is None else self.n_features)
        self.n_features_in_ = 1
        check_positive("emissionprob_prior", self.emissionprob_prior, optional=True)
        return shards, 0.0

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, Any]:
        """A new sequence of symbols and its states; the parameters are drawn once from the posterior."""
        rng, draw, states = self._walk(n_samples, random_state)
        emission = draw["emission"].cumsum(1)
        symbols = (rng.random((n_samples, 1)) > emission[states][:, :-1]).sum(1)
        return symbols, states

    def _prepared(self, X: Any, lengths: Any) -> Sequences:
        check_is_fitted(self)
        rows, starts = join(sequences_of(X, lengths, flat=True))
        symbols = symbols_of(rows)
        if symbols.max(initial=-1) >= self.n_features_:
            raise ValueError(
                f"symbol {symbols.max()} was not known in fit: symbols are 0..{self.n_features_ - 1}"
            )
        return Sequences(symbols, starts)

    def _emission_predictive(self, X: Any, lengths: Any) -> FloatArray:
        symbols = self._prepared(X, lengths).observations
        padded = np.column_stack([np.log(self.emissionprob_), np.zeros(len(self.emissionprob_))])
        return np.asarray(padded.T[symbols])

    def _emission(self) -> CategoricalEmission:
        concentration = self.emissionprob_prior
        each = 1.0 / self.n_features_ if concentration is None else float(concentration)
        return CategoricalEmission(np.full(self.n_features_, each))

    def _take(self, node: int) -> None:
        super()._take(node)
        p = self.posterior_["emission"].parameters()["concentration"]
        self.emissionprob_ = p / p.sum(1, keepdims=True)


def symbols_of(rows: FloatArray) -> NDArray[np.int64]:
    """Whole numbers from 0, and -1 for a missing observation (NaN or -1)."""
    if rows.shape[1] != 1:
        raise ValueError(f"symbols come in one column, received {rows.shape[1]}")
    values = np.where(np.isnan(rows[:, 0]), float(MISSING), rows[:, 0])
    odd = values[(values != np.round(values)) | (values < MISSING)]
    if len(odd):
        raise ValueError(f"symbols must be whole numbers from 0 (-1: missing), received {odd[0]:g}")
    return values.astype(np.int64)
