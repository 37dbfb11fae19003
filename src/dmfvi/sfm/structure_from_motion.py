"""StructureFromMotion: affine structure with uncertainty from tracks that no camera shares."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dmfvi.agreement import Meeting
from dmfvi.consensus import ConsensusRule
from dmfvi.engines.links import Links
from dmfvi.engines.local import LocalEngine
from dmfvi.estimators import BayesianPCA
from dmfvi.estimators.validation import check_choice
from dmfvi.families.base import FloatArray
from dmfvi.network import Network
from dmfvi.sfm.affine import (
    DIMENSIONS,
    Cameras,
    Structure,
    project,
    resect,
    row_centres,
    structure_directions,
    structure_of,
)
from dmfvi.sfm.measurements import IntArray, check_tracks, split_by_camera
from dmfvi.sfm.metric import MIN_SEEN, CameraModel, first_frame_axes, normal_equations, upgrade
from dmfvi.sfm.ply import write_ply


class StructureFromMotion(BaseEstimator):
    """3-D points with covariances from 2-D tracks, pooled or over a network of cameras.

    Each camera keeps its tracks; neighbours exchange statistics of the structure only. Decentralized Bayesian
    PCA finds the affine structure; with missing points four factors are fitted to rows centred on what
    they see, because the centroid of what is seen is another point in every frame.

    Parameters
    ----------
    network : Network or None
        Who talks to whom, one node a camera; None is one machine with all tracks.
    metric : {"orthographic", "scaled-orthographic"} or None
        Camera model of the metric upgrade; None leaves the structure affine (right up to a linear map).
    tol, max_rounds, consensus, links, random_state, verbose
        As for ``BayesianPCA``.

    Attributes
    ----------
    structure_ : (P, 3) posterior mean; metric: in pixels, axes of the first frame's image and depth.
    structure_cov_ : (P, 3, 3) posterior covariance of each point, the metric upgrade taken as known.
    cameras_ : (F, 2, 4) rows (m, t) of each frame, x = m . s + t; NaN for frames that see nothing.
    cameras_cov_ : (F, 2, 4, 4).
    camera_of_frame_ : (F,) node of each frame.
    metric_ : bool, whether the upgrade succeeded; ``metric_message_`` says why not.
    reprojection_error_ : float, root mean squared distance in pixels over all seen points.
    reprojection_errors_ : (F, P) distances, NaN where a point is not seen.
    noise_ : float, standard deviation of an image coordinate.
    node_structures_ : list of (P, 3), the structure as each camera has it.
    factors_ : the fitted BayesianPCA; converged_, n_rounds_, lower_bound_ are its own.

    The structure is determined up to a reflection in depth, as from any orthographic views.

    Examples
    --------
    >>> from dmfvi import Network, StructureFromMotion
    >>> from dmfvi.datasets import make_cube
    >>> model = StructureFromMotion(network=Network.ring(5), random_state=0).fit(make_cube().hidden)
    >>> model.metric_, model.structure_.shape
    (True, (8, 3))
    """

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
    ) -> None:
        self.network = network
        self.metric = metric
        self.tol = tol
        self.max_rounds = max_rounds
        self.consensus = consensus
        self.links = links
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, tracks: Any, y: Any = None, *, cameras: Sequence[int] | None = None) -> Self:
        """Fit to tracks (frames, 2, points) or 2F x P with NaN where a point is not seen.

        One array per camera, or one array whose frames are split evenly and in order over the network, or as
        ``cameras`` says: the node of each frame.
        """
        if self.metric is not None:
            check_choice("metric", self.metric, ["orthographic", "scaled-orthographic"])
        network = self.network if self.network is not None else Network.complete(1)
        shards, owner = split_by_camera(tracks, cameras, network)
        check_tracks(shards)
        meeting = Meeting(network, LocalEngine(self.links), self.consensus == "all-reduce")
        self._fit_factors(shards, meeting)
        structures, poses = self._affine(shards, meeting)
        structures, poses = self._upgraded(shards, structures, poses, meeting)
        self._keep(shards, owner, structures, poses)
        return self

    def reconstruct(self, return_std: bool = False) -> Any:
        """Image coordinates (2F, P) of every point in every frame; with ``return_std`` their predictive
        standard deviations."""
        check_is_fitted(self)
        mean, variance = project(self._structure, self._cameras)
        return (mean, np.sqrt(variance)) if return_std else mean

    def impute(self, return_std: bool = False) -> Any:
        """The tracks (2F, P) of the fit with unseen points filled in."""
        mean, std = self.reconstruct(return_std=True)
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

    def _fit_factors(self, shards: list[FloatArray], meeting: Meeting) -> None:
        """Decentralized Bayesian PCA of centred rows; three factors if nothing is missing, else four."""
        gaps = [np.array([float(np.isnan(shard).sum())]) for shard in shards]
        complete = meeting.sum(gaps, accuracy=1e-3)[0][0] < 0.5
        centred = [shard - row_centres(shard) for shard in shards]
        self.factors_ = BayesianPCA(
            DIMENSIONS if complete else DIMENSIONS + 1,
            network=self.network,
            fit_mean=False,
            tol=self.tol,
            max_rounds=self.max_rounds,
            consensus=self.consensus,
            links=self.links,
            random_state=self.random_state,
            verbose=self.verbose,
        )
        with warnings.catch_warnings():
            # a frame that sees nothing says nothing; a point at the centroid does not move
            warnings.filterwarnings("ignore", message="samples without any observed entry")
            warnings.filterwarnings("ignore", message="zero variance")
            self.factors_.fit(centred)
        self.converged_ = self.factors_.converged_
        self.n_rounds_ = self.factors_.n_rounds_
        self.lower_bound_ = self.factors_.lower_bound_

    def _affine(
        self, shards: list[FloatArray], meeting: Meeting
    ) -> tuple[list[Structure], list[Cameras]]:
        """Each camera's structure and poses; the axes are those of node 0."""
        posteriors = self.factors_.node_posteriors_
        axes = meeting.broadcast(structure_directions(posteriors[0]).ravel())
        structures = [
            structure_of(p, v.reshape(-1, DIMENSIONS))
            for p, v in zip(posteriors, axes, strict=True)
        ]
        return structures, [resect(s, x) for s, x in zip(structures, shards, strict=True)]

    def _upgraded(
        self,
        shards: list[FloatArray],
        structures: list[Structure],
        poses: list[Cameras],
        meeting: Meeting,
    ) -> tuple[list[Structure], list[Cameras]]:
        """Metric axes from agreed constraints, turned to the first frame of node 0."""
        self.metric_, self.metric_message_ = False, "no metric upgrade was asked for"
        if self.metric is None:
            return structures, poses
        equations = []
        for rows, cameras in zip(shards, poses, strict=True):
            known = np.repeat(np.isfinite(rows[0::2]).sum(1) >= MIN_SEEN, 2)
            equations.append(normal_equations(cameras.mean[known, :DIMENSIONS], self.metric))
        found = upgrade(meeting.sum(equations)[0], self.metric)
        if found.matrix is None:
            self.metric_message_ = found.message
            warnings.warn(f"the structure stays affine: {found.message}", UserWarning, stacklevel=3)
            return structures, poses
        self.metric_, self.metric_message_ = True, ""
        inverse = np.linalg.inv(found.matrix)
        seen = np.isfinite(shards[0][0::2]).sum(1)
        first = 2 * int(np.argmax(seen >= min(MIN_SEEN, seen.max())))
        rows = poses[0].mean[first : first + 2, :DIMENSIONS] @ found.matrix
        turned = first_frame_axes(rows, structures[0].mean @ inverse.T) @ inverse
        changes = meeting.broadcast(turned.ravel())
        return (
            [s.transformed(c.reshape(3, 3)) for s, c in zip(structures, changes, strict=True)],
            [p.transformed(c.reshape(3, 3)) for p, c in zip(poses, changes, strict=True)],
        )

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
        self._structure = structures[0]
        self.structure_ = structures[0].mean
        self.structure_cov_ = structures[0].covariance
        self.node_structures_ = [s.mean for s in structures]
        self.cameras_ = self._cameras.mean.reshape(-1, 2, DIMENSIONS + 1)
        self.cameras_cov_ = self._cameras.covariance.reshape(-1, 2, DIMENSIONS + 1, DIMENSIONS + 1)
        self.camera_of_frame_ = np.asarray(owner)
        self.noise_ = float(structures[0].noise_precision ** -0.5)
        gaps = self._tracks - self.reconstruct()
        self.reprojection_errors_ = np.sqrt(gaps[0::2] ** 2 + gaps[1::2] ** 2)
        self.reprojection_error_ = float(np.sqrt(np.nanmean(self.reprojection_errors_**2)))
