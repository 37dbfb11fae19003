"""A forest plot: coefficients with their intervals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.report.picture import (
    ABOVE,
    COLOURS,
    GREY,
    LEVEL,
    MARGINS,
    MOST,
    Picture,
    Z,
    feature_names,
    plotly,
    shortened,
)

#: pixels of a coefficient, and of a figure without its coefficients
LINE, REST = 22, 110
#: part of the distance between terms over which the classes are spread
SPREAD = 0.6


def coefficients(model: Any) -> Iterator[Picture]:
    """Means and intervals, one line a term, or one for each class."""
    found = getattr(model, "coef_", None)
    if found is None:
        return
    rows = np.atleast_2d(found)
    deviations = np.atleast_2d(getattr(model, "coef_std_", np.full(rows.shape, np.nan)))
    if not np.isfinite(deviations).all():
        deviations = _deviations(model, rows)
    names = feature_names(model, rows.shape[1])[:MOST]
    at = np.arange(len(names))
    figure = plotly().Figure(layout={"margin": {**MARGINS, "l": 20}})
    for position, (label, row, spread) in enumerate(
        zip(_labels(model, len(rows)), rows[:, :MOST], deviations[:, :MOST], strict=True)
    ):
        shift = SPREAD * ((position + 0.5) / len(rows) - 0.5)
        ends = np.stack([row - Z * spread, row + Z * spread], axis=1)
        figure.add_scatter(
            x=row.tolist(),
            y=(at + shift).tolist(),
            mode="markers",
            name=label,
            showlegend=len(rows) > 1,
            error_x={
                "type": "data",
                "array": (Z * spread).tolist(),
                "color": COLOURS[position % 7],
            },
            marker={"color": COLOURS[position % 7], "size": 8},
            text=[
                f"{name}{f', {label}' if label else ''}: {value:.4g} ({low:.4g} to {high:.4g})"
                for name, value, (low, high) in zip(names, row, ends, strict=True)
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    figure.add_vline(x=0.0, line={"color": GREY, "dash": "dot"})
    figure.update_layout(legend=ABOVE)
    figure.update_xaxes(title="coefficient")
    figure.update_yaxes(
        tickvals=at.tolist(),
        ticktext=[shortened(name) for name in names],
        range=[len(names) - 0.5, -0.5],
        automargin=True,
        zeroline=False,
    )
    left_out = f" The first {MOST} of {rows.shape[1]}." if rows.shape[1] > MOST else ""
    yield Picture(
        "Coefficients",
        f"Posterior means and {LEVEL:.0%} intervals, per unit of each feature.{left_out}",
        figure,
        height=max(220, REST + LINE * len(names) * max(1, round(SPREAD * len(rows)))),
    )


def _labels(model: Any, count: int) -> list[str]:
    """Names of the classes, where each has coefficients of its own."""
    if count == 1:
        return [""]
    classes = getattr(model, "classes_", ())
    return (
        [str(each) for each in classes]
        if len(classes) == count
        else [f"class {position + 1}" for position in range(count)]
    )


def _deviations(model: Any, rows: FloatArray) -> FloatArray:
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
