"""The command line of any estimator: dmfvi fit and dmfvi models."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from typer.core import TyperCommand

from dmfvi.cli.exit_codes import ExitCode
from dmfvi.cli.network import Topology, make_network
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
    column_of,
    reading_of,
)
from dmfvi.cli.output import (
    Json,
    Quiet,
    Verbose,
    check_files,
    check_folder,
    superseded_by_fit,
    tell,
    verbosity,
)
from dmfvi.cli.single_node import load_lean
from dmfvi.cli.words import read_parts
from dmfvi.storage.files import FILE_NAME

if TYPE_CHECKING:
    from dmfvi.deploy.kinds import ModelSettings
    from dmfvi.readers.tables import Reading

console = Console()


class CommandOfKinds(TyperCommand):
    """Its help names the kinds of models, for which all estimators are imported; its errors name settings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual; an unknown option that is a setting says how it is given."""
        known = {o for each in self.params for o in (*each.opts, *each.secondary_opts)}
        for word in args:
            option = word.partition("=")[0]
            if option.startswith("--") and option not in {*known, "--", "--help"}:
                _refuse_setting(option)
        return list(super().parse_args(ctx, args))

    def format_help(self, *arguments: Any) -> None:
        load_lean()
        from dmfvi.deploy.kinds import ALIASES, KINDS

        if "Kinds of models" not in str(self.help):
            kinds, short = ", ".join(KINDS), ", ".join(ALIASES)
            self.help = f"{self.help}\n\nKinds of models: {kinds}. Short names: {short}."
        super().format_help(*arguments)


#: columns and settings that people take for options; named here, because estimators take long to import
BY_SET = {
    **dict.fromkeys(("exposure", "offset", "weight", "trials"), "COLUMN"),
    **dict.fromkeys(("family", "link", "classes", "prior_precision", "noise", "ties"), "VALUE"),
}
OTHER_NAMES = {"weights": "weight", "sample_weight": "weight", "sample_weights": "weight"}


def _refuse_setting(option: str) -> None:
    """Say that what is no option is given by --set."""
    name = option.lstrip("-").replace("-", "_")
    name = OTHER_NAMES.get(name, name)
    if name in BY_SET:
        raise typer.BadParameter(f"{option} is no option, say --set {name}={BY_SET[name]}")


class Where(StrEnum):
    """Engines that the shell can start."""

    local = "local"
    mpi = "mpi"


def fit(
    data: Annotated[
        list[Path],
        typer.Argument(
            help="One file, or one per node: .csv, .tsv, .npy, .npz, .parquet, .feather, .xlsx; tracks and ratings as for "
            "dmfvi sfm and dmfvi ratings."
        ),
    ],
    model: Annotated[str, typer.Option(help="Kind of model, see above.")] = "bayesian-pca",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="name=value, a setting of the model or a further column (dmfvi models), as family=gamma, exposure=years, "
            "offset=, weight=, trials= or classes=low,mid,high; may be repeated.",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column to predict, its name or number from 1.")
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option(
            help="Formula of a regression, instead of --target: 'y ~ age + C(sex) * dose'."
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(help="Column of times until an event (survival models): name or number."),
    ] = None,
    event: Annotated[
        str | None,
        typer.Option(help="Column that is 1 for an event, 0 for a censored time."),
    ] = None,
    strata: Annotated[
        str | None,
        typer.Option(help="Column of strata, each with its own baseline hazard (Cox model)."),
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="Column of the groups of a mixed model, name or number.")
    ] = None,
    sequence: Annotated[
        str | None,
        typer.Option(help="Column that identifies sequences, its name or number from 1."),
    ] = None,
    components: Annotated[int | None, typer.Option(help="--set n_components=...")] = None,
    covariance: Annotated[str | None, typer.Option(help="--set covariance_type=...")] = None,
    tol: Annotated[float | None, typer.Option(help="Relative accuracy of the posterior.")] = None,
    max_iter: Annotated[
        int | None, typer.Option(help="Maximum number of sweeps over the data.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the start, 0 by default.", min=0, max=LARGEST_SEED),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="Number of nodes to split the rows over; by default one per file."),
    ] = None,
    topology: Annotated[Topology, typer.Option(help="Graph of the network.")] = Topology.ring,
    out: Annotated[
        Path,
        typer.Option(help="Directory of the model; mpi: rank 0's, or every rank's with {rank}."),
    ] = Path("dmfvi-model"),
    header: Header = None,
    separator: Separator = None,
    decimal: Decimal = ".",
    missing: Missing = None,
    percent: Percent = False,
    encoding: Encoding = "utf-8",
    columns: Columns = None,
    drop: Drop = None,
    id: Id = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    engine: Annotated[
        Where, typer.Option(help="local, or mpi: one node per rank, {rank} in DATA is its number.")
    ] = Where.local,
    checkpoint: Annotated[
        Path | None, typer.Option(help="mpi: folder of checkpoints, one per rank.")
    ] = None,
    every: Annotated[int, typer.Option(help="mpi: rounds between checkpoints.")] = 20,
    resume: Annotated[bool, typer.Option(help="mpi: continue from the checkpoints.")] = False,
) -> None:
    """Fit a model to a table: on one machine, one node per file, or split evenly over --nodes.

    The exit code is 4 if the fit has not converged; the model is saved anyway.

    Example: dmfvi fit site0.csv site1.csv --id patient --target outcome --model bayesian-logistic-regression
    """
    shown = verbosity(quiet, verbose, as_json)
    short = {
        "n_components": components,
        "covariance_type": covariance,
        "tol": tol,
        "max_iter": max_iter,
        "random_state": seed,
        "target": column_of(target),
        "time": column_of(time),
        "event": column_of(event),
        "strata": column_of(strata),
        "groups": column_of(groups),
        "sequence": column_of(sequence),
        "formula": formula,
    }
    given = {name: value for name, value in short.items() if value is not None}
    for text in settings or []:
        name, equals, value = text.partition("=")
        if not equals or name in given:
            problem = "is given twice" if equals else "is no name=value"
            raise ValueError(f"--set {text} {problem}")
        given[name] = _value(value)
    check_folder(Path(str(out).replace("{rank}", "0")))
    if engine is Where.local:
        check_files(*data)
    reading = reading_of(header, separator, decimal, missing, percent, encoding, columns, drop, id)
    load_lean()
    from dmfvi.deploy.kinds import ModelSettings

    with naming_options(given):
        chosen = ModelSettings.of(model, **given)
    if engine is Where.mpi:
        from dmfvi.cli.mpi import fit_rank

        if len(data) > 1:
            raise ValueError("--engine mpi takes one file name, with {rank} where the rank goes")
        ended = fit_rank(
            chosen, data[0], topology, out, reading, checkpoint, every, resume, nodes, shown
        )
    elif checkpoint is not None or resume:
        raise ValueError("--checkpoint and --resume are for --engine mpi")
    else:
        with superseded_by_fit(out / FILE_NAME), naming_options(chosen.settings):
            ended = _fit_here(chosen, data, topology, out, reading, nodes, as_json, shown)
    if not ended:
        raise typer.Exit(ExitCode.NOT_CONVERGED)


def models(
    model: Annotated[str | None, typer.Argument(help="One kind; all of them by default.")] = None,
) -> None:
    """List the models of dmfvi fit and dmfvi node, with their settings.

    Example: dmfvi models gaussian-hmm
    """
    load_lean()
    from dmfvi.deploy.kinds import KINDS, NETWORK_KINDS, columns_of, kind_named
    from dmfvi.deploy.settings import NOTHING, settings_of

    if model is not None:
        try:
            model = kind_named(model)
        except ValueError as error:
            raise ValueError(str(error).replace("kind", "MODEL", 1)) from None
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


#: parameters that have an option of their own
OPTIONS = {
    "n_components": "--components",
    "covariance_type": "--covariance",
    "tol": "--tol",
    "max_iter": "--max-iter",
    "random_state": "--seed",
    "target": "--target",
    "time": "--time",
    "event": "--event",
    "strata": "--strata",
    "groups": "--groups",
    "sequence": "--sequence",
    "formula": "--formula",
    "kind": "--model",
}
NEEDED = re.compile(r"(a [a-z-]+ needs )(target|time|event|groups|sequence)\b")


@contextmanager
def naming_options(settings: Iterable[str] = ()) -> Iterator[None]:
    """Errors that begin with a parameter name the option that sets it."""
    try:
        yield
    except ValueError as error:
        text = NEEDED.sub(lambda found: found[1] + OPTIONS[found[2]], str(error))
        text = text.replace("--time and event, not target", "--time and --event, not --target")
        name = re.match(r"\w+", text)
        if name is not None and re.match(r"( must|=| = | of a)", text[name.end() :]):
            if name[0] in OPTIONS:
                text = OPTIONS[name[0]] + text[name.end() :]
            elif name[0] in settings:
                text = f"--set {text}"
        if text == str(error):
            raise
        raise ValueError(text) from error


def _value(text: str) -> Any:
    """A value as TOML has it; what is none there is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _fit_here(
    chosen: ModelSettings,
    files: list[Path],
    topology: Topology,
    out: Path,
    reading: Reading,
    nodes: int | None,
    as_json: bool,
    shown: int,
) -> bool:
    """All nodes in this process. Whether they have converged."""
    from dmfvi.deploy.data import described, in_one_order
    from dmfvi.deploy.kinds import NETWORK_KINDS
    from dmfvi.parameters import keep_table
    from dmfvi.readers.tables import Table, check_cells
    from dmfvi.storage.models import save_or_keep

    n_nodes = _number_of_nodes(chosen.kind, chosen.kind not in NETWORK_KINDS, files, nodes)
    network = make_network(topology, n_nodes) if n_nodes > 1 else None
    parts, left_out = read_parts(chosen, files, reading)
    tables = [part for part in parts if isinstance(part, Table)]
    if tables and chosen.form != "tracks":
        tables = in_one_order(tables, [str(file) for file in files])
        for table, file in zip(tables, files, strict=True):
            check_cells(table, file, allow_empty=len(files) > 1)
        parts = [*tables]
    if len(files) == 1:
        fitted = chosen.fit(parts[0], network, verbose=shown)
    else:
        fitted = chosen.fit_parts(parts, network, verbose=shown)
    details = chosen.details(parts[0]) | {"files": [str(file) for file in files]}
    if left_out:
        details["left_out"] = left_out
    keep_table(fitted)
    path = save_or_keep(fitted, out / FILE_NAME, details)
    dropped = getattr(fitted, "n_dropped_", 0)
    used = described(parts, chosen.form, chosen.beside, dropped, fitted._has_features)
    if left_out:
        used.append(("columns left out", left_out, f"{', '.join(left_out)} (text)"))
    tell(chosen.title, [*used, *facts_of_fit(fitted, path)], as_json)
    if hasattr(fitted, "coef_") and not as_json:
        hint = f"table of coefficients: dmfvi show {shlex.quote(str(out))}"
        console.print(escape(hint), soft_wrap=True, highlight=False)
    return bool(fitted._ended_well)


def _number_of_nodes(kind: str, alone: bool, files: list[Path], nodes: int | None) -> int:
    same = [file.resolve() for file in files]  # links too
    twice = {str(file) for file, real in zip(files, same, strict=True) if same.count(real) > 1}
    if twice:
        raise ValueError(f"DATA names {min(twice)} twice: a node's rows would count twice")
    if len(files) > 1 and nodes not in (None, len(files)):
        raise ValueError(f"--nodes {nodes} with {len(files)} files: a file is a node, leave it out")
    n_nodes = len(files) if nodes is None else nodes
    if n_nodes < 1 or (alone and n_nodes > 1):
        most = "1, it runs on one machine only" if alone else "at least 1"
        raise ValueError(f"--nodes of a {kind} must be {most}, received {n_nodes}")
    return n_nodes


def converged_words(model: Any, option: str = "--max-iter") -> str:
    """For people."""
    if model.converged_:
        return "yes"
    if not model._ended_well:
        return f"NO: raise {option}"
    change = float(model.history_["change"][-1])
    if not isfinite(change):
        return f"no: one sweep cannot tell, raise {option}"
    return f"no: the last sweep changed the posterior by {change:.1e}, more sweeps ({option}) go on"


def facts_of_fit(model: Any, path: Path) -> list[tuple[str, Any, str]]:
    """What every estimator has to say of a fit, as far as it has it."""
    network = getattr(model, "network", None)
    where = "pooled" if network is None else network.name
    rows: list[tuple[str, Any, str]] = [("network", where, where)]
    if hasattr(model, "n_rounds_"):
        told = f"{model.n_rounds_} (+ {model.n_start_rounds_} for the start)"
        rows.append(("rounds", model.n_rounds_, told))
    rows.append(("iterations", model.n_iter_, str(model.n_iter_)))
    rows.append(
        (
            "converged",
            bool(model.converged_),
            converged_words(model),
        )
    )
    if hasattr(model, "history_"):
        for each in ("change", "disagreement"):
            last = float(model.history_[each][-1])
            rows.append((each, last, f"{last:.1e}"))
        rows.append(("lower bound", model.lower_bound_, f"{model.lower_bound_:.6g}"))
    if hasattr(model, "explained_variance_"):
        noise = model.noise_precision_**-0.5
        shown = " ".join(f"{v:.3g}" for v in noise) if getattr(noise, "ndim", 0) else f"{noise:.4g}"
        rows.append(("noise deviation", noise, shown))
        deviations = model.explained_variance_**0.5
        shown = " ".join(f"{v:.3g}" for v in deviations)
        unit = ", in noise deviations" if getattr(noise, "ndim", 0) else ""
        rows.append(("component deviations", deviations, shown + unit))
    return [*rows, ("saved", str(path), str(path))]
