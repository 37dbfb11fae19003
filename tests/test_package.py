"""What ``import dmfvi`` gives, and what it does not load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import dmfvi
from dmfvi.models import ESTIMATORS

HEAVY = {"numpy", "scipy", "sklearn", "networkx", "numba", "matplotlib"}


def packages(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def loaded_by(program: str) -> set[str]:
    """Packages in memory at the end of a program."""
    return packages(printed_by(program)[-1].split())


def printed_by(program: str) -> list[str]:
    """The lines that a program prints, and the modules in memory at its end as the last."""
    tail = "\nimport sys\nprint('loaded', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program + tail], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_import_dmfvi_loads_nothing_heavy() -> None:
    """What the names of the package load is seen below: ``from dmfvi import *`` loads all of it."""
    assert not loaded_by("import dmfvi; dmfvi.__version__") & HEAVY


def test_help_loads_nothing_heavy() -> None:
    program = "import contextlib, sys; from dmfvi.cli import main; sys.argv = ['dmfvi', '--help']\n"
    program += "with contextlib.suppress(SystemExit): main()"
    assert not loaded_by(program) & HEAVY


#: what is wrong before a model is needed
MISTAKES = (
    "fit none.csv",
    "fit none.csv --nope",
    "fit none.csv --decimal x",
    "predict none.csv --model none",
    "impute none.csv --model none",
    "show none",
    "report none",
    "sfm none.csv",
    "ratings fit none.csv",
    "ratings predict none.csv --model none",
    "ratings recommend --model none --user 1",
    "node --config none.toml",
    "launch none.toml",
)
RUN = """
import contextlib, sys
from dmfvi.cli import main

def fail(line):
    sys.argv = ["dmfvi", *line.split()]
    with contextlib.suppress(SystemExit):
        main()
        raise AssertionError(line)

for line in {at_once!r}:
    fail(line)
print("at once", *sys.modules)
for line in {later!r}:
    fail(line)
"""


def test_cheap_mistakes_load_nothing_heavy(tmp_path: Path) -> None:
    """An error in one line is said at once."""
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    later = [f"fit {tmp_path}/t.csv --model none", f"fit {tmp_path}/t.csv --columns c"]
    said = printed_by(RUN.format(at_once=MISTAKES, later=later))
    (at_once,) = (line for line in said if line.startswith("at once"))
    assert not packages(at_once.split()[2:]) & HEAVY
    slow = {"scipy.stats._stats_py", "pandas.core", "networkx.classes", "numba"}
    assert not set(said[-1].split()) & slow


def test_every_estimator_is_a_name_of_the_package() -> None:
    assert set(ESTIMATORS) < set(dmfvi.__all__) < set(dir(dmfvi))
    for name in dmfvi.__all__:
        assert getattr(dmfvi, name) is not None
    for name, estimator in ESTIMATORS.items():
        assert getattr(dmfvi, name) is estimator


def test_everything_can_be_imported_by_star() -> None:
    loaded = loaded_by("from dmfvi import *; BayesianPCA, Network, load, __version__")
    assert {"numpy", "scipy", "sklearn"} <= loaded


@pytest.mark.parametrize(
    "name", ["consensus", "datasets", "engines", "families", "models", "readers", "storage"]
)
def test_packages_are_found_after_one_import(name: str) -> None:
    """As the pages write it: import dmfvi; dmfvi.readers.read_table(...)."""
    (said, _) = printed_by(f"import dmfvi; print(dmfvi.{name}.__name__)")
    assert said == f"dmfvi.{name}"


@pytest.mark.parametrize("name", ["bayesian", "Bayesian", "_private"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute {name!r}"):
        getattr(dmfvi, name)
