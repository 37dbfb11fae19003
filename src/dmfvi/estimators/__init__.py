"""The scikit-learn faces."""

from dmfvi.estimators.bayesian_pca import BayesianPCA
from dmfvi.estimators.ppca import PPCA

__all__ = ["PPCA", "BayesianPCA"]
