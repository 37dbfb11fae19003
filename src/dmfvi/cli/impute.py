"""Missing entries of a table filled: dmfvi impute."""

from __future__ import annotations

import inspect
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from dmfvi.cli.options import (
    Columns,
    Decimal,
    Drop,
    Header,
    Id,
    Missing,
    Percent,
    Separator,
    reading_of,
)
from dmfvi.cli.output import check_level, console, target_beside
from dmfvi.cli.predict import input_of, say_if_not_converged, write_table

if TYPE_CHECKING:
    from dmfvi.readers.tables import Reading

Filler = Annotated[
    Path,
    typer.Option(
        help="Directory that dmfvi fit wrote, or its model.npz; or a kind of model (dmfvi models), which is fitted to this "
        "table; or auto: the one of several kinds that has the highest bound."
    ),
]
#: the word for several models of which the best is taken
AUTO = "auto"
#: what files of intervals have in front of their suffix
ENDS = ("low", "high")
LEVEL = 0.9


class Calibration(StrEnum):
    """Of intervals."""

    MODEL = "model"
    HELD_OUT = "held-out"


def impute(
    data: Annotated[Path, typer.Argument(help="Table with missing entries.")],
    model: Filler,
    out: Annotated[
        Path | None, typer.Option(help=".csv or .npy to write. By default beside the data.")
    ] = None,
    std: Annotated[bool, typer.Option(help="Also write standard deviations (.std).")] = False,
    draws: Annotated[
        int,
        typer.Option(help="Write this many random draws, .1, .2, ... instead of means."),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    interval: Annotated[
        bool, typer.Option(help="Also write ends of predictive intervals (.low, .high).")
    ] = False,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = LEVEL,
    calibration: Annotated[
        Calibration,
        typer.Option(
            help="Intervals as the model has them, or stretched column by column to cover observed entries that are hidden in turn; "
            "that takes ten more fits to this table."
        ),
    ] = Calibration.MODEL,
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = ".",
    missing: Missing = None,
    percent: Percent = False,
    columns: Columns = None,
    drop: Drop = None,
    id: Id = None,
) -> None:
    """Fill the missing entries of a table with their predictive means.

    Observed cells, ids and columns that the model does not know are copied as they are in the file.

    Example: dmfvi impute table.csv --model model --id patient --std
    """
    import numpy as np

    if draws < 0:
        raise ValueError(f"--draws must be at least 0, received {draws}")
    check_level(level)
    if not interval and (level != LEVEL or calibration is not Calibration.MODEL):
        raise ValueError("--level and --calibration are of intervals: add --interval")
    beside = [
        *(["std"] if std else []),
        *(ENDS if interval else []),
        *map(str, range(1, draws + 1)),
    ]
    target = target_beside(data, out, ".imputed.csv", (".csv", ".npy"), beside)
    reading = reading_of(header, separator, decimal, missing, percent, columns, drop, id)
    fitted, calibrated = _filler(model, data, reading, calibration)
    if not hasattr(fitted, "impute") or getattr(fitted, "_data_form", "rows") != "rows":
        raise ValueError(
            f"{model} holds a {type(fitted).__name__}, which does not fill tables: give a model of Bayesian PCA or a mixture"
        )
    if draws and "n_draws" not in inspect.signature(fitted.impute).parameters:
        raise ValueError(f"--draws: a {type(fitted).__name__} gives means only, leave it out")
    say_if_not_converged(fitted, model)
    given = input_of(data, fitted, reading, copied=True)
    gaps = np.isnan(given.data)
    with warnings.catch_warnings():  # columns have been matched by name
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        mean, deviation = fitted.impute(given.data, return_std=True)
    if std:
        deviations = target.with_suffix(f".std{target.suffix}")
        write_table(deviations, given, deviation, np.ones_like(gaps))
        console.print(f"standard deviations: {escape(str(deviations))}", soft_wrap=True)
    if interval:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            ends = (calibrated or fitted).impute_interval(given.data, level)
        files = [target.with_suffix(f".{word}{target.suffix}") for word in ENDS]
        for file, end in zip(files, ends, strict=True):
            write_table(file, given, end, gaps)
        shown = " and ".join(map(str, files))
        console.print(f"{100 * level:g}% intervals: {escape(shown)}", soft_wrap=True)
    if draws:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            drawn = fitted.impute(given.data, n_draws=draws, random_state=seed)
        for number, filled in enumerate(drawn, 1):
            write_table(target.with_suffix(f".{number}{target.suffix}"), given, filled, gaps)
    else:
        write_table(target, given, mean, gaps)
    filled_in = target if not draws else target.with_suffix(f".1..{draws}{target.suffix}")
    console.print(
        f"{int(gaps.sum())} of {gaps.size} entries filled: {escape(str(filled_in))}", soft_wrap=True
    )


def _filler(
    model: Path, data: Path, reading: Reading, calibration: Calibration
) -> tuple[Any, Any | None]:
    """The model of a directory, or one that is fitted to the table; and where it was asked for, the calibration of its intervals."""
    from dmfvi.deploy.kinds import KINDS, ModelSettings
    from dmfvi.models.pca.imputer import Imputer, usual_candidates
    from dmfvi.storage import load
    from dmfvi.validation import name_features

    word, held_out = str(model), calibration is Calibration.HELD_OUT
    if model.exists() or word not in (AUTO, *KINDS):
        if held_out:
            raise ValueError(
                f"--calibration held-out fits a model to this table again and again: give auto or a kind of model (dmfvi models), received {model}"
            )
        return load(model), None
    chosen = ModelSettings.of() if word == AUTO else ModelSettings.of(word)
    table = chosen.read(data, reading)
    rows, names, _ = chosen.arguments(table)
    if word != AUTO:
        kind = chosen.estimator()
        if not held_out or not hasattr(kind, "impute_interval"):
            return chosen.fit(table), None
        made = Imputer(kind, calibration=calibration.value).fit(rows)
        for each in (made, made.estimator_):
            name_features(each, names)
        return made.estimator_, made
    tried = Imputer(AUTO, calibration=calibration.value).fit(rows)
    labels = list(usual_candidates(rows.shape[1]))
    order = sorted(range(len(labels)), key=lambda i: -tried.lower_bounds_[i])
    shown = ", ".join(f"{labels[i]} {tried.lower_bounds_[i]:.6g}" for i in order)
    console.print(f"bounds: {escape(shown)}; the first is taken", soft_wrap=True)
    for each in (tried, tried.estimator_):
        name_features(each, names)
    return tried.estimator_, tried if held_out else None
