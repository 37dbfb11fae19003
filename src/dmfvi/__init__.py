"""dmfvi: exact decentralized mean-field variational inference.

Every node of a network, seeing only its own data and its neighbours' messages, ends with the
posterior that one machine holding all the data would have computed.

Names are imported when they are first used: ``import dmfvi`` is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmfvi import storage as storage
    from dmfvi.engines.links import Links as Links
    from dmfvi.inference.checking import check_model as check_model
    from dmfvi.inference.federation import Federation as Federation
    from dmfvi.inference.model import ConjugateModel as ConjugateModel
    from dmfvi.inference.model import Model as Model
    from dmfvi.inference.model import Statistics as Statistics
    from dmfvi.inference.result import Inference as Inference
    from dmfvi.inference.session import infer as infer
    from dmfvi.models.chains.estimator import CategoricalHMM as CategoricalHMM
    from dmfvi.models.chains.estimator import GaussianHMM as GaussianHMM
    from dmfvi.models.glm.faces import BayesianLogisticRegression as BayesianLogisticRegression
    from dmfvi.models.glm.faces import BayesianPoissonRegression as BayesianPoissonRegression
    from dmfvi.models.glm.faces import GeneralizedLinearModel as GeneralizedLinearModel
    from dmfvi.models.laplace import Expansion as Expansion
    from dmfvi.models.laplace import LaplaceModel as LaplaceModel
    from dmfvi.models.mixed.estimator import MixedModel as MixedModel
    from dmfvi.models.mixture.estimator import BayesianGaussianMixture as BayesianGaussianMixture
    from dmfvi.models.pca.belief import GammaPrior as GammaPrior
    from dmfvi.models.pca.belief import PcaPrior as PcaPrior
    from dmfvi.models.pca.estimator import BayesianPCA as BayesianPCA
    from dmfvi.models.pca.imputer import Imputer as Imputer
    from dmfvi.models.pca.mixture import MixtureOfPCA as MixtureOfPCA
    from dmfvi.models.pca.ppca import PPCA as PPCA
    from dmfvi.models.pca.svd import SVDFactorization as SVDFactorization
    from dmfvi.models.ratings.estimator import RatingFactorization as RatingFactorization
    from dmfvi.models.regression.estimator import (
        BayesianLinearRegression as BayesianLinearRegression,
    )
    from dmfvi.models.sfm.estimator import StructureFromMotion as StructureFromMotion
    from dmfvi.models.survival.cox import CoxRegression as CoxRegression
    from dmfvi.models.survival.kaplan_meier import KaplanMeier as KaplanMeier
    from dmfvi.models.survival.piecewise import (
        PiecewiseExponentialRegression as PiecewiseExponentialRegression,
    )
    from dmfvi.models.topics.estimator import (
        LatentDirichletAllocation as LatentDirichletAllocation,
    )
    from dmfvi.network import Network as Network
    from dmfvi.storage import load as load
    from dmfvi.storage import save as save

__version__ = "0.1.0"

#: where the names of this package are; the estimators follow from their registry
_HOME = {
    "ConjugateModel": "inference.model",
    "Expansion": "models.laplace",
    "Federation": "inference.federation",
    "GammaPrior": "models.pca.belief",
    "Imputer": "models.pca.imputer",
    "Inference": "inference.result",
    "LaplaceModel": "models.laplace",
    "Links": "engines.links",
    "Model": "inference.model",
    "Network": "network",
    "PcaPrior": "models.pca.belief",
    "Statistics": "inference.model",
    "check_model": "inference.checking",
    "infer": "inference.session",
    "load": "storage.models",
    "save": "storage.models",
}

#: packages that users address by name; other names of the package are no part of its interface
_PACKAGES = ("consensus", "datasets", "engines", "families", "models", "readers", "storage")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(import_module(f"dmfvi.{_HOME[name]}"), name)
    elif name in _PACKAGES:
        found = import_module(f"dmfvi.{name}")
    elif name == "__all__":
        found = sorted([*_HOME, *_estimators(), "storage", "__version__"])
    elif name[0].isupper() and name in _estimators():
        found = _estimators()[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


def _estimators() -> dict[str, Any]:
    from dmfvi.models import ESTIMATORS

    return ESTIMATORS
