"""Linear response: against closed forms, against refits with a tilted prior, over networks, and what it cannot do."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmfvi
from dmfvi import (
    BayesianGaussianMixture,
    BayesianLinearRegression,
    BayesianPCA,
    CategoricalHMM,
    Federation,
    GaussianHMM,
    Network,
)
from dmfvi.inference.response import Quantities, linear_response
from dmfvi.inference.session import Session
from dmfvi.models.pca.belief import GammaPrior, PcaPrior
from dmfvi.models.pca.derivative import PcaDerivative
from dmfvi.models.poisson_gamma import PoissonGamma

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(80, 2)) @ RNG.normal(size=(2, 5)) + 0.4 * RNG.normal(size=(80, 5)) + 2.0
GAPS = np.where(RNG.random(ROWS.shape) < 0.2, np.nan, ROWS)
TWO = np.concatenate([RNG.normal(-3.0, 1.0, (40, 2)), RNG.normal(3.0, 1.0, (60, 2))])
CHAIN = np.repeat([[-2.0], [2.0], [-2.0], [2.0]], 25, axis=0) + RNG.normal(size=(100, 1))
SYMBOLS = (CHAIN > 0).astype(int) + 2 * (RNG.random((100, 1)) < 0.3)

#: estimator, data, quantity
CASES: dict[str, tuple[Any, Any, str]] = {
    "pca location": (BayesianPCA(2), ROWS, "location"),
    "pca noise": (BayesianPCA(2), ROWS, "noise"),
    "pca covariance": (BayesianPCA(2), GAPS, "covariance"),
    "pca missing": (BayesianPCA(2), GAPS, "location"),
    "mixture means": (BayesianGaussianMixture(2), TWO, "means"),
    "mixture weights": (BayesianGaussianMixture(2, covariance_type="diag"), TWO, "weights"),
    "hmm means": (GaussianHMM(2), CHAIN, "means"),
    "hmm transitions": (GaussianHMM(2), CHAIN, "transitions"),
    "symbols": (CategoricalHMM(2, n_features=4), SYMBOLS, "emissions"),
}


def fitted(name: str, **settings: Any) -> Any:
    estimator, rows, _ = CASES[name]
    made = copy.deepcopy(estimator).set_params(tol=1e-10, random_state=0, **settings)
    return made.fit(rows)


@pytest.mark.parametrize("name", CASES)
def test_it_widens_what_mean_field_makes_too_narrow(name: str) -> None:
    model, quantity = fitted(name), CASES[name][2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        response = model.uncertainty(quantity)
        plain = model.uncertainty(quantity, method="mean-field")
    np.testing.assert_array_equal(response.mean, plain.mean)
    assert response.response.converged
    assert response.response.n_sums <= 60
    assert np.median(response.std / plain.std) > 1.0
    low, high = response.interval
    assert ((low < response.mean) & (response.mean < high)).all()
    eigenvalues = np.linalg.eigvalsh(response.covariance)
    assert eigenvalues[0] > -1e-6 * eigenvalues[-1]
    assert response.sample(7, random_state=0).shape == (7, *response.mean.shape)


@pytest.mark.parametrize("name", [n for n in CASES if "hmm" not in n and n != "symbols"])
@pytest.mark.parametrize("graph", [Network.ring(4), Network.star(5)], ids=str)
def test_every_node_finds_the_pooled_covariance(name: str, graph: Network) -> None:
    quantity = CASES[name][2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pooled = fitted(name).uncertainty(quantity)
        nodes = fitted(name, network=graph).uncertainty(quantity)
    scale = np.outer(pooled.std.ravel(), pooled.std.ravel())
    np.testing.assert_allclose(nodes.covariance / scale, pooled.covariance / scale, atol=1e-8)


def test_engines_give_the_same_bits() -> None:
    found = [
        fitted("pca missing", network=Federation(Network.ring(3), engine=engine))
        .uncertainty("location")
        .covariance.tobytes()
        for engine in ("local", "inproc")
    ]
    assert found[0] == found[1]


def test_the_location_of_pca_is_as_uncertain_as_the_data_make_it() -> None:
    model = fitted("pca location")
    exact = model.get_covariance() / len(ROWS)
    found = model.uncertainty("location").covariance
    np.testing.assert_allclose(np.diagonal(found), np.diagonal(exact), rtol=0.05)
    correlation = exact / np.sqrt(np.outer(np.diagonal(exact), np.diagonal(exact)))
    ours = found / np.sqrt(np.outer(np.diagonal(found), np.diagonal(found)))
    np.testing.assert_allclose(ours, correlation, atol=0.02)


def test_it_is_the_derivative_of_refits_with_a_tilted_prior() -> None:
    """A prior mean of the location shifts the natural parameter by its precision times the mean."""
    precision, shift = 1e-3, 100.0

    def fit(place: float) -> BayesianPCA:
        centre = np.zeros(5)
        centre[0] = place
        prior = PcaPrior(noise=GammaPrior(2.0, 1.0), mean=precision, mean_location=centre)
        return BayesianPCA(2, prior=prior, tol=1e-12, max_iter=20_000, random_state=0).fit(ROWS)

    moved = (fit(shift).mean_ - fit(-shift).mean_) / (2.0 * shift * precision)
    np.testing.assert_allclose(fit(0.0).uncertainty("location").covariance[0], moved, rtol=1e-4)


@pytest.mark.parametrize("rows", [ROWS, GAPS], ids=["complete", "missing"])
@pytest.mark.parametrize("noise", ["shared", "feature"])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_the_derivative_of_a_pca_sweep_is_that_of_its_steps(
    rows: np.ndarray, noise: Any, covariance_type: Any
) -> None:
    rng = np.random.default_rng(0)
    weight = np.linspace(0.5, 1.5, len(rows))
    settings: dict[str, Any] = {"noise": noise, "covariance_type": covariance_type}
    fit = BayesianPCA(2, tol=1e-10, random_state=0, **settings).fit(rows, sample_weight=weight)
    model, shard = fit._context.model.for_response(), fit._context.shards[0]
    belief = fit._belief
    total = model.statistics(shard, belief)
    here = model.belief_from(total, total, belief)
    moves = rng.normal(size=(2, len(total))) * np.abs(total)
    moves[:, model.layout.blocks[2]] = moves[:, -2:] = 0.0  # latent, samples and bound
    derivative = model.derivative(shard, here)
    products, changes = derivative.sweep(moves), derivative.expected(moves)
    for move, product, change in zip(moves, products, changes, strict=True):
        ahead, back = (model.belief_from(total + h * move, total, belief) for h in (1e-5, -1e-5))
        slope = (model.statistics(shard, ahead) - model.statistics(shard, back)) / 2e-5
        slope[model.layout.blocks[2]] = slope[-1] = 0.0
        np.testing.assert_allclose(product, slope, atol=1e-7 * np.abs(slope).max())
        slope = (model.expected(ahead) - model.expected(back)) / 2e-5
        np.testing.assert_allclose(change, slope, atol=1e-7 * np.abs(slope).max())


def test_rows_with_gaps_respond_alike_with_and_without_a_matrix_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    fit = BayesianPCA(2, random_state=0).fit(GAPS)
    model, shard = fit._context.model.for_response(), fit._context.shards[0]
    moves = rng.normal(size=(3, len(model.statistics(shard, fit._belief))))
    monkeypatch.setattr("dmfvi.models.pca.derivative.FEW_DIRECTIONS", 0)
    kept = model.derivative(shard, fit._belief).sweep(moves)
    monkeypatch.setattr("dmfvi.models.pca.derivative.MOST_NUMBERS", 0)
    made = model.derivative(shard, fit._belief).sweep(moves)
    assert not np.array_equal(kept, made)  # other orders of adding
    np.testing.assert_allclose(kept, made, atol=1e-12 * np.abs(made).max())


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_many_locations_cost_few_directions(
    missing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 2)) @ rng.normal(size=(2, 80)) + 0.5 * rng.normal(size=(150, 80))
    rows[rng.random(rows.shape) < missing] = np.nan
    model = BayesianPCA(2, random_state=0, tol=1e-8).fit(rows)
    widths: list[int] = []
    sweep = PcaDerivative.sweep

    def counted(self: PcaDerivative, directions: np.ndarray) -> np.ndarray:
        widths.append(len(directions))
        return sweep(self, directions)

    monkeypatch.setattr(PcaDerivative, "sweep", counted)
    few = model.uncertainty("location")
    assert sum(widths) < 20  # in all products with J, of 80 locations
    assert few.response.n_sums <= 8
    assert 0 < few.response.sketch_error < 0.01
    assert few.response.converged
    monkeypatch.setattr("dmfvi.inference.response.SKETCH_FROM", 1000)
    model._context.found.clear()
    every = model.uncertainty("location")
    assert every.response.sketch_error == 0.0
    np.testing.assert_allclose(few.std, every.std, rtol=0.005)
    assert few.response.n_sums <= 60


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_shifts_of_the_latent_coordinates_hardly_converge_and_are_taken_out(
    covariance_type: Any,
) -> None:
    """V (I - J) is symmetric, and a shift is nearly an eigenvector of J with eigenvalue one."""
    fit = BayesianPCA(2, tol=1e-10, covariance_type=covariance_type, random_state=0).fit(GAPS)
    model, shard = fit._context.model.for_response(), fit._context.shards[0]
    total = model.statistics(shard, fit._belief)
    belief = model.belief_from(total, total, fit._belief)
    derivative = model.derivative(shard, belief)
    slow = derivative.slow(total, model.named_tilts(belief, "location"))
    images = slow.directions - derivative.sweep(slow.directions)
    energies = slow.expected @ images.T
    np.testing.assert_allclose(energies, energies.T, atol=1e-9 * np.abs(energies).max())
    plain = slow.expected @ slow.directions.T
    assert np.linalg.eigvals(np.linalg.solve(plain, energies)).max() < 0.2
    tilts = model.tilts(belief, lambda moved: moved.mean[:, 0])
    assert derivative.slow(total, tilts) is None  # loadings do not move along shifts


@pytest.mark.parametrize("noise", ["shared", "feature"])
def test_every_node_finds_the_pooled_covariance_of_many_locations(noise: Any) -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 45)) + 0.5 * rng.normal(size=(60, 45))
    rows[rng.random(rows.shape) < 0.2] = np.nan
    settings: dict[str, Any] = {"noise": noise, "tol": 1e-9, "random_state": 0}
    pooled = BayesianPCA(2, **settings).fit(rows).uncertainty("location")
    assert pooled.response.sketch_error > 0
    nodes = BayesianPCA(2, network=Network.ring(4), **settings).fit(rows).uncertainty("location")
    scale = np.outer(pooled.std, pooled.std)
    np.testing.assert_allclose(nodes.covariance / scale, pooled.covariance / scale, atol=1e-8)


def test_the_location_with_own_noise_is_the_derivative_of_refits() -> None:
    """Every node has a noise level of its own, which follows from its rows and the shared loadings."""
    rng = np.random.default_rng(0)
    loadings, levels = rng.normal(size=(2, 5)), ((40, 0.3), (60, 1.0), (30, 2.0))
    sites = [
        rng.normal(size=(n, 2)) @ loadings + level * rng.normal(size=(n, 5)) for n, level in levels
    ]
    precision, shift = 1e-3, 100.0

    def fit(place: float) -> BayesianPCA:
        centre = np.array([place, 0.0, 0.0, 0.0, 0.0])
        prior = PcaPrior(noise=GammaPrior(2.0, 1.0), mean=precision, mean_location=centre)
        return BayesianPCA(
            2, noise="per_node", prior=prior, network=Network.ring(3), tol=1e-7, random_state=0
        ).fit(sites)

    moved = (fit(shift).mean_ - fit(-shift).mean_) / (2.0 * shift * precision)
    model = fit(0.0)
    found = model.uncertainty("location")
    np.testing.assert_allclose(found.covariance[0], moved, rtol=1e-4)
    for node in range(3):
        there = model.at_node(node).uncertainty("location").covariance
        np.testing.assert_allclose(there, found.covariance, rtol=1e-8)
    assert model.uncertain_quantities == ("location",)
    assert "location" in model.summary()
    with pytest.raises(ValueError, match="every node has its own"):
        model.uncertainty(lambda fitted: fitted.noise_variance_)


def test_closed_forms_are_left_unchanged() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + rng.normal(size=60)
    model = BayesianLinearRegression(tol=1e-10).fit(x, y)
    found = model.uncertainty(lambda fitted: fitted.coef_)
    np.testing.assert_allclose(
        found.covariance, found.response.mean_field_covariance, rtol=1e-9, atol=1e-12
    )
    session, counts = Session.open(None), [rng.poisson(3.0, size=(50, 2))]
    poisson = PoissonGamma(2)
    result = session.fit(poisson, counts, random_state=0)
    belief = result.beliefs[0]

    def rates(q: Any) -> np.ndarray:
        p = q.parameters()
        return np.asarray(p["shape"] / p["rate"])

    response = linear_response(
        session, poisson, counts, result.beliefs, Quantities(poisson.tilts(belief, rates), rates)
    )
    p = belief.parameters()
    np.testing.assert_allclose(
        np.diagonal(response.covariance), p["shape"] / p["rate"] ** 2, rtol=1e-8
    )
    np.testing.assert_allclose(response.covariance, response.mean_field_covariance, rtol=1e-9)


def test_overlapping_components_are_named() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(-1.3, 1.0, (300, 1)), rng.normal(1.3, 1.0, (300, 1))])
    model = BayesianGaussianMixture(2, n_init=1, random_state=0, tol=1e-8, max_iter=3000).fit(rows)
    with pytest.warns(UserWarning, match="components 0 and 1 overlap") as caught:
        found = model.uncertainty("means")
    assert found.notes == (str(caught[0].message),)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted("mixture means").uncertainty("means").notes == ()


def test_starts_that_disagree_are_pointed_out() -> None:
    """Two optima with nearly the same bound: one component for all rows, or two; all nodes say the same."""
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.normal(size=(30, 1)), rng.normal(size=(30, 1)) + 3.0])

    def notes(apart: float, n_init: int, network: Network | None = None) -> list[str]:
        moved = rows + apart * (np.arange(60)[:, None] >= 30)
        model = BayesianGaussianMixture(2, n_init=n_init, network=network, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model.fit(moved).uncertainty("means", method="mean-field").notes
        return [note for note in found if "starts ended in other optima" in note]

    assert len(notes(0.0, 6)) == 1
    assert notes(0.0, 6, Network.ring(3)) == notes(0.0, 6)
    assert not notes(0.0, 1)
    assert not notes(20.0, 6)


def test_what_cannot_be_known_is_refused(tmp_path: Path) -> None:
    model = fitted("pca location")
    with pytest.raises(ValueError, match=r"has no uncertainty of 'weights', it has \['covariance'"):
        model.uncertainty("weights")
    with pytest.raises(ValueError, match="method must be"):
        model.uncertainty("location", method="bootstrap")
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        model.uncertainty("location", level=90)
    with pytest.raises(ValueError, match="the quantity must be finite"):
        model.uncertainty(lambda fitted: np.array([np.nan]))
    nodes = fitted("pca location", network=Network.ring(3))
    np.testing.assert_array_equal(
        nodes.at_node(2).uncertainty("location").std, nodes.uncertainty("location").std
    )
    dmfvi.save(model, tmp_path / "model.npz")
    for gone in (dmfvi.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match="fit it to all data in this process"):
            gone.uncertainty("location")
    batches = BayesianPCA(2, random_state=0).fit(ROWS[:40])
    batches.partial_fit(ROWS[40:])
    with pytest.raises(ValueError, match="fitted in batches"):
        batches.uncertainty("location")
    moments = BayesianPCA(
        2,
        covariance_type="diag",
        network=Federation(Network.ring(3), consensus="moments-admm"),
        tol=1e-2,
        random_state=0,
    ).fit(ROWS)
    with pytest.raises(ValueError, match="do not follow from its belief"):
        moments.uncertainty("location")


@pytest.mark.slow
def test_intervals_cover_what_they_say() -> None:
    """Simulation-based calibration of the location of PCA with 30 rows: mean field covers less than 65 %."""
    held: dict[str, list[np.ndarray]] = {"mean-field": [], "linear-response": []}
    for seed in range(100):
        rng = np.random.default_rng(seed)
        location = 3.0 * rng.normal(size=5)
        precision = rng.gamma(5.0, 1.0)
        noise = rng.normal(size=(30, 5)) / np.sqrt(precision)
        rows = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 5)) + location + noise
        prior = PcaPrior(
            noise=GammaPrior(5.0, 1.0), components=1.0, mean=1 / 9, mean_location=np.zeros(5)
        )
        model = BayesianPCA(2, prior=prior, tol=1e-8, random_state=0).fit(rows)
        for method, found in held.items():
            low, high = model.uncertainty("location", method=method).interval
            found.append((low <= location) & (location <= high))
    assert np.mean(held["mean-field"]) < 0.65
    assert 0.86 < np.mean(held["linear-response"]) < 0.94


def test_a_function_that_ignores_the_posterior_is_pointed_out() -> None:
    data = np.random.default_rng(0).normal(size=(60, 3))
    model = dmfvi.BayesianGaussianMixture(1, random_state=0).fit(data)
    with pytest.warns(UserWarning, match="does not depend on the posterior"):
        found = model.uncertainty(lambda _: model.means_[0])
    assert not found.std.any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.uncertainty(lambda fitted: fitted.means_[0]).std.all()


def test_coefficients_of_regressions_are_left_as_they_are(tmp_path: Path) -> None:
    """Their posterior is joint already: deviations are those of the table, also after load."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    counts = rng.poisson(np.exp(x[:, 0]))
    for model in (
        dmfvi.BayesianLinearRegression().fit(x, counts),
        dmfvi.GeneralizedLinearModel(family="poisson").fit(x, counts),
        dmfvi.BayesianLogisticRegression(network=Network.ring(3)).fit(x, counts > 1),
    ):
        loaded = dmfvi.load(dmfvi.save(model, tmp_path / "model.npz"))
        table = [row.sd for row in model.coefficient_table().rows[:3]]
        for fitted in (model, loaded):
            found = fitted.uncertainty("coef")
            np.testing.assert_allclose(found.std.ravel(), table, rtol=1e-9)
            assert found.response.n_sums == 0
    three = dmfvi.BayesianLogisticRegression().fit(x, np.arange(60) % 3)
    with pytest.raises(ValueError, match="coefficients of 3 classes"):
        three.uncertainty("coef")


def test_a_bound_that_is_over_confident_is_corrected() -> None:
    """Polya-Gamma treats coefficients as independent of a local variable: linear response widens them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = rng.random(200) < 1 / (1 + np.exp(-(0.3 + 3 * x[:, 0] - 2 * x[:, 1])))
    bound = dmfvi.BayesianLogisticRegression(approximation="polya-gamma").fit(x, y)
    best = dmfvi.BayesianLogisticRegression().fit(x, y)
    narrow = bound.uncertainty("coef", method="mean-field").std
    wide, right = bound.uncertainty("coef").std, best.uncertainty("coef").std
    assert (narrow < 0.7 * right).all()
    np.testing.assert_allclose(wide, right, rtol=0.1)
    learned = dmfvi.GeneralizedLinearModel(family="bernoulli", prior_precision="learned").fit(x, y)
    with pytest.raises(ValueError, match="is not known here"):
        learned.uncertainty("coef")
