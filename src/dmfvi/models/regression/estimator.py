"""BayesianLinearRegression and BayesianLogisticRegression, decentralized."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from dmfvi.estimator import NetworkEstimator, generator_of
from dmfvi.families import MultivariateNormal, NormalGamma
from dmfvi.inference.session import InferenceObserver, Session
from dmfvi.inference.starts import FeatureUnits, agree_on_units
from dmfvi.linalg import FloatArray, inverse, plain, symmetrize
from dmfvi.models.pca.belief import GammaPrior
from dmfvi.models.regression.linear import LinearRegression, RegressionShard
from dmfvi.models.regression.logistic import LogisticRegression, predictive_probability
from dmfvi.validation import check_instance, check_level, is_shard_list

#: default prior precisions in standardised units: of linear and logistic coefficients, of intercepts
VAGUE, WEAK, VAGUE_INTERCEPT = 1e-3, 1.0, 1e-2


@dataclass(eq=False, repr=False)
class _Regression(NetworkEstimator):
    """Rows and targets in, coefficients in the data's units out."""

    _: KW_ONLY
    prior_precision: float | ArrayLike | None = None
    fit_intercept: bool = True

    @staticmethod
    def _from_columns(target: FloatArray) -> dict[str, Any]:  # type: ignore[override]
        return {"y": target}

    def _pairs(self, X: Any, y: Any, session: Session) -> list[tuple[FloatArray, Any]]:
        """One (rows, targets) per node of this process."""
        if y is None:
            raise ValueError(
                f"requires y to be passed, but the target y is None: {type(self).__name__} learns from targets"
            )
        if is_shard_list(X):
            session.refuse_parts(len(X), "rows and targets as one array each")
            if not isinstance(y, list | tuple) or any(np.ndim(part) == 0 for part in y):
                raise ValueError(
                    f"X is a list of {len(X)} shards: pass y as a list too, one array per shard"
                )
            targets = [column_or_1d(part, warn=True) for part in y]
            rows, given = [len(part) for part in X], [len(part) for part in targets]
            if rows != given:
                raise ValueError(
                    f"rows per shard {rows} and targets {given} do not match: pass one y per shard"
                )
            target = np.concatenate(targets)
        else:
            _, target = validate_data(self, X, y, dtype=np.float64, y_numeric=False)
        shards = self._row_shards(X, session)
        cuts = np.cumsum([len(shard) for shard in shards])[:-1]
        return list(zip(shards, np.split(column_or_1d(target), cuts), strict=True))

    def _precision(self, units: FeatureUnits, default: float) -> FloatArray:
        """Prior precisions of standardised coefficients, the intercept's last."""
        d = len(units.shift)
        if self.prior_precision is None:
            precision = np.full(d, default)
        else:
            given = np.asarray(self.prior_precision, dtype=np.float64)
            if given.shape not in {(), (d,)} or not (given > 0).all():
                raise ValueError(
                    f"prior_precision must be positive, one number or {d}, received {self.prior_precision!r}"
                )
            # w' = w scale: the same prior for standardised features
            precision = np.broadcast_to(given, (d,)) / units.scale**2
        return np.append(precision, VAGUE_INTERCEPT) if self.fit_intercept else precision

    def _design(self, data: FloatArray) -> FloatArray:
        units: FeatureUnits = self._units
        rows = units.apply(data) if self.fit_intercept else data / units.scale
        return np.column_stack([rows, np.ones(len(rows))]) if self.fit_intercept else rows

    def _to_data(self) -> FloatArray:
        """A: coefficients and intercept in the data's units are A times the standardised ones."""
        units: FeatureUnits = self._units
        d = len(units.shift)
        if not self.fit_intercept:
            return np.diag(1.0 / units.scale)
        change = np.zeros((d + 1, d + 1))
        change[:d, :d] = np.diag(1.0 / units.scale)
        change[d, :d] = -units.shift / units.scale
        change[d, d] = 1.0
        return change


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(RegressorMixin, _Regression):
    """Linear regression with unknown noise: the exact posterior, at every node, in one agreed sum.

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

    _: KW_ONLY
    noise_prior: GammaPrior | None = None

    def fit(self, X: Any, y: Any, *, observer: InferenceObserver | None = None) -> Self:
        """Fit to X (n, D) and y (n,), split evenly over the nodes, or to one array of each per node."""
        session = self._open()
        pairs = [
            (x, np.asarray(target, dtype=np.float64)) for x, target in self._pairs(X, y, session)
        ]
        both: FeatureUnits = session.agree(
            agree_on_units, [np.column_stack([x, target]) for x, target in pairs]
        )[0]
        self._units, target_units = _split_units(both)
        shift = float(target_units.shift[0]) if self.fit_intercept else 0.0
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
        width = student.ppf(0.5 + 0.5 * level, dof) * scale
        return mean - width, mean + width

    def sample(self, X: Any, random_state: Any = None) -> FloatArray:
        """New targets for rows X from the posterior predictive distribution."""
        mean, scale, dof = self._predictive(X)
        return np.asarray(mean + scale * generator_of(random_state).standard_t(dof, len(mean)))

    def _predictive(self, X: Any) -> tuple[FloatArray, FloatArray, float]:
        design = self._design(self._checked_rows(X))
        p = self._belief.parameters()
        spread = np.einsum("ni,ni->n", design, np.linalg.solve(p["precision"], design.T).T)
        shift, unit = self._target
        scale = unit * np.sqrt(p["rate"] / p["shape"] * (1.0 + spread))
        return shift + unit * (design @ p["mean"]), scale, float(2.0 * p["shape"])

    def _make_model(self) -> LinearRegression:
        unit = self._target[1]
        prior = self.noise_prior
        check_instance("noise_prior", prior, GammaPrior)
        shape, rate = (VAGUE, VAGUE) if prior is None else (prior.shape, prior.rate / unit**2)
        return LinearRegression(self._precision(self._units, VAGUE), shape, rate)

    def _in_data_units(self, q: NormalGamma) -> NormalGamma:
        change = self._to_data()
        shift, unit = self._target
        p = q.parameters()
        mean = unit * change @ p["mean"]
        if self.fit_intercept:
            mean[-1] += shift
        back = inverse(change)
        return NormalGamma.from_parameters(
            mean, symmetrize(back.T @ p["precision"] @ back), p["shape"], p["rate"] * unit**2
        )

    def _take(self, node: int) -> None:
        p = self.posterior_.parameters()
        d = len(self._units.shift)
        self.coef_ = p["mean"][:d]
        self.intercept_ = float(p["mean"][d]) if self.fit_intercept else 0.0
        self.noise_precision_ = float(p["shape"] / p["rate"])
        unit = p["rate"] / np.maximum(p["shape"] - 1.0, 0.5 * p["shape"])
        self.noise_variance_ = float(unit)
        self.coef_covariance_ = unit * symmetrize(inverse(p["precision"]))


@dataclass(eq=False, repr=False)
class BayesianLogisticRegression(ClassifierMixin, _Regression):
    """Logistic regression with a posterior over its coefficients, at every node, in a few agreed sums.

    Conditionally conjugate by Polya-Gamma augmentation; more than two classes are one against the rest.
    A node need not hold all classes.

    Parameters
    ----------
    prior_precision : float, array (n_features,) or None
        Prior precision of the coefficients; None is 1 in standardised features. The intercept's is 1e-2 at the data's mean.
    fit_intercept : bool
        Whether the model has an intercept.
    classes : array of labels or None
        All labels that any node may have; None is those of y. It must be given where other nodes run in other processes.
    {shared parameters}

    Attributes
    ----------
    classes_ : array (n_classes,)
        Labels, sorted.
    coef_ : array (1, n_features), (n_classes, n_features) for more than two classes
        Posterior mean of the coefficients.
    intercept_ : array (1,) or (n_classes,)
        Posterior mean of the intercepts; zero without them.
    coef_covariance_ : array (1 or n_classes, n_features + 1, n_features + 1)
        Posterior covariances of (coefficients, intercept); without the last row and column where there is no intercept.
    {shared attributes}
    """

    _kept = ("classes_",)

    _: KW_ONLY
    classes: ArrayLike | None = None

    def fit(self, X: Any, y: Any, *, observer: InferenceObserver | None = None) -> Self:
        """Fit to X (n, D) and labels y (n,), split evenly over the nodes, or to one of each per node."""
        session = self._open()
        pairs = self._pairs(X, y, session)
        labels = np.concatenate([target for _, target in pairs])
        check_classification_targets(labels)
        self.classes_ = self._known_classes(labels, session)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has one class only, {plain(self.classes_[0])!r}: a classifier needs two or more over all nodes"
            )
        self._units = session.agree(agree_on_units, [x for x, _ in pairs])[0]
        prepared = [
            RegressionShard(self._design(x), (target[:, None] == self._targets).astype(np.float64))
            for x, target in pairs
        ]
        return self._fit(session, self._make_model(), prepared, observer=observer)

    @property
    def _targets(self) -> NDArray[Any]:
        """The classes that have coefficients: of two the second, else all."""
        return np.asarray(self.classes_[1:] if len(self.classes_) == 2 else self.classes_)

    def _make_model(self) -> LogisticRegression:
        return LogisticRegression(self._precision(self._units, WEAK), len(self._targets))

    def _known_classes(self, labels: NDArray[Any], session: Session) -> NDArray[Any]:
        """Which labels exist is part of the schema, like the names of the columns."""
        seen = np.unique(labels)
        if self.classes is None:
            if not session.whole:
                raise ValueError(
                    "classes are needed where a process sees the labels of one node only, received None: "
                    f"pass all labels that any node may have, here there are {seen[:10].tolist()}"
                )
            return seen
        known = np.unique(np.asarray(self.classes))
        strange = np.setdiff1d(seen, known)
        if len(strange):
            raise ValueError(
                f"y has labels {strange[:5].tolist()} that are not in classes={known.tolist()}: add them"
            )
        return known

    def decision_function(self, X: Any) -> FloatArray:
        """Posterior mean of x.w for each row (n,), or (n, K) with more than two classes."""
        mean, _ = self._logits(X)
        return mean[:, 0] if len(self.classes_) == 2 else mean

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Class probabilities averaged over the posterior (n, K).

        With ``return_std`` also the posterior standard deviation of each class's x.w, on the logit scale.
        """
        mean, variance = self._logits(X)
        chance = predictive_probability(mean, variance)
        if len(self.classes_) == 2:
            chance = np.column_stack([1.0 - chance, chance])
        else:
            chance = chance / chance.sum(1, keepdims=True)
        return (chance, np.sqrt(variance)) if return_std else chance

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        chance = self.predict_proba(X)
        return np.asarray(self.classes_[chance.argmax(1)])

    def sample(self, X: Any, random_state: Any = None) -> NDArray[Any]:
        """Labels for rows X from the posterior predictive distribution."""
        chance = self.predict_proba(X)
        draws = generator_of(random_state).random((len(chance), 1))
        return np.asarray(self.classes_[(draws > chance.cumsum(1)[:, :-1]).sum(1)])

    def _logits(self, X: Any) -> tuple[FloatArray, FloatArray]:
        design = self._design(self._checked_rows(X))
        p = self._belief.parameters()
        variance = np.einsum("ni,kij,nj->nk", design, p["covariance"], design, optimize=True)
        return design @ p["mean"].T, np.maximum(variance, 0.0)

    def _in_data_units(self, q: MultivariateNormal) -> MultivariateNormal:
        change = self._to_data()
        p = q.parameters()
        covariance = symmetrize(change @ p["covariance"] @ change.T)
        return MultivariateNormal.from_parameters(p["mean"] @ change.T, covariance)

    def _take(self, node: int) -> None:
        p = self.posterior_.parameters()
        d = len(self._units.shift)
        self.coef_ = p["mean"][:, :d]
        self.intercept_ = p["mean"][:, d] if self.fit_intercept else np.zeros(len(p["mean"]))
        self.coef_covariance_ = p["covariance"]


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
