"""Rows of which hardly two lack the same entries: all rows that lack as many entries at once.

With g the observed part of x minus mu_k, zero where x is missing, L = E[L_k] and m the missing entries of a row:

    E[x_m | x_o, k] = mu_m - H^-1 (L g)_m     H = L_mm, its spread's inverse     squared distance = g'L g - (L g)_m' H^-1 (L g)_m

the same numbers as pattern by pattern, by few products over all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dmfvi.families.normal import HALF_LOG_2PI
from dmfvi.linalg import FloatArray, inverse, log_det

#: numbers of an intermediate array at most
MOST_NUMBERS = 500_000


class Pattern(Protocol):
    """Rows of which the same entries are observed."""

    @property
    def observed(self) -> NDArray[np.bool_]: ...

    @property
    def values(self) -> FloatArray: ...

    @property
    def weight(self) -> FloatArray | None: ...


class Densities(Protocol):
    """E[log pi_k] + E[log N(x | mu_k, L_k)]."""

    @property
    def log_weight(self) -> FloatArray: ...

    @property
    def location(self) -> FloatArray: ...

    @property
    def precision(self) -> FloatArray: ...

    @property
    def constant(self) -> FloatArray: ...


@dataclass(frozen=True)
class Scattered:
    """Rows that lack the same number of entries."""

    values: FloatArray  # (n, D), zero where missing
    seen: FloatArray  # (n, D), one where observed
    missing: NDArray[np.intp]  # (n, m) positions
    weight: FloatArray  # (n,)

    def blocks(self, n_components: int) -> Iterator[Scattered]:
        """Parts whose intermediate arrays are small."""
        n, d = self.values.shape
        step = max(1, MOST_NUMBERS // (n_components * (d + self.missing.shape[1] ** 2)))
        for a in range(0, n, step):
            part = slice(a, a + step)
            yield Scattered(
                self.values[part], self.seen[part], self.missing[part], self.weight[part]
            )


def scattered(groups: Sequence[Pattern]) -> list[Scattered]:
    """Rows of some patterns by how many entries they lack; those without an observed entry are left out."""
    by_number: dict[int, list[Pattern]] = {}
    for group in groups:
        if group.observed.any():
            by_number.setdefault(int((~group.observed).sum()), []).append(group)
    made = []
    for _, own in sorted(by_number.items()):
        sizes = [group.values.shape[1] for group in own]
        seen = np.repeat([group.observed for group in own], sizes, axis=0)
        values = np.zeros(seen.shape)
        values[seen] = np.concatenate([group.values.T.ravel() for group in own])
        missing = np.repeat([np.flatnonzero(~group.observed) for group in own], sizes, axis=0)
        weight = np.concatenate(
            [np.ones(n) if g.weight is None else g.weight for g, n in zip(own, sizes, strict=True)]
        )
        made.append(Scattered(values, seen.astype(np.float64), missing, weight))
    return made


def moments_of(
    rows: Scattered, densities: Densities
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Expected count (K,), first (K, D) and second moments (K, D, D), and the rows' part of the bound."""
    location, precision = densities.location, densities.precision
    k, d = location.shape
    n, m = rows.missing.shape
    centred = rows.seen[:, None, :] * (rows.values[:, None, :] - location)  # (n, K, D)
    pushed = np.swapaxes(np.swapaxes(centred, 0, 1) @ precision, 0, 1)
    at = rows.missing
    pull = pushed[np.arange(n)[:, None, None], np.arange(k)[:, None], at[:, None, :]]  # (n, K, m)
    hidden = np.moveaxis(precision[:, at[:, :, None], at[:, None, :]], 0, 1)  # (n, K, m, m)
    spread = inverse(hidden)
    step = np.einsum("nkij,nkj->nki", spread, pull)
    distance = np.einsum("nki,nki->nk", centred, pushed) - np.einsum("nki,nki->nk", pull, step)
    constant = densities.log_weight + densities.constant - HALF_LOG_2PI * (d - m)
    score = constant - 0.5 * (log_det(hidden) + distance)
    top = score.max(1, keepdims=True)
    share = np.exp(score - top)
    total = share.sum(1, keepdims=True)
    bound = float(rows.weight @ (top + np.log(total))[:, 0])
    share *= rows.weight[:, None] / total
    filled = location + centred
    filled[np.arange(n)[:, None, None], np.arange(k)[:, None], at[:, None, :]] -= step
    weighted = share[:, :, None] * filled
    second = np.moveaxis(weighted, 0, 1).swapaxes(1, 2) @ np.moveaxis(filled, 0, 1)
    flat = (at[:, :, None] * d + at[:, None, :]).ravel()  # where a row's spread goes
    spreads = share[:, :, None, None] * spread
    for at_k in range(k):
        second[at_k] += np.bincount(flat, spreads[:, at_k].ravel(), d * d).reshape(d, d)
    return share.sum(0), weighted.sum(0), second, bound
