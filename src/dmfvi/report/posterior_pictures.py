"""Pictures of what was learned, by what the fitted estimator has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmfvi.report.densities import densities
from dmfvi.report.factor_pictures import components, items, structure
from dmfvi.report.forest import coefficients
from dmfvi.report.group_pictures import clusters, states_over_time, topics, transitions
from dmfvi.report.picture import BLUE, LEVEL, MARGINS, Picture, plotly
from dmfvi.summary_table import SummaryTable


def posterior_pictures(model: Any) -> Iterator[Picture]:
    """Pictures of whatever the fitted estimator has."""
    drawn = (
        coefficients,
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
    yield from densities(model, table_of(model))


def table_of(model: Any) -> SummaryTable | None:
    """The table of parameters, where the model can tell it here."""
    return model._parameter_table(LEVEL) if getattr(model, "_has_table", False) else None


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
