"""StructureFromMotion: affine structure with uncertainty from tracks that no camera shares."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from scipy.linalg import block_diag
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dmfvi.estimator import NetworkEstimator
from dmfvi.families import MultivariateNormal
from dmfvi.inference.collective import Collective
from dmfvi.inference.model import Broadcast, Coroutine
from dmfvi.inference.response import Response
from dmfvi.inference.result import InferenceObserver, warn_unless_converged
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray, inverse
from dmfvi.models.sfm.geometry import (
    Cameras,
    project,
    resect,
    row_centres,
    turned_cameras,
)
from dmfvi.models.sfm.measurements import (
    IntArray,
    check_camera,
    check_frames,
    check_same_points,
    frames_of_points,
    own_tracks,
    seen_by_both,
    split_by_camera,
)
from dmfvi.models.sfm.metric import (
    MIN_SEEN,
    CameraModel,
    first_frame_axes,
    normal_equations,
    shape_covariance,
    upgrade,
)
from dmfvi.models.sfm.model import AffineModel, Structure
from dmfvi.models.sfm.ply import write_ply
from dmfvi.models.sfm.response import MOST_POINTS, View, structure_covariance
from dmfvi.models.sfm.shard import DIMENSIONS, AffineShard
from dmfvi.uncertainty import Context, Uncertainty, check_asked
from dmfvi.validation import check_choice, check_level


@dataclass(eq=False, repr=False)
class StructureFromMotion(NetworkEstimator):
    """3-D points with covariances from 2-D tracks, pooled or over a network of cameras.

    Each camera keeps its tracks; neighbours exchange statistics of the structure only. The direction of every
    camera and its offset are learned together, so that frames need no common centroid: the centroid of the visible points
    differs from frame to frame. If only one coordinate of a point is observed (x without y), it is used.

    Parameters
    ----------
    metric : {"orthographic", "scaled-orthographic"} or None
        Camera model of the metric upgrade; None leaves the structure affine (correct up to a linear map).
    {shared parameters}

    Attributes
    ----------
    structure_ : array (n_points, 3)
        Posterior mean of the points; after a metric upgrade in the units of the tracks, with the axes of the first frame's image and depth.
    structure_cov_ : array (n_points, 3, 3)
        Posterior covariance of each point, with what the metric upgrade leaves uncertain.
    cameras_ : array (n_frames, 2, 4)
        Posterior mean of the rows (m, t) of each frame, x = m . s + t; NaN for frames that see nothing.
    cameras_cov_ : array (n_frames, 2, 4, 4)
        Their posterior covariance.
    camera_of_frame_ : array (n_frames,)
        Node of each frame.
    metric_ : bool
        Whether the metric upgrade succeeded.
    metric_message_ : str
        Why it did not; empty if it did.
    reprojection_error_ : float
        Root mean squared distance over all seen points.
    reprojection_errors_ : array (n_frames, n_points)
        Distances in the units of the tracks, NaN where a point is not seen.
    noise_ : float
        Posterior standard deviation of the noise of an image coordinate.
    node_structures_ : list of arrays (n_points, 3)
        Posterior mean of the points at every node.
    {shared attributes}

    Notes
    -----
    One node is one camera. Where one node runs in this process (``engine="mpi"``, for example) ``fit`` takes that camera's
    tracks only, and attributes by frame are of its own frames.

    The posterior is a ``MultivariateNormal`` of the points. In the bound offsets t are flat, with density one per pixel. The
    structure is determined up to a reflection in depth, as from any orthographic views.

    Examples
    --------
    >>> from dmfvi import Network, StructureFromMotion
    >>> from dmfvi.datasets import make_cube
    >>> model = StructureFromMotion(network=Network.ring(5), random_state=0).fit(make_cube().hidden)
    >>> model.metric_, model.structure_.shape
    (True, (8, 3))
    """

    _data_form = "tracks"
    _uncertain = MappingProxyType({"structure": "structure_"})
    #: in a file; the tracks stay where they are
    _draw_name = "structure"
    _kept = (
        "_cameras",
        "_shape_cov",
        "camera_of_frame_",
        "reprojection_errors_",
        "metric_",
        "metric_message_",
    )

    _: KW_ONLY
    metric: CameraModel | None = "orthographic"

    def fit(
        self,
        tracks: Any,
        y: Any = None,
        *,
        cameras: Sequence[int] | None = None,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to tracks (frames, 2, points) or 2F x P with NaN where a point is not seen.

        One array per camera, or one array whose frames are split evenly and in order over the network, or as
        ``cameras`` gives it: the node of each frame.
        """
        if self.metric is not None:
            check_choice("metric", self.metric, ["orthographic", "scaled-orthographic", None])
        session = self._open()
        shards, owner = self._checked_tracks(tracks, cameras, session)
        structures = self._structures(shards, session, observer)
        poses = [resect(s, x) for s, x in zip(structures, shards, strict=True)]
        structures, poses = self._upgraded(shards, structures, poses, session.collective)
        self._keep_structures(shards, owner, structures, poses)
        metric = self.metric if self.metric_ else None
        views = [View(*each, metric) for each in zip(shards, poses, structures, strict=True)]
        self._context = Context(session, AffineModel(len(self.structure_)), views)
        return self

    def uncertainty(
        self,
        quantity: Any = "structure",
        *,
        method: Literal["linear-response", "mean-field"] = "linear-response",
        level: float = 0.9,
    ) -> Uncertainty:
        """Mean, deviation, interval and covariance of the structure, with cameras and metric integrated out.

        The covariance (3 P, 3 P) is that of the shape: a rotation or translation of all points is no error of it.
        ``method="mean-field"`` is ``structure_cov_``, which holds points independent of each other and of the cameras.
        """
        check_asked(self, method, level)
        if quantity != "structure":
            raise ValueError(
                f"StructureFromMotion has the uncertainty of 'structure' only, received {quantity!r}"
            )
        if len(self.structure_) > MOST_POINTS:
            raise ValueError(
                f"{len(self.structure_)} points have a covariance of too many numbers, at most {MOST_POINTS} points have one: "
                "use structure_cov_"
            )
        context, size = self._known_context(), self.structure_.size
        plain = block_diag(*self.structure_cov_)
        covariance, n_sums = plain, 0
        if method == "linear-response":
            covariance = context.session.agree(structure_covariance, context.shards)[0]
            n_sums = 2 if self.metric_ else 1
        response = Response(self.structure_.reshape(size), covariance, plain, n_sums, 0.0, 0.0)
        notes = tuple(self._doubts())
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        return Uncertainty(self.structure_.copy(), covariance, level, method, response, notes)

    def _checked_tracks(
        self, tracks: Any, cameras: Sequence[int] | None, session: Session
    ) -> tuple[list[FloatArray], IntArray]:
        """One matrix for each camera that runs here, and the camera of each frame."""
        here, collective = session.here, session.collective
        if session.whole:
            shards, owner = split_by_camera(tracks, cameras, session.network)
        else:
            shards, owner = own_tracks(tracks, cameras, here[0])
        for camera, shard in zip(here, shards, strict=True):
            check_camera(camera, shard)
        if not session.whole:
            width = np.array([float(shards[0].shape[1])])
            check_same_points([round(v[0]) for v in collective.gather([width])])
        counts = [frames_of_points(shard) for shard in shards]
        check_frames(
            np.sum(counts, axis=0) if session.whole else np.rint(collective.sum(counts)[0])
        )
        return shards, owner

    def reconstruct(self, return_std: bool = False) -> Any:
        """Image coordinates (2F, P) of every point in every frame.

        ``return_std`` also returns their predictive standard deviations.
        """
        check_is_fitted(self)
        mean, variance = project(self._belief, self._cameras)
        return (mean, np.sqrt(variance)) if return_std else mean

    def impute(self, return_std: bool = False) -> Any:
        """The tracks (2F, P) of the fit with unseen points filled in."""
        mean, std = self.reconstruct(return_std=True)
        if not hasattr(self, "_tracks"):
            raise ValueError(
                "a saved model does not hold the tracks: reconstruct() gives every point in every frame"
            )
        seen = np.isfinite(self._tracks)
        filled = np.where(seen, self._tracks, mean)
        return (filled, np.where(seen, 0.0, std)) if return_std else filled

    def impute_interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central predictive intervals of the unseen coordinates; equal to the tracks where seen."""
        check_level(level)
        filled, std = self.impute(return_std=True)
        width = ndtri(0.5 + 0.5 * level) * std
        return filled - width, filled + width

    def save_ply(self, path: str | Path) -> Path:
        """Write the structure with its covariances as a PLY file."""
        check_is_fitted(self)
        return write_ply(path, self.structure_, self.structure_cov_)

    def save_figure(self, path: str | Path, level: float = 0.9) -> Path:
        """Draw the structure with its uncertainty ellipsoids."""
        from dmfvi.report.structure_figure import structure_figure

        check_is_fitted(self)
        kind = "metric" if self.metric_ else "affine"
        return structure_figure(path, self.structure_, self.structure_cov_, level, kind)

    def _data_in_words(self) -> str:
        points = f"{len(self.structure_):,} points"
        everywhere = len(self.node_posteriors_) == int(self.consensus_.get("nodes", 1))
        # frames at other processes are not known here
        return f"{points} in {len(self.camera_of_frame_):,} frames" if everywhere else points

    def plot_structure(self, ax: Any = None, level: float = 0.9) -> Any:
        """Draw the structure with its uncertainty ellipsoids on 3-D axes; returns the matplotlib Axes."""
        from dmfvi.report.structure_figure import plot_structure

        check_is_fitted(self)
        kind = "metric" if self.metric_ else "affine"
        return plot_structure(self.structure_, self.structure_cov_, level, kind, ax)

    # -- steps ------------------------------------------------------------------------------

    def _structures(
        self, shards: list[FloatArray], session: Session, observer: InferenceObserver | None
    ) -> list[Structure]:
        """Each camera's structure in shared coordinates."""
        centred = [shard - row_centres(shard) for shard in shards]
        scale, n_observed, n_rows = session.agree(_agree_on_pixels, centred)[0]
        made = session.fit(
            AffineModel(shards[0].shape[1]),
            [AffineShard.of(rows / scale) for rows in centred],
            tol=self.tol,
            max_iter=int(self.max_iter),
            random_state=self.random_state,
            verbose=self.verbose,
            observer=observer,
        )
        # t is flat with density one a pixel
        self._keep_run(made, (n_rows - n_observed) * float(np.log(scale)))
        warn_unless_converged(made.run, self.tol, stacklevel=3)
        own = made.beliefs[0]
        shared = np.append(inverse(own.axes).T.ravel(), scale * own.origin)
        return [
            Structure.of(b, scale).transformed(v[:9].reshape(3, 3), v[9:])
            for b, v in zip(made.beliefs, session.collective.broadcast(shared), strict=True)
        ]

    def _upgraded(
        self,
        shards: list[FloatArray],
        structures: list[Structure],
        poses: list[Cameras],
        collective: Collective,
    ) -> tuple[list[Structure], list[Cameras]]:
        """Metric axes from agreed constraints, turned to the first frame of node 0."""
        self.metric_, self.metric_message_ = False, "no metric upgrade was asked for"
        self._shape_cov = np.zeros((shards[0].shape[1], DIMENSIONS, DIMENSIONS))
        if self.metric is None:
            return structures, poses
        equations = []
        for rows, cameras in zip(shards, poses, strict=True):
            known = np.repeat(seen_by_both(rows) >= MIN_SEEN, 2)
            equations.append(normal_equations(cameras.mean[known, :DIMENSIONS], self.metric))
        # the same numbers to the last bit at all nodes, so that all judge alike
        agreed = collective.broadcast(collective.sum(equations)[0])[0]
        found = upgrade(agreed, self.metric)
        turned = None
        if found.matrix is not None:
            turned = self._first_axes(shards, structures, poses, found.matrix, collective)
        if found.matrix is None or turned is None:
            nothing = "camera 0 sees too few points in any frame"
            self.metric_message_ = found.message or nothing
            said = f"the structure stays affine: {self.metric_message_}"
            warnings.warn(said, UserWarning, stacklevel=3)
            return structures, poses
        self.metric_, self.metric_message_ = True, ""
        upright = structures[0].mean @ np.linalg.inv(found.matrix).T
        axes = turned @ found.matrix
        self._shape_cov = axes @ shape_covariance(found, upright) @ axes.T
        return (
            [s.transformed(turned) for s in structures],
            [turned_cameras(p, turned) for p in poses],
        )

    def _first_axes(
        self,
        shards: list[FloatArray],
        structures: list[Structure],
        poses: list[Cameras],
        metric: FloatArray,
        collective: Collective,
    ) -> FloatArray | None:
        """Change of coordinates to the image axes and depth of the first frame that camera 0 sees well.

        Only camera 0 knows its frames: it computes the axes and broadcasts them.
        """
        sent = np.zeros(1 + DIMENSIONS**2)
        if collective.engine.owned(collective.network)[0] == 0:
            frames = np.flatnonzero(seen_by_both(shards[0]) >= MIN_SEEN)
            if len(frames):
                first = 2 * int(frames[0])
                rows = poses[0].mean[first : first + 2, :DIMENSIONS] @ metric
                back = np.linalg.inv(metric)
                axes = first_frame_axes(rows, structures[0].mean @ back.T)
                sent = np.append(1.0, axes @ back)
        received = collective.broadcast(sent)[0]
        return received[1:].reshape(DIMENSIONS, DIMENSIONS) if received[0] else None

    def _keep_structures(
        self,
        shards: list[FloatArray],
        owner: IntArray,
        structures: list[Structure],
        poses: list[Cameras],
    ) -> None:
        """Fitted attributes, frames in the order of the input."""
        order = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
        rows = (2 * order[:, None] + np.arange(2)).ravel()
        self._tracks = np.concatenate(shards)[rows]
        self._cameras = Cameras(
            np.concatenate([p.mean for p in poses])[rows],
            np.concatenate([p.covariance for p in poses])[rows],
        )
        self.camera_of_frame_ = np.asarray(owner)
        self._node_beliefs = structures
        gaps = self._tracks - project(structures[0], self._cameras)[0]
        self.reprojection_errors_ = np.sqrt(gaps[0::2] ** 2 + gaps[1::2] ** 2)
        self._rebuild()
        self._show(0)

    def _rebuild(self) -> None:
        structures: list[Structure] = self._node_beliefs
        self.node_structures_ = [s.mean for s in structures]
        self.node_posteriors_ = [
            MultivariateNormal.from_parameters(s.mean, s.covariance + self._shape_cov)
            for s in structures
        ]
        self.reprojection_error_ = float(np.sqrt(np.nanmean(self.reprojection_errors_**2)))

    def _take(self, node: int) -> None:
        structure: Structure = self._belief
        self.structure_ = structure.mean
        self.structure_cov_ = structure.covariance + self._shape_cov
        self.noise_ = float(structure.noise_precision**-0.5)
        self.cameras_ = self._cameras.mean.reshape(-1, 2, DIMENSIONS + 1)
        self.cameras_cov_ = self._cameras.covariance.reshape(-1, 2, DIMENSIONS + 1, DIMENSIONS + 1)


def _agree_on_pixels(centred: FloatArray) -> Coroutine:
    """Scale of the tracks, coordinates seen, and rows that see something."""
    seen = np.isfinite(centred)
    squares = float(np.sum(np.where(seen, centred, 0.0) ** 2))
    total = yield np.array([squares, float(seen.sum()), float(seen.any(1).sum())])
    agreed = yield Broadcast(total)
    scale = float(np.sqrt(agreed[0] / agreed[1])) if agreed[0] > 0 else 1.0
    return scale, float(np.round(agreed[1])), float(np.round(agreed[2]))
