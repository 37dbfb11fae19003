"""The SVD baseline: exact on complete data, a local optimum of least squares on incomplete data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from dmfvi import SVDFactorization
from dmfvi.datasets import make_low_rank, mask_at_random

DATA = make_low_rank(120, 12, 3, noise=0.2, seed=2).data


@pytest.mark.parametrize("fit_mean", [True, False])
def test_complete_data_give_the_truncated_svd(fit_mean: bool) -> None:
    model = SVDFactorization(3, fit_mean=fit_mean).fit(DATA)
    centred = DATA - DATA.mean(0) if fit_mean else DATA
    _, values, right = np.linalg.svd(centred, full_matrices=False)
    assert np.degrees(subspace_angles(model.components_.T, right[:3].T)[0]) < 1e-5
    np.testing.assert_allclose(model.singular_values_, values[:3])
    assert model.converged_
    if fit_mean:
        assert model.noise_precision_**-0.5 == pytest.approx(0.2, rel=0.1)


def test_missing_entries_are_filled_at_a_stationary_point() -> None:
    holes = mask_at_random(DATA, 0.2)
    model = SVDFactorization(3, tol=1e-10).fit(holes)
    gone = np.isnan(holes)
    filled = np.where(gone, model.impute(holes), DATA)
    assert np.sqrt(np.mean((filled - DATA)[gone] ** 2)) < 0.35
    again = SVDFactorization(3).fit(filled)
    assert np.degrees(subspace_angles(model.components_.T, again.components_.T)[0]) < 0.2


def test_slow_convergence_is_said() -> None:
    with pytest.warns(UserWarning, match="raise max_iter"):
        SVDFactorization(3, max_iter=2).fit(mask_at_random(DATA, 0.4))
