"""Seeded synthetic data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray


class LowRankData(NamedTuple):
    """Data from the model, with its truth."""

    data: FloatArray  # (n, D)
    loadings: FloatArray  # (D, M)
    location: FloatArray  # (D,)


def make_low_rank(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    noise: float = 0.3,
    seed: int = 0,
) -> LowRankData:
    """x = W z + mu + noise, all standard normal; ``noise`` is the noise's standard deviation.

    Parameters
    ----------
    n_samples, n_features, n_components : int
        Rows, columns and the dimension of z.
    noise : float
        Standard deviation of the noise.
    seed : int
        Of the random numbers.
    """
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((n_features, n_components))
    location = rng.standard_normal(n_features)
    latent = rng.standard_normal((n_samples, n_components))
    data = latent @ loadings.T + location
    data += noise * rng.standard_normal((n_samples, n_features))
    return LowRankData(data, loadings, location)


def make_gaussian(
    n_samples: int,
    n_features: int,
    *,
    location: float = 5.0,
    variance: float = 0.8,
    seed: int = 0,
) -> FloatArray:
    """Independent N(location, variance) entries: the paper's data for convergence, which have no subspace.

    Parameters
    ----------
    n_samples, n_features : int
        Rows and columns.
    location, variance : float
        Of every entry.
    seed : int
        Of the random numbers.
    """
    rng = np.random.default_rng(seed)
    return location + np.sqrt(variance) * rng.standard_normal((n_samples, n_features))
