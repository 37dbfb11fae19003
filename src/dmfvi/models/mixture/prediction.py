"""Predictive densities and imputations of Gaussian mixtures, parameters integrated out."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from dmfvi.families import NormalGamma, Product
from dmfvi.inference.starts import FeatureUnits
from dmfvi.linalg import FloatArray, inverse, log_det, symmetrize
from dmfvi.models.mixture.model import ComponentDensities


def log_predictive(q: Product, data: FloatArray) -> FloatArray:
    """log E[pi_k] + log E[N(x_o | mu_k, L_k)] of the observed part of each row, (n, K)."""
    alpha = q["weights"].parameters()["concentration"]
    out = np.tile(np.log(alpha / alpha.sum()), (len(data), 1))
    p = q["components"].parameters()
    if isinstance(q["components"], NormalGamma):
        dof = 2.0 * p["shape"]
        scale = p["rate"] / p["shape"] * (1.0 + 1.0 / p["precision"][..., 0, 0])
        for k in range(len(alpha)):
            z = (data - p["mean"][k, :, 0]) ** 2 / scale[k]
            logs = _log_student(z, dof[k], 1, np.log(scale[k]))
            out[:, k] += np.where(np.isfinite(data), logs, 0.0).sum(1)
        return out
    d = p["mean"].shape[1]
    dof = p["dof"] + 1.0 - d
    factor = (p["confidence"] + 1.0) / (p["confidence"] * dof)
    shape = symmetrize(inverse(p["scale"])) * factor[:, None, None]
    for pattern, rows in _patterns(data):
        o = np.flatnonzero(pattern)
        if not len(o):
            continue
        block = shape[:, o[:, None], o]
        for k in range(len(alpha)):
            gap = data[np.ix_(rows, o)] - p["mean"][k, o]
            z = np.einsum("ni,ni->n", gap, np.linalg.solve(block[k], gap.T).T)
            out[rows, k] += _log_student(z, dof[k], len(o), log_det(block[k]))
    return out


def impute_mixture(
    q: Product, units: FeatureUnits, data: FloatArray, responsibility: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Rows with missing entries replaced by predictive means, and their standard deviations."""
    x = units.apply(data)
    filled, variance = x.copy(), np.zeros_like(x)
    if isinstance(q["components"], NormalGamma):
        p = q["components"].parameters()
        spread = p["rate"] / np.maximum(p["shape"] - 1.0, 0.5 * p["shape"])
        spread = spread * (1.0 + 1.0 / p["precision"][..., 0, 0])
        location = p["mean"][..., 0]
        mean = responsibility @ location
        second = responsibility @ (spread + location**2)
        missing = np.isnan(x)
        filled = np.where(missing, mean, x)
        variance = np.where(missing, second - mean**2, 0.0)
    else:
        densities = ComponentDensities.of(q)
        for pattern, rows in _patterns(x):
            if pattern.all():
                continue
            _, c = densities.marginal(pattern)
            r = responsibility[rows]
            gap = x[np.ix_(rows, c.observed)][:, None, :] - densities.location[:, c.observed]
            mean = densities.location[:, c.missing] + np.einsum("kmo,nko->nkm", c.slope, gap)
            within = np.diagonal(c.spread, axis1=-2, axis2=-1)
            first = np.einsum("nk,nkm->nm", r, mean)
            filled[np.ix_(rows, c.missing)] = first
            second = np.einsum("nk,nkm->nm", r, mean**2 + within)
            variance[np.ix_(rows, c.missing)] = second - first**2
    filled = np.where(np.isnan(data), units.shift + units.scale * filled, data)
    return filled, units.scale * np.sqrt(np.maximum(variance, 0.0))


def _log_student(z: FloatArray, dof: FloatArray, size: int, log_scale: FloatArray) -> FloatArray:
    """Log density of a Student distribution at squared distance z."""
    return np.asarray(
        gammaln(0.5 * (dof + size))
        - gammaln(0.5 * dof)
        - 0.5 * size * np.log(np.pi * dof)
        - 0.5 * log_scale
        - 0.5 * (dof + size) * np.log1p(z / dof)
    )


def _patterns(data: FloatArray) -> list[tuple[np.ndarray, np.ndarray]]:
    """What is observed, and the rows of which that is observed."""
    patterns, which = np.unique(np.isfinite(data), axis=0, return_inverse=True)
    return [(p, np.flatnonzero(which.ravel() == i)) for i, p in enumerate(patterns)]
