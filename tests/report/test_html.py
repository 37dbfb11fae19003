"""The report: what it says, that it needs nothing else, and that a browser draws it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmfvi import (
    BayesianGaussianMixture,
    BayesianLogisticRegression,
    BayesianPCA,
    GaussianHMM,
    MixedModel,
    Network,
    RatingFactorization,
    StructureFromMotion,
)
from dmfvi.cli import main
from dmfvi.datasets import make_cube, make_ratings
from dmfvi.models import ESTIMATORS
from dmfvi.report.factor_pictures import components, items, structure
from dmfvi.report.group_pictures import states_over_time
from dmfvi.report.html import doubts, in_words, page, write_report
from dmfvi.report.network_figure import network_picture
from dmfvi.report.posterior_pictures import _density, posterior_pictures, table_of
from dmfvi.report.run_pictures import run_pictures
from dmfvi.storage import load, save
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
    assert in_words(model).split(".")[0] in text
    assert len(text) < 6_000_000
    assert "NaN" not in text.split("const FIGURES = ")[1].split("const dark")[0]


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
    def titles(model: Any) -> list[str]:
        drawn = [*posterior_pictures(model), *run_pictures(model), *network_picture(model)]
        return [picture.title for picture in drawn]

    how = ["Convergence", "Evidence lower bound", "Bytes sent"]
    learned = ["Components", "Strength of the components", "Posterior densities"]
    assert titles(pca()) == [*learned, *how, "Network"]
    two = np.concatenate([RNG.normal(-3, 1, (30, 2)), RNG.normal(3, 1, (30, 2))])
    mixture = BayesianGaussianMixture(2, random_state=0).fit(two)
    assert titles(mixture)[0] == "Components"
    x = RNG.normal(size=(60, 3))
    logistic = BayesianLogisticRegression().fit(x, x[:, 0] > 0)
    forest, densities = posterior_pictures(logistic)
    widths = np.array(forest.figure.data[0].error_x.array)
    assert forest.title == "Coefficients"
    assert (widths > 0).all()
    assert len(densities.figure.data) == 4
    for curve in densities.figure.data:
        assert np.trapezoid(curve.y, curve.x) == pytest.approx(1.0, abs=1e-3)


def test_densities_are_those_of_the_intervals() -> None:
    """Of probabilities and positive numbers too: 90 % of the mass lies in the table's interval."""
    chain = GaussianHMM(2, random_state=0).fit(np.concatenate([ROWS, ROWS + 9.0])[:, :2])
    x = np.repeat(RNG.normal(size=(20, 1)), 4, axis=0)
    groups = np.arange(80) // 4
    target = x[:, 0] + RNG.normal(size=20)[groups] + 0.5 * RNG.normal(size=80)
    mixed = MixedModel(approximation="laplace").fit(x, target, groups)
    for model in (pca(), chain, mixed):
        for row in table_of(model).rows:
            x, y = _density(row)
            fine = np.linspace(row.lower, row.upper, 4001)
            mass = np.trapezoid(np.interp(fine, x, y), fine)
            assert mass == pytest.approx(0.9, abs=0.01), row


def test_loadings_have_intervals_and_many_are_a_map() -> None:
    model = pca()
    (bars, *_) = components(model)
    spread = np.array([bar.error_y.array for bar in bars.figure.data])
    assert spread.shape == (3, 5)
    assert (spread > 0).all()
    wide = BayesianPCA(2, random_state=0).fit(RNG.normal(size=(40, 30)))
    assert next(components(wide)).figure.data[0].type == "heatmap"


def test_chains_show_their_states_over_time_where_the_data_are(tmp_path: Path) -> None:
    rows = np.concatenate([RNG.normal(size=(30, 2)), RNG.normal(size=(20, 2)) + 6.0])
    model = GaussianHMM(2, random_state=0).fit(rows)
    titles = [picture.title for picture in posterior_pictures(model)]
    assert titles == ["States", "Transitions", "States over time", "Posterior densities"]
    (drawn,) = states_over_time(model)
    shares = np.array([curve.y for curve in drawn.figure.data])
    np.testing.assert_allclose(shares.T, model.predict_proba(rows), atol=1e-4)
    save(model, tmp_path / "model.npz")
    assert not [*states_over_time(load(tmp_path))]
    assert "follow from them row by row" in page(model, [drawn], "fit")
    assert "row by row" not in page(load(tmp_path), [], "fit")


def test_structures_have_ellipsoids_of_their_size() -> None:
    model = StructureFromMotion(random_state=0).fit(make_cube().hidden)
    (drawn,) = structure(model)
    points, mesh = drawn.figure.data
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
    assert doubts(model)[0].startswith("The fit made the sweeps that were asked for")


def test_the_table_of_estimates_is_in_the_page_and_in_that_of_a_file(tmp_path: Path) -> None:
    model = pca()
    text = page(model, [], "fit")
    assert "<h2>Estimates</h2>" in text
    assert "<td>location x4</td>" in text
    assert "deviations by linear response" in text
    save(model, tmp_path / "model.npz")
    assert "<td>location x4</td>" in page(load(tmp_path), [], "fit")


def test_it_needs_nothing_else(tmp_path: Path) -> None:
    text = pca().report(tmp_path / "out.html").read_text()
    ours = re.sub(r"<script>.*?</script>", "", text, count=1, flags=re.DOTALL)
    assert "http" not in ours
    assert "src=" not in ours
    with pytest.raises(ValueError, match=r"must end in \.html"):
        pca().report(tmp_path / "out.pdf")


def test_from_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(pca(), tmp_path / "model.npz")
    monkeypatch.setattr("sys.argv", ["dmfvi", "report", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert (tmp_path / "report.html").exists()


def in_browser(file: Path, folder: Path) -> tuple[str, str]:
    """The page as a browser has it after its scripts have run, and what the browser logged."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium: apt-get install chromium")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=375,800", "--dump-dom"]
    done = subprocess.run(
        [*command, file.as_uri()], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"chromium does not run here: {done.stderr[-200:]}")
    return done.stdout, done.stderr


def test_a_browser_draws_it(tmp_path: Path) -> None:
    """Without a network: every picture is there, and nothing is wrong."""
    drawn, logged = in_browser(pca().report(tmp_path / "out.html"), tmp_path)
    assert drawn.count('class="picture js-plotly-plot"') == 7
    assert "CONSOLE" not in logged


#: moves the slider of the last picture to its first round, and writes down colours and words before and after
MOVE = """
<script>
const plot = document.getElementById("picture6");
const seen = () => ({colours: plot.data[1].marker.color, words: plot.data[1].hovertext[0]});
const before = seen();
Plotly.animate(plot, [plot._transitionData._frames[0].name], {mode: "immediate", frame: {duration: 0, redraw: false}})
  .then(() => {
    const found = document.createElement("pre");
    found.id = "found";
    found.textContent = JSON.stringify({before, after: seen()});
    document.body.append(found);
  });
</script></body></html>
"""


def test_the_slider_shows_every_node_at_every_round(tmp_path: Path) -> None:
    model = pca()
    history = model.node_history_
    assert history["change"].shape == (model.n_rounds_, 4)
    assert history["known"][0].tolist() == pytest.approx([0.75] * 4)  # both neighbours of a ring
    file = model.report(tmp_path / "out.html")
    file.write_text(file.read_text().replace("</body></html>", MOVE))
    drawn, logged = in_browser(file, tmp_path)
    said = re.search(r'<pre id="found">(.*?)</pre>', drawn, flags=re.DOTALL)
    assert said, logged
    found = json.loads(html.unescape(said[1]))
    assert found["after"]["words"].startswith("node 0<br>round 1<br>change not known yet")
    assert "holds 75% of the sum" in found["after"]["words"]
    assert max(found["before"]["colours"]) < -6 < min(found["after"]["colours"])
    assert "CONSOLE" not in logged


def test_the_nodes_that_are_furthest_are_named() -> None:
    convergence = next(run_pictures(pca()))
    words = convergence.figure.data[0].text
    assert any(each.count("<br>node ") == 4 for each in words)
