"""Posterior densities of single parameters: of the table's, or from draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.report.picture import BLUE, MARGINS, MENU, MOST, Picture, Z, plotly, shortened
from dmfvi.summary_table import Row, SummaryTable

#: points of a density, over this many deviations to each side
POINTS, REACH = 81, 4.0
#: draws of a density, and the part of them that is not shown at each end
DRAWS, TAIL = 2000, 0.002
#: numbers of which the largest are drawn: the most probable terms, the items that are liked most
LARGEST_FIRST = ("topics", "item_means")
#: names of axes in space, of points
AXES = {"structure_dim_1": ["x", "y", "z"]}


def densities(model: Any, table: SummaryTable | None) -> Iterator[Picture]:
    """Those of the table where there is one; else those of the posterior that draws come from."""
    if table is not None and any(row.sd > 0 for row in table.rows):
        rows = [row for row in table.rows if row.sd > 0][:MOST]
        words = (
            "Drawn from the intervals of the estimates: a normal density, or that of a parameter whose logarithm or logit is "
            "normal where the interval is skewed."
        )
        yield _picture([(row.term, *density_of(row)) for row in rows], words)
        return
    # a point estimate has no draws, and a survival curve is drawn with its intervals
    if hasattr(model, "survival_function_"):
        return
    try:
        draws = model._draws(np.random.default_rng(0), DRAWS)
    except (ValueError, NotImplementedError):
        return
    chosen = _chosen(draws, AXES | model._feature_labels(draws))
    if chosen:
        words = f"From {DRAWS:,} draws of the fitted posterior. That of a mean-field approximation may be too narrow."
        yield _picture([(name, *_smoothed(values)) for name, values in chosen], words)


def _chosen(
    draws: dict[str, FloatArray], labels: dict[str, list[str]]
) -> list[tuple[str, FloatArray]]:
    """At most MOST single numbers with their names, and their draws."""
    found: list[tuple[str, FloatArray]] = []
    for name, values in draws.items():
        places = [*np.ndindex(values.shape[1:])]
        if name in LARGEST_FIRST:
            means = values.mean(0)
            places.sort(key=lambda at, means=means: -means[at])  # type: ignore[misc]
        for at in places[: MOST - len(found)]:
            words = [
                _label(labels.get(f"{name}_dim_{axis}"), index) for axis, index in enumerate(at)
            ]
            own = values[(slice(None), *at)]
            if own.std() > 0:
                found.append((" ".join([name, *words]), own))
    return found


def _label(names: list[str] | None, index: int) -> str:
    """That of a column where the fit had names, else its number."""
    return str(index) if names is None else names[index]


def _smoothed(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A kernel estimate between the outermost quantiles; of positive numbers in their logarithms, so that it ends at zero."""
    from scipy.stats import gaussian_kde

    low, high = np.quantile(values, [TAIL, 1.0 - TAIL])
    steps = np.linspace(0.0, 1.0, POINTS)
    if values.min() <= 0.0:
        x = low + (high - low) * steps
        return x, np.asarray(gaussian_kde(values)(x))
    x = low + (high - low) * steps**2  # more of them near zero, where such a density may be steep
    return x, np.asarray(gaussian_kde(np.log(values))(np.log(x)) / x)


def _picture(curves: Sequence[tuple[str, FloatArray, FloatArray]], words: str) -> Picture:
    """One density at a time, chosen by its name: parameters have different units."""
    figure = plotly().Figure(layout={"margin": {**MARGINS, "t": 60}})
    for position, (name, x, y) in enumerate(curves):
        figure.add_scatter(
            x=x.tolist(),
            y=y.tolist(),
            fill="tozeroy",
            mode="lines",
            name=name,
            visible=position == 0,
            line={"color": BLUE},
            hovertemplate="%{x:.4g}<extra></extra>",
        )
    buttons = [
        {
            "label": shortened(name, 34),
            "method": "update",
            "args": [{"visible": [k == position for k in range(len(curves))]}],
        }
        for position, (name, _, _) in enumerate(curves)
    ]
    figure.update_layout(updatemenus=[{"buttons": buttons, **MENU}], showlegend=False)
    figure.update_xaxes(title="value")
    figure.update_yaxes(title="density", rangemode="tozero")
    return Picture("Posterior densities", f"{words} Choose a parameter in the list.", figure)


def density_of(row: Row) -> tuple[FloatArray, FloatArray]:
    """Normal in the scale in which the row's interval is symmetric, and as wide as the interval."""
    if row.sd <= 0:
        return np.array([row.estimate, row.estimate]), np.array([0.0, 1.0])
    z = np.linspace(-REACH, REACH, POINTS)
    normal = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    scale = _scale_of(row)
    low, high = scale.there(row.lower), scale.there(row.upper)
    width = (high - low) / (2.0 * Z)
    x = scale.back(0.5 * (low + high) + width * z)
    shown = (
        x <= 2.0 * row.upper - row.lower
    )  # a long tail would leave nothing of the rest to be seen
    return x[shown], (normal / width * scale.slope(x))[shown]


class _Scale(NamedTuple):
    """A change of variable, its inverse and its derivative."""

    there: Callable[[Any], Any]
    back: Callable[[Any], Any]
    slope: Callable[[Any], Any]


#: from this asymmetry on an interval of positive numbers is not that of a normal
SKEWED = 0.1
PLAIN = _Scale(lambda x: x, lambda y: y, np.ones_like)
LOGARITHM = _Scale(np.log, np.exp, lambda x: 1.0 / x)
LOGIT = _Scale(
    lambda x: np.log(x / (1.0 - x)),
    lambda y: 1.0 / (1.0 + np.exp(-y)),
    lambda x: 1.0 / (x * (1.0 - x)),
)


def _scale_of(row: Row) -> _Scale:
    """The scale in which the interval is the most symmetric."""
    known = [PLAIN]
    if row.lower > 0:
        known += [LOGIT, LOGARITHM] if row.upper < 1 else [LOGARITHM]

    def asymmetry(scale: _Scale) -> float:
        low, middle, high = (float(scale.there(v)) for v in (row.lower, row.estimate, row.upper))
        return abs(low + high - 2.0 * middle) / (high - low)

    if (
        len(known) > 1 and asymmetry(PLAIN) > SKEWED
    ):  # not normal: its density must not reach below zero
        known.remove(PLAIN)
    return min(known, key=asymmetry)
