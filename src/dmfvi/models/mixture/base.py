"""What estimators with clusters share, and what estimators with Gaussian components share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import DensityMixin

from dmfvi.estimator import NetworkEstimator, generator_of
from dmfvi.families import NormalGamma, NormalWishart, Product
from dmfvi.families.base import Family
from dmfvi.inference.session import Session
from dmfvi.inference.starts import FeatureUnits, agree_on_units
from dmfvi.linalg import FloatArray, inverse, is_positive_definite, symmetrize
from dmfvi.models.mixture.gaps import draws_of, gaps_of, interval_of, means_and_variances
from dmfvi.models.mixture.located import LocatedNormalGamma, LocatedNormalWishart
from dmfvi.shard_lists import joined
from dmfvi.validation import check_at_most, check_choice, check_level, check_positive, check_whole

#: smallest eigenvalue of the default prior scatter, in standardised units
LEAST_SCATTER = 1e-6
#: deviations between means below which two components overlap
OVERLAP = 3.0
#: rows below which a component is empty
EMPTY = 1.0


def overlaps(
    means: FloatArray, covariances: Sequence[FloatArray] | FloatArray, rows: FloatArray
) -> Iterable[str]:
    """Words about components with fewer than one of these rows, and about those that overlap."""
    empty = {k: float(count) for k, count in enumerate(rows) if count < EMPTY}
    for k, count in empty.items():
        yield (
            f"component {k} has {count:.1f} rows: what belongs to it is the prior's; the others may hold several that overlap"
        )
    for one, other in combinations([k for k in range(len(means)) if k not in empty], 2):
        between = means[one] - means[other]
        precision = inverse(0.5 * (covariances[one] + covariances[other]))
        apart = float(np.sqrt(between @ precision @ between))
        if apart < OVERLAP:
            yield (
                f"components {one} and {other} overlap, their means are {apart:.1f} deviations apart: intervals of "
                "what belongs to them are not to be trusted"
            )


class ClusterEstimator(DensityMixin, NetworkEstimator):
    """Rows belong to clusters; missing entries are marginalised."""

    _takes_missing = True

    @abstractmethod
    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each cluster for each row (n, K), from what is observed of it."""

    @abstractmethod
    def score_samples(self, X: Any) -> FloatArray:
        """Log density of the observed part of each row."""

    def _informative_shards(
        self, X: Any, session: Session, sample_weight: Any
    ) -> tuple[list[FloatArray], list[FloatArray | None]]:
        """Rows and weights; a row of which nothing is observed says nothing about clusters and is left out."""
        rows = self._row_shards(X, session, stacklevel=5)  # warnings at the line that calls fit
        shards, weights = self._weighted_shards(X, rows, sample_weight)
        seen = [np.isfinite(x).any(1) for x in shards]
        return (
            [x[some] for x, some in zip(shards, seen, strict=True)],
            [None if w is None else w[some] for w, some in zip(weights, seen, strict=True)],
        )

    def predict(self, X: Any) -> FloatArray:
        """The most probable cluster of each row."""
        return np.asarray(self.predict_proba(X).argmax(1))

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit, then the most probable cluster of each row."""
        return self.fit(X).predict(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the rows."""
        return float(joined(self.score_samples(X)).mean())


@dataclass(eq=False, repr=False)
class GaussianComponents(NetworkEstimator):
    """Prior of Gaussian components in the data's units, and their posterior."""

    _: KW_ONLY
    covariance_type: Literal["full", "diag"] = "full"
    mean_prior: ArrayLike | None = None
    mean_precision_prior: float = 1.0
    degrees_of_freedom_prior: float | None = None
    covariance_prior: ArrayLike | None = None

    def _check_gaussians(self, n_features: int) -> None:
        check_choice("covariance_type", self.covariance_type, ["full", "diag"])
        check_positive("mean_precision_prior", self.mean_precision_prior)
        full, dof = self.covariance_type == "full", self.degrees_of_freedom_prior
        least = n_features - 1 if full else 0
        if dof is not None and not dof > least:
            raise ValueError(
                f"degrees_of_freedom_prior must be larger than {least}, received {dof!r}"
            )
        shapes = {
            "mean_prior": (n_features,),
            "covariance_prior": (n_features, n_features) if full else (n_features,),
        }
        for name, shape in shapes.items():
            given = getattr(self, name)
            if given is not None and np.shape(given) != shape:
                if name == "covariance_prior" and np.ndim(given) == 0:
                    continue
                raise ValueError(f"{name} must have shape {shape}, received {np.shape(given)}")
        if self.covariance_prior is None:
            return
        if np.ndim(self.covariance_prior) == 0:
            check_positive("covariance_prior", self.covariance_prior)
            return
        scatter = np.asarray(self.covariance_prior, dtype=np.float64)
        if not (is_positive_definite(scatter) if full else (scatter > 0).all()):
            raise ValueError(
                "covariance_prior must be positive definite, received "
                f"{np.array2string(scatter, threshold=9)}"
            )

    def _agree_on_units(
        self,
        session: Session,
        shards: list[FloatArray],
        n_components: int,
        weights: Sequence[FloatArray | None] | None = None,
    ) -> FeatureUnits:
        """Shift and scale of the features over all nodes."""
        pairs = list(zip(shards, weights or [None] * len(shards), strict=True))
        units: FeatureUnits = session.agree(lambda pair: agree_on_units(*pair), pairs)[0]
        check_at_most("n_components", n_components, "n_samples", int(units.n_samples))
        self._units = units
        return units

    def _gaussian_prior(self) -> tuple[FloatArray, float, float, FloatArray, FloatArray]:
        """Mean, confidence, degrees of freedom, scatter, and the rows' covariance, all in standardised units."""
        units: FeatureUnits = self._units
        full, d = self.covariance_type == "full", len(units.shift)
        dof = self.degrees_of_freedom_prior
        mean = np.zeros(d)
        if self.mean_prior is not None:
            mean = units.apply(np.asarray(self.mean_prior, dtype=np.float64))
        if self.covariance_prior is not None and np.ndim(self.covariance_prior) == 0:
            times = float(self.covariance_prior)  # type: ignore[arg-type]
            scatter = times * (np.eye(d) if full else np.ones(d))
        elif self.covariance_prior is not None:
            scale = np.outer(units.scale, units.scale) if full else units.scale**2
            scatter = np.asarray(self.covariance_prior, dtype=np.float64) / scale
        else:
            scatter = units.covariance
            if np.linalg.eigvalsh(scatter)[0] < LEAST_SCATTER:
                # constant or redundant features would make the prior improper
                scatter = scatter + LEAST_SCATTER * np.eye(d)
            scatter = scatter if full else np.diag(scatter)
        confidence = float(self.mean_precision_prior)
        return mean, confidence, float(d if dof is None else dof), scatter, units.covariance

    def _gaussians_in_data_units(self, standardised: Family) -> NormalGamma | NormalWishart:
        shift, scale = self._units.shift, self._units.scale
        p = standardised.parameters()
        if self.covariance_type == "diag":
            centred = NormalGamma.from_parameters(
                scale[:, None] * p["mean"], p["precision"], p["shape"], p["rate"] * scale**2
            )
            return LocatedNormalGamma.about(shift[:, None], centred)
        precision = p["scale"] / np.outer(scale, scale)
        wishart = NormalWishart.from_parameters(
            scale * p["mean"], p["confidence"], p["dof"], precision
        )
        return LocatedNormalWishart.about(shift, wishart)

    def _filled(
        self,
        q: Product,
        data: FloatArray,
        share: FloatArray,
        return_std: bool,
        n_draws: int | None,
        random_state: Any,
    ) -> Any:
        """Rows with missing entries replaced, for q in standardised units and probabilities (n, K) of the components."""
        units: FeatureUnits = self._units
        x = units.apply(data)
        gaps, missing = gaps_of(q, x), np.isnan(data)
        if n_draws is not None:
            check_whole("n_draws", n_draws, 1)
            if return_std:
                raise ValueError(
                    "n_draws gives draws, which have no return_std: ask for one of them"
                )
            drawn = draws_of(gaps, share, x, int(n_draws), generator_of(random_state))
            return np.where(missing, units.shift + units.scale * drawn, data)
        filled, variance = means_and_variances(gaps, share, x)
        filled = np.where(missing, units.shift + units.scale * filled, data)
        return (filled, units.scale * np.sqrt(variance)) if return_std else filled

    def _filled_interval(
        self, q: Product, data: FloatArray, share: FloatArray, level: float
    ) -> tuple[FloatArray, FloatArray]:
        check_level(level)
        units: FeatureUnits = self._units
        x = units.apply(data)
        low, high = (
            np.where(np.isnan(data), units.shift + units.scale * end, data)
            for end in interval_of(gaps_of(q, x), share, x, level)
        )
        return low, high

    def _take_gaussians(self, q: Family) -> None:
        p = q.parameters()
        if self.covariance_type == "diag":
            self.means_ = p["mean"][..., 0]
            self.covariances_ = p["rate"] / p["shape"]
        else:
            self.means_ = p["mean"]
            self.covariances_ = symmetrize(inverse(p["scale"])) / p["dof"][:, None, None]

    def _rows_of_components(self) -> FloatArray:
        """Rows of each component (K,), where they are counted; else infinitely many."""
        return np.full(len(self.means_), np.inf)

    def _doubts(self) -> Iterable[str]:
        """Components without rows, and those that overlap: which rows are whose is not known, and there may be other optima."""
        yield from super()._doubts()
        full = self.covariance_type == "full"
        spread = self.covariances_ if full else [np.diag(row) for row in self.covariances_]
        yield from overlaps(self.means_, spread, self._rows_of_components())

    def _draw(
        self, location: FloatArray, precision: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """One row for each location and precision."""
        if self.covariance_type == "diag":
            mean = location[..., 0]
            return np.asarray(mean + rng.standard_normal(mean.shape) / np.sqrt(precision))
        factor = np.linalg.cholesky(symmetrize(inverse(precision)))
        noise = rng.standard_normal(location.shape)
        return np.asarray(location + np.einsum("nij,nj->ni", factor, noise))
