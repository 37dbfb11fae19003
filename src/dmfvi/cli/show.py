"""What a saved model says: dmfvi show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as RichTable

from dmfvi.cli.output import Json, console, plain
from dmfvi.cli.single_node import load_lean
from dmfvi.storage.files import model_file

#: rows of a table that are printed; all of them are in --json
MOST_ROWS = 60


def show(
    model: Annotated[Path, typer.Argument(help="Directory that a fit wrote, or its model.npz.")],
    as_json: Json = False,
) -> None:
    """Show a saved model: coefficients, components, classes, members and convergence.

    Example: dmfvi show dmfvi-model
    """
    model_file(model)  # says at once where there is none
    load_lean()
    from dmfvi.storage import details, load

    fitted = load(model)
    known = details(model)
    learned = list(tables(fitted))
    if as_json:
        print(
            json.dumps(
                {
                    **_facts(fitted),
                    "details": plain(known),
                    **{
                        name: [dict(zip(h, plain(r), strict=True)) for r in rows]
                        for name, h, rows in learned
                    },
                }
            )
        )
        return
    words = fitted.summary() if hasattr(fitted, "summary") else type(fitted).__name__
    console.print(escape(words))
    for name in ("target", "sequence", "files"):
        if name in known:
            console.print(escape(f"{name}: {known[name]}"))
    for name, head, rows in learned:
        if hasattr(fitted, "summary_frame") and name.startswith("coefficients"):
            continue  # the summary is their table
        cells = [head, *([_word(v) for v in row] for row in rows)]
        if _width(cells) > console.width and len(head) > len(cells):
            cells = [list(column) for column in zip(*cells, strict=True)]
        for part in _side_by_side([*cells[: MOST_ROWS + 1]], console.width):
            shown = RichTable(title=name, title_justify="left")
            for position, column in enumerate(part[0]):
                justify: Any = "left" if position == 0 else "right"
                shown.add_column(escape(column), justify=justify, overflow="fold")
            for row in part[1:]:
                shown.add_row(*map(escape, row))
            console.print(shown)
        if len(cells) > MOST_ROWS + 1:
            console.print(f"and {len(cells) - MOST_ROWS - 1} more: --json has them all")


def _facts(fitted: Any) -> dict[str, Any]:
    """What it is and how its fit went, as JSON has it."""
    if not hasattr(fitted, "get_params"):  # the result of infer
        of_run = {
            name: plain(getattr(fitted, name)) for name in ("converged", "n_iter", "lower_bound")
        }
        return {"model": fitted.model_name, **of_run}
    settings = fitted.get_params(deep=False)
    of_run = {
        name: plain(getattr(fitted, f"{name}_", None))
        for name in ("converged", "n_iter", "lower_bound")
    }
    return {
        "estimator": type(fitted).__name__,
        "settings": plain({k: v for k, v in settings.items() if k != "network"}),
        **of_run,
    }


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    """Of columns, with what is drawn beside them."""
    return [max(map(len, column)) + 3 for column in zip(*cells, strict=True)]


def _width(cells: Sequence[Sequence[str]]) -> int:
    return sum(_widths(cells)) + 1


def _side_by_side(cells: list[list[str]], width: int) -> Iterator[list[list[str]]]:
    """The table in parts that are no wider than this, each with the first column."""
    widths = _widths(cells)
    begin = 1
    while begin < len(widths):
        end, taken = begin + 1, 1 + widths[0] + widths[begin]
        while end < len(widths) and taken + widths[end] <= width:
            taken += widths[end]
            end += 1
        yield [[row[0], *row[begin:end]] for row in cells]
        begin = end


def _word(value: Any) -> str:
    return f"{float(value):.5g}" if isinstance(value, float) else str(value)


def tables(model: Any) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    """Name, head and rows of what the model has learned, as far as it has it.

    Components of mixtures, states and symbols are numbered from 0, as in predictions and summaries; latent coordinates from 1.
    """
    import numpy as np

    if hasattr(model, "marginals"):
        yield "posterior", ["variable", "mean", "std"], [list(row) for row in model.marginals()]
    known: Any = getattr(model, "term_names_", None)
    known = getattr(model, "feature_names_in_", ()) if known is None else known
    names = [str(n) for n in known]
    count = getattr(model, "n_features_in_", None)
    features = names or [f"x{i}" for i in range(1, (count or 0) + 1)]
    if hasattr(model, "coef_"):
        yield from _coefficients(model, features)
    if hasattr(model, "components_") and np.ndim(model.components_) == 2:
        made = np.asarray(model.components_)
        if made.shape[1] == len(features):
            head = ["feature", *(f"component {i}" for i in range(1, len(made) + 1))]
            means: Any = getattr(model, "mean_", None)
            if np.shape(means) == (len(features),):
                head.insert(1, "mean")
                made = np.vstack([means, made])
            yield (
                "components",
                head,
                [[f, *r] for f, r in zip(features, made.T.tolist(), strict=True)],
            )
    if hasattr(model, "means_") and np.ndim(model.means_) == 2:
        weights = getattr(model, "weights_", None)
        rows = np.asarray(model.means_)
        head = [
            "component",
            *(["weight"] if weights is not None else []),
            *features[: rows.shape[1]],
        ]
        yield (
            "means",
            head,
            [
                [k, *([float(weights[k])] if weights is not None else []), *row]
                for k, row in enumerate(rows.tolist())
            ],
        )
    for name in ("startprob_", "transmat_", "emissionprob_"):
        if hasattr(model, name):
            found = np.asarray(getattr(model, name))
            rows = np.atleast_2d(found)
            head = ["", *map(str, range(rows.shape[1]))]
            states = range(len(rows)) if found.ndim == 2 else [""]
            yield (
                name.strip("_"),
                head,
                [[state, *row] for state, row in zip(states, rows.tolist(), strict=True)],
            )
    if hasattr(model, "survival_function_"):
        counts = (model.timeline_, model.at_risk_, model.observed_, model.survival_function_)
        curve = np.column_stack([*counts, *model.confidence_interval(0.9)])
        head = ["time", "at risk", "events", "survival", "5 %", "95 %"]
        yield "survival", head, curve.tolist()
    if hasattr(model, "component_deviations_"):
        spread = np.asarray(model.component_deviations_).tolist()
        head = ["component", "deviation"]
        yield "component deviations", head, [[i + 1, v] for i, v in enumerate(spread)]


def _coefficients(
    model: Any, features: list[str]
) -> Iterator[tuple[str, list[str], list[list[Any]]]]:
    """Mean, standard deviation and central 90 % interval (normal) of every coefficient."""
    import numpy as np

    coefficients = np.atleast_2d(model.coef_)
    # a Cox model has none: it is part of the baseline hazards
    intercepts = np.atleast_1d(getattr(model, "intercept_", ()))
    covariance = np.asarray(model.coef_covariance_)
    covariance = covariance[None] if covariance.ndim == 2 else covariance
    classes = getattr(model, "classes_", None)
    for k, row in enumerate(coefficients):
        which = (
            "" if classes is None else f" of {classes[1] if len(coefficients) == 1 else classes[k]}"
        )
        deviation = np.sqrt(np.diagonal(covariance[k]))
        names, means = list(features), row.tolist()
        if len(deviation) > len(means):
            names.append("intercept")
            means.append(float(intercepts[k]))
        yield (
            f"coefficients{which}",
            ["feature", "mean", "std", "5 %", "95 %"],
            [
                [name, mean, float(s), mean - 1.6449 * float(s), mean + 1.6449 * float(s)]
                for name, mean, s in zip(names, means, deviation, strict=True)
            ],
        )
