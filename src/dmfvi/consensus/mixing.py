"""Mixing polynomials: how r exchanges with neighbours average best on a known spectrum.

Mixing is x_m = x_{m-1} + b_m (x_{m-1} - x_{m-2}) - a_m L x_{m-1}, m = 1..r. Each component of x
along a Laplacian eigenvector is multiplied by a polynomial of degree r that is 1 at zero, so the
average is kept whatever the coefficients; they are chosen to damp the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dmfvi.consensus.base import LocalView
from dmfvi.linalg import FloatArray
from dmfvi.network import Network
from dmfvi.tags import stored_as

#: disagreement left after one sweep's mixing: smaller wastes rounds, larger wastes sweeps
DEFAULT_DAMPING = 0.05
#: nodes up to which that is enough wherever the data are
FEW_NODES = 16
#: rounding of one exchange may grow by this factor until the end of a sweep; beyond it the product is not exact
MOST_AMPLIFICATION = 1e5
#: past this many factors the exact product loses digits that Chebyshev keeps
MAX_EXACT_ROUNDS = 24


@stored_as("spectral-view")
@dataclass(frozen=True)
class SpectralView(LocalView):
    """A node's position, and the spectrum of the network's Laplacian on which all nodes agreed."""

    eigenvalues: FloatArray  # distinct and non-zero, ascending
    mean_degree: float
    max_degree: int

    @classmethod
    def of(cls, network: Network, node: int) -> SpectralView:
        return cls(
            node,
            network.neighbours(node),
            network.n_nodes,
            network.diameter,
            network.distinct_eigenvalues,
            2.0 * network.n_edges / network.n_nodes,
            network.max_degree,
        )

    @property
    def lowest(self) -> float:
        """l_2, by which a disagreement with the neighbours bounds that with everybody; 1 for a single node."""
        return float(self.eigenvalues[0]) if len(self.eigenvalues) else 1.0


@stored_as("mixing")
@dataclass(frozen=True)
class Mixing:
    """Coefficients of one sweep's mixing, and the worst damping over the spectrum."""

    gradient: tuple[float, ...]  # a_m
    momentum: tuple[float, ...]  # b_m
    damping: float

    @property
    def rounds(self) -> int:
        """Exchanges per sweep."""
        return len(self.gradient)


def stable_damping(n_nodes: int) -> float:
    """Disagreement that a sweep may leave so that sweeps converge wherever the data are.

    A node's statistics count V-fold in its target. If it holds nearly all rows, what a sweep's mixing leaves over
    comes back V times as large in the next, so V damping must be below 1.
    """
    return DEFAULT_DAMPING * min(1.0, FEW_NODES / n_nodes)


def design_mixing(
    eigenvalues: FloatArray, rounds: int | None = None, damping: float = DEFAULT_DAMPING
) -> Mixing:
    """The shortest mixing that reaches ``damping``, or the best one of a given length.

    With as many rounds as distinct eigenvalues the average is exact (the product of
    1 - L/l over them annihilates every other component); otherwise Chebyshev on the interval.
    """
    return _design(tuple(float(v) for v in eigenvalues), rounds, float(damping))


@lru_cache(maxsize=256)
def _design(eigenvalues: tuple[float, ...], rounds: int | None, damping: float) -> Mixing:
    if not eigenvalues:
        return Mixing((0.0,), (0.0,), 0.0)
    exact_rounds = len(eigenvalues)
    if amplification(np.array(eigenvalues)) > MOST_AMPLIFICATION:
        exact_rounds = MAX_EXACT_ROUNDS + 1  # the product exists on paper only
    if rounds is not None:
        if exact_rounds <= min(rounds, MAX_EXACT_ROUNDS):
            return _exact(eigenvalues, rounds)
        return _chebyshev(eigenvalues, rounds)
    r = 1
    while True:
        if exact_rounds <= min(r, MAX_EXACT_ROUNDS):
            return _exact(eigenvalues, r)
        mixing = _chebyshev(eigenvalues, r)
        if mixing.damping <= damping:
            return mixing
        r += 1


def _exact(eigenvalues: tuple[float, ...], rounds: int) -> Mixing:
    ordered = _leja(eigenvalues)
    # spare rounds repeat the middle root: they damp what rounding left over
    spare = [2.0 / (eigenvalues[0] + eigenvalues[-1])] * (rounds - len(ordered))
    gradient = [1.0 / value for value in ordered] + spare
    return Mixing(tuple(gradient), (0.0,) * rounds, 0.0)


def amplification(eigenvalues: FloatArray) -> float:
    """By how much rounding in an exchange can grow in those after it: the largest product of the exact form's last factors."""
    product, worst = np.ones(len(eigenvalues)), 1.0
    for root in reversed(_leja(tuple(eigenvalues.tolist()))):
        product = product * (1.0 - eigenvalues / root)
        worst = max(worst, float(np.abs(product).max()))
    return worst


def _leja(values: tuple[float, ...]) -> list[float]:
    """Order the roots so that partial products stay small (Leja ordering)."""
    if not values:
        return []
    remaining = list(values)
    ordered = [remaining.pop(int(np.argmax(np.abs(remaining))))]
    while remaining:
        distance = [sum(np.log(abs(v - o)) for o in ordered) for v in remaining]
        ordered.append(remaining.pop(int(np.argmax(distance))))
    return ordered


def _chebyshev(eigenvalues: tuple[float, ...], rounds: int) -> Mixing:
    low, high = eigenvalues[0], eigenvalues[-1]
    centre = 0.5 * (high + low)
    ratio = (high - low) / (high + low)
    gradient, momentum = [1.0 / centre], [0.0]
    before, now = 1.0, 1.0 / ratio  # T_0 and T_1 of Chebyshev at 1/ratio
    for _ in range(rounds - 1):
        after = 2.0 / ratio * now - before
        momentum.append(before / after)
        gradient.append((1.0 + before / after) / centre)
        before, now = now, after
    return Mixing(tuple(gradient), tuple(momentum), 1.0 / now)
