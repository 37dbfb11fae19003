"""Affine structure and cameras from a factor posterior.

An affine camera sees point s as x = m . s + t. Of complete tracks each row's mean is its t, and rank 3 is left.
Of incomplete tracks the mean of what is seen is another point in every frame; what it leaves is of rank 4,
x - mean = [S 1] (m, t')', whatever is missing. So rows are centred on what is seen, four factors are fitted, and
the structure is what the loadings are apart from a constant: S = H L V, H = I - 11'/P, V the three directions of H L.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmfvi.families.base import FloatArray
from dmfvi.models.pca_posterior import PcaPosterior

DIMENSIONS = 3


class Structure(NamedTuple):
    """Points with their uncertainty, and the noise of an image coordinate."""

    mean: FloatArray  # (P, 3)
    covariance: FloatArray  # (P, 3, 3)
    noise_precision: float

    def transformed(self, matrix: FloatArray) -> Structure:
        """s -> matrix s."""
        return Structure(
            self.mean @ matrix.T, matrix @ self.covariance @ matrix.T, self.noise_precision
        )


class Cameras(NamedTuple):
    """Rows of affine cameras (m, t) with their uncertainty; NaN for a row that sees nothing."""

    mean: FloatArray  # (2F, 4)
    covariance: FloatArray  # (2F, 4, 4)

    def transformed(self, matrix: FloatArray) -> Cameras:
        """The same images of points that have become matrix s: m -> matrix^-T m."""
        extended = np.eye(DIMENSIONS + 1)
        extended[:DIMENSIONS, :DIMENSIONS] = np.linalg.inv(matrix).T
        return Cameras(self.mean @ extended.T, extended @ self.covariance @ extended.T)


def row_centres(rows: FloatArray) -> FloatArray:
    """Mean of what each row (n, P) sees, (n, 1); zero where it sees nothing."""
    seen = np.isfinite(rows)
    total = np.where(seen, rows, 0.0).sum(1, keepdims=True)
    return np.asarray(total / np.maximum(seen.sum(1, keepdims=True), 1))


def structure_directions(posterior: PcaPosterior) -> FloatArray:
    """V (K, 3): the directions in which the loadings are not constant over the points."""
    centred = posterior.loadings - posterior.loadings.mean(0)
    return np.linalg.svd(centred, full_matrices=False)[2][:DIMENSIONS].T


def structure_of(posterior: PcaPosterior, directions: FloatArray) -> Structure:
    """S = H L V with the covariance V' C_p V of each point; the centroid counts as known.

    Three factors of centred rows leave P - 4 directions of noise, which the factor model spreads over P - 3.
    """
    loadings, n_points = posterior.loadings, len(posterior.loadings)
    covariance = posterior.covariance[:, : posterior.n_latent, : posterior.n_latent]
    centred = posterior.n_latent == DIMENSIONS
    lost = (n_points - DIMENSIONS) / max(n_points - DIMENSIONS - 1, 1) if centred else 1.0
    return Structure(
        (loadings - loadings.mean(0)) @ directions,
        lost * directions.T @ covariance @ directions,
        posterior.noise_precision / lost,
    )


def resect(structure: Structure, rows: FloatArray) -> Cameras:
    """q(m, t) of each row given the structure, m ~ N(0, I), t flat.

    Precision diag(1, 1, 1, 0) + tau sum E[s~ s~'], linear part tau sum x E[s~], s~ = (s, 1), over the points seen.
    """
    extended = np.column_stack([structure.mean, np.ones(len(structure.mean))])
    second = extended[:, :, None] * extended[:, None, :]
    second[:, :DIMENSIONS, :DIMENSIONS] += structure.covariance
    seen = np.isfinite(rows)
    tau = structure.noise_precision
    centres = row_centres(rows)
    values = np.where(seen, rows - centres, 0.0)
    precision = tau * (seen.astype(np.float64) @ second.reshape(len(extended), -1)).reshape(
        -1, 4, 4
    )
    precision[:, :DIMENSIONS, :DIMENSIONS] += np.eye(DIMENSIONS)
    blind = ~seen.any(1)
    precision[blind] = np.eye(4)
    covariance = np.linalg.inv(precision)
    mean = np.einsum("nij,nj->ni", covariance, tau * values @ extended)
    mean[:, DIMENSIONS] += centres[:, 0]
    mean[blind], covariance[blind] = np.nan, np.nan
    return Cameras(mean, covariance)


def project(structure: Structure, cameras: Cameras) -> tuple[FloatArray, FloatArray]:
    """Predictive mean and variance (2F, P) of every image coordinate."""
    extended = np.column_stack([structure.mean, np.ones(len(structure.mean))])
    motion, spread = cameras.mean[:, :DIMENSIONS], cameras.covariance
    flat = structure.covariance.reshape(len(extended), -1)
    variance = np.einsum("pi,nij,pj->np", extended, spread, extended)
    outer = motion[:, :, None] * motion[:, None, :] + spread[:, :DIMENSIONS, :DIMENSIONS]
    variance += outer.reshape(len(motion), -1) @ flat.T
    return cameras.mean @ extended.T, variance + 1.0 / structure.noise_precision
