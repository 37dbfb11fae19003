"""PPCA: maximum-likelihood probabilistic PCA, pooled (EM) or distributed (D-PPCA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils import check_random_state

from dmfvi.agreement import Meeting
from dmfvi.consensus.parameter_admm import ParameterADMM
from dmfvi.engines.local import LocalEngine, Observer, RoundRecord, Run
from dmfvi.estimators.factor_estimator import FactorEstimator
from dmfvi.estimators.pca_fit import PcaSettings, agree_on_start
from dmfvi.estimators.validation import (
    check_n_components,
    check_observed,
    check_positive,
    check_whole,
)
from dmfvi.families.base import FloatArray
from dmfvi.models.pca_posterior import PcaPosterior
from dmfvi.models.pca_shard import make_shard
from dmfvi.models.pca_start import PcaStart
from dmfvi.models.ppca import PpcaBelief, PpcaModel
from dmfvi.network import Network
from dmfvi.node import Job

#: rounds after which nodes look again whether the penalty still fits the noise they have found
STAGE_ROUNDS = 50
#: the noise precision may move by this factor before a new stage is begun
STAGE_FACTOR = 2.0


class PPCA(FactorEstimator):
    """Probabilistic PCA by maximum likelihood, with missing data.

    ``network=None`` is EM on all data (Tipping & Bishop 1999); with a network it is D-PPCA (Yoon & Pavlovic
    2012): ADMM on loadings, mean and noise precision, one E-step a round. Kept as the baseline that
    ``BayesianPCA`` is compared with: it gives no uncertainty of the loadings, and it is slow: with missing entries
    the likelihood is so flat that pooled and distributed loadings may differ in the third digit at ``tol=1e-5``.

    Parameters
    ----------
    n_components : int
    network : Network or None
    penalty : "auto" or float
        eta of D-PPCA. A number is one eta for all parameters in the units of the data, as published. "auto"
        weighs each parameter by the curvature of a node's likelihood, a N/V for loadings and mean and
        n_obs/(2 V a^2) for the noise precision a, and begins anew with agreed averages whenever a has moved by
        a factor of two: the fixed points are the same, the rounds are many times fewer.
    tol : float, relative change and disagreement of the parameters at which the nodes stop
    max_rounds : int
    fit_mean : bool
    random_state : seed of the shared start
    verbose : int

    Attributes
    ----------
    components_, mean_, noise_precision_, explained_variance_, posterior_ (a point), node_posteriors_,
    history_, n_rounds_, converged_.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        network: Network | None = None,
        penalty: float | Literal["auto"] = "auto",
        tol: float = 1e-5,
        max_rounds: int = 5000,
        fit_mean: bool = True,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.network = network
        self.penalty = penalty
        self.tol = tol
        self.max_rounds = max_rounds
        self.fit_mean = fit_mean
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to X (n_samples, n_features), split evenly over the nodes, or to one array per node."""
        shards, network = self._shards(X, first=True)
        n_features = shards[0].shape[1]
        check_n_components(self.n_components, n_features)
        check_positive("tol", self.tol)
        if self.penalty != "auto":
            check_positive("penalty", self.penalty)
        check_whole("max_rounds", self.max_rounds, 1)
        check_observed(shards, getattr(self, "feature_names_in_", None))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        meeting = Meeting(network, LocalEngine())
        settings = PcaSettings(int(self.n_components), self.fit_mean)
        start, n_observed = agree_on_start(shards, meeting, settings, np.random.default_rng(seed))
        prepared = [make_shard(start.units.apply(x), self.fit_mean) for x in shards]
        width = self.n_components + int(self.fit_mean)
        model = PpcaModel(n_features, self.n_components, width)
        task = _Task(
            model,
            prepared,
            meeting,
            start,
            n_observed,
            self.penalty,
            self.tol,
            int(self.max_rounds),
        )
        with self._watching(network, None) as watch:
            run = task.run(lambda record, _: watch(record, list))
        points = [
            PcaPosterior.point(b.mean, b.noise_precision, self.n_components, start.units)
            for b in run.beliefs
        ]
        aligned = [points[0], *(p.aligned_to(points[0]) for p in points[1:])]
        self._keep_run(aligned, run, -n_observed * float(np.log(start.units.scale)))
        if network.n_nodes > 1:
            self.history_["objective"][:] = np.nan  # no node knows the others' likelihood
        return self


@dataclass(frozen=True)
class _Task:
    """One fit in standardised units: ADMM in stages, each with a penalty that all nodes agree on."""

    model: PpcaModel
    shards: Sequence[Any]
    meeting: Meeting
    start: PcaStart
    n_observed: float
    penalty: float | Literal["auto"]
    tol: float
    max_rounds: int

    def run(self, observer: Observer) -> Run:
        """Stages until the penalty fits the noise that was found, then to the end."""
        mean = np.zeros((self.model.n_features, self.model.width))
        mean[:, : self.model.n_latent] = self.start.loadings
        belief = PpcaBelief(mean, self.start.noise_precision)
        history: list[RoundRecord] = []
        network = self.meeting.network
        staged = self.penalty == "auto" and network.n_nodes > 1
        while True:
            left = self.max_rounds - len(history)
            # each node weighs its own statistics by its own precision: nothing is summed
            job = Job(
                self.model,
                ParameterADMM(self.model.solve, belief.pack(), self._eta(belief.noise_precision)),
                tol=self.tol,
                replicated=True,
            )
            run = self.meeting.engine.run(
                job,
                network,
                self.shards,
                [belief] * len(self.shards),
                min(left, STAGE_ROUNDS) if staged else left,
                _later(observer, len(history)),
            )
            history += [replace(r, round=r.round + len(history)) for r in run.history]
            if run.converged or len(history) >= self.max_rounds:
                return replace(run, history=history)
            averages = self.meeting.sum([b.pack() / network.n_nodes for b in run.beliefs])
            found = self.model.unpack(averages[0])
            ratio = found.noise_precision / belief.noise_precision
            staged = not 1 / STAGE_FACTOR < ratio < STAGE_FACTOR
            belief = found

    def _eta(self, precision: float) -> FloatArray:
        """Penalty per coordinate, in standardised units (x = scale x'), the noise precision last."""
        eta = np.empty(self.model.n_features * self.model.width + 1)
        if self.penalty == "auto":
            share = self.n_observed / self.meeting.network.n_nodes
            eta[:-1] = precision * share / self.model.n_features
            eta[-1] = 0.5 * share / precision**2
        else:
            eta[:-1] = self.penalty * self.start.units.scale**2
            eta[-1] = self.penalty / self.start.units.scale**4
        return eta


def _later(observer: Observer, rounds: int) -> Observer:
    """The observer with rounds counted from the first stage on."""
    return lambda record, beliefs: observer(replace(record, round=record.round + rounds), beliefs)
