"""Extrapolation of a fixed-point iteration (Anderson 1965, Walker & Ni 2011), guarded by the bound.

    x_t: a point        g(x_t): its image by a plain sweep        at the fixed point g(x) = x

The combination of images whose residuals g - x cancel best is tried instead of the last image; where all residuals are
zero it is that image. Where it lies behind, against the last residual, residuals grow: the iteration is leaving a saddle,
to which Anderson's step would lead back. There it goes on along the residual, some residuals further.
"""

from __future__ import annotations

import numpy as np

from dmfvi.families.base import FloatArray

#: sweeps that an extrapolation looks back on
MEMORY = 8
#: extrapolation begins when a plain sweep changes the belief by less than this part: earlier, it could
#: carry the belief over to another optimum than plain sweeps find
CALM_ENOUGH = 0.1
#: extrapolated sweeps shrink fast, plain ones need not: their last change counts so many times
CAUTION = 10.0
#: directions weaker than this part of the strongest are not extrapolated along
WEAKEST_DIRECTION = 1e-4
#: how many residuals further than the image to go while residuals grow
STRIDE = 4.0
#: rounding of a bound, relative: a fall by less is none
BOUND_ROUNDING = 1e-11
#: the same between nodes, who must all decide alike: agreed bounds on a chain of 20 differ by 2e-9
AGREED_ROUNDING = 1e-8


def combined(
    points: tuple[FloatArray, ...], images: tuple[FloatArray, ...], weight: FloatArray
) -> FloatArray:
    """Anderson's step, with residuals weighed entry by entry."""
    latest = images[-1]
    residuals = [weight * (g - x) for x, g in zip(points, images, strict=True)]
    differences = np.stack([residuals[-1] - r for r in residuals[:-1]], axis=1)
    share = np.linalg.lstsq(differences, residuals[-1], rcond=WEAKEST_DIRECTION)[0]
    moves = np.stack([latest - g for g in images[:-1]], axis=1)
    candidate = latest - moves @ share
    if weight * (candidate - points[-1]) @ residuals[-1] < 0:
        candidate = latest + STRIDE * (latest - points[-1])
    return np.asarray(candidate)


def has_fallen(bound: float, before: float, rounding: float = BOUND_ROUNDING) -> bool:
    """Whether a bound is lower by more than rounding."""
    return bound < before - rounding * abs(before)


def one_over_norm(block: FloatArray) -> float:
    """The weight of a block, so that one of large numbers does not drown the others."""
    return 1.0 / max(float(np.linalg.norm(block)), float(np.finfo(float).tiny))
