"""Figures of fitted estimators: Axes in, Axes out."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")

from matplotlib.figure import Figure

from dmfvi import BayesianPCA, Network

ROWS = np.random.default_rng(0).normal(size=(40, 4))


def test_convergence_and_network_are_drawn_on_given_axes() -> None:
    model = BayesianPCA(2, network=Network.ring(4), random_state=0).fit(ROWS)
    first, second = Figure().subplots(1, 2)
    assert model.plot_convergence(ax=first) is first
    assert model.plot_network(ax=second) is second
    assert first.get_xlabel() == "message round"
    assert first.get_yscale() == "log"
    last = first.lines[0].get_ydata()[-1]
    assert last == pytest.approx(model.history_["change"][-1])
    assert model.plot_convergence() is not first


def test_what_cannot_be_drawn_is_refused_and_doubts_are_in_the_picture() -> None:
    with pytest.raises(ValueError, match="was fitted on one machine"):
        BayesianPCA(2, random_state=0).fit(ROWS).plot_network()
    with pytest.warns(UserWarning, match="not converged"):
        model = BayesianPCA(2, max_iter=2, tol=1e-14, random_state=0).fit(ROWS)
    assert "NOT converged" in model.plot_convergence(Figure().subplots()).get_title()


def test_one_machine_counts_sweeps() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 3))
    for network, unit in ((None, "sweep"), (Network.ring(3), "message round")):
        model = BayesianPCA(1, random_state=0, network=network).fit(rows)
        assert model.plot_convergence(Figure().subplots()).get_xlabel() == unit
