"""Progress of a run: a bar or a table on a terminal, plain lines elsewhere, or one JSON object per line.

All of it goes to standard error, so that standard output is the result alone.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

#: seconds between two plain lines
LINE_EVERY = 5.0
#: the part of a run that must be done before the rest is estimated
LEAST_DONE = 0.02
#: nodes that a table shows
MOST_ROWS = 24
#: whether progress is written for programs
_as_json: ContextVar[bool] = ContextVar("progress_as_json", default=False)
#: who is told that a fit begins
_told: list[Callable[[], None]] = []


class Record(Protocol):
    """What a progress display reads of a round."""

    @property
    def round(self) -> int: ...
    @property
    def change(self) -> float: ...
    @property
    def disagreement(self) -> float: ...
    @property
    def objective(self) -> float: ...
    @property
    def nodes(self) -> Sequence[Any]: ...


class Show(Protocol):
    """Takes what is to be shown: numbers by name, the part that is done, and the nodes' rounds."""

    def __call__(self, facts: dict[str, Any], done: float, nodes: Sequence[Any] = ()) -> None: ...


def use_json_lines(asked: bool = True) -> None:
    """From now on progress is one JSON object per line, for programs, or for people again."""
    _as_json.set(asked)


@contextmanager
def told_of_fits(tell: Callable[[], None]) -> Iterator[None]:
    """``tell`` is called when a fit within begins its first round: settings and data have been checked by then."""
    _told.append(tell)
    try:
        yield
    finally:
        _told.remove(tell)


@contextmanager
def live_rounds(
    label: str, tol: float, max_rounds: int, verbose: int, names: Sequence[Any] = ()
) -> Iterator[Callable[[Record], None]]:
    """A callable that takes each round's record and shows how far agreement has come.

    ``verbose`` 0 shows nothing, 1 a line, 2 a row for each node; ``names`` are the nodes'.
    """
    with _display(label, int(verbose), names) as show:
        advance = Advance(tol)

        def take(record: Record) -> None:
            facts = {
                "round": record.round,
                "max_rounds": max_rounds,
                "change": record.change,
                "disagreement": record.disagreement,
                "objective": record.objective,
            }
            show(facts, advance.take(record), record.nodes)

        yield take


@contextmanager
def live_sweeps(label: str, total: int, verbose: int, done: int = 0) -> Iterator[Any]:
    """A callable (sweeps, record, held-out error or None) that shows sweeps done and the time left."""
    with _display(label, int(verbose), ()) as show:

        def take(sweeps: int, record: Record, error: float | None) -> None:
            facts: dict[str, Any] = {"sweep": sweeps, "max_iter": total, "change": record.change}
            if error is not None:
                facts["held_out_rmse"] = error
            show(facts, (sweeps - done) / max(1, total - done), record.nodes)

        yield take


@contextmanager
def live_draws(label: str, verbose: int) -> Iterator[Callable[[int, int], None]]:
    """A callable (draws done, draws in all) that shows them and the time left."""
    with _display(label, int(verbose), ()) as show:
        yield lambda done, total: show({"draws": done, "max_draws": total}, done / total)


@contextmanager
def _display(label: str, verbose: int, names: Sequence[Any]) -> Iterator[Show]:
    for tell in reversed(_told):
        tell()
    if verbose <= 0:
        yield lambda facts, done, nodes=(): None
        return
    if _as_json.get():
        yield _json_writer(label, names)
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        with _plain_lines(label, 0.0 if verbose > 1 else LINE_EVERY) as show:
            yield show
    elif verbose > 1:
        with _table(label, console, names) as show:
            yield show
    else:
        with _bar(label, console) as show:
            yield show


class Advance:
    """The digits of agreement that a fit has won, as a part of those asked for."""

    def __init__(self, tol: float) -> None:
        self.tol, self.done = tol, 0.0

    def take(self, record: Record) -> float:
        """The part that is done after this round; it never falls."""
        worst = max(record.change, record.disagreement)
        if math.isfinite(worst) and worst > 0:
            won = math.log10(worst) / math.log10(min(self.tol, 0.1))
            self.done = max(self.done, min(1.0, won))
        return self.done


class Pace:
    """How long a run has taken, and is going to take if it goes on like that.

    Time in which nothing was done yet, such as reading data, compiling and first sweeps, says nothing of the rest.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.began = self.advanced = clock()

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self.clock() - self.began

    def left(self, done: float) -> float | None:
        """Seconds to go where this part is done; None where too little is to tell."""
        if done <= 0.0:
            self.advanced = self.clock()
        if done < LEAST_DONE:
            return None
        return (self.clock() - self.advanced) * (1.0 - done) / done


def _json_writer(label: str, names: Sequence[Any]) -> Show:
    pace = Pace()

    def show(facts: dict[str, Any], done: float, nodes: Sequence[Any] = ()) -> None:
        said: dict[str, Any] = {"event": "progress", "label": label, **facts, "done": done}
        said |= {"seconds": round(pace.spent, 3), "seconds_left": pace.left(done)}
        if nodes:
            said["nodes"] = [
                {"node": name, **each._asdict()}
                for name, each in zip(_named(names, nodes), nodes, strict=True)
            ]
        print(json.dumps(_finite(said), default=str), file=sys.stderr, flush=True)

    return show


def _finite(value: Any) -> Any:
    """As JSON has it: what is not finite is null."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, float) or hasattr(value, "item"):
        return float(value) if math.isfinite(value) else None
    return value


@contextmanager
def _plain_lines(label: str, every: float) -> Iterator[Show]:
    """A line now and then, and one for the end."""
    pace = Pace()
    last: list[Any] = [-math.inf, ""]  # when something was written, and what was not

    def show(facts: dict[str, Any], done: float, nodes: Sequence[Any] = ()) -> None:
        last[1] = f"{label}: {_in_words(facts)}{_time_left(pace, done)}"
        if pace.spent - last[0] >= every:
            print(last[1], file=sys.stderr, flush=True)
            last[:] = [pace.spent, ""]

    yield show
    if last[1]:
        print(last[1], file=sys.stderr, flush=True)


@contextmanager
def _bar(label: str, console: Any) -> Iterator[Show]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    pace = Pace()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=1.0, state="starting")

        def show(facts: dict[str, Any], done: float, nodes: Sequence[Any] = ()) -> None:
            bar.update(task, completed=done, state=_in_words(facts) + _time_left(pace, done))

        yield show


@contextmanager
def _table(label: str, console: Any, names: Sequence[Any]) -> Iterator[Show]:
    """One row for each node, drawn anew four times a second."""
    from rich.console import Group
    from rich.live import Live
    from rich.markup import escape
    from rich.table import Table

    pace = Pace()
    latest: list[Any] = []

    def drawn() -> Any:
        facts, done, nodes = latest or [{}, 0.0, ()]
        words = f"{_in_words(facts)}{_time_left(pace, done)}" or "starting"
        table = Table()
        for head in ("node", "change", "disagreement", "share of the sum"):
            table.add_column(head, justify="right")
        for name, each in list(zip(_named(names, nodes), nodes, strict=True))[:MOST_ROWS]:
            row = (_brief(each.change), _brief(each.disagreement), f"{each.known:.0%}")
            table.add_row(escape(str(name)), *row)
        if len(nodes) > MOST_ROWS:
            table.caption = f"and {len(nodes) - MOST_ROWS} more nodes"
        return Group(escape(f"{label}: {words}"), table)

    with Live(console=console, get_renderable=drawn, refresh_per_second=4):

        def show(facts: dict[str, Any], done: float, nodes: Sequence[Any] = ()) -> None:
            latest[:] = [facts, done, nodes]

        yield show


def _brief(value: float) -> str:
    """A relative number; it is infinite before the first sweep."""
    return f"{value:.1e}" if math.isfinite(value) else "-"


def _named(names: Sequence[Any], nodes: Sequence[Any]) -> Sequence[Any]:
    return names if len(names) == len(nodes) else range(len(nodes))


def _in_words(facts: dict[str, Any]) -> str:
    words: list[str] = []
    for name, value in facts.items():
        if isinstance(value, float) and math.isnan(value):
            continue  # not known yet: the bound of a network's first round
        if name.startswith("max_"):
            words[-1] += f"/{value}"
        elif isinstance(value, float):
            if not math.isfinite(value):
                continue  # not known yet
            shown = f"{value:.1e}" if name in ("change", "disagreement") else f"{value:.6g}"
            words.append(f"{name.replace('_', ' ')} {shown}")
        else:
            words.append(f"{name.replace('_', ' ')} {value}")
    return " ".join(words)


def _time_left(pace: Pace, done: float) -> str:
    left = pace.left(done)
    return "" if left is None or done >= 1.0 or left < 1.0 else f" about {left:.0f} s left"
