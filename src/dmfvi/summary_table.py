"""The table of a fit: term, estimate, deviation, interval, ratio; as text, HTML and DataFrame, and as a forest plot."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from dmfvi.extras import lacking
from dmfvi.linalg import FloatArray
from dmfvi.validation import check_level

#: columns of a terminal that tables keep to
WIDTH = 80
#: of a number with decimals; others have four significant digits, or as many as show the last decimal
LONGEST, MOST_DECIMALS, MOST_DIGITS = 10, 6, 12
#: decimals that rows may need more than others and still have as many
MOST_DIFFERENCE = 3
#: a limit this near to 1 is 1
SMALLEST_GAP = 1e-6


#: of HTML; lines and text have the colour of the page, which may be dark
LIGHT_RULE = "1px solid rgba(128,128,128,0.3)"
TABLE_STYLE = "border-collapse:collapse;color:inherit;font-variant-numeric:tabular-nums"
CAPTION_STYLE = "caption-side:top;text-align:left;padding:0.3em 0.7em"
NOTE_STYLE = "margin:0.3em 0.7em;font-size:90%"


#: decades of an axis of ratios: up to which its ticks are in even steps, and from which on they are powers of ten
SHORT_DECADES, LONG_DECADES = 0.7, 2.5


class Row(NamedTuple):
    """One term; ratios are exp(estimate) and the like, None where they mean nothing."""

    term: str
    estimate: float
    sd: float
    lower: float
    upper: float
    ratio: float | None
    ratio_lower: float | None
    ratio_upper: float | None


class SummaryTable(NamedTuple):
    """Rows with their title, facts of the fit, and what the ratio is called ("" for none)."""

    title: str
    facts: list[tuple[str, str]]
    level: float
    ratio: str
    rows: list[Row]
    notes: tuple[str, ...] = ()  # below the table
    panels: tuple[str, ...] = ()  # the quantity of each row, where rows have different units

    @property
    def columns(self) -> list[str]:
        """Names of the columns that are shown."""
        shown = ["term", "estimate", "sd", "lower", "upper"]
        return [*shown, "ratio", "ratio_lower", "ratio_upper"] if self.ratio else shown

    @property
    def facts_text(self) -> str:
        """The facts in one line."""
        return ", ".join(f"{name} {value}" for name, value in self.facts)

    def cells(self) -> list[list[str]]:
        """Numbers as text, the head first."""
        short = "".join(word[0].upper() for word in self.ratio.split())
        short = short if len(short) == 2 else "ratio"  # OR, RR, HR
        names = {"ratio_lower": f"{short} lower", "ratio_upper": f"{short} upper"}
        made = [[names.get(name, name) for name in self.columns]]
        made[0] = [self.ratio if name == "ratio" else name for name in made[0]]
        decimals = _decimals([_decimals_of(row) for row in self.rows])
        of_ratios = _decimals([_decimals_of_ratio(row) for row in self.rows])
        for row, digits, more in zip(self.rows, decimals, of_ratios, strict=True):
            cells = [number_words(value, digits) for value in row[1:5]]
            if self.ratio:
                cells += [number_words(value, more) for value in row[5:]]
            made.append([row.term, *cells])
        return made

    def text(self) -> str:
        """For a terminal."""
        lines = aligned(self.cells())
        facts = [self.facts_text] if self.facts else []
        rule = "-" * max(len(line) for line in lines)
        note = f"lower and upper: central {100 * self.level:g} % intervals of the posterior"
        head = [self.title, *facts, rule, lines[0], rule]
        return "\n".join([*head, *lines[1:], rule, note, *self.notes])

    def html(self) -> str:
        """For a notebook."""
        head, *body = self.cells()
        facts = self.facts_text
        lines = [
            f'<table style="{TABLE_STYLE}"><caption style="{CAPTION_STYLE}">{escape(self.title)}'
            f"{f'<br>{escape(facts)}' if facts else ''}</caption>",
            _html_row("th", head, rule="1px solid"),
            *(_html_row("td", row) for row in body),
        ]
        note = f"lower and upper: central {100 * self.level:g} % intervals of the posterior"
        notes = [f'<p style="{NOTE_STYLE}">{escape(each)}</p>' for each in (note, *self.notes)]
        return "\n".join([*lines, "</table>", *notes])

    def frame(self) -> Any:
        """As a pandas DataFrame, the terms as its index."""
        try:
            import pandas
        except ImportError as error:
            raise lacking("a frame", "pandas", "pandas") from error
        made = pandas.DataFrame(self.rows, columns=list(Row._fields)).set_index("term")
        return made[self.columns[1:]]

    def plot(self, ax: Any = None, intercept: bool | None = None) -> Any:
        """Estimates with their intervals, one line a term; ratios on a logarithmic axis where there are any.

        Without ``ax``, quantities of different kinds have an Axes each. An ``intercept`` of None is drawn unless ratios are.
        """
        import matplotlib.pyplot as plt

        with_intercept = not self.ratio if intercept is None else intercept
        shown = [
            (panel, row)
            for panel, row in zip(self.panels or [""] * len(self.rows), self.rows, strict=True)
            if (row.ratio is not None or not self.ratio)
            and (with_intercept or not _is_intercept(row))
        ]
        panels = {panel: [row for other, row in shown if other == panel] for panel, _ in shown}
        if ax is not None or len(panels) < 2:
            made = (
                plt.subplots(figsize=(6, 0.4 * len(shown) + 1), layout="constrained")[1]
                if ax is None
                else ax
            )
            self._draw(made, [row for _, row in shown])
            return made
        counts = [len(rows) for rows in panels.values()]
        size = (6, 0.4 * len(shown) + 0.8 * len(panels))
        each = plt.subplots(len(panels), figsize=size, height_ratios=counts, layout="constrained")[
            1
        ]
        for made, rows in zip(each, panels.values(), strict=True):
            self._draw(made, rows)
        for made in each[:-1]:
            made.set_xlabel("")
        return each

    def _draw(self, axes: Any, rows: list[Row]) -> None:
        """One line a row, the first on top."""
        ratios = bool(self.ratio)
        for position, row in enumerate(reversed(rows)):
            ends = np.array([row.lower, row.estimate, row.upper])
            ends = np.exp(np.minimum(ends, 700.0)) if ratios else ends
            axes.plot(ends[[0, 2]], [position, position], color="C0")
            axes.plot(ends[1:2], [position], "o", color="C0")
        if not self.panels:  # locations, weights and variances have no value that means nothing
            axes.axvline(1.0 if ratios else 0.0, color="grey", linewidth=0.8)
        axes.set_yticks(range(len(rows)), [row.term for row in reversed(rows)])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel(f"{self.ratio or 'estimate'} ({100 * self.level:g} % interval)")
        if ratios:
            _ratio_axis(axes)


def _is_intercept(row: Row) -> bool:
    """Also that of one class of several."""
    return row.term == "Intercept" or row.term.endswith(": Intercept")


def _ratio_axis(axes: Any) -> None:
    """A logarithmic axis with its ticks written out: 0.5, 1, 2; round numbers in steps where it is short."""
    from matplotlib import ticker

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades = np.log10(high / low)
    steps: Any = ticker.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
    if decades > SHORT_DECADES:
        subs = (1.0, 2.0, 5.0) if decades <= LONG_DECADES else (1.0,)
        steps = ticker.LogLocator(subs=subs, numticks=8)
    axes.xaxis.set_major_locator(steps)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:.6g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def _html_row(tag: str, cells: list[str], rule: str = LIGHT_RULE) -> str:
    """Text on the left, numbers on the right; styles are in the cells, where notebooks leave them."""
    made = []
    for position, cell in enumerate(cells):
        side = "left" if position == 0 else "right"
        style = f"text-align:{side};white-space:nowrap;padding:0.2em 0.7em;border-bottom:{rule}"
        made.append(f'<{tag} style="{style}">{escape(cell)}</{tag}>')
    return f"<tr>{''.join(made)}</tr>"


def number_words(value: float | None, decimals: int) -> str:
    """A cell: with these decimals, or with significant digits if it is too long or would be zero; "" if it is not known."""
    if value is None or np.isnan(value):
        return ""
    if not np.isfinite(value):
        return f"{value:g}"
    text = f"{value + 0.0:.{decimals}f}"  # no -0
    if len(text.lstrip("-")) > LONGEST or decimals > MOST_DECIMALS:
        before = int(np.floor(np.log10(abs(value)))) + 1 if value else 0
        digits = min(max(4, before + decimals), MOST_DIGITS) if before > 0 else 4
        short = f"{value:.{digits}g}"
        return f"{value:.7g}" if short == "1" else short
    return f"{value:.1g}" if value and not float(text) else text


def _decimals(needed: list[int | None]) -> list[int]:
    """One number of decimals for all rows, or each row's own where they differ a lot."""
    known = [count for count in needed if count is not None]
    most = max(known, default=0)
    if most - min(known, default=0) <= MOST_DIFFERENCE and most <= MOST_DECIMALS:
        return [most] * len(needed)
    return [most if count is None else count for count in needed]


def _decimals_of(row: Row) -> int | None:
    """Those that show three digits of the deviation, or four of an estimate without one."""
    if np.isfinite(row.sd) and row.sd > 0:
        return _to_show(3, row.sd)
    return _to_show(4, abs(row.estimate)) if np.isfinite(row.estimate) and row.estimate else None


def _decimals_of_ratio(row: Row) -> int | None:
    """Two or more, three digits of all three, and as many as tell a limit from 1."""
    ratios = [r for r in row[5:] if r is not None and np.isfinite(r) and r > 0]
    if not ratios:
        return None
    least = max(2, *(_to_show(3, value) for value in ratios))
    beside = [abs(value - 1.0) for value in ratios if value != 1.0]
    return max([least, *(_to_show(1, gap) for gap in beside if gap > SMALLEST_GAP)])


def _to_show(digits: int, size: float) -> int:
    """Decimals that show so many significant digits of a positive number."""
    return max(0, digits - 1 - int(np.floor(np.log10(size))))


def aligned(cells: list[list[str]]) -> list[str]:
    """Lines of a table with its first column on the left, in WIDTH where numbers leave room for that.

    Columns are two spaces apart, or one; a first cell that is still too long has a line of its own.
    """
    widths = [max(len(row[j]) for row in cells) for j in range(len(cells[0]))]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else 1
    room = WIDTH - sum(widths[1:]) - gap * (len(widths) - 1)
    first = max(min(widths[0], room), len(cells[0][0]))
    lines = []
    for name, *numbers in cells:
        alone = len(name) > first
        lines += [name] if alone else []
        right = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))
        lines.append((" " * gap).join([("" if alone else name).ljust(first), *right]).rstrip())
    return lines


def rows_of(
    terms: list[str],
    mean: FloatArray,
    deviation: FloatArray,
    half_width: Callable[[float], float],
    level: float,
    with_ratio: list[bool],
) -> list[Row]:
    """One row per term with central intervals mean -+ half_width(level) deviation."""
    check_level(level)
    reach = half_width(level) * deviation
    made = []
    for j, term in enumerate(terms):
        low, high = float(mean[j] - reach[j]), float(mean[j] + reach[j])
        ratios: list[float | None] = [None] * 3
        if with_ratio[j]:
            with np.errstate(over="ignore"):
                ratios = [float(np.exp(value)) for value in (mean[j], low, high)]
        made.append(Row(term, float(mean[j]), float(deviation[j]), low, high, *ratios))
    return made


def log_normal_row(term: str, mean: float, deviation: float, level: float) -> Row:
    """A positive quantity whose logarithm is N(mean, deviation^2): median, deviation and central interval."""
    check_level(level)
    reach = float(ndtri(0.5 + 0.5 * level)) * deviation
    with np.errstate(over="ignore"):
        low, middle, high = (float(np.exp(mean + step)) for step in (-reach, 0.0, reach))
        spread = middle * np.exp(0.5 * deviation**2) * np.sqrt(np.expm1(deviation**2))
    return Row(term, middle, float(spread), low, high, None, None, None)
