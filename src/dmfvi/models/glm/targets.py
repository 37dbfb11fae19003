"""Targets of a family: what is allowed, how they enter the likelihood, and their agreed units.

linear predictor in the data's units = shift + scale * (the model's)
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from dmfvi.linalg import FloatArray, row_words
from dmfvi.models.glm.quadrature import hermite
from dmfvi.sizes import check_target_size
from dmfvi.tags import stored_as

#: links of each family, the default first
LINKS = {
    "gaussian": ("identity",),
    "student-t": ("identity",),
    "bernoulli": ("logit", "probit"),
    "binomial": ("logit", "probit"),
    "multinomial": ("logit",),
    "ordinal": ("logit", "probit"),
    "poisson": ("log",),
    "negative-binomial": ("log",),
    "gamma": ("log",),
}
#: families whose targets are labels
LABELLED = ("bernoulli", "multinomial", "ordinal")
#: families with a dispersion that is learned, and what its square root or itself is called
DISPERSED = ("gaussian", "student-t", "negative-binomial", "gamma")
#: offset of a log link at most
LARGEST_OFFSET = 690.0
#: families whose targets are never negative
POSITIVE = ("poisson", "negative-binomial", "gamma", "binomial")
#: points of the average over a linear predictor
QUADRATURE = 40
#: variance from which a linear predictor is wider than the bend of its inverse link, and the points in that bend
WIDE, STEP, REACH = 4.0, 0.25, 38.0


@stored_as("target-units")
class TargetUnits(NamedTuple):
    """shift and scale of the linear predictor, and the weight of all rows."""

    shift: float
    scale: float
    weight: float


class Targets(NamedTuple):
    """One node's targets with what each row has besides."""

    values: FloatArray
    offset: FloatArray
    weight: FloatArray
    trials: FloatArray


def agree_on_target(
    family: str, centred: bool, targets: Targets, vague: bool = False
) -> Generator[FloatArray, FloatArray, TargetUnits]:
    """Where a linear predictor has its middle and its size: one or two sums.

    Without an intercept (``centred`` is false) it is not moved. A ``vague`` intercept of a probability makes up for the mean offset.
    """
    y, offset, weight = targets.values, targets.offset, targets.weight
    if family in ("gaussian", "student-t"):
        rest = y - offset
        total = yield np.array([weight.sum(), weight @ rest, len(y)])
        mean = float(total[1] / total[0])
        total_square = yield np.array([weight @ (rest - (mean if centred else 0.0)) ** 2])
        variance = float(total_square[0] / total[0])
        constant = variance <= (1e-14 * max(abs(mean), 1e-300)) ** 2
        scale = (abs(mean) or 1.0) if constant else float(np.sqrt(variance))
        return TargetUnits(mean if centred else 0.0, scale, float(total[0]))
    if family in ("poisson", "negative-binomial", "gamma"):
        _refuse_huge(offset)
        if family == "gamma":  # mean of y / exposure
            parts = [weight.sum(), weight @ (y * np.exp(-offset)), weight.sum()]
        else:
            # half an event more, so that there is a rate where nobody has counted any
            parts = [weight.sum(), weight @ y, weight @ np.exp(offset)]
        total = yield np.array(parts)
        events = float(total[1]) + (0.0 if family == "gamma" else 0.5)
        shift = float(np.log(events / total[2])) if centred else 0.0
        return TargetUnits(shift, 1.0, float(total[0]))
    total = yield np.array([weight.sum(), weight @ offset])
    mean = float(total[1] / total[0])
    return TargetUnits(0.0 - mean if centred and vague else 0.0, 1.0, float(total[0]))


def _refuse_huge(offset: FloatArray) -> None:
    """exp(offset) must be a number, and a sum of many."""
    if np.abs(offset).max(initial=0.0) > LARGEST_OFFSET:
        largest = float(offset[np.abs(offset).argmax()])
        raise ValueError(
            f"offset (with the logarithm of an exposure) must lie between -{LARGEST_OFFSET:g} and {LARGEST_OFFSET:g} with a log "
            f"link, received {largest:g}: its exponential is no finite number; pass log(exposure)"
        )


def check_targets(family: str, y: Any, trials: FloatArray | None) -> FloatArray:
    """Numbers that the family can have made."""
    try:
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        odd = next((v for v in np.ravel(np.asarray(y, dtype=object)) if isinstance(v, str)), y)
        raise ValueError(
            f"y of a {family} model are numbers, received {str(odd)!r}: labels are for the families {', '.join(LABELLED)}"
        ) from None
    if not np.isfinite(values).all():
        raise ValueError(f"y contains NaN or infinity: a {family} model needs all targets")
    check_target_size(values)
    if family in ("poisson", "negative-binomial", "binomial") and (values < 0).any():
        raise ValueError(f"y of a {family} model are counts, received {values.min():g}")
    whole = family in ("negative-binomial", "binomial")
    if whole and (values != np.round(values)).any():
        odd = values[values != np.round(values)][0]
        raise ValueError(f"y of a {family} model are whole numbers, received {odd:g}")
    if family == "gamma" and (values <= 0).any():
        raise ValueError(f"y of a gamma model are positive, received {values.min():g}")
    if family == "binomial":
        assert trials is not None
        if (values > trials).any():
            worst = int(np.argmax(values - trials))
            raise ValueError(
                f"y counts successes: {row_words(worst)} has {values[worst]:g} of {trials[worst]:g} trials"
            )
    return values


def check_trials(trials: FloatArray) -> None:
    """Refuse what is no number of trials."""
    odd = trials[~((trials >= 0) & (trials == np.round(trials)))]
    if len(odd):
        raise ValueError(f"trials must be whole numbers from 0, received {odd[0]:g}")


def expected_response(link: str, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """E[inverse link(eta)] for eta ~ N(mean, variance)."""
    if link == "identity":
        return mean
    if link == "log":
        return np.asarray(np.exp(mean + 0.5 * variance))
    if link == "probit":
        return np.asarray(ndtr(mean / np.sqrt(1.0 + variance)))
    return average("logit", 1, mean, variance)


def average(link: str, power: int, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """E[inverse link(eta)^power] of a probability, by Gauss-Hermite quadrature, or where a Gaussian is wide by

    E[F(eta)] = int F'(u) Phi((mean - u) / deviation) du,  the trapezoidal rule in u.
    """
    mean, variance = np.broadcast_arrays(mean, variance)
    made, deviation = np.zeros(mean.shape), np.sqrt(variance)
    wide = variance > WIDE
    for node, share in zip(*hermite(QUADRATURE), strict=True):
        eta = mean[~wide] + node * deviation[~wide]
        made[~wide] += share * response(link, eta) ** power
    places = np.arange(-REACH, REACH, STEP)
    density = expit(places) * expit(-places) if link == "logit" else norm_density(places)
    shares = power * response(link, places) ** (power - 1) * density
    for place, share in zip(places, shares / shares.sum(), strict=True):
        made[wide] += share * ndtr((mean[wide] - place) / deviation[wide])
    return made


def norm_density(x: FloatArray) -> FloatArray:
    """Of N(0, 1)."""
    return np.asarray(np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi))


def response(link: str, eta: FloatArray) -> FloatArray:
    """Inverse link."""
    if link == "identity":
        return eta
    if link == "log":
        return np.asarray(np.exp(np.minimum(eta, 700.0)))
    return np.asarray(ndtr(eta) if link == "probit" else expit(eta))
