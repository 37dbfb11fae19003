"""The command line: dmfvi demo, fit, impute."""

from __future__ import annotations

import csv
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table as RichTable

from dmfvi import __version__
from dmfvi.datasets.tables import Table, read_table
from dmfvi.estimators import BayesianPCA
from dmfvi.network import Network
from dmfvi.storage import load_posterior, save_posterior

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Exact decentralized variational inference: every node ends with the pooled posterior.",
)
console = Console()


class Topology(StrEnum):
    """Graphs that need only a number of nodes."""

    ring = "ring"
    chain = "chain"
    star = "star"
    complete = "complete"
    random_geometric = "random-geometric"
    small_world = "small-world"


class Covariance(StrEnum):
    """Of each row of W."""

    full = "full"
    diagonal = "diagonal"


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
    for node in result.nodes:
        table.add_row(
            str(node.node),
            str(node.samples),
            f"{node.missing:.0%}",
            f"{node.distance:.1e}",
            f"{node.rmse:.3f}",
            f"{node.coverage:.1%}",
        )
    console.print(table)
    summary = RichTable(show_header=False, box=None)
    for name, value in (
        ("rounds", f"{result.rounds} (+ {result.start_rounds} for the start)"),
        ("within 1e-6 of pooled after", f"{result.rounds_to_1e6} rounds"),
        ("disagreement at the end", f"{result.disagreement:.1e}"),
        ("bound, relative to pooled", f"{result.bound_gap:.1e}"),
        (f"coverage of {LEVEL:.0%} intervals", f"{result.coverage:.1%}"),
        ("sent by all cameras", f"{result.kilobytes:.0f} kB of posterior parameters, no data"),
        ("figure", str(result.figure)),
    ):
        summary.add_row(name, value)
    console.print(summary)


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help=".npy, .npz or .csv; an empty cell is missing.")],
    components: Annotated[int, typer.Option(help="Latent dimensions.")] = 2,
    nodes: Annotated[int, typer.Option(help="Nodes the rows are split over; 1 is pooled.")] = 5,
    topology: Annotated[Topology, typer.Option(help="Who talks to whom.")] = Topology.ring,
    out: Annotated[Path, typer.Option(help="Directory of the model.")] = Path("dmfvi-model"),
    covariance: Annotated[Covariance, typer.Option(help="Of each row of W.")] = Covariance.full,
    tol: Annotated[float, typer.Option(help="Relative accuracy of the posterior.")] = 1e-6,
    max_rounds: Annotated[int, typer.Option(help="Message rounds at most.")] = 5000,
    seed: Annotated[int, typer.Option(help="Seed of the start.")] = 0,
) -> None:
    """Fit Bayesian PCA to a table, split evenly over the nodes of a network."""
    table = read_table(data)
    maker = getattr(Network, topology.value.replace("-", "_"))
    network = maker(nodes) if nodes > 1 else None
    if nodes < 1:
        raise ValueError(f"--nodes must be at least 1, received {nodes}")
    model = BayesianPCA(
        components,
        network=network,
        covariance=covariance.value,
        tol=tol,
        max_rounds=max_rounds,
        random_state=seed,
        verbose=1,
    ).fit(table.data)
    path = save_posterior(model.posterior_, out, table.columns)
    console.print(_summary(model, table, path))


@app.command()
def impute(
    data: Annotated[Path, typer.Argument(help="Table with missing entries.")],
    model: Annotated[Path, typer.Option(help="Directory that dmfvi fit wrote.")],
    out: Annotated[
        Path | None, typer.Option(help="CSV to write; default: beside the data.")
    ] = None,
    std: Annotated[bool, typer.Option(help="Also write standard deviations (.std.csv).")] = False,
) -> None:
    """Fill the missing entries of a table with their predictive means."""
    posterior, columns = load_posterior(model)
    table = read_table(data)
    if table.data.shape[1] != len(posterior.mean):
        raise ValueError(
            f"{data} has {table.data.shape[1]} columns, the model has {len(posterior.mean)} features"
        )
    if columns and table.columns and columns != table.columns:
        raise ValueError(
            f"columns of {data} {table.columns[:5]} differ from the model's {columns[:5]}: "
            "bring them into the same order"
        )
    if np.isinf(table.data).any():
        raise ValueError(f"{data} holds infinities: leave unknown cells empty")
    mean, variance = posterior.predict(table.data)
    missing = np.isnan(table.data)
    target = out if out is not None else data.with_name(f"{data.stem}.imputed.csv")
    _write_csv(target, np.where(missing, mean, table.data), table.columns)
    console.print(f"{int(missing.sum())} of {missing.size} entries filled: {target}")
    if std:
        deviations = target.with_suffix(".std.csv")
        _write_csv(deviations, np.where(missing, np.sqrt(variance), 0.0), table.columns)
        console.print(f"standard deviations: {deviations}")


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
        ("converged", "yes" if model.converged_ else "NO: raise --max-rounds"),
        (
            "change, disagreement",
            f"{model.history_['change'][-1]:.1e}, {model.history_['disagreement'][-1]:.1e}",
        ),
        ("lower bound", f"{model.lower_bound_:.6g}"),
        ("noise deviation", f"{noise:.4g}"),
        ("component deviations", " ".join(f"{v:.3g}" for v in np.sqrt(model.explained_variance_))),
        ("saved", str(path)),
    ]
    for name, value in rows:
        summary.add_row(name, value)
    return summary


def _write_csv(path: Path, data: np.ndarray, columns: list[str] | None) -> None:
    temporary = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            if columns is not None:
                writer.writerow(columns)
            writer.writerows([[repr(float(v)) for v in row] for row in data])
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def main() -> None:
    """Entry point: problems with input end in one line, not in a traceback."""
    warnings.showwarning = lambda message, category, *rest: print(
        f"{category.__name__}: {message}", file=sys.stderr
    )
    try:
        app()
    except (ValueError, OSError, TypeError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False)
        sys.exit(1)
