"""Missing entries of a table filled: dmfvi impute."""

from __future__ import annotations

import inspect
import os
import re
import warnings
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from dmfvi.cli.options import (
    LARGEST_SEED,
    Columns,
    Decimal,
    Drop,
    Encoding,
    Header,
    Id,
    Missing,
    Percent,
    Separator,
    reading_of,
)
from dmfvi.cli.output import check_files, check_level, console, target_beside
from dmfvi.cli.predict import input_of, load_estimator, say_if_not_converged, write_table
from dmfvi.cli.single_node import load_lean
from dmfvi.cli.words import as_ids, tell_of_text, text_columns
from dmfvi.lifetime import on_interrupt
from dmfvi.storage.files import written_or_kept

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
#: how far the number of a draw may be from the one before it; draws between them may have been moved away
MOST_LACKING = 100
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
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0, max=LARGEST_SEED)] = 0,
    interval: Annotated[
        bool, typer.Option(help="Also write ends of predictive intervals (.low, .high).")
    ] = False,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = LEVEL,
    calibration: Annotated[
        Calibration | None,
        typer.Option(
            help="Intervals of the model, or intervals stretched column by column to cover held-out observed entries; "
            "that takes ten more fits to this table and more for small ones. By default held-out with --model auto.",
            show_default=False,
        ),
    ] = None,
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = ".",
    missing: Missing = None,
    percent: Percent = False,
    encoding: Encoding = "utf-8",
    columns: Columns = None,
    drop: Drop = None,
    id: Id = None,
) -> None:
    """Fill the missing entries of a table with their predictive means.

    Observed cells, ids and columns that the model does not use are copied unchanged. Standard deviations are
    written for the model's columns, beside the --id columns. Files of an earlier run that this run does not write again
    are renamed with the suffix .old.

    Example: dmfvi impute table.csv --model model --id patient --std
    """
    if draws < 0:
        raise ValueError(f"--draws must be at least 0, received {draws}")
    check_level(level)
    if not interval and (level != LEVEL or calibration is not None):
        raise ValueError("--level and --calibration are of intervals: add --interval")
    beside = [
        *(["std"] if std else []),
        *(ENDS if interval else []),
        *map(str, range(1, draws + 1)),
    ]
    target = target_beside(data, out, ".imputed.csv", (".csv", ".npy"), beside)
    check_files(data)
    reading = reading_of(header, separator, decimal, missing, percent, encoding, columns, drop, id)
    load_lean()
    import numpy as np

    used = _without_words(data, reading) if _is_kind(model) else reading
    if not interval:
        calibration = Calibration.MODEL
    fitted, calibrated = _filler(model, data, used, calibration)
    if draws and "n_draws" not in inspect.signature(fitted.impute).parameters:
        raise ValueError(f"--draws: a {type(fitted).__name__} gives means only, leave it out")
    say_if_not_converged(fitted, model)
    given = input_of(data, fitted, used, copied=True)
    ids = (
        []
        if given.sheet is None
        else [given.sheet.position(c, "--id") for c in reading.selection.id]
    )
    measured = sorted({*given.positions, *ids})
    gaps = np.isnan(given.data)
    with warnings.catch_warnings():  # columns have been matched by name
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        mean, deviation = fitted.impute(given.data, return_std=True)
        if interval:
            ends = (calibrated or fitted).impute_interval(given.data, level)
        if draws:
            drawn = fitted.impute(given.data, n_draws=draws, random_state=seed)
    deviations, files = _beside(target, "std"), [_beside(target, word) for word in ENDS]

    def write(folder: Path) -> None:
        if std:
            write_table(folder / deviations.name, given, deviation, np.ones_like(gaps), measured)
        if interval:
            for file, end in zip(files, ends, strict=True):
                write_table(folder / file.name, given, end, gaps)
        if draws:
            for number, filled in enumerate(drawn, 1):
                write_table(folder / _beside(target, str(number)).name, given, filled, gaps)
        else:
            write_table(folder / target.name, given, mean, gaps)

    # nothing is renamed before all that is to be written is there
    _put_aside(target, beside if draws else ["", *beside], data)
    with on_interrupt("not all files of the result are written"):
        written_or_kept(write, target.parent)
    if std:
        console.print(f"standard deviations: {escape(str(deviations))}", soft_wrap=True)
    if interval:
        shown = " and ".join(map(str, files))
        console.print(f"{100 * level:g}% intervals: {escape(shown)}", soft_wrap=True)
    filled_in = _beside(target, f"1..{draws}") if draws else target
    console.print(
        f"{int(gaps.sum())} of {gaps.size} entries filled: {escape(str(filled_in))}", soft_wrap=True
    )


def _beside(target: Path, word: str) -> Path:
    """A file of the same result; without a word the result itself."""
    return target.with_suffix(f".{word}{target.suffix}") if word else target


def _put_aside(target: Path, written: Sequence[str], data: Path) -> None:
    """Rename files of an earlier run that would be taken for this one's.

    Means with deviations and intervals are one result, draws are another: a run replaces the whole of what it writes a part of.
    """
    means = {"", "std", *ENDS}
    draws = _draws_of(target) | {word for word in written if word.isdigit()}
    for result in (means, draws):
        if result.isdisjoint(written):
            continue
        for file in sorted(_beside(target, word) for word in result.difference(written)):
            if file.is_file() and file.resolve() != data.resolve():
                old = file.with_name(f"{file.name}.old")
                os.replace(file, old)
                console.print(f"of an earlier run, now {escape(str(old))}", soft_wrap=True)


def _draws_of(target: Path) -> set[str]:
    """Numbers of the draws that are there, also where some are not; a number far beyond the others, as a year, is no draw."""
    name = re.compile(rf"{re.escape(target.stem)}\.([1-9]\d*){re.escape(target.suffix)}")
    there = target.parent.iterdir() if target.parent.is_dir() else ()
    found = (name.fullmatch(file.name) for file in there)
    numbers = sorted(int(each[1]) for each in found if each)
    near = takewhile(lambda pair: pair[1] - pair[0] <= MOST_LACKING, pairwise([0, *numbers]))
    return {str(number) for _, number in near}


def _is_kind(model: Path) -> bool:
    """Whether it is a model to fit, not one that was saved."""
    from dmfvi.deploy.kinds import KINDS

    return not model.exists() and str(model) in (AUTO, *KINDS)


def _without_words(data: Path, reading: Reading) -> Reading:
    """The reading with columns of text as ids, where no columns are named: a model that was saved has them copied, too."""
    names = text_columns([data], reading)
    if names:
        tell_of_text(data, names, "copied unchanged")
    return as_ids(reading, names)


def _filler(
    model: Path, data: Path, reading: Reading, calibration: Calibration | None
) -> tuple[Any, Any | None]:
    """The model of a directory, or one that is fitted to the table; and where it was asked for, the calibration of its intervals."""
    from dmfvi.deploy.kinds import KINDS, ModelSettings
    from dmfvi.models.pca.imputer import Imputer
    from dmfvi.validation import name_features, warn_of_ids

    word, held_out = str(model), calibration is Calibration.HELD_OUT
    if not _is_kind(model):
        if held_out:
            raise ValueError(
                f"--calibration held-out fits a model to this table again and again: give auto or a kind of model (dmfvi models), received {model}"
            )
        if not model.exists():
            raise FileNotFoundError(
                f"--model {model} does not exist: fit a model there first, or give a kind of model (dmfvi models) or auto"
            )
        fitted = load_estimator(model)
        _check_fills(model, type(fitted))
        return fitted, None
    if word != AUTO:
        _check_fills(model, KINDS[word])
    chosen = ModelSettings.of() if word == AUTO else ModelSettings.of(word)
    table = chosen.read(data, reading)
    rows, names, _ = chosen.arguments(table)
    if word != AUTO:
        kind = chosen.estimator()
        if not held_out or not hasattr(kind, "impute_interval"):
            return chosen.fit(table), None
        made = Imputer(kind, calibration="held-out").fit(rows)
        for each in (made, made.estimator_):
            name_features(each, names)
        return made.estimator_, made
    warn_of_ids([rows], names)
    tried = Imputer(AUTO, calibration=None if calibration is None else calibration.value).fit(rows)
    labels = tried.candidates_
    order = sorted(range(len(labels)), key=lambda i: -tried.lower_bounds_[i])
    shown = ", ".join(f"{labels[i]} {tried.lower_bounds_[i]:.6g}" for i in order)
    console.print(f"bounds: {escape(shown)}; the first is taken", soft_wrap=True)
    for each in (tried, tried.estimator_):
        name_features(each, names)
    return tried.estimator_, tried if hasattr(tried, "calibration_") else None


def _check_fills(model: Path, estimator: type[Any]) -> None:
    """Refuse models that do not fill tables."""
    if not hasattr(estimator, "impute") or getattr(estimator, "_data_form", "rows") != "rows":
        raise ValueError(
            f"--model {model}: a {estimator.__name__} does not fill tables, give a model of Bayesian PCA or a mixture"
        )
