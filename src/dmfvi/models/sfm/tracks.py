"""Point tracks: 2F x P matrices, NaN where a point is not seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray

IntArray = NDArray[np.int64]


class Tracks(NamedTuple):
    """Tracks (2F, P), where they came from, and the moving object of each point where the file has it.

    ``frames`` and ``points`` are their numbers in the file; None: they are counted from 0.
    """

    data: FloatArray
    name: str
    motion: FloatArray | None = None  # (P,) labels
    frames: IntArray | None = None  # (F,)
    points: IntArray | None = None  # (P,)

    @property
    def n_frames(self) -> int:
        """Frames, two rows each."""
        return len(self.data) // 2

    @property
    def n_points(self) -> int:
        """Tracked points."""
        return self.data.shape[1]

    @property
    def frame_numbers(self) -> IntArray:
        """Of every frame, in the file."""
        return np.arange(self.n_frames) if self.frames is None else self.frames

    @property
    def point_numbers(self) -> IntArray:
        """Of every point, in the file."""
        return np.arange(self.n_points) if self.points is None else self.points

    def _taking(self, kept: NDArray[np.bool_], name: str) -> Tracks:
        """Some of the points, under their numbers."""
        motion = None if self.motion is None else self.motion[kept]
        return Tracks(self.data[:, kept], name, motion, self.frames, self.point_numbers[kept])

    def of_motion(self, label: float) -> Tracks:
        """The points of one moving object."""
        if self.motion is None:
            raise ValueError(f"{self.name} does not label motions: take all of its points")
        known = sorted({float(v) for v in self.motion})
        if float(label) not in known:
            raise ValueError(f"{self.name} has motions {known}, received {label!r}")
        kept = self.motion == label
        return self._taking(kept, f"{self.name}, motion {label:g}")

    def seen_in(self, min_frames: int) -> Tracks:
        """The points that are seen in at least so many frames."""
        seen = np.isfinite(self.data)
        kept = (seen[0::2] | seen[1::2]).sum(0) >= min_frames
        if not kept.any():
            raise ValueError(
                f"no point of {self.name} is seen in {min_frames} frames; the longest track has "
                f"{(seen[0::2] | seen[1::2]).sum(0).max()}"
            )
        return self._taking(kept, self.name)
