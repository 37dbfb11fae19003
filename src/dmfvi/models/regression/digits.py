"""Columns that neither the rows nor the prior tell apart: their posterior has few correct digits, or none."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from dmfvi.linalg import FloatArray, least_pivot, lost_digits

#: relative error of a posterior by rounding that is named in a warning, and from which there is no posterior
NOTABLE, TOO_MUCH = 1e-6, 1e-2


def check_digits(precisions: FloatArray, names: Sequence[str], size: int) -> None:
    """Refuse, or warn of, posterior precisions (..., p, p) in agreed units that are singular to rounding.

    Every output has ``size`` entries, the terms of ``names`` first.
    """
    each = precisions.reshape(-1, *precisions.shape[-2:])
    lost = [lost_digits(precision) for precision in each]
    worst = int(np.argmax(lost))
    if lost[worst] < NOTABLE:
        return
    position = least_pivot(each[worst])[0] % max(size, 1)
    name = f"term {names[position]!r}" if position < len(names) else "a term"
    what = f"{name} is nearly a combination of others, and neither the rows nor the prior tell them apart"
    cure = "leave one of them out, or raise prior_precision"
    if lost[worst] > TOO_MUCH:
        raise ValueError(f"the posterior is singular to rounding: {what}; {cure}")
    digits = int(-np.log10(10.0 * lost[worst]))  # what has cancelled before is not in it
    warnings.warn(
        f"{what}: their coefficients may have only {digits} correct digits; {cure}",
        UserWarning,
        stacklevel=6,
    )
