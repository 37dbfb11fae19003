"""Pictures of how a fit went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.report.picture import (
    ABOVE,
    BLUE,
    GREEN,
    GREY,
    MARGINS,
    MENU,
    ORANGE,
    RUN,
    SKY,
    Picture,
    plotly,
)

#: nodes that are named where the mouse rests
MOST_NAMED = 10
#: of a curve: two sweeps of a closed form show nothing
FEWEST_POINTS = 3
#: ticks of a logarithmic axis at powers of ten, at most
MOST_TICKS = 8


def run_pictures(model: Any) -> Iterator[Picture]:
    """Change and disagreement, the bound, and bytes, by round."""
    history = getattr(model, "history_", None)
    if not history or len(history["objective"]) < 2:
        return
    count = len(history["objective"])
    # ratings are recorded by sweep, and one machine sends no messages
    unit = "message round" if "round" in history and _nodes(model) > 1 else "sweep"
    rounds = np.asarray(history.get("round", np.arange(1, count + 1)))
    convergence = _convergence(model, rounds, unit)
    if convergence.figure.data:
        yield convergence
    objective = np.asarray(history["objective"], dtype=float)
    if np.isfinite(objective).sum() >= FEWEST_POINTS:
        yield _bound(rounds, objective, unit)
    sent = np.cumsum(np.asarray(history.get("bytes_sent", np.zeros(count)), dtype=float))
    if sent[-1] > 0 and _nodes(model) > 1:
        yield Picture(
            "Bytes sent",
            "By all nodes of this process together, since the start of the fit.",
            _curve(rounds, sent, SKY, unit, "bytes", "%{y:.3s}B"),
            tab=RUN,
        )


def _nodes(model: Any) -> int:
    return int(getattr(model, "consensus_", {}).get("nodes", 1))


def _convergence(model: Any, rounds: FloatArray, unit: str) -> Picture:
    """On a log axis; where the mouse rests, the nodes that are furthest from the end."""
    figure = plotly().Figure(layout={"margin": MARGINS})
    for name, colour in (("change", BLUE), ("disagreement", ORANGE)):
        values = np.asarray(model.history_.get(name, np.full(len(rounds), np.nan)), dtype=float)
        shown = np.isfinite(values) & (values > 0)
        if shown.any():
            said = by_node(model, name)
            figure.add_scatter(
                x=rounds[shown].tolist(),
                y=values[shown].tolist(),
                name=name,
                line={"color": colour},
                mode="lines+markers",
                text=[said.get(int(number), "") for number in rounds[shown]],
                hovertemplate=f"{unit} %{{x}}: {name} %{{y:.1e}}%{{text}}<extra></extra>",
            )
    if figure.data and model.tol:
        figure.add_scatter(
            x=[int(rounds[0]), int(rounds[-1])],
            y=[model.tol, model.tol],
            name="tol",
            mode="lines",
            line={"color": GREY, "dash": "dot"},
            hoverinfo="skip",
        )
    figure.update_layout(legend=ABOVE, showlegend=True)
    figure.update_xaxes(title=unit)
    decades = _decades(figure) if figure.data else 0.0
    at_powers = {"exponentformat": "power", "dtick": int(np.ceil(decades / MOST_TICKS))}
    names = [curve.name for curve in figure.data if curve.name != "tol"]
    figure.update_yaxes(
        title=f"relative {' and '.join(names)}",
        type="log",
        **(at_powers if decades >= FEWEST_POINTS else {}),
    )
    words = "Relative change of the posterior by a sweep"
    if model.tol and _nodes(model) > 1:
        words += (
            ", and disagreement between nodes where there is any; the fit ends when both are small "
            f"(tol = {model.tol:g})"
        )
    elif model.tol:
        words += f"; the fit ends when it is small (tol = {model.tol:g})"
    return Picture("Convergence", f"{words}.", figure, tab=RUN)


def _decades(figure: Any) -> float:
    """How many powers of ten the curves span."""
    values = np.concatenate([np.asarray(curve.y, dtype=float) for curve in figure.data])
    return float(np.log10(values.max() / values.min()))


def _bound(rounds: FloatArray, objective: FloatArray, unit: str) -> Picture:
    """The bound, and how far it is below its last value on a log axis: most of the rise is in the first sweeps."""
    figure = _curve(rounds, objective, GREEN, unit, "evidence lower bound (nats)", "%{y:.8g} nats")
    words = "It rises, and levels off where the fit has converged."
    below = objective[np.isfinite(objective)][-1] - objective
    shown = np.isfinite(below) & (below > 0)
    if shown.sum() >= FEWEST_POINTS:
        figure.add_scatter(
            x=rounds[shown].tolist(),
            y=below[shown].tolist(),
            line={"color": GREEN},
            mode="lines",
            visible=False,
            hovertemplate=f"{unit} %{{x}}: %{{y:.3g}} nats below the last value<extra></extra>",
        )
        scales = (
            ("value", [True, False], "linear", "evidence lower bound (nats)"),
            ("distance to the last value", [False, True], "log", "nats below the last value"),
        )
        buttons = [
            {
                "label": label,
                "method": "update",
                "args": [
                    {"visible": visible},
                    {"yaxis.type": kind, "yaxis.title.text": title, "yaxis.autorange": True},
                ],
            }
            for label, visible, kind, title in scales
        ]
        figure.update_layout(updatemenus=[{"buttons": buttons, **MENU}], showlegend=False)
        figure.update_layout(margin={**MARGINS, "t": 60})
        words += " The list has it on a logarithmic axis, too."
    return Picture("Evidence lower bound", words, figure, tab=RUN)


def by_node(model: Any, name: str) -> dict[int, str]:
    """For each round that was kept, the largest values and the nodes that have them, as lines of text."""
    history = getattr(model, "node_history_", None) or {}
    if not history:
        return {}
    network = getattr(model, "network", None)
    labels = getattr(getattr(network, "network", network), "labels", None)
    said = {}
    for number, values in zip(history["round"], history[name], strict=True):
        finite = [k for k in np.argsort(-values, kind="stable") if np.isfinite(values[k])]
        lines = [
            f"<br>node {k if labels is None else labels[k]}: {values[k]:.1e}"
            for k in finite[:MOST_NAMED]
        ]
        left_out = f"<br>and {len(finite) - MOST_NAMED} more" if len(finite) > MOST_NAMED else ""
        said[int(number)] = "".join(lines) + left_out
    return said


def _curve(
    rounds: FloatArray, values: FloatArray, colour: str, unit: str, title: str, hover: str
) -> Any:
    figure = plotly().Figure(layout={"margin": MARGINS})
    shown = np.isfinite(values)
    figure.add_scatter(
        x=rounds[shown].tolist(),
        y=values[shown].tolist(),
        line={"color": colour},
        mode="lines",
        hovertemplate=f"{unit} %{{x}}: {hover}<extra></extra>",
    )
    figure.update_xaxes(title=unit)
    figure.update_yaxes(title=title)
    return figure
