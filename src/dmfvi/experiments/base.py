"""What an experiment is: cases that can be run separately, and a summary of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

#: plain numbers, words and lists: parameters of a case, and its results
Params = Mapping[str, Any]
Found = Mapping[str, Any]


class Outcome(NamedTuple):
    """One case and what it found."""

    params: Params
    found: Found


@dataclass(frozen=True)
class ResultTable:
    """Rows for the screen; the paper's numbers stand beside ours."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Summary:
    """Summary of all cases: figures by name ``system/case/metric``, and tables."""

    figures: dict[str, float]
    tables: list[ResultTable] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper.

    ``cases(full, data)`` lists the parameters of every case, ``run(params)`` runs one, ``summarise`` and ``draw``
    see all outcomes in that order. ``needs`` names the folder of ``data`` it reads, if any.
    """

    name: str
    title: str
    cases: Callable[[bool, Path | None], list[dict[str, Any]]]
    run: Callable[[Params], dict[str, Any]]
    summarise: Callable[[Sequence[Outcome]], Summary]
    draw: Callable[[Any, Sequence[Outcome]], None]  # on a matplotlib figure
    size: tuple[float, float] = (9.0, 5.0)
    needs: str | None = None


def select(outcomes: Sequence[Outcome], **wanted: Any) -> list[Outcome]:
    """The outcomes whose parameters have these values."""
    return [o for o in outcomes if all(o.params.get(k) == v for k, v in wanted.items())]


def values(outcomes: Sequence[Outcome], name: str) -> list[float]:
    """One number of each outcome."""
    return [float(o.found[name]) for o in outcomes if name in o.found]


def distinct(outcomes: Sequence[Outcome], name: str) -> list[Any]:
    """The values a parameter takes, in order of appearance."""
    return list(dict.fromkeys(o.params[name] for o in outcomes if name in o.params))
