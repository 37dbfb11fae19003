"""Structure and cameras as users see them, in pixels.

An affine camera sees point s as x = m . s + t. Structure and cameras are known up to m -> T m, s -> T^-T (s - o),
t -> t + m . o; ``metric`` chooses T.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray, inverse
from dmfvi.models.sfm.model import Structure
from dmfvi.models.sfm.shard import DIMENSIONS, AffineShard, Points
from dmfvi.tags import stored_as


@stored_as("cameras")
class Cameras(NamedTuple):
    """Rows of affine cameras (m, t) with their uncertainty; NaN for a row that sees nothing."""

    mean: FloatArray  # (2F, 4)
    covariance: FloatArray  # (2F, 4, 4)


def row_centres(rows: FloatArray) -> FloatArray:
    """Mean of what each row (n, P) sees, (n, 1); zero where it sees nothing."""
    seen = np.isfinite(rows)
    total = np.where(seen, rows, 0.0).sum(1, keepdims=True)
    return np.asarray(total / np.maximum(seen.sum(1, keepdims=True), 1))


def resect(structure: Structure, rows: FloatArray) -> Cameras:
    """q(m, t) of each row given the structure."""
    centres = row_centres(rows)
    found = AffineShard.of(rows - centres).cameras(Points(*structure))
    sees = np.isfinite(rows).any(1)
    mean = np.full((len(rows), DIMENSIONS + 1), np.nan)
    covariance = np.full((len(rows), DIMENSIONS + 1, DIMENSIONS + 1), np.nan)
    mean[sees], covariance[sees] = found.mean, found.covariance
    mean[:, DIMENSIONS] += centres[:, 0]
    return Cameras(mean, covariance)


def turned_cameras(cameras: Cameras, matrix: FloatArray) -> Cameras:
    """The same images of points that have become matrix s: m -> matrix^-T m."""
    wide = np.eye(DIMENSIONS + 1)
    wide[:DIMENSIONS, :DIMENSIONS] = inverse(matrix).T
    return Cameras(cameras.mean @ wide.T, wide @ cameras.covariance @ wide.T)


def project(structure: Structure, cameras: Cameras) -> tuple[FloatArray, FloatArray]:
    """Predictive mean and variance (2F, P) of every image coordinate."""
    wide = np.column_stack([structure.mean, np.ones(len(structure.mean))])
    motion, spread = cameras.mean[:, :DIMENSIONS], cameras.covariance
    flat = structure.covariance.reshape(len(wide), -1)
    variance = np.einsum("pi,nij,pj->np", wide, spread, wide, optimize=True)
    outer = motion[:, :, None] * motion[:, None, :] + spread[:, :DIMENSIONS, :DIMENSIONS]
    variance += outer.reshape(len(motion), -1) @ flat.T
    return cameras.mean @ wide.T, variance + 1.0 / structure.noise_precision
