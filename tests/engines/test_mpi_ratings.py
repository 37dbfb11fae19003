"""Ratings over MPI: ranks that know different users and items end with the answer of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmfvi import Federation, Network, RatingFactorization, load
from dmfvi.models.ratings.catalogue import _heard, _spoken, _union
from mpi_runs import KILLER, RANKS, rating_triples, run


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    for rank in range(RANKS):
        rows = np.column_stack([*rating_triples(rank)])
        np.savetxt(
            tmp_path / f"part-{rank}.csv", rows, "%g", ",", header="user,item,rating", comments=""
        )
    return tmp_path


PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI
from dmfvi import Federation, Network, RatingFactorization
sys.path.insert(0, sys.argv[1])
from mpi_runs import rating_triples as triples

rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
for rule, text in (("statistics-tracking", True), ("all-reduce", False)):
    seed = 4 if rank == 0 else None  # everybody takes rank 0's
    model = RatingFactorization(
        3, network=Federation(Network.ring(size), rule, "mpi"), max_iter=6, random_state=seed
    ).fit(triples(rank, text))
    users, _, _ = triples(rank)
    mean, std = model.predict(users[:20], model.item_ids_[:20], return_std=True)
    np.savez(f"{rule}-{rank}.npz", ids=model.item_ids_, items=model.item_factors_, users=model.user_factors_,
             bias=model.item_bias_, mean=mean, std=std, scale=model.rating_scale_)
    told = []
    def enough(checkpoint):
        told.append(checkpoint.sweeps)
        return rank == 1 and checkpoint.sweeps >= 3
    stopped = RatingFactorization(3, network=Federation(Network.ring(size), rule, "mpi"), max_iter=50, random_state=seed).fit(triples(rank), on_sweep=enough)
    assert 3 <= stopped.n_iter_ < 9 and not stopped.converged_, stopped.n_iter_
    if rule == "all-reduce":
        until = RatingFactorization(3, network=Federation(Network.ring(size), rule, "mpi"), max_iter=7, tol=1e-9, random_state=seed).fit(triples(rank))
        assert until.n_iter_ == 7 and not until.converged_, until.n_iter_
"""


def test_ranks_with_other_items_and_users_give_the_local_answer(parts: Path) -> None:
    (parts / "program.py").write_text(PROGRAM)
    done = run(parts, RANKS, "program.py", str(Path(__file__).parents[1]))
    assert done.returncode == 0, done.stderr
    for rule, text in (("statistics-tracking", True), ("all-reduce", False)):
        blocks = [rating_triples(rank, text) for rank in range(RANKS)]
        local = RatingFactorization(
            3, network=Federation(Network.ring(RANKS), rule), max_iter=6, random_state=4
        ).fit(blocks)
        at = 0
        for rank in range(RANKS):
            found = np.load(parts / f"{rule}-{rank}.npz")
            np.testing.assert_array_equal(found["ids"], local.item_ids_)
            assert tuple(found["scale"]) == tuple(local.rating_scale_)
            here = slice(at, at + len(found["users"]))
            at = here.stop
            seen = local.at_node(rank)
            for name, expected in (
                ("items", seen.item_factors_),
                ("bias", seen.item_bias_),
                ("users", local.user_factors_[here]),
            ):
                np.testing.assert_allclose(found[name], expected, atol=1e-9, err_msg=name)
            mean, std = seen.predict(blocks[rank][0][:20], local.item_ids_[:20], return_std=True)
            np.testing.assert_allclose(found["mean"], mean, atol=1e-9)
            np.testing.assert_allclose(found["std"], std, atol=1e-9)


def test_the_shell_fits_ranks_and_resumes_after_a_kill(parts: Path) -> None:
    fit = [
        "-m",
        "dmfvi",
        "ratings",
        "fit",
        "part-{rank}.csv",
        "--engine",
        "mpi",
        "--components",
        "3",
    ]
    fit += ["--sweeps", "16", "--holdout", "0.1", "--every", "4", "--no-cache"]
    whole = run(parts, 2, *fit, "--out", "whole", "--predictions", "p-{rank}.csv", "--resume")
    assert whole.returncode == 0, whole.stderr
    assert "no checkpoint in" in whole.stderr
    assert "held-out RMSE" in whole.stdout
    (parts / "killer.py").write_text(KILLER)
    died = run(parts, 2, "killer.py", *fit[2:], "--out", "again")
    assert died.returncode != 0
    assert not list((parts / "again").glob("*/model.npz"))
    resumed = run(parts, 2, *fit, "--out", "again", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "begins anew" not in resumed.stderr
    for rank in range(2):
        one, other = (load(parts / name / f"rank-{rank}") for name in ("whole", "again"))
        np.testing.assert_allclose(one.item_factors_, other.item_factors_, atol=1e-12)
        np.testing.assert_array_equal(one.user_ids_, np.unique(one.user_ids_))
        assert set(one.user_ids_) <= set(rating_triples(rank)[0])
        assert (parts / f"p-{rank}.csv").read_text().startswith("user,item,rating,std,low,high")


def test_ranks_are_told_how_to_name_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are refused before anything is read."""
    from dmfvi.cli import rating_ranks
    from dmfvi.cli.network import Topology
    from dmfvi.cli.rating_ranks import Placement

    class TwoRanks:
        def Get_rank(self) -> int:
            return 1

        def Get_size(self) -> int:
            return 2

    monkeypatch.setattr(rating_ranks.MpiEngine, "__init__", lambda self: None)
    monkeypatch.setattr(rating_ranks.MpiEngine, "comm", TwoRanks(), raising=False)
    part, out = Path("part-{rank}.csv"), Path("model")
    placed = rating_ranks.one_rank(
        Placement(part, out, None, Path("p-{rank}.csv")), 1, Topology.ring
    )
    assert (placed.data, placed.out) == (Path("part-1.csv"), Path("model/rank-1"))
    assert placed.predictions == Path("p-1.csv")
    with pytest.raises(ValueError, match=r"read whole by every rank: write {rank}"):
        rating_ranks.one_rank(Placement(Path("all.csv"), out, None, None), 1, Topology.ring)
    with pytest.raises(ValueError, match="one file for all ranks"):
        rating_ranks.one_rank(Placement(part, out, None, Path("p.csv")), 1, Topology.ring)
    with pytest.raises(ValueError, match="--nodes 5 with 2 MPI ranks"):
        rating_ranks.one_rank(Placement(part, out, None, None), 5, Topology.ring)


@given(st.lists(st.integers(0, 2**62), max_size=20, unique=True))
def test_whole_ids_survive_the_telling(ids: list[int]) -> None:
    np.testing.assert_array_equal(_heard(_spoken(np.array(ids, dtype=np.int64), False) + 1e-3), ids)


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        min_size=1,
        max_size=9,
    )
)
def test_text_ids_survive_the_telling(ids: list[str]) -> None:
    assert list(_heard(_spoken(np.array(ids), False) + 1e-3)) == ids


@pytest.mark.parametrize(
    "ids", [np.array([b"a", b"bc\xff"]), np.array([3, 2**63 + 5], dtype=np.uint64), np.array([7])]
)
def test_other_ids_survive_the_telling(ids: np.ndarray) -> None:
    back = _heard(_spoken(ids, False))
    np.testing.assert_array_equal(back, ids)
    assert back.dtype.kind == ids.dtype.kind


def test_an_item_that_is_in_no_catalogue_is_refused() -> None:
    """Kernels trust the columns that they are given."""
    from dmfvi.models.ratings.table import read_input, renumbered

    block = read_input(([0, 1], [3, 8], [1.0, 2.0]), None).blocks[0]
    with pytest.raises(ValueError, match="not in the list of all items"):
        renumbered(block, np.array([3, 8]), np.array([3, 7]))


def test_catalogues_that_do_not_fit_together_are_refused() -> None:
    assert list(_union([3, np.array([1, 9])])) == [0, 1, 2, 9]
    with pytest.raises(ValueError, match=r"\[3, 4\] columns"):
        _union([3, 4])
    with pytest.raises(ValueError, match="text at some nodes and whole numbers at others"):
        _union([np.array(["a"]), np.array([1])])
    with pytest.raises(RuntimeError, match="links are too bad"):
        _heard(_spoken(np.array([5]), False) + 0.3)
