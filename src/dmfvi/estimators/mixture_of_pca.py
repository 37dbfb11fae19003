"""MixtureOfPCA: decentralized mixtures of Bayesian PCAs with missing data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dmfvi._numeric import relative_norm
from dmfvi.consensus import ConsensusRule
from dmfvi.engines.base import Engine
from dmfvi.engines.links import Links
from dmfvi.engines.local import RoundRecord, Run
from dmfvi.estimators.conjugate_estimator import (
    Best,
    ConjugateEstimator,
    generator_of,
)
from dmfvi.estimators.validation import check_n_components, check_positive, check_whole
from dmfvi.families import Dirichlet
from dmfvi.families.base import FloatArray
from dmfvi.inference import Inference, Session
from dmfvi.models.mixture_pca import (
    SWITCHED_OFF,
    MixtureOfPcaModel,
    MixturePcaBelief,
    MixtureRows,
)
from dmfvi.models.pca import BayesianPcaModel
from dmfvi.models.pca_belief import PcaPrior
from dmfvi.models.pca_posterior import PcaPosterior
from dmfvi.models.pca_start import Units
from dmfvi.models.pca_statistics import Layout
from dmfvi.models.starts import FeatureUnits, agree_on_units
from dmfvi.network import Network
from dmfvi.node import Job
from dmfvi.progress import live_rounds

#: sweeps before ARD may switch columns off
HELD_SWEEPS = 5


@dataclass(frozen=True)
class MixturePcaPosterior:
    """q(pi), and q(W, mu, tau) of each cluster in the data's units."""

    weights: Dirichlet
    clusters: tuple[PcaPosterior, ...]
    prior_weight: float  # natural parameter of a cluster without rows

    def distance(self, other: MixturePcaPosterior) -> float:
        """Largest relative difference of natural parameters over blocks and clusters.

        A cluster that has no rows in either has nothing to compare but its weight.
        """
        mine, theirs = self.weights.natural[0], other.weights.natural[0]
        worst = relative_norm(mine - theirs, theirs)
        rows = theirs - self.prior_weight
        for a, b, count in zip(self.clusters, other.clusters, rows, strict=True):
            if count > SWITCHED_OFF:
                worst = max(worst, a.distance(b))
        return worst


class MixtureOfPCA(DensityMixin, ConjugateEstimator):
    """Clusters that each have their own low-dimensional linear structure, pooled or over a network.

    Parameters
    ----------
    n_clusters : int, at most; what the data do not support is left with no weight.
    n_components : int, latent dimensions of each cluster; unused ones are switched off (ARD).
    weight_concentration_prior : float or None (1 / n_clusters), of the symmetric Dirichlet.
    prior : PcaPrior or None, of every cluster; None is vague in the data's own units.
    n_init : starts; the highest agreed bound wins.
    network, penalty, rounds_per_sweep, consensus, tol, max_rounds, links, n_jobs, random_state, verbose,
    engine
        As for ``BayesianPCA``. Missing entries are NaN.

    Attributes
    ----------
    weights_ (K,), means_ (K, D), components_ (K, n_components, D), noise_precision_ (K,) : posterior means.
    posterior_ : MixturePcaPosterior; ``node_posteriors_`` has every node's.
    lower_bound_, history_, n_rounds_, n_start_rounds_, converged_ : see ``BayesianPCA``.
    """

    def __init__(
        self,
        n_clusters: int = 2,
        n_components: int = 1,
        *,
        weight_concentration_prior: float | None = None,
        prior: PcaPrior | None = None,
        n_init: int = 1,
        network: Network | None = None,
        penalty: float | Literal["auto"] = "auto",
        rounds_per_sweep: int | Literal["auto"] = "auto",
        consensus: str | ConsensusRule = "bregman-admm",
        tol: float = 1e-6,
        max_rounds: int = 20_000,
        links: Links | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        engine: str | Engine = "local",
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.weight_concentration_prior = weight_concentration_prior
        self.prior = prior
        self.n_init = n_init
        self.network = network
        self.penalty = penalty
        self.rounds_per_sweep = rounds_per_sweep
        self.consensus = consensus
        self.tol = tol
        self.max_rounds = max_rounds
        self.links = links
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.engine = engine

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to X (n_samples, n_features), split evenly over the nodes, or to one array per node."""
        session = self._open()
        shards = self._row_shards(X, session)
        self._check_settings(shards[0].shape[1])
        units: FeatureUnits = session.agree(agree_on_units, shards)[0]
        if self.n_clusters > units.n_samples:
            raise ValueError(
                f"n_clusters={self.n_clusters} is larger than n_samples={int(units.n_samples)}: "
                f"choose at most {int(units.n_samples)}"
            )
        variance = float(np.mean(units.scale**2 * np.diag(units.covariance)))
        scale = float(np.sqrt(variance)) if variance > 0 else 1.0
        self._units = Units(units.shift, scale, units.complete)
        self._model = self._make_model(len(units.shift))
        data = [self._units.apply(x) for x in shards]
        spread = units.covariance * np.outer(units.scale, units.scale) / scale**2
        best = self._best_start(session, data, spread)
        n_observed = float(units.n_observed.sum())
        return self._keep(best, session, -n_observed * float(np.log(scale)))

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each cluster for each row (n, K), from what is observed of it."""
        data = self._checked_rows(X)
        rows = MixtureRows.of(self._units.apply(data))
        return self._model.responsibilities(rows, self._belief)[1]

    def predict(self, X: Any) -> FloatArray:
        """The most probable cluster of each row."""
        return np.asarray(self.predict_proba(X).argmax(1))

    def fit_predict(self, X: Any, y: Any = None) -> FloatArray:
        """Fit, then the most probable cluster of each row."""
        return self.fit(X).predict(X)

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of the observed part of each row; uncertain loadings widen the noise."""
        data = self._checked_rows(X)
        logs = np.column_stack([c.log_likelihood(data) for c in self.posterior_.clusters])
        return np.asarray(logsumexp(logs + np.log(self.weights_), axis=1))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(self.score_samples(X).mean())

    def impute(self, X: Any, return_std: bool = False) -> Any:
        """X with missing entries replaced by their predictive means; optionally their deviations too."""
        data = self._checked_rows(X)
        share = self.predict_proba(data)
        first, second = np.zeros_like(data), np.zeros_like(data)
        for k, cluster in enumerate(self.posterior_.clusters):
            mean, variance = cluster.predict(data)
            first += share[:, k, None] * mean
            second += share[:, k, None] * (variance + mean**2)
        missing = np.isnan(data)
        filled = np.where(missing, first, data)
        std = np.where(missing, np.sqrt(np.maximum(second - first**2, 0.0)), 0.0)
        return (filled, std) if return_std else filled

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[FloatArray, Any]:
        """New rows and their clusters from the posterior predictive distribution."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        rng = generator_of(random_state)
        labels = rng.choice(len(self.weights_), size=n_samples, p=self.weights_)
        rows = np.empty((n_samples, self.means_.shape[1]))
        for k, cluster in enumerate(self.posterior_.clusters):
            chosen = np.flatnonzero(labels == k)
            if len(chosen):
                rows[chosen] = cluster.sample(len(chosen), rng)
        return rows, labels

    # -- helpers --------------------------------------------------------------------------

    def _check_settings(self, n_features: int) -> None:
        check_whole("n_clusters", self.n_clusters, 1)
        check_n_components(self.n_components, n_features)
        check_whole("n_init", self.n_init, 1)
        if self.weight_concentration_prior is not None:
            check_positive("weight_concentration_prior", self.weight_concentration_prior)
        if self.prior is not None and not isinstance(self.prior, PcaPrior):
            raise TypeError(
                f"prior must be dmfvi.PcaPrior or None, received {type(self.prior).__name__}"
            )
        if self.prior is not None and self.prior.component_location is not None:
            raise ValueError("prior.component_location is for BayesianPCA: clusters have none")

    def _make_model(self, n_features: int) -> MixtureOfPcaModel:
        units, m = self._units, int(self.n_components)
        prior = PcaPrior() if self.prior is None else self.prior.rescaled(units.scale, units.shift)
        component = BayesianPcaModel(
            Layout(n_features, m + 1, units.complete), m, "full", "shared", prior
        )
        weight = self.weight_concentration_prior
        return MixtureOfPcaModel(
            int(self.n_clusters),
            component,
            1.0 / self.n_clusters if weight is None else float(weight),
        )

    def _best_start(
        self, session: Session, data: list[FloatArray], spread: FloatArray
    ) -> Inference:
        shards = [MixtureRows.of(x) for x in data]
        seeds = check_random_state(self.random_state).randint(
            np.iinfo(np.int32).max, size=int(self.n_init)
        )
        best = Best(session)
        for drawn in seeds:
            seed = int(session.of_first(float(drawn)))
            talk = partial(self._model.start_talk, covariance=spread, seed=seed)
            summaries = session.agree(talk, data)
            summary = session.meeting.broadcast(summaries[0])[0]
            begun = self._model.begin(summary, HELD_SWEEPS)
            run = self._run(session, shards, begun)
            best.offer(
                Inference(run.beliefs, run, session.meeting.n_rounds, session.meeting.bytes_sent)
            )
        return best.chosen

    def _run(self, session: Session, shards: list[MixtureRows], begun: MixturePcaBelief) -> Run:
        limit, begins = int(self.max_rounds), [begun] * len(shards)
        job = Job(self._model, session.rule, tol=self.tol)
        label = "pooled fit" if session.network.n_nodes == 1 else session.network.name
        with live_rounds(label, self.tol, limit, self.verbose > 0) as show:

            def watch(record: RoundRecord, _: list[Any]) -> None:
                show(record)

            run: Run = session.machine.run(job, session.network, shards, begins, limit, watch)
        return run

    def _in_data_units(self, q: Any) -> Any:
        clusters = [PcaPosterior.of(b, self._units) for b in q.components]
        first = getattr(self, "_reference", None)
        if first is not None:  # columns in the same order and with the same signs at all nodes
            pairs = zip(clusters, first, strict=True)
            clusters = [mine.aligned_to(theirs) for mine, theirs in pairs]
        prior_weight = float(self._model.prior_weights.natural[0][0])
        return MixturePcaPosterior(q.weights, tuple(clusters), prior_weight)

    def _keep(self, inference: Inference, session: Session, log_volume: float = 0.0) -> Self:
        self._reference = None
        self._reference = self._in_data_units(inference.posteriors[0]).clusters
        return super()._keep(inference, session, log_volume)

    def _saved(self) -> dict[str, Any]:
        """Without the statistics that beliefs were made from: only a fit needs them."""
        content = super()._saved()
        content["node_beliefs"] = [
            replace(q, components=tuple(replace(b, total=None) for b in q.components))
            for q in self._node_beliefs
        ]
        return content

    def _restore(self, content: dict[str, Any]) -> None:
        self._units, first = content["units"], content["node_beliefs"][0]
        self._model = self._make_model(len(self._units.shift))
        self._reference = None
        self._reference = self._in_data_units(first).clusters
        super()._restore(content)

    def _take(self, node: int) -> None:
        concentration = self.posterior_.weights.parameters()["concentration"]
        self.weights_ = concentration / concentration.sum()
        clusters = self.posterior_.clusters
        self.means_ = np.stack([c.location for c in clusters])
        self.components_ = np.stack([c.loadings.T for c in clusters])
        self.noise_precision_ = np.array([c.noise_precision for c in clusters])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
