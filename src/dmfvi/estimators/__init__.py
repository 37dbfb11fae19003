"""The scikit-learn faces."""

from dmfvi.estimators.bayesian_pca import BayesianPCA
from dmfvi.estimators.ppca import PPCA
from dmfvi.estimators.rating_factorization import RatingFactorization

__all__ = ["PPCA", "BayesianPCA", "RatingFactorization"]
