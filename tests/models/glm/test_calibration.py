"""Simulation-based calibration: parameters from the prior, data from the parameters, ranks in the posterior are uniform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, norm

from model_cases import CASES

DATA_SETS, BINS = 150, 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "/poisson", "/negative-binomial", "/ordinal"])
def test_ranks_of_the_truth_are_uniform(name: str) -> None:
    """Talts et al. (2018); P(truth) under the Gaussian posterior in place of ranks among draws."""
    case = CASES[f"GeneralizedLinear{name}"]
    ranks = []
    for seed in range(DATA_SETS):
        draw = case.draw(1000 + seed, 1)
        fit = case.fit(draw.model, [draw.pooled], random_state=seed, tol=1e-5)
        p = fit.posterior.parameters()
        deviation = np.sqrt(np.diag(np.atleast_2d(p["covariance"])))
        ranks.append(norm.cdf((np.ravel(draw.truth) - np.ravel(p["mean"])) / deviation))
    for values in np.transpose(ranks):
        counts = np.histogram(values, BINS, (0.0, 1.0))[0]
        expected = DATA_SETS / BINS
        assert np.sum((counts - expected) ** 2 / expected) < chi2.ppf(1 - 1e-4, BINS - 1), counts
