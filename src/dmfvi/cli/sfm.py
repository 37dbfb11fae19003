"""The command line of structure from motion: dmfvi sfm."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmfvi.cli.exit_codes import ExitCode
from dmfvi.cli.network import Topology, make_network
from dmfvi.cli.options import LARGEST_SEED
from dmfvi.cli.output import (
    Json,
    Quiet,
    Verbose,
    check_files,
    check_folder,
    superseded_by_fit,
    tell,
    verbosity,
)
from dmfvi.cli.single_node import load_lean
from dmfvi.lifetime import on_interrupt
from dmfvi.storage.files import FILE_NAME, write_text, written_or_kept

if TYPE_CHECKING:
    from dmfvi.models.sfm.estimator import StructureFromMotion
    from dmfvi.models.sfm.metric import CameraModel
    from dmfvi.models.sfm.tracks import Tracks


class Metric(StrEnum):
    """Camera model of the metric upgrade."""

    orthographic = "orthographic"
    scaled_orthographic = "scaled-orthographic"
    none = "none"


CAMERA_MODELS: dict[Metric, CameraModel | None] = {
    Metric.orthographic: "orthographic",
    Metric.scaled_orthographic: "scaled-orthographic",
    Metric.none: None,
}


def sfm(
    tracks: Annotated[
        Path, typer.Argument(help="Tracks: .mat, .csv, .npy or .npz; 2F x P or frame,point,x,y.")
    ],
    cameras: Annotated[
        int, typer.Option(help="Number of cameras to split the frames over; 1 is pooled.")
    ] = 1,
    topology: Annotated[Topology, typer.Option(help="Graph of the network.")] = Topology.ring,
    metric: Annotated[Metric, typer.Option(help="Metric upgrade.")] = Metric.orthographic,
    motion: Annotated[
        float | None, typer.Option(help="Moving object to use, if the file labels several.")
    ] = None,
    min_frames: Annotated[
        int | None, typer.Option(help="Leave out points seen in fewer frames.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Columns of frame, point, x and y: 'frame_id,track_id,u,v'."),
    ] = None,
    matrix: Annotated[
        bool,
        typer.Option("--matrix", help="Read a table that looks like observations as a matrix."),
    ] = False,
    out: Annotated[Path, typer.Option(help="Directory of the results.")] = Path("dmfvi-sfm"),
    max_iter: Annotated[int, typer.Option(help="Maximum number of sweeps over the tracks.")] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the start.", min=0, max=LARGEST_SEED)] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Reconstruct 3-D points with uncertainty from point tracks; cameras do not share their tracks.

    Writes model.npz, structure.ply, structure.csv, structure.png, cameras.csv and tracks.csv (every point in every frame,
    with deviations). Frames and points have the numbers of the file; rows and columns of a matrix count from 0. The exit code is 4 if the fit has not converged.

    Example: dmfvi sfm tracks.csv --cameras 5 --out result
    """
    shown = verbosity(quiet, verbose, as_json)
    if cameras < 1:
        raise ValueError(f"--cameras must be at least 1, received {cameras}")
    check_folder(out)
    check_files(tracks)
    load_lean()
    from dmfvi.models.sfm.estimator import StructureFromMotion
    from dmfvi.readers.tracks import read_tracks
    from dmfvi.storage.models import save_or_keep

    named = None if columns is None else [part.strip() for part in columns.split(",")]
    with superseded_by_fit(out / FILE_NAME):
        read = read_tracks(tracks, named, matrix=matrix)
        chosen = _one_motion(read, motion)
        if min_frames is not None:
            if min_frames < 1:
                raise ValueError(f"--min-frames must be at least 1, received {min_frames}")
            chosen = chosen.seen_in(min_frames)
        _check_seen(chosen, tracks)
        try:
            model = StructureFromMotion(
                network=make_network(topology, cameras) if cameras > 1 else None,
                metric=CAMERA_MODELS[metric],
                max_iter=max_iter,
                random_state=seed,
                verbose=shown,
            ).fit(chosen)
        except ValueError as error:
            raise ValueError(f"{tracks}: {error}") from error
        save_or_keep(model, out / FILE_NAME)
    with on_interrupt(f"{out / FILE_NAME} is written, not all files beside it"):
        written_or_kept(lambda folder: _write_beside(folder, model, chosen), out)
    tell("Structure from motion", _facts(model, chosen, out), as_json)
    if not model.converged_:
        raise typer.Exit(ExitCode.NOT_CONVERGED)


def _write_beside(folder: Path, model: StructureFromMotion, tracks: Tracks) -> None:
    """All files but the model's."""
    model.save_ply(folder / "structure.ply")
    _write_csv(folder / "structure.csv", model, tracks)
    _write_cameras(folder / "cameras.csv", model, tracks)
    _write_tracks(folder / "tracks.csv", model, tracks)
    model.save_figure(folder / "structure.png")


def _one_motion(read: Tracks, motion: float | None) -> Tracks:
    if motion is not None:
        return read.of_motion(motion)
    labels = [] if read.motion is None else sorted({float(v) for v in read.motion})
    if len(labels) > 1:
        raise ValueError(
            f"{read.name} holds motions {[f'{v:g}' for v in labels]}: choose one with --motion, "
            "a structure is that of one rigid object"
        )
    return read


def _check_seen(tracks: Tracks, file: Path) -> None:
    """Every point is seen in two frames: errors name the option and the file's numbers."""
    import numpy as np

    if tracks.n_frames < 2:
        raise ValueError(f"{file} has {tracks.n_frames} frame: depth needs views from two or more")
    seen = np.isfinite(tracks.data)
    times = (seen[0::2] | seen[1::2]).sum(0)
    short = np.flatnonzero(times < 2)
    if len(short):
        shown = ", ".join(f"{tracks.point_numbers[p]} ({times[p]})" for p in short[:5])
        more = f" and {len(short) - 5} more" if len(short) > 5 else ""
        raise ValueError(
            f"{file}: points seen in fewer than 2 frames: {shown}{more}: they have no depth, leave them out (--min-frames 2)"
        )


def _write_csv(path: Path, model: StructureFromMotion, tracks: Tracks) -> None:
    import numpy as np

    names = ["point", "x", "y", "z", "xx", "xy", "xz", "yy", "yz", "zz"]
    upper = np.triu_indices(3)
    lines = [",".join(names)]
    for point, where, spread in zip(
        tracks.point_numbers, model.structure_, model.structure_cov_, strict=True
    ):
        numbers = [*where, *spread[upper]]
        lines.append(",".join([str(point), *(repr(float(v)) for v in numbers)]))
    write_text(path, "\n".join(lines) + "\n")


def _write_cameras(path: Path, model: StructureFromMotion, tracks: Tracks) -> None:
    """x = m . s + t of every frame, and the node that saw it."""
    names = ["frame", "camera"]
    names += [f"{axis}_{part}" for axis in "xy" for part in ("m1", "m2", "m3", "t")]
    lines = [",".join(names)]
    for frame, rows, camera in zip(
        tracks.frame_numbers, model.cameras_, model.camera_of_frame_, strict=True
    ):
        numbers = [repr(float(v)) for v in rows.ravel()]
        lines.append(",".join([str(frame), str(int(camera)), *numbers]))
    write_text(path, "\n".join(lines) + "\n")


def _write_tracks(path: Path, model: StructureFromMotion, tracks: Tracks) -> None:
    """One line per frame and point: where it was seen, or where it must be."""
    import numpy as np

    filled, std = model.impute(return_std=True)
    seen = np.isfinite(tracks.data)
    lines = ["frame,point,x,y,std_x,std_y,seen"]
    frames, points = tracks.frame_numbers, tracks.point_numbers
    for frame in range(len(filled) // 2):
        for point in range(filled.shape[1]):
            two = (2 * frame, 2 * frame + 1)
            numbers = [*(filled[r, point] for r in two), *(std[r, point] for r in two)]
            known = int(all(seen[r, point] for r in two))
            lines.append(
                ",".join(
                    [
                        f"{frames[frame]},{points[point]}",
                        *(repr(float(v)) for v in numbers),
                        str(known),
                    ]
                )
            )
    write_text(path, "\n".join(lines) + "\n")


def _facts(model: StructureFromMotion, tracks: Tracks, out: Path) -> list[tuple[str, Any, str]]:
    import numpy as np

    unseen = float(np.isnan(tracks.data).mean())
    spread = np.sqrt(np.trace(model.structure_cov_, axis1=1, axis2=2) / 3.0)
    size = float(np.linalg.norm(model.structure_.std(0)))
    text = f"{tracks.n_points} points, {tracks.n_frames} frames, {unseen:.1%} not seen"
    where = "pooled" if model.network is None else model.network.name
    kind = "metric" if model.metric_ else f"affine: {model.metric_message_}"
    error = model.reprojection_error_
    written = f"{out}/{FILE_NAME}, structure.ply, .csv, .png, cameras.csv, tracks.csv"
    deviation = float(np.median(spread))
    return [
        ("tracks", text, text),
        ("cameras", where, where),
        ("rounds", model.n_rounds_, str(model.n_rounds_)),
        (
            "converged",
            bool(model.converged_),
            "yes" if model.converged_ else "NO: raise --max-iter",
        ),
        ("structure", kind, kind),
        ("reprojection error", error, f"{error:.3g} in units of the tracks"),
        (
            "deviation of a point",
            deviation,
            f"{deviation:.3g} (median), structure's size {size:.3g}",
        ),
        ("written", written, written),
    ]
