"""What a node learns from its own data."""

from dmfvi.models.base import ConjugateModel, Learned, Model
from dmfvi.models.gaussian_mixture import DiagonalGaussianMixture, GaussianMixture
from dmfvi.models.hmm import HiddenMarkov
from dmfvi.models.lda import LatentDirichletAllocation
from dmfvi.models.linear_regression import LinearRegression
from dmfvi.models.logistic_regression import LogisticRegression
from dmfvi.models.mixture_pca import MixtureOfPcaModel
from dmfvi.models.poisson_gamma import PoissonGamma

#: models by name; the laws of tests/models/test_laws.py run over this registry
MODELS: dict[str, type[ConjugateModel] | type[Model]] = {
    model.__name__: model
    for model in (
        PoissonGamma,
        LinearRegression,
        LogisticRegression,
        GaussianMixture,
        DiagonalGaussianMixture,
        LatentDirichletAllocation,
        HiddenMarkov,
        MixtureOfPcaModel,
    )
}

__all__ = [
    "MODELS",
    "ConjugateModel",
    "DiagonalGaussianMixture",
    "GaussianMixture",
    "HiddenMarkov",
    "LatentDirichletAllocation",
    "Learned",
    "LinearRegression",
    "LogisticRegression",
    "MixtureOfPcaModel",
    "PoissonGamma",
]
