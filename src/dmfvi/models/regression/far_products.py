"""Products of columns far from zero, such as a year: they are nearly the other column, and a prior tells them apart, not the rows."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from dmfvi.models.regression.formula import parsed

#: a column that a formula names in quotes
QUOTED = re.compile(r"""Q\(["'](.*)["']\)""")
#: distance from zero, in deviations, from which a column is far, and the part of the rows that a prior may count as
FAR, NOTABLE = 10.0, 0.02


def warn_of_far_products(
    formula: str,
    distances: Mapping[str, float],
    precision: float,
    n_rows: float,
    stacklevel: int = 4,
) -> None:
    """Warn where the prior of a product counts as a notable part of the rows: of its own effect it has the precision r^2 P.

    ``distances`` has r = |mean| / deviation of the terms over all sites, P is the prior ``precision`` of standardised columns.
    """
    found = [
        (str(term), name)
        for term in parsed(formula).right
        for name in _multiplied(term)
        if (far := distances.get(name, 0.0)) > FAR and far**2 * precision > NOTABLE * n_rows
    ]
    if not found:
        return
    term, name = found[0]
    column = quoted.group(1) if (quoted := QUOTED.fullmatch(name)) else name
    cure = f"write center({column})"
    if not column.isidentifier():
        cure = "give the column a name without spaces and signs, and write center(name)"
    warnings.warn(
        f"formula {formula!r}: the mean of {column!r} is {distances[name]:.3g} deviations from zero, so the standardised column of "
        f"{term!r} hardly differs from those of its parts, and the default prior shrinks its coefficient towards zero: {cure}, or pass a "
        "prior_precision in the columns' units",
        UserWarning,
        stacklevel=stacklevel,
    )


def _multiplied(term: Any) -> list[str]:
    """Columns that a term multiplies with something: its factors, or what is raised to a power in one."""
    factors = [str(factor.expr) for factor in term.factors]
    if len(factors) > 1:
        return factors
    if not factors or term.factors[0].eval_method.value != "python":
        return []
    powers = [
        node.left
        for node in ast.walk(ast.parse(factors[0], mode="eval"))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.Mult)
    ]
    return [node.id for node in powers if isinstance(node, ast.Name)]
