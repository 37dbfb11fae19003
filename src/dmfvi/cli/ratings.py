"""The command line for ratings: dmfvi ratings fit, predict, recommend."""

from __future__ import annotations

import csv
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from dmfvi.cli.exit_codes import ExitCode
from dmfvi.cli.fit import Where, converged_words
from dmfvi.cli.network import Topology
from dmfvi.cli.options import LARGEST_SEED
from dmfvi.cli.output import (
    Json,
    Quiet,
    Verbose,
    check_file,
    check_files,
    check_folder,
    check_level,
    superseded_by_fit,
    target_beside,
    tell,
    verbosity,
)
from dmfvi.cli.single_node import load_lean
from dmfvi.lifetime import on_interrupt
from dmfvi.storage.files import FILE_NAME, model_file, replacing_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dmfvi.models.ratings.checkpoint import Checkpoint
    from dmfvi.models.ratings.estimator import RatingFactorization
    from dmfvi.models.ratings.table import RatingTable
    from dmfvi.models.ratings.validation import Evaluation

app = typer.Typer(
    no_args_is_help=True,
    help="Factorize rating matrices, with uncertainty: fit, predict, recommend.\n\n"
    "Example: dmfvi ratings fit ratings.csv --out model",
)
console = Console()
#: seconds between checkpoints
CHECKPOINT_EVERY = 20.0
LEVEL = 0.9
#: lines of predictions written at a time
WRITE_ROWS = 100_000


class Noise(StrEnum):
    """Whose noise level."""

    user = "user"
    shared = "shared"


class Strategy(StrEnum):
    """How to rank items."""

    mean = "mean"
    ucb = "ucb"
    thompson = "thompson"


Columns = Annotated[
    str | None, typer.Option(help="Columns of user, item and rating: 'who,what,stars'.")
]


@app.command()
def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="Netflix directory or file, MovieLens u.data, ratings.dat or ratings.csv, .csv, .parquet, .npz of "
            "scipy.sparse.save_npz or of numpy.savez(users=, items=, ratings=)."
        ),
    ],
    components: Annotated[int, typer.Option(help="Rank.")] = 12,
    nodes: Annotated[
        int, typer.Option(help="Number of nodes to split the users over; 1 is pooled.")
    ] = 1,
    topology: Annotated[Topology, typer.Option(help="Graph of the network.")] = Topology.ring,
    out: Annotated[Path, typer.Option(help="Directory of the model.")] = Path("dmfvi-ratings"),
    sweeps: Annotated[
        int, typer.Option(help="Number of sweeps over all ratings; the maximum with --tol.")
    ] = 20,
    tol: Annotated[
        float | None,
        typer.Option(
            help="Stop when a sweep changes the items by less than this, for example 1e-3."
        ),
    ] = None,
    top_n: Annotated[
        int | None, typer.Option(help="Also compute recall and NDCG of this many best items.")
    ] = None,
    holdout: Annotated[float, typer.Option(help="Fraction of the ratings to hold out.")] = 0.0,
    probe: Annotated[
        Path | None, typer.Option(help="File that names the ratings to hold out.")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help=".csv for predictions of the held-out ratings.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Continue from the checkpoint in --out.")] = False,
    noise: Annotated[
        Noise, typer.Option(help="One noise level per user, or one for all.")
    ] = Noise.user,
    choice_features: Annotated[
        int, typer.Option(help="Coordinates of who rates what for the prior means.")
    ] = 16,
    low: Annotated[float | None, typer.Option(help="Lowest rating of the scale.")] = None,
    high: Annotated[float | None, typer.Option(help="Highest rating of the scale.")] = None,
    columns: Columns = None,
    text_ids: Annotated[bool | None, typer.Option(help="Ids are text.")] = None,
    cache: Annotated[bool, typer.Option(help="Keep a compact copy of parsed ratings.")] = True,
    seed: Annotated[
        int, typer.Option(help="Seed of the start and of the hold-out.", min=0, max=LARGEST_SEED)
    ] = 0,
    engine: Annotated[
        Where,
        typer.Option(
            help="mpi: one node per rank under mpiexec, each with a file part-{rank}.csv."
        ),
    ] = Where.local,
    every: Annotated[int, typer.Option(help="Rounds between checkpoints of a rank (mpi).")] = 20,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit a Bayesian factorization; Ctrl-C keeps a checkpoint, --resume continues from it.

    The exit code is 4 if --tol was not met; the model is saved anyway.

    Example: dmfvi ratings fit ratings.csv --components 8 --holdout 0.1 --out model
    """
    shown = verbosity(quiet, verbose, as_json)
    _check_fit(components, sweeps, tol, top_n, bool(holdout) or probe is not None)
    _check_options(data, nodes, holdout, probe, predictions, out, low, high)
    load_lean()
    from dmfvi.cli.rating_ranks import Placement, one_process, one_rank, over_all_ranks
    from dmfvi.models.ratings.checkpoint import CHECKPOINT_FILE, save_checkpoint
    from dmfvi.models.ratings.estimator import RatingFactorization
    from dmfvi.storage.models import save_or_keep

    settings: dict[str, Any] = {
        "components": components,
        "nodes": nodes,
        "topology": topology.value,
        "engine": engine.value,
        "holdout": holdout,
        "probe": None if probe is None else str(probe.resolve()),
        "noise": noise.value,
        "choice_features": choice_features,
        "seed": seed,
    }
    process = (one_rank if engine is Where.mpi else one_process)(
        Placement(data, out, probe, predictions), nodes, topology
    )
    data, out, probe, predictions = process.data, process.out, process.probe, process.predictions
    checkpoint = _checkpoint(out, settings) if resume and process.alone else None
    with superseded_by_fit(out / FILE_NAME):
        table = _read(data, columns, text_ids, cache, quiet=process.rank > 0 or as_json or quiet)
        held = _held_out(table, holdout, probe, seed + process.rank)
        train = table if held is None else table[~held]
        test = None if held is None else table[held]
        del table
        model = RatingFactorization(
            components,
            network=process.federation(train, settings, every, resume),
            noise=noise.value,
            n_choice_features=choice_features,
            max_iter=sweeps,
            tol=tol,
            rating_scale=None if low is None or high is None else (low, high),
            random_state=seed,
            verbose=shown if process.rank == 0 else 0,
        )
        latest: list[Checkpoint] = []
        written = [time.monotonic()]

        def keep(current: Checkpoint) -> None:
            if not process.alone:  # the engine keeps its own checkpoints
                return
            latest[:] = [current._replace(settings=json.dumps(settings))]
            if time.monotonic() - written[0] > CHECKPOINT_EVERY:
                save_checkpoint(latest[0], out)
                written[0] = time.monotonic()

        if process.rank > 0:  # once is enough
            warnings.filterwarnings("ignore", message=".*have no rating")
        asked = None if test is None else _ids(test)
        with on_interrupt(lambda: _interrupted(model, latest, out) if process.alone else ""):
            model.fit(train, held_out=asked, on_sweep=keep, resume=checkpoint)
        path = save_or_keep(model, out / FILE_NAME)
    (out / CHECKPOINT_FILE).unlink(missing_ok=True)
    score = None if asked is None else model.evaluate(*asked, level=LEVEL, top_n=top_n)
    if score is not None and not process.alone:
        score = over_all_ranks(score)
    process.forget(model.network)
    if process.rank == 0:
        title = "Ratings" if process.size == 1 else f"Ratings of rank 0, one of {process.size}"
        tell(title, _facts(model, train, score, path, process.size), as_json)
    if predictions is not None and asked is not None:
        _write_predictions(model, asked[0], asked[1], predictions, LEVEL)
    if not model._ended_well:
        raise typer.Exit(ExitCode.NOT_CONVERGED)


@app.command()
def predict(
    pairs: Annotated[
        Path, typer.Argument(help="Users and items: .csv, tabs, '::', or a Netflix probe.")
    ],
    model: Annotated[Path, typer.Option(help="Directory that dmfvi ratings fit wrote.")],
    out: Annotated[
        Path | None, typer.Option(help=".csv to write. By default beside the pairs.")
    ] = None,
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = LEVEL,
) -> None:
    """Predict ratings with deviations and intervals, under your own ids.

    Example: dmfvi ratings predict pairs.csv --model model
    """
    check_level(level)
    target = target_beside(pairs, out, ".predicted.csv", (".csv",))
    check_files(pairs, model_file(model))
    load_lean()
    from dmfvi.models.ratings.estimator import RatingFactorization
    from dmfvi.readers.ratings import read_pairs
    from dmfvi.storage import load

    fitted = load(model, RatingFactorization)
    users, items = read_pairs(pairs)
    _write_predictions(fitted, users, items, target, level)


@app.command()
def recommend(
    model: Annotated[Path, typer.Option(help="Directory that dmfvi ratings fit wrote.")],
    user: Annotated[str | None, typer.Option(help="User to recommend items to.")] = None,
    users: Annotated[
        str | None,
        typer.Option(help="File with one user per line, or all; results are written to --out."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help=".csv of the recommendations.")] = None,
    n: Annotated[int, typer.Option(help="Number of items.")] = 10,
    strategy: Annotated[
        Strategy,
        typer.Option(help="Expected rating, its upper confidence bound, or a posterior draw."),
    ] = Strategy.mean,
    seed: Annotated[int, typer.Option(help="Seed of the draw.", min=0, max=LARGEST_SEED)] = 0,
) -> None:
    """Recommend items that a user has not rated yet, for one user or for many in a file.

    Example: dmfvi ratings recommend --model model --users all --out best.csv
    """
    if (user is None) == (users is None):
        raise ValueError("--user names one user, --users a file or all: give one of them")
    if n < 1:
        raise ValueError(f"--n must be at least 1, received {n}")
    if (out is None) != (users is None):
        raise ValueError("--users and --out go together: recommendations for many go to a file")
    if out is not None:
        check_file(out, (".csv",))
    model_file(model)  # says at once where there is none
    load_lean()
    from dmfvi.models.ratings.estimator import RatingFactorization
    from dmfvi.storage import load

    fitted = load(model, RatingFactorization)
    if out is not None:
        people = fitted.user_ids_.tolist() if users == "all" else _people(Path(str(users)))
        with replacing_table(out) as writer:
            writer.writerow(["user", "rank", "item", "rating", "uncertainty", "score"])
            for who in people:
                best = fitted.recommend(who, n, strategy.value, random_state=seed)
                for rank, (item, *numbers) in enumerate(zip(*best, strict=True), 1):
                    writer.writerow([who, rank, item, *(f"{v:.4f}" for v in numbers)])
        console.print(f"recommendations for {len(people)} users: {escape(str(out))}")
        return
    best = fitted.recommend(user, n, strategy.value, random_state=seed)
    table = RichTable(title=f"For user {escape(str(user))}, by {strategy.value}")
    for name in ("item", "rating", "uncertainty", "score"):
        table.add_column(name, justify="right")
    for item, rating, std, score in zip(*best, strict=True):
        table.add_row(escape(str(item)), f"{rating:.2f}", f"{std:.2f}", f"{score:.2f}")
    console.print(table)


def _people(file: Path) -> list[Any]:
    """Users of a file, in the first cell of each line; a first line that says user is a heading."""
    if not file.exists():
        raise FileNotFoundError(f"--users {file} does not exist: give a file, or the word all")
    with file.open(newline="", encoding="utf-8-sig") as handle:
        found = [row[0].strip() for row in csv.reader(handle) if row and row[0].strip()]
    if found and found[0].lower() in ("user", "user_id", "userid", "users"):
        found = found[1:]
    if not found:
        raise ValueError(f"--users {file} names nobody")
    return found


# -- helpers ------------------------------------------------------------------------------


def _check_fit(
    components: int, sweeps: int, tol: float | None, top_n: int | None, held_out: bool
) -> None:
    """Settings of the model, under the names of their options."""
    if top_n is not None and not held_out:
        raise ValueError("--top-n needs --holdout or --probe: nothing is held out")
    if top_n is not None and top_n < 1:
        raise ValueError(f"--top-n must be at least 1, received {top_n}")
    if tol is not None and not 0 < tol < float("inf"):
        raise ValueError(f"--tol must be positive and finite, received {tol}")
    if sweeps < 1:
        raise ValueError(f"--sweeps must be at least 1, received {sweeps}")
    if not 1 <= components <= 32:
        raise ValueError(f"--components must be 1 to 32, received {components}")


def _check_options(
    data: Path,
    nodes: int,
    holdout: float,
    probe: Path | None,
    predictions: Path | None,
    out: Path,
    low: float | None,
    high: float | None,
) -> None:
    """Everything that can be refused before a long reading; a file that is numbered by rank is found by its rank."""
    if nodes < 1:
        raise ValueError(f"--nodes must be at least 1, received {nodes}")
    if not 0 <= holdout < 1:
        raise ValueError(f"--holdout must lie in [0, 1), received {holdout}")
    if holdout and probe is not None:
        raise ValueError("--holdout and --probe both say what to hold out: give one of them")
    if predictions is not None and not holdout and probe is None:
        raise ValueError("--predictions needs --holdout or --probe: nothing is held out")
    check_folder(out)
    if predictions is not None:
        check_file(predictions, (".csv",), "--predictions")
    if (low is None) != (high is None):
        raise ValueError("--low and --high go together: give both ends of the scale")
    for name, file in (("", data), ("--probe ", probe)):
        if file is not None and "{rank}" not in str(file) and not file.exists():
            raise FileNotFoundError(f"{name}{file} does not exist")


def _checkpoint(out: Path, settings: dict[str, Any]) -> Checkpoint:
    from dmfvi.models.ratings.checkpoint import load_checkpoint

    checkpoint = load_checkpoint(out)
    before = json.loads(checkpoint.settings) if checkpoint.settings else settings
    changed = [
        f"--{name.replace('_', '-')} was {before.get(name)}, is {value}"
        for name, value in settings.items()
        if before.get(name) != value
    ]
    if changed:
        raise ValueError(
            f"the checkpoint in {out} is of another fit ({'; '.join(changed)}): "
            "resume with the options that it began with"
        )
    return checkpoint


def _read(
    data: Path, columns: str | None, text_ids: bool | None, cache: bool, quiet: bool = False
) -> RatingTable:
    from dmfvi.readers.ratings import read_ratings

    named = None
    if columns is not None:
        parts = [part.strip() for part in columns.split(",")]
        if len(parts) != 3:
            raise ValueError(
                f"--columns needs three names, user, item and rating, received {columns!r}"
            )
        named = (parts[0], parts[1], parts[2])
    with _bytes_bar(f"reading {data.name}", quiet) as progress:
        return read_ratings(data, columns=named, text_ids=text_ids, cache=cache, progress=progress)


@contextmanager
def _bytes_bar(label: str, quiet: bool) -> Iterator[Any]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, disable=quiet or not screen.is_terminal) as bar:
        task = bar.add_task(escape(label), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _held_out(
    table: RatingTable, holdout: float, probe: Path | None, seed: int
) -> NDArray[np.bool_] | None:
    import numpy as np

    from dmfvi.readers.ratings import read_probe

    if probe is not None:
        held = read_probe(probe, table)
    elif holdout:
        held = np.random.default_rng(seed).random(len(table), dtype=np.float32) < holdout
        if not held.any():
            raise ValueError(f"--holdout {holdout} of {len(table)} ratings is none: hold out more")
    else:
        return None
    if held.all():
        raise ValueError("every rating is held out: nothing is left to learn from")
    return held


def _ids(test: RatingTable) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    return test.user_ids[test.users], test.item_ids[test.items], test.ratings.astype("float64")


def _interrupted(model: RatingFactorization, latest: list[Checkpoint], out: Path) -> str:
    """Keep what was learned, and say what it is."""
    from dmfvi.models.ratings.checkpoint import save_checkpoint
    from dmfvi.storage import save

    if not latest:
        return "before the first sweep was done, nothing to keep"
    save_checkpoint(latest[0], out)
    if hasattr(model, "converged_"):  # set last: the model is whole
        save(model, out / FILE_NAME)
    sweeps = f"sweep {latest[0].sweeps} of {latest[0].max_sweeps}"
    return f"after {sweeps}, what was learned is in {out}, --resume goes on"


def _facts(
    model: RatingFactorization,
    table: RatingTable,
    score: Evaluation | None,
    path: Path,
    ranks: int,
) -> list[tuple[str, Any, str]]:
    import numpy as np

    sizes = f"{len(model.user_ids_)} x {len(model.item_ids_)}"
    where = "pooled" if model.network is None else str(getattr(model.network, "name", "network"))
    deviations = model.component_deviations_
    n_ratings = model._sizes[2]  # repeated ones count once
    rows: list[tuple[str, Any, str]] = [
        ("users x items", sizes, sizes),
        ("ratings", n_ratings, f"{n_ratings}, mean {model.rating_mean_:.3f}"),
        ("network", where, where),
        ("sweeps", model.n_iter_, str(model.n_iter_)),
        ("converged", bool(model.converged_), converged_words(model, "--sweeps")),
    ]
    known = np.isfinite(model.lower_bound_)
    bound = f"{model.lower_bound_:.8g}" if known else "known from the second sweep on"
    rows += [
        ("lower bound", model.lower_bound_, bound),
        ("noise deviation", model.noise_deviation_, f"{model.noise_deviation_:.3f}"),
        ("component deviations", deviations, " ".join(f"{v:.2g}" for v in deviations)),
    ]
    if score is not None:
        new = f"{score.n_unknown_users} users and {score.n_unknown_items} items without one in the fit"
        rows += [
            (
                "held out" if ranks == 1 else "held out, all ranks",
                score.n_ratings,
                f"{score.n_ratings} ratings, {score.n_unknown} of them of {new}",
            ),
            ("held-out RMSE", score.rmse, f"{score.rmse:.4f}"),
            (f"{LEVEL:.0%} intervals cover", score.coverage, f"{score.coverage:.1%}"),
        ]
        if score.recall is not None and score.ndcg is not None:
            rows.append(("recall of the best", score.recall, f"{score.recall:.1%}"))
            rows.append(("NDCG of the best", score.ndcg, f"{score.ndcg:.4f}"))
    return [*rows, ("saved", str(path), str(path))]


def _write_predictions(
    model: RatingFactorization,
    users: NDArray[Any],
    items: NDArray[Any],
    target: Path,
    level: float,
) -> None:
    """user, item, rating, std and interval, whole or not at all."""
    mean, std = model.predict(users, items, return_std=True)
    low, high = model.predict_interval(users, items, level, quiet=True)
    with replacing_table(target) as writer:
        writer.writerow(["user", "item", "rating", "std", "low", "high"])
        for begin in range(0, len(mean), WRITE_ROWS):
            part = slice(begin, begin + WRITE_ROWS)
            numbers = [v[part].round(4).tolist() for v in (mean, std, low, high)]
            writer.writerows(zip(users[part].tolist(), items[part].tolist(), *numbers, strict=True))
    console.print(f"{len(mean)} predictions: {escape(str(target))}")
