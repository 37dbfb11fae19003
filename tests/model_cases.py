"""One case per model for the laws of tests/laws/test_models.py: data with a known truth, and a reference.

Shards are unequal and sorted, so that each node sees other classes, symbols, topics or regions than the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse, stats
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import gammaln, logsumexp
from sklearn.exceptions import ConvergenceWarning

import factor_cases
from dmfvi.inference.result import Inference
from dmfvi.inference.session import Session, infer
from dmfvi.models import (
    DiagonalGaussianMixture,
    GaussianMixture,
    GeneralizedLinear,
    GridHazard,
    HiddenMarkov,
    LatentDirichletAllocation,
    LinearRegression,
    LogisticRegression,
    MixedEffects,
    PoissonGamma,
    StratifiedCox,
)
from dmfvi.models.chains.emissions import (
    CategoricalEmission,
    DiagonalGaussianEmission,
    GaussianEmission,
)
from dmfvi.models.chains.model import Sequences
from dmfvi.models.glm.likelihoods import GlmShard, OneParameter, SharedParameters, Softmax
from dmfvi.models.glm.model import GlmBelief
from dmfvi.models.mixed.model import GroupedShard
from dmfvi.models.mixture.shard import MixtureShard
from dmfvi.models.regression.linear import RegressionShard
from dmfvi.models.survival.model import CoxShard, GridShard
from dmfvi.models.topics.kernels import Counts
from dmfvi.models.topics.model import Documents


class Draw(NamedTuple):
    """A model, one shard per node, all of it in one shard, and the truth of ``Case.quantity``."""

    model: Any
    shards: list[Any]
    pooled: Any
    truth: np.ndarray


class OfEstimator(NamedTuple):
    """An estimator of the model: its kind, one array of small data per node of three, and its settings."""

    kind: str
    shards: Callable[[], list[Any]]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What the laws need to know of a model."""

    draw: Callable[[int, int], Draw]  # seed, number of nodes
    quantity: Callable[[Any], np.ndarray]  # of a sample of q(global): what the truth is about
    reference: Callable[[Draw], None]
    exchangeable: bool = False  # rows of the quantity may come in any order
    accuracy: float = 0.3  # root mean square error of the posterior mean
    coverage: tuple[float, float] = (0.84, 0.96)  # of 90 % intervals, over many data sets
    data_sets: int = 20  # 0 for a point estimate, which has no intervals
    # a model that is no ConjugateModel says how its posterior is sampled and moved away from its optimum
    draws: Callable[[Any, int], np.ndarray] | None = None
    bound_nearby: Callable[[Any, Any, Any], tuple[float, Any]] | None = None
    n_iter: int | None = None  # a fixed number of sweeps instead of convergence
    consensus: tuple[str, dict[str, Any]] | None = None  # where the usual rule is another one
    natural: float = 1e-6  # accuracy that the arithmetic allows
    estimators: tuple[OfEstimator, ...] = ()  # then they are in the laws of estimators, too

    def fit(self, model: Any, shards: list[Any], network: Any = None, **settings: Any) -> Inference:
        """One fit, as the model's estimator would run it."""
        if self.n_iter is not None:
            settings |= {"tol": None, "max_iter": self.n_iter}
        name, options = self.consensus or ("bregman-admm", {})
        fresh = [model.refreshed(shard) for shard in shards]
        return Session.open(network, name, options).fit(model, fresh, **settings)

    def samples(self, fit: Any, n: int) -> np.ndarray:
        """The quantity for draws of q(global)."""
        if self.draws is not None:
            return self.draws(fit, n)
        return self.quantity(fit.posterior.sample(np.random.default_rng(0), n))


def uneven(order: np.ndarray, n_nodes: int) -> list[np.ndarray]:
    """Rows in order, cut into unequal parts."""
    weight = 1.0 + (np.arange(n_nodes) * 7) % 5
    cuts = np.round(np.cumsum(weight)[:-1] / weight.sum() * len(order)).astype(int)
    return np.split(order, cuts)


def aligned(estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Order of the estimate's rows that fits the truth best."""
    gap = ((estimate[:, None] - truth[None]) ** 2).reshape(len(truth), len(truth), -1).sum(-1)
    return linear_sum_assignment(gap.T)[1]


# -- counts ---------------------------------------------------------------------------------


def draw_counts(seed: int, n_nodes: int) -> Draw:
    rng = np.random.default_rng(seed)
    rates = rng.gamma(2.0, 1.0, 6)
    data = rng.poisson(rates, (40, 6)).astype(float)
    data[rng.random(data.shape) < 0.1] = np.nan
    parts = uneven(np.argsort(np.nansum(data, 1)), n_nodes)
    return Draw(PoissonGamma(6, 2.0, 1.0), [data[i] for i in parts], data, rates)


def exact_counts(draw: Draw) -> None:
    """Conjugacy, and the log evidence of each feature in closed form."""
    fit = infer(draw.model, [draw.pooled])
    seen = np.isfinite(draw.pooled)
    x, n = np.where(seen, draw.pooled, 0).sum(0), seen.sum(0)
    p = fit.posterior.parameters()
    np.testing.assert_allclose(p["shape"], 2.0 + x)
    np.testing.assert_allclose(p["rate"], 1.0 + n)
    evidence = gammaln(2.0 + x) - gammaln(2.0) - (2.0 + x) * np.log(1.0 + n)
    evidence = evidence.sum() - gammaln(np.where(seen, draw.pooled, 0) + 1).sum()
    assert np.isclose(fit.lower_bound, evidence)


# -- regression -----------------------------------------------------------------------------


def draw_linear(seed: int, n_nodes: int) -> Draw:
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(60, 3)), np.ones(60)])
    noise = rng.gamma(3.0, 0.5)
    w = rng.normal(size=4) / np.sqrt(noise * 0.5)
    y = x @ w + rng.normal(size=60) / np.sqrt(noise)
    model = LinearRegression(np.full(4, 0.5), 3.0, 2.0)
    shards = [RegressionShard(x[i], y[i]) for i in uneven(np.argsort(y), n_nodes)]
    return Draw(model, shards, RegressionShard(x, y), w)


def exact_linear(draw: Draw) -> None:
    """The normal equations, and the evidence as a multivariate Student density."""
    fit = infer(draw.model, [draw.pooled])
    x, y = draw.pooled.design, draw.pooled.target
    precision = 0.5 * np.eye(4) + x.T @ x
    p = fit.posterior.parameters()
    np.testing.assert_allclose(p["mean"], np.linalg.solve(precision, x.T @ y))
    np.testing.assert_allclose(p["precision"], precision)
    shape = 2.0 / 3.0 * (np.eye(len(y)) + x @ x.T / 0.5)
    assert np.isclose(fit.lower_bound, stats.multivariate_t(shape=shape, df=6.0).logpdf(y))


def draw_logistic(seed: int, n_nodes: int) -> Draw:
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(400, 2)), np.ones(400)])
    w = rng.normal(size=3)
    y = (rng.random(400) < 1 / (1 + np.exp(-x @ w))).astype(float)[:, None]
    model = LogisticRegression(np.ones(3))
    shards = [RegressionShard(x[i], y[i]) for i in uneven(np.argsort(y[:, 0]), n_nodes)]
    return Draw(model, shards, RegressionShard(x, y), w[None])


def climbed_logistic(draw: Draw) -> None:
    """The same bound, climbed blindly by a quasi-Newton method in mean and Cholesky factor."""
    fit = infer(draw.model, [draw.pooled], tol=1e-9)
    x, y = draw.pooled.design, draw.pooled.target[:, 0]
    lower = np.tril_indices(3)

    def negative_bound(v: np.ndarray) -> float:
        m, root = v[:3], np.zeros((3, 3))
        root[lower] = v[3:]
        spread = root @ root.T
        c = np.sqrt(np.einsum("ni,ij,nj->n", x, spread + np.outer(m, m), x))
        local = (y - 0.5) @ x @ m - np.sum(0.5 * c + np.log1p(np.exp(-c)))
        kl = 0.5 * (np.trace(spread) + m @ m - 3 - np.linalg.slogdet(spread)[1])
        return float(kl - local)

    begin = np.concatenate([np.zeros(3), 0.3 * np.eye(3)[lower]])
    best = minimize(negative_bound, begin, method="BFGS", options={"gtol": 1e-6})
    assert np.isclose(fit.lower_bound, -best.fun, rtol=1e-9)
    np.testing.assert_allclose(fit.posterior.parameters()["mean"][0], best.x[:3], atol=1e-4)


#: likelihood, number of shared parameters' truth, rows
GLM_LIKELIHOODS: dict[str, Any] = {
    "logit": OneParameter("logit"),
    "probit": OneParameter("probit"),
    "poisson": OneParameter("log"),
    "gaussian": SharedParameters("gaussian"),
    "student-t": SharedParameters("student-t"),
    "negative-binomial": SharedParameters("negative-binomial"),
    "gamma": SharedParameters("gamma"),
    "ordinal": SharedParameters("ordinal-logit", 2),
    "softmax": Softmax(3),
}


def glm_target(name: str, eta: np.ndarray, psi: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Targets drawn from a likelihood; eta (n, L)."""
    n, first = len(eta), eta[:, 0]
    size = np.exp(psi[0]) if len(psi) else 1.0
    uniform, spread = rng.random(n), rng.gamma(1.0 / size, size, size=n)
    makers: dict[str, Callable[[], Any]] = {
        "softmax": lambda: (eta @ Softmax(3).contrast.T + rng.gumbel(size=(n, 3))).argmax(1),
        "ordinal": lambda: (
            (first + rng.logistic(size=n))[:, None] > [psi[0], psi[0] + np.exp(psi[1])]
        ).sum(1),
        "logit": lambda: uniform < 1 / (1 + np.exp(-first)),
        "probit": lambda: uniform < stats.norm.cdf(first),
        "poisson": lambda: rng.poisson(np.exp(first)),
        "gaussian": lambda: first + np.sqrt(size) * rng.normal(size=n),
        "student-t": lambda: first + np.sqrt(size) * rng.standard_t(4.0, size=n),
        "negative-binomial": lambda: rng.poisson(np.exp(first) * spread),
        "gamma": lambda: first + np.log(spread),
    }
    return np.asarray(makers[name](), dtype=float)


def draw_glm(seed: int, n_nodes: int, name: str) -> Draw:
    """Targets sorted over the nodes, so that nodes see one class, or no event."""
    rng = np.random.default_rng(seed)
    likelihood, n = GLM_LIKELIHOODS[name], 80
    x = rng.normal(size=(n, 2))
    if name != "ordinal":
        x = np.column_stack([x, np.ones(n)])
    p, outputs, shared = x.shape[1], likelihood.n_outputs, likelihood.n_shared
    precision = np.concatenate([np.full(outputs * p, 2.0), np.full(shared, 4.0)])
    theta = rng.normal(size=len(precision)) / np.sqrt(precision)
    eta = x @ theta[: outputs * p].reshape(outputs, p).T
    y = glm_target(name, eta, theta[outputs * p :], rng).astype(float)

    def shard(i: np.ndarray) -> GlmShard:
        ones = np.ones(len(i))
        constant = likelihood.constant(y[i], ones, ones)
        return GlmShard(x[i], y[i], 0.0 * ones, ones, ones, constant)

    model = GeneralizedLinear(likelihood, np.zeros(len(precision)), precision)
    parts = uneven(np.argsort(y, kind="stable"), n_nodes)
    return Draw(model, [shard(i) for i in parts], shard(np.arange(n)), theta)


def glm_bound_nearby(model: Any, shard: Any, fit: Inference) -> tuple[float, Any]:
    """The bound at the posterior, and at beliefs some way from it."""
    here = fit.posterior.parameters()

    def bound(mean: np.ndarray, root: np.ndarray) -> float:
        q = type(fit.posterior).from_parameters(mean, root @ root.T)
        return float(model.local_step(shard, GlmBelief(q))[-1]) + model.prior_gain(q)

    root = np.linalg.cholesky(here["covariance"])

    def nearby(rng: np.random.Generator) -> float:
        size = len(root)
        step = 0.1 * np.tril(rng.normal(size=(size, size)))
        return bound(
            here["mean"] + 0.1 * root @ rng.normal(size=size), root @ (np.eye(size) + step)
        )

    return bound(here["mean"], root), nearby


def glm_reference(name: str) -> Callable[[Draw], None]:
    """Importance sampling from q widened: its mean and deviations are the exact posterior's, nearly."""

    def check(draw: Draw) -> None:
        fit = infer(draw.model, [draw.pooled], tol=1e-9)
        p = fit.posterior.parameters()
        rng = np.random.default_rng(0)
        model, shard = draw.model, draw.pooled
        root = np.linalg.cholesky(p["covariance"])
        size, n = len(root), 6000
        noise = rng.standard_t(8.0, size=(n, size))
        log_q = stats.t.logpdf(noise, 8.0).sum(1)
        theta = p["mean"] + 1.1 * noise @ root.T
        log_p = np.array([float(model.row_sums(shard, t, None)[-1]) for t in theta])
        log_p -= 0.5 * (theta**2 @ model.prior_precision)
        weight = np.exp(log_p - log_q - (log_p - log_q).max())
        weight /= weight.sum()
        assert 1.0 / (weight**2).sum() > 0.1 * n
        mean = weight @ theta
        deviation = np.sqrt(weight @ (theta - mean) ** 2)
        ours = np.sqrt(np.diag(p["covariance"]))
        assert np.abs((p["mean"] - mean) / deviation).max() < 0.2
        assert np.abs(ours / deviation - 1).max() < 0.12

    return check


def glm_case(name: str, **more: Any) -> Case:
    return Case(
        lambda s, n: draw_glm(s, n, name),
        lambda s: s,
        glm_reference(name),
        accuracy=0.5,
        data_sets=100,
        bound_nearby=glm_bound_nearby,
        **more,
    )


# -- survival -------------------------------------------------------------------------------


def draw_cox(seed: int, n_nodes: int, ties: str = "efron") -> Draw:
    """Strata with hazards of their own, sorted by time over the nodes; the last two nodes have no event."""
    rng = np.random.default_rng(seed)
    n, w = 120, rng.normal(size=2) / np.sqrt(2.0)
    x = rng.normal(size=(n, 2))
    # as many strata whatever the number of nodes, or the pooled model would be another one
    stratum = np.arange(n) % 3
    time = rng.exponential(np.exp(-x @ w) * (1.0 + stratum)) * 20
    time = np.ceil(time)  # ties
    event = (rng.random(n) < 0.8).astype(float)
    nodes = [np.flatnonzero(np.isin(stratum, own)) for own in np.array_split(np.arange(3), n_nodes)]

    def shard(i: np.ndarray) -> CoxShard:
        return CoxShard.of(x[i], time[i], event[i], np.ones(len(i)), stratum[i])

    model = StratifiedCox(np.zeros(2), np.full(2, 2.0), ties)
    return Draw(model, [shard(i) for i in nodes], shard(np.arange(n)), w)


def same_as_statsmodels(ties: str) -> Callable[[Draw], None]:
    """With a flat prior: estimates and standard errors of the stratified partial likelihood."""

    def check(draw: Draw) -> None:
        from statsmodels.duration.hazard_regression import PHReg

        s = draw.pooled
        flat = StratifiedCox(np.zeros(2), np.zeros(2), ties)
        p = infer(flat, [s], tol=1e-10).posterior.parameters()
        theirs = PHReg(s.time, s.design, s.event, strata=s.stratum, ties=ties).fit()
        np.testing.assert_allclose(p["mean"], theirs.params, atol=1e-7)
        np.testing.assert_allclose(np.sqrt(np.diag(p["covariance"])), theirs.bse, rtol=1e-6)

    return check


def draw_grid(seed: int, n_nodes: int) -> Draw:
    rng = np.random.default_rng(seed)
    hazard = rng.beta(2.0, 2.0, size=3)
    n = 200
    place = np.full(n, 3)
    for k in (2, 1, 0):
        place[rng.random(n) < hazard[k]] = k
    event = np.where(place < 3, (rng.random(n) < 0.9) * 1.0, 0.0)
    # a place that is left without the event is censored just after it: hazards are of those who stay
    hazard = hazard * 0.9
    parts = uneven(np.argsort(place, kind="stable"), n_nodes)
    model = GridHazard(3, 2.0)
    shards = [GridShard(place[i], event[i]) for i in parts]
    return Draw(model, shards, GridShard(place, event), hazard)


def exact_grid(draw: Draw) -> None:
    """Counts by hand."""
    fit = infer(draw.model, [draw.pooled])
    p = fit.posterior.parameters()
    place, event = draw.pooled.position, draw.pooled.event
    for k in range(3):
        happened, at_risk = event[place == k].sum(), (place >= k).sum()
        assert np.isclose(p["successes"][k], 2.0 + happened)
        assert np.isclose(p["failures"][k], 2.0 + at_risk - happened)


# -- mixed models ---------------------------------------------------------------------------


def draw_mixed(seed: int, n_nodes: int, family: str) -> Draw:
    """Groups of unequal size, sorted by their effects over the nodes; one has one row."""
    rng = np.random.default_rng(seed)
    sizes = 1 + 2 * (np.arange(18) % 6)
    group = np.repeat(np.arange(18), sizes)
    x = np.column_stack([rng.normal(size=len(group)), np.ones(len(group))])
    noise = [4.0] if family == "gaussian" else []
    precision = np.array([2.0, 2.0, *noise, 16.0])
    theta = rng.normal(size=len(precision)) / np.sqrt(precision)
    effect = np.sort(np.exp(theta[-1]) * rng.normal(size=18))
    eta = x @ theta[:2] + effect[group]
    if family == "gaussian":
        y = eta + np.exp(0.5 * theta[2]) * rng.normal(size=len(eta))
    else:
        y = (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float)
    nodes = [np.flatnonzero(np.isin(group, own)) for own in uneven(np.arange(18), n_nodes)]

    def shard(i: np.ndarray) -> GroupedShard:
        return GroupedShard.of(x[i], np.ones((len(i), 1)), y[i], np.zeros(len(i)), group[i])

    model = MixedEffects(np.zeros(len(precision)), precision, family, 1)
    return Draw(model, [shard(i) for i in nodes], shard(np.arange(len(y))), theta)


def same_mode_without_quadrature(draw: Draw) -> None:
    """The mode by a blind optimizer: a dense Gaussian, or effects summed over a fine grid."""
    s, model = draw.pooled, draw.model
    group = np.repeat(np.arange(18), np.diff(s.starts))
    grid = np.linspace(-9.0, 9.0, 2001)
    log_share = stats.norm.logpdf(grid) + np.log(grid[1] - grid[0])

    def negative(theta: np.ndarray) -> float:
        eta, sd = s.design @ theta[:2], np.exp(theta[-1])
        if model.family == "gaussian":
            spread = np.exp(theta[2]) * np.eye(len(eta)) + sd**2 * (group[:, None] == group)
            value = stats.multivariate_normal.logpdf(s.target, eta, spread)
        else:
            all_eta = eta[:, None] + sd * grid
            rows = s.target[:, None] * all_eta - np.logaddexp(0.0, all_eta)
            by_group = np.add.reduceat(rows, s.starts[:-1]) + log_share
            value = logsumexp(by_group, axis=1).sum()
        return -float(value) - model.log_prior(theta)

    fit = infer(model, [s], tol=1e-10)
    best = minimize(negative, np.zeros(len(model.prior_mean)), options={"gtol": 1e-7})
    p = fit.posterior.parameters()
    np.testing.assert_allclose(p["mean"], best.x, atol=2e-5)
    assert np.isclose(fit.lower_bound, -best.fun, rtol=1e-9)


# -- mixtures -------------------------------------------------------------------------------

CENTRES = np.array([[-2.0, 0.0], [2.0, -1.5], [1.0, 2.5]])


def mixture_rows(seed: int, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = np.sort(rng.choice(3, p=[0.5, 0.3, 0.2], size=180))
    centres = CENTRES[:, :d] + 0.2 * rng.normal(size=(3, d))
    data = centres[label] + 0.6 * rng.normal(size=(180, d))
    return data, centres


def draw_mixture(seed: int, n_nodes: int, missing: float = 0.0, full: bool = True) -> Draw:
    data, centres = mixture_rows(seed)
    if missing:
        data[np.random.default_rng(seed + 1).random(data.shape) < missing] = np.nan
    scatter = np.eye(2) if full else np.ones(2)
    kind = GaussianMixture if full else DiagonalGaussianMixture
    model = kind(3, 1.0, np.zeros(2), 0.1, 3.0, scatter, 3.0 * np.eye(2))
    parts = uneven(np.arange(len(data)), n_nodes)  # rows are sorted by component
    shards = [MixtureShard.of(data[i]) for i in parts]
    return Draw(model, shards, MixtureShard.of(data), centres)


def same_as_scikit_learn(draw: Draw) -> None:
    """Same start and priors, same parameters (scikit-learn's bound drops constants)."""
    from sklearn.mixture import BayesianGaussianMixture

    full = isinstance(draw.model, GaussianMixture)
    data = mixture_rows(0, 2 if full else 1)[0]
    d = data.shape[1]
    scatter = np.eye(d) if full else np.ones(d)
    model = type(draw.model)(3, 1.0, np.zeros(d), 0.1, float(d), scatter, 3.0 * np.eye(d))
    member = np.eye(3)[np.random.default_rng(1).integers(3, size=len(data))]

    class FromMembers(BayesianGaussianMixture):
        def _initialize_parameters(self, X, random_state, xp=None):
            self._initialize(X, member)

    theirs = FromMembers(
        n_components=3,
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=1.0,
        mean_precision_prior=0.1,
        mean_prior=np.zeros(d),
        degrees_of_freedom_prior=d,
        covariance_prior=np.eye(d),
        reg_covar=0.0,
        tol=1e-13,
        max_iter=5000,
    ).fit(data)
    if full:
        moments = (member.sum(0), member.T @ data, np.einsum("nk,ni,nj->kij", member, data, data))
        from dmfvi.models.mixture.model import Moments

        begun = model._statistics(Moments(*moments))
    else:
        begun = model._statistics(
            member.sum(0), member.T @ np.ones_like(data), member.T @ data, member.T @ data**2
        )
    start = model.from_statistics(begun.pack())
    fit = infer(model, [MixtureShard.of(data)], start=start, tol=1e-10, acceleration=False)
    p = fit.posterior["components"].parameters()
    weights = fit.posterior["weights"].parameters()["concentration"]
    np.testing.assert_allclose(weights, theirs.weight_concentration_, rtol=1e-5)
    means = p["mean"] if full else p["mean"][..., 0]
    np.testing.assert_allclose(means, theirs.means_, rtol=1e-4, atol=1e-5)
    spread = np.linalg.inv(p["scale"]) / p["dof"][:, None, None] if full else p["rate"] / p["shape"]
    np.testing.assert_allclose(spread.ravel(), theirs.covariances_.ravel(), rtol=1e-4, atol=1e-6)


# -- topics ---------------------------------------------------------------------------------


MIXING = 0.05  # document prior


def draw_topics(seed: int, n_nodes: int) -> Draw:
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(3), np.ones(5)) + 0.5 * rng.random((3, 15))
    topics /= topics.sum(1, keepdims=True)
    # mean-field intervals are fair for documents of few topics; for many they are too narrow
    theta = rng.dirichlet(np.full(3, MIXING), size=120)
    theta = theta[np.argsort(theta.argmax(1), kind="stable")]  # nodes see other topics
    counts = np.array([rng.multinomial(200, row) for row in theta @ topics])
    model = LatentDirichletAllocation(3, 15, np.full(3, MIXING), 0.5, tolerance=1e-6)
    matrix = sparse.csr_array(counts.astype(float))
    parts = uneven(np.arange(120), n_nodes)
    return Draw(model, [Documents.of(matrix[i]) for i in parts], Documents.of(matrix), topics)


def same_topics_as_scikit_learn(draw: Draw) -> None:
    """The same number of batch passes from the same start, both with documents solved tightly.

    With a document prior of one the proportions have one optimum only, whatever they begin with.
    """
    from sklearn.decomposition import LatentDirichletAllocation as Theirs

    model, documents = draw.model, draw.pooled
    starts, terms, counts = documents.counts
    matrix = sparse.csr_matrix((counts, terms, starts), shape=(documents.n_documents, 15))
    q = model.start(documents, np.random.default_rng(3))
    theirs = Theirs(
        3,
        doc_topic_prior=1.0,
        topic_word_prior=0.5,
        mean_change_tol=1e-9,
        max_doc_update_iter=2000,
        random_state=0,
    )
    theirs.partial_fit(matrix[:1])  # sets up what a fit needs
    theirs.components_ = q.parameters()["concentration"].copy()
    theirs.exp_dirichlet_component_ = np.exp(q.mean()[0])
    for _ in range(20):
        theirs._em_step(matrix, total_samples=120, batch_update=True)
    tight = LatentDirichletAllocation(3, 15, np.ones(3), 0.5, 1e-9, 2000)
    shard = Documents(Counts(starts, terms, counts))
    for _ in range(20):
        q = tight.from_statistics(tight.local_step(shard, q).values)
    np.testing.assert_allclose(q.parameters()["concentration"], theirs.components_, rtol=1e-5)


# -- chains ---------------------------------------------------------------------------------

STEP = np.array([[0.9, 0.06, 0.04], [0.05, 0.85, 0.1], [0.05, 0.05, 0.9]])
SYMBOLS = np.array([[0.85, 0.05, 0.05, 0.05], [0.05, 0.05, 0.05, 0.85], [0.05, 0.8, 0.1, 0.05]])


def chain_states(rng: np.random.Generator, length: int, begin: int) -> np.ndarray:
    states = [begin]
    for _ in range(length - 1):
        states.append(rng.choice(3, p=STEP[states[-1]]))
    return np.array(states)


def draw_chain(seed: int, n_nodes: int, kind: str, missing: float = 0.05, length: int = 16) -> Draw:
    rng = np.random.default_rng(seed)
    n = 24 if n_nodes < 10 else 4 * n_nodes  # every node has one
    # sorted by first state: nodes see sequences that begin differently
    states = [chain_states(rng, length + 3 * (i % 4), (3 * i) // n) for i in range(n)]
    ones, nines = np.full(3, 1.0), np.full((3, 3), 1.0)
    emission: Any
    if kind == "categorical":
        emission = CategoricalEmission(np.full(4, 0.5))
        values = [np.array([rng.choice(4, p=SYMBOLS[k]) for k in z]) for z in states]
        values = [np.where(rng.random(len(v)) < missing, -1, v) for v in values]
        truth = SYMBOLS
    else:
        prior = (np.zeros(2), 0.1, 3.0, np.eye(2) if kind == "gaussian" else np.ones(2))
        family = GaussianEmission if kind == "gaussian" else DiagonalGaussianEmission
        emission = family(*prior, 3.0 * np.eye(2))
        values = [CENTRES[z] + 0.7 * rng.normal(size=(len(z), 2)) for z in states]
        for v in values:
            v[rng.random(len(v)) < missing] = np.nan
            v[rng.random(v.shape) < missing] = np.nan
        truth = CENTRES
    model = HiddenMarkov(3, emission, ones, nines)

    def shard(which: np.ndarray) -> Sequences:
        chosen = [values[i] for i in which]
        offsets = np.concatenate([[0], np.cumsum([len(v) for v in chosen])]).astype(np.int64)
        rows = np.concatenate(chosen)
        return Sequences(rows if kind == "categorical" else MixtureShard.of(rows), offsets)

    parts = uneven(np.arange(n), n_nodes)
    return Draw(model, [shard(p) for p in parts], shard(np.arange(n)), truth)


def same_as_hmmlearn(kind: str) -> Callable[[Draw], None]:
    """Same start and priors, same posterior and the same bound."""

    def check(_: Draw) -> None:
        from hmmlearn.vhmm import VariationalCategoricalHMM, VariationalGaussianHMM

        draw = draw_chain(4, 1, kind, missing=0.0)
        model = draw.model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a start after one sweep
            start = infer(model, [draw.pooled], max_iter=1, random_state=2).posterior
        fit = infer(model, [draw.pooled], start=start, tol=1e-10, acceleration=False, max_iter=3000)
        categorical = kind == "categorical"
        peer = VariationalCategoricalHMM if categorical else VariationalGaussianHMM
        extra = {} if categorical else {"covariance_type": "full"}
        theirs = peer(3, init_params="", n_iter=2000, tol=1e-12, **extra)
        parameters = {name: start[name].parameters() for name in start}
        theirs.startprob_prior_ = np.ones(3)
        theirs.startprob_posterior_ = parameters["initial"]["concentration"]
        theirs.transmat_prior_ = np.ones((3, 3))
        theirs.transmat_posterior_ = parameters["transition"]["concentration"]
        p = parameters["emission"]
        if categorical:
            rows = draw.pooled.observations[:, None]
            theirs.n_features = 4
            theirs.emissionprob_prior_ = np.full((3, 4), 0.5)
            theirs.emissionprob_posterior_ = p["concentration"]
        else:
            rows = np.ascontiguousarray(draw.pooled.observations.groups[0].values.T)
            theirs.n_features = 2
            theirs.means_prior_, theirs.beta_prior_ = np.zeros((3, 2)), np.full(3, 0.1)
            theirs.dof_prior_, theirs.scale_prior_ = np.full(3, 3.0), np.tile(np.eye(2), (3, 1, 1))
            theirs.means_posterior_, theirs.beta_posterior_ = p["mean"], p["confidence"]
            theirs.dof_posterior_ = p["dof"]
            theirs.scale_posterior_ = np.linalg.inv(p["scale"])
            theirs._covars_ = theirs.scale_posterior_ / p["dof"][:, None, None]
        theirs.fit(rows, np.diff(draw.pooled.starts))
        ours = {name: fit.posterior[name].parameters() for name in fit.posterior}
        np.testing.assert_allclose(
            ours["transition"]["concentration"], theirs.transmat_posterior_, rtol=1e-4, atol=1e-4
        )
        if categorical:
            found, expected = ours["emission"]["concentration"], theirs.emissionprob_posterior_
        else:
            found, expected = ours["emission"]["mean"], theirs.means_posterior_
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        # hmmlearn's Gaussian densities lack their (2 pi)^(-D/2)
        dropped = 0.0 if categorical else -0.5 * rows.size * np.log(2 * np.pi)
        assert np.isclose(fit.lower_bound, theirs.monitor_.history[-1] + dropped, rtol=1e-8)

    return check


def means_of(sample: dict[str, Any]) -> np.ndarray:
    return sample["components"][0]


def of_rows(
    data: np.ndarray, n_nodes: int, model: Any, make: Any, truth: Any, step: int = 1
) -> Draw:
    """Rows in order, cut into unequal parts of whole frames (``step`` rows)."""
    parts = uneven(np.arange(len(data) // step), n_nodes)
    rows = [(step * part[:, None] + np.arange(step)).ravel() for part in parts]
    return Draw(model, [make(data[i]) for i in rows], make(data), np.asarray(truth))


def draw_clusters(seed: int, n_nodes: int) -> Draw:
    data, truth = factor_cases.cluster_rows(seed)
    model = factor_cases.cluster_model()
    return of_rows(data, n_nodes, model, factor_cases.MixtureRows.of, truth)


def draw_factors(
    seed: int,
    n_nodes: int,
    missing: float = 0.0,
    covariance: str = "full",
    noise: str = "shared",
) -> Draw:
    data = factor_cases.factor_rows(seed, missing)
    model = factor_cases.pca_model(missing, covariance, noise)
    levels = [factor_cases.NOISE_LEVEL] * (6 if noise == "feature" else 1)
    return of_rows(data, n_nodes, model, factor_cases.pca_shard, levels)


def draw_likelihood(seed: int, n_nodes: int) -> Draw:
    data = factor_cases.factor_rows(seed, 0.1)
    model = factor_cases.ppca_model()
    return of_rows(data, n_nodes, model, factor_cases.pca_shard, [factor_cases.NOISE_LEVEL])


def draw_cameras(seed: int, n_nodes: int) -> Draw:
    data = factor_cases.camera_rows(seed)
    model = factor_cases.structure_model()
    return of_rows(data, n_nodes, model, factor_cases.camera_shard, [np.nan], step=2)


def draw_ratings(seed: int, n_nodes: int) -> Draw:
    model, shards, pooled = factor_cases.draw_ratings(seed, n_nodes)
    return Draw(model, shards, pooled, np.array([np.nan]))


def factor_case(missing: float, covariance: str = "full", noise: str = "shared") -> Case:
    each = noise == "feature"
    return Case(
        lambda s, n: draw_factors(s, n, missing, covariance, noise),
        factor_cases.noise_draws,
        factor_cases.factor_analysis if each else factor_cases.principal_subspace,
        accuracy=0.15 if each else 0.05,
        coverage=(0.55, 1.0),  # mean-field: too narrow
        draws=factor_cases.noise_draws,
        bound_nearby=factor_cases.pca_bound_nearby,
    )


# -- rows for estimators ---------------------------------------------------------------------

CLUSTER_CENTRES = np.array([[0.0, 0, 0], [4, 0, 2], [0, 4, -2]])


def cluster_rows(missing: float = 0.05) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    label = np.sort(rng.integers(3, size=90))  # nodes see other clusters
    data = CLUSTER_CENTRES[label] + rng.normal(size=(90, 3))
    data[rng.random(data.shape) < missing] = np.nan
    return np.split(data, [20, 55])


def regression_rows(labels: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 3)) * [1.0, 5.0, 0.2] + [0.0, 3.0, -1.0]
    score = x @ np.array([1.0, -0.4, 3.0]) + 4.0 + 1.5 * rng.normal(size=120)
    y = (score > np.median(score)).astype(float) if labels else score
    return np.split(np.column_stack([x[:, :1], y, x[:, 1:]]), [25, 70])


def survival_rows() -> list[np.ndarray]:
    """Covariates, time, event and stratum, a stratum a node; the second has no event."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(90, 2)) * [1.0, 5.0] + [0.0, 3.0]
    time = np.ceil(50 * rng.exponential(np.exp(0.5 * x[:, 0] - 0.1 * x[:, 1])))
    event = (rng.random(90) < 0.7).astype(float)
    event[25:45] = 0.0
    site = np.repeat([1.0, 2.0, 3.0], [25, 20, 45])
    return np.split(np.column_stack([x, time, event, site]), [25, 45])


def grouped_rows() -> list[np.ndarray]:
    """Covariates, target and group; groups lie inside nodes, and the first has one row."""
    rng = np.random.default_rng(8)
    group = np.repeat(np.arange(12.0), [1, 9, 8, 7, 12, 6, 9, 8, 5, 10, 7, 8])
    x = rng.normal(size=(90, 2)) * [1.0, 5.0] + [0.0, 3.0]
    y = x @ [0.8, -0.2] + 2.0 + rng.normal(size=12)[group.astype(int)] + 0.7 * rng.normal(size=90)
    return np.split(np.column_stack([x, y, group]), [10, 43])


def word_counts() -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    topics = np.repeat([[30.0, 0.5], [0.5, 30.0]], 3, axis=1)
    return np.split(rng.poisson(rng.dirichlet([0.3, 0.3], 60) @ topics).astype(float), [15, 35])


#: one line enrols a model (or a variant of it, after a slash) in the laws
CASES: dict[str, Case] = {
    "PoissonGamma": Case(draw_counts, lambda s: s, exact_counts, accuracy=0.5, data_sets=100),
    "LinearRegression": Case(
        draw_linear,
        lambda s: s[0],
        exact_linear,
        data_sets=100,
        estimators=(
            OfEstimator(
                "bayesian-linear-regression", lambda: regression_rows(False), {"target": 2}
            ),
        ),
    ),
    "LogisticRegression": Case(
        draw_logistic,
        lambda s: s,
        climbed_logistic,
        coverage=(0.8, 0.96),
        data_sets=100,
    ),
    "GeneralizedLinear": glm_case(
        "logit",
        estimators=(
            OfEstimator(
                "bayesian-logistic-regression",
                lambda: regression_rows(True),
                {"target": 2, "classes": [0, 1]},
            ),
            OfEstimator(
                "bayesian-poisson-regression", lambda: regression_rows(True), {"target": 2}
            ),
            OfEstimator("generalized-linear-model", lambda: regression_rows(False), {"target": 2}),
            OfEstimator(
                "piecewise-exponential-regression",
                lambda: [rows[:, :4] for rows in survival_rows()],
                {"time": 3, "event": 4, "n_intervals": 4},
            ),
        ),
    ),
    "StratifiedCox": Case(
        draw_cox,
        lambda s: s,
        same_as_statsmodels("efron"),
        accuracy=0.5,
        data_sets=100,
        estimators=(
            OfEstimator("cox-regression", survival_rows, {"time": 3, "event": 4, "strata": 5}),
        ),
    ),
    "StratifiedCox/breslow": Case(
        lambda s, n: draw_cox(s, n, "breslow"),
        lambda s: s,
        same_as_statsmodels("breslow"),
        accuracy=0.5,
        data_sets=100,
    ),
    "GridHazard": Case(
        draw_grid,
        lambda s: s,
        exact_grid,
        accuracy=0.2,
        data_sets=100,
        estimators=(
            OfEstimator("kaplan-meier", lambda: [rows[:, 2:4] for rows in survival_rows()], {}),
        ),
    ),
    **{f"GeneralizedLinear/{name}": glm_case(name) for name in GLM_LIKELIHOODS if name != "logit"},
    "MixedEffects": Case(
        lambda s, n: draw_mixed(s, n, "gaussian"),
        lambda s: s,
        same_mode_without_quadrature,
        accuracy=0.5,
        data_sets=100,
        estimators=(OfEstimator("mixed-model", grouped_rows, {"target": 3, "groups": 4}),),
    ),
    "MixedEffects/bernoulli": Case(
        lambda s, n: draw_mixed(s, n, "bernoulli"),
        lambda s: s,
        same_mode_without_quadrature,
        accuracy=0.5,
        data_sets=100,
    ),
    "GaussianMixture": Case(
        draw_mixture,
        means_of,
        same_as_scikit_learn,
        True,
        estimators=(
            OfEstimator(
                "bayesian-gaussian-mixture", cluster_rows, {"n_components": 3, "n_init": 2}
            ),
        ),
    ),
    "GaussianMixture/missing": Case(
        lambda s, n: draw_mixture(s, n, missing=0.15),
        means_of,
        same_as_scikit_learn,
        True,
        coverage=(0.78, 0.96),
    ),
    "DiagonalGaussianMixture": Case(
        lambda s, n: draw_mixture(s, n, missing=0.1, full=False),
        lambda s: s["components"][0][..., 0],
        same_as_scikit_learn,
        True,
    ),
    "MixtureOfPcaModel": Case(
        draw_clusters,
        factor_cases.cluster_draws,
        factor_cases.one_cluster_is_bayesian_pca,
        True,
        accuracy=0.06,
        draws=factor_cases.cluster_draws,
        bound_nearby=factor_cases.cluster_bound_nearby,
    ),
    "BayesianPcaModel": factor_case(0.0),
    "BayesianPcaModel/missing": factor_case(0.2),
    "BayesianPcaModel/diag": factor_case(0.2, "diag"),
    "BayesianPcaModel/feature": factor_case(0.0, noise="feature"),
    "BayesianPcaModel/feature,missing": factor_case(0.2, noise="feature"),
    "PpcaModel": Case(draw_likelihood, np.asarray, factor_cases.principal_subspace, data_sets=0),
    "AffineModel": Case(draw_cameras, np.asarray, factor_cases.structure_is_the_cube, data_sets=0),
    "RatingModel": Case(
        draw_ratings,
        np.asarray,
        factor_cases.beats_the_mean,
        data_sets=0,
        n_iter=8,
        consensus=("statistics-tracking", {"damping": 1e-9}),
    ),
    "LatentDirichletAllocation": Case(
        draw_topics,
        lambda s: s,
        same_topics_as_scikit_learn,
        True,
        accuracy=0.03,
        coverage=(0.75, 0.97),
        estimators=(OfEstimator("latent-dirichlet-allocation", word_counts, {"n_components": 2}),),
    ),
    "HiddenMarkov/gaussian": Case(
        lambda s, n: draw_chain(s, n, "gaussian"),
        lambda s: s["emission"][0],
        same_as_hmmlearn("gaussian"),
        True,
        coverage=(0.8, 0.96),
    ),
    "HiddenMarkov/diagonal": Case(
        lambda s, n: draw_chain(s, n, "diagonal"),
        lambda s: s["emission"][0][..., 0],
        same_as_hmmlearn("gaussian"),
        True,
        coverage=(0.8, 0.96),
    ),
    "HiddenMarkov/categorical": Case(
        lambda s, n: draw_chain(s, n, "categorical", length=30),
        lambda s: s["emission"],
        same_as_hmmlearn("categorical"),
        True,
        accuracy=0.12,
        coverage=(0.6, 0.97),
    ),
}
