"""Reports in a real browser, on a telephone: they are drawn, can be moved and hovered over, and need nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import WIDTH, Browser, browser
from dmfvi import BayesianPCA, Network
from dmfvi.datasets import mask_at_random
from estimator_cases import CASES

#: the report of a long run may not be larger
MOST_BYTES = 6_000_000
DRAWN = (
    "[...document.querySelectorAll('.picture')].every(e => e.querySelector('.main-svg, canvas'))"
)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Twenty nodes, more than 500 rounds."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 5)) + 0.2 * rng.normal(size=(200, 5))
    model = BayesianPCA(3, network=Network.chain(20), random_state=0, tol=1e-8).fit(
        mask_at_random(rows, 0.3)
    )
    return model, model.report(tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(window: Browser, long_run: tuple[Any, Path]) -> Iterator[Browser]:
    """Nothing may have been said on the console or asked of a network in the end."""
    window.open(long_run[1])
    yield window
    assert window.errors == []
    assert [url for url in window.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_a_long_run_is_a_small_file(long_run: tuple[Any, Path]) -> None:
    model, file = long_run
    assert model.n_rounds_ >= 500
    assert file.stat().st_size < MOST_BYTES


def test_every_picture_is_drawn_and_fits_a_telephone(page: Browser) -> None:
    assert page.value(DRAWN)
    assert page.value("document.querySelectorAll('.js-plotly-plot').length") == 7
    assert page.value("document.documentElement.scrollWidth") == WIDTH
    widths = page.value("[...document.querySelectorAll('.picture')].map(e => e.clientWidth)")
    assert all(0.9 * WIDTH < width <= WIDTH for width in widths)
    small = "[...document.querySelectorAll('p, td, h2, nav a, .picture text')].filter(e => parseFloat(getComputedStyle(e).fontSize) < 10)"
    assert page.value(f"{small}.length") == 0


def test_it_is_dark_where_the_reader_wants_that(page: Browser) -> None:
    seen = "[getComputedStyle(document.body).backgroundColor, picture0.layout.font.color]"
    wanted = {
        "light": ["rgb(255, 255, 255)", "#1d2733"],
        "dark": ["rgb(20, 25, 31)", "#e6ecf1"],
    }
    for scheme, colours in [*wanted.items(), ("light", wanted["light"])]:
        wish = [{"name": "prefers-color-scheme", "value": scheme}]
        page.ask("Emulation.setEmulatedMedia", features=wish)
        page.until(lambda colours=colours: page.value(seen) == colours)  # type: ignore[misc]


SHOWN = "[...picture6.data[1].marker.color, picture6.querySelector('.slider-label').textContent]"


def test_the_slider_moves_and_plays(page: Browser, long_run: tuple[Any, Path]) -> None:
    """At the end all nodes have converged, at the beginning none."""
    model, _ = long_run
    *colours, label = page.value(SHOWN)
    assert label == f"round {model.n_rounds_}"
    assert max(colours) < -6
    page.click(*page.middle("#picture6 .slider-rail-touch-rect", across=0.001))
    page.until(lambda: min(page.value(SHOWN)[:-1]) > -6)
    *colours, label = page.value(SHOWN)
    assert (label, len(colours)) == ("round 1", 20)
    words = page.value("picture6.data[1].hovertext[0]")
    assert words.startswith("node 0<br>round 1<br>change not known yet")
    assert "of the sum" in words
    page.click(*page.middle("#picture6 .updatemenu-button"))
    page.until(lambda: page.value(SHOWN)[-1] not in ("round 1", f"round {model.n_rounds_}"))


def test_what_is_hovered_over_is_named(page: Browser) -> None:
    """Of a curve: its value, and the nodes that are furthest from the end; of the network: the node."""
    named = {"#picture3 .point": "message round", "#picture6 .scatter .point": "of the sum"}
    for selector, words in named.items():
        page.move(*page.middle(selector))
        label = f"document.querySelector('{selector.split()[0]} .hoverlayer .hovertext')"
        page.until(lambda label=label: page.value(f"{label} !== null"))  # type: ignore[misc]
        assert words in page.value(f"{label}.textContent")


def test_the_contents_lead_to_every_section(page: Browser) -> None:
    titles = page.value("[...document.querySelectorAll('h2')].map(e => e.textContent)")
    assert page.value("[...document.querySelectorAll('nav a')].map(e => e.textContent)") == titles
    assert titles[0] == "Estimates"
    page.click(*page.middle(f"nav a:nth-child({titles.index('Network') + 1})"))
    page.until(
        lambda: page.value("document.querySelector('#picture6').getBoundingClientRect().top") < 400
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(CASES))
def test_the_report_of_every_model_is_drawn(kind: str, window: Browser, tmp_path: Path) -> None:
    window.open(CASES[kind].local().report(tmp_path / "report.html"))
    assert window.value(DRAWN)
    assert window.value("document.documentElement.scrollWidth") == WIDTH
    assert window.errors == []
    assert len(window.requests) == sum(
        url.startswith(("file:", "data:", "blob:")) for url in window.requests
    )
