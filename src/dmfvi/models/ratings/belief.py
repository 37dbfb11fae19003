"""What a node believes of items and of the hierarchy above users and items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmfvi.linalg import FloatArray, inverse, pack_symmetric, symmetrize, unpack_symmetric
from dmfvi.models.ratings.kernels import NoisePrior, RecordLayout, records_of
from dmfvi.tags import stored_as

#: alternations of coefficients and the precisions of their columns
RIDGE_STEPS = 3
#: range of the precisions: no feature is trusted blindly, none is ruled out for good
RIDGE_RANGE = (1e-1, 1e8)


@stored_as("rating-side-prior")
@dataclass(frozen=True)
class SidePrior:
    """v ~ N(coefficients @ features, covariance) for the rows of one side.

    Column f of the coefficients ~ N(0, covariance / ridge_f): features without information are switched off.
    """

    coefficients: FloatArray  # (K, F)
    covariance: FloatArray  # (K, K)
    ridge: FloatArray  # (F,)
    log_density: float = 0.0  # of the hierarchy, and the entropy of the coefficients

    @cached_property
    def precision(self) -> FloatArray:
        """Inverse covariance."""
        return symmetrize(inverse(self.covariance))

    @cached_property
    def log_det_precision(self) -> float:
        """log |precision|."""
        return float(np.linalg.slogdet(self.precision)[1])


@dataclass(frozen=True)
class PriorKnowledge:
    """Priors and limits that keep the hierarchy bounded.

    p(S) is proportional to |S|^(-weight/2) exp(-weight tr(S^-1 scatter) / 2): it counts like ``weight``
    rows with that scatter. The first feature is one and keeps its ridge.
    """

    scatter: FloatArray  # (K, K)
    weight: float = 1.0
    with_bias: bool = True

    #: variance that stands for a bias which is not there
    NO_BIAS = 1e-8

    def learn(
        self, old: SidePrior, second: FloatArray, cross: FloatArray, gram: FloatArray, count: float
    ) -> SidePrior:
        """Coordinate steps up the bound given sum E vv', sum E v f', sum ff' and the number of rows.

        q(C) is Gaussian with row covariance S and column covariance (gram + ridge)^-1; the mean stands for it
        wherever rows need a prior mean.
        """
        k, ridge = len(second), old.ridge
        for _ in range(RIDGE_STEPS):
            spread = inverse(gram + np.diag(ridge))
            coefficients = cross @ spread
            if not self.with_bias:
                coefficients[-1] = 0.0
            explained = coefficients @ cross.T
            penalty = (coefficients * ridge) @ coefficients.T
            residual = second - explained - explained.T + coefficients @ gram @ coefficients.T
            covariance = symmetrize(residual + penalty + self.weight * self.scatter)
            covariance = covariance / (count + self.weight)
            if not self.with_bias:
                covariance[-1], covariance[:, -1] = 0.0, 0.0
                covariance[-1, -1] = self.NO_BIAS
            sizes = np.sum(coefficients * np.linalg.solve(covariance, coefficients), axis=0)
            learned = np.clip(k / (sizes + k * np.diag(spread)), *RIDGE_RANGE)
            ridge = np.concatenate([ridge[:1], learned[1:]])
        made = SidePrior(np.asarray(coefficients), covariance, ridge)
        held = (made.coefficients * ridge) @ made.coefficients.T + self.weight * self.scatter
        density = 0.5 * self.weight * made.log_det_precision - 0.5 * np.sum(made.precision * held)
        density += 0.5 * k * (np.log(ridge).sum() + np.linalg.slogdet(spread)[1])
        density -= 0.5 * k * (np.sum((gram + np.diag(ridge)) * spread) - len(ridge))
        return replace(made, log_density=float(density))


@stored_as("rating-belief")
@dataclass(frozen=True)
class RatingBelief:
    """q(w, c) of every item, and the learned hierarchy."""

    mean: FloatArray  # (D, K)
    covariance: FloatArray  # (D, K(K+1)/2)
    records: NDArray[Any]
    user_prior: SidePrior
    item_prior: SidePrior
    noise_shape: float  # of every user's noise precision
    noise_rate: float
    user_mean: FloatArray  # (K,) of the users as a population, and their covariance
    user_covariance: FloatArray
    global_bound: float = float("nan")
    sweeps: int = 0

    @property
    def noise_precision(self) -> float:
        """Typical noise precision of a user."""
        return self.noise_shape / self.noise_rate

    def noise_prior(self, steps: int) -> NoisePrior:
        """As the kernels take it."""
        return NoisePrior(self.noise_shape, self.noise_rate, steps)


def layout_of(belief: RatingBelief) -> RecordLayout:
    """Of its records."""
    return RecordLayout(belief.mean.shape[1] - 1, belief.records.dtype == np.float64)


def canonical(belief: RatingBelief) -> RatingBelief:
    """The same belief in coordinates where users' factors have unit prior covariance and items' a
    diagonal one, strongest first; that diagonal is ARD's.
    """
    k = belief.mean.shape[1]
    root = np.linalg.cholesky(belief.user_prior.covariance[:-1, :-1])
    values, turn = np.linalg.eigh(root.T @ belief.item_prior.covariance[:-1, :-1] @ root)
    turn = turn[:, np.argsort(values)[::-1]]
    of_items, of_users = np.eye(k), np.eye(k)
    of_items[:-1, :-1] = turn.T @ root.T
    # a sign that does not depend on rounding: the widest item points up
    means = belief.mean @ of_items.T
    signs = np.sign(means[np.abs(means).argmax(0), np.arange(k)])
    of_items = np.where(signs == 0, 1.0, signs)[:, None] * of_items
    of_items[-1] = np.eye(k)[-1]
    of_users[:-1, :-1] = np.linalg.inv(of_items[:-1, :-1]).T
    mean = belief.mean @ of_items.T
    covariance = pack_symmetric(of_items @ unpack_symmetric(belief.covariance) @ of_items.T)
    return replace(
        belief,
        mean=mean,
        covariance=covariance,
        records=records_of(mean, covariance, layout_of(belief)),
        user_prior=_moved(belief.user_prior, of_users),
        item_prior=_moved(belief.item_prior, of_items),
        user_mean=of_users @ belief.user_mean,
        user_covariance=of_users @ belief.user_covariance @ of_users.T,
    )


def _moved(prior: SidePrior, change: FloatArray) -> SidePrior:
    covariance = symmetrize(change @ prior.covariance @ change.T)
    return SidePrior(np.asarray(change @ prior.coefficients), covariance, prior.ridge)
