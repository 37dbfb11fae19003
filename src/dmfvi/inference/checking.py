"""check_model: mistakes in a model of one's own, found in a second and named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dmfvi.inference.model import ConjugateModel, Model
from dmfvi.inference.session import Session
from dmfvi.linalg import FloatArray
from dmfvi.network import Network

#: sweeps over which the bound is watched
N_SWEEPS = 10
#: directions per block in which the bound's derivative is compared, and the relative length of a step
N_DIRECTIONS, STEP = 6, 1e-4
#: relative difference of derivatives that is due to finite steps
CLOSE = 1e-3
#: relative differences that are due to rounding: of sums, of a bound that rises
ROUNDING, FALL = 1e-8, 1e-9


def check_model(model: Model, shards: Sequence[Any], random_state: Any = 0) -> None:
    """Check a model of your own on a few shards; a ValueError names what is wrong and what to look for.

    Parameters
    ----------
    model : Model
        As for ``infer``.
    shards : sequence
        Two or more small shards, as for ``infer``.
    random_state : int
        Seed of the start and of the directions.

    Notes
    -----
    Checked are, in this order: ``local_step`` returns what the contract says, and the same for the same input; the
    sum of statistics gives a proper posterior; the bound's derivative is the statistics,

        d bound / d E[T(theta)] = statistics        (the local variables are at their best: the envelope theorem)

    block by block (where the model is memoryless); the bound never falls from sweep to sweep; statistics of two shards of rows together are the sum
    of both (arrays only).
    """
    if not isinstance(model, Model):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        raise TypeError(f"model must be an instance of a ConjugateModel, received {kind}")
    if not len(shards):
        raise ValueError("shards are empty: pass at least one shard")
    fresh = [model.refreshed(shard) for shard in shards]
    network = Network.chain(len(fresh)) if len(fresh) > 1 else None
    belief = Session.open(network).start(model, fresh, 0)[0]
    _check_repeats(model, fresh, belief)
    if isinstance(model, ConjugateModel):
        _check_domain(model, fresh, belief)
        # q(z) that is kept from step to step is not the best one for another q
        for q in _settled(model, fresh, belief) if model.memoryless else ():
            _check_derivative(model, fresh, q, np.random.default_rng(random_state))
    _check_rises(model, [model.refreshed(shard) for shard in shards], belief)
    _check_additive(model, shards, belief)


def _name(model: Model) -> str:
    return f"{type(model).__name__}.local_step"


def _check_repeats(model: Model, shards: Sequence[Any], belief: Any) -> None:
    if not model.memoryless:
        return
    for i, shard in enumerate(shards):
        first, again = (model.statistics(shard, belief) for _ in range(2))
        if not _alike(first, again):
            raise ValueError(
                f"{_name(model)} gives other statistics for shard {i} when it is called again: it changes the shard, "
                "draws random numbers or keeps state. Make it pure, or set memoryless = False if it keeps q(z)"
            )


def _check_domain(model: ConjugateModel, shards: Sequence[Any], belief: Any) -> None:
    if not np.all(model.prior.in_domain()):
        raise ValueError(f"{type(model).__name__}.prior is no proper distribution: {model.prior!r}")
    if not np.all(belief.in_domain()):
        raise ValueError(f"{type(model).__name__}.start is no proper distribution: {belief!r}")
    total = _total(model, shards, belief)[:-1]
    if np.all(model.from_statistics(total).in_domain()):
        return
    opposite = "" if not _proper(model, -total) else " With the opposite sign it would be one:"
    wrong = _improper_blocks(model, total)
    raise ValueError(
        f"the prior plus the statistics of {_name(model)} is no proper distribution{wrong}.{opposite} the statistics have "
        "the wrong sign, or are not natural parameters (a Gamma's second one is minus the rate, a Normal's minus half "
        "the precision)"
    )


def _proper(model: ConjugateModel, total: FloatArray) -> bool:
    try:
        return bool(np.all(model.from_statistics(total).in_domain()))
    except np.linalg.LinAlgError:
        return False


def _improper_blocks(model: ConjugateModel, total: FloatArray) -> str:
    """Which natural parameter must be turned round for a proper distribution, if one suffices."""
    prior = model.prior
    natural = prior.unpack(total).natural
    for position, name in enumerate(prior.natural_names):
        turned = [(-v if i == position else v) for i, v in enumerate(natural)]
        if _proper(model, prior.replace(*turned).pack()):
            return f" (it would be one with the opposite sign of {name!r})"
    return ""


def _settled(model: ConjugateModel, shards: Sequence[Any], belief: Any) -> Iterator[Any]:
    """The belief of the start, and the one that follows from it."""
    yield belief
    following = model.from_statistics(_total(model, shards, belief)[:-1])
    if np.all(following.in_domain()):
        yield following


def _total(model: Model, shards: Sequence[Any], belief: Any) -> FloatArray:
    return np.sum([model.statistics(shard, belief) for shard in shards], axis=0)


def _check_derivative(
    model: ConjugateModel, shards: Sequence[Any], q: Any, rng: np.random.Generator
) -> None:
    """The bound's change along small steps of q against statistics times the change of E[T]."""

    def bound(at: Any) -> float:
        return float(_total(model, shards, at)[-1])

    total = _total(model, shards, q)
    statistics = q.unpack(total[:-1]).natural
    here = q.pack()
    names = list(q.natural_names)
    moved, expected = [], []
    for _ in range(N_DIRECTIONS * len(names)):
        direction = STEP * rng.normal(size=here.size) * (np.abs(here) + 1e-2)
        ends = [q.unpack(here + side * direction) for side in (1.0, -1.0)]
        if not all(np.all(end.in_domain()) for end in ends):
            continue
        means = [end.mean() for end in ends]
        moved.append(bound(ends[0]) - bound(ends[1]))
        expected.append(
            [
                float(np.sum(s * (a - b)))
                for s, a, b in zip(statistics, means[0], means[1], strict=True)
            ]
        )
    if len(moved) < len(names):
        return  # the start is at the edge of the domain: nothing can be compared
    left, right = np.array(expected), np.array(moved)
    size = max(float(np.abs(right).max()), float(np.abs(left).sum(1).max()))
    if size == 0.0 or np.abs(left.sum(1) - right).max() <= CLOSE * size:
        return
    raise ValueError(_mistake(model, names, left, right, CLOSE * size))


def _mistake(
    model: Model, names: list[str], left: FloatArray, right: FloatArray, error: float
) -> str:
    """What factors of the blocks would make the derivatives alike, and what that means."""
    begin = f"{_name(model)}: the bound's derivative is not the statistics. "
    whole = float(left.sum(1) @ right / max(left.sum(1) @ left.sum(1), 1e-300))
    if np.abs(whole * left.sum(1) - right).max() <= error:
        if abs(whole + 1.0) < 0.01:
            return begin + "They have opposite signs: the bound has the wrong sign"
        return begin + (
            f"The bound changes {whole:.3g} times as much: it is summed or averaged where the statistics are not"
        )
    used = np.flatnonzero(np.abs(left).max(0) > 1e-9 * error)
    factors, *_ = np.linalg.lstsq(left[:, used], right, rcond=None)
    if np.abs(left[:, used] @ factors - right).max() <= error:
        odd = [
            f"{names[i]!r} should be {f:.3g} times what it is"
            for i, f in zip(used, factors, strict=True)
            if abs(f - 1.0) > 0.01
        ]
        return begin + "Statistics of " + ", ".join(odd) + ", or the bound's part with them"
    return begin + (
        "No factor explains it: a term of the bound or of the statistics is missing, or they belong to different "
        "q(local variables) (both must use the best one for the q that is given)"
    )


def _check_rises(model: Model, shards: Sequence[Any], belief: Any) -> None:
    before = -np.inf
    for sweep in range(1, N_SWEEPS + 1):
        total = _total(model, shards, belief)
        update = model.absorb(total, total, belief)
        bound = update.objective
        if np.isfinite(bound) and np.isfinite(before) and bound < before - FALL * abs(before):
            raise ValueError(
                f"{type(model).__name__}: the bound falls in sweep {sweep}, from {before:.10g} to {bound:.10g}: the "
                "bound and the statistics do not belong to the same q(local variables), or the update (absorb, "
                "from_statistics) is not the one that maximises the bound"
            )
        if sweep > 1 and not np.isfinite(bound):
            raise ValueError(f"{type(model).__name__}: the bound is {bound} in sweep {sweep}")
        before, belief = (bound if np.isfinite(bound) else before), update.belief


def _check_additive(model: Model, shards: Sequence[Any], belief: Any) -> None:
    rows = [shard for shard in shards if isinstance(shard, np.ndarray) and shard.ndim]
    if len(rows) < 2 or rows[0].shape[1:] != rows[1].shape[1:] or not model.memoryless:
        return
    try:
        both = model.statistics(np.concatenate(rows[:2]), belief)
    except (ValueError, TypeError, IndexError):
        return  # shards of this model are not rows
    parts = [model.statistics(part, belief) for part in rows[:2]]
    if _alike(both, parts[0] + parts[1]):
        return
    rest = slice(None) if not _alike(both[:-1], parts[0][:-1] + parts[1][:-1]) else slice(-1, None)
    what = "the bound" if rest == slice(-1, None) else "statistics"
    weights = np.array([len(part) for part in rows[:2]]) / (len(rows[0]) + len(rows[1]))
    mean = weights[0] * parts[0] + weights[1] * parts[1]
    hint = ": they are averaged over rows, add them up" if _alike(both[rest], mean[rest]) else ""
    hint = hint or ": look for terms that are counted once a shard"
    raise ValueError(f"{_name(model)}: {what} of two shards together are not the sum of both{hint}")


def _alike(one: FloatArray, other: FloatArray) -> bool:
    size = max(float(np.abs(one).max()), float(np.abs(other).max()), 1e-300)
    return bool(np.abs(one - other).max() <= ROUNDING * size)
