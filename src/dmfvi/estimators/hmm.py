"""GaussianHMM and CategoricalHMM: decentralized hidden Markov models; sequences stay where they are."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from dmfvi._numeric import inverse, symmetrize
from dmfvi.consensus import ConsensusRule
from dmfvi.engines.base import Engine
from dmfvi.engines.links import Links
from dmfvi.estimators.conjugate_estimator import generator_of
from dmfvi.estimators.gaussian_mixture import BayesianGaussianMixture
from dmfvi.estimators.hidden_markov_estimator import HiddenMarkovEstimator
from dmfvi.estimators.mixture_prediction import impute_mixture, log_predictive
from dmfvi.estimators.sequences import join, nodes_of_sequences, sequences_of
from dmfvi.estimators.validation import check_positive, check_whole
from dmfvi.families import Dirichlet, Product
from dmfvi.families.base import FloatArray
from dmfvi.models.emissions import (
    MISSING,
    CategoricalEmission,
    DiagonalGaussianEmission,
    GaussianEmission,
)
from dmfvi.models.hmm import Sequences
from dmfvi.models.mixture_shard import MixtureShard
from dmfvi.models.starts import FeatureUnits, agree_on_units
from dmfvi.network import Network

#: a symbol beyond this is more likely an id than a code
MOST_SYMBOLS = 1_000_000


class GaussianHMM(HiddenMarkovEstimator):
    """Bayesian hidden Markov model with Gaussian emissions, pooled or over a network of nodes.

    Parameters
    ----------
    n_components : int, states.
    covariance : {"full", "diagonal"}
    start_concentration, transition_concentration : float or None (1 / n_components), Dirichlet priors.
    mean_prior, mean_precision_prior, degrees_of_freedom_prior, covariance_prior : as for ``BayesianGaussianMixture``.
    n_init : starts; the highest agreed bound wins.
    network, penalty, rounds_per_sweep, consensus, acceleration, tol, max_rounds, links, n_jobs, random_state,
    verbose, engine : as for ``BayesianPCA`` and ``BayesianGaussianMixture``.

    Data are one sequence (T, D), many in one array with ``lengths``, a list of sequences (shared out over the nodes
    in order), or a list of lists, one per node. NaN are missing, whole observations or parts of them.

    Attributes
    ----------
    startprob_, transmat_, means_, covariances_ : posterior means; E[L]^-1 of each state.
    posterior_ : Product of ``initial``, ``transition`` and ``emission``.
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance: Literal["full", "diagonal"] = "full",
        start_concentration: float | None = None,
        transition_concentration: float | None = None,
        mean_prior: ArrayLike | None = None,
        mean_precision_prior: float = 1.0,
        degrees_of_freedom_prior: float | None = None,
        covariance_prior: ArrayLike | None = None,
        n_init: int = 1,
        network: Network | None = None,
        penalty: float | Literal["auto"] = "auto",
        rounds_per_sweep: int | Literal["auto"] = "auto",
        consensus: str | ConsensusRule = "bregman-admm",
        acceleration: bool | Literal["auto"] = "auto",
        tol: float = 1e-6,
        max_rounds: int = 5000,
        links: Links | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        engine: str | Engine = "local",
    ) -> None:
        self.n_components = n_components
        self.covariance = covariance
        self.start_concentration = start_concentration
        self.transition_concentration = transition_concentration
        self.mean_prior = mean_prior
        self.mean_precision_prior = mean_precision_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.n_init = n_init
        self.network = network
        self.penalty = penalty
        self.rounds_per_sweep = rounds_per_sweep
        self.consensus = consensus
        self.acceleration = acceleration
        self.tol = tol
        self.max_rounds = max_rounds
        self.links = links
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.engine = engine

    def fit(self, X: Any, y: Any = None, *, lengths: Any = None) -> Self:
        """Fit to sequences (see the class)."""
        session = self._open()
        nodes = nodes_of_sequences(X, lengths, session, self.network is None)
        validate_data(self, nodes[0][0], ensure_all_finite="allow-nan", dtype=np.float64)
        self._check_common()
        joined = [join(sequences) for sequences in nodes]
        self._gaussian()._check_settings(joined[0][0].shape[1])
        self._units = session.agree(agree_on_units, [rows for rows, _ in joined])[0]
        if self.n_components > self._units.n_samples:
            raise ValueError(
                f"n_components={self.n_components} is larger than the number of observations "
                f"{int(self._units.n_samples)}: choose fewer states"
            )
        self._log_volume = self._units.log_volume
        shards = [
            Sequences(MixtureShard.of(self._units.apply(rows)), starts) for rows, starts in joined
        ]
        return self._fit_model(session, shards)

    def impute(self, X: Any, lengths: Any = None, return_std: bool = False) -> Any:
        """X with missing entries replaced by their means given the whole sequence; optionally deviations."""
        rows, _ = self._rows(X, lengths)
        states = self.predict_proba(X, lengths)
        q = self._as_mixture(self._belief)
        filled, std = impute_mixture(q, self._units, rows, states)
        return (filled, std) if return_std else filled

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[FloatArray, Any]:
        """A new sequence and its states; the parameters are drawn once from the posterior."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        rng = generator_of(random_state)
        draw = self.posterior_.sample(rng)
        states = self._walk(n_samples, rng, draw["initial"], draw["transition"])
        location, precision = draw["emission"]
        if self.covariance == "diagonal":
            mean = location[states][..., 0]
            return mean + rng.standard_normal(mean.shape) / np.sqrt(precision[states]), states
        factor = np.linalg.cholesky(symmetrize(inverse(precision)))
        noise = rng.standard_normal((n_samples, factor.shape[-1]))
        return location[states] + np.einsum("tij,tj->ti", factor[states], noise), states

    # -- helpers --------------------------------------------------------------------------

    def _emission(self) -> GaussianEmission | DiagonalGaussianEmission:
        mixture = self._gaussian()._make_model(self._units)
        kind = GaussianEmission if self.covariance == "full" else DiagonalGaussianEmission
        return kind(
            mixture.mean,
            mixture.confidence,
            mixture.dof,
            mixture.inverse_scale,
            mixture.start_covariance,
        )

    def _gaussian(self) -> BayesianGaussianMixture:
        """The priors of the emissions are those of a mixture's components."""
        return BayesianGaussianMixture(
            self.n_components,
            covariance=self.covariance,
            mean_prior=self.mean_prior,
            mean_precision_prior=self.mean_precision_prior,
            degrees_of_freedom_prior=self.degrees_of_freedom_prior,
            covariance_prior=self.covariance_prior,
        )

    def _rows(self, X: Any, lengths: Any) -> tuple[FloatArray, NDArray[np.int64]]:
        check_is_fitted(self)
        rows, starts = join(sequences_of(X, lengths))
        rows = validate_data(
            self, rows, ensure_all_finite="allow-nan", dtype=np.float64, reset=False
        )
        return rows, starts

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
        mixture = self._gaussian()
        mixture._units = self._units
        emission = mixture._in_data_units(self._as_mixture(q))["components"]
        return Product(initial=q["initial"], transition=q["transition"], emission=emission)

    def _take(self, node: int) -> None:
        super()._take(node)
        p = self.posterior_["emission"].parameters()
        if self.covariance == "diagonal":
            self.means_ = p["mean"][..., 0]
            self.covariances_ = p["rate"] / p["shape"]
        else:
            self.means_ = p["mean"]
            self.covariances_ = symmetrize(inverse(p["scale"])) / p["dof"][:, None, None]

    _units: FeatureUnits

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class CategoricalHMM(HiddenMarkovEstimator):
    """Bayesian hidden Markov model of symbols 0, 1, 2, ..., pooled or over a network of nodes.

    Parameters
    ----------
    n_components : int, states.
    n_symbols : int or None (the largest symbol seen, plus one; needed where other nodes run elsewhere).
    start_concentration, transition_concentration : float or None (1 / n_components), Dirichlet priors.
    emission_concentration : float or None (1 / n_symbols), Dirichlet prior.
    n_init : starts; the highest agreed bound wins. The default is more than one: random starts differ.
    network, penalty, rounds_per_sweep, consensus, acceleration, tol, max_rounds, links, n_jobs, random_state,
    verbose, engine : as for ``BayesianPCA`` and ``BayesianGaussianMixture``.

    Data are sequences of whole numbers, (T,) or (T, 1), in the forms of ``GaussianHMM``; -1 or NaN are missing.

    Attributes
    ----------
    startprob_, transmat_, emissionprob_ : posterior means.
    posterior_ : Product of ``initial``, ``transition`` and ``emission``, all Dirichlet.
    """

    _kept = ("n_symbols_",)

    def __init__(
        self,
        n_components: int = 1,
        *,
        n_symbols: int | None = None,
        start_concentration: float | None = None,
        transition_concentration: float | None = None,
        emission_concentration: float | None = None,
        n_init: int = 5,
        network: Network | None = None,
        penalty: float | Literal["auto"] = "auto",
        rounds_per_sweep: int | Literal["auto"] = "auto",
        consensus: str | ConsensusRule = "bregman-admm",
        acceleration: bool | Literal["auto"] = "auto",
        tol: float = 1e-6,
        max_rounds: int = 5000,
        links: Links | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        engine: str | Engine = "local",
    ) -> None:
        self.n_components = n_components
        self.n_symbols = n_symbols
        self.start_concentration = start_concentration
        self.transition_concentration = transition_concentration
        self.emission_concentration = emission_concentration
        self.n_init = n_init
        self.network = network
        self.penalty = penalty
        self.rounds_per_sweep = rounds_per_sweep
        self.consensus = consensus
        self.acceleration = acceleration
        self.tol = tol
        self.max_rounds = max_rounds
        self.links = links
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.engine = engine

    def fit(self, X: Any, y: Any = None, *, lengths: Any = None) -> Self:
        """Fit to sequences of symbols (see the class)."""
        session = self._open()
        nodes = nodes_of_sequences(X, lengths, session, self.network is None, flat=True)
        self._check_common()
        joined = [join(sequences) for sequences in nodes]
        shards = [Sequences(symbols_of(rows), starts) for rows, starts in joined]
        largest = max(int(shard.observations.max(initial=-1)) for shard in shards)
        if largest < 0:
            raise ValueError("all observations are missing: there is nothing to learn from")
        if self.n_symbols is None and not session.whole:
            raise ValueError(
                "n_symbols is needed where a process sees the symbols of one node only: other nodes may "
                f"have seen more than the {largest + 1} of this one"
            )
        if self.n_symbols is not None:
            check_whole("n_symbols", self.n_symbols, 1)
            if largest >= self.n_symbols:
                raise ValueError(
                    f"symbol {largest} is outside 0..{self.n_symbols - 1}: raise n_symbols={self.n_symbols}"
                )
        elif largest >= MOST_SYMBOLS:
            raise ValueError(
                f"the largest symbol is {largest}, a table of so many columns would be needed: encode "
                "symbols as 0, 1, 2, ... (sklearn.preprocessing.OrdinalEncoder), or pass n_symbols"
            )
        # how many symbols exist is part of the schema, like the names of columns
        self.n_symbols_ = int(largest + 1 if self.n_symbols is None else self.n_symbols)
        self.n_features_in_ = 1
        if self.emission_concentration is not None:
            check_positive("emission_concentration", self.emission_concentration)
        return self._fit_model(session, shards)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[Any, Any]:
        """A new sequence of symbols and its states; the parameters are drawn once from the posterior."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        rng = generator_of(random_state)
        draw = self.posterior_.sample(rng)
        states = self._walk(n_samples, rng, draw["initial"], draw["transition"])
        emission = draw["emission"].cumsum(1)
        symbols = (rng.random((n_samples, 1)) > emission[states][:, :-1]).sum(1)
        return symbols, states

    def _emission(self) -> CategoricalEmission:
        concentration = self.emission_concentration
        each = 1.0 / self.n_symbols_ if concentration is None else float(concentration)
        return CategoricalEmission(np.full(self.n_symbols_, each))

    def _prepared(self, X: Any, lengths: Any) -> Sequences:
        check_is_fitted(self)
        rows, starts = join(sequences_of(X, lengths, flat=True))
        symbols = symbols_of(rows)
        if symbols.max(initial=-1) >= self.n_symbols_:
            raise ValueError(
                f"symbol {symbols.max()} was not known in fit: symbols are 0..{self.n_symbols_ - 1}"
            )
        return Sequences(symbols, starts)

    def _emission_predictive(self, X: Any, lengths: Any) -> FloatArray:
        symbols = self._prepared(X, lengths).observations
        padded = np.column_stack([np.log(self.emissionprob_), np.zeros(len(self.emissionprob_))])
        return np.asarray(padded.T[symbols])

    def _in_data_units(self, q: Product) -> Product:
        return q

    def _take(self, node: int) -> None:
        super()._take(node)
        p = self.posterior_["emission"].parameters()["concentration"]
        self.emissionprob_ = p / p.sum(1, keepdims=True)


def symbols_of(rows: FloatArray) -> NDArray[np.int64]:
    """Whole numbers from 0, and -1 where NaN or -1 says that the observation is missing."""
    if rows.shape[1] != 1:
        raise ValueError(f"symbols come in one column, received {rows.shape[1]}")
    values = np.where(np.isnan(rows[:, 0]), float(MISSING), rows[:, 0])
    odd = values[(values != np.round(values)) | (values < MISSING)]
    if len(odd):
        raise ValueError(f"symbols must be whole numbers from 0 (-1: missing), received {odd[0]:g}")
    return values.astype(np.int64)
