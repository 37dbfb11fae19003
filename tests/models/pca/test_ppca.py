"""The maximum-likelihood baseline, pooled and distributed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA

from dmfvi import PPCA, Network
from dmfvi.consensus import make
from dmfvi.datasets import make_low_rank, mask_at_random

DATA = make_low_rank(250, 12, 3, noise=0.4, seed=2).data


def test_pooled_em_reaches_the_closed_form() -> None:
    """W W' and the noise of Tipping & Bishop: eigenvalues of the covariance, the rest averaged."""
    model = PPCA(3, tol=1e-7, random_state=0).fit(DATA)
    covariance = np.cov(DATA.T, bias=True)
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    noise = values[3:].mean()
    expected = vectors[:, :3] * (values[:3] - noise) @ vectors[:, :3].T
    np.testing.assert_allclose(model.components_.T @ model.components_, expected, atol=1e-4)
    assert 1 / model.noise_precision_ == pytest.approx(noise, rel=1e-4)
    np.testing.assert_allclose(model.mean_, DATA.mean(0), atol=1e-4)
    assert model.score(DATA) == pytest.approx(PCA(3).fit(DATA).score(DATA), rel=1e-3)


@pytest.mark.parametrize(
    ("network", "missing"),
    [
        (Network.ring(5), 0.0),
        (Network.star(4), 0.0),
        (Network.complete(4), 0.2),
        pytest.param(Network.ring(5), 0.2, marks=pytest.mark.slow),
        pytest.param(Network.star(4), 0.2, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_every_node_reaches_the_centralized_fixed_point(network: Network, missing: float) -> None:
    data = mask_at_random(DATA, missing)
    pooled = PPCA(3, tol=1e-7, random_state=0).fit(data)
    model = PPCA(3, network=network, tol=1e-6, random_state=0, max_iter=20_000).fit(data)
    assert model.converged_
    for node in model.node_posteriors_:
        angle = np.degrees(subspace_angles(node.loadings, pooled.components_.T)[0])
        assert angle < 0.05
        assert node.noise_precision == pytest.approx(pooled.noise_precision_, rel=2e-3)


def test_imputes_missing_entries() -> None:
    holes = mask_at_random(DATA, 0.3)
    filled, std = PPCA(3, random_state=0).fit(holes).impute(holes, return_std=True)
    gone = np.isnan(holes)
    assert np.sqrt(np.mean((filled - DATA)[gone] ** 2)) < 0.7
    assert (std[gone] > 0.3).all()


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="penalty must be 'auto' or positive"):
        make("parameter-admm", Network.ring(3), penalty=0.0)
    with pytest.raises(ValueError, match="n_components=13"):
        PPCA(13).fit(DATA)
    with pytest.raises(ValueError, match="no natural parameters"):
        PPCA(2, random_state=0).fit(DATA).posterior_.natural()
