"""Starts of mixtures: every second one of n_init has memberships that have nothing to do with clusters."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi import BayesianGaussianMixture, Network
from dmfvi.models.mixture.model import mixed_memberships


def overlapping() -> np.ndarray:
    """Two components two deviations apart, of which the best fit takes one for nearly all rows."""
    rng = np.random.default_rng([60, 1, 6])
    rows = rng.normal(size=(60, 1))
    rows[:, 0] += 2.0 * (rng.random(60) < rng.uniform(0.35, 0.65))
    return rows


def test_memberships_look_random_and_belong_to_the_row() -> None:
    rows = np.random.default_rng(0).normal(size=(400, 2))
    made = mixed_memberships(rows, 3, np.random.default_rng(1))
    np.testing.assert_allclose(made.sum(1), 1.0)
    np.testing.assert_allclose(made.mean(0), 1 / 3, atol=0.06)
    assert np.abs(np.corrcoef(made[:, 0], rows.T)[0, 1:]).max() < 0.15
    again = mixed_memberships(rows[::-1] * (1.0 + 1e-15), 3, np.random.default_rng(1))
    np.testing.assert_allclose(again[::-1], made, atol=1e-8)


def test_they_find_optima_that_clusters_do_not() -> None:
    """With one start the bound of these rows is 2.3 below the best of many random starts."""
    rows = overlapping()
    settings = {"tol": 1e-6, "random_state": 0, "max_iter": 3000}
    one, several = (BayesianGaussianMixture(2, n_init=n, **settings).fit(rows) for n in (1, 4))
    assert several.lower_bound_ > one.lower_bound_ + 2.0
    assert several.lower_bound_ == pytest.approx(-101.77, abs=0.01)
    nodes = BayesianGaussianMixture(2, n_init=4, network=Network.ring(3), **settings).fit(rows)
    assert nodes.lower_bound_ == pytest.approx(several.lower_bound_, abs=1e-6)
