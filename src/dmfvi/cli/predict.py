"""Tables in, tables out, by a saved model: dmfvi predict, and what dmfvi impute shares with it."""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from dmfvi.cli.options import (
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
from dmfvi.cli.single_node import load_lean
from dmfvi.storage.files import model_file, replacing, write_text

if TYPE_CHECKING:
    import numpy as np

    from dmfvi.linalg import FloatArray
    from dmfvi.readers.sheets import Sheet
    from dmfvi.readers.tables import Reading

Model = Annotated[Path, typer.Option(help="Directory that dmfvi fit wrote, or its model.npz.")]


@dataclass(frozen=True)
class Input:
    """A file, and the model's features in it: ``positions`` are theirs in the file, in the model's order."""

    sheet: Sheet | None  # None: an array
    data: Any  # an array, or a frame
    positions: list[int]
    carried: list[int]
    dropped: list[int]

    @property
    def kept(self) -> list[int]:
        """Columns that go into the result, in the file's order."""
        return sorted({*self.positions, *self.carried} - {*self.dropped})


def predict(
    data: Annotated[Path, typer.Argument(help="Table with the features of the model.")],
    model: Model,
    out: Annotated[
        Path | None, typer.Option(help=".csv to write. By default beside the data.")
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.9,
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
    """Predict from a table by a saved model, one line per row, with uncertainty; --id columns come first.

    Regression: means, deviations, intervals. Classifiers: the most probable class, all probabilities with intervals.
    Mixtures: the most probable component and all probabilities. Hidden Markov models: states. PCA and topics: latent coordinates.

    Example: dmfvi predict new.csv --model model --id patient
    """
    check_level(level)
    target = target_beside(data, out, ".predicted.csv", (".csv",))
    check_files(data, model_file(model))
    load_lean()
    import numpy as np

    from dmfvi.storage import details

    fitted = load_estimator(model)
    form = getattr(fitted, "_data_form", "rows")
    if form not in ("rows", "sequences"):
        other = "dmfvi ratings predict" if form == "ratings" else "dmfvi show"
        raise ValueError(f"{model} holds a {type(fitted).__name__}: use {other}")
    say_if_not_converged(fitted, model)
    reading = reading_of(header, separator, decimal, missing, percent, encoding, columns, drop, id)
    told = details(model)
    roles = ("target", "sequence", "offset", "exposure", "weight", "trials")
    beside = [told[name] for name in roles if name in told]
    given = input_of(data, fitted, reading, beside)
    lengths = _lengths(fitted, given, told.get("sequence"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        known = _known_parts(fitted, given, told, data)
        complete = _predictable(fitted, given.data)
        whole = _with_known_parts(complete, known, data)
        names, made = predictions(
            fitted,
            given.data if whole.all() else given.data[whole],
            level,
            lengths,
            {name: values[whole] for name, values in known.items()},
        )
    ids = (
        []
        if given.sheet is None
        else [given.sheet.position(c, "--id") for c in reading.selection.id]
    )
    with replacing(target) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        sheet = given.sheet
        decimal_sign = "." if sheet is None else sheet.format.decimal
        writer = csv.writer(text, delimiter="," if sheet is None else sheet.separator)
        id_names = [] if given.sheet is None else [given.sheet.name(p).strip("'\"") for p in ids]
        writer.writerow([*id_names, *names])
        position = np.cumsum(whole) - 1  # of a row among those that are predicted
        for at in range(len(given.data)):
            own = [given.sheet.rows[at].cells[p] for p in ids] if given.sheet is not None else []
            cells = (
                _cell(column[position[at]], decimal_sign) if whole[at] else "" for column in made
            )
            writer.writerow([*own, *cells])
        text.detach()
    if not whole.all():
        empty = int((~whole).sum())
        told_of = (
            "1 row lacks values, its prediction is left empty"
            if empty == 1
            else f"{empty} rows lack values, their predictions are left empty"
        )
        hint = "" if complete.all() else " (--set missing=impute at the fit fills features)"
        print(f"{data}: {told_of}{hint}", file=sys.stderr)
    used = [f"{name} from column {str(told[name])!r}" for name in known]
    words = f" (with the {' and the '.join(used)})" if used else ""
    console.print(
        f"{int(whole.sum())} predictions{escape(words)}: {escape(str(target))}", soft_wrap=True
    )


def load_estimator(model: Path) -> Any:
    """A saved estimator; the result of ``infer`` is of a model that the file does not hold."""
    from dmfvi.storage import load
    from dmfvi.storage.inferences import SavedInference

    fitted = load(model)
    if isinstance(fitted, SavedInference):
        raise ValueError(
            f"{model} holds {fitted.words}, not an estimator: use dmfvi show, or dmfvi.load in Python"
        )
    return fitted


def predictions(
    model: Any,
    rows: FloatArray,
    level: float = 0.9,
    lengths: Any = None,
    known: Mapping[str, Any] | None = None,
) -> tuple[list[str], list[np.ndarray]]:
    """Names and columns of what a model says of each row; ``known`` are its offset and exposure."""
    import numpy as np

    if hasattr(model, "predict_interval"):
        given = dict(known or {})
        mean, std = model.predict(rows, return_std=True, **given)
        low, high = model.predict_interval(rows, level, **given)
        return ["prediction", "std", "low", "high"], [mean, std, low, high]
    if hasattr(model, "predict_proba"):
        more = dict(known or {}) if lengths is None else {"lengths": lengths}
        chance = np.asarray(model.predict_proba(rows, **more))
        labels = getattr(model, "classes_", np.arange(chance.shape[1]))
        best = model.predict(rows, **more)
        names, made = ["prediction", *(f"p_{label}" for label in labels)], [best, *chance.T]
        if hasattr(model, "predict_proba_interval"):
            low, high = model.predict_proba_interval(rows, level, **more)
            for j, label in enumerate(labels):
                names += [f"p_{label}_lower", f"p_{label}_upper"]
                made += [low[:, j], high[:, j]]
        return names, made
    if not getattr(model, "_has_features", True):
        return ["prediction"], [np.asarray(model.predict(rows[:, 0]))]
    if hasattr(model, "predict"):
        more = {} if lengths is None else {"lengths": lengths}
        return ["prediction"], [np.asarray(model.predict(rows, **more))]
    if hasattr(model, "impute"):
        latent, spread = model.transform(rows, return_std=True)
        k = range(1, latent.shape[1] + 1)
        return [f"z{i}" for i in k] + [f"std{i}" for i in k], [*latent.T, *spread.T]
    latent = np.asarray(model.transform(rows))
    return [f"z{i}" for i in range(1, latent.shape[1] + 1)], [*latent.T]


def _predictable(model: Any, rows: Any) -> np.ndarray:
    """Rows that the model can predict: those without gaps where it needs them all; else all."""
    import numpy as np

    everything = np.ones(len(rows), dtype=bool)
    takes_gaps = getattr(model, "_takes_missing", False) or model._data_form != "rows"
    if takes_gaps or getattr(model, "missing", None) == "impute":
        return everything
    gaps = rows.isna().to_numpy() if hasattr(rows, "isna") else np.isnan(rows)
    whole = ~gaps.any(1)
    return whole if whole.any() else everything  # the model says what it needs


def _with_known_parts(complete: np.ndarray, known: Mapping[str, Any], file: Path) -> np.ndarray:
    """Those of the rows that also have their offset and exposure."""
    import numpy as np

    whole = complete.copy()
    for values in known.values():
        whole &= ~np.isnan(values)
    if known and not whole.any():
        raise ValueError(
            f"{file}: no row has its features and {' and '.join(known)}, which the model needs: fill them in"
        )
    return whole


def _known_parts(fitted: Any, given: Input, told: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Offset and exposure of every row, from the columns that the model was fitted with."""
    from dmfvi.readers.tables import Table, check_finite

    found = {}
    for name in ("offset", "exposure"):
        if name not in told:
            continue
        if given.sheet is None:
            raise ValueError(f"{file}: the model needs the column of its {name}: give a .csv file")
        position = given.sheet.position(told[name], name)
        values = given.sheet.numbers([position])
        check_finite(Table(values, [str(told[name])]), file)
        found[name] = values[:, 0]
    return found


def _cell(value: Any, decimal: str = ".") -> Any:
    """A number as the input writes them; labels as they are."""
    if not (hasattr(value, "dtype") and value.dtype.kind == "f"):
        return value
    return repr(float(value)).replace(".", decimal)


def say_if_not_converged(fitted: Any, model: Path) -> None:
    if not getattr(fitted, "converged_", True):
        print(f"warning: the model in {model} had not converged", file=sys.stderr)


def _lengths(fitted: Any, given: Input, sequence: Any) -> Any:
    """Of the sequences in the file, as when the model was fitted."""
    if getattr(fitted, "_data_form", "rows") != "sequences" or sequence is None:
        return None
    if given.sheet is None:
        return None
    position = given.sheet.position(sequence, "sequence")
    return type(fitted)._from_columns(given.sheet.labels(position))["lengths"]


def input_of(
    file: Path, model: Any, reading: Reading, beside: Sequence[Any] = (), copied: bool = False
) -> Input:
    """The file with the model's features: by name, where both have names."""
    from dmfvi.readers.sheets import READERS, read_sheet
    from dmfvi.readers.tables import Table, check_finite, read_as

    known = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if not getattr(model, "_has_features", True):
        known, beside = known[:1], [*beside, *known[1:]]  # a survival curve needs times only
    if getattr(model, "_design_of_table", None) is not None:
        return _frame_input(file, known, reading)
    if file.suffix.lower() not in READERS:
        table = read_as(file, reading)
        _check_width(file, table.data.shape[1], model)
        positions = list(range(table.data.shape[1]))
        return Input(None, table.data, positions, [], [])
    sheet = read_sheet(file, reading.format)
    chosen = reading.selection
    ids = [sheet.position(c, "--id") for c in chosen.id]
    dropped = [sheet.position(c, "--drop") for c in chosen.drop]
    if known and sheet.columns and not chosen.columns:
        features = [c for i, c in enumerate(sheet.columns) if i not in {*ids, *dropped}]
        lacking = [c for c in known if c not in features]
        extra = [c for c in features if c not in known and c not in beside]
        if lacking:
            raise ValueError(
                f"{file} lacks columns {lacking[:5]} and has unknown columns {extra[:5]}: "
                "give it the columns that the model was fitted to"
            )
        if extra:
            done = "copied as they are" if copied else "left out (--id keeps one)"
            more = f" and {len(extra) - 5} more" if len(extra) > 5 else ""
            print(
                f"{file}: columns {extra[:5]}{more} are no features of the model, they are {done}",
                file=sys.stderr,
            )
        positions = [sheet.columns.index(c) for c in known]
    else:
        needed = {
            sheet.position(c, "column") for c in beside if sheet.columns or isinstance(c, int)
        }
        positions = [p for p in chosen.positions(sheet) if chosen.columns or p not in needed]
        _check_width(file, len(positions), model)
        names = [sheet.columns[p] for p in positions] if sheet.columns else []
        if known and names and names != known:
            raise ValueError(
                f"{file}: --columns are {names[:5]}, the model was fitted to {known[:5]}: "
                "name them in this order, or leave --columns out"
            )
    data = sheet.numbers(positions)
    names_here = None if sheet.columns is None else [sheet.columns[p] for p in positions]
    check_finite(Table(data, names_here), file)
    carried = [p for p in range(sheet.width) if p not in positions]
    return Input(sheet, data, positions, carried, dropped)


def _frame_input(file: Path, known: Sequence[str], reading: Reading) -> Input:
    """The file with the columns that the model's design is made of, words included."""
    from dmfvi.deploy.kinds import frame_of
    from dmfvi.readers.sheets import READERS, read_sheet
    from dmfvi.readers.tables import Selection, table_of

    if file.suffix.lower() not in READERS:
        raise ValueError(f"{file}: the model needs columns with names, give a .csv file")
    sheet = read_sheet(file, reading.format)
    table = table_of(sheet, Selection(columns=tuple(known)), known, gaps=True)
    positions = [sheet.position(name, "column") for name in known]
    dropped = [sheet.position(c, "--drop") for c in reading.selection.drop]
    carried = [p for p in range(sheet.width) if p not in positions]
    return Input(sheet, frame_of(table), positions, carried, dropped)


def _check_width(file: Path, width: int, model: Any) -> None:
    if width != model.n_features_in_:
        raise ValueError(
            f"{file} has {width} columns, the model has {model.n_features_in_} features: leave out what is no "
            "feature (--id, --drop), or name the features (--columns)"
        )


def write_table(
    path: Path,
    given: Input,
    values: FloatArray,
    changed: np.ndarray,
    kept: Sequence[int] | None = None,
) -> None:
    """Write a .csv or .npy file, whole or not at all; cells that are not changed as they are in the file.

    ``kept`` are the columns of a .csv file, by default all but those that are dropped; an .npy file has the features.
    """
    import numpy as np

    in_file = np.argsort(given.positions)  # of the features only
    if path.suffix.lower() == ".npy":
        with replacing(path) as file:
            np.save(file, values[:, in_file])
        return
    text = io.StringIO()
    sheet = given.sheet
    writer = csv.writer(
        text, delimiter="," if sheet is None else sheet.separator, lineterminator="\n"
    )
    if sheet is None:
        writer.writerows([[repr(float(v)) for v in row] for row in values[:, in_file]])
        write_text(path, text.getvalue())
        return
    kept = given.kept if kept is None else kept
    if sheet.columns is not None:
        writer.writerow([sheet.columns[p] for p in kept])
    at = {p: i for i, p in enumerate(given.positions)}
    percent = {
        p for p in given.positions if any(r.cells[p].strip().endswith("%") for r in sheet.rows)
    }
    for number, row in enumerate(sheet.rows):
        cells = []
        for p in kept:
            if p not in at or not changed[number, at[p]]:
                cells.append(row.cells[p])
                continue
            value = float(values[number, at[p]])
            cells.append(
                sheet.format.text_of(100.0 * value) + "%"
                if p in percent
                else sheet.format.text_of(value)
            )
        writer.writerow(cells)
    write_text(path, text.getvalue())
