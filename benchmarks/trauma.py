"""Logistic regression over three hospitals: this library's posterior beside one-shot methods, against pooled MCMC.

    python benchmarks/trauma.py sites/trauma.csv        columns sex, age, hospital, ISS, GCS, mortality

All methods have the same standardised columns and the same prior. Errors are in pooled posterior deviations.

BFI: Jonker, Pazira, Coolen (2024), Bayesian federated inference. ODAL: Duan et al. (2020), one-shot distributed algorithm for logistic
regression. Meta-analysis: estimates of the sites weighted by their inverse squared standard errors, term by term.
"""

from __future__ import annotations

import csv
import sys
from typing import Any

import numpy as np
from scipy.special import expit

from dmfvi import BayesianLogisticRegression, Network
from sampler import held, regression_density, sample

COLUMNS = ["sex", "age", "ISS", "GCS"]


def newton(
    design: np.ndarray, y: np.ndarray, precision: np.ndarray, tilt: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Mode of a logistic posterior with tilted density, and its curvature."""
    theta = np.zeros(design.shape[1])
    for _ in range(100):
        chance = expit(design @ theta)
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(precision)
        gradient = design.T @ (y - chance) - precision * theta + tilt
        step = np.linalg.solve(curvature, gradient)
        size = float(np.sqrt(step @ curvature @ step))
        theta = theta + step * min(1.0, 2.0 / max(size, 1e-12))
        if size < 1e-10:
            break
    return theta, curvature


def bfi(sites: list[Any], precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sites' Gaussian posteriors multiplied, the prior counted once."""
    fits = [newton(x, y, precision) for x, y in sites]
    total = sum(a for _, a in fits) - (len(sites) - 1) * np.diag(precision)
    mean = np.linalg.solve(total, sum(a @ t for t, a in fits))
    return mean, np.sqrt(np.diag(np.linalg.inv(total)))


def meta_analysis(sites: list[Any], precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fixed effects, term by term."""
    fits = [newton(x, y, precision) for x, y in sites]
    weights = np.array([1.0 / np.diag(np.linalg.inv(a)) for _, a in fits])
    mean = (weights * np.array([t for t, _ in fits])).sum(0) / weights.sum(0)
    return mean, weights.sum(0) ** -0.5


def odal(sites: list[Any], precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest site's likelihood, corrected by the others' gradients at the meta-analysis."""
    n = sum(len(y) for _, y in sites)
    begin = meta_analysis(sites, precision)[0]
    lead = max(sites, key=lambda site: len(site[1]))
    share = n / len(lead[1])

    def gradient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x.T @ (y - expit(x @ begin))

    whole = sum(gradient(*site) for site in sites)
    tilt = whole / share - gradient(*lead)
    mean, curvature = newton(*lead, precision / share, tilt)
    return mean, np.sqrt(np.diag(np.linalg.inv(share * curvature)))


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    x = np.array([[float(row[name]) for name in COLUMNS] for row in rows])
    y = np.array([float(row["mortality"]) for row in rows])
    hospital = np.array([row["hospital"] for row in rows])
    parts = [np.flatnonzero(hospital == name) for name in np.unique(hospital)]
    network = Network.chain(len(parts))
    fits = {
        name: BayesianLogisticRegression(network=network, approximation=kind).fit(
            [x[i] for i in parts], [y[i] for i in parts]
        )
        for name, kind in (("dmfvi", "gaussian"), ("dmfvi, polya-gamma", "polya-gamma"))
    }
    pooled = BayesianLogisticRegression().fit(x, y)
    gap = max(q.distance(pooled.posterior_) for q in fits["dmfvi"].node_posteriors_)
    design, precision = pooled._design(x), pooled._model.prior_precision
    agreed = pooled._belief_normal.parameters()
    draws = sample(
        regression_density("bernoulli", design, y, precision), agreed["mean"], agreed["covariance"]
    )
    exact, deviation = draws.flat.mean(0), draws.flat.std(0)
    results = {}
    for name, fit in fits.items():
        q = fit._model.posterior(fit._belief).parameters()
        covariance = q["covariance"].reshape(len(exact), len(exact))
        results[name] = (q["mean"].ravel(), np.sqrt(np.diag(covariance)))
    sites = [(design[i], y[i]) for i in parts]
    methods = {"ODAL": odal, "meta-analysis": meta_analysis, "BFI": bfi}
    results |= {name: method(sites, precision) for name, method in methods.items()}
    print(f"{len(y)} patients, sites of {[len(i) for i in parts]}, {int(y.sum())} deaths")
    print(f"MCMC: {len(draws.flat)} draws, R-hat {draws.r_hat:.4f}; nodes - pooled {gap:.1e}")
    print(
        "| method | worst coefficient, in posterior deviations | sd / MCMC sd | 90 % intervals hold |"
    )
    print("|---|---|---|---|")
    for name, (mean, sd) in results.items():
        error = np.abs(mean - exact) / deviation
        inside = held(draws.flat, mean, sd)
        print(
            f"| {name} | {error.max():.2f} | {(sd / deviation).min():.2f} to {(sd / deviation).max():.2f} | "
            f"{100 * inside.min():.0f} to {100 * inside.max():.0f} % |"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
