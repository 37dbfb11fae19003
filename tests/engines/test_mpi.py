"""The MPI engine: the same posterior as in one process, from ranks that hold their own rows only."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dmfvi import BayesianPCA, Federation, Network, infer
from dmfvi.deploy.kinds import NETWORK_KINDS
from dmfvi.models.poisson_gamma import PoissonGamma
from dmfvi.storage import load
from dmfvi.storage.journal import load_checkpoint, save_checkpoint
from estimator_cases import CASES, N_NODES
from helpers import low_rank_shards
from mpi_runs import LATE_KILLER, run

SHARDS = low_rank_shards([14, 20, 17, 23], n_features=6, n_components=2, missing=0.1)

PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI
from dmfvi import Federation, BayesianPCA, Network
from dmfvi.storage import save

rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
rows = np.load(f"part-{rank}.npy")
network = Network.ring(size)
model = BayesianPCA(2, network=Federation(network, sys.argv[1], "mpi"), random_state=0).fit(rows)
save(model, f"{sys.argv[1]}-{rank}.npz")
"""


CONJUGATE = """
import numpy as np
from mpi4py import MPI
from dmfvi import Federation, Network, infer
from dmfvi.models.poisson_gamma import PoissonGamma

rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
counts = np.random.default_rng(rank).poisson(3.0, size=(20 + rank, 3))
result = infer(PoissonGamma(3), [counts], Federation(Network.ring(size), engine="mpi"), random_state=0)
np.save(f"conjugate-{rank}.npy", result.posterior.pack())
try:
    infer(PoissonGamma(3 + rank), [np.zeros((2, 3 + rank))], Federation(Network.ring(size), engine="mpi"))
except ValueError as error:
    assert "ranks have messages of" in str(error), error
else:
    raise AssertionError("ranks with other columns")
"""


ESTIMATORS = """
import sys
import numpy as np
from mpi4py import MPI
sys.path.insert(0, TESTS)
from dmfvi.deploy.kinds import NETWORK_KINDS
from estimator_cases import CASES, write
from pathlib import Path
from dmfvi import Federation, BayesianGaussianMixture, Network
from dmfvi.cli.mpi import fit_rank
from dmfvi.cli.network import Topology

rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
network = Network.chain(size)
for kind in NETWORK_KINDS:
    file = write(CASES[kind].shards[rank], Path(), f"{kind}-{rank}")
    files = Path(file.name.replace(f"-{rank}.", "-{rank}."))
    fit_rank(CASES[kind].model, files, Topology.chain, Path(kind, "{rank}"), None, None, 20, False)
# every process draws a seed of its own: they must agree on one, and on the best of the starts
rows = CASES["bayesian-gaussian-mixture"].shards[rank]
free = BayesianGaussianMixture(3, n_init=3, network=Federation(network, engine="mpi")).fit(rows)
np.save(f"free-{rank}.npy", free.posterior_.pack())
"""


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    for rank, rows in enumerate(SHARDS):
        np.save(tmp_path / f"part-{rank}.npy", rows)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.parametrize("rule", ["bregman-admm", "all-reduce"])
def test_ranks_give_the_local_answer(parts: Path, rule: str) -> None:
    done = run(parts, 4, "program.py", rule)
    assert done.returncode == 0, done.stderr
    local = BayesianPCA(2, network=Federation(Network.ring(4), rule), random_state=0).fit(SHARDS)
    for rank in range(4):
        saved = load(parts / f"{rule}-{rank}.npz")
        assert saved.posterior_.distance(local.node_posteriors_[rank]) < 1e-9


def test_estimators_give_the_local_answer_on_ranks(tmp_path: Path) -> None:
    here = str(Path(__file__).parents[1])
    (tmp_path / "estimators.py").write_text(ESTIMATORS.replace("TESTS", repr(here)) + CONJUGATE)
    done = run(tmp_path, N_NODES, "estimators.py")
    assert done.returncode == 0, done.stderr
    network = Network.chain(N_NODES)
    for kind in NETWORK_KINDS:
        case = CASES[kind]
        local = case.local(network=network, accelerated=True)
        for rank, q in enumerate(local.node_posteriors_):
            found = load(tmp_path / kind / str(rank)).posterior_
            assert found.distance(q) < 1e-9, kind
    counts = [np.random.default_rng(r).poisson(3.0, size=(20 + r, 3)) for r in range(N_NODES)]
    own = infer(PoissonGamma(3), counts, Network.ring(N_NODES), random_state=0)
    for rank, q in enumerate(own.posteriors):
        found = np.load(tmp_path / f"conjugate-{rank}.npy")
        np.testing.assert_allclose(found, q.pack(), rtol=1e-9)
    free = [np.load(tmp_path / f"free-{rank}.npy") for rank in range(N_NODES)]
    for other in free[1:]:
        np.testing.assert_allclose(other, free[0], rtol=1e-5, atol=1e-5)


def test_the_shell_checkpoints_and_resumes(parts: Path) -> None:
    fit = ["-m", "dmfvi", "fit", "part-{rank}.npy", "--engine", "mpi", "--components", "2"]
    keep = ["--checkpoint", "kept", "--every", "4", "--resume"]
    stopped = run(parts, 2, *fit, *keep, "--max-iter", "5", "--out", "stopped")
    assert "NOT converged" in stopped.stdout
    assert stopped.returncode == 4
    assert "no checkpoint in kept: the fit begins anew" in stopped.stderr
    again = run(parts, 2, *fit, *keep, "--max-iter", "5", "--out", "stopped")
    assert "NOT converged" in again.stdout, again.stderr
    further = run(parts, 2, *fit, *keep, "--out", "further")
    assert further.returncode == 0, further.stderr
    assert "begins anew" not in further.stderr
    assert not list((parts / "kept").glob("*"))  # a run that has converged leaves nothing
    local = BayesianPCA(2, noise="feature", network=Network.ring(2), random_state=0).fit(SHARDS[:2])
    assert load(parts / "further").posterior_.distance(local.posterior_) < 1e-9
    # a sweep takes two reductions on ranks
    assert int(re.search(r"(\d+)\D* rounds", further.stdout)[1]) < 2 * local.n_rounds_


def test_a_rank_killed_while_others_are_done(parts: Path) -> None:
    fit = ["-m", "dmfvi", "fit", "part-{rank}.npy", "--engine", "mpi", "--components", "2"]
    keep = ["--checkpoint", "kept", "--every", "2", "--topology", "chain"]
    (parts / "killer.py").write_text(LATE_KILLER)
    died = run(parts, 3, "killer.py", *fit[2:], *keep, "--out", "again")
    assert died.returncode != 0
    assert not (parts / "again").exists()
    (parts / "kept" / "torn.part").write_text("of a write that was killed")
    resumed = run(parts, 3, *fit, *keep, "--resume", "--out", "again")
    assert resumed.returncode == 0, resumed.stderr
    assert "anew" not in resumed.stderr, resumed.stderr
    local = BayesianPCA(2, noise="feature", network=Network.chain(3), random_state=0).fit(
        SHARDS[:3]
    )
    assert load(parts / "again").posterior_.distance(local.posterior_) < 1e-9
    # it lost a few rounds, not all of them
    assert int(re.search(r"(\d+)\D* rounds", resumed.stdout)[1]) <= 6 < local.n_rounds_
    assert not list((parts / "kept").glob("*"))


def test_files_of_ranks_are_matched_by_their_columns(parts: Path) -> None:
    names = ["a", "b", "c", "d", "e", "f"]

    def write(rank: int, order: list[int], renamed: str = "") -> None:
        head = ",".join(renamed if renamed and i == 0 else names[i] for i in order)
        rows = SHARDS[rank][:, order]
        np.savetxt(parts / f"part-{rank}.csv", rows, "%.17g", ",", header=head, comments="")

    write(0, [0, 1, 2, 3, 4, 5])
    write(1, [5, 1, 0, 3, 4, 2])
    fit = ["-m", "dmfvi", "fit", "part-{rank}.csv", "--engine", "mpi", "--components", "2"]
    done = run(parts, 2, *fit, "--out", "sorted")
    assert done.returncode == 0, done.stderr
    saved = load(parts / "sorted")
    local = BayesianPCA(2, noise="feature", network=Network.ring(2), random_state=0).fit(SHARDS[:2])
    assert saved.feature_names_in_.tolist() == names
    assert saved.posterior_.distance(local.posterior_) < 1e-6
    write(1, [0, 1, 2, 3, 4, 5], renamed="mass")
    wrong = run(parts, 2, *fit, "--out", "wrong")
    assert wrong.returncode != 0
    assert "lacks ['a'] and has ['mass'] besides" in " ".join(wrong.stderr.split())
    assert not (parts / "wrong").exists()


def test_a_file_that_every_rank_would_read_whole_is_refused(tmp_path: Path) -> None:
    from dmfvi.cli.mpi import _own
    from dmfvi.deploy.kinds import ModelSettings

    (tmp_path / "all.csv").write_text("1,2\n3,4\n")
    with pytest.raises(ValueError, match=r"write {rank} where its number goes"):
        _own(ModelSettings.of(), tmp_path / "all.csv", 0, 2, None)


def test_checkpoints_refuse_what_is_torn_or_foreign(tmp_path: Path) -> None:
    path = tmp_path / "node.npz"
    content = {"a": np.arange(5.0), "b": (1, [2.5, None], {3: "x"})}
    save_checkpoint(path, content, "mine")
    back = load_checkpoint(path, "mine")
    np.testing.assert_array_equal(back["a"], content["a"])
    assert back["b"] == content["b"]
    with pytest.raises(ValueError, match="another model"):
        load_checkpoint(path, "yours")
    data = path.read_bytes()
    for cut in (10, len(data) // 2, len(data) - 3):
        path.write_bytes(data[:cut])
        with pytest.raises(ValueError, match="damaged or no checkpoint"):
            load_checkpoint(path, "mine")
    with pytest.raises(TypeError, match="cannot write"):
        save_checkpoint(path, {"f": open}, "mine")
    save_checkpoint(path, content, "mine")
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["a0"] = arrays["a0"] + 1.0
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="altered"):
        load_checkpoint(path, "mine")
