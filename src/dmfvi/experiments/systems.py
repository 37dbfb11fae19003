"""The systems that are compared, all with the same call: one array per node in, loadings per node out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import subspace_angles
from sklearn.exceptions import ConvergenceWarning

from dmfvi.consensus import make
from dmfvi.inference.federation import Federation
from dmfvi.linalg import FloatArray
from dmfvi.models.pca.estimator import BayesianPCA
from dmfvi.models.pca.factors import FactorEstimator
from dmfvi.models.pca.ppca import PPCA
from dmfvi.models.pca.svd import SVDFactorization
from dmfvi.models.sfm.estimator import StructureFromMotion
from dmfvi.network import Network


class Fitted(NamedTuple):
    """Loadings (D, M) as each node has them, and how the fit went."""

    loadings: list[FloatArray]
    rounds: int
    converged: bool

    def angle(self, reference: FloatArray) -> float:
        """Largest principal angle to a subspace, in degrees, at the worst node."""
        return max(float(np.degrees(subspace_angles(own, reference)[0])) for own in self.loadings)


System = Callable[[Sequence[FloatArray], int, Network, int], Fitted]


def estimator(name: str, rank: int, network: Network, seed: int, fit_mean: bool) -> FactorEstimator:
    """An unfitted estimator of the system of that name."""
    if name == "SVD":
        return SVDFactorization(rank, fit_mean=fit_mean)
    where: Network | Federation | None = network if name.startswith("D-") else None
    if name.endswith("PPCA"):
        return PPCA(rank, network=where, fit_mean=fit_mean, random_state=seed)
    moments = "moments" in name
    if moments:
        where = Federation(
            network, consensus=make("moments-admm", network, penalty=MOMENTS_PENALTY)
        )
    return BayesianPCA(
        rank,
        network=where,
        fit_mean=fit_mean,
        random_state=seed,
        shares="replicated" if "replicated" in name else "exact",
        covariance_type="diag" if moments else "full",
    )


#: eta of the paper
MOMENTS_PENALTY = 10.0


def _factors(name: str) -> System:
    def fit(shards: Sequence[FloatArray], rank: int, network: Network, seed: int) -> Fitted:
        model = estimator(name, rank, network, seed, fit_mean=False)
        fit_quietly(model, shards)
        rounds = int(getattr(model, "n_rounds_", model.n_iter_))
        return Fitted([p.loadings for p in model.node_posteriors_], rounds, bool(model.converged_))

    return fit


def _affine(shards: Sequence[FloatArray], rank: int, network: Network, seed: int) -> Fitted:
    model = StructureFromMotion(network=network, metric=None, random_state=seed)
    fit_quietly(model, shards)
    return Fitted(model.node_structures_, model.n_rounds_, model.converged_)


#: one line enrols a system
SYSTEMS: dict[str, System] = {
    name: _factors(name)
    for name in (
        "SVD",
        "PPCA",
        "D-PPCA",
        "BPCA",
        "D-BPCA",
        "D-BPCA replicated",
        "D-BPCA moments",
    )
} | {"D-BPCA affine": _affine}


def fit_quietly(model: Any, shards: Sequence[FloatArray]) -> None:
    """Fit; whether it converged is a result here, not a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(list(shards))
