"""Commands of all pages, run as they are, in a folder that has the files they name; those that are not run are listed with the reason."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

import sessions
from cli_run import dmfvi_command
from dmfvi import Network
from dmfvi.cli.exit_codes import ExitCode
from dmfvi.datasets import make_cube, make_low_rank, make_ratings
from dmfvi.engines.net.keys import init_authority, issue
from mpi_runs import run as run_ranks
from processes import Processes

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
]
#: what commands begin with
PROGRAMS = ("dmfvi", "mpiexec", "pip", "make", "python", "pre-commit", "git", "apt-get")

INSTALLS = "installs packages, into the environment that runs the tests or another"
SUITE = "runs these tests, or a part of them"
MEASURES = "is a measurement: it takes minutes, and its result is a figure of the pages"
EDITS = "rewrites files of the clone"
FORM = "has words in the place of values: a form, no command"
#: commands that are not run here, and why
NOT_RUN = {
    "pip install .": INSTALLS,
    "pip install '.[report]'": INSTALLS,
    "pip install -e '.[mpi]'": INSTALLS,
    "pip install -e '.[net]'": INSTALLS,
    "pip install '.[arviz]'": INSTALLS,
    "pip install '.[formula]'": INSTALLS,
    "pip install mlflow": INSTALLS,
    "make install": INSTALLS,
    "make demo": INSTALLS,
    "make docs": INSTALLS,
    "pre-commit install": "adds a hook to the clone",
    "make test": SUITE,
    "make test-slow": SUITE,
    "make lint": "runs by itself before a change lands",
    "make format": EDITS,
    "make examples": EDITS,
    "make schedules": "runs by itself before a change lands",
    "make explore": MEASURES,
    "make soak": MEASURES,
    "make bench": MEASURES,
    "make bench-ratings": MEASURES,
    "python benchmarks/imputation.py": MEASURES,
    "python benchmarks/scale.py": MEASURES,
    "python benchmarks/interval_coverage.py": MEASURES,
    "python benchmarks/response_sampler.py --draws 1500": MEASURES,
    "python benchmarks/response_cost.py": MEASURES,
    "python benchmarks/starts.py --first 100": MEASURES,
    "python tests/simulation.py --replay SEED": FORM,
    "dmfvi reproduce NAME [--quick|--full] [--data DIR] [--out DIR] [--jobs N]": FORM,
    "dmfvi --install-completion": "changes the start-up files of the user's shell",
    "dmfvi warmup": "compiles for a minute; tests/test_warmup.py runs it",
    "dmfvi warmup --components 20": "compiles for a minute; tests/test_warmup.py runs it for 12",
}
#: commands that take more than a few seconds
LONG = ("dmfvi reproduce cube",)
#: commands of several machines, which tests below start
OF_NODES = ("dmfvi node --config node.toml", "dmfvi launch cluster.toml")
#: files in the place of words
GIVEN = {"FILE": "ratings.csv", "DIR": "made"}


def commands(page: str) -> list[str]:
    """The commands of a page's shell blocks; a line that ends with a backslash continues."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    blocks = [
        block.replace("\\\n", " ")
        for language, block in found
        if language in ("", "sh", "bash", "shell", "console")
    ]
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line.removeprefix(".venv/bin/") for line in lines if line]


def mentioned(page: str) -> list[str]:
    """Commands in the text of a page."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    begin = "|".join(PROGRAMS)
    found = re.findall(rf"`((?:{begin}) [^`]+)`", text)
    return [" ".join(each.split()) for each in found if not each.startswith("make(")]


def to_run(page: str, program: str) -> list[str]:
    """Commands that begin with a program and are run here, those of blocks first."""
    lines = [line for line in [*commands(page), *mentioned(page)] if line.startswith(f"{program} ")]
    return [line for line in dict.fromkeys(lines) if line not in (*NOT_RUN, *LONG, *OF_NODES)]


def pages_with(program: str) -> list[str]:
    return [page for page in PAGES if to_run(page, program)]


def write_files(folder: Path) -> None:
    """Tracks in the formats that the pages name, rows and ratings of ten ranks, tables with words and gaps."""
    pixels = np.concatenate(make_cube(n_frames=10).cameras).reshape(-1, 2, 8)
    savemat(folder / "tracks.mat", {"measurement_matrix": pixels.reshape(-1, pixels.shape[2])})
    savemat(folder / "hotel_tracks.mat", {"track_x": pixels[:, 0].T, "track_y": pixels[:, 1].T})
    points = np.concatenate([pixels, np.ones_like(pixels[:, :1])], axis=1)
    savemat(
        folder / "1R2RC_truth.mat",
        {"y": np.moveaxis(points, 0, 2), "s": np.ones((pixels.shape[2], 1))},
    )
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(3, 6))
    ratings = make_ratings(6000, seed=0).ratings.tocoo()
    triples = np.column_stack([ratings.row, ratings.col, ratings.data])
    for rank in range(10):
        rows = rng.normal(size=(20, 3)) @ loadings + 0.3 * rng.normal(size=(20, 6))
        np.save(folder / f"part-{rank}.npy", rows)
        own = triples[ratings.row % 10 == rank]
        np.savetxt(folder / f"part-{rank}.csv", own, "%g", ",")
    for name in ("ratings", "big"):
        np.savetxt(
            folder / f"{name}.csv", triples, "%g", ",", header="user,item,rating", comments=""
        )
    np.savetxt(folder / "own.csv", rows, "%g", ",", header="a,b,c,d,e,f", comments="")
    for name in ("a", "b", "table"):
        lines = ["patient,ward,age,bmi,days,died"]
        for n in range(40):
            ward, age = ("north", "south")[n % 2], f"{60 + 9 * rng.normal():.1f}"
            bmi = "" if n % 7 == 0 else f"{26 + 3 * rng.normal():.1f}"
            days, died = rng.integers(1, 400), int(rng.random() < 0.4)
            lines.append(f"P{n},{ward},{age},{bmi},{days},{died}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    write_files(made)
    return made


@pytest.fixture
def folder(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One of its own for each page: what a page needs, it must make or name."""
    for file in files.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", pages_with("dmfvi"))
def test_the_commands_of_a_page_run_one_after_another(page: str, folder: Path) -> None:
    """In the text a command may be named without its arguments."""
    whole = commands(page)
    for line in to_run(page, "dmfvi"):
        words = [GIVEN.get(word, word) for word in shlex.split(line)[1:]]
        ended = dmfvi_command(*words)
        named_only = line not in whole and ended.code == ExitCode.USAGE
        assert ended.code == 0 or named_only, (line, ended.err)


@pytest.mark.slow
@pytest.mark.parametrize("line", LONG)
def test_the_long_commands_run(line: str, folder: Path) -> None:
    ended = dmfvi_command(*shlex.split(line)[1:])
    assert ended.code == 0, ended.err


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("mpiexec"))
def test_the_commands_for_ranks_run(page: str, folder: Path) -> None:
    """Ten ranks, as the pages have it, with the options of mpiexec that this machine needs."""
    for line in to_run(page, "mpiexec"):
        count, program = re.fullmatch(r"mpiexec -n (\d+) python -m mpi4py (.*)", line).groups()  # type: ignore[union-attr]
        done: Any = run_ranks(folder, int(count), *shlex.split(program))
        assert done.returncode == 0, (line, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("line", OF_NODES)
def test_the_commands_of_nodes_run(line: str, tmp_path: Path) -> None:
    """With certificates: one node whose neighbour is started beside it, or all nodes of a file."""
    authority = init_authority(tmp_path / "keys").parent
    shards = np.array_split(make_low_rank(60, 5, 2, noise=0.3).data, 2)
    cluster = Processes(tmp_path, Network.chain(2), shards, authority)
    for node in range(2):
        issue(authority, node, ["127.0.0.1"])
    shutil.copy(cluster.files[0], tmp_path / "node.toml")
    dmfvi = [sys.executable, "-m", "dmfvi"]
    with ExitStack() as beside:
        if line.startswith("dmfvi node"):
            neighbour = [*dmfvi, "node", "--config", str(cluster.files[1])]
            beside.enter_context(sessions.started(neighbour, cwd=tmp_path))
        done = sessions.run([*dmfvi, *shlex.split(line)[1:]], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_no_command_is_left_out() -> None:
    """Every line of a block, and every command in a text, is run by a test above or listed with a reason."""
    found = {line for page in PAGES for line in [*commands(page), *mentioned(page)]}
    run = {
        line for page in PAGES for program in ("dmfvi", "mpiexec") for line in to_run(page, program)
    }
    assert found == run | {*NOT_RUN, *LONG, *OF_NODES}
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in NOT_RUN:
        program, what, *_ = line.split()
        assert program != "make" or what in targets
        assert program != "python" or (ROOT / what).exists()
