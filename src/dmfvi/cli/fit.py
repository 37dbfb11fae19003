"""The command line of any estimator: dmfvi fit and dmfvi models."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from typer.core import TyperCommand

from dmfvi.cli.exit_codes import ExitCode
from dmfvi.cli.network import Topology, make_network

if TYPE_CHECKING:
    from dmfvi.deploy.data import Data
    from dmfvi.deploy.kinds import ModelSettings

console = Console()
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether a .csv begins with names; default: look."),
]


class CommandOfKinds(TyperCommand):
    """Its help names the kinds of models, for which all estimators are imported."""

    def format_help(self, *arguments: Any) -> None:
        from dmfvi.deploy.kinds import KINDS

        self.help = f"{self.help}\n\nKinds of models: {', '.join(KINDS)}."
        super().format_help(*arguments)


class Where(StrEnum):
    """Engines that the shell can start."""

    local = "local"
    mpi = "mpi"


def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help=".npy, .npz or .csv, missing: an empty cell, NA, NaN, null or ?; tracks and ratings as for "
            "dmfvi sfm and dmfvi ratings."
        ),
    ],
    model: Annotated[str, typer.Option(help="Kind of model, see above.")] = "bayesian-pca",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="name=value, a setting of the model (dmfvi models); may be repeated."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column to predict, its name or number from 1.")
    ] = None,
    sequence: Annotated[
        str | None, typer.Option(help="Column that numbers sequences, its name or number from 1.")
    ] = None,
    components: Annotated[int | None, typer.Option(help="--set n_components=...")] = None,
    covariance: Annotated[str | None, typer.Option(help="--set covariance_type=...")] = None,
    tol: Annotated[float | None, typer.Option(help="Relative accuracy of the posterior.")] = None,
    max_iter: Annotated[int | None, typer.Option(help="Sweeps over the data at most.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the start, 0 by default.")] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes the data are split over, 5 by default; 1 is pooled.")
    ] = None,
    topology: Annotated[Topology, typer.Option(help="Who talks to whom.")] = Topology.ring,
    out: Annotated[
        Path,
        typer.Option(help="Directory of the model; mpi: rank 0's, or every rank's with {rank}."),
    ] = Path("dmfvi-model"),
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
    """Fit a model to a file, split evenly over the nodes of a network.

    Ends with status 4 when the nodes have not converged; the model is saved all the same.
    """
    from dmfvi.deploy.kinds import ModelSettings

    short = {
        "n_components": components,
        "covariance_type": covariance,
        "tol": tol,
        "max_iter": max_iter,
        "random_state": seed,
        "target": None if target is None else _value(target),
        "sequence": None if sequence is None else _value(sequence),
    }
    given = {name: value for name, value in short.items() if value is not None}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals or name in given:
            problem = "is given twice" if equals else "is no name=value"
            raise ValueError(f"--set {text} {problem}")
        given[name] = _value(value)
    chosen = ModelSettings.of(model, **given)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: give a directory")
    if engine is Where.mpi:
        from dmfvi.cli.mpi import fit_rank

        ended = fit_rank(chosen, data, topology, out, header, checkpoint, every, resume, nodes)
    elif checkpoint is not None or resume:
        raise ValueError("--checkpoint and --resume are for --engine mpi")
    else:
        ended = _fit_here(chosen, data, topology, out, header, nodes)
    if not ended:
        raise typer.Exit(ExitCode.NOT_CONVERGED)


def models(
    model: Annotated[str | None, typer.Argument(help="One kind; all of them by default.")] = None,
) -> None:
    """Kinds of models, for dmfvi fit and dmfvi node, with their settings."""
    from dmfvi.deploy.kinds import KINDS, NETWORK_KINDS, columns_of
    from dmfvi.deploy.settings import NOTHING, settings_of

    if model is not None and model not in KINDS:
        raise ValueError(f"MODEL must be one of {sorted(KINDS)}, received {model!r}")
    for kind, estimator in KINDS.items():
        if model not in (None, kind):
            continue
        where = "" if kind in NETWORK_KINDS else ", one machine"
        shown = RichTable(title=f"{kind}: {estimator._data_form}{where}", title_justify="left")
        for name in ("setting", "type", "default"):
            shown.add_column(name)
        for name, needed in columns_of(estimator).items():
            shown.add_row(name, "name or number of a column", "" if needed else "left out")
        for name, each in settings_of(estimator).items():
            default = NOTHING if each.default is None else each.default
            shown.add_row(name, escape(each.words), str(default).lower())
        console.print(shown)


def _value(text: str) -> Any:
    """A value as TOML has it; what is none there is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _fit_here(
    chosen: ModelSettings,
    file: Path,
    topology: Topology,
    out: Path,
    header: bool | None,
    nodes: int | None,
) -> bool:
    """All nodes in this process. Whether they have converged."""
    from dmfvi.deploy.kinds import NETWORK_KINDS
    from dmfvi.readers.tables import Table, check_cells
    from dmfvi.storage import FILE_NAME, save

    alone = chosen.kind not in NETWORK_KINDS
    if nodes is None:
        nodes = 1 if alone else 5
    if nodes < 1 or (alone and nodes > 1):
        most = "1, it runs on one machine only" if alone else "at least 1"
        raise ValueError(f"--nodes of a {chosen.kind} must be {most}, received {nodes}")
    data = chosen.read(file, header)
    if isinstance(data, Table) and chosen.form != "tracks":
        check_cells(data, file)
    network = make_network(topology, nodes) if nodes > 1 else None
    fitted = chosen.fit(data, network, verbose=1)
    path = save(fitted, out / FILE_NAME, chosen.details(data))
    console.print(_summary(chosen.title, fitted, data, path))
    return bool(fitted.converged_)


def _summary(title: str, model: Any, data: Data, path: Path) -> RichTable:
    """What every estimator has to say of a fit, as far as it has it."""
    from dmfvi.deploy.data import described

    summary = RichTable(title=title, show_header=False)
    network = getattr(model, "network", None)
    rows = [described(data), ("network", "pooled" if network is None else network.name)]
    if hasattr(model, "n_rounds_"):
        rows.append(("rounds", f"{model.n_rounds_} (+ {model.n_start_rounds_} for the start)"))
    else:
        rows.append(("iterations", str(model.n_iter_)))
    rows.append(("converged", "yes" if model.converged_ else "NO: raise --max-iter"))
    if hasattr(model, "history_"):
        last = [model.history_[name][-1] for name in ("change", "disagreement")]
        rows.append(("change, disagreement", ", ".join(f"{v:.1e}" for v in last)))
        rows.append(("lower bound", f"{model.lower_bound_:.6g}"))
    if hasattr(model, "explained_variance_"):
        deviations = " ".join(f"{v:.3g}" for v in model.explained_variance_**0.5)
        rows.append(("noise deviation", f"{model.noise_precision_**-0.5:.4g}"))
        rows.append(("component deviations", deviations))
    for name, value in (*rows, ("saved", escape(str(path)))):
        summary.add_row(name, value)
    return summary
