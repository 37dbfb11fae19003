"""The paper's protocol for tracks: centred frames, five cameras on a ring, rank 3, angle of the worst node.

Rows of the 2F x P matrix are samples, x and y of a frame stay together, contiguous frames go to each camera.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmfvi.datasets.masks import mask_at_random, mask_by_depth
from dmfvi.experiments.systems import SYSTEMS
from dmfvi.linalg import FloatArray
from dmfvi.models.sfm.estimator import StructureFromMotion
from dmfvi.models.sfm.geometry import row_centres
from dmfvi.network import Network
from dmfvi.readers.tracks import read_tracks

N_CAMERAS = 5
RANK = 3


def cameras_on_a_ring() -> Network:
    """The network of all experiments with tracks."""
    return Network.ring(N_CAMERAS)


def by_camera(rows: FloatArray) -> list[FloatArray]:
    """Contiguous frames, evenly."""
    sizes = [2 * len(part) for part in np.array_split(np.arange(len(rows) // 2), N_CAMERAS)]
    return np.split(rows, np.cumsum(sizes)[:-1])


def svd_subspace(complete: FloatArray) -> FloatArray:
    """The three-dimensional SVD subspace (P, 3) of the complete, centred tracks."""
    centred = complete - complete.mean(1, keepdims=True)
    return np.linalg.svd(centred, full_matrices=False)[2][:RANK].T


def centred(complete: FloatArray, incomplete: FloatArray, centre: str) -> FloatArray:
    """Incomplete tracks less each frame's centroid: of all points ("known"), or of those seen ("seen")."""
    middle = complete.mean(1, keepdims=True) if centre == "known" else row_centres(incomplete)
    return np.asarray(incomplete - middle)


def mask_recorded(complete: FloatArray, kind: str, rate: float, seed: int) -> FloatArray:
    """Recorded tracks with entries missing at random ("MAR") or by depth ("MNAR")."""
    if kind == "complete":
        return complete
    if kind == "MAR":
        return mask_at_random(complete, rate, seed=seed)
    return mask_by_depth(complete, depths(complete), rate, seed=seed)


def depths(complete: FloatArray) -> FloatArray:
    """Depth (F, P) of each point in each frame: along the view, from the pooled complete structure.

    The structure is metric where that is possible, else affine; the sign of depth is not known from
    orthographic views and either serves as occlusion.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = StructureFromMotion(random_state=0).fit(complete)
    i, j = model.cameras_[:, 0, :3], model.cameras_[:, 1, :3]
    view = np.cross(i, j)
    view /= np.linalg.norm(view, axis=1, keepdims=True)
    return np.asarray(view @ model.structure_.T)


def tracks_case(
    path: str, kind: str, rate: float, centre: str, systems: Sequence[str], seed: int
) -> dict[str, Any]:
    """Angles of all systems on one recorded object with one mask."""
    complete = read_tracks(path).data
    incomplete = mask_recorded(complete, kind, rate, seed)
    reference = svd_subspace(complete)
    return angles(complete, incomplete, reference, centre, systems, seed)


def angles(
    complete: FloatArray,
    incomplete: FloatArray,
    reference: FloatArray,
    centre: str,
    systems: Sequence[str],
    seed: int,
) -> dict[str, Any]:
    """Angle, rounds and convergence of each system; the same data and start for all."""
    found: dict[str, Any] = {"missing": float(np.isnan(incomplete).mean())}
    network = cameras_on_a_ring()
    for name in systems:
        rows = incomplete if name == "D-BPCA affine" else centred(complete, incomplete, centre)
        fitted = SYSTEMS[name](by_camera(rows), RANK, network, seed)
        found[name] = fitted.angle(reference)
        found[f"{name} rounds"] = fitted.rounds
        found[f"{name} converged"] = float(fitted.converged)
    return found


def data_files(data: Path | None, folder: str, pattern: str) -> list[Path]:
    """Files of a data set in ``data/folder`` or in ``data`` itself."""
    if data is None:
        raise ValueError(
            f"this experiment reads {folder}/{pattern}: give their directory with --data "
            "or in $DMFVI_DATA"
        )
    for root in (data / folder, data):
        files = sorted(root.glob(pattern))
        if files:
            return files
    raise FileNotFoundError(f"no {pattern} in {data / folder} or {data}: check --data")
