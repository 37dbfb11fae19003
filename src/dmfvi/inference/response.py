"""Linear response: covariances of global quantities that mean field makes too small.

Mean field treats local variables as independent of global ones, so the variances of its q are too small. The
sensitivity of the posterior expectation to the prior is the covariance (Giordano, Broderick & Jordan 2018, J. Mach.
Learn. Res. 19(51), section 3):

    Cov(T_k, g) = d E_q[g] / d t    where t T_k is added to the log prior

A belief follows from the total of all statistics, b = B(u), and the data make a total of a belief, u = S(b). The tilt
adds t e_k to the total that a belief follows from: u = S(B(u)) + t e_k. So

    du/dt = (I - J)^-1 e_k     J = d S(B(u)) / du     Cov(T_k, T_l) = d E_B(u + h du/dt)[T_l] / dh

A product with J is one sweep: the local steps of the fit at two nearby beliefs, and one agreed sum for all quantities
at once. The equations are solved in a Krylov space by least residuals (as GMRES; Saad & Schultz
1986), by the same numbers at every node.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmfvi.inference.model import Coroutine, Model
from dmfvi.inference.sensitivity import SMALL_STEP, gradient
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray

#: relative size of a step of central differences: their error is its square
STEP = 1e-4
#: relative residual at which the equations count as solved
TOLERANCE = 1e-6
#: sums at most
MAX_SUMS = 60
#: directions smaller than this are noise of the differences
NOTHING_NEW = 1e-8


@dataclass(frozen=True)
class Quantities:
    """What the covariance is wanted of.

    tilts : (r, n), for each quantity what it adds to the total when the log prior is tilted by it: the gradient of the
        quantity with respect to the expected statistics.
    values : a belief's expectations of the quantities, (r,).
    """

    tilts: FloatArray
    values: Callable[[Any], FloatArray]


@dataclass(frozen=True)
class Response:
    """Expectations and covariance of quantities, by linear response and by mean field."""

    mean: FloatArray  # (r,)
    covariance: FloatArray  # (r, r)
    mean_field_covariance: FloatArray  # (r, r): what the fitted q says
    n_sums: int
    residual: float  # relative, of the worst quantity
    slowest: (
        float  # largest eigenvalue of J that was seen: near 1 the data hardly determine something
    )

    @property
    def converged(self) -> bool:
        """Whether the equations are solved."""
        return self.residual <= TOLERANCE

    @property
    def std(self) -> FloatArray:
        """Standard deviations, by linear response."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))


def linear_response(
    session: Session,
    model: Model,
    shards: Sequence[Any],
    beliefs: Sequence[Any],
    quantities: Quantities,
    max_sums: int = MAX_SUMS,
) -> Response:
    """The covariance of quantities at the fitted beliefs, the same at every node."""
    plain = model.for_response()
    found = session.collective.run(
        [
            _respond(plain, shard, belief, quantities, max_sums)
            for shard, belief in zip(shards, beliefs, strict=True)
        ]
    )
    response: Response = found[0]
    if max_sums and not response.converged:
        warnings.warn(
            f"linear response has a relative residual of {response.residual:.1e} after {response.n_sums} sums: "
            "its variances are too small; the data hardly determine a direction, or the fit has not converged",
            UserWarning,
            stacklevel=3,
        )
    return response


def _respond(
    model: Model, shard: Any, belief: Any, quantities: Quantities, max_sums: int
) -> Coroutine:
    own = model.statistics(shard, belief)
    total = yield own
    scale = _scale(model, total)
    here = np.asarray(total, dtype=np.float64)

    def at(point: FloatArray) -> Any:
        return model.belief_from(point, own, belief)

    def sweep(directions: FloatArray) -> Coroutine:
        """J times scaled directions (r, n), by one sum."""
        parts = []
        for direction in directions:
            norm = float(np.linalg.norm(direction))
            if norm == 0.0:
                parts.append(np.zeros_like(here))
                continue
            move = STEP / norm * scale * direction
            ahead, back = (model.statistics(shard, at(here + s * move)) for s in (1.0, -1.0))
            parts.append((ahead - back) * (0.5 * norm / STEP))
        summed = yield np.concatenate(parts)
        return np.where(scale > 0, summed.reshape(len(parts), -1), 0.0) / np.where(
            scale > 0, scale, 1.0
        )

    padded = np.zeros((len(quantities.tilts), len(here)))
    padded[:, : quantities.tilts.shape[1]] = quantities.tilts
    wanted = padded / np.where(scale > 0, scale, np.inf)
    solution, n_sums, residual, slowest = yield from _solve(sweep, wanted, max(0, max_sums - 1))

    def covariance(directions: FloatArray) -> FloatArray:
        """Change of the quantities along each direction, by the change of the expected statistics."""
        rows = []
        for direction in directions:
            norm = float(np.linalg.norm(direction)) or 1.0
            along = scale * direction / norm

            def moved(step: FloatArray, along: FloatArray = along) -> FloatArray:
                return model.expected(at(here + step[0] * along))

            rows.append(norm * gradient(moved, np.array([SMALL_STEP]))[0])
        found = np.array(rows) @ quantities.tilts.T
        return 0.5 * (found + found.T)

    return Response(
        np.asarray(quantities.values(at(here))),
        covariance(solution),
        covariance(wanted),
        n_sums + 1,
        residual,
        slowest,
    )


def _scale(model: Model, total: FloatArray) -> FloatArray:
    """The size of each block of the total, so that none drowns the others; 0 for the bound, which plays no part."""
    scale = np.abs(total)
    scale[-1] = 0.0
    for block in model.blocks(total):
        size = float(np.linalg.norm(total[block])) / np.sqrt(max(1, block.stop - block.start))
        scale[block] = max(size, float(np.finfo(float).tiny))
    return scale


def _solve(
    sweep: Callable[[FloatArray], Coroutine], wanted: FloatArray, max_sums: int
) -> Coroutine:
    """Solve (I - J) x = b for all rows b in one Krylov space that they share: one sum adds J times what is new in it.

    Quantities of one model lead to few new directions after the first sum, so that many cost little more than one.
    """
    norms = np.linalg.norm(wanted, axis=1)
    goals = wanted / np.where(norms > 0, norms, 1.0)[:, None]
    basis, images = np.zeros((0, wanted.shape[1])), np.zeros((0, wanted.shape[1]))
    solution, residual = goals.copy(), np.where(norms > 0, 1.0, 0.0)
    new, n_sums = _directions(goals), 0
    while n_sums < max_sums and len(new) and residual.max(initial=0.0) > TOLERANCE:
        product = yield from sweep(new)
        n_sums += 1
        basis, images = np.vstack([basis, new]), np.vstack([images, product])
        operator = (basis - images).T
        weights = np.linalg.lstsq(operator, goals.T, rcond=None)[0]
        residual = np.linalg.norm(operator @ weights - goals.T, axis=0)
        solution = weights.T @ basis
        for _ in range(2):  # twice: rounding would spoil the basis
            product = product - (product @ basis.T) @ basis
        new = _directions(product)
    slowest = np.linalg.eigvals(images @ basis.T).real.max(initial=0.0)
    worst = float(residual.max(initial=0.0))
    return solution * norms[:, None], n_sums, worst, float(slowest)


def _directions(vectors: FloatArray) -> FloatArray:
    """An orthonormal basis of what these vectors span, up to what rounding and differences explain."""
    _, sizes, rows = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(rows[sizes > NOTHING_NEW])
