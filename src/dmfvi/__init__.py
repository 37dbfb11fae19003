"""dmfvi: exact decentralized mean-field variational inference.

Every node of a network, seeing only its own data and its neighbours' messages, ends with the
posterior that one machine holding all the data would have computed.
"""

from dmfvi import storage
from dmfvi.engines.links import Links
from dmfvi.estimators import (
    PPCA,
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianLogisticRegression,
    BayesianPCA,
    CategoricalHMM,
    GaussianHMM,
    LatentDirichletAllocation,
    MixtureOfPCA,
    RatingFactorization,
    SVDFactorization,
)
from dmfvi.inference.federation import Federation
from dmfvi.inference.model import ConjugateModel, Model, Statistics
from dmfvi.inference.session import Inference, infer
from dmfvi.models.pca_belief import GammaPrior, PcaPrior
from dmfvi.network import Network
from dmfvi.sfm import StructureFromMotion
from dmfvi.storage import load, save

__version__ = "0.1.0"

__all__ = [
    "PPCA",
    "BayesianGaussianMixture",
    "BayesianLinearRegression",
    "BayesianLogisticRegression",
    "BayesianPCA",
    "CategoricalHMM",
    "ConjugateModel",
    "Federation",
    "GammaPrior",
    "GaussianHMM",
    "Inference",
    "LatentDirichletAllocation",
    "Links",
    "MixtureOfPCA",
    "Model",
    "Network",
    "PcaPrior",
    "RatingFactorization",
    "SVDFactorization",
    "Statistics",
    "StructureFromMotion",
    "__version__",
    "infer",
    "load",
    "save",
    "storage",
]
