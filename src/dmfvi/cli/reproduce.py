"""The command line of the paper's experiments: dmfvi reproduce."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as RemainingColumn
from rich.table import Table as RichTable

from dmfvi.cli.output import check_folder
from dmfvi.cli.single_node import load_lean
from dmfvi.lifetime import on_interrupt

if TYPE_CHECKING:
    from dmfvi.experiments.base import ResultTable

console = Console()
if not console.is_terminal:  # tables in a file need no narrow columns
    console = Console(width=140)
DATA_VARIABLE = "DMFVI_DATA"


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="convergence, missing, cube, online, caltech, hopkins, dinosaur, netflix, or all."
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="Few repeats, or the paper's number of them.")
    ] = True,
    data: Annotated[
        Path | None,
        typer.Option(help=f"Directory of the recorded data; by default ${DATA_VARIABLE}."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory of the results.")] = Path(
        "dmfvi-reproduction"
    ),
    jobs: Annotated[
        int | None, typer.Option(help="Number of parallel cases; by default one per core.")
    ] = None,
) -> None:
    """Run the paper's experiments and compare with its numbers: tables, figures, results.json and .csv.

    An interrupted run continues where it stopped.

    Example: dmfvi reproduce cube --full
    """
    load_lean()
    from dmfvi.experiments import EXPERIMENTS
    from dmfvi.experiments.runner import run_experiment

    if name not in (*EXPERIMENTS, "all"):
        raise ValueError(f"unknown experiment {name!r}: choose one of {[*EXPERIMENTS, 'all']}")
    if jobs is not None and jobs < 1:
        raise ValueError(f"--jobs must be at least 1, received {jobs}")
    check_folder(out)
    folder = data if data is not None else _data_from_environment()
    if folder is not None and not folder.is_dir():
        raise ValueError(f"--data {folder} is not a directory")
    chosen = list(EXPERIMENTS) if name == "all" else [name]
    for each in chosen:
        experiment = EXPERIMENTS[each]
        if name == "all" and experiment.needs is not None and folder is None:
            console.print(
                f"[yellow]{each} left out:[/] it reads {experiment.needs}, "
                f"give --data or set ${DATA_VARIABLE}"
            )
            continue
        began = time.monotonic()
        kept = f"finished cases are kept in {out / 'cases'}, the same command continues"
        with on_interrupt(kept), _progress(experiment.title) as on_case:
            report = run_experiment(
                each,
                full=not quick,
                data=folder,
                out=out,
                jobs=jobs or os.cpu_count() or 1,
                on_case=on_case,
            )
        for table in report.summary.tables:
            console.print(_rich(table))
        reused = f", {report.n_reused} of them from an earlier run" if report.n_reused else ""
        console.print(
            f"{report.n_cases} cases{reused}, {time.monotonic() - began:.0f} s; "
            + escape(", ".join(str(path) for path in report.figures))
        )
    console.print(escape(f"all figures by name: {out / 'results.json'}, {out / 'results.csv'}"))


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        RemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _rich(table: ResultTable) -> RichTable:
    made = RichTable(title=table.title)
    for position, column in enumerate(table.columns):
        made.add_column(column, justify="left" if position == 0 else "right")
    for row in table.rows:
        made.add_row(*row)
    return made


def _data_from_environment() -> Path | None:
    value = os.environ.get(DATA_VARIABLE)
    return Path(value) if value else None
