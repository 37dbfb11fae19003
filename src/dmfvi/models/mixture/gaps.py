"""Missing entries of Gaussian mixtures, parameters integrated out: mixtures of Student distributions.

A component's predictive distribution is Student(mu, S, v) with S = scatter (k + 1) / (k v), v = dof + 1 - D for a
confidence k. Given the observed part o of a row its missing part m is (Ding 2016, Am. Stat. 70:293)

    Student(mu_m + S_mo S_oo^-1 (x_o - mu_o),  (v + d_o) / (v + n_o) (S_mm - S_mo S_oo^-1 S_om),  v + n_o)

with d_o the squared distance of x_o and n_o its length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from dmfvi.families import NormalGamma, Product
from dmfvi.linalg import FloatArray, cholesky, symmetrize
from dmfvi.models.mixture.prediction import patterns_of, predictive_shapes

#: halvings of the bracket of a quantile
HALVINGS = 60


@dataclass(frozen=True)
class Gap:
    """The missing part of rows that lack the same entries, under each component."""

    rows: np.ndarray  # (n,)
    missing: np.ndarray  # (m,) positions
    location: FloatArray  # (n, K, m)
    scatter: FloatArray  # (K, m, m): that of the Student distribution over ``factor``
    factor: FloatArray  # (n, K)
    dof: FloatArray  # (K, 1), or (K, m) where features are independent

    @property
    def scale(self) -> FloatArray:
        """Of each entry, (n, K, m)."""
        within = np.diagonal(self.scatter, axis1=-2, axis2=-1)
        return np.asarray(np.sqrt(self.factor[:, :, None] * within))


def gaps_of(q: Product, data: FloatArray) -> list[Gap]:
    """What is missing of the rows, in the units of q."""
    found = []
    if isinstance(q["components"], NormalGamma):
        return _independent_gaps(q["components"], data)
    mean = q["components"].parameters()["mean"]
    shape, dof = predictive_shapes(q["components"])
    for pattern, rows in patterns_of(data):
        o, m = np.flatnonzero(pattern), np.flatnonzero(~pattern)
        if not len(m):
            continue
        gap = data[np.ix_(rows, o)][:, None, :] - mean[:, o]
        inner, cross = shape[:, o[:, None], o], shape[:, o[:, None], m]
        slope = np.linalg.solve(inner, cross)  # (K, o, m)
        solved = np.linalg.solve(inner, np.moveaxis(gap, 0, -1))  # (K, o, n)
        distance = np.einsum("nko,kon->nk", gap, solved)
        within = shape[:, m[:, None], m] - np.swapaxes(cross, -1, -2) @ slope
        found.append(
            Gap(
                rows,
                m,
                mean[:, m] + np.einsum("nko,kom->nkm", gap, slope),
                symmetrize(within),
                (dof + distance) / (dof + len(o)),
                (dof + len(o))[:, None],
            )
        )
    return found


def _independent_gaps(components: NormalGamma, data: FloatArray) -> list[Gap]:
    """Independent features: each entry as if nothing of its row was observed, given the component."""
    p = components.parameters()
    scale = p["rate"] / p["shape"] * (1.0 + 1.0 / p["precision"][..., 0, 0])
    found = []
    for pattern, rows in patterns_of(data):
        m = np.flatnonzero(~pattern)
        if len(m):
            location = np.tile(p["mean"][:, m, 0], (len(rows), 1, 1))
            scatter = scale[:, m, None] * np.eye(len(m))
            dof = 2.0 * p["shape"][:, m]
            found.append(Gap(rows, m, location, scatter, np.ones((len(rows), len(dof))), dof))
    return found


def means_and_variances(
    gaps: list[Gap], share: FloatArray, data: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Rows with missing entries replaced by predictive means, and variances, zero where observed."""
    filled, variance = data.copy(), np.zeros_like(data)
    for gap in gaps:
        r = share[gap.rows]
        spread = gap.scale**2 * (gap.dof / np.maximum(gap.dof - 2.0, 0.5 * gap.dof))
        first = np.einsum("nk,nkm->nm", r, gap.location)
        between = (gap.location - first[:, None, :]) ** 2
        at = np.ix_(gap.rows, gap.missing)
        filled[at] = first
        variance[at] = np.einsum("nk,nkm->nm", r, spread + between)
    return filled, variance


def interval_of(
    gaps: list[Gap], share: FloatArray, data: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """Central predictive intervals of the missing entries; the entries themselves where observed."""
    if not gaps:
        return data.copy(), data.copy()
    # all entries (n) of all gaps at once
    at = np.concatenate([(gap.rows[:, None] * data.shape[1] + gap.missing).ravel() for gap in gaps])
    shares = np.concatenate([np.repeat(share[gap.rows], len(gap.missing), axis=0) for gap in gaps])
    location, scale, dof = (
        np.concatenate(
            [_by_entry(np.broadcast_to(part, gap.location.shape)) for gap, part in pairs]
        )
        for pairs in zip(
            *[((gap, gap.location), (gap, gap.scale), (gap, gap.dof)) for gap in gaps], strict=True
        )
    )
    ends = []
    for probability in (0.5 - 0.5 * level, 0.5 + 0.5 * level):
        end = data.copy()
        end.ravel()[at] = mixture_quantile(
            shares,
            location,
            scale,
            probability,
            partial(stdtr, dof),
            np.asarray(stdtrit(dof, probability)),
        )[:, 0]
        ends.append(end)
    return ends[0], ends[1]


def _by_entry(values: FloatArray) -> FloatArray:
    """(n, K, m) as (n m, K, 1)."""
    n, k, m = values.shape
    return np.moveaxis(values, 1, 2).reshape(n * m, k, 1)


def mixture_quantile(
    share: FloatArray,
    location: FloatArray,
    scale: FloatArray,
    probability: float,
    cdf: Callable[..., Any] = ndtr,
    standard: Any = None,
) -> FloatArray:
    """The quantile of mixtures (n, m) of shares (n, K) at locations and scales (n, K, m), by bisection.

    ``standard`` is the components' own quantile: the mixture's lies between the least and the largest of them.
    """
    z = ndtri(probability) if standard is None else standard
    own = location + scale * z
    low, high = own.min(1), own.max(1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = np.einsum("nk,nkm->nm", share, cdf((middle[:, None, :] - location) / scale))
        low = np.where(below < probability, middle, low)
        high = np.where(below < probability, high, middle)
    return np.asarray(0.5 * (low + high))


def draws_of(
    gaps: list[Gap], share: FloatArray, data: FloatArray, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """Rows (n_draws, n, D) with missing entries drawn, those of a row together."""
    made = np.tile(data, (n_draws, 1, 1))
    for gap in gaps:
        root = cholesky(gap.scatter)
        n, k, m = gap.location.shape
        which = np.arange(n)
        edges = np.cumsum(share[gap.rows], axis=1)
        for draw in made:
            label = np.minimum((rng.random((n, 1)) > edges).sum(1), k - 1)
            dof = gap.dof[label]
            stretch = np.sqrt(gap.factor[which, label][:, None] * dof / rng.chisquare(dof))
            error = np.einsum("nij,nj->ni", root[label], rng.standard_normal((n, m)))
            draw[np.ix_(gap.rows, gap.missing)] = gap.location[which, label] + stretch * error
    return made
