"""The bound of the affine model has all its constants."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi.models.sfm.shard import AffineShard, Points


def test_the_local_bound_is_the_evidence_when_the_structure_is_certain() -> None:
    """log of the integral of p(x | m, t) p(m) over m and t, t flat, by the Gaussian formula for each row."""
    rng = np.random.default_rng(0)
    structure, tau = rng.standard_normal((7, 3)), 2.5
    rows = rng.standard_normal((9, 7))
    rows[rng.random(rows.shape) < 0.2] = np.nan
    moments = AffineShard.of(rows).moments(Points(structure, np.zeros((7, 3, 3)), tau))
    found = 0.5 * moments.n_observed * np.log(tau / (2 * np.pi))
    found += moments.latent_bound - 0.5 * tau * moments.residual
    expected = 0.0
    for row in rows:
        seen = np.isfinite(row)
        wide = np.column_stack([structure[seen], np.ones(seen.sum())])
        precision = tau * wide.T @ wide + np.diag([1.0, 1.0, 1.0, 0.0])
        linear = tau * wide.T @ row[seen]
        expected += 0.5 * seen.sum() * np.log(tau / (2 * np.pi)) - 0.5 * tau * row[seen] @ row[seen]
        expected += 0.5 * linear @ np.linalg.solve(precision, linear)
        expected += 0.5 * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    assert found == pytest.approx(expected, rel=1e-10)
