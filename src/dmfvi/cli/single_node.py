"""One node of a network as a program, without the libraries of the other commands: they are memory that every node would take."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from dmfvi.cli.exit_codes import ExitCode
from dmfvi.extras import defer, left_out
from dmfvi.lifetime import exit_on_termination
from dmfvi.storage.files import write_text

STATUS_FILE = "status.json"
NOT_CONVERGED = "NOT converged: raise max_iter in [model]"
PARTIAL = "the result is PARTIAL"


class LogLevel(StrEnum):
    """Of the logging module."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class Arguments(NamedTuple):
    """Those of ``dmfvi node``."""

    config: Path
    insecure: bool = False
    log_level: LogLevel = LogLevel.info


def plain(given: Sequence[str]) -> Arguments | None:
    """The arguments of a plain ``dmfvi node --config FILE [--insecure] [--log-level LEVEL]``.

    None for all other commands and for whatever needs an answer in words: the parser of all commands has them.
    """
    if not given or given[0] != "node":
        return None
    found: dict[str, str] = {}
    rest = list(given[1:])
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--insecure" and not equals:
            value = "yes"
        elif name not in ("--config", "--log-level"):
            return None
        elif not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("-") else ""
        if name in found or not value:
            return None
        found[name] = value
    level = found.get("--log-level", LogLevel.info)
    if "--config" not in found or level not in tuple(LogLevel):
        return None
    return Arguments(Path(found["--config"]), "--insecure" in found, LogLevel(level))


def load_lean() -> None:
    """Load scikit-learn without what nodes do not need, or only for some models."""
    for module in ("scipy.stats", "scipy.optimize", "networkx"):
        defer(module)
    with left_out("pandas"):
        import_module("sklearn.utils.fixes")


def run(given: Arguments) -> ExitCode:
    """Run the node to its end; its status is in a file meanwhile."""
    if not given.config.exists():
        raise FileNotFoundError(f"{given.config} does not exist")
    load_lean()
    from dmfvi.deploy.config import read_config
    from dmfvi.deploy.program import Status, finite, run_node

    logging.basicConfig(
        level=given.log_level.value.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    settings = read_config(given.config, given.insecure)
    exit_on_termination()

    unwritten: list[OSError] = []

    def show(status: Status) -> None:
        content = status._asdict()
        for name in ("change", "disagreement"):
            content[name] = finite(content[name])
        try:
            write_text(settings.out / STATUS_FILE, json.dumps(content))
        except OSError as reason:
            if not unwritten:
                logging.getLogger(__name__).warning(
                    "%s cannot be written: %s", settings.out / STATUS_FILE, reason
                )
            unwritten.append(reason)

    began: list[str] = []

    def watch(status: Status) -> None:
        show(status)
        line = f"node {status.node}: {status.state}, members {status.members}"
        if [line] != began[-1:]:
            began.append(line)
            print(line, file=sys.stderr, flush=True)

    ended = run_node(settings, watch)
    print(f"posterior: {ended.path}", flush=True)
    if ended.missing:
        who = [each["node"] for each in ended.missing]
        print(f"{PARTIAL}: the data of nodes {who} are not in it", file=sys.stderr)
    if not ended.converged:
        print(NOT_CONVERGED, file=sys.stderr)
        return ExitCode.NOT_CONVERGED
    return ExitCode.PARTIAL if ended.missing else ExitCode.DONE
