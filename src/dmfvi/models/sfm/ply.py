"""Structure as a PLY file: one vertex a point, its covariance as further properties."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.storage.files import write_text

COVARIANCES = (("xx", 0, 0), ("xy", 0, 1), ("xz", 0, 2), ("yy", 1, 1), ("yz", 1, 2), ("zz", 2, 2))


def write_ply(path: str | Path, structure: FloatArray, covariance: FloatArray) -> Path:
    """ASCII PLY 1.0 with x y z, deviation (root mean variance, a scalar that viewers can colour by) and cov_xx ... cov_zz."""
    header = [
        "ply",
        "format ascii 1.0",
        "comment points with posterior covariance",
        f"element vertex {len(structure)}",
        *(f"property double {axis}" for axis in "xyz"),
        "property double deviation",
        *(f"property double cov_{name}" for name, _, _ in COVARIANCES),
        "end_header",
    ]
    spread = np.stack([covariance[:, i, j] for _, i, j in COVARIANCES], axis=1)
    deviation = np.sqrt(np.trace(covariance, axis1=1, axis2=2) / 3.0)
    rows = np.column_stack([structure, deviation, spread])
    lines = [" ".join(f"{value:.9g}" for value in row) for row in rows]
    return write_text(path, "\n".join([*header, *lines]) + "\n")
