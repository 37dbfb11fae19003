"""The examples of the documentation run, and do what they say."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

import dmfvi
from dmfvi import Network, infer
from dmfvi.cli.app import app
from dmfvi.consensus import RULES
from dmfvi.deploy.config import config_of
from dmfvi.deploy.kinds import NETWORK_KINDS, columns_of
from dmfvi.families import FAMILIES
from dmfvi.models import ESTIMATORS, PoissonGamma
from helpers import documented

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
#: where a path in the text may begin
FOLDERS = [ROOT, DOCS, ROOT / "src" / "dmfvi", ROOT / "src"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore:not converged after 6 iterations", "ignore:.*have no rating")
@pytest.mark.parametrize("page", [p for p in PAGES if p.parent == DOCS], ids=lambda p: p.name)
def test_every_example_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the page, from an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for code in blocks(page, "python"):
        for needed in re.findall(r"^import (\w+)$", code, re.MULTILINE):
            pytest.importorskip(needed)  # of another project, last on its page
        exec(compile(code, page.name, "exec", dont_inherit=True), names)


@pytest.mark.parametrize("file", sorted((DOCS / "gallery").glob("*.py")), ids=lambda f: f.stem)
def test_every_program_of_the_gallery_runs_and_draws(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    plt.close("all")
    exec(compile(file.read_text(), file.name, "exec", dont_inherit=True), {"__name__": file.stem})
    assert plt.get_fignums()
    plt.close("all")


def in_the_reference() -> list[str]:
    """Names of the API reference."""
    return re.findall(r"^   ([\w.]+)$", (DOCS / "api.md").read_text(), re.MULTILINE)


def named(name: str) -> Any:
    """What the reference calls so."""
    found: Any = dmfvi
    for part in name.split("."):
        found = getattr(found, part, None) or importlib.import_module(
            f"dmfvi.{name.partition('.')[0]}"
        )
    return found


@pytest.mark.parametrize("name", [name for name in in_the_reference() if callable(named(name))])
def test_the_reference_documents_every_parameter(name: str) -> None:
    """Of classes and functions; fields of results may be attributes."""
    found = named(name)
    told = documented(found, "Parameters") | documented(found, "Attributes")
    assert set(inspect.signature(found).parameters) <= told | {"args", "kwargs"}


def test_the_reference_lists_everything_public() -> None:
    """Every public name, family and rule; and nothing that does not exist."""
    listed = set(in_the_reference())
    public = set(dmfvi.__all__) - {"storage", "__version__"}
    assert public <= listed
    for name in listed:
        assert inspect.getdoc(named(name)), name
    assert {f"families.{made.__name__}" for made in FAMILIES.values()} <= listed
    rules = {f"consensus.{rule.__name__}" for name, rule in RULES.items() if name != "flood"}
    assert rules <= listed


def test_the_site_has_every_page_and_images_say_what_they_show() -> None:
    index = (DOCS / "index.md").read_text()
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert pages <= set(re.findall(r"^(\w+)$", index, re.MULTILINE))
    for page in PAGES:
        assert "![](" not in page.read_text(), page.name


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", text)
    missing = [link for link in links if not (page.parent / link).exists()]
    named = re.findall(r"`((?:[\w.-]+/)*[\w-]+(?:\.py|\.md)|(?:[\w-]+/)+)`", text)
    missing += [path for path in named if not any((f / path).exists() for f in FOLDERS)]
    assert not missing


@every_page
def test_anchors_of_links_are_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", page.read_text()):
        headings = re.findall(
            r"^#+ (.*)$", (page.parent / target if target else page).read_text(), re.MULTILINE
        )
        made = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
        assert anchor in made


def keywords(text: str) -> Iterator[tuple[str, Any, set[str]]]:
    """Calls of public names in inline code, with the keywords that they are given."""
    for code in re.findall(r"`([^`\n]+)`", text):
        try:
            tree = ast.parse(code)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                called = getattr(dmfvi, node.func.id, None)
                if called is not None:
                    yield code, called, {k.arg for k in node.keywords if k.arg}


@every_page
def test_parameters_in_the_text_exist(page: Path) -> None:
    for code, called, given in keywords(page.read_text()):
        assert given <= set(inspect.signature(called).parameters), code


def commands(page: Path) -> Iterator[list[str]]:
    """Words after ``dmfvi`` of every command line on a page."""
    text = page.read_text()
    lines = [
        line
        for block in re.findall(r"```\n(.*?)```", text, re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += [line for line in text.splitlines() if line.startswith("    dmfvi ")]
    lines += re.findall(r"`((?:dmfvi|mpiexec) [^`\n]*)`", text)
    for line in lines:
        found = re.search(r"(?:^\s*|-m )dmfvi (.*)", line.partition(" #")[0])
        if found:
            yield shlex.split(found.group(1), posix=True)


@every_page
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(page):
        command: Any = get_command(app)
        rest = list(words)
        while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
            name = rest.pop(0).rstrip(",")
            assert name in command.commands, words
            command = command.commands[name]
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        asked = {
            re.split(r"[=|\]]", w.lstrip("["))[0] for w in rest if w.lstrip("[").startswith("--")
        }
        assert asked <= known, words


def test_the_deployment_page_says_what_every_kind_reads() -> None:
    """A row for each kind, with the columns that it needs beside the features."""
    rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", (DOCS / "deploy.md").read_text(), re.MULTILINE)
    said = {kind: text for kinds, text in rows for kind in re.findall(r"`(.*?)`", kinds)}
    for kind, estimator in NETWORK_KINDS.items():
        assert kind in said
        needed = [name for name, needs in columns_of(estimator).items() if needs]
        assert all(f"`{name}`" in said[kind] for name in needed), kind


@every_page
def test_settings_of_a_node_exist(page: Path) -> None:
    for block in blocks(page, "toml"):
        content = tomllib.loads(block)
        content.pop("tls", None)  # there are no certificates here
        content.setdefault("node", {"id": 0, "listen": "127.0.0.1:7447", "data": "rows.csv"})
        content["node"]["listen"] = "127.0.0.1:7447"
        peers = content.get("peers", {})
        content["peers"] = {peer: f"127.0.0.1:{7448 + at}" for at, peer in enumerate(peers)}
        config_of(content, page, insecure=True)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_help_shows_every_parameter_and_method(name: str) -> None:
    estimator = ESTIMATORS[name]
    assert documented(estimator, "Parameters") == set(inspect.signature(estimator).parameters)
    for method, made in inspect.getmembers(estimator, inspect.isfunction):
        if not method.startswith("_") and made.__module__.startswith("dmfvi"):
            summary = (made.__doc__ or "").strip().partition("\n")[0]
            assert summary, f"{name}.{method} has no docstring"
            assert summary.endswith("."), f"{name}.{method}: the summary is one line"


def test_the_worked_model_runs_and_is_the_librarys_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "write_your_own_model.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    names: dict[str, object] = {"__name__": "worked_example"}
    exec(compile(code, "write_your_own_model.md", "exec", dont_inherit=True), names)
    assert "shape" in capsys.readouterr().out
    ours = infer(PoissonGamma(3), names["hospitals"], Network.ring(4))  # type: ignore[arg-type]
    theirs = names["result"]
    np.testing.assert_array_equal(ours.posterior.pack(), theirs.posterior.pack())  # type: ignore[attr-defined]
    lines = code.partition("class PoissonGamma")[2].partition("rng = ")[0].strip().splitlines()
    assert len(lines) < 40


def test_the_readme_runs_as_it_is(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    text = (DOCS.parent / "README.md").read_text()
    names: dict[str, object] = {"__name__": "readme"}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(code, "README.md", "exec", dont_inherit=True), names)
    rounds, distance = capsys.readouterr().out.split()[:2]
    assert int(rounds) < 100
    assert float(distance) < 1e-6


def test_the_skeleton_runs_as_it_is() -> None:
    spec = importlib.util.spec_from_file_location(
        "skeleton", ROOT / "src/dmfvi/examples/skeleton_model.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["skeleton"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    rng = np.random.default_rng(0)
    waits = [rng.exponential([1.0, 0.2], size=(n, 2)) for n in (10, 40, 25)]
    result = infer(module.MyModel(2), waits, Network.chain(3))
    p = result.posterior.parameters()
    np.testing.assert_allclose(p["shape"], 1.0 + 75)
    np.testing.assert_allclose(p["rate"], 1.0 + np.concatenate(waits).sum(0))


def test_too_few_statistics_are_named() -> None:
    from dmfvi import Statistics

    class Short(PoissonGamma):
        def local_step(self, shard, q):
            return Statistics(np.zeros(2), 0.0)

    with pytest.raises(
        ValueError, match=r"Short\.local_step gave 2 numbers of statistics, expected 6"
    ):
        infer(Short(3), [np.ones((4, 3))])


def test_the_wrong_number_of_shards_is_named() -> None:
    with pytest.raises(ValueError, match="received 2 shards for a network of 3 nodes"):
        infer(PoissonGamma(1), [np.ones((4, 1))] * 2, Network.ring(3))
