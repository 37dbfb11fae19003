"""What a node does not use is not loaded: memory that would be taken once for every node of a machine."""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_run import dmfvi_command
from dmfvi.cli import single_node
from dmfvi.cli.exit_codes import ExitCode
from dmfvi.cli.single_node import Arguments, LogLevel, plain
from dmfvi.datasets import make_low_rank
from dmfvi.deploy.program import Ended
from dmfvi.engines.net.keys import init_authority, issue
from dmfvi.extras import _CHILDREN, defer
from dmfvi.network import Network
from processes import Processes, running

#: a node's imports, its check of the data, a fit with a neighbour, and its file
PROGRAM = """
import sys
from pathlib import Path
import dmfvi.__main__
from dmfvi.cli.single_node import load_lean
load_lean()
import dmfvi.deploy.program
from dmfvi.datasets import make_low_rank
from dmfvi.deploy.program import Ended
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
                          "scipy.optimize._minimize", "matplotlib", "numba", "typer", "rich", "pydantic") if name in sys.modules))
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


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("node --config a.toml", Arguments(Path("a.toml"))),
        ("node --config=a.toml --insecure", Arguments(Path("a.toml"), True)),
        (
            "node --log-level error --config a.toml",
            Arguments(Path("a.toml"), log_level=LogLevel.error),
        ),
        ("", None),
        ("launch a.toml", None),
        ("node", None),  # what is missing or wrong is said by the parser of all commands
        ("node --help", None),
        ("node --config", None),
        ("node --config --insecure", None),
        ("node --config=", None),
        ("node --config a.toml --config b.toml", None),
        ("node --config a.toml --insecure=yes", None),
        ("node --config a.toml --log-level loud", None),
        ("node --config a.toml --secure", None),
        ("node --config a.toml b.toml", None),
    ],
)
def test_plain_commands_of_nodes_are_told_from_others(line: str, wanted: Arguments | None) -> None:
    assert plain(line.split()) == wanted


def test_both_parsers_run_a_node_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the plain one does not take is left to the other."""
    ran: list[tuple[str, Arguments]] = []

    def ran_by(parser: str) -> Callable[[Arguments], ExitCode]:
        def run(given: Arguments) -> ExitCode:
            ran.append((parser, given))
            return ExitCode.PARTIAL

        return run

    monkeypatch.setattr(single_node, "run", ran_by("plain"))
    monkeypatch.setattr("dmfvi.cli.node.run", ran_by("of all commands"))
    line = ["node", "--config", str(tmp_path / "a.toml"), "--insecure", "--log-level", "debug"]
    for read in (plain, lambda given: None):
        monkeypatch.setattr(single_node, "plain", read)
        assert dmfvi_command(*line).code == ExitCode.PARTIAL
    given = Arguments(tmp_path / "a.toml", True, LogLevel.debug)
    assert ran == [("plain", given), ("of all commands", given)]


def test_ctrl_c_ends_a_node_as_all_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and no traceback."""

    def interrupted(given: Arguments) -> ExitCode:
        raise KeyboardInterrupt

    monkeypatch.setattr(single_node, "run", interrupted)
    monkeypatch.setattr("dmfvi.cli.node.run", interrupted)
    for read in (plain, lambda given: None):
        monkeypatch.setattr(single_node, "plain", read)
        assert dmfvi_command("node", "--config", "a.toml") == (
            ExitCode.INTERRUPTED,
            "",
            "interrupted: no result is written",
        )


@pytest.mark.parametrize(
    ("converged", "missing", "code", "words"),
    [
        (True, [], ExitCode.DONE, []),
        (True, [{"node": 3}], ExitCode.PARTIAL, ["PARTIAL: the data of nodes [3] are not in it"]),
        (False, [], ExitCode.NOT_CONVERGED, ["NOT converged: raise max_iter"]),
        (False, [{"node": 3}], ExitCode.NOT_CONVERGED, ["PARTIAL", "NOT converged"]),
    ],
)
def test_how_a_node_has_ended_is_its_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    converged: bool,
    missing: list[Any],
    code: ExitCode,
    words: list[str],
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        '[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = "a.npy"\n[peers]\n1 = "127.0.0.1:7001"\n'
    )
    ended = Ended(tmp_path / "model.npz", converged, missing)
    monkeypatch.setattr("dmfvi.deploy.program.run_node", lambda settings, watch: ended)
    monkeypatch.setattr(single_node, "exit_on_termination", lambda: None)
    assert single_node.run(Arguments(file, insecure=True)) is code
    said = capsys.readouterr()
    assert f"posterior: {tmp_path / 'model.npz'}" in said.out
    for each in ("PARTIAL", "NOT converged"):
        assert (each in said.err) == any(each in word for word in words)
    assert all(word in said.err for word in words)


@pytest.mark.slow
def test_nodes_with_certificates_take_at_most_120_mb(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    init_authority(keys)
    for node in range(2):
        issue(keys, node, ["127.0.0.1"])
    shards = np.split(make_low_rank(20, 8, 2, noise=0.3, seed=0).data, 2)
    cluster = Processes(tmp_path, Network.chain(2), shards, keys, faults="latency = 0.05")
    most = {0: 0, 1: 0}
    with running(cluster):
        while cluster.alive():
            for node in cluster.alive():
                status = Path(f"/proc/{cluster.running[node].pid}/status")
                with suppress(OSError, StopIteration):  # it has ended
                    lines = status.read_text().splitlines()
                    most[node] = int(next(x for x in lines if x.startswith("VmHWM")).split()[1])
            time.sleep(0.1)
    assert [cluster.running[node].returncode for node in range(2)] == [0, 0]
    assert 20_000 < max(most.values()) <= 120 * 1024, most


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


def test_launch_says_whose_data_are_missing(tmp_path: Path) -> None:
    """As the nodes' status files say."""
    from types import SimpleNamespace

    from dmfvi.cli.node import _partial

    settings: Any = {}
    for node, missing in ((0, [{"node": 7}]), (1, [{"node": 3}, {"node": 7}]), (2, None)):
        out = tmp_path / str(node)
        out.mkdir()
        (out / "status.json").write_text(json.dumps({"node": node, "missing": missing}))
        settings[tmp_path / f"n{node}.toml"] = SimpleNamespace(out=out)
    assert _partial(settings) == "the result is PARTIAL: the data of nodes [3, 7] are not in it"
