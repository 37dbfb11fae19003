"""The command line: dmfvi demo, example, fit, predict, impute, show, models, sfm, ratings, reproduce, node, launch, keys, warmup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from dmfvi import __version__
from dmfvi.cli.example import example
from dmfvi.cli.fit import CommandOfKinds, fit, models
from dmfvi.cli.impute import impute
from dmfvi.cli.node import keys_app, launch, node
from dmfvi.cli.options import LARGEST_SEED
from dmfvi.cli.output import check_file, check_folder
from dmfvi.cli.predict import load_estimator, predict
from dmfvi.cli.ratings import app as ratings_app
from dmfvi.cli.reproduce import reproduce
from dmfvi.cli.sfm import sfm
from dmfvi.cli.show import show
from dmfvi.cli.single_node import load_lean
from dmfvi.lifetime import on_interrupt
from dmfvi.storage.files import model_file

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(ratings_app, name="ratings")
app.command(cls=CommandOfKinds)(fit)
app.command()(predict)
app.command()(impute)
app.command()(show)
app.command()(models)
app.command()(example)
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
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Decentralized Bayesian inference: nodes keep their data, and every node ends with the posterior of all data.

    Example: dmfvi fit own.csv --id patient --out model
    """


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory of the figure.")] = Path("dmfvi-demo"),
    seed: Annotated[
        int, typer.Option(help="Seed of the data and the start.", min=0, max=LARGEST_SEED)
    ] = 0,
) -> None:
    """Five cameras on a ring learn one Bayesian PCA model from data with missing entries.

    Example: dmfvi demo --out demo
    """
    from dmfvi.demo import LEVEL, run_demo

    check_folder(out)
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
def report(
    model: Annotated[Path, typer.Argument(help="Directory that a fit wrote, or its model.npz.")],
    out: Annotated[
        Path | None, typer.Option(help="The .html file. By default report.html beside the model.")
    ] = None,
) -> None:
    """Write an HTML report of a fitted model: results in words and figures, and convergence.

    Example: dmfvi report dmfvi-model
    """
    target = out or (model if model.is_dir() else model.parent) / "report.html"
    check_file(target, (".html", ".htm"))
    model_file(model)  # says at once where there is none
    load_lean()
    from dmfvi.report.html import write_report

    made = write_report(load_estimator(model), target)
    console.print(f"report: {escape(str(made))}")


@app.command()
def warmup(
    components: Annotated[
        list[int] | None,
        typer.Option(
            help="Number of components of ratings models to compile for, 12 by default; may be repeated."
        ),
    ] = None,
) -> None:
    """Compile all inner loops in advance instead of on first use.

    Compiled code is stored beside the package, or in $NUMBA_CACHE_DIR.

    Example: dmfvi warmup
    """
    from time import perf_counter

    from dmfvi.models.ratings.estimator import MOST_COMPONENTS
    from dmfvi.warmup import warm_up

    wrong = [n for n in components or [] if not 1 <= n <= MOST_COMPONENTS]
    if wrong:
        raise ValueError(f"--components must be 1 to {MOST_COMPONENTS}, received {wrong[0]}")
    began = perf_counter()
    with on_interrupt("what is compiled is kept, the same command continues"):
        for name in warm_up(components or (12,)):
            console.print(f"{perf_counter() - began:5.0f} s  {escape(name)}", highlight=False)
    console.print(f"{perf_counter() - began:5.0f} s  all is compiled", highlight=False)


@app.command()
def version() -> None:
    """Print the version.

    Example: dmfvi version
    """
    console.print(__version__)
