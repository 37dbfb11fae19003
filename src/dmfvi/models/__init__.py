"""What a node learns from its own data: all models and all estimators by name, one folder a model."""

from sklearn.base import BaseEstimator

from dmfvi.inference.model import ConjugateModel, Model, Statistics
from dmfvi.models.chains import estimator as chains
from dmfvi.models.chains.model import HiddenMarkov
from dmfvi.models.glm.faces import (
    BayesianLogisticRegression,
    BayesianPoissonRegression,
    GeneralizedLinearModel,
)
from dmfvi.models.glm.model import GeneralizedLinear
from dmfvi.models.mixed.estimator import MixedModel
from dmfvi.models.mixed.model import MixedEffects
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
from dmfvi.models.survival.cox import CoxRegression
from dmfvi.models.survival.kaplan_meier import KaplanMeier
from dmfvi.models.survival.model import GridHazard, StratifiedCox
from dmfvi.models.survival.piecewise import PiecewiseExponentialRegression
from dmfvi.models.topics import estimator as topics
from dmfvi.models.topics.model import LatentDirichletAllocation

#: one line enrols a model with its estimators: laws, files, ``dmfvi fit`` and ``dmfvi node`` run over all of them
ENROLLED: tuple[tuple[type[Model] | type[BaseEstimator], ...], ...] = (
    (PoissonGamma,),
    (LinearRegression, regression.BayesianLinearRegression),
    (
        GeneralizedLinear,
        LogisticRegression,
        GeneralizedLinearModel,
        BayesianLogisticRegression,
        BayesianPoissonRegression,
    ),
    (PiecewiseExponentialRegression,),
    (StratifiedCox, CoxRegression),
    (GridHazard, KaplanMeier),
    (MixedEffects, MixedModel),
    (GaussianMixture, DiagonalGaussianMixture, mixture.BayesianGaussianMixture),
    (LatentDirichletAllocation, topics.LatentDirichletAllocation),
    (HiddenMarkov, chains.GaussianHMM, chains.CategoricalHMM),
    (BayesianPcaModel, BayesianPCA),
    (MixtureOfPcaModel, MixtureOfPCA),
    (PpcaModel, PPCA),
    (SVDFactorization,),
    (AffineModel, StructureFromMotion),
    (RatingModel, RatingFactorization),
)
#: models by name
MODELS: dict[str, type[Model]] = {
    each.__name__: each for line in ENROLLED for each in line if issubclass(each, Model)
}
#: estimators by name, which is also their tag in a file
ESTIMATORS: dict[str, type[BaseEstimator]] = {
    each.__name__: each for line in ENROLLED for each in line if issubclass(each, BaseEstimator)
}

__all__ = [
    "ENROLLED",
    "ESTIMATORS",
    "MODELS",
    "AffineModel",
    "BayesianPcaModel",
    "ConjugateModel",
    "DiagonalGaussianMixture",
    "GaussianMixture",
    "GeneralizedLinear",
    "GridHazard",
    "HiddenMarkov",
    "LatentDirichletAllocation",
    "LinearRegression",
    "LogisticRegression",
    "MixedEffects",
    "MixtureOfPcaModel",
    "Model",
    "PoissonGamma",
    "PpcaModel",
    "RatingModel",
    "Statistics",
    "StratifiedCox",
]
