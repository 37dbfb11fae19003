"""SVDFactorization: the truncated singular value decomposition as an estimator, the classic baseline."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dmfvi.linalg import FloatArray
from dmfvi.models.pca.factors import FactorEstimator
from dmfvi.models.pca.posterior import PcaPosterior
from dmfvi.models.pca.start import Units


class SVDFactorization(FactorEstimator):
    """Best low-rank approximation in least squares (Tomasi & Kanade 1992 for tracks), on one machine.

    Complete data take one truncated SVD. Missing entries are filled from the approximation, and the decomposition is
    repeated until it converges (each step lowers the squared error of the observed entries). It needs all data on one
    machine and gives no uncertainty of the loadings. It is a baseline for comparison with ``BayesianPCA``.

    Parameters
    ----------
    n_components : int
        Rank of the approximation.
    fit_mean : bool
        Whether columns are centred.
    tol : float
        Relative change of the filled entries at which the iteration stops.
    max_iter : int
        Decompositions at most.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        Right singular vectors times singular value / sqrt(n_samples), so that scores have unit variance.
    mean_ : array (n_features,)
        Column means; zero without ``fit_mean``.
    n_components_ : int
        Number of components.
    noise_variance_ : float
        Variance of the residual of the observed entries.
    noise_precision_ : float
        Its inverse.
    explained_variance_ : array (n_components,)
        Variance along each component, noise included.
    singular_values_ : array (n_components,)
        Singular values of the filled, centred data.
    posterior_ : object
        The estimate as a posterior without uncertainty of the loadings.
    node_posteriors_ : list
        The same, in a list.
    n_samples_ : int
        Number of rows.
    n_iter_ : int
        Number of decompositions.
    converged_ : bool
        Whether the filled entries met ``tol``.
    n_features_in_ : int
        Number of columns of the data.
    feature_names_in_ : array of str
        Names of the columns, where the data had names.
    """

    _no_response = "it is a point estimate; use BayesianPCA"

    _kept: ClassVar[tuple[str, ...]] = ("node_posteriors_", "singular_values_")

    def __init__(
        self,
        n_components: int = 2,
        *,
        fit_mean: bool = True,
        tol: float = 1e-7,
        max_iter: int = 5000,
    ) -> None:
        self.n_components = n_components
        self.fit_mean = fit_mean
        self.tol = tol
        # network and random_state are not asked for: one machine, no start
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to X (n_samples, n_features) with NaN for missing entries; a list of shards is stacked."""
        (data,) = self._factor_shards(X, self._open())
        missing = np.isnan(data)
        # columns far from zero are decomposed about their means, or rounding would be all that is left
        shift = np.nanmean(data, axis=0) if self.fit_mean else np.zeros(data.shape[1])
        data = data - shift
        filled = np.where(missing, 0.0, data)
        scale = float(np.sqrt(np.mean(filled**2))) or 1.0
        self.converged_ = False
        for iteration in range(1, self.max_iter + 1):
            self.n_iter_ = iteration
            mean, left, values, right = self._decompose(filled)
            fitted = mean + (left * values) @ right
            moved = (
                float(np.sqrt(np.mean(np.square((fitted - filled)[missing]))))
                if missing.any()
                else 0.0
            )
            filled[missing] = fitted[missing]
            if moved < self.tol * scale:
                self.converged_ = True
                break
        else:
            warnings.warn(
                f"the filled entries still move by {moved / scale:.1e} of the data's size after "
                f"{self.max_iter} iterations (tol {self.tol:.1e}): raise max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        residual = float(np.sum(np.square((data - fitted)[~missing])))
        # each component takes one degree of freedom per sample and per feature
        used = self.n_components * (sum(data.shape) - self.n_components)
        freedom = max(int((~missing).sum()) - used, 1)
        variance = max(residual / freedom, np.finfo(float).eps * scale**2)
        loadings = (right.T * values) / np.sqrt(len(data))
        columns = [loadings, mean[:, None]] if self.fit_mean else [loadings]
        units = Units(shift, 1.0, complete=not missing.any())
        point = PcaPosterior.point(
            np.column_stack(columns), 1.0 / variance, int(self.n_components), units
        )
        self.singular_values_ = values
        self.n_samples_ = self.__dict__.pop("_rows_given")
        self.node_posteriors_ = [point]
        self._node_beliefs = [None]
        self._show(0)
        return self

    def _rebuild(self) -> None:
        """The posterior is kept as it is."""

    def _decompose(
        self, filled: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        mean = filled.mean(0) if self.fit_mean else np.zeros(filled.shape[1])
        left, values, right = np.linalg.svd(filled - mean, full_matrices=False)
        kept = slice(0, self.n_components)
        wide = max(self.n_components - len(values), 0)  # fewer samples than components
        return (
            mean,
            np.pad(left[:, kept], ((0, 0), (0, wide))),
            np.pad(values[kept], (0, wide)),
            np.pad(right[kept], ((0, wide), (0, 0))),
        )
