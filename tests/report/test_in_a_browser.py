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
DRAWN = "[...document.querySelectorAll('.picture')].map(e => e.querySelector('.main-svg, canvas') !== null)"
#: of the tabs and the panels: name, whether it is chosen, and whether what it leads to is seen
TABS = "[...document.querySelectorAll('[role=tab]')].map(e => e.textContent)"
CHOSEN = "[...document.querySelectorAll('[role=tab][aria-selected=true]')].map(e => e.textContent)"
SEEN = "[...document.querySelectorAll('[role=tabpanel]')].filter(e => e.offsetHeight > 0).map(e => e.id)"


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


def turn_to(page: Browser, name: str) -> None:
    """Click on a tab."""
    page.click(*page.middle(f"#tab-{name.lower()}"))
    page.until(lambda: page.value(CHOSEN) == [name])


def press(page: Browser, key: str) -> None:
    """A key, without text."""
    for event in ("keyDown", "keyUp"):
        page.ask("Input.dispatchKeyEvent", type=event, key=key, code=key)


def test_a_tab_is_drawn_when_it_is_first_seen(page: Browser) -> None:
    """Until then not even Plotly is read; panels are as wide as the screen of a telephone."""
    assert page.value(TABS) == ["Estimates", "Posterior", "Convergence", "Network", "Inputs"]
    assert page.value(CHOSEN) == ["Estimates"]
    assert page.value("typeof Plotly") == "undefined"
    assert page.value(DRAWN) == [False] * 7
    for name, drawn in (("Network", [6]), ("Posterior", [0, 1, 2, 6]), ("Convergence", range(7))):
        turn_to(page, name)
        assert page.value(SEEN) == [name.lower()]
        assert [place for place, done in enumerate(page.value(DRAWN)) if done] == list(drawn)
        assert page.value("document.documentElement.scrollWidth") == WIDTH
        shown = "[...document.querySelectorAll('.panel:not([hidden]) .picture')]"
        widths = page.value(f"{shown}.map(e => e.querySelector('.main-svg').clientWidth)")
        assert widths
        assert all(0.9 * WIDTH < width <= WIDTH for width in widths)
        small = "[...document.querySelectorAll('p, td, h2, nav a, .picture text')].filter(e => parseFloat(getComputedStyle(e).fontSize) < 10)"
        assert page.value(f"{small}.length") == 0
    assert page.value("document.querySelectorAll('.js-plotly-plot').length") == 7


def test_tabs_follow_the_keys(page: Browser) -> None:
    """Arrows go round, Home and End to the ends; only the chosen tab is in the order of the Tab key."""
    page.value("document.querySelector('#tab-estimates').focus()")
    for key, name in (
        ("ArrowRight", "Posterior"),
        ("ArrowLeft", "Estimates"),
        ("ArrowLeft", "Inputs"),
        ("ArrowRight", "Estimates"),
        ("End", "Inputs"),
        ("Home", "Estimates"),
    ):
        press(page, key)
        page.until(lambda name=name: page.value(CHOSEN) == [name])  # type: ignore[misc]
        assert page.value("document.activeElement.textContent") == name
        assert page.value(SEEN) == [name.lower()]
        assert (
            page.value("[...document.querySelectorAll('[role=tab][tabindex=\"0\"]')].length") == 1
        )
    controls = "[...document.querySelectorAll('[role=tab]')].every(e => document.getElementById(e.getAttribute('aria-controls')).getAttribute('aria-labelledby') === e.id)"
    assert page.value(controls)


def test_the_address_leads_to_a_tab(page: Browser) -> None:
    turn_to(page, "Inputs")
    assert page.value("location.hash") == "#inputs"
    page.value("location.hash = '#network'")
    page.until(lambda: page.value(SEEN) == ["network"])
    page.reload()
    page.until(lambda: page.value(f"{CHOSEN}[0]") == "Network")
    page.value("location.hash = '#picture1'")
    page.until(lambda: page.value(SEEN) == ["posterior"])
    page.value("location.hash = '#no-such-place'")
    page.until(lambda: page.value(SEEN) == ["estimates"])


def test_paper_has_everything(page: Browser) -> None:
    page.value("window.dispatchEvent(new Event('beforeprint'))")
    assert len(page.value(SEEN)) == 5
    assert all(page.value(DRAWN))
    page.value("window.dispatchEvent(new Event('afterprint'))")
    assert page.value(SEEN) == ["estimates"]
    page.ask("Emulation.setEmulatedMedia", media="print")
    assert len(page.value(SEEN)) == 5
    page.ask("Emulation.setEmulatedMedia", media="")


def test_without_scripts_everything_is_shown(window: Browser, long_run: tuple[Any, Path]) -> None:
    window.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        window.open(long_run[1])
        heights = "[...document.querySelectorAll('.panel')].map(e => e.offsetHeight > 0)"
        assert window.value(heights) == [True] * 5
        assert window.value("document.querySelector('noscript').offsetHeight") > 0
    finally:
        window.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_it_is_dark_where_the_reader_wants_that(page: Browser) -> None:
    turn_to(page, "Posterior")
    turn_to(page, "Network")
    seen = "[getComputedStyle(document.body).backgroundColor, picture6.layout.font.color]"
    wanted = {
        "light": ["rgb(255, 255, 255)", "#1d2733"],
        "dark": ["rgb(20, 25, 31)", "#e6ecf1"],
    }
    for scheme, colours in [*wanted.items(), ("light", wanted["light"])]:
        wish = [{"name": "prefers-color-scheme", "value": scheme}]
        page.ask("Emulation.setEmulatedMedia", features=wish)
        page.until(lambda colours=colours: page.value(seen) == colours)  # type: ignore[misc]
    page.ask("Emulation.setEmulatedMedia", features=[wish[0] | {"value": "dark"}])
    page.until(lambda: page.value(seen) == wanted["dark"])
    turn_to(page, "Posterior")  # was drawn in light colours
    assert page.value("picture0.layout.font.color") == wanted["dark"][1]
    page.ask("Emulation.setEmulatedMedia", features=[])


SHOWN = "[...picture6.data[1].marker.color, picture6.querySelector('.slider-label').textContent]"


def test_the_slider_moves_and_plays(page: Browser, long_run: tuple[Any, Path]) -> None:
    """At the end all nodes have converged, at the beginning none."""
    model, _ = long_run
    turn_to(page, "Network")
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
    buttons = "[...document.querySelectorAll('#picture6 .updatemenu-button')]"
    assert page.value(f"{buttons}.map(e => e.textContent)") == ["Play", "Pause"]
    page.value(f"{buttons}[1].id = 'pause'")
    page.click(*page.middle("#pause"))
    page.until(lambda: page.value("picture6._transitionData._frameQueue.length") == 0)
    stopped = page.value(SHOWN)[-1]
    assert stopped not in ("round 1", f"round {model.n_rounds_}")
    page.click(*page.middle("#picture6 .updatemenu-button"))  # and the slider while it plays
    page.until(lambda: page.value(SHOWN)[-1] != stopped)
    page.click(*page.middle("#picture6 .slider-rail-touch-rect", across=0.001))
    page.until(lambda: page.value(SHOWN)[-1] == "round 1")


def test_the_bound_has_a_logarithmic_axis(page: Browser) -> None:
    turn_to(page, "Convergence")
    page.click(*page.middle("#picture4 .updatemenu-header"))
    page.until(
        lambda: page.value("picture4.querySelectorAll('.updatemenu-dropdown-button').length") == 2
    )
    page.value("picture4.querySelectorAll('.updatemenu-dropdown-button')[1].id = 'distance'")
    page.click(*page.middle("#distance"))
    page.until(lambda: page.value("picture4._fullLayout.yaxis.type") == "log")
    assert page.value("picture4.data.map(e => e.visible)") == [False, True]


def test_a_table_of_estimates_fits_on_a_telephone(page: Browser) -> None:
    """Terms, estimates, deviations and both ends of the intervals, without scrolling; no number is broken."""
    scroll = "document.querySelector('#estimates .scroll')"
    assert page.value(f"{scroll}.querySelectorAll('th').length") == 5
    assert page.value(f"{scroll}.scrollWidth <= {scroll}.clientWidth")
    wrap = "[...document.querySelectorAll('.numbers td + td')].map(e => getComputedStyle(e).whiteSpace)"
    assert set(page.value(wrap)) == {"nowrap"}


def test_a_structure_turns_until_it_is_stopped(window: Browser, tmp_path: Path) -> None:
    model = CASES["structure-from-motion"].local()
    window.open(model.report(tmp_path / "report.html"))
    eye = "(() => { const e = picture0._fullLayout.scene._scene.getCamera().eye; return [e.x, e.y]; })()"
    window.until(lambda: window.value("document.querySelector('.turn') !== null"))
    before = window.value(eye)
    window.click(*window.middle(".turn"))
    assert window.value("document.querySelector('.turn').textContent") == "Stop"
    window.until(lambda: np.abs(np.subtract(window.value(eye), before)).max() > 0.1)
    window.click(*window.middle(".turn"))
    assert window.value("document.querySelector('.turn').textContent") == "Turn"
    assert window.value("document.querySelectorAll('.turn').length") == 1
    assert window.errors == []


def test_what_is_hovered_over_is_named(page: Browser) -> None:
    """Of a curve: its value, and the nodes that are furthest from the end; of the network: the node."""
    named = {
        "Convergence": ("#picture3 .point", "message round"),
        "Network": ("#picture6 .scatter .point", "of the sum"),
    }
    for tab, (selector, words) in named.items():
        turn_to(page, tab)
        page.move(*page.middle(selector))
        label = f"document.querySelector('{selector.split()[0]} .hoverlayer .hovertext')"
        page.until(lambda label=label: page.value(f"{label} !== null"))  # type: ignore[misc]
        assert words in page.value(f"{label}.textContent")


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(CASES))
def test_the_report_of_every_model_is_drawn(kind: str, window: Browser, tmp_path: Path) -> None:
    window.open(CASES[kind].local().report(tmp_path / "report.html"))
    for name in window.value(TABS):
        turn_to(window, name)
        assert window.value("document.documentElement.scrollWidth") == WIDTH
    assert all(window.value(DRAWN))
    assert window.errors == []
    assert len(window.requests) == sum(
        url.startswith(("file:", "data:", "blob:")) for url in window.requests
    )
