"""A 3-D figure of points with their uncertainty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

from dmfvi.linalg import FloatArray
from dmfvi.report.figures import BLUE, ORANGE

#: ellipsoids are magnified until the median one is this part of the structure's size
VISIBLE = 0.06
#: at most so many ellipsoids are drawn, the most uncertain first
MAX_ELLIPSOIDS = 400
#: opacity of one ellipsoid; many are paler, so that they do not hide each other
OPACITY, OPAQUE_BELOW, PALEST = 0.25, 60, 0.12
#: vertices of the sphere that is bent into an ellipsoid
MERIDIANS, PARALLELS = 13, 7


def structure_figure(
    path: str | Path, structure: FloatArray, covariance: FloatArray, level: float, kind: str
) -> Path:
    """Points (P, 3) with the ellipsoids that hold ``level`` of their posterior, from two sides."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6), layout="constrained")
    FigureCanvasAgg(figure)
    magnify, radius = _magnification(structure, covariance, level)
    for position, (elevation, azimuth) in enumerate(((20, -60), (20, 30)), 1):
        ax = figure.add_subplot(1, 2, position, projection="3d")
        _draw(ax, structure, covariance, magnify * radius)
        ax.view_init(elevation, azimuth)
    figure.suptitle(_title(structure, level, kind, magnify))
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=130)
    return target


def plot_structure(
    structure: FloatArray, covariance: FloatArray, level: float, kind: str, ax: Any = None
) -> Any:
    """Points (P, 3) with their ellipsoids on 3-D axes, new ones unless given."""
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(layout="constrained").add_subplot(projection="3d")
    elif getattr(ax, "name", None) != "3d":
        raise ValueError(
            "a structure needs 3-D axes: plt.figure().add_subplot(projection='3d'), or no ax"
        )
    magnify, radius = _magnification(structure, covariance, level)
    _draw(ax, structure, covariance, magnify * radius)
    ax.set_title(_title(structure, level, kind, magnify))
    return ax


def _magnification(
    structure: FloatArray, covariance: FloatArray, level: float
) -> tuple[float, float]:
    """By how much ellipsoids are drawn larger so that they can be seen, and their radius in deviations."""
    size = float(np.linalg.norm(structure.std(0)))
    radius = float(np.sqrt(chi2.ppf(level, 3)))
    deviations = np.sqrt(np.linalg.eigvalsh(covariance).clip(0.0))
    typical = float(np.median(deviations[:, -1])) * radius
    return _round(max(1.0, VISIBLE * size / max(typical, np.finfo(float).tiny))), radius


def _title(structure: FloatArray, level: float, kind: str, magnify: float) -> str:
    shown = "" if magnify == 1 else f", drawn {magnify:g} times larger"
    return f"{len(structure)} points, {kind} structure, {level:.0%} ellipsoids{shown}"


def ellipsoids(
    structure: FloatArray, covariance: FloatArray, level: float
) -> tuple[FloatArray, float]:
    """Surfaces (n, rows, columns, 3) of the most uncertain points, and by how much they are drawn larger."""
    magnify, radius = _magnification(structure, covariance, level)
    return _surfaces(structure, covariance, magnify * radius), magnify


def long_axes(structure: FloatArray, covariance: FloatArray, level: float) -> FloatArray:
    """Ends of the longest axes of the ellipsoids (3 n, 3): two points, and NaN before the next one."""
    magnify, radius = _magnification(structure, covariance, level)
    return _ends(structure, covariance, magnify * radius)


def _ends(structure: FloatArray, covariance: FloatArray, radius: float) -> FloatArray:
    values, axes = np.linalg.eigh(covariance)
    half = radius * np.sqrt(values[:, -1:].clip(0.0)) * axes[:, :, -1]
    gap = np.full_like(structure, np.nan)
    return np.stack([structure - half, structure + half, gap], axis=1).reshape(-1, 3)


def _surfaces(structure: FloatArray, covariance: FloatArray, radius: float) -> FloatArray:
    u, v = np.meshgrid(np.linspace(0, 2 * np.pi, MERIDIANS), np.linspace(0, np.pi, PARALLELS))
    sphere = np.stack([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)], axis=-1)
    spread = np.trace(covariance, axis1=1, axis2=2)
    made = []
    for point in np.argsort(-spread)[:MAX_ELLIPSOIDS]:
        values, axes = np.linalg.eigh(covariance[point])
        made.append(sphere @ (axes * np.sqrt(values.clip(0.0))).T * radius + structure[point])
    return np.array(made)


def _draw(ax: Any, structure: FloatArray, covariance: FloatArray, radius: float) -> None:
    surfaces = _surfaces(structure, covariance, radius)
    alpha = max(PALEST, OPACITY * min(1.0, OPAQUE_BELOW / len(surfaces)))
    ax.computed_zorder = False  # points stay in front of ellipsoids
    for surface in surfaces:
        ax.plot_surface(
            *np.moveaxis(surface, -1, 0), color=ORANGE, alpha=alpha, linewidth=0, zorder=1
        )
    # needles, as depth is known least, would be too thin to be seen
    ax.plot(*_ends(structure, covariance, radius).T, color=ORANGE, linewidth=1.2, zorder=1)
    ax.scatter(*structure.T, color=BLUE, s=5, depthshade=False, zorder=2)
    ax.set_xlabel("x")
    ax.set_ylabel("y")
    ax.set_zlabel("depth")
    low, high = structure.min(0), structure.max(0)
    middle, half = 0.5 * (low + high), 0.55 * float((high - low).max())
    ax.set(
        xlim=(middle[0] - half, middle[0] + half),
        ylim=(middle[1] - half, middle[1] + half),
        zlim=(middle[2] - half, middle[2] + half),
    )
    ax.set_box_aspect((1, 1, 1), zoom=1.1)


def _round(value: float) -> float:
    """One significant digit."""
    digit = 10.0 ** np.floor(np.log10(value))
    return float(np.round(value / digit) * digit)
