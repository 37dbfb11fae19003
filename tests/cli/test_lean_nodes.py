"""What a node does not use is not loaded: memory that would be taken once for every node of a machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dmfvi.extras import defer

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
