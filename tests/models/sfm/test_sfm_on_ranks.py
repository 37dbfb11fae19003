"""Structure from motion where each camera is a process of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dmfvi import Network, StructureFromMotion
from dmfvi.datasets import make_cube
from helpers import distance
from mpi_runs import run

CAMERAS = 4
PROGRAM = """
import numpy as np
from mpi4py import MPI
from dmfvi import Federation, Network, StructureFromMotion

rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
tracks = np.load(f"camera-{rank}.npy")
seed = 3 if rank == 0 else None  # everybody takes rank 0's
model = StructureFromMotion(network=Federation(Network.ring(size), engine="mpi"), random_state=seed).fit(tracks)
assert model.metric_ and len(model.cameras_) == len(tracks) // 2
np.savez(f"found-{rank}.npz", packed=model.posterior_.pack(), cameras=model.cameras_)
try:
    StructureFromMotion(network=Federation(Network.ring(size), engine="mpi")).fit(tracks[:, : 8 - rank % 2])
except ValueError as error:
    assert "different numbers of points [8, 7, 8, 7]" in str(error), error
else:
    raise AssertionError("cameras that number other points")
try:
    few = tracks.copy()
    few[:, 5] = np.nan
    StructureFromMotion(network=Federation(Network.ring(size), engine="mpi")).fit(few)
except ValueError as error:
    assert "points seen in fewer than 2 frames: 5 (0)" in str(error), error
else:
    raise AssertionError("a point that nobody sees")
"""


def test_cameras_on_ranks_give_the_local_answer(tmp_path: Path) -> None:
    parts = make_cube(seed=0, n_cameras=CAMERAS).hidden
    for rank, part in enumerate(parts):
        np.save(tmp_path / f"camera-{rank}.npy", part)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(tmp_path, CAMERAS, "program.py")
    assert done.returncode == 0, done.stderr
    local = StructureFromMotion(network=Network.ring(CAMERAS), random_state=3).fit(parts)
    for rank in range(CAMERAS):
        found = np.load(tmp_path / f"found-{rank}.npz")
        expected = local.node_posteriors_[rank]
        assert distance(expected.unpack(found["packed"]), expected) < 1e-9
        frames = local.camera_of_frame_ == rank
        np.testing.assert_allclose(found["cameras"], local.cameras_[frames], atol=1e-8)
