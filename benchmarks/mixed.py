"""Mixed logistic models against long samplers of the joint posterior: python benchmarks/mixed.py

The sampler knows nothing of quadrature: coefficients, log deviation and all groups' effects are drawn together.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_expit

from dmfvi import MixedModel, Network
from dmfvi.models.mixed.model import GroupedShard
from sampler import sample


def data(family: str, n_groups: int, per_group: int, seed: int) -> tuple[np.ndarray, ...]:
    """Rows, targets and groups of unequal size; one group has one row."""
    rng = np.random.default_rng(seed)
    sizes = np.maximum(rng.poisson(per_group, n_groups), 1)
    sizes[0] = 1
    group = np.repeat(np.arange(n_groups), sizes)
    x = rng.normal(size=(len(group), 3))
    eta = x @ [0.8, -0.5, 0.3] - 0.3 + 0.8 * rng.normal(size=n_groups)[group]
    if family == "bernoulli":
        return x, (rng.random(len(eta)) < expit(eta)).astype(float), group
    return x, rng.poisson(np.exp(eta)).astype(float), group


def joint(family: str, design: np.ndarray, y: np.ndarray, group: np.ndarray, model: MixedModel):  # type: ignore[no-untyped-def]
    """Log density and gradient of (theta, z) in the estimator's units, without quadrature."""
    prior = model._model
    p, n_groups = design.shape[1], group.max() + 1
    shift = model._target.shift

    def density(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        theta, z = points[:, : p + 1], points[:, p + 1 :]
        sd = np.exp(theta[:, p])[:, None]
        eta = shift + theta[:, :p] @ design.T + sd * z[:, group]
        if family == "bernoulli":
            value, slope = (y * eta + log_expit(-eta)).sum(1), y - expit(eta)
        else:
            rate = np.exp(np.minimum(eta, 50.0))
            value, slope = (y * eta - rate).sum(1), y - rate
        gap = theta - prior.prior_mean
        value = value - 0.5 * (gap**2 @ prior.prior_precision) - 0.5 * (z**2).sum(1)
        by_group = np.zeros((len(points), n_groups))
        np.add.at(by_group.T, group, slope.T)
        to_theta = np.column_stack([slope @ design, (sd * z * by_group).sum(1)])
        to_theta -= prior.prior_precision * gap
        return value, np.column_stack([to_theta, sd * by_group - z])

    return density


def by_integration(model: MixedModel, x: np.ndarray, y: np.ndarray, group: np.ndarray) -> float:
    """Deviation of the log deviation: its density on a grid, coefficients by Laplace at each place of it."""
    design, prior = model._design(x), model._model
    offset = np.full(len(y), model._target.shift)
    shard = GroupedShard.of(design, model._varying(design), y, offset, group)
    places, logs = np.linspace(-9.0, 1.5, 106), []
    theta = model._belief.q.parameters()["mean"].copy()
    for theta[-1] in places[::-1]:
        for _ in range(8):
            found = prior.expand(shard, theta)
            pull = found.gradient - prior.prior_precision * (theta - prior.prior_mean)
            precision = (found.curvature + np.diag(prior.prior_precision))[:-1, :-1]
            theta[:-1] += np.linalg.solve(precision, pull[:-1])
        logs.append(found.value + prior.log_prior(theta) - 0.5 * np.linalg.slogdet(precision)[1])
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    mean = weights @ places[::-1]
    return float(np.sqrt(weights @ (places[::-1] - mean) ** 2))


def main() -> None:
    """One line for each family and number of groups."""
    print(
        "| family | groups x rows | worst mean, in deviations | sd / sampler's sd | of the log deviation | by integration | "
        "90 % interval of the deviation holds | nodes - pooled | groups across sites - pooled | R-hat |"
    )
    for family in ("bernoulli",):
        for n_groups, per_group in ((15, 20), (30, 10), (60, 8)):
            x, y, group = data(family, n_groups, per_group, seed=n_groups)
            model = MixedModel(family=family).fit(x, y, group)
            cut = np.array_split(np.arange(n_groups), 3)
            parts = [np.isin(group, own) for own in cut]
            nodes = MixedModel(family=family, network=Network.ring(3)).fit(
                [x[i] for i in parts], [y[i] for i in parts], [group[i] for i in parts]
            )
            mixed = np.arange(len(y)) % 3  # every group at all three sites
            across = MixedModel(family=family, network=Network.ring(3), across_sites=True).fit(
                *([part[mixed == i] for i in range(3)] for part in (x, y, group))
            )
            shared = max(q.distance(model.posterior_) for q in across.node_posteriors_)
            apart = max(q.distance(model.posterior_) for q in nodes.node_posteriors_)
            q = model._model.posterior(model._belief).parameters()
            size = len(q["mean"])
            mean = np.append(q["mean"], np.zeros(n_groups))
            covariance = np.eye(size + n_groups)
            covariance[:size, :size] = q["covariance"]
            density = joint(family, model._design(x), y, group, model)
            draws = sample(density, mean, 0.5 * covariance, n_draws=1500, warm_up=500)
            theta = draws.flat[:, :size]
            deviation = theta.std(0)
            worst = np.abs((q["mean"] - theta.mean(0)) / deviation).max()
            ratio = np.sqrt(np.diag(q["covariance"])) / deviation
            ends = np.quantile(np.log(model._deviations()[:, 0]), [0.05, 0.95])
            inside = ((theta[:, -1] > ends[0]) & (theta[:, -1] < ends[1])).mean()
            print(
                f"| {family} | {n_groups} x {len(y) / n_groups:.0f} | {worst:.2f} | {ratio[:-1].min():.3f} to "
                f"{ratio[:-1].max():.3f} | {ratio[-1]:.3f} | "
                f"{np.sqrt(q['covariance'][-1, -1]) / by_integration(model, x, y, group):.3f} | {inside:.1%} | {apart:.0e} | {shared:.0e} | {draws.r_hat:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
