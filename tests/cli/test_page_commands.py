"""Shell blocks of all pages, run as they are, in a folder that has the files they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from cli_run import dmfvi_command
from dmfvi.datasets import make_cube, make_ratings
from mpi_runs import run as run_ranks

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
#: what sets up a machine is run by those who set one up, and the paper's experiments have tests of their own
ELSEWHERE = ("pip install", "make ", "dmfvi reproduce", "dmfvi node")


def commands(page: str) -> list[str]:
    """The commands of a page's shell blocks; a line that ends with a backslash continues."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    blocks = [block.replace("\\\n", " ") for language, block in found if language in ("", "sh")]
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def pages_with(word: str) -> list[str]:
    return [page for page in PAGES if any(line.startswith(word) for line in commands(page))]


def write_files(folder: Path) -> None:
    """Tracks in the formats that the pages name, rows and ratings of ten ranks."""
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
    for rank in range(10):
        rows = rng.normal(size=(20, 3)) @ loadings + 0.3 * rng.normal(size=(20, 6))
        np.save(folder / f"part-{rank}.npy", rows)
        own = ratings.row % 10 == rank
        triples = np.column_stack([ratings.row[own], ratings.col[own], ratings.data[own]])
        np.savetxt(folder / f"part-{rank}.csv", triples, "%g", ",")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", pages_with("dmfvi "))
def test_the_commands_of_a_page_run_one_after_another(page: str, folder: Path) -> None:
    lines = [line for line in commands(page) if line.startswith("dmfvi ")]
    for line in lines:
        if line.startswith(ELSEWHERE):
            continue
        ended = dmfvi_command(*shlex.split(line)[1:])
        assert ended.code == 0, (line, ended.err)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("mpiexec "))
def test_the_commands_for_ranks_run(page: str, folder: Path) -> None:
    """Ten ranks, as the pages have it, with the options of mpiexec that this machine needs."""
    for line in commands(page):
        if line.startswith("mpiexec "):
            count, program = re.fullmatch(r"mpiexec -n (\d+) python -m mpi4py (.*)", line).groups()  # type: ignore[union-attr]
            done: Any = run_ranks(folder, int(count), *shlex.split(program))
            assert done.returncode == 0, (line, done.stderr)


def test_no_shell_block_is_left_out() -> None:
    """Every line of a block is a command that one of the tests above runs, or is named in ELSEWHERE."""
    known = ("dmfvi ", "mpiexec ", *ELSEWHERE)
    for page in PAGES:
        for line in commands(page):
            assert line.startswith(known), (page, line)
