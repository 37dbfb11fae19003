"""Beliefs and priors of Bayesian PCA."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from dmfvi.families import Gamma
from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as


@stored_as("gamma-prior")
@dataclass(frozen=True)
class GammaPrior:
    """Gamma(shape, rate) for a precision that is learned.

    Parameters
    ----------
    shape : float
        Positive.
    rate : float
        Positive; the mean is shape / rate.
    """

    shape: float
    rate: float

    def __post_init__(self) -> None:
        if not (self.shape > 0 and self.rate > 0):
            raise ValueError(
                f"a Gamma prior needs positive shape and rate, "
                f"received shape={self.shape!r}, rate={self.rate!r}"
            )

    def family(self, size: tuple[int, ...] = ()) -> Gamma:
        """As a family of that batch shape."""
        return Gamma.from_parameters(np.full(size, self.shape), np.full(size, self.rate))


@stored_as("pca-prior")
@dataclass(frozen=True)
class PcaPrior:
    """Prior of the model: each precision is learned under a Gamma, or fixed when a number.

    Parameters
    ----------
    noise : GammaPrior or float
        Precision tau of the observation noise.
    components : GammaPrior or float
        Precision alpha_m of each column of W; a learned one switches unused columns off (ARD).
    mean : GammaPrior or float
        Precision theta of the mean around ``mean_location``.
    component_location : array (n_features, n_components) or None
        Prior means of W; None is zero.
    mean_location : array (n_features,) or None
        Prior mean of the mean; None is zero.
    """

    noise: GammaPrior | float = GammaPrior(1e-6, 1e-6)
    components: GammaPrior | float = GammaPrior(1e-3, 1e-3)
    mean: GammaPrior | float = GammaPrior(1e-3, 1e-3)
    component_location: FloatArray | None = None
    mean_location: FloatArray | None = None

    def __post_init__(self) -> None:
        for name in ("noise", "components", "mean"):
            value = getattr(self, name)
            if not isinstance(value, GammaPrior) and not (
                isinstance(value, Real) and float(value) > 0
            ):
                raise ValueError(
                    f"prior {name} must be a GammaPrior or a positive number, received {value!r}"
                )

    def rescaled(self, scale: float | FloatArray, shift: FloatArray) -> PcaPrior:
        """The same prior for (x - shift) / scale; with a scale for each feature precisions are those of scaled data."""
        components = self.component_location
        if components is not None:
            components = components / (scale[:, None] if isinstance(scale, np.ndarray) else scale)
        location = np.zeros_like(shift) if self.mean_location is None else self.mean_location
        if isinstance(scale, np.ndarray):
            centre = (location - shift) / scale if self.mean_location is not None else None
            return PcaPrior(self.noise, self.components, self.mean, components, centre)
        return PcaPrior(
            _rescaled(self.noise, scale),
            _rescaled(self.components, scale),
            _rescaled(self.mean, scale),
            components,
            (location - shift) / scale,
        )


def _rescaled(prior: GammaPrior | float, scale: float) -> GammaPrior | float:
    """A precision in units of x^-2 for x' = x / scale is scale^2 times larger."""
    if isinstance(prior, GammaPrior):
        return GammaPrior(prior.shape, prior.rate / scale**2)
    return prior * scale**2


@stored_as("pca-belief")
@dataclass(frozen=True)
class PcaBelief:
    """q(W~), q(tau), q(alpha), q(theta), in the node's own coordinates of z.

    precision is (K, K) where all features share it (complete data), else (D, K, K); with a diagonal
    covariance only its diagonal describes q(W~), its other entries are the data's.
    """

    mean: FloatArray  # (D, K)
    precision: FloatArray
    covariance: FloatArray  # (K, K) or (D, K, K)
    noise: Gamma  # scalar, or (D,) with one for each feature; a fixed precision is a Gamma of huge shape
    prior_precision: FloatArray  # (K,): E[alpha_1..M], E[theta]
    hyper: Gamma  # (K,): q(alpha), q(theta); a fixed precision is a Gamma of huge shape
    coordinates: FloatArray  # (K, K): local z~' = coordinates z~ of the shared ones
    factorised: bool
    n_latent: int
    warm_up: int = 0  # sweeps for which the hyper-parameters still stay vague
    total: FloatArray | None = None  # the statistics it was made from
    own_noise: FloatArray | None = None  # this node's own (n_obs/2, residual/2)
    global_bound: float = float("nan")

    @property
    def noise_precision(self) -> Any:
        """E[tau], a number or (D,)."""
        value = np.asarray(self.noise.expected.value)
        return value if value.ndim else float(value)

    @property
    def loadings(self) -> FloatArray:
        """E[W], (D, M)."""
        return self.mean[:, : self.n_latent]
