"""The scikit-learn faces."""

from dmfvi.estimators.bayesian_pca import BayesianPCA
from dmfvi.estimators.ppca import PPCA
from dmfvi.estimators.svd import SVDFactorization

__all__ = ["PPCA", "BayesianPCA", "SVDFactorization"]
