"""What a node learns from its own data: all models by name."""

from dmfvi.inference.model import ConjugateModel, Model, Statistics
from dmfvi.models.affine import AffineModel
from dmfvi.models.gaussian_mixture import DiagonalGaussianMixture, GaussianMixture
from dmfvi.models.hmm import HiddenMarkov
from dmfvi.models.lda import LatentDirichletAllocation
from dmfvi.models.linear_regression import LinearRegression
from dmfvi.models.logistic_regression import LogisticRegression
from dmfvi.models.mixture_pca import MixtureOfPcaModel
from dmfvi.models.pca import BayesianPcaModel
from dmfvi.models.poisson_gamma import PoissonGamma
from dmfvi.models.ppca import PpcaModel
from dmfvi.models.ratings import RatingModel

#: models by name; the laws of tests/laws run over this registry
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

__all__ = [
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
