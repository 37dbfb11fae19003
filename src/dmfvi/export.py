"""Posterior draws for the tools that people have: xarray, ArviZ, netCDF."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dmfvi.extras import lacking
from dmfvi.families import NormalGamma, NormalWishart, Product
from dmfvi.families.base import Family
from dmfvi.linalg import FloatArray

#: what the draws of a family with several parts are called
PARTS: dict[type[Family], tuple[str, ...]] = {
    NormalWishart: ("mean", "precision"),
    NormalGamma: ("mean", "precision"),
}
#: axis of a draw that counts features or terms, from the end
FEATURE_AXES = {
    "coef": -1,
    "loadings": -2,
    "location": -1,
    "components_mean": -1,
    "means": -1,
    "emission_mean": -1,
    "topics": -1,
}


class Pointwise(NamedTuple):
    """What posterior draws say of rows: data by name, log likelihood (draws, rows), and new data (draws, rows, ...)."""

    observed: dict[str, Any]
    log_likelihood: dict[str, FloatArray]
    predictive: dict[str, Any]


class ExportMixin:
    """``to_xarray`` and ``to_arviz`` of a fitted estimator."""

    #: what the draws of a posterior without named blocks are called
    _draw_name: ClassVar[str] = "value"
    posterior_: Any

    def _draws(self, rng: np.random.Generator, n_draws: int) -> dict[str, FloatArray]:
        """Draws of the parameters by name, the draw first."""
        posterior = self.posterior_
        if not isinstance(posterior, Family):
            raise ValueError(
                f"{type(self).__name__} has no posterior that parameters can be drawn from: use its predictions"
            )
        found = named_draws(posterior, rng, n_draws)
        return {self._draw_name if name == "value" else name: each for name, each in found.items()}

    def to_xarray(self, n_draws: int = 1000, random_state: int | None = None) -> Any:
        """Posterior draws as an ``xarray.Dataset`` with the dimensions chain and draw.

        Draws are of the fitted mean-field posterior, in one chain; they are independent.

        Parameters
        ----------
        n_draws : int
            Number of draws.
        random_state : int or None
            Seed of the draws.
        """
        xarray = _imported("xarray")
        draws, _ = self._seeded_draws(n_draws, random_state)
        variables = {}
        for name, values in draws.items():
            variables[name] = (["chain", "draw", *_dimensions(name, values)], values[None])
        about = {"estimator": type(self).__name__, "inference_library": "dmfvi"}
        return xarray.Dataset(variables, self._feature_labels(draws), attrs=about)

    def to_arviz(
        self,
        n_draws: int = 1000,
        random_state: int | None = None,
        *,
        X: Any = None,
        y: Any = None,
        **row_values: Any,
    ) -> Any:
        """The same for ArviZ: a ``DataTree`` (``InferenceData`` before ArviZ 1.0) with the group posterior.

        With rows, as a node has its own, also the groups posterior_predictive, observed_data and log_likelihood, for
        posterior predictive checks, ``arviz.loo`` and ``arviz.compare``.

        Parameters
        ----------
        n_draws : int
            Number of draws.
        random_state : int or None
            Seed of the draws.
        X : array (n, n_features) or None
            Rows of this node; NaN where the model takes missing entries.
        y : array (n,) or None
            Their targets, for regressions.
        **row_values
            ``offset``, ``exposure`` and ``trials`` of the rows, where the family has them.
        """
        if X is None and (y is not None or row_values):
            raise ValueError(f"{', '.join(['y', *row_values])} were given without rows X")
        draws, seed = self._seeded_draws(n_draws, random_state)
        groups = {"posterior": {name: each[None] for name, each in draws.items()}}
        if X is not None:
            found = self._pointwise(draws, seed, X, y, **row_values)
            for group in ("log_likelihood", "posterior_predictive"):
                made = found.predictive if group == "posterior_predictive" else found.log_likelihood
                groups[group] = {name: np.asarray(each)[None] for name, each in made.items()}
            groups["observed_data"] = found.observed
        return _for_arviz(groups, self._feature_labels(draws))

    def _feature_labels(self, draws: dict[str, FloatArray]) -> dict[str, list[str]]:
        """Names of the columns, or of a formula's terms, by dimension; none where the fit had no names."""
        if not hasattr(self, "feature_names_in_"):
            return {}
        names = [str(name) for name in getattr(self, "term_names_", self.feature_names_in_)]
        found = {}
        for name, axis in FEATURE_AXES.items():
            if name in draws and draws[name].shape[axis] == len(names):
                found[_dimensions(name, draws[name])[axis]] = names
        return found

    def _seeded_draws(
        self, n_draws: int, random_state: int | None
    ) -> tuple[dict[str, FloatArray], int]:
        """Draws, and the seed that gives the same ones again."""
        check_is_fitted(self)
        if n_draws < 1:
            raise ValueError(f"n_draws must be at least 1, received {n_draws}")
        seed = int(np.random.default_rng(random_state).integers(2**63))
        return self._draws(np.random.default_rng(seed), n_draws), seed

    def _refuse_row_values(self, given: dict[str, Any], known: Collection[str] = ()) -> None:
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no {', '.join(unknown)} of rows here, it has {sorted(known)}"
            )

    def _pointwise(
        self, draws: dict[str, FloatArray], seed: Any, X: Any, y: Any, **row_values: Any
    ) -> Pointwise:
        """Log likelihood and new data of rows under the draws that ``seed`` gave."""
        raise ValueError(
            f"{type(self).__name__} has no log likelihood of single rows under its draws: leave X out"
        )


def named_draws(posterior: Family, rng: np.random.Generator, n_draws: int) -> dict[str, FloatArray]:
    """Draws of a family or of named blocks, by name."""
    if isinstance(posterior, Product):
        found: dict[str, FloatArray] = {}
        for block, family in posterior.items():
            for name, values in named_draws(family, rng, n_draws).items():
                found[block if name == "value" else f"{block}_{name}"] = values
        return found
    drawn = posterior.sample(rng, n_draws)
    if isinstance(drawn, tuple):
        names = next(names for family, names in PARTS.items() if isinstance(posterior, family))
        found = dict(zip(names, drawn, strict=True))
        if isinstance(posterior, NormalGamma) and found["mean"].shape[-1] == 1:
            found["mean"] = found["mean"][..., 0]  # independent features, one number each
        return found
    return {"value": np.asarray(drawn)}


def _dimensions(name: str, values: FloatArray) -> list[str]:
    """As ArviZ calls them, without chain and draw."""
    return [f"{name}_dim_{axis}" for axis in range(values.ndim - 1)]


def _for_arviz(groups: dict[str, dict[str, Any]], coords: dict[str, list[str]]) -> Any:
    """As the ArviZ that is installed has it: before 1.0 that is InferenceData, else a DataTree."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        old = version("arviz").startswith("0.")
    except PackageNotFoundError:
        old = False
    if old:
        return _imported("arviz").from_dict(**groups, coords=coords)
    return _imported("arviz_base").from_dict(groups, coords=coords)


def _imported(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise lacking("this", module, "arviz") from error
