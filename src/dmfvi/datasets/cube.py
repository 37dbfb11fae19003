"""A rotating unit cube seen by several cameras, with its own occlusion. Seeded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray

#: elevations of the cameras alternate so that every vertex is seen by some camera
ELEVATION_DEGREES = 25.0
#: cameras stand side by side on an arc of this width
ARC_DEGREES = 120.0


class CubeTracks(NamedTuple):
    """What each camera sees of the cube, and the truth."""

    cameras: list[FloatArray]  # per camera (2 frames, 8), noisy, complete
    hidden: list[FloatArray]  # the same with NaN where the cube itself hides the vertex
    structure: FloatArray  # (8, 3), the vertices, centred

    def first(self, frames: int, occluded: bool = False) -> list[FloatArray]:
        """The first frames of every camera."""
        return [rows[: 2 * frames] for rows in (self.hidden if occluded else self.cameras)]


def make_cube(
    *,
    n_cameras: int = 5,
    n_frames: int = 50,
    step_degrees: float = 3.0,
    noise: float = 0.01,
    seed: int = 0,
) -> CubeTracks:
    """A unit cube turns clockwise by ``step_degrees`` a frame before orthographic cameras that face it.

    ``noise`` is the standard deviation of each image coordinate as a part of the cube's edge. The cameras'
    directions and the cube's first pose are jittered by the seed, so that no view is a special one.

    Parameters
    ----------
    n_cameras, n_frames : int
        Cameras, and frames of each.
    step_degrees : float
        Turn from one frame to the next.
    noise : float
        Standard deviation of image coordinates, as a part of the cube's edge.
    seed : int
        Of the random numbers.
    """
    if n_cameras < 1 or n_frames < 1:
        raise ValueError(
            f"n_cameras and n_frames must be at least 1, received {n_cameras} and {n_frames}"
        )
    if noise < 0:
        raise ValueError(f"noise must not be negative, received {noise!r}")
    rng = np.random.default_rng(seed)
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]) - 0.5
    pose = _about_z(rng.uniform(0, 2 * np.pi)) @ _about_x(np.radians(rng.uniform(-10, 10)))
    turns = [_about_z(-np.radians(step_degrees) * f) @ pose for f in range(n_frames)]
    azimuths = np.radians(
        np.linspace(-0.5, 0.5, n_cameras) * ARC_DEGREES + rng.uniform(-5, 5, n_cameras)
    )
    elevations = np.radians(ELEVATION_DEGREES) * (-1.0) ** np.arange(n_cameras)
    elevations += np.radians(rng.uniform(-5, 5, n_cameras))
    cameras, hidden = [], []
    for azimuth, elevation in zip(azimuths, elevations, strict=True):
        view = _view(azimuth, elevation)
        rows = np.concatenate([(view[:2] @ turn @ corners.T) for turn in turns])
        rows = rows + noise * rng.standard_normal(rows.shape)
        unseen = np.stack([hidden_vertices(corners, (view @ turn)[2]) for turn in turns])
        cameras.append(rows)
        hidden.append(np.where(np.repeat(unseen, 2, axis=0), np.nan, rows))
    return CubeTracks(cameras, hidden, corners)


def hidden_vertices(corners: FloatArray, towards: FloatArray) -> FloatArray:
    """Which vertices of the cube its own faces hide from a camera in direction ``towards`` (cube's axes).

    A vertex of a convex body is seen if and only if one of the faces it belongs to faces the camera.
    """
    facing = np.sign(corners) * towards > 0  # the three faces of each vertex, outward normals +-e_k
    return np.asarray(~facing.any(axis=1))


def _about_z(angle: float) -> FloatArray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def _about_x(angle: float) -> FloatArray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def _view(azimuth: float, elevation: float) -> FloatArray:
    """Rows: image x, image y, and the direction from the cube to the camera."""
    towards = np.array(
        [
            np.cos(elevation) * np.cos(azimuth),
            np.cos(elevation) * np.sin(azimuth),
            np.sin(elevation),
        ]
    )
    across = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
    return np.stack([across, np.cross(towards, across), towards])
