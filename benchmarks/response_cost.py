"""CPU time of all deviations of the location of a PCA with 200 features, as a part of the time of the fit.

python benchmarks/response_cost.py
"""

from __future__ import annotations

import time

import numpy as np

from dmfvi import BayesianPCA

CASES = [
    (rows, missing, covariance)
    for rows in (500, 2000)
    for missing in (0.0, 0.2)
    for covariance in ("full", "diag")
]


def main() -> None:
    """One line for each case; the first is run twice, to have everything loaded."""
    print("rows  missing  covariance  sweeps of the fit  sums  time / time of the fit")
    for number, (n, missing, covariance) in enumerate([CASES[0], *CASES]):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(n, 5)) @ rng.normal(size=(5, 200))
        rows += 0.5 * rng.normal(size=rows.shape)
        rows[rng.random(rows.shape) < missing] = np.nan
        began = time.process_time()
        fitted = BayesianPCA(5, covariance_type=covariance, random_state=0).fit(rows)
        between = time.process_time()
        found = fitted.uncertainty("location")
        ended = time.process_time()
        if number:
            ratio = (ended - between) / (between - began)
            print(
                f"{n:4d}  {missing:7.0%}  {covariance:10s}  {fitted.n_iter_:17d}  {found.response.n_sums:4d}  {ratio:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
