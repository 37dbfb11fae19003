"""Cases of the models that have more to them than one natural parameter vector: PCA, its mixture, PPCA, structure, ratings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.decomposition import PCA, FactorAnalysis

from dmfvi import BayesianPCA, GammaPrior, MixtureOfPCA, PcaPrior
from dmfvi.datasets import make_cube, make_ratings
from dmfvi.families import Dirichlet, Gamma
from dmfvi.inference.result import Inference
from dmfvi.inference.session import Session, infer
from dmfvi.models.pca.mixture_model import MixtureOfPcaModel, MixtureRows
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.ppca_model import PpcaModel
from dmfvi.models.pca.shard import make_shard
from dmfvi.models.pca.start import Units
from dmfvi.models.pca.statistics import Layout
from dmfvi.models.ratings.model import RatingModel
from dmfvi.models.ratings.shard import make_rating_shard
from dmfvi.models.ratings.start import agree_on_choice, agree_on_rating_units
from dmfvi.models.ratings.table import read_input, split_block
from dmfvi.models.sfm.geometry import row_centres
from dmfvi.models.sfm.model import AffineModel
from dmfvi.models.sfm.shard import AffineShard

# -- Bayesian PCA and PPCA --------------------------------------------------------------------

NOISE_LEVEL = 0.4


def factor_rows(seed: int, missing: float) -> np.ndarray:
    """Rows of rank two, sorted by the first factor: nodes see other regions of latent space."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(120, 2))
    loadings = np.random.default_rng(7).normal(size=(2, 6))
    data = z[np.argsort(z[:, 0])] @ loadings + NOISE_LEVEL * rng.normal(size=(120, 6))
    data -= data.mean(0)
    data[rng.random(data.shape) < missing] = np.nan
    return data


def pca_model(missing: float, covariance: str = "full", noise: str = "shared") -> BayesianPcaModel:
    each = noise == "feature"
    layout = Layout(6, 3, missing == 0 and not each, each)
    return BayesianPcaModel(layout, 2, covariance, noise)  # type: ignore[arg-type]


def ppca_model() -> PpcaModel:
    return PpcaModel(6, 2, 3, Units(np.zeros(6)))


def pca_shard(rows: np.ndarray) -> Any:
    return make_shard(rows, with_mean=True)


def noise_draws(fit: Inference, n: int) -> np.ndarray:
    """Draws of the noise deviation, as a row."""
    p = fit.posterior
    shape = (n, np.size(p.noise_shape))
    return np.random.default_rng(0).gamma(p.noise_shape, 1.0 / p.noise_rate, shape) ** -0.5


def principal_subspace(draw: Any) -> None:
    """With a vague prior: the leading eigenvectors of the covariance, as scikit-learn finds them."""
    data = factor_rows(0, 0.0)
    model = ppca_model() if isinstance(draw.model, PpcaModel) else pca_model(0.0)
    found = infer(model, [pca_shard(data)])
    theirs = PCA(2).fit(data)
    ours = np.linalg.qr(found.posterior.loadings)[0]
    assert np.linalg.svd(theirs.components_ @ ours)[1].min() > 0.9999
    assert np.isclose(found.posterior.noise_variance, theirs.noise_variance_, rtol=0.05)


def factor_analysis(draw: Any) -> None:
    """With a vague prior and many rows: the loadings and the noise of maximum likelihood, as scikit-learn finds them."""
    scales = np.array([1.0, 30.0, 0.2, 1.0, 5.0, 1e-3])
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.2, 0.8, 6)
    data = rng.normal(size=(4000, 2)) @ rng.normal(size=(2, 6)) + noise * rng.normal(size=(4000, 6))
    found = BayesianPCA(2, noise="feature", tol=1e-9, random_state=0).fit(data * scales)
    theirs = FactorAnalysis(2, tol=1e-8, max_iter=5000).fit(data)
    ours = found.get_covariance() / np.outer(scales, scales)
    assert np.abs(ours - theirs.get_covariance()).max() < 0.01 * np.abs(ours).max()
    np.testing.assert_allclose(found.noise_variance_ / scales**2, theirs.noise_variance_, rtol=0.02)


def pca_bound_nearby(model: Any, shard: Any, fit: Inference) -> tuple[float, Callable[..., float]]:
    """The bound at the posterior, and at random steps away from it in every block."""
    belief = fit.beliefs[0]

    def bound(moved: Any) -> float:
        whole = replace(moved, global_bound=model._global_bound(moved))
        return float(model.statistics(shard, whole)[-1]) + whole.global_bound

    return bound(belief), lambda rng: bound(moved_belief(belief, rng))


def moved_belief(c: Any, rng: np.random.Generator) -> Any:
    """A PCA belief a small step away: means by a part of their deviations, the noise by some percent."""
    spread = np.sqrt(np.diagonal(c.covariance, axis1=-2, axis2=-1))
    noise, factors = c.noise.parameters(), 1 + 0.02 * rng.normal(size=(2, *c.noise.batch_shape))
    return replace(
        c,
        mean=c.mean + 0.1 * spread * rng.normal(size=c.mean.shape),
        noise=Gamma.from_parameters(noise["shape"] * factors[0], noise["rate"] * factors[1]),
    )


# -- mixture of PCA ---------------------------------------------------------------------------

CENTRES = np.array([[4.0, 0, 0, 0, 0, 0], [0, 4.0, 0, 0, 0, 0], [0, 0, 4.0, 0, 0, 0]])
NOISE = np.array([0.25, 0.4, 0.6])
SCALE = 2.0


def cluster_rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows sorted by cluster with some entries missing; the truth: share and noise of each cluster."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(3, 8.0))
    label = np.sort(rng.choice(3, size=180, p=shares))
    loadings = rng.normal(size=(3, 6))
    data = CENTRES[label] + rng.normal(size=(180, 1)) * loadings[label]
    data += NOISE[label, None] * rng.normal(size=data.shape)
    data[rng.random(data.shape) < 0.03] = np.nan
    return data / SCALE, np.column_stack([shares, NOISE])


def cluster_model() -> MixtureOfPcaModel:
    units = Units(np.zeros(6), SCALE, complete=False)
    component = BayesianPcaModel(Layout(6, 2, False), 1, data_units=units)
    return MixtureOfPcaModel(3, component, 1.0, 2.0 * np.eye(6))


def cluster_draws(fit: Inference, n: int) -> np.ndarray:
    """Shares and noise deviations of the clusters, n draws from q."""
    rng = np.random.default_rng(0)
    shares = fit.posterior.weights.sample(rng, n)
    clusters = fit.posterior.clusters
    precision = [rng.gamma(c.noise_shape, 1.0 / c.noise_rate, size=n) for c in clusters]
    return np.stack([shares, np.stack(precision, axis=1) ** -0.5], axis=-1)


def one_cluster_is_bayesian_pca(_: Any) -> None:
    """Posterior, bound and densities, for the same prior in the data's units."""
    data = SCALE * cluster_rows(3)[0][:60]
    prior = PcaPrior(GammaPrior(1e-3, 1e-3), GammaPrior(1.0, 1.0), GammaPrior(1.0, 1.0))
    ours = MixtureOfPCA(1, 2, prior=prior, tol=1e-9, random_state=0).fit(data)
    theirs = BayesianPCA(2, prior=prior, tol=1e-9, random_state=0).fit(data)
    assert ours.posterior_.clusters[0].distance(theirs.posterior_) < 1e-8
    assert np.isclose(ours.lower_bound_, theirs.lower_bound_, rtol=1e-9)
    np.testing.assert_allclose(ours.score_samples(data), theirs.score_samples(data), rtol=1e-5)


def cluster_bound_nearby(
    model: MixtureOfPcaModel, shard: MixtureRows, fit: Inference
) -> tuple[float, Callable[..., float]]:
    """The bound at the posterior, and at random steps away from it in every block."""
    belief = fit.beliefs[0]

    def bound(weights: Dirichlet, components: list[Any]) -> float:
        whole = [replace(c, global_bound=model.component._global_bound(c)) for c in components]
        moved = model.belief(weights, tuple(whole))
        return float(model.statistics(shard, moved)[-1]) - moved.divergence

    def nearby(rng: np.random.Generator) -> float:
        concentration = belief.weights.parameters()["concentration"]
        weights = Dirichlet.from_parameters(concentration * (1 + 0.02 * rng.normal(size=3)))
        return bound(weights, [moved_belief(c, rng) for c in belief.components])

    return bound(belief.weights, list(belief.components)), nearby


# -- structure from motion --------------------------------------------------------------------


def camera_rows(seed: int) -> np.ndarray:
    """Centred tracks of a turning cube with hidden points, in order of time; two rows a frame."""
    rows = np.concatenate(make_cube(noise=0.01, seed=seed).hidden)
    centred = rows - row_centres(rows)
    return centred / np.sqrt(np.nanmean(centred**2))


def structure_model() -> AffineModel:
    return AffineModel(8)


def structure_is_the_cube(draw: Any) -> None:
    """Up to an affine map the points are the cube's corners."""
    found = infer(draw.model, [draw.pooled]).posterior.mean
    corners = make_cube(seed=0).structure
    wide = np.column_stack([found, np.ones(8)])
    mapped = wide @ np.linalg.lstsq(wide, corners, rcond=None)[0]
    assert np.abs(mapped - corners).max() < 0.02 * np.abs(corners).max()


def camera_shard(rows: np.ndarray) -> AffineShard:
    return AffineShard.of(rows)


# -- ratings ----------------------------------------------------------------------------------


def draw_ratings(seed: int, n_nodes: int) -> tuple[RatingModel, list[Any], Any]:
    """A model with agreed units, one shard per node, and all ratings in one shard."""
    made = make_ratings(6_000, n_users=150, n_items=60, seed=seed).ratings
    whole = read_input(made, None).blocks[0]
    blocks = split_block(whole, n_nodes) if n_nodes > 1 else [whole]
    session = Session.open(None)
    n_items = made.shape[1]
    pair = (whole.rows, whole.rows.transposed(n_items))
    units = session.agree(lambda b: agree_on_rating_units(b, n_items), [pair])[0]
    choice = session.agree(lambda b: agree_on_choice(b, units, 4, 0), [pair])[0]
    model = RatingModel(2, units, choice)

    def shard(block: Any) -> Any:
        rows = block.rows
        return make_rating_shard((rows, rows.transposed(n_items)), units, choice)

    return model, [shard(block) for block in blocks], shard(whole)


def beats_the_mean(draw: Any) -> None:
    """The factors explain more of the ratings than the biases of users and items do."""
    model, pooled = draw.model, draw.pooled
    start = model.start(pooled, np.random.default_rng(0))
    first = float(model.statistics(pooled, start)[-1])
    found = Session.open(None).fit(model, [pooled], tol=None, max_iter=15, random_state=0)
    assert float(model.statistics(pooled, found.beliefs[0])[-1]) > first
