"""Pictures of groups and courses: components of mixtures, states of chains, topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dmfvi.report.picture import (
    ABOVE,
    COLOURS,
    LEVEL,
    MARGINS,
    Picture,
    circle,
    feature_names,
    plotly,
    shortened,
)

#: of the circle that holds 90 % of a normal distribution in the plane
RADIUS = float(np.sqrt(4.605))
#: components that have no rows of their own are hidden at first
LEAST_WEIGHT = 0.01
#: lines of further components in the same colours
DASHES = ("solid", "dash", "dot")
#: topics that are drawn, terms of each, and pixels of a term
MOST_TOPICS, MOST_TERMS, TERM = 7, 8, 19
#: title of a picture that follows from rows of the data
STATES = "States over time"
#: steps of a sequence that are drawn
MOST_STEPS = 500


def clusters(model: Any) -> Iterator[Picture]:
    """Ellipses of Gaussian components over the first two features."""
    means, covariances = getattr(model, "means_", None), _covariances(model)
    if means is None or covariances is None or np.shape(means)[1] < 2:
        return
    go = plotly()
    weights = getattr(model, "weights_", None)  # states of a chain have none
    around = circle(RADIUS)
    figure = go.Figure(layout={"margin": MARGINS})
    hidden = 0
    for position, (mean, spread) in enumerate(zip(means, covariances, strict=True)):
        both = spread[:2, :2] if np.ndim(spread) == 2 else np.diag(spread[:2])
        x, y = np.linalg.cholesky(both) @ around + mean[:2, None]
        words = (
            f"state {position}"
            if weights is None
            else f"{position}: weight {weights[position]:.2f}"
        )
        colour, dash = COLOURS[position % 7], DASHES[position // 7 % len(DASHES)]
        # one without rows has the prior's shape; its name in the legend shows it
        empty = weights is not None and weights[position] < LEAST_WEIGHT
        hidden += empty
        together = {
            "legendgroup": str(position),
            "visible": "legendonly" if empty else True,
            "hoverinfo": "name",
        }
        figure.add_scatter(
            x=x.tolist(),
            y=y.tolist(),
            mode="lines",
            name=words,
            line={"color": colour, "dash": dash},
            **together,
        )
        figure.add_scatter(
            x=[float(mean[0])],
            y=[float(mean[1])],
            mode="markers",
            marker={"color": colour, "symbol": "cross"},
            showlegend=False,
            name=words,
            **together,
        )
    figure.update_layout(legend=ABOVE)
    first, second, *_ = feature_names(model, np.shape(means)[1])
    figure.update_xaxes(title=first)
    figure.update_yaxes(title=second)
    whose = "component" if weights is not None else "state"
    said = (
        f" {hidden} of {len(means)} with a weight below {LEAST_WEIGHT:.0%} are hidden: click on their names."
        if hidden
        else ""
    )
    yield Picture(
        f"{whose.capitalize()}s",
        f"Regions that hold {LEVEL:.0%} of a {whose}'s rows, over the first two features.{said}",
        figure,
    )


def _covariances(model: Any) -> Any:
    """Those of the components; of a mixture of PCA by loadings and noise."""
    found = getattr(model, "covariances_", None)
    loadings = np.asarray(getattr(model, "components_", 0.0))
    if found is not None or loadings.ndim != 3:
        return found
    noise = np.asarray(model.noise_variance_)[:, None, None] * np.eye(loadings.shape[2])
    return np.swapaxes(loadings, 1, 2) @ loadings + noise


def transitions(model: Any) -> Iterator[Picture]:
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
        text=[[f"{v:.2g}" for v in row] for row in matrix],
        texttemplate="%{text}",
    )
    figure.update_xaxes(title="to")
    figure.update_yaxes(title="from", autorange="reversed")
    yield Picture("Transitions", "Posterior means of the transition probabilities.", figure)


def states_over_time(model: Any) -> Iterator[Picture]:
    """Probabilities of the states along the first sequence of this process, which a file does not hold."""
    context = getattr(model, "_context", None)
    if getattr(model, "transmat_", None) is None or context is None:
        return
    go = plotly()
    sequences = context.shards[0]
    steps = min(int(sequences.starts[1]), MOST_STEPS)
    shares = np.asarray(model._model.states(sequences, model._belief).states)[:steps]
    figure = go.Figure(layout={"margin": MARGINS})
    for state in range(shares.shape[1]):
        figure.add_scatter(
            x=list(range(len(shares))),
            y=np.round(shares[:, state], 4).tolist(),
            stackgroup="states",
            mode="lines",
            name=f"state {state}",
            line={"color": COLOURS[state % 7], "width": 0.5},
        )
    figure.update_layout(legend=ABOVE)
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="probability", range=[0, 1])
    yield Picture(
        STATES,
        f"Posterior probabilities of the states along the first sequence of node 0, at most {MOST_STEPS} steps. They follow from "
        "data of that node.",
        figure,
    )


def topics(model: Any) -> Iterator[Picture]:
    """The most probable terms of each topic."""
    shares = getattr(model, "topic_word_", None)
    if shares is None:
        return
    names = feature_names(model, shares.shape[1])
    figure = plotly().Figure(layout={"margin": {**MARGINS, "l": 20}})
    labels: list[str] = []
    for position, row in enumerate(shares[:MOST_TOPICS]):
        best = np.argsort(-row)[:MOST_TERMS]
        at = len(labels) + position + np.arange(len(best))  # an empty line between topics
        figure.add_bar(
            x=row[best].tolist(),
            y=at.tolist(),
            orientation="h",
            name=f"topic {position}",
            marker={"color": COLOURS[position]},
            text=[f"{names[k]}, topic {position}: {row[k]:.3g}" for k in best],
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
        )
        labels += [names[k] for k in best]
    count = len(figure.data)
    places = np.concatenate([np.asarray(bars.y) for bars in figure.data])
    figure.update_layout(legend=ABOVE, bargap=0.15)
    figure.update_xaxes(title="probability", rangemode="tozero")
    figure.update_yaxes(
        tickvals=places.tolist(),
        ticktext=[shortened(label) for label in labels],
        range=[float(places[-1]) + 0.7, -0.7],
        automargin=True,
        showgrid=False,
        zeroline=False,
    )
    which = f"; the first {count} of {len(shares)} topics" if len(shares) > count else ""
    words = f"The {len(labels) // count} most probable terms of each topic{which}."
    yield Picture("Topics", words, figure, height=120 + TERM * int(places[-1] + 1))
