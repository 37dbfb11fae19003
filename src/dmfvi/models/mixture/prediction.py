"""Predictive densities of Gaussian mixtures, parameters integrated out."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from dmfvi.families import NormalGamma, Product
from dmfvi.families.base import Family
from dmfvi.linalg import FloatArray, inverse, log_det, symmetrize


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
    shape, dof = predictive_shapes(q["components"])
    for pattern, rows in patterns_of(data):
        o = np.flatnonzero(pattern)
        if not len(o):
            continue
        block = shape[:, o[:, None], o]
        for k in range(len(alpha)):
            gap = data[np.ix_(rows, o)] - p["mean"][k, o]
            z = np.einsum("ni,ni->n", gap, np.linalg.solve(block[k], gap.T).T)
            out[rows, k] += _log_student(z, dof[k], len(o), log_det(block[k]))
    return out


def predictive_shapes(components: Family) -> tuple[FloatArray, FloatArray]:
    """Shape matrices (K, D, D) and degrees of freedom of the Student distributions that a NormalWishart predicts."""
    p = components.parameters()
    dof = p["dof"] + 1.0 - p["mean"].shape[1]
    factor = (p["confidence"] + 1.0) / (p["confidence"] * dof)
    return symmetrize(inverse(p["scale"])) * factor[:, None, None], dof


def _log_student(z: FloatArray, dof: FloatArray, size: int, log_scale: FloatArray) -> FloatArray:
    """Log density of a Student distribution at squared distance z."""
    return np.asarray(
        gammaln(0.5 * (dof + size))
        - gammaln(0.5 * dof)
        - 0.5 * size * np.log(np.pi * dof)
        - 0.5 * log_scale
        - 0.5 * (dof + size) * np.log1p(z / dof)
    )


def patterns_of(data: FloatArray) -> list[tuple[np.ndarray, np.ndarray]]:
    """What is observed, and the rows of which that is observed."""
    patterns, which = np.unique(np.isfinite(data), axis=0, return_inverse=True)
    return [(p, np.flatnonzero(which.ravel() == i)) for i, p in enumerate(patterns)]
