"""Mixed models with groups whose rows lie at several sites: their integrals over effects z are agreed point by point.

    log p(y_g) = log sum_k w_k exp(sum over sites of log p(y_g,site | z_k)) + constants,   z_k = centre_g + root_g u_k

Centres and roots are the mode and the curvature of all sites' rows of the group. A sweep sums, for every such group, the log
likelihood at the quadrature's points with its derivatives in theta, and the derivatives in z at the centre. Where a centre is not near its mode
the sweep moves centres and leaves theta; so at the end points are those that one machine with all rows would use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dmfvi.inference.model import Coroutine, Update
from dmfvi.linalg import FloatArray, cholesky, inverse, pack_symmetric, symmetrize, unpack_symmetric
from dmfvi.models.laplace import LaplaceBelief
from dmfvi.models.mixed.group_modes import STEPS, Advance, Search, advance, not_reached
from dmfvi.models.mixed.model import POINTS, GroupedShard, MixedEffects
from dmfvi.tags import stored_as

#: how far, in deviations, centres may be from their modes (and curvatures from theirs) when theta moves: PART of its last step's
#: squared length, about what the step gained, within these ends
CENTRED, LOOSE, PART = 1e-5, 0.3, 0.1
#: the same for draws of theta
CENTRED_DRAWS = 1e-8
#: numbers that a site may send in a sum
MOST_NUMBERS = 4_000_000


@dataclass(frozen=True)
class SharedRows:
    """One site's rows of groups that other sites have, too, and those groups' numbers, the same at all sites."""

    rows: GroupedShard
    ids: NDArray[np.int64]


@dataclass(frozen=True)
class SiteShard:
    """Rows of groups that only this site has, and of the others."""

    alone: GroupedShard
    shared: SharedRows


@stored_as("centred-belief")
@dataclass(frozen=True)
class CentredBelief(LaplaceBelief):
    """Also where the groups' effects are integrated: centres (G, q), precisions there (G, q, q), and the search for the modes at this theta."""

    centres: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    precisions: FloatArray = field(default_factory=lambda: np.zeros((0, 1, 1)))
    highest: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    heights: FloatArray = field(default_factory=lambda: np.zeros(0))
    searched: int = 0

    @classmethod
    def around(
        cls, known: LaplaceBelief, centres: FloatArray, precisions: FloatArray
    ) -> CentredBelief:
        """A belief whose search begins."""
        begun = Search.at(centres)
        return cls(known.q, known.kept, known.best, None, None, centres, precisions, *begun[1:])

    @property
    def search(self) -> Search:
        """The search for the groups' modes."""
        return Search(self.centres, self.highest, self.heights)

    def plain(self) -> LaplaceBelief:
        """What all may know: without the groups' effects."""
        return LaplaceBelief(self.q, self.kept, self.best, self.evidence, self.ess)


@dataclass(frozen=True)
class SharedEffects(MixedEffects):
    """``MixedEffects`` with ``n_shared`` groups that several sites have; ``near`` are effects (G, q) at which searches for modes begin."""

    n_shared: int = 0
    near: FloatArray | None = None

    def start(self, shard: Any, rng: np.random.Generator) -> Any:
        """The prior, and the groups' modes there."""
        begun = super().start(shard, rng)
        centres, precisions = yield from self._all_modes(shard.shared, self.point(begun)[None])
        return CentredBelief.around(begun, centres[0], precisions[0])

    def beside(self, belief: LaplaceBelief) -> SharedEffects:
        """The model whose searches begin at the fitted effects."""
        assert isinstance(belief, CentredBelief)
        return replace(self, near=belief.centres @ self.factor(self.point(belief)).T)

    # -- the sum of a sweep -------------------------------------------------------------------

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """What a sweep sums for every shared group."""
        size, q, k = len(self.prior_mean), self.n_effects, POINTS[self.n_effects] ** self.n_effects
        return {
            "logs": (k,),
            "scores": (k, size),
            "curves": (k, size * (size + 1) // 2),
            "pulls": (q,),
            "precisions": (q, q),
            "crosses": (q, size),
        }

    @property
    def numbers(self) -> int:
        """How many numbers that are."""
        return self.n_shared * sum(int(np.prod(shape)) for shape in self.shapes.values())

    def local_step(self, shard: SiteShard, belief: LaplaceBelief) -> FloatArray:
        assert isinstance(belief, CentredBelief)
        theta = self.point(belief)
        beside = self.constants(shard.shared.rows, theta)
        plain = super().local_step(shard.alone, belief)
        plain = plain + np.concatenate(
            [beside.gradient, pack_symmetric(beside.curvature), [beside.value]]
        )
        found = self.at_points(shard.shared, theta, belief.centres, belief.precisions)
        return np.concatenate([plain, *(found[name].ravel() for name in self.shapes)])

    def at_points(
        self, shared: SharedRows, theta: FloatArray, centres: FloatArray, precisions: FloatArray
    ) -> dict[str, FloatArray]:
        """One site's part of the shared groups' log likelihoods and derivatives."""
        from dmfvi.models.mixed._shared_numba import shared_points

        points = self._rule()[0]
        size, k, count = len(theta), len(points), self.n_shared
        full = np.zeros((count, k, size, size))
        made = {name: np.zeros((count, *shape)) for name, shape in self.shapes.items()}
        shared_points(
            *self._rows(shared),
            theta,
            self.factor(theta),
            *self.entries,
            centres,
            roots_of(precisions),
            points,
            self.has_noise,
            made["logs"],
            made["scores"],
            full,
            made["pulls"],
            made["precisions"],
            made["crosses"],
        )
        made["curves"] = pack_symmetric(np.swapaxes(full, -1, -2)).reshape(count, k, -1)
        return made

    def _rows(self, shared: SharedRows) -> tuple[Any, ...]:
        return self.code, *self.rows_of(shared.rows), shared.ids

    # -- what all nodes make of it ------------------------------------------------------------

    def absorb(self, total: FloatArray, own: FloatArray, belief: LaplaceBelief) -> Update:
        assert isinstance(belief, CentredBelief)
        known = self._parts(total)
        middle = known["logs"].shape[1] // 2  # the centre is the middle point
        found = advance(
            belief.search, known["logs"][:, middle], known["pulls"], known["precisions"]
        )
        off = distance(found.lengths, belief.precisions, found.precisions)
        if not found.stuck.any() and not (off <= self._near_enough(belief)).all():
            if belief.searched >= STEPS:
                raise not_reached(int((off > CENTRED).sum()))
            halved = np.isinf(found.lengths)[:, None, None]
            positions, highest, heights = found.search
            moved = replace(
                belief,
                centres=positions,
                precisions=np.where(halved, belief.precisions, found.precisions),
                highest=highest,
                heights=heights,
                searched=belief.searched + 1,
            )
            return Update(moved, belief.best)
        update = super().absorb(self._joined(total, known, belief), own, belief)
        there = self._ahead(belief, self.point(update.belief), known, found)
        made = CentredBelief.around(update.belief, there, found.precisions)
        return Update(made, update.objective, update.limited)

    def _near_enough(self, belief: CentredBelief) -> float:
        """How far centres may be from modes: where theta still moves much, errors of the quadrature are less than what a step gains."""
        if belief.kept is None:
            return LOOSE
        step = self.point(belief) - belief.kept
        return float(np.clip(PART * (step @ belief.q.precision @ step), CENTRED, LOOSE))

    def _ahead(
        self,
        belief: CentredBelief,
        there: FloatArray,
        known: Mapping[str, FloatArray],
        now: Advance,
    ) -> FloatArray:
        """Where the modes will be at the next theta: effects L z to first order, which hardly depend on L where rows are many."""
        here = self.point(belief)
        turn, factor = there - here, self.factor(here)
        rows, columns = self.entries
        tilt = np.zeros_like(factor)
        tilt[rows, columns] = turn[-len(rows) :] * np.where(
            rows == columns, factor[rows, columns], 1.0
        )
        move = np.linalg.solve(now.precisions, (known["crosses"] @ turn)[..., None])[..., 0]
        effects = (now.search.positions + move) @ factor.T + belief.centres @ tilt.T
        ahead = effects @ inverse(self.factor(there)).T
        return np.where(np.isfinite(ahead).all(-1, keepdims=True), ahead, belief.centres)

    def _parts(self, total: FloatArray) -> dict[str, FloatArray]:
        size = len(self.prior_mean)
        at, found = size * (size + 3) // 2 + 1, {}
        for name, shape in self.shapes.items():
            length = self.n_shared * int(np.prod(shape))
            found[name] = total[at : at + length].reshape(self.n_shared, *shape)
            at += length
        return found

    def _joined(
        self, total: FloatArray, known: Mapping[str, FloatArray], belief: CentredBelief
    ) -> FloatArray:
        """Gradient, curvature and value of all groups: Fisher's identity and Louis' (1982) with the agreed shares of the points."""
        size = len(self.prior_mean)
        logs = self.log_shares(known["logs"], belief.centres, belief.precisions, self._rule())
        values = logsumexp(logs, axis=-1)
        shares = np.exp(logs - values[:, None])
        mean = np.einsum("gk,gka->ga", shares, known["scores"])
        gap = known["scores"] - mean[:, None]
        curve = unpack_symmetric(np.einsum("gk,gkj->j", shares, known["curves"]))
        curve = symmetrize(curve - np.einsum("gk,gka,gkb->ab", shares, gap, gap, optimize=True))
        plain = total[: size * (size + 3) // 2 + 1].copy()
        plain[:size] += mean.sum(0)
        plain[size:-1] += pack_symmetric(curve)
        plain[-1] += values.sum()
        return plain

    def log_shares(
        self,
        logs: FloatArray,
        centres: FloatArray,
        precisions: FloatArray,
        rule: tuple[FloatArray, FloatArray],
    ) -> FloatArray:
        """Logarithms of what each point adds to a group's integral, from log likelihoods (..., G, K) of all sites."""
        points, weights = rule
        roots = roots_of(precisions)
        positions = centres[..., None, :] + np.einsum("...ab,kb->...ka", roots, points)
        beside = np.log(weights) + 0.5 * np.square(points).sum(1)
        volume = np.log(np.abs(np.diagonal(roots, axis1=-2, axis2=-1))).sum(-1)
        return np.asarray(
            logs + beside - 0.5 * np.square(positions).sum(-1) + np.asarray(volume)[..., None]
        )

    def change(self, new: LaplaceBelief, old: LaplaceBelief) -> float:
        assert isinstance(new, CentredBelief)
        return float("inf") if new.searched else super().change(new, old)

    # -- many theta ---------------------------------------------------------------------------

    def agreed_values(self, shard: SiteShard, thetas: FloatArray) -> Coroutine:
        """The log likelihood of all nodes' data at many theta (N, P); the sites first agree on each group's mode."""
        alone = self.values(shard.alone, thetas)
        alone = alone + self.constant_values(shard.shared.rows, thetas)
        found, wide = np.zeros(len(thetas)), self.is_wide(thetas)
        for which in (np.flatnonzero(~wide), np.flatnonzero(wide)):
            rule = self._rule_of_draws(bool(len(which)) and bool(wide[which[0]]))
            q, points = self.n_effects, len(rule[1])
            most = max(1, MOST_NUMBERS // (1 + self.n_shared * max(points, 1 + q + q * q)))
            for at in range(0, len(which), most):
                part = which[at : at + most]
                given = shard.shared, thetas[part], alone[part], rule
                found[part] = yield from self._agreed_part(*given)
        return found

    def _agreed_part(
        self,
        shared: SharedRows,
        thetas: FloatArray,
        alone: FloatArray,
        rule: tuple[FloatArray, FloatArray],
    ) -> Coroutine:
        """The same of as many theta as one sum may have."""
        from dmfvi.models.mixed._shared_numba import shared_logs

        centres, precisions, reached = yield from self.modes(shared, thetas)
        points = rule[0]
        factors = np.array([self.factor(theta) for theta in thetas])
        logs = np.zeros((len(thetas), self.n_shared, len(points)))
        given = thetas, factors, centres, roots_of(precisions), points, self.has_noise
        shared_logs(*self._rows(shared), *given, logs)
        total = yield np.concatenate([alone, logs.ravel()])
        whole = total[len(thetas) :].reshape(logs.shape)
        shares = self.log_shares(whole, centres, precisions, rule)
        found = total[: len(thetas)] + logsumexp(shares, axis=-1).sum(-1)
        return np.where(reached.all(1), found, -np.inf)

    def modes(self, shared: SharedRows, thetas: FloatArray) -> Coroutine:
        """Modes (N, G, q) of the groups' effects at many theta, precisions there, and which (N, G) were reached, by agreed Newton steps.

        Those that are found are not sent again. Modes that are not reached are those of far draws, where effects differ by a hundred and more.
        """
        from dmfvi.models.mixed._shared_numba import shared_pulls

        thetas = np.ascontiguousarray(thetas)
        factors = np.array([self.factor(theta) for theta in thetas])
        q, shape = self.n_effects, (len(thetas), self.n_shared)
        positions = np.zeros((*shape, q))
        if self.near is not None:
            positions = np.einsum("nab,gb->nga", inverse(factors), self.near)
        precisions = np.tile(np.eye(q), (*shape, 1, 1))
        search, wanted = Search.at(positions), np.ones(shape, dtype=bool)
        for _ in range(STEPS):
            own = np.zeros((*shape, 1 + q + q * q))
            given = thetas, factors, search.positions, self.has_noise, wanted
            shared_pulls(*self._rows(shared), *given, own)
            total = (yield own[wanted].ravel()).reshape(-1, own.shape[-1])
            before = Search(*(part[wanted] for part in search))
            curves = total[:, 1 + q :].reshape(-1, q, q)
            found = advance(before, total[:, 0], total[:, 1 : 1 + q], curves)
            reached = found.lengths <= CENTRED_DRAWS
            precisions[wanted] = found.precisions
            for whole, known, new in zip(search, before, found.search, strict=True):
                stay = reached if new.ndim == 1 else reached[:, None]
                whole[wanted] = np.where(stay, known, new)
            wanted[wanted] = ~reached
            if not wanted.any():
                break
        return search.positions, precisions, ~wanted

    def _all_modes(self, shared: SharedRows, thetas: FloatArray) -> Coroutine:
        """Modes and precisions where all of them must be reached."""
        centres, precisions, reached = yield from self.modes(shared, thetas)
        if not reached.all():
            raise not_reached(int((~reached).any(0).sum()))
        return centres, precisions

    def agreed_effects(self, shard: SiteShard, theta: FloatArray) -> Coroutine:
        """Posterior means of the shared groups' effects L z (G, q)."""
        centres, precisions = yield from self._all_modes(shard.shared, theta[None])
        centres, precisions = centres[0], precisions[0]
        own = self.at_points(shard.shared, theta, centres, precisions)["logs"]
        total = yield own.ravel()
        logs = self.log_shares(total.reshape(own.shape), centres, precisions, self._rule())
        shares = np.exp(logs - logsumexp(logs, axis=-1)[:, None])
        positions = centres[:, None] + np.einsum(
            "gab,kb->gka", roots_of(precisions), self._rule()[0]
        )
        return np.einsum("gk,gka->ga", shares, positions) @ self.factor(theta).T


def distance(lengths: FloatArray, before: FloatArray, now: FloatArray) -> FloatArray:
    """Steps in deviations, or the largest relative change of a deviation where that is more, of each group."""
    size = np.sqrt(np.diagonal(now, axis1=-2, axis2=-1))
    scale = size[..., :, None] * size[..., None, :]
    return np.maximum(lengths, (np.abs(now - before) / scale).max((-1, -2)))


def roots_of(precisions: FloatArray) -> FloatArray:
    """R with R R' = inverse precision, upper triangular as one machine has it."""
    return np.ascontiguousarray(np.swapaxes(inverse(cholesky(precisions)), -1, -2))


def sharing(model: MixedEffects, n_shared: int) -> SharedEffects:
    """The model with groups that several sites have."""
    made = SharedEffects(
        **{f.name: getattr(model, f.name) for f in fields(model)}, n_shared=n_shared
    )
    if made.numbers > MOST_NUMBERS:
        raise ValueError(
            f"{n_shared} groups lie at several sites: a sweep would exchange {made.numbers:,} numbers for them, at most {MOST_NUMBERS:,} are allowed; bring "
            "the rows of groups together, or leave out random_slopes or columns"
        )
    return made


def divided(shard: GroupedShard, numbers: NDArray[np.int64]) -> SiteShard:
    """A site's rows by whether others have rows of the group, too; ``numbers`` has the common number of each group, or -1."""
    sizes = np.diff(shard.starts)
    common = np.repeat(numbers >= 0, sizes)
    return SiteShard(
        _only(shard, ~common, sizes[numbers < 0]),
        SharedRows(_only(shard, common, sizes[numbers >= 0]), numbers[numbers >= 0]),
    )


def _only(shard: GroupedShard, rows: NDArray[np.bool_], sizes: NDArray[np.int64]) -> GroupedShard:
    parts = shard.design, shard.varying, shard.target, shard.offset, shard.trials
    design, varying, target, offset, trials = (np.ascontiguousarray(part[rows]) for part in parts)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return GroupedShard(design, varying, target, offset, starts, trials)
