"""The command line: dmfvi demo, fit, models, impute, sfm, ratings, reproduce, node, launch, keys."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from dmfvi import __version__
from dmfvi.cli.exit_codes import ExitCode
from dmfvi.cli.fit import CommandOfKinds, Header, fit, models
from dmfvi.cli.node import keys_app, launch, node
from dmfvi.cli.ratings import app as ratings_app
from dmfvi.cli.reproduce import reproduce
from dmfvi.cli.sfm import sfm
from dmfvi.storage.files import replacing, replacing_table

if TYPE_CHECKING:
    import numpy as np

    from dmfvi.models.pca.estimator import BayesianPCA
    from dmfvi.readers.tables import Table

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Exact decentralized variational inference: every node ends with the pooled posterior.",
)
app.add_typer(ratings_app, name="ratings")
app.command(cls=CommandOfKinds)(fit)
app.command()(models)
app.command()(sfm)
app.command()(reproduce)
app.command()(node)
app.command()(launch)
app.add_typer(keys_app, name="keys")
console = Console()


def _say_version(wanted: bool) -> None:
    if wanted:
        console.print(__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Exact decentralized variational inference: every node ends with the pooled posterior."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the figure goes.")] = Path("dmfvi-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the data and the start.")] = 0,
) -> None:
    """Five cameras on a ring learn one Bayesian PCA model from data with missing entries."""
    from dmfvi.demo import LEVEL, run_demo

    result = run_demo(out, seed=seed)
    table = RichTable(title="Five cameras on a ring, 30 % of the entries missing")
    for name in (
        "camera",
        "samples",
        "missing",
        "distance to pooled",
        "RMSE",
        f"{LEVEL:.0%} covers",
    ):
        table.add_column(name, justify="right")
    for camera in result.nodes:
        table.add_row(
            str(camera.node),
            str(camera.samples),
            f"{camera.missing:.0%}",
            f"{camera.distance:.1e}",
            f"{camera.rmse:.3f}",
            f"{camera.coverage:.1%}",
        )
    console.print(table)
    summary = RichTable(show_header=False, box=None)
    for name, value in (
        ("rounds", f"{result.rounds} (+ {result.start_rounds} for the start)"),
        ("within 1e-6 of pooled after", f"{result.rounds_to_1e6} rounds"),
        ("disagreement at the end", f"{result.disagreement:.1e}"),
        ("evidence lower bound, relative to pooled", f"{result.bound_gap:.1e}"),
        (f"coverage of {LEVEL:.0%} intervals", f"{result.coverage:.1%}"),
        ("sent by all cameras", f"{result.kilobytes:.0f} kB of statistics, no data"),
        ("figure", str(result.figure)),
    ):
        summary.add_row(name, value)
    console.print(summary)


@app.command()
def impute(
    data: Annotated[Path, typer.Argument(help="Table with missing entries.")],
    model: Annotated[Path, typer.Option(help="Directory that dmfvi fit wrote, or its model.npz.")],
    out: Annotated[
        Path | None, typer.Option(help=".csv or .npy to write; default: beside the data.")
    ] = None,
    std: Annotated[bool, typer.Option(help="Also write standard deviations (.std).")] = False,
    header: Header = None,
) -> None:
    """Fill the missing entries of a table with their predictive means."""
    import numpy as np

    from dmfvi.models.pca.estimator import BayesianPCA
    from dmfvi.readers.tables import Table, check_cells, read_table
    from dmfvi.storage import load

    fitted = load(model, BayesianPCA)
    if not fitted.converged_:
        print(f"warning: the model in {model} had not converged", file=sys.stderr)
    given = read_table(data, header)
    table = _in_order(given, fitted, data)
    check_cells(table, data, allow_empty=True)
    target = out if out is not None else data.with_name(f"{data.stem}.imputed.csv")
    if target.suffix not in (".csv", ".npy") or target.is_dir():
        raise ValueError(f"--out {target} must be a .csv or .npy file")
    if target.resolve() == data.resolve():
        raise ValueError(f"--out {target} is the input: what was missing would be lost")
    mean, variance = fitted.posterior_.predict(table.data)
    missing = np.isnan(table.data)
    if std:
        deviations = target.with_suffix(f".std{target.suffix}")
        spread = Table(np.where(missing, np.sqrt(variance), 0.0), table.columns)
        _write(deviations, *_as_given(spread, given))
        console.print(f"standard deviations: {escape(str(deviations))}")
    filled = Table(np.where(missing, mean, table.data), table.columns)
    _write(target, *_as_given(filled, given))
    console.print(f"{int(missing.sum())} of {missing.size} entries filled: {escape(str(target))}")


@app.command()
def report(
    model: Annotated[Path, typer.Argument(help="Directory that a fit wrote, or its model.npz.")],
    out: Annotated[
        Path | None, typer.Option(help="The .html file; default: report.html beside the model.")
    ] = None,
) -> None:
    """Write an HTML page about a fitted model: the answer in words and pictures, and how the fit went."""
    from dmfvi.report.html import write_report
    from dmfvi.storage import load

    folder = model if model.is_dir() else model.parent
    made = write_report(load(model), out or folder / "report.html")
    console.print(f"report: {escape(str(made))}")


@app.command()
def version() -> None:
    """Print the version."""
    console.print(__version__)


def _as_given(table: Table, given: Table) -> Table:
    """The table with its columns in the order of the file that it came from."""
    if table.columns is None or given.columns is None:
        return table
    order = [table.columns.index(name) for name in given.columns]
    return table._replace(data=table.data[:, order], columns=given.columns)


def _in_order(table: Table, model: BayesianPCA, file: Path) -> Table:
    """The table with its columns in the model's order."""
    known = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if known and table.columns:
        lacking = [c for c in known if c not in table.columns]
        extra = [c for c in table.columns if c not in known]
        if lacking or extra:
            raise ValueError(
                f"{file} lacks columns {lacking[:5]} and has unknown columns {extra[:5]}: "
                "give it the columns that the model was fitted to"
            )
        order = [table.columns.index(c) for c in known]
        return table._replace(data=table.data[:, order], columns=known)
    if table.data.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{file} has {table.data.shape[1]} columns, the model has {model.n_features_in_} features"
        )
    return table


def _write(path: Path, data: np.ndarray, columns: list[str] | None) -> None:
    """Write a .csv or .npy file, whole or not at all."""
    if path.suffix == ".npy":
        import numpy as np

        with replacing(path) as file:
            np.save(file, data)
        return
    with replacing_table(path) as writer:
        if columns is not None:
            writer.writerow(columns)
        writer.writerows([[repr(float(v)) for v in row] for row in data])


def main() -> None:
    """Entry point: problems with input end in one line, not in a traceback."""
    warnings.showwarning = lambda message, category, *rest: print(
        f"{category.__name__}: {message}", file=sys.stderr
    )
    try:
        app()
    except (ValueError, OSError, TypeError) as error:
        # names of files must not be broken over lines
        Console(stderr=True).print(
            f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(ExitCode.ERROR)
