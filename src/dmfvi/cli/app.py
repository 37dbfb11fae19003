"""The command line: dmfvi demo, fit, impute, sfm, reproduce, node, launch, keys."""

from __future__ import annotations

import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from dmfvi import __version__
from dmfvi.cli.network import Topology, make_network
from dmfvi.cli.node import keys_app, launch, node
from dmfvi.cli.ratings import app as ratings_app
from dmfvi.cli.reproduce import reproduce
from dmfvi.cli.sfm import sfm
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.readers.tables import Table, read_table
from dmfvi.storage import FILE_NAME, load, save
from dmfvi.storage.files import replacing, replacing_table
from dmfvi.validation import name_features

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Exact decentralized variational inference: every node ends with the pooled posterior.",
)
app.add_typer(ratings_app, name="ratings")
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


class Covariance(StrEnum):
    """Of each row of W."""

    full = "full"
    diag = "diag"


class Where(StrEnum):
    """Engines that the shell can start."""

    local = "local"
    mpi = "mpi"


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


Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether a .csv begins with names; default: look."),
]


@app.command()
def fit(
    data: Annotated[
        Path, typer.Argument(help=".npy, .npz or .csv; missing: an empty cell, NA, NaN, null or ?.")
    ],
    components: Annotated[int, typer.Option(help="Latent dimensions.")] = 2,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes the rows are split over, 5 by default; 1 is pooled.")
    ] = None,
    topology: Annotated[Topology, typer.Option(help="Who talks to whom.")] = Topology.ring,
    out: Annotated[Path, typer.Option(help="Directory of the model.")] = Path("dmfvi-model"),
    covariance: Annotated[Covariance, typer.Option(help="Of each row of W.")] = Covariance.full,
    tol: Annotated[float, typer.Option(help="Relative accuracy of the posterior.")] = 1e-6,
    max_iter: Annotated[int, typer.Option(help="Sweeps over the data at most.")] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the start.")] = 0,
    header: Header = None,
    engine: Annotated[
        Where, typer.Option(help="local, or mpi: one node a rank, {rank} in DATA is its number.")
    ] = Where.local,
    checkpoint: Annotated[
        Path | None, typer.Option(help="mpi: folder of checkpoints, one a rank.")
    ] = None,
    every: Annotated[int, typer.Option(help="mpi: rounds between checkpoints.")] = 20,
    resume: Annotated[bool, typer.Option(help="mpi: go on from the checkpoints.")] = False,
) -> None:
    """Fit Bayesian PCA to a table, split evenly over the nodes of a network.

    Ends with status 2 when the nodes have not converged; the model is saved all the same.
    """
    if engine is Where.mpi:
        from dmfvi.cli.mpi import fit_rank

        settings = {"tol": tol, "max_iter": max_iter, "covariance_type": covariance.value}
        converged = fit_rank(
            data,
            components,
            topology,
            out,
            settings,
            seed,
            header,
            checkpoint,
            every,
            resume,
            nodes,
        )
        if not converged:
            raise typer.Exit(2)
        return
    if checkpoint is not None or resume:
        raise ValueError("--checkpoint and --resume are for --engine mpi")
    nodes = 5 if nodes is None else nodes
    if nodes < 1:
        raise ValueError(f"--nodes must be at least 1, received {nodes}")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: give a directory")
    table = read_table(data, header)
    _check_cells(table, data)
    model = BayesianPCA(
        components,
        network=make_network(topology, nodes) if nodes > 1 else None,
        covariance_type=covariance.value,
        tol=tol,
        max_iter=max_iter,
        random_state=seed,
        verbose=1,
    ).fit(table.data)
    name_features(model, table.columns)
    path = save(model, out / FILE_NAME)
    console.print(_summary(model, table, path))
    if not model.converged_:
        raise typer.Exit(2)


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
    fitted = load(model, BayesianPCA)
    if not fitted.converged_:
        print(f"warning: the model in {model} had not converged", file=sys.stderr)
    given = read_table(data, header)
    table = _in_order(given, fitted, data)
    _check_cells(table, data, allow_empty=True)
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
def version() -> None:
    """Print the version."""
    console.print(__version__)


def _summary(model: BayesianPCA, table: Table, path: Path) -> RichTable:
    summary = RichTable(title="Bayesian PCA", show_header=False)
    missing = float(np.isnan(table.data).mean())
    noise = model.noise_precision_**-0.5
    rows = [
        (
            "samples x features",
            f"{table.data.shape[0]} x {table.data.shape[1]}, {missing:.1%} missing",
        ),
        ("network", "pooled" if model.network is None else model.network.name),
        ("rounds", f"{model.n_rounds_} (+ {model.n_start_rounds_} for the start)"),
        ("converged", "yes" if model.converged_ else "NO: raise --max-iter"),
        (
            "change, disagreement",
            f"{model.history_['change'][-1]:.1e}, {model.history_['disagreement'][-1]:.1e}",
        ),
        ("lower bound", f"{model.lower_bound_:.6g}"),
        ("noise deviation", f"{noise:.4g}"),
        ("component deviations", " ".join(f"{v:.3g}" for v in np.sqrt(model.explained_variance_))),
        ("saved", escape(str(path))),
    ]
    for name, value in rows:
        summary.add_row(name, value)
    return summary


def _check_cells(table: Table, file: Path, allow_empty: bool = False) -> None:
    """Refuse infinities and columns without any value, by name."""

    def name(column: int) -> str:
        return repr(table.columns[column]) if table.columns else str(column + 1)

    infinite = np.argwhere(np.isinf(table.data))
    if len(infinite):
        row, column = infinite[0]
        raise ValueError(
            f"{file}, sample {row + 1}, column {name(column)} is infinite: leave unknown cells empty"
        )
    unseen = np.flatnonzero(~np.isfinite(table.data).any(0))
    if len(unseen) and not allow_empty:
        shown = ", ".join(name(column) for column in unseen[:5])
        raise ValueError(f"{file}: no value in column {shown}: drop it")


def _as_given(table: Table, given: Table) -> Table:
    """The table with its columns in the order of the file that it came from."""
    if table.columns is None or given.columns is None:
        return table
    order = [table.columns.index(name) for name in given.columns]
    return Table(table.data[:, order], given.columns)


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
        return Table(table.data[:, [table.columns.index(c) for c in known]], known)
    if table.data.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{file} has {table.data.shape[1]} columns, the model has {model.n_features_in_} features"
        )
    return table


def _write(path: Path, data: np.ndarray, columns: list[str] | None) -> None:
    """Write a .csv or .npy file, whole or not at all."""
    if path.suffix == ".npy":
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
        sys.exit(1)
