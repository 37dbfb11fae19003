"""Pictures of a report: what they name, what they leave out, and that they say so."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from dmfvi import (
    BayesianGaussianMixture,
    BayesianLogisticRegression,
    BayesianPCA,
    Federation,
    KaplanMeier,
    LatentDirichletAllocation,
    Network,
    RatingFactorization,
    StructureFromMotion,
)
from dmfvi.datasets import make_cube, make_ratings
from dmfvi.report.densities import densities
from dmfvi.report.factor_pictures import components, items, structure
from dmfvi.report.forest import coefficients
from dmfvi.report.group_pictures import LEAST_WEIGHT, clusters, topics
from dmfvi.report.html import doubts, in_words, page
from dmfvi.report.network_figure import network_picture
from dmfvi.report.posterior_pictures import posterior_pictures, table_of
from dmfvi.report.run_pictures import run_pictures
from dmfvi.report.structure_figure import long_axes
from estimator_cases import CASES

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 2)) @ RNG.normal(size=(2, 5)) + 0.2 * RNG.normal(size=(60, 5))


def test_coefficients_of_classes_have_their_names_and_lines_of_their_own() -> None:
    frame = pd.DataFrame(
        ROWS[:, :3], columns=["age", "bmi", "a name that is far too long to be shown"]
    )
    kinds = np.array(["low", "middle", "high"])[np.digitize(ROWS[:, 0], [-0.5, 0.5])]
    model = BayesianLogisticRegression().fit(frame, kinds)
    (drawn,) = coefficients(model)
    assert [curve.name for curve in drawn.figure.data] == list(model.classes_)
    heights = np.array([curve.y for curve in drawn.figure.data])
    assert len(np.unique(np.round(heights, 6))) == 9
    shown = drawn.figure.layout.yaxis.ticktext
    assert shown[:2] == ("age", "bmi")
    assert len(shown[2]) < 30
    assert "a name that is far too long to be shown" in drawn.figure.data[0].text[2]


def test_many_coefficients_make_a_taller_picture_and_the_rest_is_counted() -> None:
    x = np.random.default_rng(0).normal(size=(200, 70))
    (many,) = coefficients(BayesianLogisticRegression().fit(x, x[:, 0] > 0))
    (few,) = coefficients(BayesianLogisticRegression().fit(x[:, :3], x[:, 0] > 0))
    assert many.height > 60 * 20 > few.height
    assert "The first 60 of 70." in many.caption


def test_every_term_of_a_topic_is_labelled() -> None:
    words = [f"word{n}" for n in range(30)]
    counts = pd.DataFrame(np.random.default_rng(0).poisson(1.0, size=(40, 30)) + 0.0, columns=words)
    model = LatentDirichletAllocation(3, random_state=0, max_iter=500).fit(counts)
    (drawn,) = topics(model)
    axis = drawn.figure.layout.yaxis
    assert len(axis.ticktext) == len(axis.tickvals) == 24
    assert list(axis.ticktext[:8]) == [words[k] for k in np.argsort(-model.topic_word_[0])[:8]]
    assert drawn.height > 24 * 15  # a line of text is 15 pixels


def test_components_without_rows_are_hidden_and_counted() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(-4, 1, (60, 2)), rng.normal(4, 1, (60, 2))])
    model = BayesianGaussianMixture(4, random_state=0).fit(rows)
    empty = int((model.weights_ < LEAST_WEIGHT).sum())
    assert empty > 0
    (drawn,) = clusters(model)
    hidden = [curve.name for curve in drawn.figure.data if curve.visible == "legendonly"]
    assert len(hidden) == 2 * empty  # an ellipse and its centre
    assert f"{empty} of 4 with a weight below 1% are hidden" in drawn.caption


def test_a_mixture_of_pca_has_ellipses() -> None:
    model = CASES["mixture-of-pca"].local()
    drawn = next(clusters(model))
    ellipse = np.array([drawn.figure.data[0].x, drawn.figure.data[0].y])
    loadings, noise = model.components_[0][:, :2], model.noise_variance_[0]
    covariance = loadings.T @ loadings + noise * np.eye(2)
    off = np.linalg.solve(np.linalg.cholesky(covariance), ellipse - model.means_[0, :2, None])
    np.testing.assert_allclose((off**2).sum(0), 4.605, rtol=1e-6)  # 90 % of a normal in the plane


@pytest.mark.parametrize("kind", ["latent-dirichlet-allocation", "structure-from-motion"])
def test_a_posterior_without_a_table_has_densities_of_draws(kind: str) -> None:
    model = CASES[kind].local()
    assert table_of(model) is None
    (drawn,) = densities(model, None)
    assert "draws of the fitted posterior" in drawn.caption
    for curve in drawn.figure.data:
        assert np.trapezoid(curve.y, curve.x) == pytest.approx(1.0, abs=0.02)
    first = drawn.figure.data[0]
    mean = np.trapezoid(np.array(first.x) * first.y, first.x)
    if kind == "structure-from-motion":
        assert first.name == "structure 0 x"
        assert abs(mean - model.structure_[0, 0]) < model.structure_cov_[0, 0, 0] ** 0.5
    else:
        assert mean == pytest.approx(model.topic_word_.max(), rel=0.1)


def test_point_estimates_and_survival_curves_have_no_densities() -> None:
    for model in (
        CASES["ppca"].local(),
        KaplanMeier().fit(np.random.default_rng(0).exponential(size=30), np.ones(30)),
    ):
        assert not [*densities(model, None)]


def test_needles_of_a_structure_are_as_long_as_their_ellipsoids() -> None:
    model = StructureFromMotion(random_state=0).fit(make_cube().hidden)
    (drawn,) = structure(model)
    lines = drawn.figure.data[2]
    ends = np.array([lines.x, lines.y, lines.z], dtype=float).T.reshape(-1, 3, 3)
    assert np.isnan(ends[:, 2]).all()
    half = 0.5 * np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    widest = np.sqrt(np.linalg.eigvalsh(model.structure_cov_)[:, -1])
    assert np.ptp(half / widest) < 1e-3 * (half / widest).mean()
    inside = long_axes(np.zeros((1, 3)), np.eye(3)[None], 0.9)[0]
    assert np.linalg.norm(inside) == pytest.approx(6.2514**0.5, rel=1e-3)  # chi-squared with 3


def test_features_that_are_left_out_are_counted() -> None:
    model = BayesianPCA(2, random_state=0).fit(np.random.default_rng(0).normal(size=(90, 70)))
    first = next(components(model))
    assert len(first.figure.data[0].x) == 60
    assert "The first 60 of 70 features." in first.caption


def test_the_outermost_items_are_named() -> None:
    made = make_ratings(1500, n_users=100, n_items=40, rank=2, seed=0).ratings.tocoo()
    model = RatingFactorization(3, max_iter=3, random_state=0).fit((made.row, made.col, made.data))
    drawn = next(items(model))
    named = {note.text for note in drawn.figure.layout.annotations}
    assert 4 <= len(named) <= 8
    furthest = np.argmax(drawn.figure.data[0].x)
    assert drawn.figure.data[0].text[furthest].partition(":")[0] in named


def test_the_bound_is_also_on_a_log_axis() -> None:
    model = BayesianPCA(2, random_state=0).fit(ROWS)
    bound = next(p for p in run_pictures(model) if p.title == "Evidence lower bound")
    value, below = bound.figure.data
    assert below.visible is False
    assert min(below.y) > 0
    assert value.y[0] + below.y[0] == pytest.approx(value.y[-1])
    (menu,) = bound.figure.layout.updatemenus
    assert [button.args[1]["yaxis.type"] for button in menu.buttons] == ["linear", "log"]
    assert "%{y:.8g} nats" in value.hovertemplate


def test_the_tolerance_is_in_the_picture_of_convergence() -> None:
    first = next(run_pictures(BayesianPCA(2, random_state=0, tol=1e-7).fit(ROWS)))
    assert [curve.name for curve in first.figure.data] == ["change", "tol"]
    assert set(first.figure.data[1].y) == {1e-7}
    assert first.figure.layout.showlegend


@pytest.fixture(scope="module")
def unfinished() -> Any:
    with pytest.warns(UserWarning, match="not converged"):
        return BayesianPCA(
            2, max_iter=2, tol=1e-12, random_state=0, network=Network.grid(2, 3)
        ).fit(ROWS)


def test_an_unfinished_fit_is_told_in_words_and_without_deviations_of_zero(unfinished: Any) -> None:
    assert "Every node holds the same numbers, to the last bit." in in_words(unfinished)
    assert "that of one machine" not in in_words(unfinished)
    assert "0.0e+00" not in in_words(unfinished) + doubts(unfinished)[0]
    assert doubts(unfinished)[0].endswith("Raise max_iter and fit again.")
    deviations = np.array([row.sd for row in table_of(unfinished).rows])
    assert not (deviations == 0).any()
    head, *cells = table_of(unfinished).cells()
    for row, deviation in zip(cells, deviations, strict=True):
        assert (row[head.index("sd")] == "") == np.isnan(deviation)
    drawn = [p for p in posterior_pictures(unfinished) if p.title == "Posterior densities"]
    for curve in drawn[0].figure.data:
        assert np.isfinite(curve.x).all()


@pytest.mark.parametrize("engine", ["local", "inproc"])
def test_inputs_tell_how_nodes_agreed(engine: str) -> None:
    where = Federation(Network.ring(3), consensus="bregman-admm", engine=engine)
    text = page(BayesianPCA(1, network=where, random_state=0).fit(ROWS), [], "fit")
    for cell in ("ring of 3", "bregman-admm", engine):
        assert f"<td>{cell}</td>" in text
    assert "<td>engine</td>" not in page(BayesianPCA(1, random_state=0).fit(ROWS), [], "fit")


@pytest.mark.parametrize(
    "network",
    [
        Network.grid(2, 3),
        Network.grid(3, 4),
        Network.grid(4, 5),
        Network.star(6),
        Network.chain(20),
        Network.ring(12),
    ],
    ids=lambda n: n.name,
)
def test_linked_nodes_are_drawn_beside_each_other(network: Network) -> None:
    places = network._positions()

    def apart(pairs: Any) -> list[float]:
        return [float(np.linalg.norm(places[a] - places[b])) for a, b in pairs]

    linked = apart(network.edges)
    # the ends of the chain, which have no link, are further from each other than neighbours
    assert max(linked) < 1.05 * min(apart(nx.non_edges(network.graph)))


def test_nodes_whose_eigenvectors_are_equal_are_drawn_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leaves_at_one_place(graph: Any) -> dict[int, Any]:  # eigenvalues of a star are multiple
        return {n: np.array([1.0, 0.0]) if n else np.zeros(2) for n in graph}

    monkeypatch.setattr(nx, "spectral_layout", leaves_at_one_place)
    places = np.array([at for _, at in sorted(Network.star(6)._positions().items())])
    assert (
        np.linalg.norm(places[1:, None] - places[None, 1:], axis=2)[~np.eye(5, dtype=bool)].min()
        > 0.5
    )


def test_names_of_nodes_are_beside_their_links() -> None:
    model = BayesianPCA(1, random_state=0, network=Network.chain(4)).fit(ROWS)
    (drawn,) = network_picture(model)
    nodes = drawn.figure.data[1]
    sides = {"left": -1, "right": 1, "center": 0}, {"bottom": -1, "top": 1, "middle": 0}
    places = model.network._positions()
    for node, said in enumerate(nodes.textposition):
        up, across = said.split()
        to_name = np.array([sides[0][across], sides[1][up]])
        links = np.mean(
            [places[other] - places[node] for other in model.network.graph[node]], axis=0
        )
        assert to_name @ links < 0
    assert drawn.caption.startswith("Chain of 4: 4 nodes, 3 links.")
    assert [b.label for b in drawn.figure.layout.updatemenus[0].buttons] == ["Play", "Pause"]
