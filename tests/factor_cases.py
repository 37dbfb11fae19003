"""What the laws need of the mixture of PCA, whose belief has more to it than one natural parameter vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from dmfvi import BayesianPCA, GammaPrior, MixtureOfPCA, PcaPrior
from dmfvi.families import Dirichlet, Gamma
from dmfvi.models.mixture_pca import MixtureRows

CENTRES = np.array([[4.0, 0, 0, 0, 0, 0], [0, 4.0, 0, 0, 0, 0], [0, 0, 4.0, 0, 0, 0]])
NOISE = np.array([0.25, 0.4, 0.6])


@dataclass(frozen=True)
class Fit:
    """A fitted estimator as the laws look at it."""

    estimator: MixtureOfPCA

    def __getattr__(self, name: str) -> Any:
        return getattr(self.estimator, f"{name}_")

    @property
    def posteriors(self) -> list[Any]:
        return self.estimator.node_posteriors_


def fit(
    model: MixtureOfPCA,
    shards: list[np.ndarray],
    network: Any = None,
    acceleration: Any = None,
    **settings: Any,
) -> Fit:
    """Its sweeps are never extrapolated, whatever ``acceleration`` says."""
    made = clone(model).set_params(network=network, **settings)
    return Fit(made.fit(shards if network is not None else np.concatenate(shards)))


def rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows sorted by cluster with some entries missing; the truth: share and noise of each cluster."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(3, 8.0))
    label = np.sort(rng.choice(3, size=180, p=shares))
    loadings = rng.normal(size=(3, 6))
    data = CENTRES[label] + rng.normal(size=(180, 1)) * loadings[label]
    data += NOISE[label, None] * rng.normal(size=data.shape)
    data[rng.random(data.shape) < 0.03] = np.nan
    return data, np.column_stack([shares, NOISE])


MODEL = MixtureOfPCA(3, 1, weight_concentration_prior=1.0, random_state=0)


def draws(found: Fit, n: int, seed: int = 0) -> np.ndarray:
    """Shares and noise deviations of the clusters, n draws from q."""
    rng = np.random.default_rng(seed)
    shares = found.posterior.weights.sample(rng, n)
    clusters = found.posterior.clusters
    precision = [rng.gamma(c.noise_shape, 1.0 / c.noise_rate, size=n) for c in clusters]
    return np.stack([shares, np.stack(precision, axis=1) ** -0.5], axis=-1)


def one_cluster_is_bayesian_pca(_: Any) -> None:
    """Posterior, bound and densities, for the same prior in the data's units."""
    data = rows(3)[0][:60]
    prior = PcaPrior(GammaPrior(1e-3, 1e-3), GammaPrior(1.0, 1.0), GammaPrior(1.0, 1.0))
    ours = MixtureOfPCA(1, 2, prior=prior, tol=1e-9, random_state=0).fit(data)
    theirs = BayesianPCA(2, prior=prior, tol=1e-9, random_state=0).fit(data)
    assert ours.posterior_.clusters[0].distance(theirs.posterior_) < 1e-8
    assert np.isclose(ours.lower_bound_, theirs.lower_bound_, rtol=1e-9)
    np.testing.assert_allclose(ours.score_samples(data), theirs.score_samples(data), rtol=1e-5)


def bound_nearby(
    shard: np.ndarray, found: Fit
) -> tuple[float, Callable[[np.random.Generator], float]]:
    """The bound at the posterior, and at random steps away from it in every block."""
    estimator = found.estimator
    model, belief = estimator._model, estimator._belief
    standardised = MixtureRows.of(estimator._units.apply(shard))

    def bound(weights: Dirichlet, components: list[Any]) -> float:
        whole = [replace(c, global_bound=model.component._global_bound(c)) for c in components]
        moved = model.belief(weights, tuple(whole))
        return float(model.local_step(standardised, moved)[-1]) - moved.divergence

    def nearby(rng: np.random.Generator) -> float:
        concentration = belief.weights.parameters()["concentration"]
        weights = Dirichlet.from_parameters(concentration * (1 + 0.02 * rng.normal(size=3)))
        moved = []
        for c in belief.components:
            spread = np.sqrt(np.diagonal(c.covariance, axis1=-2, axis2=-1))
            noise = c.noise.parameters()
            factors = 1 + 0.02 * rng.normal(size=2)
            moved.append(
                replace(
                    c,
                    mean=c.mean + 0.1 * spread * rng.normal(size=c.mean.shape),
                    noise=Gamma.from_parameters(
                        noise["shape"] * factors[0], noise["rate"] * factors[1]
                    ),
                )
            )
        return bound(weights, moved)

    return bound(belief.weights, list(belief.components)), nearby
