"""What all pictures of a report share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmfvi.extras import lacking

#: colours that people with any kind of colour vision can tell apart (Okabe & Ito 2008)
BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
)
GREY = "#8d99a6"
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW)
MARGINS = {"l": 60, "r": 20, "t": 20, "b": 50}
#: a legend beside a figure would leave no room for it on a telephone
ABOVE = {"orientation": "h", "y": 1.0, "yanchor": "bottom"}
#: the scale of colours, for the same reason
BAR_ABOVE = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "thickness": 12}
#: a list to choose from, in the same place
MENU = {"x": 0.0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
#: of intervals, and the normal quantile of it
LEVEL, Z = 0.9, 1.6449
#: rows, columns and bars at most: more cannot be read
MOST = 60


#: tabs of a report that have figures
POSTERIOR, RUN, NETWORK = "Posterior", "Convergence", "Network"


class Picture(NamedTuple):
    """A figure with a title and a sentence that says what it shows."""

    title: str
    caption: str
    figure: Any
    height: int = 380  # pixels
    tab: str = POSTERIOR


def plotly() -> Any:
    """Plotly's graph objects."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise lacking("a report", "plotly", "report") from error
    return go


def feature_names(model: Any, count: int) -> list[str]:
    """Names of the columns, or their numbers."""
    known: Any = getattr(model, "term_names_", None)
    known = getattr(model, "feature_names_in_", None) if known is None else known
    if known is not None and len(known) == count:
        return [str(name) for name in known]
    return [f"feature {position}" for position in range(count)]


def shortened(text: str, most: int = 26) -> str:
    """A name that leaves room for the rest of a narrow figure."""
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def circle(radius: float, points: int = 80) -> Any:
    """A circle (2, points) around the origin."""
    angles = np.linspace(0.0, 2.0 * np.pi, points)
    return radius * np.stack([np.cos(angles), np.sin(angles)])
