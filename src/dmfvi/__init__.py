"""dmfvi: exact decentralized mean-field variational inference.

Every node of a network, seeing only its own data and its neighbours' messages, ends with the
posterior that one machine holding all the data would have computed.
"""

from dmfvi import storage
from dmfvi.engines.links import Links
from dmfvi.inference.federation import Federation
from dmfvi.inference.model import ConjugateModel, Model, Statistics
from dmfvi.inference.session import Inference, infer
from dmfvi.models.chains.estimator import CategoricalHMM, GaussianHMM
from dmfvi.models.mixture.estimator import BayesianGaussianMixture
from dmfvi.models.pca.belief import GammaPrior, PcaPrior
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.models.pca.mixture import MixtureOfPCA
from dmfvi.models.pca.ppca import PPCA
from dmfvi.models.pca.svd import SVDFactorization
from dmfvi.models.ratings.estimator import RatingFactorization
from dmfvi.models.regression.estimator import BayesianLinearRegression, BayesianLogisticRegression
from dmfvi.models.sfm.estimator import StructureFromMotion
from dmfvi.models.topics.estimator import LatentDirichletAllocation
from dmfvi.network import Network
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
