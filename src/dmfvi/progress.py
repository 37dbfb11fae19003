"""Progress of a run on the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Record(Protocol):
    """What a progress display reads of a round."""

    round: int
    change: float
    disagreement: float
    objective: float


@contextmanager
def live_rounds(label: str, tol: float, max_rounds: int, shown: bool) -> Iterator[Any]:
    """A callable that takes each round's record and shows how far agreement has come."""
    if not shown:
        yield lambda record: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task(label, total=1.0, state="")

        def show(record: Record) -> None:
            worst = max(record.change, record.disagreement)
            # digits of agreement won, as a part of the digits asked for
            done = 0.0
            if math.isfinite(worst) and worst > 0:
                done = min(1.0, max(0.0, math.log10(worst) / math.log10(min(tol, 0.1))))
            state = f"round {record.round}/{max_rounds} change {record.change:.1e} disagreement {record.disagreement:.1e}"
            bar.update(task, completed=done, state=state)

        yield show


@contextmanager
def live_sweeps(label: str, total: int, shown: bool, done: int = 0) -> Iterator[Any]:
    """A callable (sweeps, record, held-out error or None) that shows sweeps done and the time left."""
    if not shown:
        yield lambda sweeps, record, error: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, completed=done, state="starting")

        def show(sweeps: int, record: Record, error: float | None) -> None:
            held_out = "" if error is None else f" held-out RMSE {error:.4f}"
            state = f"sweep {sweeps}/{total} change {record.change:.1e}{held_out}"
            bar.update(task, completed=sweeps, state=state)

        yield show
