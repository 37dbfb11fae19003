"""One rank against two of one thread each, on the same ratings, from ratings in memory to a fitted model.

Turns alternate, medians of the clock. ``python benchmarks/mpi_ratings.py [ratings]``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import scipy.sparse as sp

from dmfvi.datasets import make_ratings

TURNS = 3
PROGRAM = """
import sys, time
import numpy as np
import scipy.sparse as sp
from mpi4py import MPI
from dmfvi import Federation, Network, RatingFactorization
from dmfvi.datasets import make_ratings

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
ratings = sp.load_npz(sys.argv[1])
cuts = np.searchsorted(ratings.indptr, ratings.nnz * np.arange(size + 1) / size)
cuts[-1] = ratings.shape[0]
mine = ratings[cuts[rank]:cuts[rank + 1]]
del ratings
RatingFactorization(12, max_iter=1).fit(make_ratings(5000, seed=1).ratings)  # compile
network = Federation(Network.complete(size), engine="mpi") if size > 1 else None
comm.Barrier()
began, cpu = time.perf_counter(), time.process_time()
model = RatingFactorization(12, network=network, random_state=0).fit(mine)
comm.Barrier()
if rank == 0:
    print(time.perf_counter() - began, time.process_time() - cpu, model.lower_bound_)
"""


def main(n_ratings: int) -> None:
    """Print times and ratios."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        print("ratings over MPI: no mpiexec, left out")
        return
    single = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    clock: dict[int, list[float]] = {1: [], 2: []}
    cpu: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        program, data = Path(folder) / "program.py", Path(folder) / "ratings.npz"
        program.write_text(PROGRAM)
        sp.save_npz(data, make_ratings(n_ratings, seed=0).ratings.tocsr(), compressed=False)
        for turn in range(2 * TURNS):
            ranks = 1 + turn % 2
            command = [found, "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
            done = subprocess.run(
                [*command, sys.executable, "-W", "ignore", "-m", "mpi4py", str(program), str(data)],
                capture_output=True,
                text=True,
                check=True,
                env=os.environ | single,
            )
            took, used, bound = (float(v) for v in done.stdout.split()[-3:])
            print(f"  {ranks} ranks: {took:.1f} s, {used:.1f} CPU s of rank 0, bound {bound:.6g}")
            clock[ranks].append(took)
            cpu[ranks].append(used)
    faster = statistics.median(clock[1]) / statistics.median(clock[2])
    cheaper = statistics.median(cpu[1]) / statistics.median(cpu[2])
    print(
        f"{n_ratings} ratings, rank 12, 20 sweeps: two ranks finish {faster:.2f} times faster than one "
        f"({cheaper:.2f} by CPU seconds of a rank)"
    )


if __name__ == "__main__":
    main(int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000)
