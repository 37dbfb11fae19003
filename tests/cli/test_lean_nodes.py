"""What a node does not use is not loaded: memory that would be taken once for every node of a machine."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmfvi.extras import _CHILDREN, defer

#: a node's imports, its check of the data, a fit with a neighbour, and its file
PROGRAM = """
import sys
from pathlib import Path
from dmfvi.cli.node import _load_lean
_load_lean()
import dmfvi.deploy.program
from dmfvi.datasets import make_low_rank
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.engines.local import LocalEngine
from dmfvi.engines.net.membership import Entry, View
from dmfvi.readers.tables import Table
from dmfvi.storage.models import save
settings = ModelSettings.of(n_components=2, max_iter=3)
table = Table(make_low_rank(30, 5, 2, noise=0.3).data, None)
settings.check(table)
assert View(0, {0: Entry(1, (1,)), 1: Entry(1, (0,))}).network().diameter == 1
model = settings.fit(table, View(0, {0: Entry(1, ())}).network(), LocalEngine())
save(model, Path(sys.argv[1]))
print(*(name for name in ("pandas._libs", "networkx.classes", "scipy.stats._stats_py",
                          "scipy.optimize._minimize", "matplotlib", "numba") if name in sys.modules))
from scipy import stats
print(stats.norm.cdf(0.0), "scipy.stats._stats_py" in sys.modules)
"""


def test_a_node_loads_what_it_uses(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "posterior.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded, later = done.stdout.splitlines()
    assert loaded == ""
    assert later == "0.5 True"


def test_a_deferred_module_is_the_real_one_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wsgiref", "wsgiref.util"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    defer("wsgiref")
    import wsgiref

    stub = sys.modules["wsgiref"]
    assert wsgiref is stub
    from wsgiref import util  # a module of the package loads it

    assert sys.modules["wsgiref"] is not stub
    assert stub.util is util  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = stub.no_such_name
    defer("wsgiref")  # nothing is put in place of what is there
    assert sys.modules["wsgiref"] is not stub


# -- a deferred package ---------------------------------------------------------------------------

PACKAGE = "dmfvi_deferred_package"
FILES = {
    "__init__.py": f"from {PACKAGE}.early import runs\n__version__ = '3.1'\n__all__ = ['runs']\n",
    "early.py": f"import builtins\nruns = [1]\nbuiltins.{PACKAGE}_runs.append(1)\n",
    "late.py": "",
}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A package of two modules, one of which it imports itself, is deferred; how often that one has run."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    seen: list[int] = []
    monkeypatch.setattr(f"builtins.{PACKAGE}_runs", seen, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    finders, modules = list(sys.meta_path), set(sys.modules)
    defer(PACKAGE)
    yield seen
    sys.meta_path[:] = finders
    _CHILDREN.packages.discard(PACKAGE)
    for name in set(sys.modules) - modules:
        if name.startswith(PACKAGE):
            del sys.modules[name]


def test_a_deferred_package_is_found_and_not_loaded_by_looking(runs: list[int]) -> None:
    exec(f"import {PACKAGE}", {})
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    assert spec.origin.endswith("__init__.py")
    inspect.getmodule(inspect.currentframe())  # looks at the files of all modules
    assert not runs


@pytest.mark.parametrize(
    "use",
    [
        "import {0}; assert {0}.__version__ == '3.1'",
        "from {0} import *; assert runs == [1]",
        "import {0}; assert vars({0})['__all__'] == ['runs']",
        "import {0}; assert 'runs' in dir({0})",
        "import {0}; {0}.more = 2; import sys; assert sys.modules['{0}'].more == 2",
        "import {0} as held; import {0}.early; assert held.runs is {0}.early.runs",
        "import {0}.late; assert {0}.late.__name__ == '{0}.late'",
        "from {0}.early import runs; import {0}; assert {0}.runs is runs",
        "import {0}.early, sys; assert {0}.early.__spec__.origin.endswith('early.py')",
    ],
)
def test_every_use_loads_a_deferred_package_once(runs: list[int], use: str) -> None:
    exec(use.format(PACKAGE), {})
    assert runs == [1]


def test_what_is_not_installed_is_not_deferred() -> None:
    defer("dmfvi_no_such_package")
    with pytest.raises(ModuleNotFoundError):
        exec("import dmfvi_no_such_package", {})
