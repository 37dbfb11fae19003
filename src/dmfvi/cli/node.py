"""The command line of real networks: dmfvi node, keys, launch."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table as RichTable

from dmfvi.cli.exit_codes import ExitCode
from dmfvi.cli.output import check_folder
from dmfvi.cli.single_node import (
    NOT_CONVERGED,
    PARTIAL,
    STATUS_FILE,
    Arguments,
    LogLevel,
    load_lean,
    run,
)
from dmfvi.lifetime import exit_on_termination, on_interrupt

if TYPE_CHECKING:
    from dmfvi.deploy.config import NodeConfig

console = Console()
keys_app = typer.Typer(
    no_args_is_help=True,
    help="A small certificate authority for a cluster.\n\nExample: dmfvi keys init keys",
)
#: loaded once for all nodes of a machine
SHARED_MODULES = ("dmfvi.deploy.program", "zenoh", "cryptography.x509")
#: with a result
ENDED_WELL = (0, ExitCode.PARTIAL, ExitCode.NOT_CONVERGED)


Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Allow unencrypted messages, on loopback only, for a test."),
]


def node(
    config: Annotated[Path, typer.Option(help="The node's TOML file.")],
    insecure: Insecure = False,
    log_level: Annotated[
        LogLevel, typer.Option(help="Level of the log on standard error.")
    ] = LogLevel.info,
) -> None:
    """Run one node: connect to the neighbours, fit, and save a copy of the posterior.

    SIGTERM or Ctrl-C makes the node leave: the others continue without its data. The exit code is 3 if data of a node
    are missing from the result, and 4 if the fit has not converged; the result is saved anyway.

    Example: dmfvi node --config node.toml
    """
    code = run(Arguments(config, insecure, log_level))
    if code is not ExitCode.DONE:
        raise typer.Exit(code)


@keys_app.command("init")
def keys_init(
    folder: Annotated[Path, typer.Argument(help="Folder for the authority's key and certificate.")],
    name: Annotated[str, typer.Option(help="Name in the authority's certificate.")] = "dmfvi",
) -> None:
    """Create a certificate authority; keep its ca.key offline, give ca.pem to every node.

    Example: dmfvi keys init keys
    """
    from dmfvi.engines.net.keys import init_authority

    check_folder(folder, "FOLDER")
    console.print(f"authority: {escape(str(init_authority(folder, name)))}")


@keys_app.command("issue")
def keys_issue(
    folder: Annotated[Path, typer.Argument(help="The authority's folder.")],
    node: Annotated[int, typer.Option(help="The node's id.")],
    host: Annotated[list[str], typer.Option(help="Its host name or address; may be repeated.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; by default in the folder.")
    ] = None,
    days: Annotated[int, typer.Option(help="Days of validity.")] = 365,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a certificate that is no longer used.")
    ] = False,
) -> None:
    """Issue a node's certificate and key.

    Example: dmfvi keys issue keys --node 0 --host 10.0.0.10 --out for-node-0
    """
    import datetime as dt

    from dmfvi.engines.net.keys import issue

    if days < 1:
        raise ValueError(f"--days must be at least 1, received {days}")
    if out is not None:
        check_folder(out)
    certificate, key = issue(folder, node, host, out, dt.timedelta(days=days), replace)
    console.print(f"certificate: {escape(str(certificate))}, key: {escape(str(key))}")


def launch(
    cluster: Annotated[Path, typer.Argument(help="TOML file with a list: nodes = [...].")],
    insecure: Insecure = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds after which all nodes are stopped.")
    ] = 3600.0,
) -> None:
    """Start all nodes of a file on this machine, for a test, with a live table.

    The file lists the nodes' own files: nodes = ["node0.toml", "node1.toml"]. All nodes end with this command.

    Example: dmfvi launch cluster.toml --insecure
    """
    # nodes of one machine share its cores, and what is loaded before they are forked
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not timeout > 0:
        raise ValueError(f"--timeout must be positive, received {timeout}")
    files = _node_files(cluster)
    load_lean()
    from dmfvi.cli.children import end_all, start_command
    from dmfvi.deploy.config import read_config
    from dmfvi.engines.net.zenoh import require

    require()
    settings = {file: read_config(file, insecure) for file in files}
    check_together(settings)
    exit_on_termination()
    flags = ["--insecure"] if insecure else []
    for each in settings.values():
        (each.out / STATUS_FILE).unlink(missing_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="dmfvi-launch-"))
    for module in SHARED_MODULES:
        with suppress(ImportError):  # a node says what is missing
            import_module(module)
    gc.freeze()  # a collection would write to, and so copy, what the nodes share
    running = {
        file: start_command(["node", "--config", str(file), *flags], folder / f"{position}.err")
        for position, file in enumerate(files)
    }
    deadline = time.monotonic() + timeout
    try:
        with (
            on_interrupt(
                "all nodes are stopped, folders of nodes that were done hold their models"
            ),
            Live(console=console, refresh_per_second=4) as live,
        ):
            while any(p.is_alive() for p in running.values()):
                live.update(_table(settings, running))
                if _never_began(settings, running):
                    break  # the others would wait for it
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not done after {timeout:g} seconds: all nodes are stopped")
                time.sleep(0.25)
            live.update(_table(settings, running))
    finally:
        if not console.is_terminal:  # where the table lacks its last end of line
            console.print()
        stopped = {file for file, process in running.items() if process.is_alive()}
        end_all(running.values())
        words = [_last_words(folder / f"{position}.err") for position in range(len(files))]
        shutil.rmtree(folder, ignore_errors=True)
    failed = [
        f"{file}: {said}"
        for (file, process), said in zip(running.items(), words, strict=True)
        if process.exitcode not in ENDED_WELL and file not in stopped
    ]
    if failed:
        others = f"\nthe other {len(stopped)} nodes were stopped" if stopped else ""
        raise ValueError("nodes failed\n" + "\n".join(failed) + others)
    worst = max(process.exitcode or 0 for process in running.values())
    if worst:
        print(
            NOT_CONVERGED if worst == ExitCode.NOT_CONVERGED else _partial(settings),
            file=sys.stderr,
        )
        raise typer.Exit(worst)


def _partial(settings: Mapping[Path, NodeConfig]) -> str:
    """Whose data are missing, as the nodes say."""
    told = [_status(config.out / STATUS_FILE).get("missing") or [] for config in settings.values()]
    who = sorted({each["node"] for missing in told for each in missing})
    return f"{PARTIAL}: the data of nodes {who} are not in it"


def _never_began(settings: Mapping[Path, NodeConfig], running: Mapping[Path, Any]) -> bool:
    """Whether a node has failed before it took part in a fit."""
    return any(
        process.exitcode is not None
        and process.exitcode not in ENDED_WELL
        and not _status(settings[file].out / STATUS_FILE).get("rounds")
        for file, process in running.items()
    )


def check_together(settings: Mapping[Path, NodeConfig]) -> None:
    """Nodes of one machine need ids, ports and folders of their own, and must name each other as they are."""
    kinds: tuple[tuple[str, Callable[[NodeConfig], Any]], ...] = (
        ("id", lambda c: c.node),
        ("listen", lambda c: c.listen),
        ("out", lambda c: str(c.out.resolve())),
        ("data", lambda c: str(c.data.resolve())),
    )
    for what, of in kinds:
        seen: dict[Any, Path] = {}
        for file, config in settings.items():
            if of(config) in seen:
                raise ValueError(
                    f"{seen[of(config)]} and {file} have the same {what} {of(config)!r}: every node needs its own"
                )
            seen[of(config)] = file
    addresses = {config.node: config.listen for config in settings.values()}
    for file, config in settings.items():
        if not config.data.exists():
            raise FileNotFoundError(f"{file}: data {config.data} does not exist")
        for peer, address in config.peers.items():
            if peer in addresses and addresses[peer] != address:
                raise ValueError(
                    f"{file}: [peers] says that node {peer} listens at {address}, it listens at {addresses[peer]}"
                )


def _last_words(path: Path) -> str:
    """The end of what a node wrote to its error stream."""
    return " ".join(path.read_text(errors="replace").split())[-500:]


def _node_files(cluster: Path) -> list[Path]:
    if not cluster.exists():
        raise FileNotFoundError(f"{cluster} does not exist")
    try:
        content = tomllib.loads(cluster.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{cluster} is not a TOML file: {error}") from error
    names = content.get("nodes")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(f'{cluster} needs a list: nodes = ["node0.toml", "node1.toml"]')
    files = [cluster.parent / name for name in names]
    resolved = [file.resolve() for file in files]
    twice = [file for file in files if resolved.count(file.resolve()) > 1]
    if twice:
        raise ValueError(f"{cluster} lists {twice[0]} twice: every node has a file of its own")
    return files


#: of the table of nodes, in 80 columns of a terminal; refused messages are added where there are any
COLUMNS = (
    "node",
    "state",
    "members",
    "round",
    "change",
    "disagreement",
    "objective",
    "left",
    "sent",
)


def _table(settings: dict[Path, Any], running: dict[Path, Any]) -> RichTable:
    table = RichTable(title="nodes", box=SIMPLE, padding=0)
    found = {file: _status(config.out / STATUS_FILE) for file, config in settings.items()}
    refused = {file: sum(status.get("refused", {}).values()) for file, status in found.items()}
    shown = (*COLUMNS, "refused") if any(refused.values()) else COLUMNS
    for name in shown:
        table.add_column(name, justify="right")
    for file, config in settings.items():
        status, code = found[file], running[file].exitcode
        cells = (
            str(config.node),
            status.get("state", "starting") if not code else f"ended with {code}",
            " ".join(str(v) for v in status.get("members", [])),
            str(status.get("rounds", "")),
            _shown(status.get("change"), ".1e"),
            _shown(status.get("disagreement"), ".1e"),
            _shown(status.get("objective"), ".6g"),
            _shown(status.get("seconds_left"), ".0f", " s"),
            f"{status.get('sent_bytes', 0) / 1e6:.2f} MB",
            str(refused[file]),
        )
        table.add_row(*cells[: len(shown)])
    return table


def _shown(value: float | None, form: str, unit: str = "") -> str:
    """Empty where it is not known."""
    return "" if value is None else f"{value:{form}}{unit}"


def _status(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
