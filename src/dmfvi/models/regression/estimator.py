"""BayesianLinearRegression, decentralized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.special import gammaincinv, gammaln, stdtrit
from sklearn.base import RegressorMixin

from dmfvi.estimator import generator_of
from dmfvi.export import Pointwise
from dmfvi.families import NormalGamma
from dmfvi.inference.result import InferenceObserver
from dmfvi.inference.session import Session
from dmfvi.inference.starts import FeatureUnits, agree_on_units
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.targets import check_targets
from dmfvi.models.pca.belief import GammaPrior
from dmfvi.models.pointwise import of_targets
from dmfvi.models.regression.base import VAGUE_INTERCEPT, Regression
from dmfvi.models.regression.columns import summed
from dmfvi.models.regression.linear import LinearRegression, RegressionShard, statistics_of
from dmfvi.models.regression.posterior import LinearPosterior
from dmfvi.shard_lists import joined, joined_weights
from dmfvi.sizes import check_target_size
from dmfvi.summary_table import Row, SummaryTable, rows_of
from dmfvi.validation import check_instance, check_level

#: default prior precision of coefficients in standardised units, and of the noise
VAGUE = 1e-3
#: shape of the noise precision from which the delta method has four digits
LARGE_SHAPE = 1e4


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(RegressorMixin, Regression):
    """Linear regression with unknown noise: the exact pooled posterior at every node, from one sum over the network.

        y = x.w + intercept + noise,  w | t ~ N(0, 1/(t P)),  t = 1/noise variance ~ Gamma

    With the default ``noise_prior`` and many more rows than columns, intervals are those of least squares (R's lm, statsmodels' OLS).

    Parameters
    ----------
    prior_precision : float, array (n_features,) or None
        P, prior precision of the coefficients in units of the noise precision (P = 1 is as much as one row with x = 1);
        None is 1e-3 in standardised features. The intercept's prior is vague, around the data's mean.
    noise_prior : GammaPrior or None
        Gamma prior of the noise precision, conjugate: coefficients and noise are tied, and with a vague P the noise is underestimated where
        columns are not few. None is Gamma(1e-3, 1e-3) in units of the target's variance with this tie taken off (Notes).
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

    A conjugate prior weighs noise precisions by t^(p/2), as if p more rows had been seen. The default takes off t^(g/2), where g is the
    number of coefficients that the rows determine, tr((P + X'X)^-1 X'X). As P goes to zero, the posterior has n - p degrees of freedom. Three of
    them are left to the noise, or half of the rows, if the columns are as many as the rows.
    """

    _kept = ("_target", "_moments")

    @staticmethod
    def _from_columns(  # type: ignore[override]
        target: FloatArray, weight: FloatArray | None = None
    ) -> dict[str, Any]:
        return {"y": target} | ({} if weight is None else {"sample_weight": weight})

    _usual_precision = f"{VAGUE:g} (times that of the noise)"
    _default_precision = VAGUE

    _: KW_ONLY
    noise_prior: GammaPrior | None = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        observer: InferenceObserver | None = None,
    ) -> Self:
        """Fit to X (n, D) and y (n,), split evenly over the nodes, or to one array of each per node.

        A row of ``sample_weight`` two counts as two rows, one of zero not at all; of frames it may be the name of a column.
        With a formula X is a frame or one per node, and y is left out unless the formula has no left-hand side.
        """
        session = self._open()
        X, y, given = self._tabulated(X, y, {"sample_weight": sample_weight}, session)
        pairs = self._pairs(X, y, session)
        weights = self._weights_of(given.get("sample_weight"), X, [x for x, _ in pairs])
        return self._fit_pairs(session, pairs, weights, None, observer)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one more batch: the posterior is that of one fit to all rows so far, of which only moments are kept.

        X, y and sample_weight as for ``fit``, from the second batch on also lists in which some nodes have no rows. Frames keep the levels of
        the first batch, and what its formula has learned (``center``, ``scale``). A batch that is refused leaves the model as it was.
        """
        if not hasattr(self, "_node_beliefs"):
            return self.fit(X, y, sample_weight)
        if not hasattr(self, "_moments"):
            raise ValueError(
                "the file of this model has no moments of its rows, it is from an earlier version: fit anew"
            )
        if self.missing == "impute":
            raise ValueError(
                "partial_fit is exact, and missing='impute' would fill earlier rows anew with every batch: use missing='drop'"
            )
        table = self._design_of_table
        if self.formula != (None if table is None else table.formula):
            raise ValueError(
                f"formula {self.formula!r} is not that of the batches so far: give the same, or fit anew"
            )
        before = dict(self.__dict__)
        try:
            return self._fit_more(X, y, sample_weight)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit_more(self, X: Any, y: Any, sample_weight: Any) -> Self:
        session, table = self._open(), self._design_of_table
        count, dropped = getattr(self, "n_samples_", None), getattr(self, "n_dropped_", 0)
        if table is not None:
            X, y, given = self._tabulated(
                X, y, {"sample_weight": sample_weight}, session, known=table
            )
            sample_weight = given.get("sample_weight")
            self.n_dropped_ += dropped
        pairs = self._pairs(X, y, session, reset=table is not None, allow_empty=True)
        if table is not None and count is not None and self._rows_given is not None:
            self._rows_given += count
        weights = self._weights_of(sample_weight, X, [x for x, _ in pairs])
        counts = [
            np.array([float(len(x)), float(len(x)) if weight is None else float(weight.sum())])
            for (x, _), weight in zip(pairs, weights, strict=True)
        ]
        n_rows, whole_weight = summed(session, counts)
        if n_rows > 0 and not whole_weight > 0:  # rows that do not count change nothing
            return self
        return self._fit_pairs(session, pairs, weights, self._moments, None)

    def _fit_pairs(
        self,
        session: Session,
        given: list[tuple[FloatArray, Any]],
        weights: Sequence[FloatArray | None],
        earlier: FeatureUnits | None,
        observer: InferenceObserver | None,
    ) -> Self:
        """Agree on units of all rows, and add what earlier ones have left."""
        pairs = [(x, _numbers(target)) for x, target in given]
        both: FeatureUnits = session.agree(
            lambda part: agree_on_units(*part),
            [
                (np.column_stack([x, target]), weight)
                for (x, target), weight in zip(pairs, weights, strict=True)
            ],
        )[0]
        self._moments = both = both if earlier is None else earlier.with_more(both)
        self._units, target_units = _split_units(both)
        shift = float(target_units.shift[0]) if self._has_intercept else 0.0
        self._target = (shift, float(target_units.scale[0]))
        if earlier is None:
            self._warn_of_far_products()
        model = self._make_model()
        before = None
        if earlier is not None:  # every node adds its part of what all of them know
            share = 1.0 / session.network.n_nodes
            before = statistics_of(earlier, both, self._has_intercept, share)
        prepared = [
            RegressionShard(self._design(x), (target - shift) / self._target[1], weight, before)
            for (x, target), weight in zip(pairs, weights, strict=True)
        ]
        return self._fit(
            session, model, prepared, log_volume=target_units.log_volume, observer=observer
        )

    def _weights_of(
        self, given: Any, X: Any, shards: list[FloatArray]
    ) -> Sequence[FloatArray | None]:
        """Every node's weights of its rows; None where all rows count once."""
        if given is None:
            return [None] * len(shards)
        weights = self._row_values("sample_weight", given, X, shards)
        least = min((float(part.min()) for part in weights if len(part)), default=0.0)
        if least < 0:
            raise ValueError(f"sample_weight must not be negative, received {least:g}")
        for part in weights:
            check_target_size(part, "sample_weight")
        return weights

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

        X, y, given = self._scorable(X, y, {"sample_weight": sample_weight})
        target, weight = self._scored(X, y), joined_weights(given["sample_weight"])
        return float(r2_score(target, joined(self.predict(X)), sample_weight=weight))

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
        rows.append(_noise_row(float(p["shape"]), float(p["rate"]), level))
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
        return LinearRegression(precision, shape, rate, untied=prior is None)

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
        values = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        odd = next((v for v in np.ravel(np.asarray(y, dtype=object)) if isinstance(v, str)), y)
        raise ValueError(
            f"y of a linear regression are numbers, received {str(odd)!r}: BayesianLogisticRegression takes labels"
        ) from None
    check_target_size(values)
    return values


def _noise_row(shape: float, rate: float, level: float) -> Row:
    """The noise's standard deviation 1 / sqrt(t), t ~ Gamma(shape, rate): median, deviation and central interval."""
    check_level(level)
    tails = np.array([0.5 + 0.5 * level, 0.5, 0.5 - 0.5 * level])
    low, middle, high = np.sqrt(rate / gammaincinv(shape, tails))
    if shape > LARGE_SHAPE:  # the difference below would cancel
        spread = 0.5 * middle / np.sqrt(shape)
    elif shape > 1.0:
        mean = np.sqrt(rate) * np.exp(gammaln(shape - 0.5) - gammaln(shape))
        spread = np.sqrt(rate / (shape - 1.0) - mean**2)
    else:
        spread = np.inf
    return Row(
        "sd of noise", float(middle), float(spread), float(low), float(high), None, None, None
    )


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
