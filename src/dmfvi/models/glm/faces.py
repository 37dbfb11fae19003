"""GeneralizedLinearModel, BayesianLogisticRegression and BayesianPoissonRegression."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin

from dmfvi.inference.model import Model
from dmfvi.linalg import FloatArray
from dmfvi.models.glm.estimator import WEAK, GlmEstimator
from dmfvi.models.glm.prediction import GlmPredictions, two_class_interval
from dmfvi.models.glm.targets import Targets
from dmfvi.models.regression.base import VAGUE_INTERCEPT
from dmfvi.models.regression.linear import RegressionShard
from dmfvi.models.regression.logistic import LogisticRegression, predictive_probability
from dmfvi.models.regression.posterior import CoefficientPosterior
from dmfvi.validation import check_choice, check_level

Families = Literal[
    "gaussian",
    "student-t",
    "bernoulli",
    "binomial",
    "multinomial",
    "ordinal",
    "poisson",
    "negative-binomial",
    "gamma",
]
Links = Literal["identity", "log", "logit", "probit"]


@dataclass(eq=False, repr=False)
class GeneralizedLinearModel(GlmEstimator):
    """Generalized linear model with a Gaussian posterior over its coefficients, the same at every node.

    The posterior is the Gaussian with the smallest KL(q || exact posterior), computed from sums of Gauss-Hermite expectations
    over the network. A node need not hold all classes, or any event.

    Parameters
    ----------
    family : str
        Distribution of the targets: "gaussian", "student-t" (robust), "bernoulli" (two labels), "binomial" (successes of
        ``trials``), "multinomial" (labels, softmax), "ordinal" (labels with an order, proportional odds), "poisson",
        "negative-binomial" (variance mean + dispersion mean^2), "gamma" (variance dispersion mean^2).
    link : str or None
        "logit" or "probit" for "bernoulli", "binomial" and "ordinal"; None is the family's usual link: identity, log or logit.
    prior_precision : float, array (n_features,), "learned" or None
        Prior precision of the coefficients; "learned" is one number for all of them with a Gamma(1e-3, 1e-3) prior, in standardised
        features. None is 1 in standardised features and (gaussian, student-t) standardised targets.
    intercept_precision : float or None
        Prior precision of the intercept (ordinal: of the first cut point) at the data's means; None is 0.01, 0 is a flat prior.
    fit_intercept : bool
        Whether the model has an intercept; an ordinal one has cut points instead.
    {table parameters}
    degrees_of_freedom : float
        Of "student-t".
    classes : array of labels or None
        All labels that any node may have, for "ordinal" from the lowest to the highest; None is those of y, sorted. It must be given
        where other nodes run in other processes.
    {shared parameters}

    Attributes
    ----------
    coef_ : array (n_features,); (1, n_features) for two or ordered classes, (n_classes, n_features) for others
        Posterior mean of the coefficients.
    intercept_ : float, or array (1,) or (n_classes,)
        Posterior mean of the intercepts; zero without them.
    coef_covariance_ : array
        Posterior covariance of (coefficients, intercept); with a leading axis where ``coef_`` has one.
    dispersion_ : float
        Posterior mean of the noise variance, squared Student scale, or dispersion.
    cutpoints_ : array (n_classes - 1,)
        Posterior means of an ordinal model's cut points.
    classes_ : array (n_classes,)
        Labels, where targets are labels.
    n_samples_ : int
        Rows of all nodes.
    {shared attributes}

    Notes
    -----
    Features have agreed units inside, so results do not depend on the columns' units or origin. Opper & Archambeau (2009): The
    variational Gaussian approximation revisited.

    Where its posterior is skewed, a log dispersion gets the mean and deviation of that posterior, and ``summary`` shows its quantiles.
    ``lower_bound_`` is that of the Gaussian before, with the smallest KL(q || posterior): the highest bound on the log evidence of any
    Gaussian, so fits are compared by it.
    """

    _: KW_ONLY
    family: Families = "gaussian"
    link: Links | None = None
    degrees_of_freedom: float = 4.0
    classes: ArrayLike | None = None


@dataclass(eq=False, repr=False)
class BayesianPoissonRegression(RegressorMixin, GlmEstimator):
    """Poisson regression with log link: counts, or rates with an ``exposure``, with a posterior over the coefficients.

    ``GeneralizedLinearModel(family="poisson")`` under scikit-learn's name.

    Parameters
    ----------
    prior_precision : float, array (n_features,), "learned" or None
        Prior precision of the coefficients; None is 1 in standardised features.
    intercept_precision : float or None
        Prior precision of the intercept at the data's means; None is 0.01, 0 is a flat prior.
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
    n_samples_ : int
        Rows of all nodes.
    {shared attributes}
    """

    family = "poisson"

    score = GlmPredictions.score  # before the mixin's, which takes neither lists nor offsets


@dataclass(eq=False, repr=False)
class BayesianLogisticRegression(ClassifierMixin, GlmEstimator):
    """Logistic regression with the pooled posterior over its coefficients at every node, from a few sums over the network.

    Two classes use a Bernoulli model, more use one softmax model. A node need not hold all classes.

    Parameters
    ----------
    prior_precision : float, array (n_features,), "learned" or None
        Prior precision of the coefficients; None is 1 in standardised features.
    intercept_precision : float or None
        Prior precision of the intercept at the data's means; None is 0.01, 0 is a flat prior.
    fit_intercept : bool
        Whether the model has an intercept.
    {table parameters}
    classes : array of labels or None
        All labels that any node may have; None is those of y. It must be given where other nodes run in other processes.
    approximation : "gaussian" or "polya-gamma"
        "gaussian" is the Gaussian closest to the posterior. "polya-gamma" is the bound of Jaakkola & Jordan (2000), for comparison:
        it is over-confident (its posterior deviations are 0.6 to 0.9 of the exact ones, and its 90 % intervals hold less), and
        takes more than two classes one against the rest.
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
    n_samples_ : int
        Rows of all nodes.
    {shared attributes}
    """

    family = "bernoulli"

    score = GlmPredictions.score  # before the mixin's, which takes neither lists nor offsets

    _: KW_ONLY
    classes: ArrayLike | None = None
    approximation: Literal["gaussian", "polya-gamma"] = "gaussian"

    @property
    def _family(self) -> str:
        several = hasattr(self, "classes_") and len(self.classes_) > 2
        return "multinomial" if several else "bernoulli"

    @property
    def _many_classes(self) -> bool:
        return True

    def _check_settings(self) -> None:
        super()._check_settings()
        check_choice("approximation", self.approximation, ["gaussian", "polya-gamma"])
        if self._bounded and isinstance(self.prior_precision, str):
            raise ValueError('approximation="polya-gamma" takes no prior_precision="learned"')

    # -- the bound of Jaakkola and Jordan -----------------------------------------------------

    @property
    def _bounded(self) -> bool:
        return self.approximation == "polya-gamma"

    @property
    def _link_words(self) -> str:
        return "logit" if self._bounded else super()._link_words

    def _facts(self) -> list[tuple[str, str]]:
        cost = ("approximation", "polya-gamma, for comparison: intervals are too narrow")
        return super()._facts() + ([cost] if self._bounded else [])

    @property
    def _n_outputs(self) -> int:
        """Coefficient vectors: of two classes the second's, else all."""
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _prepared(self, data: FloatArray, targets: Targets) -> Any:
        if not self._bounded:
            return super()._prepared(data, targets)
        if (targets.offset != 0).any() or (targets.weight != 1).any():
            raise ValueError(
                'approximation="polya-gamma" takes no offset and no sample_weight: use "gaussian"'
            )
        first = 1 if self._n_outputs == 1 else 0
        labels = np.arange(first, len(self.classes_))
        return RegressionShard(
            self._design(data), (targets.values[:, None] == labels).astype(np.float64)
        )

    def _make_model(self) -> Model:
        if not self._bounded:
            return super()._make_model()
        precision = self._coefficient_precision(self._units, WEAK)
        if self._has_intercept:
            flat = self.intercept_precision
            precision = np.append(precision, VAGUE_INTERCEPT if flat is None else flat)
        return LogisticRegression(precision, self._n_outputs)

    def _in_data_units(self, q: Any) -> CoefficientPosterior:
        if not self._bounded:
            return super()._in_data_units(q)
        change = self._to_data()
        return CoefficientPosterior(q, change, np.zeros(len(change)))

    def _take(self, node: int) -> None:
        if not self._bounded:
            super()._take(node)
            return
        p, d = self.posterior_.parameters(), len(self._units.shift)
        self.coef_ = p["mean"][:, :d]
        self.intercept_ = p["mean"][:, d] if self._has_intercept else np.zeros(len(p["mean"]))
        self.coef_covariance_ = p["covariance"]

    def decision_function(self, X: Any, *, offset: Any = None) -> FloatArray:
        """Posterior mean of x.w for each row (n,), or (n, K) with more than two classes."""
        if not self._bounded:
            return super().decision_function(X, offset=offset)
        self._refuse_offset(offset)
        mean, _ = self._logits(X)
        return mean[:, 0] if self._n_outputs == 1 else mean

    def _chances(self, X: Any, offset: Any) -> tuple[FloatArray, FloatArray]:
        if not self._bounded:
            return super()._chances(X, offset)
        self._refuse_offset(offset)
        mean, variance = self._logits(X)
        chance = predictive_probability(mean, variance)
        if self._n_outputs == 1:
            chance = np.column_stack([1.0 - chance, chance])
        else:
            chance = chance / chance.sum(1, keepdims=True)
        return chance, np.sqrt(variance)

    def predict_proba_interval(
        self, X: Any, level: float = 0.9, *, offset: Any = None, random_state: Any = 0
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of central posterior intervals of each class's probability (n, K); from draws with more than two classes."""
        if not self._bounded:
            return super().predict_proba_interval(
                X, level, offset=offset, random_state=random_state
            )
        check_level(level)
        self._refuse_offset(offset)
        if self._n_outputs > 1:
            raise ValueError(
                'approximation="polya-gamma" has no intervals of the probabilities of more than two classes: use "gaussian"'
            )
        mean, variance = self._logits(X)
        return two_class_interval("logit", mean[:, 0], variance[:, 0], level)

    def _logits(self, X: Any) -> tuple[FloatArray, FloatArray]:
        design = self._design(self._checked_rows(X))
        p = self._belief.parameters()
        variance = np.einsum("ni,kij,nj->nk", design, p["covariance"], design, optimize=True)
        return design @ p["mean"].T, np.maximum(variance, 0.0)
