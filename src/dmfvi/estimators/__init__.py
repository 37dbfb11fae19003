"""The scikit-learn faces."""

from dmfvi.estimators.bayesian_pca import BayesianPCA

__all__ = ["BayesianPCA"]
