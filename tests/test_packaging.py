"""What is built from this repository: metadata, files of the source archive, examples in the package."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from cli_run import dmfvi_command

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WRITE_EXAMPLES = ROOT / "docs" / "write_examples.py"


def tracked(folder: str) -> list[str]:
    """Files of the repository, as git knows them."""
    listed = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode or not listed.stdout:
        pytest.skip("not a git repository")
    return listed.stdout.split()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Source archive and wheel of a copy of the tracked files."""
    required = PROJECT["build-system"]["requires"][0]
    setuptools = importlib.util.find_spec("setuptools")
    if setuptools is None:
        pytest.skip("setuptools is not installed")
    from packaging.requirements import Requirement
    from setuptools import __version__

    if __version__ not in Requirement(required).specifier:
        pytest.skip(f"setuptools {__version__} is installed, the build needs {required}")
    folder = tmp_path_factory.mktemp("build")
    copy = folder / "dmfvi"
    for name in tracked("."):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    program = (
        "from setuptools import build_meta as b; b.build_sdist('../dist'); b.build_wheel('../dist')"
    )
    (folder / "dist").mkdir()
    subprocess.run([sys.executable, "-c", program], cwd=copy, check=True, capture_output=True)
    return next(folder.glob("dist/*.tar.gz")), next(folder.glob("dist/*.whl"))


def test_the_source_archive_has_docs_tests_and_changes(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("docs", "tests", "benchmarks", "src"):
        assert set(tracked(folder)) <= inside
    for name in ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile"):
        assert name in inside
    assert not [name for name in inside if name.endswith((".pyc", ".nbi", ".nbc"))]


def test_the_wheel_has_examples_types_and_the_licence(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        inside = archive.namelist()
        about = next(name for name in inside if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())
    assert {f"dmfvi/examples/{path.name}" for path in EXAMPLES} <= set(inside)
    assert "dmfvi/py.typed" in inside
    assert [name for name in inside if name.endswith(".dist-info/licenses/LICENSE")]
    assert not [name for name in inside if name.startswith(("tests", "docs", "benchmarks"))]
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert metadata["License-File"] == "LICENSE"


def test_the_description_of_the_package_leads_nowhere_outside(built: tuple[Path, Path]) -> None:
    """No link and no image of the README is relative: an index shows the text without the repository."""
    with zipfile.ZipFile(built[1]) as archive:
        about = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())
    said = metadata.get_payload()
    assert isinstance(said, str)
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert not re.findall(r"\]\((?!https?:)", said)
    assert not re.findall(r"!\[|<img|<a ", said)
    named = re.findall(r"`((?:docs/|[A-Z])[\w/]*\.(?:md|cff))`", said)
    readme = (ROOT / "README.md").read_text()
    links = re.findall(r"(?<!!)\[[^\]]*\]\(([^)]*)\)", readme)
    assert len(links) >= 20
    assert set(links) == set(named)  # every link is the name of a file
    with tarfile.open(built[0]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert set(named) <= inside
    assert {line for line in readme.splitlines() if line.startswith("#")} <= set(said.splitlines())


def test_metadata_are_those_of_today() -> None:
    project = PROJECT["project"]
    assert project["license"] == "BSD-3-Clause"  # an SPDX expression, PEP 639
    assert all((ROOT / name).exists() for name in project["license-files"])
    assert not [each for each in project["classifiers"] if each.startswith("License ::")]
    lowest = re.fullmatch(r">=(3\.\d+)", project["requires-python"])
    assert lowest is not None
    assert f"Programming Language :: Python :: {lowest[1]}" in project["classifiers"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()


EXAMPLES = sorted((ROOT / "src" / "dmfvi" / "examples").glob("*.py"))


def test_examples_of_the_package_are_those_of_the_pages() -> None:
    programs = runpy.run_path(str(WRITE_EXAMPLES))["programs"]()
    assert {path.name for path in EXAMPLES} == {*programs, "skeleton_model.py"}
    for path in EXAMPLES:
        if path.name in programs:
            assert path.read_text() == programs[path.name], "make examples writes them anew"


def test_a_user_of_the_package_gets_the_examples(tmp_path: Path) -> None:
    assert dmfvi_command("example", "docs", tmp_path / "docs").code == 0
    said = dmfvi_command("example", "model", tmp_path / "model")
    assert said.code == 0
    assert "skeleton_model.py" in said.out
    written = {path.name for path in tmp_path.rglob("*.py")}
    assert written == {path.name for path in EXAMPLES}


def test_the_skeleton_checks_and_fits_itself(tmp_path: Path) -> None:
    dmfvi_command("example", "model", tmp_path)
    done = subprocess.run(
        [sys.executable, tmp_path / "skeleton_model.py"], capture_output=True, text=True, check=True
    )
    assert "rates" in done.stdout
