"""Posterior draws for the tools that people have: xarray, ArviZ, netCDF."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dmfvi.families import NormalGamma, NormalWishart, Product
from dmfvi.families.base import Family
from dmfvi.linalg import FloatArray

#: what the draws of a family with several parts are called
PARTS: dict[type[Family], tuple[str, ...]] = {
    NormalWishart: ("mean", "precision"),
    NormalGamma: ("mean", "precision"),
}


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
        xarray = _imported("xarray", "xarray")
        check_is_fitted(self)
        if n_draws < 1:
            raise ValueError(f"n_draws must be at least 1, received {n_draws}")
        variables = {}
        for name, values in self._draws(np.random.default_rng(random_state), n_draws).items():
            dims = ["chain", "draw", *(f"{name}_dim_{axis}" for axis in range(values.ndim - 1))]
            variables[name] = (dims, np.asarray(values)[None])
        about = {"estimator": type(self).__name__, "inference_library": "dmfvi"}
        return xarray.Dataset(variables, attrs=about)

    def to_arviz(self, n_draws: int = 1000, random_state: int | None = None) -> Any:
        """The same for ArviZ: a ``DataTree`` (``InferenceData`` before ArviZ 1.0) with the group posterior.

        Parameters
        ----------
        n_draws : int
            Number of draws.
        random_state : int or None
            Seed of the draws.
        """
        check_is_fitted(self)
        arviz = _imported("arviz_base", "arviz")
        draws = self._draws(np.random.default_rng(random_state), n_draws)
        return arviz.from_dict({"posterior": {name: each[None] for name, each in draws.items()}})


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
        return dict(zip(PARTS[type(posterior)], drawn, strict=True))
    return {"value": np.asarray(drawn)}


def _imported(module: str, fallback: str) -> Any:
    from importlib import import_module

    for name in (module, fallback):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ImportError(
        f"this needs {module}: pip install 'dmfvi[arviz]', or pip install -e '.[arviz]' in a clone"
    )
