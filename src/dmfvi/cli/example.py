"""Files to try the commands on: dmfvi example."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from dmfvi.cli.options import LARGEST_SEED
from dmfvi.cli.output import check_folder, console
from dmfvi.storage.files import write_text

#: rows at each hospital
SITES = (60, 90, 45)
FEATURES = ("age", "blood_pressure", "cholesterol", "glucose", "bmi")


class Example(StrEnum):
    """What to write."""

    hospital = "hospital"
    tracks = "tracks"
    ratings = "ratings"
    model = "model"
    docs = "docs"


def example(
    what: Annotated[
        Example,
        typer.Argument(
            help="hospital, tracks or ratings: data. model: a skeleton of a custom model. docs: the Python examples of the documentation."
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Folder for the files.")],
    seed: Annotated[
        int, typer.Option(help="Seed of the generated data.", min=0, max=LARGEST_SEED)
    ] = 0,
) -> None:
    """Write example files, data or programs, and print commands to try on them.

    Example: dmfvi example hospital trial
    """
    check_folder(folder, "DIR")
    made, commands = MAKERS[what](seed)
    for name, text in made.items():
        path = folder / name
        if path.exists() and path.read_text() != text:
            raise ValueError(f"{path} exists and is another file: give an empty folder")
    for name, text in made.items():
        write_text(folder / name, text)
    console.print(f"{escape(str(folder))}: {', '.join(made)}. Try:")
    for command in commands:
        console.print(f"  {escape(command.replace('DIR', str(folder)))}", soft_wrap=True)


def _hospital(seed: int) -> tuple[dict[str, str], list[str]]:
    """Patients of three hospitals: ids, a ward in words, measurements with gaps, an outcome."""
    import numpy as np

    rng = np.random.default_rng(seed)
    centre = np.array([55.0, 130.0, 5.2, 6.0, 27.0])
    loadings = np.array([[9.0, 8, 0.5, 0.6, 1.5], [-2.0, 5, 0.4, 1.0, 2.5]])
    noise = np.array([5.0, 6, 0.4, 0.5, 1.5])
    sheets, number = {}, 1
    for site, rows in enumerate(SITES):
        lines = [",".join(["patient_id", "ward", *FEATURES, "readmitted"])]
        for _ in range(rows):
            z = rng.normal(size=2) + 0.4 * (site - 1)
            values = centre + z @ loadings + noise * rng.normal(size=len(centre))
            cells = [f"{v:.1f}" for v in values]
            for gap in np.flatnonzero(rng.random(len(cells)) < 0.08):
                cells[gap] = ""
            ward = ("surgery", "cardiology", "general")[int(rng.integers(3))]
            risk = 1 / (1 + np.exp(-(z[0] + 1.5 * z[1])))
            outcome = "yes" if rng.random() < risk else "no"
            lines.append(",".join([f"P{number:05d}", ward, *cells, outcome]))
            number += 1
        sheets[f"site{site}.csv"] = "\n".join(lines) + "\n"
    sites = " ".join(f"DIR/{name}" for name in sheets)
    columns = ",".join(FEATURES)
    return sheets, [
        f"dmfvi fit {sites} --columns {columns} --components 2 --out DIR/model",
        "dmfvi show DIR/model",
        "dmfvi impute DIR/site0.csv --model DIR/model --std",
        "dmfvi predict DIR/site0.csv --model DIR/model --id patient_id",
    ]


def _tracks(seed: int) -> tuple[dict[str, str], list[str]]:
    """Eight corners of a cube seen by five cameras, hidden ones left out; one observation a line."""
    import numpy as np

    from dmfvi.datasets import make_cube

    data = np.concatenate(make_cube(n_cameras=5, n_frames=8, seed=seed).hidden)
    lines = ["frame,point,x,y"]
    for frame, point in np.argwhere(np.isfinite(data[0::2])):
        x, y = data[2 * frame, point], data[2 * frame + 1, point]
        lines.append(f"{frame},{point},{x:.5f},{y:.5f}")
    return {"tracks.csv": "\n".join(lines) + "\n"}, [
        "dmfvi sfm DIR/tracks.csv --cameras 5 --out DIR/structure"
    ]


def _ratings(seed: int) -> tuple[dict[str, str], list[str]]:
    """Ratings from 1 to 5 of users whose ids are words."""
    from dmfvi.datasets import make_ratings

    made = make_ratings(4000, n_users=200, n_items=80, rank=2, seed=seed).ratings.tocoo()
    lines = ["user,item,rating"]
    lines += [
        f"u{user:03d},film-{item:02d},{rating:g}"
        for user, item, rating in zip(made.row, made.col, made.data, strict=True)
    ]
    return {"ratings.csv": "\n".join(lines) + "\n"}, [
        "dmfvi ratings fit DIR/ratings.csv --components 2 --holdout 0.1 --out DIR/model",
        "dmfvi ratings recommend --model DIR/model --user u001",
        "dmfvi ratings recommend --model DIR/model --users all --out DIR/best.csv",
    ]


def _programs(*names: str) -> dict[str, str]:
    """Files of ``dmfvi/examples``."""
    folder = files("dmfvi") / "examples"
    return {name: (folder / name).read_text() for name in names}


def _model(seed: int) -> tuple[dict[str, str], list[str]]:
    """A model of one's own: three positions to fill in, and a program that checks and fits it."""
    return _programs("skeleton_model.py"), ["python DIR/skeleton_model.py"]


def _docs(seed: int) -> tuple[dict[str, str], list[str]]:
    """The Python examples of every page."""
    found = (entry.name for entry in (files("dmfvi") / "examples").iterdir())
    names = sorted(name for name in found if name.endswith("_examples.py"))
    return _programs(*names), [f"python DIR/{name}" for name in names]


MAKERS: dict[Example, Callable[[int], tuple[dict[str, str], list[str]]]] = {
    Example.hospital: _hospital,
    Example.tracks: _tracks,
    Example.ratings: _ratings,
    Example.model: _model,
    Example.docs: _docs,
}
