"""dmfvi: exact decentralized mean-field variational inference.

Every node of a network, seeing only its own data and its neighbours' messages, ends with the
posterior that one machine holding all the data would have computed.
"""

from dmfvi.engines.links import Links
from dmfvi.estimators import PPCA, BayesianPCA, RatingFactorization
from dmfvi.models.pca_belief import GammaPrior, PcaPrior
from dmfvi.network import Network

__version__ = "0.1.0"

__all__ = [
    "PPCA",
    "BayesianPCA",
    "GammaPrior",
    "Links",
    "Network",
    "PcaPrior",
    "RatingFactorization",
    "__version__",
]
