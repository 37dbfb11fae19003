"""PPCA: maximum-likelihood probabilistic PCA, pooled (EM) or distributed (D-PPCA)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from dmfvi.agreement import Meeting
from dmfvi.consensus.parameter_admm import ParameterADMM
from dmfvi.engines.local import LocalEngine
from dmfvi.estimators.factor_estimator import FactorEstimator
from dmfvi.estimators.pca_fit import PcaSettings, agree_on_start
from dmfvi.estimators.validation import (
    check_n_components,
    check_observed,
    check_positive,
    check_whole,
)
from dmfvi.models.pca_posterior import PcaPosterior
from dmfvi.models.pca_shard import make_shard
from dmfvi.models.ppca import PpcaBelief, PpcaModel
from dmfvi.network import Network
from dmfvi.node import Job


class PPCA(FactorEstimator):
    """Probabilistic PCA by maximum likelihood, with missing data.

    ``network=None`` is EM on all data (Tipping & Bishop 1999); with a network it is D-PPCA (Yoon & Pavlovic
    2012): ADMM on loadings, mean and noise precision, one E-step a round. Kept as the baseline that
    ``BayesianPCA`` is compared with: it gives no uncertainty of the loadings, and it is slow.

    Parameters
    ----------
    n_components : int
    network : Network or None
    penalty : float, eta of D-PPCA in standardised units
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
        penalty: float = 10.0,
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
        check_positive("penalty", self.penalty)
        check_whole("max_rounds", self.max_rounds, 1)
        check_observed(shards, getattr(self, "feature_names_in_", None))
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        engine = LocalEngine()
        settings = PcaSettings(int(self.n_components), self.fit_mean)
        start, n_observed = agree_on_start(
            shards, Meeting(network, engine), settings, np.random.default_rng(seed)
        )
        width = self.n_components + int(self.fit_mean)
        model = PpcaModel(n_features, self.n_components, width)
        mean = np.zeros((n_features, width))
        mean[:, : self.n_components] = start.loadings
        belief = PpcaBelief(mean, start.noise_precision)
        # each node weighs its own statistics by its own precision: nothing is summed
        job = Job(
            model,
            ParameterADMM(model.solve, belief.pack(), self.penalty),
            tol=self.tol,
            replicated=True,
        )
        prepared = [make_shard(start.units.apply(x), self.fit_mean) for x in shards]
        with self._watching(network, None) as watch:
            run = engine.run(
                job,
                network,
                prepared,
                [belief] * network.n_nodes,
                int(self.max_rounds),
                lambda record, _: watch(record, list),
            )
        points = [
            PcaPosterior.point(b.mean, b.noise_precision, self.n_components, start.units)
            for b in run.beliefs
        ]
        aligned = [points[0], *(p.aligned_to(points[0]) for p in points[1:])]
        self._keep_run(aligned, run, -n_observed * float(np.log(start.units.scale)))
        if network.n_nodes > 1:
            self.history_["objective"][:] = np.nan  # no node knows the others' likelihood
        return self
