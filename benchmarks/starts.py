"""How often a fit of two overlapping components finds the best bound of 20 restarts: python benchmarks/starts.py [--simulations 40]

Also the sweeps of a fit with several short starts, those of the short runs included, as a part of the sweeps of a fit with one.
The restarts are random memberships (responsibilities drawn evenly), so that they know nothing of the agreed starts they are compared with.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from dmfvi import BayesianGaussianMixture, infer
from dmfvi.engines.base import RoundRecord
from dmfvi.inference.result import Inference
from dmfvi.inference.starts import SHORT_RUN
from dmfvi.models.mixture.shard import MixtureShard

RESTARTS = 20
#: a bound this much below the best is another optimum
SAME = 0.01
#: numbers of starts that are compared
STARTS = (1, "auto", 4)
CASES = [(60, 1, 2.0), (300, 1, 2.0), (60, 2, 2.0), (300, 2, 2.0)]


class Counter:
    """Counts the sweeps of all runs of a fit."""

    sweeps = 0

    def __call__(self, record: RoundRecord, _: Inference) -> None:
        """After a round."""
        self.sweeps += record.swept


def simulated(n: int, d: int, apart: float, rng: np.random.Generator) -> np.ndarray:
    """Two components so many deviations apart along the first feature."""
    rows = rng.normal(size=(n, d))
    rows[:, 0] += apart * (rng.random(n) < rng.uniform(0.35, 0.65))
    return rows


def from_random_memberships(
    fitted: BayesianGaussianMixture, rows: np.ndarray, rng: np.random.Generator
) -> float:
    """Bound of a fit from even random responsibilities."""
    model, data = fitted._model, fitted._units.apply(rows)
    share = rng.dirichlet(np.ones(model.n_components), size=len(data))
    total = model._of_members(data, np.zeros_like(data), share).pack()
    start = model.from_statistics(total)
    made = infer(model, [MixtureShard.of(data)], start=start, tol=1e-4, max_iter=3000)
    return made.lower_bound + fitted._units.log_volume


def main() -> None:
    """One line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=40)
    parser.add_argument("--rows", type=int, action="append", help="only cases of so many rows")
    parser.add_argument("--first", type=int, default=0, help="number of the first simulation")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "rows  features  apart   n_init 1   auto   4: share that find the best bound;   sweeps auto / 1"
    )
    for n, d, apart in (case for case in CASES if not given.rows or case[0] in given.rows):
        hits, swept = [], []
        for seed in range(given.first, given.first + given.simulations):
            rng = np.random.default_rng([n, d, seed])
            rows = simulated(n, d, apart, rng)
            settings = {"tol": 1e-6, "max_iter": 3000, "random_state": 0}
            counters = [Counter() for _ in STARTS]
            found = [
                BayesianGaussianMixture(2, n_init=k, **settings).fit(rows, observer=counter)
                for k, counter in zip(STARTS, counters, strict=True)
            ]
            counters[1].sweeps += SHORT_RUN * (len(found[1]._model.starts()) - 1)
            bounds = np.array([each.lower_bound_ for each in found])
            others = [from_random_memberships(found[0], rows, rng) for _ in range(RESTARTS)]
            hits.append(bounds >= max(*others, bounds[0], bounds[2]) - SAME)
            swept.append([counter.sweeps for counter in counters])
        shares = "   ".join(f"{share:.0%}" for share in np.mean(hits, axis=0))
        one, several, _ = np.sum(swept, axis=0)
        print(f"{n:4d}  {d:8d}  {apart:5.1f}   {shares}   {several / one:.2f}", flush=True)


if __name__ == "__main__":
    main()
