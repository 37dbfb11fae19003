"""Deviations by linear response beside those of a long Gibbs sampler, with the same priors and data.

    python benchmarks/response_sampler.py [--draws 3000]

A Gaussian mixture with two components that are 4 deviations apart, and a Gaussian hidden Markov model with three states.
Labels are drawn from the data and parameters (states by forward filtering and backward sampling), parameters from their
conjugate posteriors; nothing of dmfvi is used but the priors of the fit.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np

from dmfvi import BayesianGaussianMixture, GaussianHMM


class Prior(NamedTuple):
    """Of one-dimensional components: mean ~ N(location, 1 / (confidence precision)), precision ~ Gamma(shape, rate)."""

    location: float
    confidence: float
    shape: float
    rate: float

    @classmethod
    def of(cls, family: Any) -> Prior:
        """A Wishart of one dimension has shape dof / 2 and rate 1 / (2 scale)."""
        p = {name: float(np.ravel(value)[0]) for name, value in family.parameters().items()}
        return cls(p["mean"], p["confidence"], 0.5 * p["dof"], 0.5 / p["scale"])


def draw_gaussians(
    rng: np.random.Generator, x: np.ndarray, member: np.ndarray, prior: Prior
) -> tuple[np.ndarray, np.ndarray]:
    """Means and precisions (C, K) given memberships (C, N, K)."""
    count = member.sum(1)
    first = np.einsum("cnk,n->ck", member, x)
    second = np.einsum("cnk,n->ck", member, x**2)
    confidence = prior.confidence + count
    location = (prior.confidence * prior.location + first) / confidence
    rest = second + prior.confidence * prior.location**2 - confidence * location**2
    precision = rng.gamma(prior.shape + 0.5 * count) / (prior.rate + 0.5 * rest)
    mean = location + rng.standard_normal(count.shape) / np.sqrt(confidence * precision)
    return mean, precision


def draw_dirichlet(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    drawn = rng.gamma(concentration)
    return np.asarray(drawn / drawn.sum(-1, keepdims=True))


def pick(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """One-hot choices with probabilities proportional to weights, over the last axis."""
    edges = np.cumsum(weights, axis=-1)
    place = (rng.random((*weights.shape[:-1], 1)) * edges[..., -1:] > edges).sum(-1)
    return np.eye(weights.shape[-1])[place]


def log_density(x: np.ndarray, mean: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """(C, N, K) up to a constant."""
    gap = x[None, :, None] - mean[:, None, :]
    return 0.5 * np.log(precision)[:, None, :] - 0.5 * precision[:, None, :] * gap**2


def ordered(mean: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Components by their means; a matrix of components in both axes."""
    order = np.argsort(mean, axis=1)
    found = [np.take_along_axis(mean, order, 1)]
    for each in others:
        rows = np.take_along_axis(each, order.reshape(*order.shape, *[1] * (each.ndim - 2)), 1)
        found.append(np.take_along_axis(rows, order[:, None, :], 2) if each.ndim == 3 else rows)
    return tuple(found)


def mixture_draws(
    x: np.ndarray, start: np.ndarray, prior: Prior, weight_prior: float, n_draws: int, chains: int
) -> dict[str, np.ndarray]:
    """Means and weights of all draws."""
    rng = np.random.default_rng(1)
    k = len(start)
    mean, precision = np.tile(start, (chains, 1)), np.ones((chains, k))
    weights = np.full((chains, k), 1.0 / k)
    kept: dict[str, list[np.ndarray]] = {"means": [], "weights": []}
    for draw in range(n_draws + 100):
        logits = np.log(weights)[:, None, :] + log_density(x, mean, precision)
        member = pick(rng, np.exp(logits - logits.max(-1, keepdims=True)))
        mean, precision = draw_gaussians(rng, x, member, prior)
        weights = draw_dirichlet(rng, weight_prior + member.sum(1))
        if draw >= 100:
            for name, value in zip(kept, ordered(mean, weights), strict=True):
                kept[name].append(value)
    return {name: np.concatenate(values) for name, values in kept.items()}


def chain_draws(
    x: np.ndarray,
    start: np.ndarray,
    prior: Prior,
    concentrations: tuple[float, float],
    n_draws: int,
    chains: int,
) -> dict[str, np.ndarray]:
    """Means and transitions of all draws."""
    rng = np.random.default_rng(1)
    k, n = len(start), len(x)
    mean, precision = np.tile(start, (chains, 1)), np.ones((chains, k))
    first = np.full((chains, k), 1.0 / k)
    transitions = np.tile(0.8 * np.eye(k) + 0.2 / k, (chains, 1, 1))
    kept: dict[str, list[np.ndarray]] = {"means": [], "transitions": []}
    for draw in range(n_draws + 100):
        logs = log_density(x, mean, precision)
        likelihood = np.exp(logs - logs.max(-1, keepdims=True))
        ahead = np.empty_like(likelihood)
        ahead[:, 0] = first * likelihood[:, 0]
        ahead[:, 0] /= ahead[:, 0].sum(-1, keepdims=True)
        for t in range(1, n):
            ahead[:, t] = np.matmul(ahead[:, t - 1, None], transitions)[:, 0] * likelihood[:, t]
            ahead[:, t] /= ahead[:, t].sum(-1, keepdims=True)
        member = np.empty_like(likelihood)
        member[:, -1] = pick(rng, ahead[:, -1])
        for t in range(n - 2, -1, -1):
            back = np.matmul(transitions, member[:, t + 1, :, None])[..., 0]
            member[:, t] = pick(rng, ahead[:, t] * back)
        mean, precision = draw_gaussians(rng, x, member, prior)
        first = draw_dirichlet(rng, concentrations[0] + member[:, 0])
        moves = np.einsum("cti,ctj->cij", member[:, :-1], member[:, 1:])
        transitions = draw_dirichlet(rng, concentrations[1] + moves)
        if draw >= 100:
            for name, value in zip(kept, ordered(mean, transitions), strict=True):
                kept[name].append(value)
    return {name: np.concatenate(values) for name, values in kept.items()}


def mixture_case(n_draws: int, chains: int = 32) -> tuple[Any, dict[str, np.ndarray]]:
    """Two components, 4 deviations apart, 200 rows."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random(200) < 0.4, -2.0, 2.0) + rng.normal(size=200)
    x = (x - x.mean()) / x.std()  # the units of the priors
    fitted = BayesianGaussianMixture(2, tol=1e-10, max_iter=5000, random_state=0).fit(x[:, None])
    family = fitted._model.prior
    prior = Prior.of(family["components"])
    weight = float(family["weights"].parameters()["concentration"][0])
    start = np.sort(fitted.means_[:, 0])
    return fitted, mixture_draws(x, start, prior, weight, n_draws, chains)


def chain_case(n_draws: int, chains: int = 32) -> tuple[Any, dict[str, np.ndarray]]:
    """Three states, 4 deviations apart, 400 steps."""
    rng = np.random.default_rng(0)
    states = [0]
    for _ in range(399):
        states.append(int(rng.choice(3, p=np.where(np.arange(3) == states[-1], 0.8, 0.1))))
    x = 4.0 * np.array(states) - 4.0 + rng.normal(size=400)
    x = (x - x.mean()) / x.std()  # the units of the priors
    fitted = GaussianHMM(3, tol=1e-10, max_iter=5000, random_state=0).fit(x[:, None])
    family = fitted._model.prior
    prior = Prior.of(family["emission"])
    concentrations = tuple(
        float(np.ravel(family[name].parameters()["concentration"])[0])
        for name in ("initial", "transition")
    )
    start = np.sort(fitted.means_[:, 0])
    return fitted, chain_draws(x, start, prior, concentrations, n_draws, chains)


def ratios(fitted: Any, draws: dict[str, np.ndarray], method: str) -> dict[str, np.ndarray]:
    """Deviations by a method, divided by those of the draws, components in the order of their means."""
    order = np.argsort(fitted.means_[:, 0])
    found = {}
    for name, values in draws.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            std = fitted.uncertainty(name, method=method).std
        std = std[np.ix_(order, order)] if name == "transitions" else std[order]
        found[name] = std.reshape(values.shape[1:]) / values.std(0)
    return found


def main() -> None:
    """The table of docs/uncertainty.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3000, help="of each of 32 chains")
    given = parser.parse_args()
    print("deviations divided by those of the sampler, smallest to largest")
    for label, case in (("mixture", mixture_case), ("3-state chain", chain_case)):
        fitted, draws = case(given.draws)
        for method in ("mean-field", "linear-response"):
            for name, found in ratios(fitted, draws, method).items():
                print(f"{label:15s} {name:12s} {method:16s} {found.min():.3f} to {found.max():.3f}")


if __name__ == "__main__":
    main()
