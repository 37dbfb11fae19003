"""Pictures of what was learned, by what the fitted estimator has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.report.factor_pictures import components, items, structure
from dmfvi.report.group_pictures import clusters, states_over_time, topics, transitions
from dmfvi.report.picture import (
    BLUE,
    COLOURS,
    LEVEL,
    MARGINS,
    MOST,
    Picture,
    Z,
    feature_names,
    plotly,
)
from dmfvi.summary_table import Row, SummaryTable

#: points of a density, over this many deviations to each side
POINTS, REACH = 81, 4.0


def posterior_pictures(model: Any) -> Iterator[Picture]:
    """Pictures of whatever the fitted estimator has."""
    drawn = (
        _coefficients,
        _survival,
        components,
        clusters,
        transitions,
        states_over_time,
        topics,
        structure,
        items,
    )
    for draw in drawn:
        yield from draw(model)
    table = table_of(model)
    if table is not None and table.rows:
        yield _densities(table)


def table_of(model: Any) -> SummaryTable | None:
    """The table of parameters, where the model can tell it here."""
    return model._parameter_table(LEVEL) if getattr(model, "_has_table", False) else None


def _coefficients(model: Any) -> Iterator[Picture]:
    """A forest plot."""
    coefficients = getattr(model, "coef_", None)
    if coefficients is None:
        return
    go = plotly()
    rows = np.atleast_2d(coefficients)
    deviations = np.atleast_2d(getattr(model, "coef_std_", np.full(rows.shape, np.nan)))
    if not np.isfinite(deviations).all():
        deviations = _coefficient_deviations(model, rows)
    figure = go.Figure(layout={"margin": {**MARGINS, "l": 140}})
    names = feature_names(model, rows.shape[1])[:MOST]
    for position, (row, spread) in enumerate(zip(rows, deviations, strict=True)):
        figure.add_scatter(
            x=row[:MOST].tolist(),
            y=names,
            mode="markers",
            name=f"class {position + 1}" if len(rows) > 1 else "",
            showlegend=len(rows) > 1,
            error_x={
                "type": "data",
                "array": (Z * spread[:MOST]).tolist(),
                "color": COLOURS[position % 7],
            },
            marker={"color": COLOURS[position % 7], "size": 8},
        )
    figure.add_vline(x=0.0, line={"color": "#8d99a6", "dash": "dot"})
    figure.update_xaxes(title="coefficient")
    figure.update_yaxes(autorange="reversed")
    yield Picture(
        "Coefficients",
        f"Posterior means and {LEVEL:.0%} intervals, per unit of each feature.",
        figure,
    )


def _survival(model: Any) -> Iterator[Picture]:
    """A survival curve with its intervals, by steps."""
    if not hasattr(model, "survival_function_") or not hasattr(model, "timeline_"):
        return
    figure = plotly().Figure(layout={"margin": MARGINS, "showlegend": False})
    times = [0.0, *model.timeline_.tolist()]
    low, high = model.confidence_interval(LEVEL)
    step = {"shape": "hv", "color": BLUE}
    for ends, fill in ((low, None), (high, "tonexty")):
        band = {"line": {**step, "width": 0}, "fill": fill, "mode": "lines", "hoverinfo": "skip"}
        figure.add_scatter(x=times, y=[1.0, *ends.tolist()], **band)
    alive = [1.0, *model.survival_function_.tolist()]
    figure.add_scatter(x=times, y=alive, line={**step, "width": 2}, mode="lines")
    figure.update_xaxes(title="time")
    figure.update_yaxes(title="probability to survive", range=[0.0, 1.02])
    middle = model.median_survival_time_
    median = f" Half survive {middle:.4g}." if np.isfinite(middle) else " More than half survive."
    yield Picture("Survival", f"Kaplan-Meier curve with {LEVEL:.0%} intervals.{median}", figure)


def _coefficient_deviations(model: Any, rows: FloatArray) -> FloatArray:
    """Posterior standard deviations of the coefficients, zero where they are not known."""
    covariance = getattr(model, "coef_covariance_", None)
    if covariance is None:
        p = model.posterior_.parameters() if hasattr(model.posterior_, "parameters") else {}
        covariance = p.get("covariance")
    if covariance is None:
        return np.zeros_like(rows)
    variances = np.diagonal(np.asarray(covariance), axis1=-2, axis2=-1)
    variances = np.atleast_2d(variances)[:, : rows.shape[1]]
    return np.sqrt(variances) if variances.shape == rows.shape else np.zeros_like(rows)


def _densities(table: SummaryTable) -> Picture:
    """One density at a time, chosen by its name: parameters have different units."""
    figure = plotly().Figure(layout={"margin": {**MARGINS, "t": 60}})
    rows = table.rows[:MOST]
    for position, row in enumerate(rows):
        x, y = _density(row)
        figure.add_scatter(
            x=x.tolist(),
            y=y.tolist(),
            fill="tozeroy",
            mode="lines",
            name=row.term,
            visible=position == 0,
            line={"color": COLOURS[0]},
        )
    buttons = [
        {
            "label": row.term,
            "method": "update",
            "args": [{"visible": [k == position for k in range(len(rows))]}],
        }
        for position, row in enumerate(rows)
    ]
    menu = {"buttons": buttons, "x": 0.0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    figure.update_layout(updatemenus=[menu], showlegend=False)
    figure.update_xaxes(title="value")
    figure.update_yaxes(title="density", rangemode="tozero")
    return Picture(
        "Posterior densities",
        "As wide as the table's intervals: normal, or normal for the logarithm or logit where an interval is symmetric there.",
        figure,
    )


def _density(row: Row) -> tuple[FloatArray, FloatArray]:
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
