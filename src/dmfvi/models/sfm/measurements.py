"""Tracks as users have them, checked and split by camera."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray
from dmfvi.models.sfm.tracks import Tracks
from dmfvi.network import Network
from dmfvi.validation import unmasked

IntArray = NDArray[np.integer[Any]]

MIN_POINTS = 4
MIN_FRAMES = 2


def as_matrix(tracks: Any, name: str = "tracks") -> FloatArray:
    """(F, 2, P) or 2F x P as a float matrix 2F x P; NaN where a coordinate is not known."""
    if isinstance(tracks, Tracks):
        tracks = tracks.data
    data = np.asarray(unmasked(tracks), dtype=np.float64)
    if data.ndim == 3:
        if data.shape[1] != 2:
            raise ValueError(
                f"{name} with three axes must be (frames, 2, points), received shape {data.shape}"
            )
        data = data.reshape(-1, data.shape[2])
    if data.ndim != 2 or data.size == 0:
        raise ValueError(
            f"{name} must be (frames, 2, points) or 2F x P, received shape {data.shape}"
        )
    if len(data) % 2:
        raise ValueError(
            f"{name} has {len(data)} rows, an odd number: rows are x and y of each frame in turn"
        )
    if np.isinf(data).any():
        frame, point = np.argwhere(np.isinf(data))[0]
        raise ValueError(
            f"{name} is infinite at point {point} in frame {frame // 2}: "
            "use NaN where a point is not seen"
        )
    return data


def split_by_camera(
    tracks: Any, cameras: Sequence[int] | None, network: Network
) -> tuple[list[FloatArray], IntArray]:
    """One matrix per camera, and the camera of each frame in the order of the input."""
    parts = list(tracks) if isinstance(tracks, list | tuple) else None
    if parts == []:
        raise ValueError(
            "tracks is an empty list: give (frames, 2, points) or one array per camera"
        )
    if parts is not None and not isinstance(tracks, Tracks) and np.ndim(parts[0]) >= 2:
        return _given(parts, cameras, network)
    data = as_matrix(tracks)
    n_frames = len(data) // 2
    if cameras is None:
        if n_frames < network.n_nodes:
            raise ValueError(
                f"{n_frames} frames cannot be split over {network.n_nodes} cameras: "
                "use a smaller network or more frames"
            )
        sizes = [len(part) for part in np.array_split(np.arange(n_frames), network.n_nodes)]
        owner = np.repeat(np.arange(network.n_nodes), sizes)
    else:
        owner = np.asarray(cameras)
        if owner.shape != (n_frames,) or owner.dtype.kind not in "iu":
            raise ValueError(
                f"cameras must hold one whole number for each of the {n_frames} frames, "
                f"received {owner.dtype} of shape {owner.shape}"
            )
        absent = sorted(set(range(network.n_nodes)) - set(owner.tolist()))
        strange = sorted(set(owner.tolist()) - set(range(network.n_nodes)))
        if absent or strange:
            raise ValueError(
                f"the network has cameras 0 to {network.n_nodes - 1}; without any frame: {absent}, "
                f"unknown: {strange}"
            )
    rows = np.repeat(owner, 2)
    return [data[rows == camera] for camera in range(network.n_nodes)], owner


def _given(
    parts: list[Any], cameras: Sequence[int] | None, network: Network
) -> tuple[list[FloatArray], IntArray]:
    if cameras is not None:
        raise ValueError(
            "cameras gives the node of each frame: not needed with one array per camera"
        )
    shards = [as_matrix(part, f"tracks of camera {i}") for i, part in enumerate(parts)]
    check_same_points([shard.shape[1] for shard in shards])
    owner = np.repeat(np.arange(len(shards)), [len(shard) // 2 for shard in shards])
    if network.n_nodes == 1:
        return [np.concatenate(shards)], np.zeros_like(owner)
    if len(shards) != network.n_nodes:
        raise ValueError(
            f"received tracks of {len(shards)} cameras for a network of {network.n_nodes} nodes: "
            "pass one array per node"
        )
    return shards, owner


def own_tracks(
    tracks: Any, cameras: Sequence[int] | None, node: int
) -> tuple[list[FloatArray], IntArray]:
    """The tracks of the one camera that runs in this process."""
    several = isinstance(tracks, list | tuple) and not isinstance(tracks, Tracks)
    if cameras is not None or (several and np.ndim(tracks[0]) >= 2 and len(tracks) > 1):
        raise ValueError(
            f"this process runs camera {node} only: pass its own tracks as one array, without cameras"
        )
    data = as_matrix(tracks[0] if several and np.ndim(tracks[0]) >= 2 else tracks)
    return [data], np.full(len(data) // 2, node)


def check_same_points(widths: Sequence[int]) -> None:
    """Every camera numbers the same points."""
    if len(set(widths)) > 1:
        raise ValueError(
            f"cameras have different numbers of points {list(widths)}: give every camera all points, "
            "NaN where it does not see one"
        )


def check_camera(camera: int, rows: FloatArray) -> None:
    """Enough points, and the camera sees something."""
    if rows.shape[1] < MIN_POINTS:
        raise ValueError(
            f"structure from motion needs at least {MIN_POINTS} points, received {rows.shape[1]}"
        )
    if not np.isfinite(rows).any():
        raise ValueError(f"camera {camera} sees no point in any frame: leave it out of the network")


def check_frames(frames: NDArray[Any]) -> None:
    """Every point is seen in two frames, of whatever camera."""
    short = np.flatnonzero(frames < MIN_FRAMES)
    if len(short):
        shown = ", ".join(f"{p} ({int(frames[p])})" for p in short[:5])
        raise ValueError(
            f"points seen in fewer than {MIN_FRAMES} frames: {shown}"
            + (f" and {len(short) - 5} more" if len(short) > 5 else "")
            + ": they have no depth, leave them out (Tracks.seen_in(2))"
        )


def frames_of_points(rows: FloatArray) -> FloatArray:
    """(P,): in how many frames of this camera a point is seen."""
    return frames_seen(rows).sum(0).astype(np.float64)


def seen_by_both(rows: FloatArray) -> IntArray:
    """(F,): points that the row with fewer of them sees, of the two rows of each frame."""
    seen = np.isfinite(rows).sum(1)
    return np.minimum(seen[0::2], seen[1::2])


def frames_seen(rows: FloatArray) -> NDArray[np.bool_]:
    """(F, P): where at least one coordinate of a point is known."""
    seen = np.isfinite(rows)
    return np.asarray(seen[0::2] | seen[1::2])
