"""LaplaceModel: a likelihood of one's own, by agreed Newton steps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from dmfvi import Expansion, LaplaceModel, Network, infer

#: log ed50 and log sigma begin at 0: the prior
PRIOR_MEAN, PRIOR_PRECISION = np.zeros(4), np.array([0.01, 0.01, 1.0, 1.0])


class DoseResponse(LaplaceModel):
    """effect = e0 + emax dose / (ed50 + dose) + noise; theta = (e0, emax, log ed50, log sigma)."""

    def value(self, shard: np.ndarray, theta: np.ndarray) -> float:
        dose, effect = shard.T
        e0, emax, log_ed50, log_sigma = theta
        gap = effect - e0 - emax * dose / (np.exp(log_ed50) + dose)
        scaled = np.sum(gap**2) * np.exp(-2.0 * log_sigma)
        return float(-0.5 * scaled - len(dose) * (log_sigma + 0.5 * np.log(2.0 * np.pi)))

    def expand(self, shard: np.ndarray, theta: np.ndarray) -> Expansion:
        steps = 1e-4 * np.eye(4)

        def at(*moves: np.ndarray) -> float:
            return self.value(shard, theta + sum(moves))

        gradient = np.array([(at(a) - at(-a)) / 2e-4 for a in steps])
        curvature = np.array(
            [[at(a, b) - at(a, -b) - at(-a, b) + at(-a, -b) for a in steps] for b in steps]
        )
        return Expansion(self.value(shard, theta), gradient, -curvature / 4e-8)


@pytest.fixture(scope="module")
def clinics() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    made = []
    for n in (40, 1, 80):  # a clinic with one patient
        dose = rng.uniform(0.0, 4.0, n)
        effect = 1.0 + 5.0 * dose / (0.8 + dose) + 0.5 * rng.normal(size=n)
        made.append(np.column_stack([dose, effect]))
    return made


def test_clinics_have_the_pooled_posterior(clinics: list[np.ndarray]) -> None:
    model = DoseResponse(PRIOR_MEAN, PRIOR_PRECISION)
    together = infer(model, clinics, Network.chain(3))
    pooled = infer(model, [np.concatenate(clinics)])
    assert together.converged
    # the derivatives are differences: their rounding is that of a sum over other rows
    assert together.posterior.distance(pooled.posterior) < 1e-4
    bits = {q.pack().tobytes() for q in together.posteriors}
    assert len(bits) == 1


def test_its_mean_is_the_mode_of_the_density(clinics: list[np.ndarray]) -> None:
    model, rows = DoseResponse(PRIOR_MEAN, PRIOR_PRECISION), np.concatenate(clinics)
    found = infer(model, [rows]).posterior.parameters()["mean"]
    best = optimize.minimize(
        lambda theta: -model.value(rows, theta) - model.log_prior(theta), found + 0.1, method="BFGS"
    )
    np.testing.assert_allclose(found, best.x, atol=1e-4)


def test_a_likelihood_that_is_not_finite_is_refused() -> None:
    model = DoseResponse(PRIOR_MEAN, PRIOR_PRECISION)
    with pytest.raises((ValueError, OverflowError), match=r"finite|no exact sum"):
        infer(model, [np.array([[1.0, np.nan]])])
