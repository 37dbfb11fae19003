"""What the experiments promise, on a part of their cases; recorded data are looked for outside the project."""

from __future__ import annotations

import numpy as np
import pytest

from dmfvi.experiments import caltech, cube, online
from dmfvi.experiments.protocol import tracks_case
from helpers import shared_data

BOTH = ("BPCA", "D-BPCA")


@pytest.mark.parametrize("name", list(caltech.OBJECTS))
def test_caltech_complete_is_the_svd_subspace(name: str) -> None:
    file = str(shared_data() / "caltech_turntable" / f"{name}.mat")
    found = tracks_case(file, "complete", 0.0, "known", ("D-PPCA", *BOTH), 0)
    assert found["D-BPCA"] < 0.05
    assert found["D-PPCA"] < 0.05


@pytest.mark.parametrize(("kind", "limit"), [("MAR", 0.45), ("MNAR", 7.2)])
def test_caltech_with_missing_points(kind: str, limit: float) -> None:
    folder = shared_data() / "caltech_turntable"
    found = [
        tracks_case(str(folder / f"{n}.mat"), kind, 0.1, "known", (*BOTH, "D-BPCA affine"), 7)
        for n in caltech.OBJECTS
    ]
    assert np.mean([f["D-BPCA"] for f in found]) < limit
    assert (
        np.mean([f["D-BPCA affine"] for f in found])
        < 1.05 * np.mean([f["D-BPCA"] for f in found]) + 0.05
    )
    assert max(abs(f["D-BPCA"] - f["BPCA"]) for f in found) < 0.02


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_hopkins(step: int) -> None:
    files = sorted((shared_data() / "hopkins").glob("*.mat"))[1::step]
    complete = [
        tracks_case(str(f), "complete", 0.0, "known", ("D-BPCA",), 0)["D-BPCA"] for f in files
    ]
    missing = [tracks_case(str(f), "MAR", 0.1, "known", BOTH, 0) for f in files]
    assert np.mean(complete) < 0.02
    assert np.mean([m["D-BPCA"] for m in missing]) < 2.5
    assert max(abs(m["D-BPCA"] - m["BPCA"]) for m in missing) < 0.02


@pytest.mark.parametrize("kind", ["MAR", "MNAR"])
def test_cube_with_missing_points(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cube, "MISSING_SYSTEMS", (*BOTH, "D-BPCA affine"))
    known = cube.run({"kind": kind, "noise": 0.01, "centre": "known", "run": 0})
    seen = cube.run({"kind": kind, "noise": 0.01, "centre": "seen", "run": 0})
    assert known["D-BPCA"] < 0.3
    assert abs(known["D-BPCA"] - known["BPCA"]) < 0.02
    assert seen["D-BPCA affine"] < 0.3 < seen["D-BPCA"]


def test_online_follows_the_batch_fit_after_every_step() -> None:
    found = online.run({"run": 1})
    for frames in online.FRAMES:
        apart = abs(found[f"online {frames}"] - found[f"batch {frames}"])
        assert apart < max(0.02, 0.03 * found[f"batch {frames}"])
