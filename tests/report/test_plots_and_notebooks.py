"""Figures return Axes, take ``ax=``, and show what they say; notebooks show fits, networks and results."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dmfvi import (
    BayesianLogisticRegression,
    BayesianPCA,
    Network,
    RatingFactorization,
    StructureFromMotion,
    infer,
)
from dmfvi.datasets import (
    make_cube,
    make_low_rank,
    make_ratings,
    mask_at_random,
    split_ratings,
)
from dmfvi.models import PoissonGamma

plt = pytest.importorskip("matplotlib.pyplot")
plt.switch_backend("Agg")
TRUTH = make_low_rank(80, 6, n_components=2).data
TABLE = mask_at_random(TRUTH, rate=0.3)


@pytest.fixture(scope="module")
def fitted() -> BayesianPCA:
    return BayesianPCA(2, network=Network.ring(3), random_state=0).fit(TABLE)


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    plt.close("all")


def test_components_are_drawn_with_their_intervals(fitted: BayesianPCA) -> None:
    given = plt.subplots()[1]
    axes = fitted.plot_components(ax=given)
    assert axes is given
    assert "90% intervals" in axes.get_title()
    first = axes.containers[0].lines[0].get_ydata()
    np.testing.assert_allclose(first, fitted.components_[0])
    assert fitted.plot_components() is not given


def test_calibration_of_imputations_counts_what_lies_inside(fitted: BayesianPCA) -> None:
    axes = fitted.plot_calibration(TABLE, TRUTH)
    levels, held = axes.lines[1].get_data()
    low, high = fitted.impute_interval(TABLE, level=float(levels[-1]))
    gaps = np.isnan(TABLE)
    inside = (TRUTH[gaps] >= low[gaps]) & (TRUTH[gaps] <= high[gaps])
    assert held[-1] == pytest.approx(inside.mean())
    assert np.all(np.diff(held) >= 0)
    assert f"{gaps.sum():,} values" in axes.get_title()
    with pytest.raises(ValueError, match="no entry is missing in X"):
        fitted.plot_calibration(TRUTH, TRUTH)
    with pytest.raises(ValueError, match="truth must have the shape of X"):
        fitted.plot_calibration(TABLE, TRUTH[:5])


def test_calibration_of_ratings() -> None:
    train, test = split_ratings(make_ratings(4000).ratings)
    with pytest.warns(UserWarning, match="have no rating"):
        model = RatingFactorization(3, random_state=0).fit(train)
    axes = model.plot_calibration(*test)
    assert axes.lines[1].get_ydata()[-1] > 0.85


def test_a_structure_is_drawn_on_three_dimensional_axes() -> None:
    model = StructureFromMotion(random_state=0).fit(np.vstack(make_cube(seed=0).cameras))
    axes = model.plot_structure()
    assert axes.name == "3d"
    assert "ellipsoids" in axes.get_title()
    with pytest.raises(ValueError, match="3-D axes"):
        model.plot_structure(ax=plt.subplots()[1])


def test_a_notebook_shows_the_summary_of_a_fit(fitted: BayesianPCA) -> None:
    assert "evidence lower bound" not in BayesianPCA(2)._repr_html_()
    shown = fitted._repr_html_()
    assert "evidence lower bound" in shown
    assert "evidence lower bound" in fitted._repr_mimebundle_()["text/html"]
    labels = np.array(["<no>", "yes"])[(TRUTH[:, 0] > np.median(TRUTH[:, 0])).astype(int)]
    model = BayesianLogisticRegression().fit(TRUTH[:, :2], labels)
    assert "<no>" not in model._repr_html_()


@pytest.mark.parametrize("network", [Network.ring(5), Network.star(60), Network.chain(2)], ids=repr)
def test_a_notebook_draws_a_network(network: Network) -> None:
    shown = network._repr_html_()
    drawing = ET.fromstring(shown[: shown.index("</svg>") + 6])
    assert len(drawing.findall("circle")) == network.n_nodes
    assert len(drawing.findall("line")) == network.n_edges
    assert f"{network.n_nodes} nodes" in shown


def test_a_notebook_shows_results(fitted: BayesianPCA) -> None:
    result = infer(PoissonGamma(2), [np.ones((4, 2))] * 3, Network.ring(3))
    assert "<th>converged</th><td>yes</td>" in result._repr_html_()
    shown = fitted.uncertainty("location")._repr_html_()
    assert shown.count("<tr>") == 7
    assert "linear-response" in shown


def test_names_of_a_forest_plot_are_inside_the_figure() -> None:
    names = ["a name that is rather long", "short"]
    x = pd.DataFrame(TRUTH[:, :2], columns=names)
    model = BayesianLogisticRegression().fit(x, TRUTH[:, 0] > np.median(TRUTH[:, 0]))
    axes = model.plot_forest()
    axes.figure.canvas.draw()
    for label in axes.get_yticklabels():
        assert label.get_window_extent().x0 >= 0
    assert model.plot_forest(ax=axes) is axes
