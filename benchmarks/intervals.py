"""Whether 90 % intervals of regressions hold 90 % of a long MCMC posterior, on simulated sets.

python benchmarks/intervals.py [family ...]
"""

from __future__ import annotations

import sys

import numpy as np

from dmfvi import GeneralizedLinearModel
from dmfvi.models.glm.estimator import DISPERSION
from sampler import held, regression_density, sample

FAMILIES = (
    "bernoulli",
    "poisson",
    "negative-binomial",
    "ordinal",
    "gaussian",
    "student-t",
    "gamma",
)
SETS = ((60, 5), (100, 8), (200, 10), (500, 15), (1000, 20), (2000, 30))
#: two rows for each column: the dispersion's posterior is much wider than with few columns
MANY_COLUMNS = ((20, 8), (60, 30))
DISPERSED = ("gaussian", "student-t", "gamma")


def targets(family: str, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Drawn from the model."""
    n = len(eta)
    made = {
        "bernoulli": lambda: rng.random(n) < 1 / (1 + np.exp(-eta)),
        "poisson": lambda: rng.poisson(np.exp(0.5 + 0.5 * eta)),
        "negative-binomial": lambda: rng.poisson(np.exp(1.0 + 0.5 * eta) * rng.gamma(2.0, 0.5, n)),
        "ordinal": lambda: np.digitize(eta + rng.logistic(size=n), [-1.0, 1.0]),
        "gaussian": lambda: eta + rng.normal(size=n),
        "student-t": lambda: eta + rng.standard_t(4, size=n),
        "gamma": lambda: np.exp(eta) * rng.gamma(2.0, 0.5, n),
    }
    values = made[family]()
    return values if family in DISPERSED else np.asarray(values, dtype=np.int64)


def main(*chosen: str) -> None:
    print(
        "| family | n | d | 90 % intervals of coefficients hold | of dispersion, cut points | "
        "worst mean, in sd | sd / MCMC sd | R-hat |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for family in chosen or FAMILIES:
        for n, d in SETS + (MANY_COLUMNS if family in DISPERSED else ()):
            rng = np.random.default_rng(n)
            x = rng.normal(size=(n, d))
            y = targets(family, x @ rng.normal(size=d) * 1.5 / np.sqrt(d), rng)
            model = GeneralizedLinearModel(family=family).fit(x, y)
            q = model._belief_normal.parameters()
            shift, scale, _ = model._target
            if family in ("gaussian", "student-t"):
                y, shift = (y - shift) / scale, 0.0
            precision = model._model.prior_precision
            density = regression_density(family, model._design(x), y, precision, shift)
            draws = sample(density, q["mean"], q["covariance"], n_draws=400 if n < 1000 else 200)
            sd, exact = np.sqrt(np.diag(q["covariance"])), draws.flat
            inside, size = 100 * held(exact, q["mean"], sd), model._design(x).shape[1]
            shared = "" if len(sd) == d + 1 else f"{inside[size:].min():.1f} %"
            if family in DISPERSION:  # the table has the quantiles of its skewed posterior
                row, power = model.coefficient_table(0.9).rows[-1], DISPERSION[family][1]
                drawn = scale ** (2 * power) * np.exp(power * exact[:, -1])
                share = np.mean((row.lower < drawn) & (drawn < row.upper))
                shared = f"{100 * share:.1f} %"
            inside = inside[:size]
            error = np.abs((q["mean"] - exact.mean(0)) / exact.std(0)).max()
            ratio = sd / exact.std(0)
            print(
                f"| {family} | {n} | {d} | {inside.min():.1f} to {inside.max():.1f} % | {shared} | {error:.3f} | "
                f"{ratio.min():.3f} to {ratio.max():.3f} | {draws.r_hat:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
