"""Exponential families in natural parameters."""

from dmfvi.families.base import Family
from dmfvi.families.bernoulli import Bernoulli
from dmfvi.families.beta import Beta
from dmfvi.families.categorical import Categorical
from dmfvi.families.dirichlet import Dirichlet
from dmfvi.families.gamma import Gamma
from dmfvi.families.multivariate_normal import MultivariateNormal
from dmfvi.families.normal import Normal
from dmfvi.families.normal_gamma import NormalGamma
from dmfvi.families.normal_wishart import NormalWishart
from dmfvi.families.product import Product
from dmfvi.families.wishart import Wishart

#: every family by name; the law tests run over this registry
FAMILIES: dict[str, type[Family]] = {
    family.__name__: family
    for family in (
        Normal,
        MultivariateNormal,
        Gamma,
        Beta,
        Bernoulli,
        Categorical,
        Dirichlet,
        Wishart,
        NormalGamma,
        NormalWishart,
    )
}

__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Dirichlet",
    "Family",
    "Gamma",
    "MultivariateNormal",
    "Normal",
    "NormalGamma",
    "NormalWishart",
    "Product",
    "Wishart",
]
