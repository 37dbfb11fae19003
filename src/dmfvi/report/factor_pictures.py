"""Pictures of factors: components of PCA, points of structure from motion, items of ratings."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.report.picture import (
    ABOVE,
    BAR_ABOVE,
    BLUE,
    COLOURS,
    GREY,
    LEVEL,
    MARGINS,
    MOST,
    ORANGE,
    RED,
    Picture,
    Z,
    feature_names,
    plotly,
    shortened,
)
from dmfvi.report.structure_figure import ellipsoids, long_axes

#: features of which loadings are drawn with intervals; more are a map of colours
MOST_WITH_INTERVALS = 24
#: components that are drawn with intervals
MOST_COMPONENTS = 4
#: items of the map, those with the most ratings
MOST_ITEMS = 1000


def components(model: Any) -> Iterator[Picture]:
    """Loadings, and the strength of each component."""
    strength = getattr(model, "explained_variance_", None)
    loadings = getattr(model, "components_", None)
    if strength is None or loadings is None or np.ndim(loadings) != 2:
        return
    yield _loadings(model, np.asarray(loadings))
    bars = plotly().Figure(layout={"margin": MARGINS})
    bars.add_bar(
        x=[str(k + 1) for k in range(len(strength))],
        y=np.asarray(strength).tolist(),
        marker={"color": BLUE},
    )
    by_feature = np.ndim(model.noise_variance_) > 0  # then strengths count noise variances
    noise = 1.0 if by_feature else float(model.noise_variance_)
    bars.add_hline(y=noise, line={"color": RED, "dash": "dot"}, annotation_text="noise")
    bars.update_xaxes(title="component", type="category")
    title = "explained variance" + (" / noise variance" if by_feature else "")
    bars.update_yaxes(title=title, rangemode="tozero")
    yield Picture(
        "Strength of the components",
        "Variance along each component, noise included. One at the noise level is switched off.",
        bars,
    )


def _loadings(model: Any, loadings: FloatArray) -> Picture:
    """With intervals where there are few, else as a map."""
    names = feature_names(model, loadings.shape[1])
    spread = getattr(model.posterior_, "covariance", None)
    if spread is None or len(names) > MOST_WITH_INTERVALS or not np.any(spread):
        return _loading_map(names, loadings)
    deviations = np.sqrt(np.diagonal(np.asarray(spread), axis1=-2, axis2=-1)).T[: len(loadings)]
    figure = plotly().Figure(layout={"margin": MARGINS})
    for k, (row, deviation) in enumerate(zip(loadings, deviations, strict=True)):
        if k == MOST_COMPONENTS:
            break
        figure.add_bar(
            x=names,
            y=row.tolist(),
            name=f"component {k + 1}",
            marker={"color": COLOURS[k]},
            error_y={"type": "data", "array": (Z * deviation).tolist(), "color": GREY},
        )
    figure.update_layout(barmode="group", legend=ABOVE)
    figure.update_xaxes(type="category")
    figure.update_yaxes(title="loading")
    words = f"Posterior means of the loadings in the data's units, with {LEVEL:.0%} intervals of the mean-field posterior"
    more = f"; the {MOST_COMPONENTS} strongest" if len(loadings) > MOST_COMPONENTS else ""
    return Picture("Components", f"{words}{more}.", figure)


def _loading_map(all_names: list[str], all_loadings: FloatArray) -> Picture:
    names, loadings = all_names[:MOST], all_loadings[:MOST, :MOST]
    left_out = f" The first {MOST} of {len(all_names)} features." if len(all_names) > MOST else ""
    most = float(np.abs(loadings).max()) or 1.0
    heat = plotly().Figure(layout={"margin": MARGINS})
    heat.add_heatmap(
        z=loadings.tolist(),
        x=names,
        y=[f"component {k + 1}" for k in range(len(loadings))],
        colorscale="RdBu",
        zmin=-most,
        zmax=most,
        colorbar={"title": {"text": "loading", "side": "top"}, **BAR_ABOVE},
        hovertemplate="%{x}, %{y}: %{z:.3g}<extra></extra>",
    )
    heat.update_yaxes(autorange="reversed")
    heat.update_layout(margin={**MARGINS, "t": 70})
    words = f"Posterior means of the loadings, in the data's units.{left_out}"
    return Picture("Components", words, heat, height=430)


def structure(model: Any) -> Iterator[Picture]:
    """Points in space with the regions that hold them."""
    points = getattr(model, "structure_", None)
    if points is None or np.ndim(points) != 2 or np.shape(points)[1] != 3:
        return
    points = np.asarray(points)
    figure = plotly().Figure(layout={"margin": {"l": 0, "r": 0, "t": 10, "b": 0}})
    x, y, z = (points[:, axis].tolist() for axis in range(3))
    figure.add_scatter3d(
        x=x,
        y=y,
        z=z,
        mode="markers",
        marker={"size": 2.5, "color": BLUE},
        name="points",
        text=[f"point {number}" for number in range(len(points))],
        hovertemplate="%{text}: %{x:.4g}, %{y:.4g}, %{z:.4g}<extra></extra>",
    )
    covariances = np.asarray(model.structure_cov_)
    shells, magnify = ellipsoids(points, covariances, LEVEL)
    if len(shells):
        vertices, faces = _one_mesh(shells)
        figure.add_mesh3d(
            **dict(zip("xyz", np.round(vertices, 4).T.tolist(), strict=True)),
            **dict(zip("ijk", faces.T.tolist(), strict=True)),
            color=ORANGE,
            opacity=0.35,
            hoverinfo="skip",
            name="uncertainty",
        )
        # needles, as depth is known least, would be too thin to be seen
        x, y, z = np.round(long_axes(points, covariances, LEVEL), 4).T.tolist()
        figure.add_scatter3d(
            x=x,
            y=y,
            z=z,
            mode="lines",
            line={"color": ORANGE, "width": 3},
            hoverinfo="skip",
            name="longest axes",
        )
    # from further away than by default: the whole box is seen, also on a telephone; walls would be white on a dark page
    axes = {f"{axis}axis": {"showbackground": False} for axis in "xyz"}
    camera = {"eye": {"x": 1.3, "y": 1.3, "z": 0.8}, "center": {"x": 0, "y": 0, "z": -0.12}}
    scene = {"aspectmode": "data", "camera": camera, **axes}
    figure.update_layout(scene=scene, showlegend=False)
    drawn = "" if magnify == 1 else f", drawn {magnify:g} times larger"
    words = (
        f"Posterior means of the points in units of the tracks, and their {LEVEL:.0%} ellipsoids{drawn} with the longest axis of "
        "each. Drag the figure to turn it, or press Turn."
    )
    yield Picture("Structure", words, figure, height=520)


def _one_mesh(shells: FloatArray) -> tuple[FloatArray, Any]:
    """Vertices (n, 3) and triangles (m, 3) of surfaces (s, rows, columns, 3)."""
    count, rows, columns, _ = shells.shape
    at = np.arange(rows * columns).reshape(rows, columns)
    corners = at[:-1, :-1], at[1:, :-1], at[:-1, 1:], at[1:, 1:]
    a, b, c, d = (corner.ravel() for corner in corners)
    one = np.concatenate([np.stack([a, b, c], 1), np.stack([b, d, c], 1)])
    faces = (one[None] + rows * columns * np.arange(count)[:, None, None]).reshape(-1, 3)
    return shells.reshape(-1, 3), faces


def items(model: Any) -> Iterator[Picture]:
    """Items of ratings over their two strongest factors, and how well intervals hold."""
    factors = getattr(model, "item_factors_", None)
    if factors is None or np.shape(factors)[1] < 1:
        return
    names = np.asarray(model.item_ids_)
    counts = np.asarray(model.posterior_.units.item_counts)
    shown = np.argsort(-counts, kind="stable")[: min(MOST_ITEMS, int((counts > 0).sum()))]
    across = factors[shown, 1] if factors.shape[1] > 1 else np.asarray(model.item_bias_)[shown]
    figure = plotly().Figure(layout={"margin": MARGINS})
    figure.add_scatter(
        x=np.round(factors[shown, 0], 4).tolist(),
        y=np.round(across, 4).tolist(),
        mode="markers",
        text=[
            f"{name}: {count:.0f} ratings"
            for name, count in zip(names[shown], counts[shown], strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
        marker={
            "size": 7,
            "color": np.round(np.asarray(model.item_bias_)[shown], 3).tolist(),
            "colorscale": "RdBu",
            "cmid": 0,
            "line": {"color": GREY, "width": 0.5},
            "colorbar": {"title": {"text": "bias of the item", "side": "top"}, **BAR_ABOVE},
        },
    )
    far = _outermost(np.stack([factors[shown, 0], across], axis=1))
    middle = np.median(factors[shown, 0])
    for place in far:
        # towards the middle, where there is room
        left = bool(factors[shown[place], 0] > middle)
        figure.add_annotation(
            x=float(factors[shown[place], 0]),
            y=float(across[place]),
            text=escape(shortened(str(names[shown[place]]), 22)),
            showarrow=False,
            xanchor="right" if left else "left",
            xshift=-6 if left else 6,
            font={"size": 10},
            bgcolor="#ffffff",
            opacity=0.85,
        )
    figure.update_layout(showlegend=False, margin={**MARGINS, "t": 70})
    figure.update_xaxes(title="factor 1")
    figure.update_yaxes(title="factor 2" if factors.shape[1] > 1 else "bias")
    yield Picture(
        "Map of the items",
        f"Items over their two strongest factors, in units of ratings; the {len(shown):,} with the most ratings. The outermost are "
        "named, the others where the mouse rests.",
        figure,
        height=480,
    )
    yield from _calibration(model)


def _outermost(places: FloatArray) -> list[int]:
    """The furthest in each of eight directions, where these are of one scale."""
    scaled = (places - places.mean(0)) / np.maximum(places.std(0), np.finfo(float).tiny)
    angles = np.arange(8) * np.pi / 4
    directions = np.stack([np.cos(angles), np.sin(angles)])
    return list(dict.fromkeys(np.argmax(scaled @ directions, axis=0).tolist()))


def _calibration(model: Any) -> Iterator[Picture]:
    held = getattr(model, "calibration_", None)
    if held is None:
        return
    figure = plotly().Figure(layout={"margin": MARGINS})
    figure.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", name="exact", line={"color": GREY, "dash": "dot"}
    )
    figure.add_scatter(
        x=np.asarray(held["level"]).tolist(),
        y=np.round(held["share"], 4).tolist(),
        mode="lines+markers",
        name="held-out ratings",
        line={"color": BLUE},
        hovertemplate="%{x:.0%} intervals hold %{y:.1%}<extra></extra>",
    )
    figure.update_layout(legend=ABOVE)
    figure.update_xaxes(title="level of the interval", range=[0, 1])
    figure.update_yaxes(title="share of ratings inside", range=[0, 1])
    yield Picture(
        "Calibration",
        f"Share of {int(held['n_ratings']):,} held-out ratings that lie in their intervals: on the dotted line intervals hold.",
        figure,
    )
