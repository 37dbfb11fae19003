"""Coverage of 90 % intervals of parameters, by mean field and by linear response: data are simulated from the model.

    python benchmarks/interval_coverage.py --simulations 150

Parameters and data are drawn from the prior that the fit has, so that an exact posterior covers 90 % (simulation-based
calibration; Talts et al. 2018). The table of docs/uncertainty.md is made by this script.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.transform import Rotation
from scipy.stats import chi2, norm

from dmfvi import (
    BayesianGaussianMixture,
    BayesianPCA,
    CategoricalHMM,
    GaussianHMM,
    LatentDirichletAllocation,
    RatingFactorization,
    StructureFromMotion,
)
from dmfvi.models.pca.belief import GammaPrior, PcaPrior

LEVEL = 0.9
#: name of a quantity, the truth, and how the fitted entries go with those of the truth
Truth = tuple[str, Any, Callable[[Any], Any]]


def pca(rng: np.random.Generator, missing: float) -> tuple[Any, Iterator[Truth]]:
    """30 rows, 5 features, 2 components."""
    n, d, m = 30, 5, 2
    prior = PcaPrior(
        noise=GammaPrior(5.0, 1.0), components=1.0, mean=0.1, mean_location=np.zeros(d)
    )
    loadings = rng.normal(size=(d, m))
    location = rng.normal(size=d) / np.sqrt(0.1)
    precision = rng.gamma(5.0, 1.0)
    noise = rng.normal(size=(n, d)) / np.sqrt(precision)
    rows = rng.normal(size=(n, m)) @ loadings.T + location + noise
    rows[rng.random(rows.shape) < missing] = np.nan
    fitted = BayesianPCA(m, prior=prior, tol=1e-8, random_state=0, max_iter=3000).fit(rows)

    def truths() -> Iterator[Truth]:
        yield "location", location, lambda u: u
        yield "noise_precision", precision, lambda u: u
        yield "covariance", loadings @ loadings.T + np.eye(d) / precision, lambda u: u

    return fitted, truths()


def _order(found: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The fitted component that is nearest to each true one (two components)."""
    straight = np.sum((found - truth) ** 2)
    crossed = np.sum((found[::-1] - truth) ** 2)
    return np.arange(2) if straight <= crossed else np.array([1, 0])


def mixture(rng: np.random.Generator, n: int, apart: float) -> tuple[Any, Iterator[Truth]]:
    """Two components in one dimension with unit deviations."""
    means = np.array([[-0.5 * apart], [0.5 * apart]]) + 0.1 * rng.normal(size=(2, 1))
    weight = rng.uniform(0.35, 0.65)
    labels = (rng.random(n) < weight).astype(int)
    rows = means[labels] + rng.normal(size=(n, 1))
    fitted = BayesianGaussianMixture(2, tol=1e-8, random_state=0).fit(rows)
    order = _order(fitted.means_, means)

    def truths() -> Iterator[Truth]:
        yield "means", means, lambda u: u[order]
        yield "weights", np.array([1 - weight, weight]), lambda u: u[order]

    return fitted, truths()


def gaussian_hmm(rng: np.random.Generator, apart: float) -> tuple[Any, Iterator[Truth]]:
    """Two states, 300 steps."""
    means = np.array([[-0.5 * apart], [0.5 * apart]])
    stay = rng.uniform(0.7, 0.95, size=2)
    transitions = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    states = [0]
    for _ in range(299):
        states.append(int(rng.random() < transitions[states[-1], 1]))
    rows = means[states] + rng.normal(size=(300, 1))
    fitted = GaussianHMM(2, tol=1e-8, random_state=0).fit(rows)
    order = _order(fitted.means_, means)

    def truths() -> Iterator[Truth]:
        yield "means", means, lambda u: u[order]
        yield "transitions", transitions, lambda u: u[np.ix_(order, order)]

    return fitted, truths()


def categorical_hmm(rng: np.random.Generator) -> tuple[Any, Iterator[Truth]]:
    """Two states, 4 symbols, 400 steps; flat priors, restricted to states that can be told apart."""
    emissions = rng.dirichlet(np.ones(4), size=2)
    while emissions.min(0).sum() > 0.5:
        emissions = rng.dirichlet(np.ones(4), size=2)
    stay = rng.uniform(0.7, 0.95, size=2)
    transitions = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    return _fitted_symbols(rng, emissions, transitions, emissionprob_prior=1.0)


def _fitted_symbols(
    rng: np.random.Generator,
    emissions: np.ndarray,
    transitions: np.ndarray,
    emissionprob_prior: float,
) -> tuple[Any, Iterator[Truth]]:
    """A chain of 400 symbols, fitted."""
    states = [0]
    for _ in range(399):
        states.append(int(rng.random() < transitions[states[-1], 1]))
    symbols = np.array([rng.choice(4, p=emissions[s]) for s in states])
    fitted = CategoricalHMM(
        2,
        n_features=4,
        emissionprob_prior=emissionprob_prior,
        transmat_prior=1.0,
        tol=1e-8,
        max_iter=3000,
        random_state=0,
    ).fit(symbols[:, None])
    order = _order(fitted.emissionprob_, emissions)

    def truths() -> Iterator[Truth]:
        yield "emissions", emissions, lambda u: u[order]
        yield "transitions", transitions, lambda u: u[np.ix_(order, order)]

    return fitted, truths()


def categorical_hmm_of_prior(rng: np.random.Generator) -> tuple[Any, Iterator[Truth]]:
    """Two states, 4 symbols, 400 steps; everything from the prior, states that cannot be told apart included."""
    emissions, transitions = (
        rng.dirichlet(np.full(4, 0.5), size=2),
        rng.dirichlet(np.ones(2), size=2),
    )
    return _fitted_symbols(rng, emissions, transitions, emissionprob_prior=0.5)


def topics(rng: np.random.Generator, n: int, length: int) -> tuple[Any, Iterator[Truth]]:
    """Three topics of 12 terms."""
    made = rng.dirichlet(np.full(12, 0.5), size=3)
    parts = rng.dirichlet(np.full(3, 0.3), size=n)
    counts = np.array([rng.multinomial(length, p) for p in parts @ made])
    fitted = LatentDirichletAllocation(
        3,
        doc_topic_prior=0.3,
        topic_word_prior=0.5,
        tol=1e-7,
        max_iter=2000,
        n_init=3,
        random_state=0,
    ).fit(counts)
    apart = ((made[:, None] - fitted.topic_word_[None]) ** 2).sum(-1)
    order = linear_sum_assignment(apart)[1]

    def truths() -> Iterator[Truth]:
        yield "topics", made, lambda u: u[order]

    return fitted, truths()


METHODS = ("mean-field", "linear-response")


def ratings(rng: np.random.Generator, n: int, d: int, rated: float) -> tuple[Any, Iterator[Truth]]:
    """n users, d items, rank 2; everyone and everything has a rating."""
    factors, biases = 0.7 * rng.normal(size=(d, 2)), 0.5 * rng.normal(size=d)
    mean = rng.normal(size=(n, 2)) @ factors.T + 0.4 * rng.normal(size=(n, 1)) + biases
    values = mean + 0.8 * rng.normal(size=mean.shape)
    seen = rng.random(mean.shape) < rated
    seen[rng.integers(n, size=d), np.arange(d)] = True
    seen[np.arange(n), rng.integers(d, size=n)] = True
    fitted = RatingFactorization(
        2,
        tol=1e-2,
        max_iter=500,
        random_state=0,
        n_choice_features=0,
        noise="shared",
        rating_scale=(-30.0, 30.0),
    ).fit((*np.nonzero(seen), values[seen]))

    def truths() -> Iterator[Truth]:
        yield "item_means", mean.mean(0)[fitted.item_ids_], lambda u: u

    return fitted, truths()


def imputation(rng: np.random.Generator, missing: float) -> tuple[str, list[np.ndarray]]:
    """Missing entries of 30 rows with 10 features; two components."""
    n, d, m = 30, 10, 2
    prior = PcaPrior(
        noise=GammaPrior(5.0, 1.0), components=1.0, mean=0.1, mean_location=np.zeros(d)
    )
    loadings, location = rng.normal(size=(d, m)), rng.normal(size=d) / np.sqrt(0.1)
    noise = rng.normal(size=(n, d)) / np.sqrt(rng.gamma(5.0, 1.0))
    truth = rng.normal(size=(n, m)) @ loadings.T + location + noise
    gone = rng.random(truth.shape) < missing
    rows = np.where(gone, np.nan, truth)
    fitted = BayesianPCA(m, prior=prior, tol=1e-8, random_state=0, max_iter=5000).fit(rows)
    ends = [fitted.impute_interval(rows, LEVEL, uncertainty=method) for method in METHODS]
    return "imputed entries", [((low <= truth) & (truth <= high))[gone] for low, high in ends]


def latent(rng: np.random.Generator, missing: float) -> tuple[str, list[np.ndarray]]:
    """Latent coordinates of 30 rows with 5 features, true components turned to the fitted ones."""
    n, d, m = 30, 5, 2
    prior = PcaPrior(
        noise=GammaPrior(5.0, 1.0), components=1.0, mean=0.1, mean_location=np.zeros(d)
    )
    loadings, location = rng.normal(size=(d, m)), rng.normal(size=d) / np.sqrt(0.1)
    truth = rng.normal(size=(n, m))
    noise = rng.normal(size=(n, d)) / np.sqrt(rng.gamma(5.0, 1.0))
    rows = truth @ loadings.T + location + noise
    rows[rng.random(rows.shape) < missing] = np.nan
    fitted = BayesianPCA(m, prior=prior, tol=1e-8, random_state=0, max_iter=3000).fit(rows)
    left, _, right = np.linalg.svd(loadings.T @ fitted.components_.T)
    hits = []
    for method in METHODS:
        mean, std = fitted.transform(rows, return_std=True, uncertainty=method)
        hits.append(
            np.abs(truth @ (left @ right) - mean).ravel()
            < norm.ppf(0.5 + 0.5 * LEVEL) * std.ravel()
        )
    return "latent coordinates", hits


def structure(rng: np.random.Generator, degrees: float) -> tuple[str, list[np.ndarray]]:
    """20 points in 40 frames that turn over so many degrees, 10 % unseen, noise of 1 % of the size."""
    points = rng.uniform(-0.5, 0.5, size=(20, 3))
    points -= points.mean(0)
    frames = []
    for part in np.linspace(-0.5, 0.5, 40):
        turn, nod = part * degrees, 0.25 * degrees * np.sin(6 * part)
        view = Rotation.from_euler("xy", [nod, turn], degrees=True).as_matrix()
        frames.append(view[:2] @ points.T)
    tracks = np.concatenate(frames)
    tracks += 0.01 * rng.normal(size=tracks.shape)
    tracks[np.repeat(rng.random((40, 20)) < 0.1, 2, axis=0)] = np.nan
    fitted = StructureFromMotion(random_state=0, tol=1e-8).fit(tracks)
    left, _, right = np.linalg.svd(fitted.structure_.T @ points)
    turned = left @ right
    error, hits = fitted.structure_ @ turned - points, []
    for method in METHODS:
        covariance = fitted.uncertainty("structure", method=method).covariance
        blocks = np.stack([covariance[k : k + 3, k : k + 3] for k in range(0, 60, 3)])
        spread = turned.T @ blocks @ turned
        distances = np.sum(error * np.linalg.solve(spread, error[..., None])[..., 0], axis=1)
        hits.append(distances < chi2.ppf(LEVEL, 3))
    return "ellipsoids", hits


#: what is not an interval of a parameter
OTHERS: dict[str, Callable[[np.random.Generator], tuple[str, list[np.ndarray]]]] = {
    "Bayesian PCA, N 30, 70 % missing": lambda rng: imputation(rng, 0.7),
    "Bayesian PCA, N 30, transform": lambda rng: latent(rng, 0.0),
    "Bayesian PCA, N 30, 30 % missing, transform": lambda rng: latent(rng, 0.3),
    "structure from motion over 180 degrees": lambda rng: structure(rng, 180.0),
    "structure from motion over 30 degrees": lambda rng: structure(rng, 30.0),
}


CASES: dict[str, Callable[[np.random.Generator], tuple[Any, Iterator[Truth]]]] = {
    "Bayesian PCA, N 30": lambda rng: pca(rng, 0.0),
    "Bayesian PCA, N 30, 30 % missing": lambda rng: pca(rng, 0.3),
    "mixture, 4 deviations apart, N 100": lambda rng: mixture(rng, 100, 4.0),
    "mixture, 2 deviations apart, N 60": lambda rng: mixture(rng, 60, 2.0),
    "mixture, 2 deviations apart, N 300": lambda rng: mixture(rng, 300, 2.0),
    "Gaussian HMM, 4 deviations apart": lambda rng: gaussian_hmm(rng, 4.0),
    "Gaussian HMM, 2 deviations apart": lambda rng: gaussian_hmm(rng, 2.0),
    "categorical HMM": categorical_hmm,
    "categorical HMM, drawn from the prior": categorical_hmm_of_prior,
    "topics, 100 documents of 50 words": lambda rng: topics(rng, 100, 50),
    "topics, 100 documents of 200 words": lambda rng: topics(rng, 100, 200),
    "ratings, 60 users x 15 items": lambda rng: ratings(rng, 60, 15, 0.4),
    "ratings, 200 users x 20 items": lambda rng: ratings(rng, 200, 20, 0.25),
}


def covers(found: Any, truth: Any, arranged: Callable[[Any], Any]) -> np.ndarray:
    """Which entries of the truth lie in the interval."""
    low, high = (arranged(end) for end in found.interval)
    return np.asarray((low <= truth) & (truth <= high)).ravel()


def draw(path: str) -> None:
    """The two ellipses: 90 % regions of the location of two features, with the exact one."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(4)
    rows = rng.normal(size=(60, 1)) @ np.array([[1.0, 0.8]]) + 0.4 * rng.normal(size=(60, 2))
    fitted = BayesianPCA(1, tol=1e-9, random_state=0).fit(rows)
    angles = np.linspace(0.0, 2.0 * np.pi, 200)
    circle = np.sqrt(4.605) * np.stack([np.cos(angles), np.sin(angles)])
    exact = np.cov(rows.T) / len(rows)
    shapes = {
        "mean field": (
            fitted.uncertainty("location", method="mean-field").covariance,
            "#D55E00",
            "--",
        ),
        "linear response": (fitted.uncertainty("location").covariance, "#0072B2", "-"),
        "covariance of the rows / N": (exact, "#000000", ":"),
    }
    _, ax = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
    for label, (covariance, colour, style) in shapes.items():
        x, y = np.linalg.cholesky(covariance) @ circle + fitted.mean_[:, None]
        ax.plot(x, y, style, color=colour, label=label, linewidth=2)
    ax.plot(*fitted.mean_, "k+")
    ax.set(xlabel="mean of feature 1", ylabel="mean of feature 2", aspect="equal")
    ax.set_title("90 % regions of the location, Bayesian PCA, 60 rows", fontsize=10)
    ax.legend(frameon=False, fontsize=9)
    plt.savefig(path, dpi=120)


def count_others(name: str, simulations: int) -> None:
    """One line for a case without parameters."""
    hits: list[list[np.ndarray]] = []
    for seed in range(simulations):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantity, found = OTHERS[name](np.random.default_rng(seed))
        hits.append(found)
    plain, response = (np.mean(np.concatenate([each[k] for each in hits])) for k in range(2))
    print(f"{name:40s} {quantity:16s} {plain:10.0%}  {response:15.0%}", flush=True)


def main() -> None:
    """Simulate, fit, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=150)
    parser.add_argument("--case", choices=[*CASES, *OTHERS], action="append")
    parser.add_argument("--figure", help="draw the two ellipses into this file, and nothing else")
    given = parser.parse_args()
    if given.figure:
        draw(given.figure)
        return
    print(
        f"share of {LEVEL:.0%} intervals that hold the truth, {given.simulations} simulations each"
    )
    print(
        f"{'':40s} {'quantity':16s} mean field  linear response  without warning  warned  sums  seconds"
    )
    for name in given.case or [*CASES, *OTHERS]:
        if name in OTHERS:
            count_others(name, given.simulations)
            continue
        held: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
        sums: dict[str, list[int]] = defaultdict(list)
        doubted: dict[str, list[bool]] = defaultdict(list)
        began = time.perf_counter()
        for seed in range(given.simulations):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted, truths = CASES[name](np.random.default_rng(seed))
                for quantity, truth, arranged in truths:
                    for method in ("mean-field", "linear-response"):
                        found = fitted.uncertainty(quantity, method=method, level=LEVEL)
                        held[quantity, method].append(covers(found, truth, arranged))
                    sums[quantity].append(found.response.n_sums)
                    doubted[quantity].append(bool(found.notes))
        spent = (time.perf_counter() - began) / given.simulations
        for quantity, counts in sums.items():
            plain, response = (
                np.mean(np.concatenate(held[quantity, method]))
                for method in ("mean-field", "linear-response")
            )
            most, warned = max(counts), np.array(doubted[quantity])
            kept = [
                each
                for each, doubt in zip(held[quantity, "linear-response"], warned, strict=True)
                if not doubt
            ]
            trusted = f"{np.mean(np.concatenate(kept)):.0%}" if kept else "-"
            print(
                f"{name:40s} {quantity:16s} {plain:10.0%}  {response:15.0%}  {trusted:>15s}  {warned.mean():6.0%}  "
                f"{most:4d}  {spent:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
