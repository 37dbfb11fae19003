"""The report: what it says, and that it needs nothing else."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmfvi import (
    BayesianGaussianMixture,
    BayesianLogisticRegression,
    BayesianPCA,
    GaussianHMM,
    KaplanMeier,
    MixedModel,
    Network,
    RatingFactorization,
    StructureFromMotion,
)
from dmfvi.cli import main
from dmfvi.datasets import make_cube, make_ratings
from dmfvi.models import ESTIMATORS
from dmfvi.report.densities import density_of
from dmfvi.report.factor_pictures import components, items, structure
from dmfvi.report.group_pictures import states_over_time
from dmfvi.report.html import doubts, in_words, page, write_report
from dmfvi.report.network_figure import network_picture
from dmfvi.report.posterior_pictures import posterior_pictures, table_of
from dmfvi.report.run_pictures import run_pictures
from dmfvi.storage import load, save
from dmfvi.summary_table import Row
from estimator_cases import CASES

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 2)) @ RNG.normal(size=(2, 5)) + 0.2 * RNG.normal(size=(60, 5))


def pca(**settings: Any) -> BayesianPCA:
    return BayesianPCA(3, random_state=0, network=Network.ring(4), **settings).fit(ROWS)


@pytest.mark.parametrize("kind", sorted(CASES))
def test_every_estimator_has_a_report(kind: str, tmp_path: Path) -> None:
    model = CASES[kind].local()
    text = write_report(model, tmp_path / "report.html").read_text()
    assert type(model).__name__ in ESTIMATORS
    first = in_words(model).split(".")[0]
    assert first in text
    assert re.search(r", [\d,]+ (rows|points|ratings|documents)\b", first), first
    assert len(text) < 6_000_000
    for figure in re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL
    ):
        assert "NaN" not in figure


def test_it_says_what_was_run_and_the_answer() -> None:
    words = in_words(pca())
    begin = "4 nodes (ring of 4), 60 rows, together fitted a BayesianPCA. It converged after"
    assert words.startswith(begin)
    assert "to the last bit" in words
    assert re.search(r"exchanged [\d.]+ kB of statistics in \d+ rounds, and no data", words)


def test_doubts_come_first() -> None:
    with pytest.warns(UserWarning, match="not converged"):
        model = BayesianPCA(2, max_iter=1, tol=1e-12, random_state=0).fit(ROWS)
    model.missing_ = [{"node": 3, "why": "silent", "since": "2027-01-01T00:00:00+00:00"}]
    found = doubts(model)
    assert found[0].startswith("NOT converged")
    assert "data of node 3 are not in this result (silent since 2027" in found[1]
    text = page(model, [], "a <b> & c")
    assert text.index("NOT converged") < text.index("Settings")
    assert "a &lt;b&gt; &amp; c" in text


def test_pictures_follow_what_was_learned() -> None:
    rng = np.random.default_rng(0)

    def titles(model: Any) -> list[str]:
        drawn = [*posterior_pictures(model), *run_pictures(model), *network_picture(model)]
        return [picture.title for picture in drawn]

    how = ["Convergence", "Evidence lower bound", "Bytes sent"]
    learned = ["Components", "Strength of the components", "Posterior densities"]
    assert titles(pca()) == [*learned, *how, "Network"]
    two = np.concatenate([rng.normal(-3, 1, (30, 2)), rng.normal(3, 1, (30, 2))])
    mixture = BayesianGaussianMixture(2, random_state=0).fit(two)
    assert titles(mixture)[0] == "Components"
    x = rng.normal(size=(60, 3))
    logistic = BayesianLogisticRegression().fit(x, x[:, 0] > 0)
    forest, densities = posterior_pictures(logistic)
    widths = np.array(forest.figure.data[0].error_x.array)
    assert forest.title == "Coefficients"
    assert (widths > 0).all()
    assert len(densities.figure.data) == 4
    for curve in densities.figure.data:
        assert np.trapezoid(curve.y, curve.x) == pytest.approx(1.0, abs=1e-3)


def test_survival_is_a_curve_with_intervals() -> None:
    """One machine sends nothing, and an estimate of one step has no curve of convergence."""
    rng = np.random.default_rng(0)
    times = rng.exponential(size=60)
    model = KaplanMeier().fit(times, rng.random(60) < 0.7)
    (curve,) = posterior_pictures(model)
    low, high, middle = (np.array(line.y) for line in curve.figure.data)
    assert curve.title == "Survival"
    assert (low <= middle).all()
    assert (middle <= high).all()
    np.testing.assert_array_equal(middle[1:], model.survival_function_)
    assert not [*run_pictures(model)]


def test_densities_of_skewed_positive_numbers_are_positive() -> None:
    """Such as the weight of a component that is all but empty: no scale makes its interval symmetric."""
    weight = Row("weight", 0.0037, 0.0046, 4.5e-5, 0.0132, None, None, None)
    x, y = density_of(weight)
    assert x.min() > 0
    assert x.max() < 3 * weight.upper
    assert 0.9 < np.trapezoid(y, x) < 1.0
    x, _ = density_of(
        Row("coefficient", 0.7, 0.3, 0.7 - 0.3 * 1.6449, 0.7 + 0.3 * 1.6449, None, None, None)
    )
    assert x.min() < 0  # symmetric: a normal


def test_one_machine_counts_sweeps_and_nodes_count_messages() -> None:
    for model, unit in ((BayesianPCA(2, random_state=0).fit(ROWS), "sweep"), (pca(), "message")):
        for picture in run_pictures(model):
            assert picture.figure.layout.xaxis.title.text.startswith(unit)
    assert "between nodes" not in next(run_pictures(BayesianPCA(2).fit(ROWS))).caption


def test_densities_are_those_of_the_intervals() -> None:
    """Of probabilities and positive numbers too: 90 % of the mass lies in the table's interval."""
    rng = np.random.default_rng(0)
    chain = GaussianHMM(2, random_state=0).fit(np.concatenate([ROWS, ROWS + 9.0])[:, :2])
    x = np.repeat(rng.normal(size=(20, 1)), 4, axis=0)
    groups = np.arange(80) // 4
    target = x[:, 0] + rng.normal(size=20)[groups] + 0.5 * rng.normal(size=80)
    mixed = MixedModel(approximation="laplace").fit(x, target, groups)
    for model in (pca(), chain, mixed):
        for row in table_of(model).rows:
            x, y = density_of(row)
            fine = np.linspace(row.lower, row.upper, 4001)
            mass = np.trapezoid(np.interp(fine, x, y), fine)
            assert mass == pytest.approx(0.9, abs=0.01), row


def test_loadings_have_intervals_and_many_are_a_map() -> None:
    rng = np.random.default_rng(0)
    model = pca()
    (bars, *_) = components(model)
    spread = np.array([bar.error_y.array for bar in bars.figure.data])
    assert spread.shape == (3, 5)
    assert (spread > 0).all()
    wide = BayesianPCA(2, random_state=0).fit(rng.normal(size=(40, 30)))
    assert next(components(wide)).figure.data[0].type == "heatmap"


def test_chains_show_their_states_over_time_where_the_data_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(30, 2)), rng.normal(size=(20, 2)) + 6.0])
    model = GaussianHMM(2, random_state=0).fit(rows)
    titles = [picture.title for picture in posterior_pictures(model)]
    assert titles == ["States", "Transitions", "States over time", "Posterior densities"]
    assert in_words(model).startswith("One machine, 50 rows, fitted a GaussianHMM.")
    (drawn,) = states_over_time(model)
    shares = np.array([curve.y for curve in drawn.figure.data])
    np.testing.assert_allclose(shares.T, model.predict_proba(rows), atol=1e-4)
    save(model, tmp_path / "model.npz")
    assert not [*states_over_time(load(tmp_path))]
    assert "follow from them row by row" in page(model, [drawn], "fit")
    assert "row by row" not in page(load(tmp_path), [], "fit")


def test_structures_have_ellipsoids_of_their_size() -> None:
    tracks = make_cube().hidden
    model = StructureFromMotion(random_state=0).fit(tracks)
    frames = len(model.camera_of_frame_)
    assert 2 * frames == sum(map(len, tracks))
    assert f", 8 points in {frames} frames, fitted" in in_words(model)
    (drawn,) = structure(model)
    points, mesh, _ = drawn.figure.data
    assert len(points.x) == 8
    assert max(mesh.i) < len(mesh.x) == 8 * 13 * 7
    assert "90% ellipsoids, drawn" in drawn.caption


def test_ratings_have_a_map_and_a_calibration_if_some_were_held_out(tmp_path: Path) -> None:
    made = make_ratings(1500, n_users=100, n_items=40, rank=2, seed=0).ratings.tocoo()
    train, test = (
        (made.row[part], made.col[part], made.data[part])
        for part in (slice(None, 1200), slice(1200, None))
    )
    model = RatingFactorization(3, max_iter=3, random_state=0).fit(train, held_out=test)
    save(model, tmp_path / "model.npz")
    for each in (model, load(tmp_path)):
        assert [picture.title for picture in items(each)] == ["Map of the items", "Calibration"]
        share = each.calibration_["share"]
        assert share[-1] == pytest.approx(each.evaluate(*test, level=0.9).coverage)
    assert not hasattr(model.fit(train), "calibration_")
    begin = "One machine, 1,200 ratings of 39 items by 78 users, fitted a RatingFactorization."
    assert in_words(model).startswith(begin)
    assert in_words(load(tmp_path)).startswith(begin)


def test_a_fixed_number_of_sweeps_is_not_said_to_be_enough() -> None:
    made = make_ratings(1500, n_users=100, n_items=40, rank=2, seed=0).ratings.tocoo()
    train = made.row, made.col, made.data
    model = RatingFactorization(3, max_iter=3, random_state=0).fit(train)
    (said,) = doubts(model)
    assert said.startswith("The fit made the sweeps that were asked for and has not converged")
    assert "enough" not in said
    model.fit(train, held_out=tuple(part[:50] for part in train))
    before, after = model.history_["rmse"][-2:]
    assert f"held-out ratings from {before:.4g} to {after:.4g}" in doubts(model)[0]


def test_the_table_of_estimates_is_in_the_page_and_in_that_of_a_file(tmp_path: Path) -> None:
    model = pca()
    text = page(model, [], "fit")
    assert ">Estimates</h2>" in text
    assert "<td>location x4</td>" in text
    assert "deviations by linear response" in text
    save(model, tmp_path / "model.npz")
    assert "<td>location x4</td>" in page(load(tmp_path), [], "fit")


def test_it_needs_nothing_else(tmp_path: Path) -> None:
    text = pca().report(tmp_path / "out.html").read_text()
    ours = re.sub(r'<script type="text/plain".*?</script>', "", text, count=1, flags=re.DOTALL)
    assert "http" not in ours
    assert "src=" not in ours
    with pytest.raises(ValueError, match=r"must end in \.html"):
        pca().report(tmp_path / "out.pdf")


def test_a_missing_plotly_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ImportError, match=r"a report needs plotly: pip install -e '\.\[report\]'"):
        pca().report(tmp_path / "out.html")


def test_from_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(pca(), tmp_path / "model.npz")
    monkeypatch.setattr("sys.argv", ["dmfvi", "report", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert (tmp_path / "report.html").exists()


def test_the_nodes_that_are_furthest_are_named() -> None:
    convergence = next(run_pictures(pca()))
    words = convergence.figure.data[0].text
    assert any(each.count("<br>node ") == 4 for each in words)
