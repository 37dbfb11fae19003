"""Imputer: a model that fills gaps, as a step of a scikit-learn pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from dmfvi.linalg import FloatArray
from dmfvi.models.pca.estimator import BayesianPCA


@dataclass(eq=False, repr=False)
class Imputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fills missing entries by a model's predictive means; ``transform`` returns a table with the same columns.

    Parameters
    ----------
    estimator : estimator with ``impute``, or None
        The model that is fitted, for example ``BayesianPCA(3, network=...)``; None is ``BayesianPCA()``.

    Attributes
    ----------
    estimator_ : estimator
        The fitted model; ``dmfvi.save`` keeps it.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns, where the data had names.

    Examples
    --------
    >>> import numpy as np
    >>> from dmfvi import BayesianPCA, Imputer
    >>> X = np.outer(np.arange(20.0), [1.0, 2.0, 3.0])
    >>> X[3, 1] = np.nan
    >>> bool(np.isfinite(Imputer(BayesianPCA(1, random_state=0)).fit_transform(X)).all())
    True
    """

    estimator: Any = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to X (n_samples, n_features) with NaN for missing entries, or to a list with one array per node."""
        model = BayesianPCA() if self.estimator is None else self.estimator
        if not hasattr(model, "impute"):
            raise TypeError(
                f"estimator must have impute, as BayesianPCA has, received {type(model).__name__}"
            )
        self.estimator_ = clone(model).fit(X)
        self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        return self

    def transform(self, X: Any) -> FloatArray:
        """X with its missing entries filled."""
        check_is_fitted(self)
        return self.estimator_.impute(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
