"""What ``import dmfvi`` gives, and what it does not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dmfvi
from dmfvi.models import ESTIMATORS

HEAVY = {"numpy", "scipy", "sklearn", "networkx", "numba", "matplotlib"}


def loaded_by(program: str) -> set[str]:
    """Packages in memory at the end of a program."""
    return {name.partition(".")[0] for name in modules_of(program)}


def modules_of(program: str) -> set[str]:
    """Modules in memory at the end of a program."""
    tail = "\nimport sys\nprint('loaded', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program + tail], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_import_dmfvi_loads_nothing_heavy() -> None:
    assert not loaded_by("import dmfvi; dmfvi.__version__") & HEAVY
    assert {"numpy", "sklearn"} <= loaded_by("from dmfvi import BayesianPCA")


def test_help_loads_nothing_heavy() -> None:
    program = "import contextlib, sys; from dmfvi.cli import main; sys.argv = ['dmfvi', {!r}]\n"
    program += "with contextlib.suppress(SystemExit): main()"
    assert not loaded_by(program.format("--help")) & HEAVY
    assert "sklearn" in loaded_by(program.format("models"))


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
for line in {lines!r}:
    sys.argv = ["dmfvi", *line.split()]
    with contextlib.suppress(SystemExit):
        main()
        raise AssertionError(line)
"""


def test_cheap_mistakes_load_nothing_heavy(tmp_path: Path) -> None:
    """An error in one line is said at once."""
    assert loaded_by(RUN.format(lines=MISTAKES)) & HEAVY <= {"numpy"}  # of readers
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    later = [f"fit {tmp_path}/t.csv --model none", f"fit {tmp_path}/t.csv --columns c"]
    slow = {"scipy.stats._stats_py", "pandas.core", "networkx.classes", "numba"}
    assert not modules_of(RUN.format(lines=later)) & slow


def test_every_estimator_is_a_name_of_the_package() -> None:
    assert set(ESTIMATORS) < set(dmfvi.__all__) < set(dir(dmfvi))
    for name in dmfvi.__all__:
        assert getattr(dmfvi, name) is not None
    for name, estimator in ESTIMATORS.items():
        assert getattr(dmfvi, name) is estimator


def test_everything_can_be_imported_by_star() -> None:
    assert "sklearn" in loaded_by("from dmfvi import *; BayesianPCA, Network, load, __version__")


@pytest.mark.parametrize("name", ["bayesian", "Bayesian", "_private"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute {name!r}"):
        getattr(dmfvi, name)
