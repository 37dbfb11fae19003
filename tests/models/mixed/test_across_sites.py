"""Groups whose rows lie at several sites: the posterior of one machine that has all rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import dmfvi
from cli_run import dmfvi_command
from dmfvi import MixedModel, Network
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.models.laplace import LaplaceBelief
from dmfvi.models.mixed import across_sites
from dmfvi.models.mixed.group_modes import Search, advance


def visits(family: str, n: int = 90, n_groups: int = 7) -> Any:
    """Rows, targets, patients, and the rows of three sites: patient 0 is at one site only, the last site has one row of patient 1."""
    rng = np.random.default_rng(3)
    group = rng.integers(0, n_groups, n)
    x = rng.normal(size=(n, 1))
    eta = 0.5 * x[:, 0] + 0.8 * rng.normal(size=n_groups)[group]
    y = {
        "gaussian": eta + 0.5 * rng.normal(size=n),
        "bernoulli": (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int),
        "poisson": rng.poisson(np.exp(eta)),
    }[family]
    site = rng.integers(0, 2, n)
    site[group == 0] = 0
    site[np.flatnonzero(group == 1)[0]] = 2
    return x, y, group, [np.flatnonzero(site == s) for s in range(3)]


def cut(whole: np.ndarray, parts: list[np.ndarray]) -> list[np.ndarray]:
    return [whole[rows] for rows in parts]


def compare(family: str, tmp_path: Path, **settings: Any) -> MixedModel:
    x, y, group, parts = visits(family)
    pooled = MixedModel(family=family, **settings).fit(x, y, groups=group)
    model = MixedModel(family=family, network=Network.chain(3), across_sites=True, **settings).fit(
        cut(x, parts), cut(y, parts), groups=cut(group, parts)
    )
    assert model.converged_
    assert model.n_groups_ == pooled.n_groups_ == 7
    assert max(q.distance(pooled.posterior_) for q in model.node_posteriors_) < 1e-9
    assert len({q.agreed.pack().tobytes() for q in model.node_posteriors_}) == 1
    assert model.lower_bound_ == pytest.approx(pooled.lower_bound_, rel=1e-9)
    known = pooled.random_effects()
    for node, rows in enumerate(parts):
        effects = model.random_effects(node)
        assert set(effects) == set(group[rows].tolist())
        for label, effect in effects.items():
            np.testing.assert_allclose(effect, known[label], rtol=1e-7, atol=1e-9)
    assert {type(belief) for belief in (model._belief, *model._node_beliefs)} == {LaplaceBelief}
    dmfvi.save(model, tmp_path / "model.npz")
    loaded = dmfvi.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    assert loaded.score(x, y) == model.score(x, y)
    with pytest.raises(ValueError, match="not in files"):
        loaded.random_effects()
    return model


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
def test_sites_have_the_posterior_of_one_machine(family: str, tmp_path: Path) -> None:
    compare(family, tmp_path, approximation="laplace")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson"])
@pytest.mark.parametrize("slopes", [(), ("x0",)])
def test_moments_and_slopes_too(family: str, slopes: tuple[str, ...], tmp_path: Path) -> None:
    compare(family, tmp_path, random_slopes=slopes)


def test_moments_are_those_of_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmfvi.models.moments.STAGES", (64, 256))
    monkeypatch.setattr("dmfvi.models.moments.LEAST_DRAWS", 20.0)
    model = compare("bernoulli", tmp_path)
    assert np.isfinite(model.n_effective_draws_)


def test_no_sum_of_draws_has_more_numbers_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, group, parts = visits("bernoulli")
    sizes: list[int] = []
    given = cut(x, parts), cut(y, parts), cut(group, parts)
    monkeypatch.setattr("dmfvi.models.moments.STAGES", (64, 256))
    monkeypatch.setattr("dmfvi.models.moments.LEAST_DRAWS", 20.0)
    model = MixedModel(family="bernoulli", across_sites=True, network=Network.chain(3))
    whole = model.fit(*given).posterior_
    values = across_sites.SharedEffects.agreed_values

    def counted(self: Any, *given: Any) -> Any:
        asked, answer = values(self, *given), None
        while True:
            try:
                vector = asked.send(answer)
            except StopIteration as end:
                return end.value
            sizes.append(vector.size)
            answer = yield vector

    monkeypatch.setattr(across_sites.SharedEffects, "agreed_values", counted)
    monkeypatch.setattr(across_sites, "MOST_NUMBERS", 5000)
    assert model.fit(*given).posterior_.distance(whole) < 1e-12
    assert 2500 < max(sizes) <= 5000


def test_nodes_by_themselves_and_the_shell_take_it(make_cluster: Any, tmp_path: Path) -> None:
    x, y, group, parts = visits("gaussian", 60, 5)
    table = np.column_stack([x, y, group]).astype(float)
    settings = ModelSettings.of(
        "mixed-model", across_sites=True, approximation="laplace", target=2, groups=3
    )
    cluster = make_cluster(tmp_path, Network.ring(3), cut(table, parts), model=settings)
    cluster.start_all()
    cluster.wait()
    expected = MixedModel(approximation="laplace").fit(x, y, group)
    for node in range(3):
        assert cluster.saved(node).n_groups_ == 5
        assert cluster.saved(node).posterior_.distance(expected.posterior_) < 1e-9
    files = []
    for site, rows in enumerate(parts):
        files.append(tmp_path / f"site{site}.csv")
        np.savetxt(files[-1], table[rows], delimiter=",", header="x,y,patient", comments="")
    words = ["fit", *files, "--model", "mixed-model", "--formula", "y ~ x", "--groups", "patient"]
    given = ["across_sites=true", "approximation=laplace"]
    said = dmfvi_command(*words, *(w for v in given for w in ("--set", v)), "--out", tmp_path / "m")
    assert said.code == 0, said.err
    assert dmfvi.load(tmp_path / "m").posterior_.distance(expected.posterior_) < 1e-9


def test_a_step_is_full_and_halved_only_in_the_group_that_fell() -> None:
    # a gaussian group, log p = -(z - 50)^2 3 / 2, whose step is exact, and a poisson one of a count of 400
    def sums(z: np.ndarray) -> tuple[np.ndarray, ...]:
        rate = np.exp(z[1, 0])
        logs = np.array([-1.5 * (z[0, 0] - 50.0) ** 2, 400.0 * z[1, 0] - rate])
        pulls = np.array([[3.0 * (50.0 - z[0, 0])], [400.0 - rate]])
        return logs, pulls, np.array([[[3.0]], [[rate]]])

    search = Search.at(np.zeros((2, 1)))
    first = advance(search, *sums(search.positions))
    np.testing.assert_allclose(first.search.positions[:, 0], [37.5, 199.5])
    second = advance(first.search, *sums(first.search.positions))
    np.testing.assert_allclose(second.search.positions[:, 0], [37.5, 99.75])
    assert second.lengths[0] < 1e-12
    assert np.isinf(second.lengths[1])
    found, count = second, 2
    while found.lengths.max() > 1e-9:
        found, count = advance(found.search, *sums(found.search.positions)), count + 1
    assert count < 20
    z = found.search.positions[1, 0]
    assert 400.0 - np.exp(z) - z == pytest.approx(0.0, abs=1e-7)


def test_sums_that_are_not_finite_lead_back_to_zero_and_stop_there() -> None:
    search, nothing = Search.at(np.array([[8.0], [0.0]])), np.full((2, 1), np.nan)
    found = advance(search, nothing[:, 0], nothing, nothing[..., None])
    np.testing.assert_array_equal(found.search.positions, [[4.0], [0.0]])
    assert found.stuck.tolist() == [False, True]


@pytest.mark.parametrize("case", ["little noise", "many rows", "wide counts"])
def test_modes_far_from_zero_are_reached(case: str) -> None:
    rng = np.random.default_rng(1)
    n, n_groups = {"many rows": (4000, 4)}.get(case, (120, 6))
    group, x = np.arange(n) % n_groups, rng.normal(size=(n, 1))
    parts = np.split(np.arange(n), [n // 3, 2 * n // 3])
    noise = 0.5 if case == "many rows" else 0.05
    eta = 0.5 * x[:, 0] + rng.normal(size=n_groups)[group]
    y = eta + noise * rng.normal(size=n)
    family = "poisson" if case == "wide counts" else "gaussian"
    if family == "poisson":
        y = rng.poisson(np.exp(np.linspace(-2, 7, n_groups)[group]))
    pooled = MixedModel(family=family, approximation="laplace").fit(x, y, groups=group)
    model = MixedModel(
        family=family, approximation="laplace", network=Network.chain(3), across_sites=True
    ).fit(cut(x, parts), cut(y, parts), groups=cut(group, parts))
    assert model.converged_
    assert model.n_iter_ <= 3 * pooled.n_iter_
    assert model.posterior_.distance(pooled.posterior_) < 1e-9
    for label, effect in pooled.random_effects().items():
        np.testing.assert_allclose(model.random_effects(0)[label], effect, rtol=1e-6, atol=1e-7)


def test_modes_that_are_not_reached_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, group, parts = visits("poisson")
    given = cut(x, parts), cut(y, parts), cut(group, parts)
    monkeypatch.setattr(across_sites, "STEPS", 2)
    with pytest.raises(ValueError, match="groups with rows at several sites have no mode"):
        MixedModel(family="poisson", across_sites=True, network=Network.ring(3)).fit(*given)


def test_too_many_numbers_and_contradictions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, group, parts = visits("gaussian")
    given = cut(x, parts), cut(y, parts), cut(group, parts)
    with pytest.raises(ValueError, match="choose one of them"):
        MixedModel(nested=True, across_sites=True, network=Network.ring(3)).fit(*given)
    monkeypatch.setattr(across_sites, "MOST_NUMBERS", 1000)
    with pytest.raises(ValueError, match=r"6 groups lie at several sites.*at most 1,000"):
        MixedModel(across_sites=True, network=Network.ring(3)).fit(*given)
    with pytest.raises(ValueError, match="across_sites=True"):
        MixedModel(network=Network.ring(3)).fit(*given)


def test_shared_groups_of_one_class_have_the_posterior_of_one_machine() -> None:
    """The effects' deviation is far beyond the largest usual one: the quadrature is less exact there, which is said."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(20), 6)
    x = rng.normal(size=(120, 1))
    effects = 10.0 * rng.normal(size=20)[group]
    y = (rng.random(120) < 1 / (1 + np.exp(-(effects + 0.5 * x[:, 0])))).astype(float)
    site = np.arange(120) % 2
    parts = [[v[site == k] for k in (0, 1)] for v in (x, y, group)]
    pooled = MixedModel(family="bernoulli").fit(x, y, group)
    model = MixedModel(family="bernoulli", across_sites=True, network=Network.chain(2))
    with pytest.warns(UserWarning, match="too few quadrature points"):
        model.fit(*parts)
    one, other = pooled.posterior_.parameters(), model.posterior_.parameters()
    deviation = np.sqrt(np.diag(one["covariance"]))
    assert np.abs((other["mean"] - one["mean"]) / deviation).max() < 0.02
    np.testing.assert_allclose(np.sqrt(np.diag(other["covariance"])), deviation, rtol=0.02)


def test_a_search_over_an_edge_ends() -> None:
    """Log density n min(0, a z) - z^2 / 2, rounded off at zero: full steps lead far to the other side again and again."""
    search, size = Search.at(np.full((1, 1), -3.0)), 1e6
    lengths = []
    while not lengths or lengths[-1] > 1e-8:
        z = search.positions[:, 0]
        share = expit(-size * z)
        curve = 6.0 * size**2 * share * (1.0 - share)
        found = advance(
            search,
            -6.0 * np.logaddexp(0.0, -size * z),
            (6.0 * size * share)[:, None],
            curve[:, None, None],
        )
        search = found.search
        lengths.append(found.lengths[0])
        assert len(lengths) < 100
