"""Pictures of what was learned, by what the fitted estimator has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.report.picture import (
    BLUE,
    COLOURS,
    MARGINS,
    RED,
    Picture,
    plotly,
)

#: of intervals
LEVEL, Z = 0.9, 1.6449
#: rows, columns and bars at most: more cannot be read
MOST = 60


def posterior_pictures(model: Any) -> Iterator[Picture]:
    """Pictures of whatever the fitted estimator has."""
    for draw in (_coefficients, _components, _clusters, _transitions, _topics, _structure):
        yield from draw(model)


def _names(model: Any, count: int) -> list[str]:
    known: Any = getattr(model, "term_names_", None)
    known = getattr(model, "feature_names_in_", None) if known is None else known
    if known is not None and len(known) == count:
        return [str(name) for name in known]
    return [f"feature {place}" for place in range(count)]


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
    names = _names(model, rows.shape[1])[:MOST]
    for place, (row, spread) in enumerate(zip(rows, deviations, strict=True)):
        figure.add_scatter(
            x=row[:MOST].tolist(),
            y=names,
            mode="markers",
            name=f"class {place + 1}" if len(rows) > 1 else "",
            showlegend=len(rows) > 1,
            error_x={
                "type": "data",
                "array": (Z * spread[:MOST]).tolist(),
                "color": COLOURS[place % 7],
            },
            marker={"color": COLOURS[place % 7], "size": 8},
        )
    figure.add_vline(x=0.0, line={"color": "#8d99a6", "dash": "dot"})
    figure.update_xaxes(title="coefficient")
    figure.update_yaxes(autorange="reversed")
    yield Picture(
        "Coefficients",
        f"Posterior means and {LEVEL:.0%} intervals, per unit of each feature.",
        figure,
    )


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


def _components(model: Any) -> Iterator[Picture]:
    """Loadings, and the strength of each component."""
    strength = getattr(model, "explained_variance_", None)
    components = getattr(model, "components_", None)
    if strength is None or components is None or np.ndim(components) != 2:
        return
    go = plotly()
    shown = components[:MOST, :MOST]
    most = float(np.abs(shown).max()) or 1.0
    heat = go.Figure(layout={"margin": MARGINS})
    heat.add_heatmap(
        z=shown.tolist(),
        x=_names(model, components.shape[1])[:MOST],
        y=[f"component {k + 1}" for k in range(len(shown))],
        colorscale="RdBu",
        zmin=-most,
        zmax=most,
        colorbar={"title": "loading"},
    )
    heat.update_yaxes(autorange="reversed")
    yield Picture("Components", "Posterior means of the loadings, in the data's units.", heat)
    bars = go.Figure(layout={"margin": MARGINS})
    bars.add_bar(
        x=[str(k + 1) for k in range(len(strength))],
        y=np.asarray(strength).tolist(),
        marker={"color": BLUE},
    )
    by_feature = np.ndim(model.noise_variance_) > 0  # then strengths count noise variances
    noise = 1.0 if by_feature else float(model.noise_variance_)
    bars.add_hline(y=noise, line={"color": RED, "dash": "dot"}, annotation_text="noise")
    bars.update_xaxes(title="component")
    title = "explained variance" + (" / noise variance" if by_feature else "")
    bars.update_yaxes(title=title, rangemode="tozero")
    yield Picture(
        "Strength of the components",
        "Variance along each component, noise included. One at the noise level is switched off.",
        bars,
    )


def _clusters(model: Any) -> Iterator[Picture]:
    """Ellipses of Gaussian components over the first two features."""
    means, covariances = getattr(model, "means_", None), getattr(model, "covariances_", None)
    if means is None or covariances is None or np.shape(means)[1] < 2:
        return
    go = plotly()
    weights = getattr(model, "weights_", np.full(len(means), 1.0 / len(means)))
    angles = np.linspace(0.0, 2.0 * np.pi, 80)
    circle = np.sqrt(4.605) * np.stack([np.cos(angles), np.sin(angles)])
    figure = go.Figure(layout={"margin": MARGINS})
    for place, (mean, spread) in enumerate(zip(means, covariances, strict=True)):
        both = spread[:2, :2] if np.ndim(spread) == 2 else np.diag(spread[:2])
        x, y = np.linalg.cholesky(both) @ circle + mean[:2, None]
        colour, words = COLOURS[place % 7], f"{place}: weight {weights[place]:.2f}"
        figure.add_scatter(
            x=x.tolist(), y=y.tolist(), mode="lines", name=words, line={"color": colour}
        )
        figure.add_scatter(
            x=[float(mean[0])],
            y=[float(mean[1])],
            mode="markers",
            marker={"color": colour, "symbol": "cross"},
            showlegend=False,
        )
    first, second, *_ = _names(model, np.shape(means)[1])
    figure.update_xaxes(title=first)
    figure.update_yaxes(title=second)
    yield Picture(
        "Components",
        f"Regions that hold {LEVEL:.0%} of a component's rows, first two features.",
        figure,
    )


def _transitions(model: Any) -> Iterator[Picture]:
    """The transition matrix."""
    matrix = getattr(model, "transmat_", None)
    if matrix is None:
        return
    go = plotly()
    states = [f"state {k}" for k in range(len(matrix))]
    figure = go.Figure(layout={"margin": MARGINS})
    figure.add_heatmap(
        z=np.asarray(matrix).tolist(),
        x=states,
        y=states,
        colorscale="Blues",
        zmin=0,
        zmax=1,
        text=[[f"{v:.2f}" for v in row] for row in matrix],
        texttemplate="%{text}",
    )
    figure.update_xaxes(title="to")
    figure.update_yaxes(title="from", autorange="reversed")
    yield Picture("Transitions", "Posterior means of the transition probabilities.", figure)


def _topics(model: Any) -> Iterator[Picture]:
    """The most probable terms of each topic."""
    topics = getattr(model, "topic_word_", None)
    if topics is None:
        return
    go = plotly()
    names = np.array(_names(model, topics.shape[1]))
    figure = go.Figure(layout={"margin": {**MARGINS, "l": 140}})
    for place, row in enumerate(topics[:7]):
        best = np.argsort(-row)[:8]
        figure.add_bar(
            x=row[best].tolist(),
            y=[f"{names[k]} ({place + 1})" for k in best],
            orientation="h",
            name=f"topic {place + 1}",
            marker={"color": COLOURS[place % 7]},
        )
    figure.update_xaxes(title="probability", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    yield Picture(
        "Topics", "The eight most probable terms of each topic (the first seven topics).", figure
    )


def _structure(model: Any) -> Iterator[Picture]:
    """Points in space."""
    points = getattr(model, "structure_", None)
    if points is None or np.ndim(points) != 2 or np.shape(points)[1] != 3:
        return
    go = plotly()
    x, y, z = (np.asarray(points)[:, axis].tolist() for axis in range(3))
    figure = go.Figure(layout={"margin": {"l": 0, "r": 0, "t": 10, "b": 0}})
    figure.add_scatter3d(x=x, y=y, z=z, mode="markers", marker={"size": 3, "color": BLUE})
    figure.update_layout(scene={"aspectmode": "data"})
    yield Picture(
        "Structure", "Posterior means of the points, in units of the tracks; turn it.", figure
    )
