"""How often a fit of two overlapping components finds the best bound of 20 restarts: python benchmarks/starts.py [--simulations 100]

The restarts are random memberships (responsibilities drawn evenly), so that they know nothing of the agreed starts they are compared with.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from dmfvi import BayesianGaussianMixture
from dmfvi.models.mixture.shard import MixtureShard

RESTARTS = 20
#: a bound this much below the best is another optimum
SAME = 0.01
CASES = [(60, 1, 2.0), (300, 1, 2.0), (60, 2, 2.0), (300, 2, 2.0)]


def simulated(n: int, d: int, apart: float, rng: np.random.Generator) -> np.ndarray:
    """Two components so many deviations apart along the first feature."""
    rows = rng.normal(size=(n, d))
    rows[:, 0] += apart * (rng.random(n) < rng.uniform(0.35, 0.65))
    return rows


def from_random_memberships(
    fitted: BayesianGaussianMixture, rows: np.ndarray, rng: np.random.Generator
) -> float:
    """Bound of plain sweeps from even random responsibilities, until it grows by less than 1e-5 a sweep."""
    model, data = fitted._model, fitted._units.apply(rows)
    shard = MixtureShard.of(data)
    share = rng.dirichlet(np.ones(model.n_components), size=len(data))
    total = model._of_members(data, np.zeros_like(data), share).pack()
    belief, last = model.from_statistics(total), -np.inf
    for _ in range(3000):
        told = model.local_step(shard, belief)
        bound = told.bound - float(belief.kl(model.prior))
        if bound - last < 1e-5:
            break
        last, belief = bound, model.from_statistics(told.values.pack())
    return bound + fitted._units.log_volume


def main() -> None:
    """One line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=100)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("rows  features  apart   n_init 1   4   10: share that find the best bound")
    for n, d, apart in CASES:
        hits = []
        for seed in range(given.simulations):
            rng = np.random.default_rng([n, d, seed])
            rows = simulated(n, d, apart, rng)
            settings = {"tol": 1e-8, "max_iter": 3000}
            found = [
                BayesianGaussianMixture(2, n_init=k, random_state=0, **settings).fit(rows)
                for k in (1, 4, 10)
            ]
            bounds = np.array([each.lower_bound_ for each in found])
            others = [from_random_memberships(found[0], rows, rng) for _ in range(RESTARTS)]
            best = max(*bounds, *others)
            hits.append(bounds >= best - SAME)
        shares = "   ".join(f"{share:.0%}" for share in np.mean(hits, axis=0))
        print(f"{n:4d}  {d:8d}  {apart:5.1f}   {shares}", flush=True)


if __name__ == "__main__":
    main()
