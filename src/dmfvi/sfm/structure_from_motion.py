"""StructureFromMotion: affine structure with uncertainty from tracks that no camera shares."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dmfvi._numeric import FloatArray, inverse
from dmfvi.agreement import Meeting
from dmfvi.consensus import AllReduce, BregmanADMM, ConsensusRule, StatisticsTracking
from dmfvi.engines import open_engine
from dmfvi.engines.base import Engine, Run
from dmfvi.engines.links import Links
from dmfvi.estimators.kept import OF_A_RUN, Kept
from dmfvi.estimators.pca_fit import HELD_SWEEPS, PcaSettings, agree_on_start
from dmfvi.estimators.validation import check_choice, check_positive, check_whole
from dmfvi.families import MultivariateNormal
from dmfvi.inference import history_of, warn_unless_converged
from dmfvi.models.affine import AffineModel
from dmfvi.models.affine_shard import DIMENSIONS, AffineShard
from dmfvi.network import Network
from dmfvi.node import Job
from dmfvi.progress import live_rounds
from dmfvi.sfm.affine import (
    Cameras,
    Structure,
    project,
    resect,
    row_centres,
    shared_structure,
    turned_cameras,
)
from dmfvi.sfm.measurements import (
    IntArray,
    check_camera,
    check_frames,
    check_same_points,
    frames_of_points,
    own_tracks,
    seen_by_both,
    split_by_camera,
)
from dmfvi.sfm.metric import (
    MIN_SEEN,
    CameraModel,
    first_frame_axes,
    normal_equations,
    shape_covariance,
    upgrade,
)
from dmfvi.sfm.ply import write_ply

#: rules that agree on sums of statistics
CONSENSUS: dict[str, Callable[[], ConsensusRule]] = {
    rule.name: rule for rule in (BregmanADMM, StatisticsTracking, AllReduce)
}


class StructureFromMotion(Kept, BaseEstimator):
    """3-D points with covariances from 2-D tracks, pooled or over a network of cameras.

    Each camera keeps its tracks; neighbours exchange statistics of the structure only. The direction of every
    camera and its place are learned together, so that frames need no common centroid: the centroid of what is seen
    is another point in every frame. A coordinate that is missing alone (x without y) is used.

    Parameters
    ----------
    network : Network or None
        Who talks to whom, one node a camera; None is one machine with all tracks.
    metric : {"orthographic", "scaled-orthographic"} or None
        Camera model of the metric upgrade; None leaves the structure affine (right up to a linear map).
    tol, max_rounds, consensus, links, random_state, verbose, engine
        As for ``BayesianPCA``. Where one node runs in this process (``engine="mpi"``, for example) ``fit`` is given
        that camera's tracks only, and what is told of frames is told of its own.

    Attributes
    ----------
    structure_ : (P, 3) posterior mean; metric: in pixels, axes of the first frame's image and depth.
    structure_cov_ : (P, 3, 3) posterior covariance of each point, and what the metric upgrade leaves uncertain.
    cameras_ : (F, 2, 4) rows (m, t) of each frame, x = m . s + t; NaN for frames that see nothing.
    cameras_cov_ : (F, 2, 4, 4).
    camera_of_frame_ : (F,) node of each frame.
    metric_ : bool, whether the upgrade succeeded; ``metric_message_`` says why not.
    reprojection_error_ : float, root mean squared distance in pixels over all seen points.
    reprojection_errors_ : (F, P) distances, NaN where a point is not seen.
    noise_ : float, standard deviation of an image coordinate.
    node_structures_ : list of (P, 3), the structure as each camera has it.
    posterior_, node_posteriors_ : MultivariateNormal of the points, (P,) of them; node 0's and every node's.
    lower_bound_ : float, evidence lower bound with all constants (offsets flat, density one a pixel).
    history_, n_rounds_, n_start_rounds_, n_start_bytes_, converged_ : as for ``BayesianPCA``.

    The structure is determined up to a reflection in depth, as from any orthographic views.

    Examples
    --------
    >>> from dmfvi import Network, StructureFromMotion
    >>> from dmfvi.datasets import make_cube
    >>> model = StructureFromMotion(network=Network.ring(5), random_state=0).fit(make_cube().hidden)
    >>> model.metric_, model.structure_.shape
    (True, (8, 3))
    """

    #: in a file; the tracks stay where they are
    _kept = (
        "_structures",
        "_cameras",
        "_shape_cov",
        "camera_of_frame_",
        "reprojection_errors_",
        "metric_",
        "metric_message_",
        "n_start_bytes_",
        *OF_A_RUN,
    )

    def __init__(
        self,
        *,
        network: Network | None = None,
        metric: CameraModel | None = "orthographic",
        tol: float = 1e-6,
        max_rounds: int = 5000,
        consensus: str | ConsensusRule = "bregman-admm",
        links: Links | None = None,
        random_state: Any = None,
        verbose: int = 0,
        engine: str | Engine = "local",
    ) -> None:
        self.network = network
        self.metric = metric
        self.tol = tol
        self.max_rounds = max_rounds
        self.consensus = consensus
        self.links = links
        self.random_state = random_state
        self.verbose = verbose
        self.engine = engine

    def fit(self, tracks: Any, y: Any = None, *, cameras: Sequence[int] | None = None) -> Self:
        """Fit to tracks (frames, 2, points) or 2F x P with NaN where a point is not seen.

        One array per camera, or one array whose frames are split evenly and in order over the network, or as
        ``cameras`` says: the node of each frame.
        """
        rule = self._checked_rule()
        network = self.network if self.network is not None else Network.complete(1)
        meeting = Meeting(network, open_engine(self.engine, self.links), rule.collective)
        shards, owner = self._checked_tracks(tracks, cameras, meeting)
        structures = self._run(shards, meeting, rule)
        poses = [resect(s, x) for s, x in zip(structures, shards, strict=True)]
        structures, poses = self._upgraded(shards, structures, poses, meeting)
        self._keep(shards, owner, structures, poses)
        return self

    def _checked_tracks(
        self, tracks: Any, cameras: Sequence[int] | None, meeting: Meeting
    ) -> tuple[list[FloatArray], IntArray]:
        """One matrix for each camera that runs here, and the camera of each frame."""
        here = meeting.engine.owned(meeting.network)
        whole = len(here) == meeting.network.n_nodes
        if whole:
            shards, owner = split_by_camera(tracks, cameras, meeting.network)
        else:
            shards, owner = own_tracks(tracks, cameras, here[0])
            widths = [round(v[0]) for v in meeting.gather([np.array([float(shards[0].shape[1])])])]
            check_same_points(widths)
        for camera, shard in zip(here, shards, strict=True):
            check_camera(camera, shard)
        counts = [frames_of_points(shard) for shard in shards]
        check_frames(np.sum(counts, axis=0) if whole else np.rint(meeting.sum(counts)[0]))
        return shards, owner

    def _checked_rule(self) -> ConsensusRule:
        if self.metric is not None:
            check_choice("metric", self.metric, ["orthographic", "scaled-orthographic", None])
        if self.network is not None and not isinstance(self.network, Network):
            raise TypeError(
                f"network must be a dmfvi.Network or None, received {type(self.network).__name__}: "
                "make one with Network.ring(5) and the like, or wrap a graph with Network.from_networkx"
            )
        check_positive("tol", self.tol)
        check_whole("max_rounds", self.max_rounds, 1)
        if isinstance(self.consensus, ConsensusRule):
            return self.consensus
        check_choice("consensus", self.consensus, list(CONSENSUS))
        alone = self.network is None or self.network.n_nodes == 1
        return AllReduce() if alone else CONSENSUS[self.consensus]()

    def reconstruct(self, return_std: bool = False) -> Any:
        """Image coordinates (2F, P) of every point in every frame; with ``return_std`` their predictive
        standard deviations."""
        check_is_fitted(self)
        mean, variance = project(self._structure, self._cameras)
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
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), received {level!r}")
        filled, std = self.impute(return_std=True)
        width = norm.ppf(0.5 + 0.5 * level) * std
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

    # -- steps ------------------------------------------------------------------------------

    def _run(
        self, shards: list[FloatArray], meeting: Meeting, rule: ConsensusRule
    ) -> list[Structure]:
        """Agree on a start, run the node loop, give each camera's structure in shared coordinates."""
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        if len(shards) < meeting.network.n_nodes:  # each process has drawn its own seed
            seed = int(meeting.broadcast(np.array([float(seed)]))[0][0])
        rng = np.random.default_rng(seed)
        centred = [shard - row_centres(shard) for shard in shards]
        start, n_observed = agree_on_start(
            centred, meeting, PcaSettings(DIMENSIONS, fit_mean=False), rng
        )
        n_rows = float(meeting.sum([np.array([_n_seeing(shard)]) for shard in shards])[0][0])
        scale, network = start.units.scale, meeting.network
        model = AffineModel(shards[0].shape[1])
        belief = model.start(
            start.loadings, start.noise_precision, round(HELD_SWEEPS * start.missing)
        )
        label = "pooled fit" if network.n_nodes == 1 else network.name
        with live_rounds(label, self.tol, int(self.max_rounds), self.verbose > 0) as show:
            run = meeting.engine.run(
                Job(model, rule, tol=self.tol),
                network,
                [AffineShard.of(rows / scale) for rows in centred],
                [belief] * len(shards),
                int(self.max_rounds),
                lambda record, _: show(record),
            )
        # t is flat with density one a pixel
        self._keep_run(run, meeting, (n_rows - n_observed) * float(np.log(scale)))
        own = run.beliefs[0]
        shift = meeting.broadcast(np.append(inverse(own.axes).T.ravel(), scale * own.origin))
        return [
            shared_structure(b, scale).transformed(v[:9].reshape(3, 3), v[9:])
            for b, v in zip(run.beliefs, shift, strict=True)
        ]

    def _keep_run(self, run: Run, meeting: Meeting, log_scale_term: float) -> None:
        self.n_rounds_ = self.n_iter_ = run.n_rounds
        self.n_start_rounds_, self.n_start_bytes_ = meeting.n_rounds, meeting.bytes_sent
        self.converged_ = run.converged
        self.history_ = history_of(run)
        self.history_["objective"] += log_scale_term
        self.lower_bound_ = float(self.history_["objective"][-1])
        warn_unless_converged(run, self.tol, stacklevel=5)

    def _upgraded(
        self,
        shards: list[FloatArray],
        structures: list[Structure],
        poses: list[Cameras],
        meeting: Meeting,
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
        agreed = meeting.broadcast(meeting.sum(equations)[0])[0]
        found = upgrade(agreed, self.metric)
        turned = None
        if found.matrix is not None:
            turned = self._first_axes(shards, structures, poses, found.matrix, meeting)
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
        meeting: Meeting,
    ) -> FloatArray | None:
        """Change of coordinates to the image axes and depth of the first frame that camera 0 sees well.

        Only camera 0 knows its frames: it works the axes out and tells the others.
        """
        told = np.zeros(1 + DIMENSIONS**2)
        if meeting.engine.owned(meeting.network)[0] == 0:
            frames = np.flatnonzero(seen_by_both(shards[0]) >= MIN_SEEN)
            if len(frames):
                first = 2 * int(frames[0])
                rows = poses[0].mean[first : first + 2, :DIMENSIONS] @ metric
                back = np.linalg.inv(metric)
                axes = first_frame_axes(rows, structures[0].mean @ back.T)
                told = np.append(1.0, axes @ back)
        heard = meeting.broadcast(told)[0]
        return heard[1:].reshape(DIMENSIONS, DIMENSIONS) if heard[0] else None

    def _keep(
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
        self._structures = structures
        self.camera_of_frame_ = np.asarray(owner)
        gaps = self._tracks - project(structures[0], self._cameras)[0]
        self.reprojection_errors_ = np.sqrt(gaps[0::2] ** 2 + gaps[1::2] ** 2)
        self._show()

    def _restore(self, content: dict[str, Any]) -> None:
        super()._restore(content)
        self.n_iter_ = self.n_rounds_
        self._show()

    def _show(self) -> None:
        """What follows from the nodes' structures and the cameras."""
        structures = self._structures
        self._structure = structures[0]
        self.structure_ = structures[0].mean
        self.structure_cov_ = structures[0].covariance + self._shape_cov
        self.node_structures_ = [s.mean for s in structures]
        self.node_posteriors_ = [
            MultivariateNormal.from_parameters(s.mean, s.covariance + self._shape_cov)
            for s in structures
        ]
        self.posterior_ = self.node_posteriors_[0]
        self.cameras_ = self._cameras.mean.reshape(-1, 2, DIMENSIONS + 1)
        self.cameras_cov_ = self._cameras.covariance.reshape(-1, 2, DIMENSIONS + 1, DIMENSIONS + 1)
        self.noise_ = float(structures[0].noise_precision ** -0.5)
        self.reprojection_error_ = float(np.sqrt(np.nanmean(self.reprojection_errors_**2)))


def _n_seeing(rows: FloatArray) -> float:
    """Rows that see at least one point."""
    return float(np.isfinite(rows).any(1).sum())
