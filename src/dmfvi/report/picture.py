"""What all pictures of a report share."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class Picture(NamedTuple):
    """A figure with a title and a sentence that says what it shows."""

    title: str
    caption: str
    figure: Any
    height: int = 380  # pixels


def plotly() -> Any:
    """Plotly's graph objects."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise ImportError(
            "a report needs plotly: pip install 'dmfvi[report]', or pip install -e '.[report]' in a clone"
        ) from error
    return go
