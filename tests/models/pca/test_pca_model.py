"""Bayesian PCA: its local step, its bound, its parameter expansion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dmfvi import BayesianPCA, GammaPrior, Network, PcaPrior
from dmfvi.datasets import make_low_rank, mask_at_random
from dmfvi.models.pca.belief import PcaBelief
from dmfvi.models.pca.factorised import FactorisedPcaModel
from dmfvi.models.pca.model import BayesianPcaModel
from dmfvi.models.pca.shard import CompleteShard, MaskedShard, Weights
from dmfvi.models.pca.start import random_basis, read_basis, read_start
from dmfvi.models.pca.statistics import Layout, PcaStatistics
from helpers import low_rank_shards


def some_weights(d: int, m: int, with_mean: bool, seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    k = m + with_mean
    root = rng.normal(size=(k, k + 2))
    return Weights(rng.normal(size=(d, k)), root @ root.T / 50, 1.7, m)


def naive_moments(data: np.ndarray, w: Weights) -> dict[str, np.ndarray | float]:
    """The E-step, sample by sample and entry by entry."""
    d, k = w.mean.shape
    m = w.n_latent
    cov = np.broadcast_to(w.covariance, (d, k, k))
    rows, linear, latent = np.zeros((d, k, k)), np.zeros((d, k)), np.zeros((k, k))
    residual = kl = 0.0
    for x in data:
        seen = np.flatnonzero(np.isfinite(x))
        second = {j: np.outer(w.mean[j], w.mean[j]) + cov[j] for j in seen}
        precision = np.eye(m) + w.noise_precision * sum(
            (second[j][:m, :m] for j in seen), np.zeros((m, m))
        )
        c = np.linalg.inv(precision)
        score = np.zeros(m)
        for j in seen:
            score += x[j] * w.mean[j, :m] - (second[j][:m, m] if k > m else 0.0)
        z = w.noise_precision * c @ score
        wide = np.append(z, 1.0) if k > m else z
        zz = np.outer(wide, wide)
        zz[:m, :m] += c
        latent += zz
        kl += 0.5 * (np.trace(c) + z @ z - m - np.linalg.slogdet(c)[1])
        for j in seen:
            rows[j] += zz
            linear[j] += x[j] * wide
            residual += x[j] ** 2 - 2 * x[j] * w.mean[j] @ wide + np.sum(second[j] * zz)
    return {"rows": rows, "linear": linear, "latent": latent, "residual": residual, "latent_kl": kl}


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("n", [4, 40])
def test_local_step_equals_the_naive_one(with_mean: bool, missing: float, n: int) -> None:
    """n = 40 rows of 5 features are compressed, n = 4 are not."""
    data = low_rank_shards([n], n_features=5, n_components=2, missing=missing)[0]
    w = some_weights(5, 2, with_mean)
    expected = naive_moments(data, w)
    masked = MaskedShard.of(data)
    shards = [masked] if missing else [masked, CompleteShard.of(data, with_mean)]
    for shard in shards:
        got = shard.moments(w)
        for name, value in expected.items():
            actual = np.broadcast_to(getattr(got, name), np.shape(value))
            np.testing.assert_allclose(actual, value, rtol=1e-10, atol=1e-10, err_msg=name)
        assert got.n_observed == np.isfinite(data).sum()
        assert got.n_samples == n


def test_tall_complete_shards_shrink_to_their_triangle() -> None:
    shard = CompleteShard.of(np.random.default_rng(0).normal(size=(5000, 6)), with_mean=True)
    assert shard.rows.shape == (7, 6)


@pytest.mark.parametrize("shared", [True, False])
def test_statistics_pack_and_change_coordinates(shared: bool) -> None:
    rng = np.random.default_rng(0)
    layout = Layout(4, 3, shared)
    vector = rng.normal(size=layout.size)
    s = PcaStatistics.unpack(vector, layout)
    np.testing.assert_array_equal(s.pack(layout), vector)
    gauge = rng.normal(size=(3, 3))
    back = s.in_coordinates(gauge).in_coordinates(np.linalg.inv(gauge))
    np.testing.assert_allclose(back.pack(layout), vector, atol=1e-9)
    with pytest.raises(ValueError, match="received"):
        PcaStatistics.unpack(vector[:-1], layout)


PRIORS = {
    "learned": PcaPrior(GammaPrior(2.0, 1.0), GammaPrior(1.5, 0.5), GammaPrior(1.2, 0.7)),
    "fixed": PcaPrior(4.0, 0.5, 0.3),
    "located": PcaPrior(
        GammaPrior(2.0, 1.0),
        GammaPrior(1.5, 0.5),
        0.4,
        component_location=np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.0, 0.0]]),
        mean_location=np.array([1.0, 2.0, 0.0, -1.0]),
    ),
}


@pytest.mark.parametrize("prior", sorted(PRIORS))
@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_the_bound_has_all_its_constants(prior: str, covariance: str) -> None:
    """ELBO = E_q[log p(X, Z, W, mu, tau, alpha, theta) - log q], by Monte Carlo with scipy's densities."""
    if prior == "located" and covariance == "diag":
        pytest.skip("refused by the estimator")
    data = low_rank_shards([9], n_features=4, n_components=2, missing=0.2, seed=3)[0]
    chosen = PRIORS[prior]
    model = BayesianPCA(2, prior=chosen, covariance_type=covariance, tol=1e-9, random_state=0).fit(
        data
    )
    post, n_draws = model.posterior_, 20_000
    rng = np.random.default_rng(1)
    d, m = 4, 2
    rows = post.family()["rows"]
    w = rows.sample(rng, n_draws)
    log_q = rows.log_pdf(w).reshape(n_draws, -1).sum(1)
    z_mean, z_cov = post.latent(data)
    z = np.stack(
        [rng.multivariate_normal(a, c, n_draws) for a, c in zip(z_mean, z_cov, strict=True)], 1
    )
    for n in range(len(data)):
        log_q += stats.multivariate_normal(z_mean[n], z_cov[n]).logpdf(z[:, n])
    log_p = stats.norm.logpdf(z).sum((1, 2))

    def precision(
        kind: GammaPrior | float, mean: float, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draws of a precision, and log p - log q of them."""
        if not isinstance(kind, GammaPrior):
            return np.full(n_draws, kind), np.zeros(n_draws)
        shape = kind.shape + 0.5 * count
        draws = rng.gamma(shape, mean / shape, n_draws)
        ratio = stats.gamma.logpdf(draws, kind.shape, scale=1 / kind.rate)
        return draws, ratio - stats.gamma.logpdf(draws, shape, scale=mean / shape)

    total = log_p - log_q
    tau, ratio = precision(chosen.noise, post.noise_precision, int(np.isfinite(data).sum()))
    total += ratio
    location = np.zeros((d, m + 1))
    if chosen.component_location is not None:
        location[:, :m], location[:, m] = chosen.component_location, chosen.mean_location
    for k in range(m + 1):
        kind = chosen.components if k < m else chosen.mean
        alpha, ratio = precision(kind, post.column_precision[k], d)
        total += ratio
        total += stats.norm.logpdf(w[:, :, k], location[:, k], alpha[:, None] ** -0.5).sum(1)
    for n, x in enumerate(data):
        seen = np.isfinite(x)
        fit = np.einsum("sdk,sk->sd", w[:, seen, :m], z[:, n]) + w[:, seen, m]
        total += stats.norm.logpdf(x[seen], fit, tau[:, None] ** -0.5).sum(1)
    error = 5 * total.std() / np.sqrt(n_draws)
    assert abs(total.mean() - model.lower_bound_) < error + 1e-3


@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("fit_mean", [True, False])
def test_the_bound_never_gets_worse(covariance: str, missing: float, fit_mean: bool) -> None:
    data = np.concatenate(low_rank_shards([80], missing=missing))
    model = BayesianPCA(3, covariance_type=covariance, fit_mean=fit_mean, random_state=0, tol=1e-9)
    objective = model.fit(data).history_["objective"]
    assert (np.diff(objective) > -1e-8 * np.abs(objective[-1])).all()


@pytest.mark.parametrize(
    ("n", "d", "rank", "m", "noise", "missing"),
    [
        (60, 30, 3, 3, 0.5, 0.3),
        (24, 14, 2, 4, 0.1, 0.3),
        (40, 20, 3, 3, 0.5, 0.5),
        (24, 14, 4, 4, 0.5, 0.3),
    ],
)
def test_hard_cases_of_the_diagonal_model_converge(
    n: int, d: int, rank: int, m: int, noise: float, missing: float
) -> None:
    """Few samples, many features, many missing: where an unchecked expansion would cycle."""
    data = mask_at_random(make_low_rank(n, d, rank, noise=noise, seed=1).data, missing, seed=1)
    pooled = BayesianPCA(m, covariance_type="diag", tol=1e-9, random_state=0).fit(data)
    assert pooled.converged_
    objective = pooled.history_["objective"]
    assert (np.diff(objective) > -1e-9 * np.abs(objective[-1])).all()
    ring = BayesianPCA(m, covariance_type="diag", network=Network.ring(4), random_state=0).fit(data)
    assert ring.posterior_.distance(pooled.posterior_) < 1e-6
    usual = BayesianPCA(m, covariance_type="diag", random_state=0).fit(data)
    assert ring.n_iter_ == usual.n_iter_  # no choice of a step depends on rounding
    assert ring.posterior_.distance(usual.posterior_) < 1e-9


def fixed_point(covariance: str, missing: float, prior: PcaPrior, fit_mean: bool = True):
    """The model, its shard and its belief after many sweeps, in its own units."""
    data = np.concatenate(low_rank_shards([60], missing=missing))
    data = (data - np.nanmean(data, 0)) / np.nanstd(data)
    model = BayesianPcaModel(
        Layout(12, 3 + fit_mean, missing == 0),
        3,
        covariance,
        "shared",
        prior,  # type: ignore[arg-type]
    )
    shard = MaskedShard.of(data) if missing else CompleteShard.of(data, fit_mean)
    belief = model.begin(np.linalg.svd(np.nan_to_num(data))[2][:3].T, 4.0)
    for _ in range(400):
        own = model.local_step(shard, belief)
        old, belief = belief, model.absorb(own, own, belief).belief
        if model.change(belief, old) < 1e-14:
            break
    return model, shard, belief


@pytest.mark.parametrize("covariance", ["full", "diag"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize(
    ("fit_mean", "prior"),
    [
        (True, "vague"),
        (True, "learned"),
        (True, "fixed"),
        (False, "vague"),
        pytest.param(False, "learned", marks=pytest.mark.slow),
        pytest.param(False, "fixed", marks=pytest.mark.slow),
    ],
)
def test_expansion_is_the_identity_at_the_fixed_point(
    covariance: str, missing: float, fit_mean: bool, prior: str
) -> None:
    """Otherwise it would move it. The check that it can fail: one sweep earlier it is not."""
    chosen = PcaPrior() if prior == "vague" else PRIORS[prior]
    model, shard, belief = fixed_point(covariance, missing, chosen, fit_mean)
    own = model.local_step(shard, belief)
    after = model.absorb(own, own, belief).belief
    change = after.coordinates @ np.linalg.inv(belief.coordinates)
    np.testing.assert_allclose(change, np.eye(len(change)), atol=1e-7)
    plain = BayesianPcaModel(
        model.layout,
        3,
        covariance,
        "shared",
        chosen,
        expansion=False,  # type: ignore[arg-type]
    )
    fresh = belief_in_shared_coordinates(belief)
    own = plain.local_step(shard, fresh)
    step = plain.absorb(own, own, fresh).belief
    assert plain.change(step, fresh) < 1e-6


def belief_in_shared_coordinates(belief: PcaBelief) -> PcaBelief:
    from dataclasses import replace

    return replace(belief, coordinates=np.eye(len(belief.coordinates)))


def test_expansion_saves_most_sweeps() -> None:
    model, shard, _ = fixed_point("full", 0.0, PcaPrior())
    plain = BayesianPcaModel(model.layout, 3, expansion=False)
    counts = []
    for each in (model, plain):
        belief = each.begin(np.random.default_rng(0).normal(size=(12, 3)), 1.0)
        sweeps = 0
        while sweeps < 2000:
            sweeps += 1
            own = each.local_step(shard, belief)
            new = each.absorb(own, own, belief).belief
            done = each.change(new, belief) < 1e-8
            belief = new
            if done:
                break
        counts.append(sweeps)
    assert counts[0] * 10 < counts[1]


def test_scalar_coordinates_have_the_same_fixed_point() -> None:
    """The statistics of the paper's form, summed in one place, lead to the diagonal model's posterior."""
    model, shard, belief = fixed_point("diag", 0.3, PcaPrior())
    scalar = FactorisedPcaModel(
        model.layout, 3, "diag", "shared", PcaPrior(), expansion=False, prior_share=1.0
    )
    start = belief_in_shared_coordinates(belief)
    now = start
    for _ in range(300):
        own = scalar.local_step(shard, now)
        now = scalar.absorb(own, own, now).belief
    np.testing.assert_allclose(now.mean, start.mean, atol=2e-6)
    diagonal = np.diagonal(start.precision, axis1=-2, axis2=-1)
    np.testing.assert_allclose(np.diagonal(now.precision, axis1=-2, axis2=-1), diagonal, rtol=2e-6)


def test_rounding_of_a_sum_near_the_optimum_stays_rounding() -> None:
    """The diagonal model chooses among steps by the bound: not by its last bits, where nodes and pooled differ."""
    model, shard, belief = fixed_point("diag", 0.3, PcaPrior())
    # 1e-8 away from the optimum bounds differ by 1e-16
    near = replace(belief, mean=belief.mean * (1 + 1e-8))
    own = model.local_step(shard, near)
    rng = np.random.default_rng(0)
    means = []
    for _ in range(12):
        total = own * (1 + 1e-15 * rng.normal(size=own.shape))
        means.append(model.absorb(total, total, near).belief.mean)
    assert np.ptp(means, axis=0).max() < 1e-11


def test_a_step_out_of_the_domain_is_cut_short_and_counted() -> None:
    model, shard, belief = fixed_point("full", 0.0, PcaPrior())
    own = model.local_step(shard, belief)
    s = PcaStatistics.unpack(own, model.layout)
    wild = own - 3 * PcaStatistics(s.rows, 0 * s.linear, s.latent, 0, 0, 0, 0).pack(model.layout)
    absorbed = model.absorb(wild, own, belief)
    assert absorbed.limited
    assert np.linalg.eigvalsh(absorbed.belief.precision)[0] > 0
    assert not model.absorb(own, own, belief).limited


def test_spectral_start_finds_the_principal_subspace() -> None:
    data = np.concatenate(low_rank_shards([200]))
    mean = data.mean(0)
    basis = random_basis(12, 3, np.random.default_rng(0))
    shard = CompleteShard.of(data - mean, with_mean=True)
    basis = read_basis(shard.spread(basis), basis)
    start = read_start(shard.spread(basis), basis, 3)
    _, _, v = np.linalg.svd(data - mean, full_matrices=False)
    angles = np.linalg.svd(v[:3] @ np.linalg.qr(start.loadings)[0])[1]
    assert angles.min() > 0.999


def test_weak_starts_keep_their_columns() -> None:
    """With 80 % missing the spectral start is weak: ARD must not act before the columns are found."""
    data = mask_at_random(make_low_rank(200, 30, 4, noise=0.5, seed=0).data, 0.8, seed=0)
    bounds = [
        BayesianPCA(4, init=init, random_state=0).fit(data).lower_bound_
        for init in ("spectral", "random")
    ]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-7)


def staircase(seed: int, n: int = 60, d: int = 80, overlap: float = 0.22) -> np.ndarray:
    """Rank 3; each feature is seen for a while only, as points are by a moving camera."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.1 * rng.normal(size=(n, d))
    seen = np.abs(np.arange(n)[:, None] - np.arange(d) / d * n) < overlap * n
    return np.where(seen, data, np.nan)


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_extrapolated_sweeps_have_the_same_fixed_point(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far fewer sweeps where features are seen for a while only, and the bound never falls."""
    data = staircase(seed)
    fast = BayesianPCA(3, random_state=0).fit(data)
    monkeypatch.setattr(BayesianPcaModel, "memoryless", False)
    plain = BayesianPCA(3, random_state=0, tol=1e-9).fit(data)
    usual = BayesianPCA(3, random_state=0).fit(data)
    assert fast.n_rounds_ < 0.6 * usual.n_rounds_
    assert fast.posterior_.distance(plain.posterior_) < 1e-6
    bounds = fast.history_["objective"]
    assert np.diff(bounds).min() >= -1e-10 * abs(bounds[-1])
