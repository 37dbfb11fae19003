"""PPCA: maximum-likelihood probabilistic PCA, pooled (EM) or distributed (D-PPCA)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np

from dmfvi.consensus import ParameterADMM
from dmfvi.engines.base import RoundRecord, Run
from dmfvi.inference.model import Coroutine
from dmfvi.inference.result import Inference, InferenceObserver, warn_unless_converged
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.models.pca.factors import FactorEstimator
from dmfvi.models.pca.ppca_model import DistributedPpcaModel, PpcaModel
from dmfvi.models.pca.shard import make_shard
from dmfvi.models.pca.start import agree_on_scale

#: rounds after which nodes look again whether the penalty still fits the noise they have found
STAGE_ROUNDS = 50
#: the noise precision may move by this factor before a new stage is begun
STAGE_FACTOR = 2.0


@dataclass(eq=False, repr=False)
class PPCA(FactorEstimator):
    """Probabilistic PCA by maximum likelihood, with missing data.

    ``network=None`` is EM on all data (Tipping & Bishop 1999); with a network it is D-PPCA (Yoon & Pavlovic
    2012): ADMM on loadings, mean and noise precision, one E-step per round. It is a baseline for comparison with
    ``BayesianPCA``. It gives no uncertainty of the loadings, and it is slow. With missing entries
    the likelihood is so flat that pooled and distributed loadings may differ in the third digit at ``tol=1e-5``.
    ``Federation(network, consensus="bregman-admm")`` runs EM on agreed sums instead, which is the pooled fit.

    D-PPCA's penalty is a setting of its rule, ``dmfvi.consensus.make("parameter-admm", network, penalty=...)``: a
    number is one eta for all parameters in the units of the data, as published; "auto" weighs each parameter by the
    curvature of a node's likelihood, a N/V for loadings and mean and n_obs/(2 V a^2) for the noise precision a, and
    begins anew with agreed averages whenever a has moved by a factor of two: the fixed points are the same, the rounds
    are many times fewer.

    Parameters
    ----------
    n_components : int
        Number of latent dimensions.
    fit_mean : bool
        Whether the mean is part of the model; otherwise it is zero.
    {shared parameters}

    Attributes
    ----------
    components_ : array (n_components, n_features)
        Estimated loadings, strongest first.
    mean_ : array (n_features,)
        Estimated mean of the data.
    n_components_ : int
        Number of components.
    noise_variance_ : float
        Estimated noise variance.
    noise_precision_ : float
        Estimated noise precision.
    explained_variance_ : array (n_components,)
        Variance of the model along each component, noise included, as PCA's.
    {shared attributes}

    Notes
    -----
    The posterior is a point: it has no uncertainty of the loadings. ``lower_bound_`` is the log likelihood at the estimate
    before the last sweep; it is NaN for D-PPCA, whose nodes do not agree on it.
    """

    _no_response = "it is a point estimate; use BayesianPCA"

    _consensus = ParameterADMM.name

    _: KW_ONLY
    tol: float = 1e-5

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to X (n_samples, n_features), split evenly over the nodes, or to one array per node.

        A row of ``sample_weight`` two counts as two rows, one of zero not at all.
        """
        session = self._open()
        shards, weights = self._weighted_shards(X, self._factor_shards(X, session), sample_weight)
        pairs = list(zip(shards, weights, strict=True))
        units = session.agree(lambda pair: agree_on_scale(pair[0], self.fit_mean, pair[1]), pairs)[
            0
        ]
        prepared = [make_shard(units.apply(x), self.fit_mean, w) for x, w in pairs]
        self._units = units
        model = self._make_model()
        if not isinstance(session.rule, ParameterADMM):
            volume = units.log_volume
            return self._fit(session, model, prepared, log_volume=volume, observer=observer)
        self._model = DistributedPpcaModel(
            model.n_features, model.n_latent, model.width, units, session.network.n_nodes
        )
        made = self._stages(session, prepared, observer)
        self._keep(made)
        warn_unless_converged(made.run, self.tol, stacklevel=2)
        return self

    def _make_model(self) -> PpcaModel:
        d, m = len(self._units.shift), int(self.n_components)
        return PpcaModel(d, m, m + int(self.fit_mean), self._units)

    def _stages(
        self, session: Session, shards: list[Any], observer: InferenceObserver | None
    ) -> Inference:
        """Stages until the penalty fits the noise that was found, then to the end."""
        start = session.start(self._model, shards, session.seed(self.random_state))[0]
        history: list[RoundRecord] = []
        staged = getattr(session.rule, "given", None) == "auto"
        while True:
            left = int(self.max_iter) - len(history)
            made = session.fit(
                self._model,
                shards,
                start=start,
                # each node weighs its own statistics by its own precision: nothing is summed
                replicated=True,
                tol=self.tol,
                max_iter=min(left, STAGE_ROUNDS) if staged else left,
                verbose=self.verbose,
                observer=observer,
            )
            before = len(history)  # a sweep a round
            history += [
                replace(r, round=r.round + before, sweeps=r.sweeps + before)
                for r in made.run.history
            ]
            ended = observer is not None and made.n_rounds < min(left, STAGE_ROUNDS)
            if made.converged or ended or len(history) >= self.max_iter:
                run = Run(made.run.beliefs, history, made.run.converged)
                return replace(made, run=run)
            averages = session.agree(_average, [b.pack() for b in made.beliefs])[0]
            found = self._model.unpack(averages)
            ratio = found.noise_precision / start.noise_precision
            staged = not 1 / STAGE_FACTOR < ratio < STAGE_FACTOR
            start = found


def _average(vector: FloatArray) -> Coroutine:
    """The mean over the nodes."""
    total = yield np.append(vector, 1.0)
    return total[:-1] / total[-1]
