"""Predictions of missing entries whose uncertainty of the parameters is that of linear response.

With f = E[x_nd | what is observed of row n, W, mu, tau] a quantity of the parameters (law of total variance):

    Var(x_nd) = E[1/tau] + w_d' C_n w_d + Var(f)      C_n^-1 = I + tau sum_{o observed} w_o w_o'
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.models.pca.posterior import PcaPosterior

#: missing entries at most: each is a quantity of its own
MOST_ENTRIES = 3000


@dataclass(frozen=True)
class ResponsePredictions:
    """Predictive distribution of the missing entries of given rows."""

    posterior: PcaPosterior  # of the fit
    data: FloatArray  # (n, D), NaN where missing
    covariance: FloatArray  # of f over the missing entries

    @classmethod
    def of(cls, fitted: Any, data: FloatArray) -> ResponsePredictions:
        """By linear response of a fitted estimator."""
        missing = np.isnan(data)
        if missing.sum() > MOST_ENTRIES:
            raise ValueError(
                f"linear response predicts at most {MOST_ENTRIES} missing entries at once, received {missing.sum()}: "
                "pass fewer rows, or use uncertainty='mean-field', which holds for large samples"
            )
        if not missing.any():
            return cls(fitted.posterior_, data, np.zeros((0, 0)))
        found = fitted.uncertainty(lambda seen: _point(seen.posterior_).predict(data)[0][missing])
        return cls(fitted.posterior_, data, found.covariance)

    def predict(self) -> tuple[FloatArray, FloatArray]:
        """Predictive means and variances (n, D); those of observed entries are of no use."""
        mean, _ = self.posterior.predict(self.data)
        _, variance = _point(self.posterior).predict(self.data)
        missing = np.isnan(self.data)
        variance[missing] += np.maximum(np.diagonal(self.covariance), 0.0)
        return mean, variance

    def draws(self, n_draws: int, rng: np.random.Generator) -> FloatArray:
        """Rows (n_draws, n, D) with these means and variances."""
        made = _point(self.posterior).draws(self.data, n_draws, rng)
        shift = self.posterior.predict(self.data)[0] - _point(self.posterior).predict(self.data)[0]
        missing = np.isnan(self.data)
        zero = np.zeros(len(self.covariance))
        moves = rng.multivariate_normal(zero, self.covariance, size=n_draws, method="eigh")
        made[:, missing] += moves
        return made + shift


def latent_deviations(fitted: Any, data: FloatArray) -> FloatArray:
    """Deviations (n, M) of latent coordinates, what is not known of the parameters included, by linear response.

    A rotation of the components is not counted: those of other parameters are turned towards the fitted ones first, R = UV' of the singular
    vectors of W' tau W_fitted (orthogonal Procrustes; Schoenemann 1966).
    """
    posterior: PcaPosterior = fitted.posterior_
    numbers = len(data) * posterior.n_latent
    if numbers > MOST_ENTRIES:
        raise ValueError(
            f"linear response has at most {MOST_ENTRIES} latent coordinates at once, received {numbers}: pass fewer rows, or use "
            "uncertainty='mean-field', which holds for large samples"
        )
    weighted = np.reshape(posterior.noise_precision, (-1, 1)) * posterior.loadings

    def turned(seen: Any) -> FloatArray:
        left, _, right = np.linalg.svd(seen.posterior_.loadings.T @ weighted)
        return _point(seen.posterior_).latent(data)[0] @ (left @ right)

    spread = np.diagonal(_point(posterior).latent(data)[1], axis1=-2, axis2=-1)
    if not numbers:
        return np.sqrt(spread)
    found = fitted.uncertainty(turned)
    return np.asarray(np.sqrt(spread + found.std**2))


def _point(posterior: PcaPosterior) -> PcaPosterior:
    """The parameters as if they were known, but for the noise."""
    return replace(posterior, covariance=np.zeros_like(posterior.covariance))
