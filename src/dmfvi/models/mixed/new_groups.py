"""Linear predictors of groups that are not known, with everything that is not certain about them.

    eta = x.w + v.(L z),   z ~ N(0, I),   (w, L) ~ q

Given L's parameters l this is Gaussian: w | l ~ N(m + A (l - m_l), C_w - A C_lw), A = C_wl C_l^-1. Over evenly spread draws of l it is a mixture.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from dmfvi.families import MultivariateNormal
from dmfvi.linalg import FloatArray
from dmfvi.models.mixed.model import MixedEffects
from dmfvi.models.moments import even_points

#: draws of L's parameters, by their number: one, three or six
DRAWS = {1: 32, 3: 128, 6: 256}
#: numbers in a table of rows and draws, at most
MOST_CELLS = 4_000_000
#: Newton steps at most, and the last one's size in deviations of the components
STEPS, NEAR = 60, 1e-12


def new_group_quantiles(
    model: MixedEffects,
    q: MultivariateNormal,
    design: FloatArray,
    varying: FloatArray,
    probabilities: Sequence[float],
) -> list[FloatArray]:
    """Quantiles (n,) of each row's linear predictor, less its mean, at each of the probabilities."""
    known = q.parameters()
    mean, covariance = np.asarray(known["mean"]), np.asarray(known["covariance"])
    p, count = design.shape[1], len(model.entries[0])
    of_factor = covariance[-count:, -count:]
    slope = np.linalg.solve(of_factor, covariance[-count:, :p]).T
    rest = covariance[:p, :p] - slope @ covariance[-count:, :p]
    uniform = even_points(DRAWS[count], count)
    gaps = ndtri(uniform) @ np.linalg.cholesky(of_factor).T
    gaps -= gaps.mean(0)
    factors = [model.factor(mean[-count:] + gap) for gap in gaps]
    step = max(1, MOST_CELLS // len(gaps))
    made: list[list[FloatArray]] = [[] for _ in probabilities]
    for begin in range(0, len(design), step):
        x, v = design[begin : begin + step], varying[begin : begin + step]
        location = (x @ slope) @ gaps.T
        own = np.maximum(np.einsum("ni,ij,nj->n", x, rest, x, optimize=True), 0.0)
        spread = np.stack([np.square(v @ factor).sum(1) for factor in factors], axis=1)
        scale = np.sqrt(own[:, None] + spread)
        for parts, probability in zip(made, probabilities, strict=True):
            parts.append(normal_mixture_quantile(location, scale, probability))
    return [np.concatenate(parts) for parts in made]


def normal_mixture_quantile(
    location: FloatArray, scale: FloatArray, probability: float
) -> FloatArray:
    """The quantile (n,) of even mixtures of Gaussians (n, K), by Newton steps inside brackets that shrink."""
    scale = np.maximum(scale, 1e-300)
    own = location + ndtri(probability) * scale
    low, high = own.min(1), own.max(1)
    found = own.mean(1)
    left = np.arange(len(found))  # rows that are not there yet
    for _ in range(STEPS):
        at, width = found[left], scale[left]
        z = (at[:, None] - location[left]) / width
        excess = ndtr(z).mean(1) - probability
        density = (np.exp(-0.5 * z * z) / width).mean(1) / np.sqrt(2.0 * np.pi)
        low[left], high[left] = (
            np.where(excess < 0, at, low[left]),
            np.where(excess > 0, at, high[left]),
        )
        wanted = at - excess / np.maximum(density, 1e-300)
        inside = (wanted > low[left]) & (wanted < high[left])
        # where the sum's rounding is all that is left, brackets are as wrong as it is
        near = np.abs(wanted - at) <= NEAR * width.max(1)
        found[left] = np.where(inside | near, wanted, 0.5 * (low[left] + high[left]))
        left = left[~near]
        if not len(left):
            break
    return np.asarray(found)
