"""Disks, files and signals that fail at the worst moment: no wrong answer, and no node takes the others along."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmfvi.deploy.program
from bus import Killed
from dmfvi import BayesianPCA, Network, load
from dmfvi.deploy.data import digest
from dmfvi.deploy.kinds import ModelSettings
from dmfvi.engines.net.endpoint import Timing
from dmfvi.storage.files import replacing
from dmfvi.storage.models import save
from helpers import low_rank_shards
from processes import Processes
from sessions import HUNG, kill_session

CHAIN = Network.chain(3)
SHARDS = low_rank_shards([14, 20, 17], n_features=6, n_components=2, missing=0.15)
TIMING = Timing(patience=0.03, silence=30.0, settle=0.3, linger=30.0)


def check(cluster: Any, nodes: list[int]) -> None:
    """These nodes hold the posterior of all data, and name them."""
    rows = np.concatenate(cluster.shards)
    wanted = BayesianPCA(2, tol=1e-10, random_state=0).fit(rows).posterior_
    for node in nodes:
        model = cluster.saved(node)
        assert [each["node"] for each in model.members_] == [0, 1, 2]
        assert model.posterior_.distance(wanted) < 1e-6


# -- disks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 1000])
def test_a_disk_that_is_full_when_the_result_is_written(
    make_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The node goes on to help the others, tries again at the end, and then keeps the result elsewhere."""
    failed: list[Path] = []

    def full(model: Any, path: Path, *rest: Any) -> Path:
        if "node-1/" in str(path) and len(failed) < times:
            failed.append(path)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return save(model, path, *rest)

    monkeypatch.setattr(dmfvi.deploy.program, "save", full)
    monkeypatch.setattr(dmfvi.storage.models, "save", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster = make_cluster(tmp_path, CHAIN, SHARDS, timing=TIMING)
    notes: list[str] = []
    cluster.start_all()
    program = cluster.programs[1]
    program.on_status = lambda status: notes.extend(status.notes)
    for node in range(3):
        cluster.until_dead(node)
    check(cluster, [0, 2])
    assert any("No space left on device" in note for note in notes)
    if times == 1:
        assert not cluster.errors
        check(cluster, [1])
        assert program._notes() == []
    else:
        (error,) = cluster.errors
        kept = Path(str(error).rpartition(" kept in ")[2])
        assert load(kept).posterior_.distance(cluster.saved(0).posterior_) == 0.0


def test_a_node_that_is_told_to_end_while_it_writes_leaves_no_half_of_a_file(
    make_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = os.fsync

    def told(descriptor: int) -> None:
        if "node-1/tmp" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise SystemExit(143)
        synced(descriptor)

    monkeypatch.setattr("dmfvi.storage.files.os.fsync", told)
    cluster = make_cluster(tmp_path, CHAIN, SHARDS, timing=TIMING)
    cluster.start_all()
    for node in range(3):
        cluster.until_dead(node)
    (reason,) = cluster.errors
    assert isinstance(reason, SystemExit)
    assert not list((tmp_path / "node-1").rglob("*.part"))
    assert not (tmp_path / "node-1" / "model.npz").exists()
    check(cluster, [0, 2])


def test_a_file_is_the_earlier_one_until_the_later_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"earlier")

    def told_to_end() -> None:
        with replacing(file) as opened:
            opened.write(b"la")
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        told_to_end()
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert file.read_bytes() == b"earlier"


def with_checksum(text: str) -> str:
    return f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"version": 1', '"version": 9', 1),
        lambda text: text[: len(text) // 2],
        lambda text: "[" * 100_000,
        lambda text: "",
        lambda text: with_checksum(text.partition("\n")[0].replace("receives_from", "neighbours")),
    ],
    ids=["changed", "half", "nested", "empty", "of another version"],
)
def test_a_node_whose_memory_of_itself_is_damaged_comes_as_a_new_member(
    make_cluster: Any, tmp_path: Path, damage: Any
) -> None:
    def die(rounds: int) -> None:
        if rounds == 6:
            raise Killed

    cluster = make_cluster(tmp_path, CHAIN, [*SHARDS], timing=TIMING)
    cluster.hooks[2] = die
    cluster.start_all()
    cluster.until_dead(2)
    file = tmp_path / "node-2" / "checkpoint" / "entry.json"
    damaged = damage(file.read_text())
    assert damaged != file.read_text()
    file.write_text(damaged)
    cluster.hooks.pop(2)
    cluster.start(2, None)
    cluster.wait()
    check(cluster, [0, 1, 2])


def test_a_file_of_data_that_is_replaced_while_a_node_runs_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, SHARDS[0])
    data = ModelSettings.of(n_components=2).read(file)
    before = digest(data)
    with file.open("r+b") as opened:  # in place: a mapped file would change with it
        opened.seek(-80, os.SEEK_END)
        opened.write(np.zeros(10).tobytes())
    assert digest(data) == before
    assert digest(ModelSettings.of(n_components=2).read(file)) != before


# -- signals --------------------------------------------------------------------------------------


def test_a_node_that_is_told_to_end_while_it_meets_and_one_that_never_begins(
    tmp_path: Path,
) -> None:
    """The status is never that of an earlier run, nor the model, once a node has begun to meet the others."""
    cluster = Processes(tmp_path, Network.chain(2), SHARDS[:2], None)
    out = tmp_path / "node-0"
    out.mkdir()
    save(BayesianPCA(2, random_state=0).fit(SHARDS[0]), out / "model.npz")
    (out / "status.json").write_text('{"state": "done", "rounds": 7, "members": [0, 1]}')
    try:
        cluster.start(0)
        cluster.until(lambda: cluster.status(0).get("state") == "joining")
        assert not (out / "model.npz").exists()
        cluster.running[0].send_signal(signal.SIGTERM)
        assert cluster.running[0].wait(HUNG) == 143
        status = cluster.status(0)
        assert (status["state"], status["rounds"], status["data"]) == ("left", 0, None)
        assert not (out / "model.npz").exists()
        os.replace(out / "model.npz.old", out / "model.npz")
        (tmp_path / "data0.npy").write_bytes(b"no data")
        cluster.start(0)
        assert cluster.running[0].wait(HUNG) == 1
        assert cluster.status(0)["state"] == "failed"
        assert (out / "model.npz").exists()  # data that cannot be read are no run
    finally:
        for process in cluster.started:
            kill_session(process.pid)
            process.wait()
