"""Linear response: covariances of global quantities that mean field makes too small.

Mean field treats local variables as independent of global ones, so the variances of its q are too small. The
sensitivity of the posterior expectation to the prior is the covariance (Giordano, Broderick & Jordan 2018, J. Mach.
Learn. Res. 19(51), section 3):

    Cov(T_k, g) = d E_q[g] / d t    where t T_k is added to the log prior

A belief follows from the total of all statistics, b = B(u), and the data make a total of a belief, u = S(b). The tilt
adds t e_k to the total that a belief follows from: u = S(B(u)) + t e_k. So

    du/dt = (I - J)^-1 e_k     J = d S(B(u)) / du     Cov(T_k, T_l) = d E_B(u + h du/dt)[T_l] / dh

A product with J is one sweep: the model's own derivative of it, or the local steps of the fit at two nearby beliefs,
and one agreed sum for all quantities at once. The equations are solved in a block Krylov space by least residuals (as
GMRES; Saad & Schultz 1986), by the same numbers at every node.

Many quantities: what linear response adds to the covariance of q, X = Cov - Cov_q, is symmetric and of low rank where
few local dimensions couple all quantities. With O some random combinations of them, X = XO (O'XO)^-1 (XO)' (Nystroem's
approximation; Halko, Martinsson & Tropp 2011, SIAM Rev. 53, 217), tested on combinations that were left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from dmfvi.inference.deflation import Deflation, SlowDirections
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
#: from this many quantities on random combinations of them are tried, and this many more to test them
SKETCH_FROM, TESTS = 40, 2
#: error of the covariance that combinations may leave, in Frobenius norm, relative to the variances: deviations are
#: then wrong by less than 1 %, much less than linear response itself
SKETCH_TOLERANCE = 1e-2
#: relative residual at which their equations count as solved: more would be lost in the error of combinations
SKETCH_RESIDUAL = 1e-3


@dataclass(frozen=True)
class Quantities:
    """What the covariance is wanted of.

    tilts : (r, n), for each quantity what it adds to the total when the log prior is tilted by it: the gradient of the
        quantity with respect to the expected statistics.
    values : a belief's expectations of the quantities, (r,).
    """

    tilts: FloatArray
    values: Callable[[Any], FloatArray]


class Derivative(Protocol):
    """The derivative of a sweep at a fitted belief, for directions (s, n) of the total."""

    @property
    def rank(self) -> int:
        """How many local dimensions couple the quantities: about the rank of what q leaves out of their covariance."""

    def sweep(self, directions: FloatArray) -> FloatArray:
        """This node's part of J times the directions, (s, n)."""

    def expected(self, directions: FloatArray) -> FloatArray:
        """Change of ``Model.expected`` along the directions, (s, n)."""

    def own_covariance(self, tilts: FloatArray) -> FloatArray | None:
        """Covariance of tilts (r, n) that q itself has, or None where that is not simpler than ``expected``."""

    def slow(self, total: FloatArray, tilts: FloatArray) -> SlowDirections | None:
        """Directions of the total in which quantities with these tilts respond slowly, where they are known."""


@dataclass(frozen=True)
class Differences:
    """The derivative of any model, by differences."""

    model: Model
    shard: Any
    at: Callable[[FloatArray], Any]
    here: FloatArray
    scale: FloatArray
    rank: int = 0  # not known

    def sweep(self, directions: FloatArray) -> FloatArray:
        """By central differences."""
        parts = np.zeros_like(directions)
        for part, direction in zip(parts, directions, strict=True):
            norm = self._size(direction)
            if norm > 0.0:
                move = STEP / norm * direction
                ahead, back = (
                    self.model.statistics(self.shard, self.at(self.here + s * move))
                    for s in (1.0, -1.0)
                )
                part[:] = (ahead - back) * (0.5 * norm / STEP)
        return parts

    def expected(self, directions: FloatArray) -> FloatArray:
        """By differences of fourth order."""
        rows = []
        for direction in directions:
            norm = self._size(direction) or 1.0
            along = direction / norm

            def moved(step: FloatArray, along: FloatArray = along) -> FloatArray:
                return self.model.expected(self.at(self.here + step[0] * along))

            rows.append(norm * gradient(moved, np.array([SMALL_STEP]))[0])
        return np.array(rows).reshape(len(directions), -1)

    def own_covariance(self, tilts: FloatArray) -> FloatArray | None:
        """Not known apart."""
        return None

    def slow(self, total: FloatArray, tilts: FloatArray) -> SlowDirections | None:
        """Not known."""
        return None

    def _size(self, direction: FloatArray) -> float:
        """Length in units of the total's blocks."""
        return float(np.linalg.norm(direction[self.scale > 0] / self.scale[self.scale > 0]))


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

    sketch_error: float = 0.0  # of the covariance, where it follows from combinations of quantities

    @property
    def converged(self) -> bool:
        """Whether the equations are solved."""
        return self.residual <= (SKETCH_RESIDUAL if self.sketch_error else TOLERANCE)

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

    derivative: Derivative = model.derivative(shard, at(here)) or Differences(
        model, shard, at, here, scale
    )

    def sweep(directions: FloatArray) -> Coroutine:
        """J times scaled directions (r, n), by one sum."""
        summed = yield derivative.sweep(scale * directions).ravel()
        return np.where(scale > 0, summed.reshape(directions.shape), 0.0) / np.where(
            scale > 0, scale, 1.0
        )

    tilts = quantities.tilts
    width = tilts.shape[1]  # the bound may be left out

    def scaled(block: FloatArray) -> FloatArray:
        """What tilts (s, width) add to the total, in units of its blocks."""
        found = np.zeros((len(block), len(here)))
        found[:, :width] = block / np.where(scale > 0, scale, np.inf)[:width]
        return found

    alone = derivative.own_covariance(tilts)
    if alone is None:
        alone = _symmetric(derivative.expected(scale * scaled(tilts))[:, :width] @ tilts.T)
    mean = np.asarray(quantities.values(at(here)))
    response = Response(mean, alone, alone, 1, 1.0 if max_sums else 0.0, 0.0)
    if not max_sums:
        return response

    slow = derivative.slow(here, tilts) if len(tilts) >= SKETCH_FROM else None
    deflation: Deflation | None = None
    base = alone  # what is known of the covariance before the equations are solved
    if slow is not None:
        deflation = yield from Deflation.of(slow, scale, sweep)
        moved = derivative.expected(scale * (deflation.directions - deflation.images))[:, :width]
        known = slow.expected[:, :width] @ tilts.T
        base = deflation.covariance(slow.own, known, moved @ tilts.T)
        response = replace(response, n_sums=2)

    def fast(directions: FloatArray) -> Coroutine:
        """The same without the slow directions."""
        return (yield from sweep(deflation.remainder(directions) if deflation else directions))

    def solved(block: FloatArray, sums: int, tolerance: float = TOLERANCE) -> Coroutine:
        """Covariances (s, r) of combinations of tilts (s, width) with all quantities."""
        found, n_sums, residual, slowest = yield from _solve(fast, scaled(block), sums, tolerance)
        solution = deflation.solution(found) if deflation else found
        moved = derivative.expected(scale * solution)[:, :width]
        return moved @ tilts.T, n_sums, residual, slowest

    if len(tilts) >= SKETCH_FROM and derivative.rank:
        sizes = (0 if deflation else derivative.rank, derivative.rank)
        response, good = yield from _sketched(response, base, tilts, solved, max_sums, sizes)
        if good:
            return response
    found, n_sums, residual, slowest = yield from solved(tilts, max_sums - response.n_sums)
    return replace(
        response,
        covariance=_symmetric(found),
        n_sums=response.n_sums + n_sums,
        residual=residual,
        slowest=slowest,
        sketch_error=0.0,
    )


def _sketched(
    response: Response,
    base: FloatArray,
    tilts: FloatArray,
    solved: Callable[[FloatArray, int, float], Coroutine],
    max_sums: int,
    sizes: tuple[int, int],
) -> Coroutine:
    """Covariances from random combinations of the quantities, and whether they are good enough.

    What they add to ``base`` is wanted; first by as many combinations as the first of ``sizes``, then by at least the second.
    """
    size, least = sizes
    alone = response.mean_field_covariance
    units = np.sqrt(np.maximum(np.diagonal(alone), np.finfo(float).tiny))
    rng = np.random.default_rng(0)  # the same combinations at every node
    mixes, images = np.zeros((0, len(units))), np.zeros((0, len(units)))
    n_sums, residual, slowest = response.n_sums, 0.0, 0.0
    while True:
        new = rng.standard_normal((size + TESTS, len(units))) / units
        # half of the sums are left for all quantities one by one
        sums = max(1, max_sums // 2 - n_sums)
        found, used, left, slow = yield from solved(new @ tilts, sums, SKETCH_RESIDUAL)
        n_sums, residual, slowest = n_sums + used, max(residual, left), max(slowest, slow)
        mixes, images = np.vstack([mixes, new]), np.vstack([images, found - new @ base])
        kept, tests = slice(0, -TESTS), slice(-TESTS, None)
        guess = _from_sketch(mixes[kept], images[kept], units)
        gap = (mixes[tests] @ guess - images[tests]) / units
        # tests alone are too few to add anything
        covariance = base + (_from_sketch(mixes, images, units) if size else 0.0)
        variances = np.diagonal(covariance) / units**2
        error = float(np.sqrt(np.mean(np.sum(gap**2, axis=1))) / np.linalg.norm(variances))
        made = replace(
            response,
            covariance=covariance,
            n_sums=n_sums,
            residual=residual,
            slowest=slowest,
            sketch_error=error,
        )
        size = max(least, 2 * len(mixes))
        if error <= SKETCH_TOLERANCE and residual <= SKETCH_RESIDUAL:
            return made, True
        if len(mixes) + size > len(units) // 2 or n_sums >= max_sums // 2:
            return made, False


def _from_sketch(mixes: FloatArray, images: FloatArray, units: FloatArray) -> FloatArray:
    """The symmetric matrix X of low rank with mixes @ X = images, in units of the quantities."""
    scaled = images / units
    core = _symmetric(scaled @ (mixes * units).T)
    sizes, vectors = np.linalg.eigh(core)
    kept = np.abs(sizes) > NOTHING_NEW * np.abs(sizes).max(initial=0.0)
    rows = vectors[:, kept].T @ scaled
    return np.asarray(units[:, None] * (rows.T / sizes[kept] @ rows) * units)


def _symmetric(matrix: FloatArray) -> FloatArray:
    return 0.5 * (matrix + matrix.T)


def _scale(model: Model, total: FloatArray) -> FloatArray:
    """The size of each block of the total, so that none drowns the others; 0 for the bound, which plays no part."""
    scale = np.abs(total)
    scale[-1] = 0.0
    for block in model.blocks(total):
        size = float(np.linalg.norm(total[block])) / np.sqrt(max(1, block.stop - block.start))
        scale[block] = max(size, float(np.finfo(float).tiny))
    return scale


def _solve(
    sweep: Callable[[FloatArray], Coroutine],
    wanted: FloatArray,
    max_sums: int,
    tolerance: float = TOLERANCE,
) -> Coroutine:
    """Solve (I - J) x = b for all rows b in one Krylov space that they share: one sum adds J times what is new in it.

    Quantities of one model lead to few new directions after the first sum, so that many cost little more than one.
    With V the basis, J V_k = V_(k+1) H: what is minimised is as small as the basis.
    """
    norms = np.linalg.norm(wanted, axis=1)
    goals = wanted / np.where(norms > 0, norms, 1.0)[:, None]
    new = _directions(goals)
    basis, right = new, goals @ new.T
    matrix = np.zeros((0, len(basis)))  # of J, a row for each direction that has been multiplied
    weights, residual, n_sums = right, np.where(norms > 0, 1.0, 0.0), 0
    while n_sums < max_sums and len(new) and residual.max(initial=0.0) > tolerance:
        product = yield from sweep(new)
        n_sums += 1
        inside = product @ basis.T
        product = product - inside @ basis
        again = product @ basis.T  # twice: rounding would spoil the basis
        product = product - again @ basis
        new = _directions(product)
        rows = np.hstack([inside + again, product @ new.T])
        matrix = np.vstack([np.hstack([matrix, np.zeros((len(matrix), len(new)))]), rows])
        basis = np.vstack([basis, new])
        goal = np.hstack([right, np.zeros((len(right), len(basis) - right.shape[1]))])
        operator = np.eye(*matrix.shape) - matrix
        weights = np.linalg.lstsq(operator.T, goal.T, rcond=None)[0].T
        residual = np.linalg.norm(weights @ operator - goal, axis=1)
    seen = matrix[:, : len(matrix)]
    slowest = np.linalg.eigvals(seen).real.max(initial=0.0)
    worst = float(residual.max(initial=0.0))
    solution = weights @ basis[: weights.shape[1]]
    return solution * norms[:, None], n_sums, worst, float(slowest)


def _directions(vectors: FloatArray) -> FloatArray:
    """An orthonormal basis of what these vectors span, up to what rounding and differences explain."""
    _, sizes, rows = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(rows[sizes > NOTHING_NEW])
