"""A report of a fit: one HTML file that needs nothing else, for people who were not there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dmfvi import __version__
from dmfvi.inference.federation import Federation
from dmfvi.report.assets import SCRIPT, STYLE
from dmfvi.report.group_pictures import STATES
from dmfvi.report.network_figure import network_picture
from dmfvi.report.picture import NETWORK, POSTERIOR, RUN, Picture
from dmfvi.report.posterior_pictures import posterior_pictures, table_of
from dmfvi.report.run_pictures import run_pictures
from dmfvi.storage.files import write_text

#: where the name of a class may be broken on a narrow screen
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")

#: names of the tabs in their order; those without content are left out
ESTIMATES, INPUTS = "Estimates", "Inputs"
#: what a fit tells of its consensus rule
AGREED = ("rule", "transport", "nodes")
TABS = (ESTIMATES, POSTERIOR, RUN, NETWORK, INPUTS)


def write_report(model: Any, path: str | Path, title: str | None = None) -> Path:
    """Write what was run, the answer and how it came about into one HTML file, whole or not at all."""
    check_is_fitted(model)
    target = Path(path)
    if target.suffix not in (".html", ".htm"):
        raise ValueError(f"{target} must end in .html")
    pictures = [*posterior_pictures(model), *run_pictures(model), *network_picture(model)]
    return write_text(target, page(model, pictures, title or type(model).__name__))


def page(model: Any, pictures: list[Picture], title: str) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    tabs = {
        name: [part for part in parts if part] for name, parts in _tabs(model, pictures).items()
    }
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            f"<h1>{CAMEL.sub('<wbr>', escape(title))}</h1>",
            f'<p class="lead">{escape(in_words(model))}</p>',
            *(f'<div class="warning">{escape(each)}</div>' for each in doubts(model)),
            "<noscript><p>The figures are drawn with JavaScript, which is switched off.</p></noscript>",
            *_in_panels({name: parts for name, parts in tabs.items() if parts}),
            f"<footer>Made by dmfvi {__version__}. {_what_it_holds(pictures)}</footer>",
            *(_data(at, each) for at, each in enumerate(pictures)),
            f'<script type="text/plain" id="plotly">{get_plotlyjs()}</script>',
            f"<script>{SCRIPT}</script></body></html>",
        ]
    )


def _tabs(model: Any, pictures: list[Picture]) -> dict[str, list[str]]:
    """What each tab holds."""
    tabs: dict[str, list[str]] = {name: [] for name in TABS}
    tabs[ESTIMATES].append(_estimates(model))
    for at, each in enumerate(pictures):
        described = escape(f"{each.title}. {each.caption}", quote=True)
        tabs[each.tab] += [
            f"<h2>{escape(each.title)}</h2>",
            f'<p class="note">{escape(each.caption)}</p>',
            f'<div class="picture" id="picture{at}" style="height: {each.height}px" role="img" aria-label="{described}"></div>',
        ]
    tabs[INPUTS] += [_members(model), _agreement(model), _settings(model)]
    return tabs


def _in_panels(tabs: dict[str, list[str]]) -> list[str]:
    """Links to the panels, which the script turns into tabs, and the panels."""
    names = {name: name.lower() for name in tabs}
    links = [f'<a id="tab-{key}" href="#{key}">{name}</a>' for name, key in names.items()]
    made = [f'<nav aria-label="Sections">{"".join(links)}</nav>']
    for name, parts in tabs.items():
        made += [f'<section class="panel" id="{names[name]}">', *parts, "</section>"]
    return made


def _data(position: int, picture: Picture) -> str:
    """The figure as the script reads it."""
    content = picture.figure.to_json().replace("</", "<\\/")
    return f'<script type="application/json" id="data-picture{position}">{content}</script>'


def _what_it_holds(pictures: list[Picture]) -> str:
    if any(each.title == STATES for each in pictures):
        return "The file contains no rows of the data, but the states over time follow from them row by row."
    return "The file contains no rows of the data, only what was learned from them."


# -- words ------------------------------------------------------------------------------------------


def in_words(model: Any) -> str:
    """What was run and the answer, in one paragraph."""
    how = getattr(model, "consensus_", {})
    nodes = int(how.get("nodes", 1))
    graph = _graph_name(model)
    # one made from edges has no name of its own
    named = "" if graph == "network" else f" ({graph})"
    where = "One machine" if nodes == 1 else f"{nodes} nodes{named}"
    counted = model._data_in_words()
    data = f", {counted}," if counted else ""
    verb = "fitted" if nodes == 1 else "together fitted"
    sentences = [f"{where}{data} {verb} a {type(model).__name__}."]
    if hasattr(model, "n_iter_"):
        end = "converged" if model.converged_ else "had not converged"
        sentences.append(f"It {end} after {model.n_iter_} sweeps.")
    if nodes > 1 and "disagreement" in getattr(model, "history_", {}):
        sent = float(np.sum(model.history_["bytes_sent"])) + float(model.n_start_bytes_)
        apart = float(model.history_["disagreement"][-1])
        sentences.append(
            f"The nodes exchanged {_bytes(sent)} of statistics in {model.n_rounds_ + model.n_start_rounds_} rounds, and no data."
        )
        exact = how.get("rule") == "exact-sum"
        if exact and model.converged_:
            said = "Every node holds the same posterior, to the last bit: that of one machine with all data."
        elif apart == 0:
            said = "Every node holds the same numbers, to the last bit."
        else:
            said = f"The posteriors of the nodes differ by {apart:.1e}, relative."
        sentences.append(said)
    if np.isfinite(getattr(model, "lower_bound_", np.nan)):
        sentences.append(f"The evidence lower bound is {model.lower_bound_:.6g}.")
    return " ".join(sentences)


def doubts(model: Any) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    if not getattr(model, "converged_", True) and model._ended_well:
        change = float(model.history_["change"][-1])
        found.append(
            f"The fit made the sweeps that were asked for and has not converged: the last changed the posterior by {change:.1e}, "
            f"relative{_last_step_of_error(model)}. More sweeps may change predictions and the bound; raise max_iter and fit again."
        )
    elif not getattr(model, "converged_", True):
        last = {name: float(model.history_[name][-1]) for name in ("change", "disagreement")}
        apart = (
            f" and the nodes differ by {last['disagreement']:.1e}"
            if last["disagreement"] > 0
            else ""
        )
        found.append(
            f"NOT converged: the last sweep changed the posterior by {last['change']:.1e}{apart}, relative. "
            "These numbers are not the posterior. Raise max_iter and fit again."
        )
    for each in getattr(model, "missing_", ()):
        since = f" since {each['since']}" if each["since"] else ""
        found.append(
            f"The data of node {each['node']} are not in this result ({each['why']}{since})."
        )
    return found


def _last_step_of_error(model: Any) -> str:
    """What the last sweep did to the error on held-out data, where it is known."""
    errors = model.history_.get("rmse", ())
    if len(errors) < 2:
        return ""
    return f", and the error on held-out ratings from {errors[-2]:.4g} to {errors[-1]:.4g}"


def _graph_name(model: Any) -> str:
    network = getattr(model, "network", None)
    graph = getattr(network, "network", network)
    return str(getattr(graph, "name", "network"))


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _members(model: Any) -> str:
    members = getattr(model, "members_", None)
    if not members:
        return ""
    rows = [(str(each["node"]), f"{each['rows']:,}", each["data"][:16]) for each in members]
    return "<h2>Data</h2>" + _table(("node", "rows", "SHA-256 of data and settings"), rows)


def _estimates(model: Any) -> str:
    """The table of coefficients or parameters."""
    table = table_of(model)
    if table is None or not table.rows:
        return ""
    head, *rows = table.cells()
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    facts = table.facts_text
    words = f"{facts + '; ' if facts else ''}central {100 * table.level:g} % intervals"
    return f'<h2>Estimates</h2><p class="note">{escape(words)}</p>{_table(head, rows, "numbers")}{notes}'


def _agreement(model: Any) -> str:
    """The network and how its nodes agree."""
    how = getattr(model, "consensus_", {})
    given = getattr(model, "network", None)
    if given is None or int(how.get("nodes", 1)) < 2:
        return ""
    engine = Federation.of(given).engine
    rows = [
        ("network", _graph_name(model)),
        *((name, str(how[name])) for name in AGREED if name in how),
    ]
    rows.append(("engine", engine if isinstance(engine, str) else engine.name))
    return "<h2>Network</h2>" + _table(("setting", "value"), rows)


def _settings(model: Any) -> str:
    rows = [
        (name, repr(value))
        for name, value in sorted(model.get_params(deep=False).items())
        if name not in ("verbose", "network")
    ]
    return "<h2>Settings</h2>" + _table(("parameter", "value"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "words") -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table class="{kind}"><tr>{cells}</tr>{body}</table></div>'
