"""Seeded synthetic data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmfvi.families.base import FloatArray


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
    """x = W z + mu + noise, all standard normal; ``noise`` is the noise's standard deviation."""
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((n_features, n_components))
    location = rng.standard_normal(n_features)
    latent = rng.standard_normal((n_samples, n_components))
    data = latent @ loadings.T + location
    data += noise * rng.standard_normal((n_samples, n_features))
    return LowRankData(data, loadings, location)


def mask_at_random(data: FloatArray, rate: float, *, seed: int = 0) -> FloatArray:
    """A copy with each entry missing (NaN) independently with probability ``rate``."""
    if not 0 <= rate < 1:
        raise ValueError(f"rate must lie in [0, 1), received {rate!r}")
    rng = np.random.default_rng(seed)
    return np.where(rng.random(data.shape) < rate, np.nan, data)
