"""What a node learns from its own data: all models and all estimators by name, one folder a model."""

from sklearn.base import BaseEstimator

from dmfvi.inference.model import ConjugateModel, Model, Statistics
from dmfvi.models.chains import estimator as chains
from dmfvi.models.chains.model import HiddenMarkov
from dmfvi.models.mixture import estimator as mixture
from dmfvi.models.mixture.model import DiagonalGaussianMixture, GaussianMixture
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.models.pca.mixture import MixtureOfPCA
from dmfvi.models.pca.mixture_model import MixtureOfPcaModel
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.ppca import PPCA
from dmfvi.models.pca.ppca_model import PpcaModel
from dmfvi.models.pca.svd import SVDFactorization
from dmfvi.models.poisson_gamma import PoissonGamma
from dmfvi.models.ratings.estimator import RatingFactorization
from dmfvi.models.ratings.model import RatingModel
from dmfvi.models.regression import estimator as regression
from dmfvi.models.regression.linear import LinearRegression
from dmfvi.models.regression.logistic import LogisticRegression
from dmfvi.models.sfm.estimator import StructureFromMotion
from dmfvi.models.sfm.model import AffineModel
from dmfvi.models.topics import estimator as topics
from dmfvi.models.topics.model import LatentDirichletAllocation

#: models by name; one line enrols a model, and the laws of tests/laws run over this registry
MODELS: dict[str, type[Model]] = {
    model.__name__: model
    for model in (
        PoissonGamma,
        LinearRegression,
        LogisticRegression,
        GaussianMixture,
        DiagonalGaussianMixture,
        LatentDirichletAllocation,
        HiddenMarkov,
        BayesianPcaModel,
        MixtureOfPcaModel,
        PpcaModel,
        AffineModel,
        RatingModel,
    )
}
#: estimators by name, which is also their tag in a file; one line enrols an estimator
ESTIMATORS: dict[str, type[BaseEstimator]] = {
    estimator.__name__: estimator
    for estimator in (
        BayesianPCA,
        MixtureOfPCA,
        PPCA,
        SVDFactorization,
        mixture.BayesianGaussianMixture,
        chains.GaussianHMM,
        chains.CategoricalHMM,
        topics.LatentDirichletAllocation,
        regression.BayesianLinearRegression,
        regression.BayesianLogisticRegression,
        RatingFactorization,
        StructureFromMotion,
    )
}

__all__ = [
    "ESTIMATORS",
    "MODELS",
    "AffineModel",
    "BayesianPcaModel",
    "ConjugateModel",
    "DiagonalGaussianMixture",
    "GaussianMixture",
    "HiddenMarkov",
    "LatentDirichletAllocation",
    "LinearRegression",
    "LogisticRegression",
    "MixtureOfPcaModel",
    "Model",
    "PoissonGamma",
    "PpcaModel",
    "RatingModel",
    "Statistics",
]
