"""The command line of structure from motion: dmfvi sfm."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from dmfvi.cli.exit_codes import ExitCode
from dmfvi.cli.network import Topology, make_network
from dmfvi.storage.files import write_text

if TYPE_CHECKING:
    from dmfvi.models.sfm.estimator import StructureFromMotion
    from dmfvi.models.sfm.metric import CameraModel
    from dmfvi.models.sfm.tracks import Tracks

console = Console()


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
    cameras: Annotated[int, typer.Option(help="Cameras the frames are split over; 1: pooled.")] = 5,
    topology: Annotated[Topology, typer.Option(help="Who talks to whom.")] = Topology.ring,
    metric: Annotated[Metric, typer.Option(help="Metric upgrade.")] = Metric.orthographic,
    motion: Annotated[
        float | None, typer.Option(help="Which moving object, where the file labels them.")
    ] = None,
    min_frames: Annotated[
        int | None, typer.Option(help="Leave out points seen in fewer frames.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory of the results.")] = Path("dmfvi-sfm"),
    max_iter: Annotated[int, typer.Option(help="Sweeps over the tracks at most.")] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the start.")] = 0,
) -> None:
    """3-D structure with uncertainty from point tracks that no camera shares.

    Writes model.npz, structure.ply, structure.csv and structure.png. Ends with status 4 when the nodes have not converged.
    """
    from dmfvi.models.sfm.estimator import StructureFromMotion
    from dmfvi.readers.tracks import read_tracks
    from dmfvi.storage import FILE_NAME, save

    if cameras < 1:
        raise ValueError(f"--cameras must be at least 1, received {cameras}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: give a directory")
    read = read_tracks(tracks)
    chosen = _one_motion(read, motion)
    if min_frames is not None:
        chosen = chosen.seen_in(min_frames)
    try:
        model = StructureFromMotion(
            network=make_network(topology, cameras) if cameras > 1 else None,
            metric=CAMERA_MODELS[metric],
            max_iter=max_iter,
            random_state=seed,
            verbose=1,
        ).fit(chosen)
    except ValueError as error:
        hint = " (or --min-frames 2)" if "seen_in" in str(error) else ""
        raise ValueError(f"{tracks}: {error}{hint}") from error
    save(model, out / FILE_NAME)
    model.save_ply(out / "structure.ply")
    _write_csv(out / "structure.csv", model)
    model.save_figure(out / "structure.png")
    console.print(_summary(model, chosen, out))
    if not model.converged_:
        raise typer.Exit(ExitCode.NOT_CONVERGED)


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


def _write_csv(path: Path, model: StructureFromMotion) -> None:
    import numpy as np

    names = ["point", "x", "y", "z", "xx", "xy", "xz", "yy", "yz", "zz"]
    upper = np.triu_indices(3)
    lines = [",".join(names)]
    for point, (where, spread) in enumerate(
        zip(model.structure_, model.structure_cov_, strict=True)
    ):
        numbers = [*where, *spread[upper]]
        lines.append(",".join([str(point), *(repr(float(v)) for v in numbers)]))
    write_text(path, "\n".join(lines) + "\n")


def _summary(model: StructureFromMotion, tracks: Tracks, out: Path) -> RichTable:
    import numpy as np

    from dmfvi.storage import FILE_NAME

    summary = RichTable(title="Structure from motion", show_header=False)
    unseen = float(np.isnan(tracks.data).mean())
    spread = np.sqrt(np.trace(model.structure_cov_, axis1=1, axis2=2) / 3.0)
    size = float(np.linalg.norm(model.structure_.std(0)))
    rows = [
        ("tracks", f"{tracks.n_points} points, {tracks.n_frames} frames, {unseen:.1%} not seen"),
        ("cameras", "pooled" if model.network is None else model.network.name),
        ("rounds", str(model.n_rounds_)),
        ("converged", "yes" if model.converged_ else "NO: raise --max-iter"),
        ("structure", "metric" if model.metric_ else f"affine: {model.metric_message_}"),
        ("reprojection error", f"{model.reprojection_error_:.3f} pixels"),
        ("deviation of a point", f"{np.median(spread):.3g} (median), structure's size {size:.3g}"),
        ("written", escape(f"{out}/{FILE_NAME}, structure.ply, .csv, .png")),
    ]
    for name, value in rows:
        summary.add_row(name, value)
    return summary
