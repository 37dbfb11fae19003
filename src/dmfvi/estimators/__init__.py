"""The scikit-learn faces."""

from dmfvi.estimators.bayesian_pca import BayesianPCA
from dmfvi.estimators.gaussian_mixture import BayesianGaussianMixture
from dmfvi.estimators.hmm import CategoricalHMM, GaussianHMM
from dmfvi.estimators.lda import LatentDirichletAllocation
from dmfvi.estimators.mixture_of_pca import MixtureOfPCA
from dmfvi.estimators.ppca import PPCA
from dmfvi.estimators.rating_factorization import RatingFactorization
from dmfvi.estimators.regression import BayesianLinearRegression, BayesianLogisticRegression
from dmfvi.estimators.svd import SVDFactorization

__all__ = [
    "PPCA",
    "BayesianGaussianMixture",
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianPCA",
    "CategoricalHMM",
    "GaussianHMM",
    "LatentDirichletAllocation",
    "MixtureOfPCA",
    "RatingFactorization",
    "SVDFactorization",
]
