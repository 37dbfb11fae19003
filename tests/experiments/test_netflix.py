"""The Netflix experiment on small sets, generated and in the real files' layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dmfvi.datasets import make_ratings
from dmfvi.experiments.netflix import SYSTEMS, run


def test_every_system_is_scored_and_nodes_change_nothing() -> None:
    seen: list[str] = []
    figures = run(None, [40_000], 0, seen.append, sweeps=6)
    assert set(figures) == {
        f"netflix/{system}/0.04M/{metric}" for system in SYSTEMS for metric in ("rmse", "coverage")
    }
    assert any("D-BPCA RMSE" in message for message in seen)
    rmse = {system: figures[f"netflix/{system}/0.04M/rmse"] for system in SYSTEMS}
    for name in ("PPCA", "BPCA"):
        assert rmse[f"D-{name}"] == pytest.approx(rmse[f"C-{name}"], abs=5e-4)
    assert rmse["ratings"] < rmse["bias"] < rmse["film-mean"]
    assert rmse["C-BPCA"] < rmse["C-PPCA"]
    assert 0.87 < figures["netflix/ratings/0.04M/coverage"] < 0.93


def test_real_files_are_read_with_their_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMFVI_CACHE", str(tmp_path / "cache"))
    R = make_ratings(8_000, n_users=200, n_items=60, rank=2, seed=1).ratings.tocsc()
    folder = tmp_path / "training_set"
    folder.mkdir()
    probe = []
    for item in range(R.shape[1]):
        part = slice(R.indptr[item], R.indptr[item + 1])
        users, stars = R.indices[part] + 6, R.data[part]
        lines = [f"{u},{s:g},2005-01-01" for u, s in zip(users, stars, strict=True)]
        (folder / f"mv_{item + 1:07}.txt").write_text("\n".join([f"{item + 1}:", *lines, ""]))
        probe += [f"{item + 1}:", *map(str, np.sort(users)[::9])]
    (tmp_path / "probe.txt").write_text("\n".join(probe))
    figures = run(tmp_path, sweeps=3)
    assert 0.5 < figures["netflix/ratings/netflix/rmse"] < 1.1
