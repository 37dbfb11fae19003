"""BayesianLinearRegression, decentralized."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.special import stdtrit
from sklearn.base import RegressorMixin

from dmfvi.estimator import generator_of
from dmfvi.export import Pointwise
from dmfvi.families import NormalGamma
from dmfvi.inference.result import InferenceObserver
from dmfvi.inference.starts import FeatureUnits, agree_on_units
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.targets import check_targets
from dmfvi.models.pca.belief import GammaPrior
from dmfvi.models.pointwise import of_targets
from dmfvi.models.regression.base import VAGUE_INTERCEPT, Regression
from dmfvi.models.regression.linear import LinearRegression, RegressionShard
from dmfvi.models.regression.posterior import LinearPosterior
from dmfvi.shard_lists import joined
from dmfvi.summary_table import SummaryTable, rows_of
from dmfvi.validation import check_instance, check_level

#: default prior precision of coefficients in standardised units, and of the noise
VAGUE = 1e-3


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(RegressorMixin, Regression):
    """Linear regression with unknown noise: the exact pooled posterior at every node, from one sum over the network.

        y = x.w + intercept + noise,  w | t ~ N(0, 1/(t P)),  t = 1/noise variance ~ Gamma

    Parameters
    ----------
    prior_precision : float, array (n_features,) or None
        P, prior precision of the coefficients in units of the noise precision (P = 1 is as much as one row with x = 1);
        None is 1e-3 in standardised features. The intercept's prior is vague, around the data's mean.
    noise_prior : GammaPrior or None
        Prior of the noise precision; None is Gamma(1e-3, 1e-3) in units of the target's variance.
    fit_intercept : bool
        Whether the model has an intercept.
    {table parameters}
    {shared parameters}

    Attributes
    ----------
    coef_ : array (n_features,)
        Posterior mean of the coefficients.
    intercept_ : float
        Posterior mean of the intercept; zero without one.
    coef_covariance_ : array (n_features + 1, n_features + 1)
        Posterior covariance of (coefficients, intercept); without the last row and column where there is no intercept.
    noise_variance_ : float
        Posterior mean of the noise variance.
    noise_precision_ : float
        Posterior mean of the noise precision.
    {shared attributes}

    Notes
    -----
    The posterior is exact, so ``lower_bound_`` is the log evidence itself.
    """

    _kept = ("_target",)

    @staticmethod
    def _from_columns(target: FloatArray) -> dict[str, Any]:  # type: ignore[override]
        return {"y": target}

    _usual_precision = f"{VAGUE:g} (times that of the noise)"

    _: KW_ONLY
    noise_prior: GammaPrior | None = None

    def fit(self, X: Any, y: Any = None, *, observer: InferenceObserver | None = None) -> Self:
        """Fit to X (n, D) and y (n,), split evenly over the nodes, or to one array of each per node.

        With a formula X is a frame or one per node, and y is left out unless the formula has no left-hand side.
        """
        session = self._open()
        X, y, _ = self._tabulated(X, y, {}, session)
        pairs = [(x, _numbers(target)) for x, target in self._pairs(X, y, session)]
        both: FeatureUnits = session.agree(
            agree_on_units, [np.column_stack([x, target]) for x, target in pairs]
        )[0]
        self._units, target_units = _split_units(both)
        shift = float(target_units.shift[0]) if self._has_intercept else 0.0
        self._target = (shift, float(target_units.scale[0]))
        model = self._make_model()
        prepared = [
            RegressionShard(self._design(x), (target - shift) / self._target[1])
            for x, target in pairs
        ]
        return self._fit(
            session, model, prepared, log_volume=target_units.log_volume, observer=observer
        )

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive means, with ``return_std`` also the standard deviations of new targets."""
        mean, scale, dof = self._predictive(X)
        if not return_std:
            return mean
        return mean, scale * np.sqrt(dof / max(dof - 2.0, 1e-3))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Ends of central predictive intervals of new targets (Student)."""
        check_level(level)
        mean, scale, dof = self._predictive(X)
        width = stdtrit(dof, 0.5 + 0.5 * level) * scale
        return mean - width, mean + width

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R^2 of the predictive means, over all rows where X and y are lists of shards; y may be in the formula."""
        from sklearn.metrics import r2_score  # 10 MB that a fit does not need

        target = self._scored(X, y)
        return float(r2_score(target, joined(self.predict(X)), sample_weight=sample_weight))

    def sample(self, X: Any, random_state: Any = None) -> FloatArray:
        """New targets for rows X from the posterior predictive distribution."""
        mean, scale, dof = self._predictive(X)
        return np.asarray(mean + scale * generator_of(random_state).standard_t(dof, len(mean)))

    def coefficient_table(self, level: float = 0.9) -> SummaryTable:
        """The table of coefficients in the data's units, with central (Student) intervals."""
        p = self.posterior_.parameters()
        terms = self._names() + (["Intercept"] if self._has_intercept else [])
        dof = 2.0 * float(p["shape"])
        rows = rows_of(
            terms,
            p["mean"],
            np.sqrt(np.diag(p["scale"]) * p["rate"] / p["shape"]),
            lambda size: float(stdtrit(dof, 0.5 + 0.5 * size)),
            level,
            [False] * len(terms),
        )
        widening = np.sqrt(dof / max(dof - 2.0, 1e-3))  # from Student's scale to its deviation
        rows = [row._replace(sd=row.sd * widening) for row in rows]
        return SummaryTable("Linear regression", self._facts(), level, "", rows)

    def _predictive(self, X: Any) -> tuple[FloatArray, FloatArray, float]:
        design = self._design(self._checked_rows(X))
        p = self._belief.parameters()
        spread = np.einsum("ni,ni->n", design, np.linalg.solve(p["precision"], design.T).T)
        shift, unit = self._target
        scale = unit * np.sqrt(p["rate"] / p["shape"] * (1.0 + spread))
        return shift + unit * (design @ p["mean"]), scale, float(2.0 * p["shape"])

    def _pointwise(
        self, draws: dict[str, FloatArray], seed: Any, X: Any, y: Any, **row_values: Any
    ) -> Pointwise:
        self._refuse_row_values(row_values)
        rows, (shift, unit) = self._checked_rows(X), self._target
        target = check_targets("gaussian", self._known_targets(X, y, rows), None)
        # the draws that the seed gave, in agreed units: columns far from zero cost no digits
        agreed, _ = self.posterior_.agreed.sample(np.random.default_rng(seed), len(draws["coef"]))
        eta = shift + unit * agreed @ self._design(rows).T
        likelihood, new = of_targets(
            "gaussian",
            "identity",
            target,
            eta,
            np.random.default_rng([seed, 1]),
            dispersion=1.0 / draws["noise_precision"][:, None],
        )
        return Pointwise({"y": target}, {"y": likelihood}, {"y": new})

    def _make_model(self) -> LinearRegression:
        unit = self._target[1]
        prior = self.noise_prior
        check_instance("noise_prior", prior, GammaPrior)
        shape, rate = (VAGUE, VAGUE) if prior is None else (prior.shape, prior.rate / unit**2)
        precision = self._coefficient_precision(self._units, VAGUE)
        if self._has_intercept:
            precision = np.append(precision, VAGUE_INTERCEPT)
        return LinearRegression(precision, shape, rate)

    def _in_data_units(self, q: NormalGamma) -> LinearPosterior:
        shift, unit = self._target
        matrix = unit * self._to_data()
        moved = np.zeros(len(matrix))
        if self._has_intercept:
            moved[-1] = shift
        return LinearPosterior(q, matrix, moved, unit)

    def _take(self, node: int) -> None:
        p = self.posterior_.parameters()
        d = len(self._units.shift)
        self.coef_ = p["mean"][:d]
        self.intercept_ = float(p["mean"][d]) if self._has_intercept else 0.0
        self.noise_precision_ = float(p["shape"] / p["rate"])
        unit = p["rate"] / np.maximum(p["shape"] - 1.0, 0.5 * p["shape"])
        self.noise_variance_ = float(unit)
        self.coef_covariance_ = unit * p["scale"]


def _numbers(y: Any) -> FloatArray:
    """Targets as numbers; labels are for other models."""
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        odd = next((v for v in np.ravel(np.asarray(y, dtype=object)) if isinstance(v, str)), y)
        raise ValueError(
            f"y of a linear regression are numbers, received {str(odd)!r}: BayesianLogisticRegression takes labels"
        ) from None


def _split_units(both: FeatureUnits) -> tuple[FeatureUnits, FeatureUnits]:
    """Units of the features, and of the target in the last column."""

    def part(rows: slice) -> FeatureUnits:
        return FeatureUnits(
            both.shift[rows],
            both.scale[rows],
            both.covariance[rows, rows],
            both.n_samples,
            both.n_observed[rows],
        )

    return part(slice(0, -1)), part(slice(-1, None))
