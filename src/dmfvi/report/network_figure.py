"""The network of a fit: how every node came to the result, round by round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.report.picture import BLUE, GREY, MARGINS, NETWORK, Picture, plotly

#: what a node's colour shows is cut off here: changes below are rounding
LEAST_CHANGE = 1e-12
#: nodes that are written on
MOST_LABELS = 40
#: milliseconds that a round is shown for
ROUND_SHOWN = 150


def network_picture(model: Any) -> Iterator[Picture]:
    """The graph of nodes; with a slider over the rounds where these were recorded node by node."""
    network = getattr(model, "network", None)
    graph = getattr(network, "network", network)
    if graph is None or graph.n_nodes < 2:
        return
    figure = plotly().Figure(layout={"margin": MARGINS, "showlegend": False})
    positions = graph._positions()
    _add_links(figure, graph, positions)
    figure.add_scatter(
        x=[float(positions[i][0]) for i in range(graph.n_nodes)],
        y=[float(positions[i][1]) for i in range(graph.n_nodes)],
        mode="markers+text" if graph.n_nodes <= MOST_LABELS else "markers",
        text=[str(label) for label in graph.labels],
        textposition=_beside(graph, positions),
        hovertext=_names(model, graph),
        hoverinfo="text",
        marker={
            "size": _marker_size(graph.n_nodes),
            "color": BLUE,
            "line": {"color": GREY, "width": 1},
        },
    )
    for axis in (figure.update_xaxes, figure.update_yaxes):
        axis(visible=False)
    figure.update_yaxes(scaleanchor="x")
    words = (
        f"{graph.name[:1].upper()}{graph.name[1:]}: {graph.n_nodes} nodes, {graph.n_edges} links."
    )
    history = getattr(model, "node_history_", None) or {}
    if history and history["change"].shape[1] == graph.n_nodes:
        _add_rounds(figure, model, graph, history)
        figure.update_layout(margin={"l": 20, "r": 20, "t": 80, "b": 110})
        words += (
            " The colour of a node is the larger of two numbers: the relative change of its posterior by the last sweep, and its "
            "disagreement with the other nodes. Move the slider or press Play to see both fall."
        )
    yield Picture("Network", words, figure, height=540, tab=NETWORK)


def _marker_size(n_nodes: int) -> int:
    """In pixels: nodes of a narrow screen do not touch each other."""
    return 20 if n_nodes <= 24 else 14 if n_nodes <= MOST_LABELS else 9


def _beside(graph: Network, positions: Any) -> list[str]:
    """Where the names of the nodes go: away from the links."""
    places = []
    for node in range(graph.n_nodes):
        here = np.asarray(positions[node])
        ends = np.array([positions[other] for other in graph.graph[node]])
        x, y = here - ends.mean(0)
        reach = 0.4 * float(np.hypot(x, y))
        across = "right" if x > reach else "left" if x < -reach else "center"
        up = "top" if y > reach else "bottom" if y < -reach else "middle"
        # the names of central nodes, which have links all around, are above
        places.append("top center" if np.hypot(x, y) < 0.02 else f"{up} {across}")
    return places


def _add_links(figure: Any, graph: Network, positions: Any) -> None:
    x: list[float | None] = []
    y: list[float | None] = []
    for one, other in graph.edges:
        x += [float(positions[one][0]), float(positions[other][0]), None]
        y += [float(positions[one][1]), float(positions[other][1]), None]
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": GREY, "width": 1}, hoverinfo="skip")


def _names(model: Any, graph: Network) -> list[str]:
    rows = {each["node"]: each["rows"] for each in getattr(model, "members_", ())}
    return [
        f"node {label}" + (f", {rows[label]:,} rows" if label in rows else "")
        for label in graph.labels
    ]


def _add_rounds(figure: Any, model: Any, graph: Network, history: dict[str, FloatArray]) -> None:
    """A frame for each round that was kept, with a slider and a button that plays them."""
    go = plotly()
    names = _names(model, graph)
    worst = np.fmax(history["change"], np.nan_to_num(history["disagreement"]))
    levels = np.log10(np.clip(np.where(np.isfinite(worst), worst, np.nan), LEAST_CHANGE, 1.0))
    levels = np.where(np.isfinite(levels), levels, 0.0)  # no sweep yet: everything may change
    low = float(np.floor(min(levels.min(), -1.0)))
    rounds = [int(number) for number in history["round"]]
    ticks = list(range(0, int(low) - 1, -max(1, round(-low / 4))))
    scale = {
        "colorscale": "Cividis",
        "cmin": low,
        "cmax": 0.0,
        "colorbar": {
            "title": {"text": "change or disagreement", "side": "top"},
            "orientation": "h",
            "y": 1.0,
            "yanchor": "bottom",
            "tickvals": ticks,
            "ticktext": [f"1e{power}" if power else "1" for power in ticks],
            "thickness": 12,
        },
    }
    marker = figure.data[1].marker.to_plotly_json() | scale
    frames = []
    for at, number in enumerate(rounds):
        hover = [
            f"{name}<br>round {number}<br>change {_shown(history['change'][at, node])}"
            f"<br>disagreement {_shown(history['disagreement'][at, node])}"
            f"<br>holds {_share(history['known'][at, node])} of the sum"
            for node, name in enumerate(names)
        ]
        colours = [round(float(level), 2) for level in levels[at]]
        data = go.Scatter(marker={"color": colours}, hovertext=hover)
        frames.append(go.Frame(name=str(number), data=[data], traces=[1]))
    figure.frames = frames
    figure.data[1].update(marker=marker | {"color": frames[-1].data[0].marker.color})
    figure.data[1].hovertext = frames[-1].data[0].hovertext
    moment = {"mode": "immediate", "transition": {"duration": 0}}
    play = {**moment, "frame": {"duration": ROUND_SHOWN, "redraw": False}, "fromcurrent": True}
    pause = {**moment, "frame": {"duration": 0, "redraw": False}}
    steps = [
        {
            "label": str(number),
            "method": "animate",
            "args": [[str(number)], {**moment, "frame": {"duration": 0, "redraw": False}}],
        }
        for number in rounds
    ]
    figure.update_layout(
        sliders=[
            {
                "active": len(rounds) - 1,
                "steps": steps,
                "currentvalue": {"prefix": "round "},
                "pad": {"t": 45},
                "ticklen": 3,
                "minorticklen": 0,
            }
        ],
        updatemenus=[
            {
                "type": "buttons",
                "showactive": False,
                "x": 0.0,
                "y": 0.0,
                "xanchor": "left",
                "yanchor": "top",
                "pad": {"t": 8},
                "direction": "right",
                "buttons": [
                    {"label": "Play", "method": "animate", "args": [None, play]},
                    {"label": "Pause", "method": "animate", "args": [[None], pause]},
                ],
            }
        ],
    )


def _shown(value: float) -> str:
    return f"{value:.1e}" if np.isfinite(value) else "not known yet"


def _share(value: float) -> str:
    return f"{value:.0%}" if np.isfinite(value) else "an unknown part"
