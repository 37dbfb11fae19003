"""CPU seconds of a regression's whole posterior beside peers' point estimates, pooled, in one run.

    OPENBLAS_NUM_THREADS=1 python benchmarks/regression_speed.py [rows]

With more BLAS threads the peers' CPU time includes threads that wait for each other; dmfvi uses one.

scikit-learn's LogisticRegression (lbfgs, tol 1e-8) on 1,000,000 x 30, statsmodels' GLM on 10,000 x 20.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression

from dmfvi import BayesianLogisticRegression, BayesianPoissonRegression

warnings.simplefilter("ignore")


def data(n: int, d: int, poisson: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    eta = x @ rng.normal(size=d) / np.sqrt(d)
    y = rng.poisson(np.exp(eta)) if poisson else rng.random(n) < 1 / (1 + np.exp(-eta))
    return x, y.astype(float)


def cpu(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median CPU times of runs that alternate; the first, which compiles, does not count."""
    times: list[list[float]] = []
    for _ in range(1 + repeats):
        times.append([])
        for action in (ours, theirs):
            begin = time.process_time()
            action()
            times[-1].append(time.process_time() - begin)
    mine, peers = np.median(times[1:], axis=0)
    return float(mine), float(peers)


def show(what: str, ours: float, theirs: float, peer: str) -> None:
    print(f"| {what} | {ours:.3g} | {theirs:.3g} ({peer}) | {ours / theirs:.2f} |", flush=True)


def against_statsmodels(poisson: bool, ours: Any, family: Any) -> None:
    x, y = data(10_000, 20, poisson)
    design = sm.add_constant(x)
    mine, theirs = cpu(
        lambda: ours(tol=1e-8).fit(x, y), lambda: sm.GLM(y, design, family=family).fit(), 9
    )
    show(f"{ours.__name__}, 10,000 x 20", mine, theirs, "statsmodels")


def main(rows: str = "1000000") -> None:
    print("| model | dmfvi, CPU s | peer, CPU s | ratio |")
    print("|---|---|---|---|")
    against_statsmodels(False, BayesianLogisticRegression, sm.families.Binomial())
    against_statsmodels(True, BayesianPoissonRegression, sm.families.Poisson())
    x, y = data(int(rows), 30)
    fitted = BayesianLogisticRegression(tol=1e-8).fit(x, y)
    mine, theirs = cpu(
        lambda: BayesianLogisticRegression(tol=1e-8).fit(x, y),
        lambda: LogisticRegression(tol=1e-8, max_iter=1000).fit(x, y),
        3,
    )
    show(f"logistic, {int(rows):,} x 30, {fitted.n_iter_} sweeps", mine, theirs, "scikit-learn")


if __name__ == "__main__":
    main(*sys.argv[1:])
