"""Filling gaps in tables with columns of different units: error and coverage, beside scikit-learn's IterativeImputer.

python benchmarks/imputation.py [wine breast-cancer diabetes] [--masks 20] [--folds 10] [--only "BayesianGaussianMixture(2)"] [--brief]
python benchmarks/imputation.py gaussian skewed heavy-tailed clusters short --masks 60 --only "BayesianGaussianMixture(1, firm prior)"

20 % of the entries are hidden at random, of simulated tables in a new table each time. Errors are in deviations of the columns; "chosen" is the model with the highest
bound for the dequantized table in each run, as ``Imputer("auto")`` takes it. Coverage is that of 90 % intervals, pooled over the masks; "held-out" are
the chosen model's intervals with ``calibration="held-out"``. With --only one model is fitted, and taken as chosen. With
--brief the models that are not chosen are compared by their bounds alone.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from dmfvi import Imputer
from dmfvi.models.pca.imputer import fitted_by_bound, usual_candidates

DATA = {"wine": load_wine, "breast-cancer": load_breast_cancer, "diabetes": load_diabetes}
SIMULATED = ("gaussian", "skewed", "heavy-tailed", "clusters", "short")
HIDDEN, LEVEL = 0.2, 0.9


def simulated(kind: str, seed: int) -> np.ndarray:
    """Three factors and noise: 178 rows x 13 columns, or 60 x 6."""
    rng = np.random.default_rng([7, seed])
    n, d = (60, 6) if kind == "short" else (178, 13)
    factors = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d))
    noise = rng.standard_t(3, size=(n, d)) if kind == "heavy-tailed" else rng.normal(size=(n, d))
    table = factors + noise
    if kind == "clusters":
        table += 4.0 * rng.normal(size=(3, d))[rng.integers(3, size=n)]
    return np.exp(0.6 * table) if kind == "skewed" else table


def measured(model: Any, gaps: np.ndarray, truth: np.ndarray) -> tuple[float, np.ndarray]:
    """Error in deviations of the columns, and hits of the intervals by column."""
    hidden = np.isnan(gaps)
    filled = model.impute(gaps) if hasattr(model, "impute") else model.transform(gaps)
    error = ((filled - truth) / truth.std(0))[hidden]
    low, high = model.impute_interval(gaps, LEVEL)
    hits = ((low <= truth) & (truth <= high) & hidden).sum(0)
    return float(np.sqrt(np.mean(error**2))), hits


def same_when_standardised(model: Any, gaps: np.ndarray) -> float:
    """Largest difference of an imputed entry, in deviations, when the columns are standardised first."""
    from sklearn.base import clone

    shift, scale = np.nanmean(gaps, axis=0), np.nanstd(gaps, axis=0)
    other = clone(model).fit((gaps - shift) / scale)
    return float(
        np.abs((model.impute(gaps) - shift) / scale - other.impute((gaps - shift) / scale)).max()
    )


def run(name: str, masks: int, folds: int | str, only: str | None, brief: bool) -> None:
    truth = simulated(name, 0) if name in SIMULATED else DATA[name]().data.astype(np.float64)
    errors: dict[str, list[float]] = {}
    hits: dict[str, np.ndarray] = {}
    caught: list[int] = []
    sizes: list[int] = []
    chosen, asked, units = [], np.zeros(truth.shape[1]), 0.0
    begun = time.process_time()
    for seed in range(masks):
        truth = simulated(name, seed) if name in SIMULATED else truth
        rng = np.random.default_rng(seed)
        gaps = np.where(rng.random(truth.shape) < HIDDEN, np.nan, truth)
        hidden = np.isnan(gaps)
        asked += hidden.sum(0)
        theirs = IterativeImputer(random_state=0).fit_transform(gaps)
        wrong = ((theirs - truth) / truth.std(0))[hidden]
        errors.setdefault("IterativeImputer", []).append(float(np.sqrt(np.mean(wrong**2))))
        models = usual_candidates(truth.shape[1])
        models = models if only is None else {only: models[only]}
        bounds = fitted_by_bound(list(models.values()), gaps)[1] if only is None else [0.0]
        best = list(models)[int(np.argmax(bounds))]
        chosen.append(best)
        models = {best: models[best]} if brief else models
        fits = {label: model.fit(gaps) for label, model in models.items()}
        made = {label: measured(model, gaps, truth) for label, model in fits.items()}
        calibrated = Imputer(fits[best], calibration="held-out", n_folds=folds).fit(gaps)
        made["held-out"] = measured(calibrated, gaps, truth)
        caught.append(made["held-out"][1].sum())
        sizes.append(hidden.sum())
        made["chosen"] = made[best]
        if brief:  # a model that is not chosen in every mask has no figures of its own
            made = {label: made[label] for label in ("held-out", "chosen")}
        for label, (error, hit) in made.items():
            errors.setdefault(label, []).append(error)
            hits[label] = hits.get(label, 0) + hit
        if seed == 0:
            units = max(same_when_standardised(model, gaps) for model in fits.values())
        print(
            f"{name}: mask {seed + 1} of {masks}, {best}, held-out coverage so far "
            f"{sum(caught) / sum(sizes):.3f}, {time.process_time() - begun:.0f} CPU s",
            file=sys.stderr,
            flush=True,
        )
    share = np.array(caught) / np.array(sizes)
    error = share.std() / np.sqrt(masks)
    print(
        f"{name}: {masks} masks; held-out average {share.mean():.4f} +- {error:.4f}; raw and standardised columns differ by {units:.1e}"
    )
    print("  chosen: " + ", ".join(f"{each} {chosen.count(each)}" for each in sorted(set(chosen))))
    for label, values in errors.items():
        told = f"  {label:42} error {np.mean(values):.4f}"
        if label in hits:
            share = hits[label] / asked
            told += f"  coverage {hits[label].sum() / asked.sum():.3f}, columns {share.min():.3f} to {share.max():.3f}"
        print(told, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DATA))
    parser.add_argument("--masks", type=int, default=20)
    parser.add_argument("--folds", type=lambda n: n if n == "auto" else int(n), default="auto")
    parser.add_argument("--only")
    parser.add_argument("--brief", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for each in given.names:
        run(each, given.masks, given.folds, given.only, given.brief)
