"""Bayesian logistic regression, conditionally conjugate by augmentation.

    y_nk ~ Bernoulli(sigma(x_n . w_k)),  w_k ~ N(0, P^-1)

With Polya-Gamma variables o_n (Polson, Scott & Windle 2013), q(o_n) = PG(1, c_n), c_n^2 = x' E[w w'] x, and
E[o_n] = tanh(c_n/2) / 2c_n; that is the bound of Jaakkola & Jordan (2000), so both have the same posterior:

    w precision += sum E[o_n] x x'     linear += sum (y - 1/2) x
    bound_n = (y - 1/2) x.m - c_n/2 + log sigma(c_n)      (the quadratic terms cancel at this c_n)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dmfvi.families import MultivariateNormal
from dmfvi.inference.model import ConjugateModel, Statistics
from dmfvi.linalg import FloatArray
from dmfvi.models.regression.linear import RegressionShard

#: nodes of the Gauss-Hermite rule for predictive probabilities
QUADRATURE = 40


@dataclass(frozen=True)
class LogisticRegression(ConjugateModel):
    """One coefficient vector per class against the rest; targets (n, K) hold zeros and ones."""

    prior_precision: FloatArray  # (p,)
    n_outputs: int = 1

    @property
    def prior(self) -> MultivariateNormal:
        p = len(self.prior_precision)
        precision = np.tile(np.diag(self.prior_precision), (self.n_outputs, 1, 1))
        return MultivariateNormal(np.zeros((self.n_outputs, p)), -0.5 * precision)

    def local_step(self, shard: RegressionShard, q: MultivariateNormal) -> Statistics:
        x, half = shard.design, shard.target - 0.5
        location, second = q.mean()
        linear, precision = half.T @ x, np.empty_like(second)
        bound = float(np.sum(linear * location))
        for k in range(self.n_outputs):
            c = np.sqrt(np.einsum("ni,ni->n", x @ second[k], x))
            precision[k] = (x * half_tanh_ratio(c)[:, None]).T @ x
            bound -= float(np.sum(0.5 * c + np.logaddexp(0.0, -c)))
        return Statistics(MultivariateNormal(linear, -0.5 * precision), bound)


def half_tanh_ratio(c: FloatArray) -> FloatArray:
    """E[o] of PG(1, c): tanh(c/2) / 2c, 1/4 at zero."""
    safe = np.where(c > 1e-6, c, 1.0)
    return np.where(c > 1e-6, np.tanh(0.5 * safe) / (2.0 * safe), 0.25)


def predictive_probability(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """E[sigma(a)] for a ~ N(mean, variance), by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE)
    out = np.zeros_like(mean)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        out += weight * expit(mean + node * np.sqrt(variance))
    return out
