"""What a node learns from its own data."""

from dmfvi.models.base import ConjugateModel, Learned
from dmfvi.models.poisson_gamma import PoissonGamma

#: conjugate models by name; the laws of tests/models/test_laws.py run over this registry
MODELS: dict[str, type[ConjugateModel]] = {model.__name__: model for model in (PoissonGamma,)}

__all__ = ["MODELS", "ConjugateModel", "Learned", "PoissonGamma"]
