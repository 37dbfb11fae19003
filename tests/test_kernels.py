"""Every compiled kernel equals its plain twin."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi.families.base import pack_symmetric
from dmfvi.kernels.latent import latent_posteriors_compiled, latent_posteriors_plain


@pytest.mark.parametrize("m", [1, 2, 5, 12])
def test_latent_posteriors(m: int, rng: np.random.Generator) -> None:
    root = rng.normal(size=(50, m, m + 1))
    second = pack_symmetric(root @ np.swapaxes(root, 1, 2))
    score = rng.normal(size=(50, m))
    plain = latent_posteriors_plain(second, score, 1.3)
    compiled = latent_posteriors_compiled(second, score, 1.3)
    for a, b in zip(plain, compiled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
