"""Faults after which a node must not end with a plausible result that is wrong, or that does not say what it is of."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmfvi.storage.journal
from bus import Cluster, Killed
from dmfvi import BayesianPCA, Network
from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.endpoint import MOST_CONFLICTS, Timing
from dmfvi.engines.net.epochs import NetworkNode, drive
from dmfvi.engines.net.frames import BYTES, VIEW, Frame, pack
from dmfvi.engines.net.inproc import Hub, InProcessTransport
from dmfvi.engines.net.keys import init_authority, issue
from dmfvi.engines.net.limits import Inbox, Limits
from dmfvi.engines.net.membership import Entry, Share, View
from dmfvi.engines.net.signatures import CertificateSigner
from dmfvi.engines.net.zenoh import Identity, ZenohTransport
from estimator_cases import CASES, as_data
from helpers import low_rank_shards
from processes import Processes, free_ports, running
from sessions import HUNG, kill_session

RING = Network.ring(5)
SHARDS = low_rank_shards([14, 20, 17, 23, 16], n_features=6, n_components=2, missing=0.15)
OTHER = low_rank_shards([18], n_features=6, n_components=2, missing=0.15, seed=9)[0]
TIMING = Timing(patience=0.03, silence=30.0, settle=0.3, linger=30.0)


def pooled(shards: list[np.ndarray]) -> Any:
    return BayesianPCA(2, tol=1e-10, random_state=0).fit(np.concatenate(shards)).posterior_


def check(cluster: Cluster, nodes: list[int], shards: list[np.ndarray]) -> None:
    """These nodes hold the posterior of these data, name them, and hold the same bits."""
    wanted = pooled(shards)
    saved = [cluster.saved(node) for node in nodes]
    rows = [each["rows"] for each in saved[0].members_]
    assert rows == [len(shard) for shard in shards]
    for model in saved:
        assert model.converged_
        assert model.posterior_.distance(wanted) < 1e-6
        assert model.members_ == saved[0].members_
        # when somebody was last heard of is each node's own observation
        assert [(each["node"], each["why"]) for each in model.missing_] == [
            (each["node"], each["why"]) for each in saved[0].missing_
        ]


def die_at(number: int) -> Any:
    def hook(rounds: int) -> None:
        if rounds == number:
            raise Killed

    return hook


# -- other data ---------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
def test_a_node_that_comes_back_with_other_data_is_another_member(
    make_cluster: Any, tmp_path: Path, times: int
) -> None:
    """Killed while fitting, its file corrected, and back within the silence that the others tolerate."""
    cluster = make_cluster(tmp_path, RING, [*SHARDS], timing=TIMING)
    for node in (0, 1, 3, 4):
        cluster.hooks[node] = lambda rounds: cluster.clock.sleep(0.02)
    cluster.hooks[2] = die_at(6)
    cluster.start_all()
    for number in range(times):
        cluster.until_dead(2)
        cluster.shards[2] = OTHER + number
        cluster.rounds[2] = 0
        if number == times - 1:
            cluster.hooks.pop(2)
        cluster.start(2, None)
    cluster.wait()
    check(cluster, list(range(5)), cluster.shards)


def test_other_data_in_another_kind_of_model(make_cluster: Any, tmp_path: Path) -> None:
    case = CASES["bayesian-logistic-regression"]
    shards = [*case.shards]
    cluster = make_cluster(tmp_path, Network.complete(3), shards, timing=TIMING, model=case.model)
    cluster.hooks[1] = die_at(3)
    cluster.start_all()
    cluster.until_dead(1)
    cluster.shards[1] = shards[1][: len(shards[1]) // 2]
    cluster.hooks.pop(1)
    cluster.start(1, None)
    cluster.wait()
    rows = np.concatenate(cluster.shards)
    wanted = case.model.fit(as_data(rows)).posterior_
    for node in range(3):
        assert cluster.saved(node).posterior_.distance(wanted) < 1e-6
        assert sum(each["rows"] for each in cluster.saved(node).members_) == len(rows)


# -- who is in a result -------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False])
def test_every_node_says_that_a_member_is_missing(
    make_cluster: Any, tmp_path: Path, declared: bool
) -> None:
    timing = Timing(0.03, 1.0, 0.3, linger=4.0)
    cluster = make_cluster(tmp_path, RING, SHARDS, timing=timing)

    def go(rounds: int) -> None:
        if rounds == 6:
            if declared:
                cluster.programs[3].node.leave()
            raise Killed

    cluster.hooks[3] = go
    cluster.start_all()
    with pytest.warns(UserWarning, match=r"lacks the data of node 3 \((left|silent) since 20"):
        cluster.wait()
    rest = [0, 1, 2, 4]
    check(cluster, rest, [SHARDS[i] for i in rest])
    for node in rest:  # 0 and 1 are no neighbours of it
        model = cluster.saved(node)
        (missing,) = model.missing_
        assert (missing["node"], missing["why"]) == (3, "left" if declared else "silent")
        assert "MISSING: the data of node 3" in model.summary()
        assert "data of nodes 0, 1, 2, 4: 67 rows" in model.summary()


def test_a_node_frozen_until_the_others_have_gone_ends_with_an_error(
    make_cluster: Any, tmp_path: Path
) -> None:
    timing = Timing(0.03, 1.0, 0.3, linger=2.0)
    cluster = make_cluster(tmp_path, RING, SHARDS, timing=timing)
    cluster.hooks[2] = lambda rounds: cluster.clock.sleep(500.0) if rounds == 6 else None
    cluster.start_all()
    with pytest.warns(UserWarning, match=r"lacks the data of node 2 \(silent"):
        assert cluster.until(lambda: not cluster.alive)
    (error,) = cluster.errors
    assert isinstance(error, TimeoutError)
    assert re.search("node 2 waited 60 seconds for 2 nodes|have finished and gone", str(error))
    assert not (tmp_path / "node-2" / "model.npz").exists()
    rest = [0, 1, 3, 4]
    check(cluster, rest, [SHARDS[i] for i in rest])


def test_different_linger_and_a_lost_member(make_cluster: Any, tmp_path: Path) -> None:
    """Whoever ends first goes home; the others end with the same result, and tidy up."""
    cluster = make_cluster(tmp_path, Network.chain(3), SHARDS[:3], timing=TIMING)
    program_timing = {0: Timing(0.03, 2.0, 0.3, 0.0), 1: Timing(0.03, 2.0, 0.3, 20.0)}
    for node in range(3):
        cluster.timing = program_timing.get(node, Timing(0.03, 2.0, 0.3, 5.0))
        cluster.start(node, 3)
    cluster.wait()
    check(cluster, [0, 1, 2], SHARDS[:3])
    for node in range(3):
        assert not list((tmp_path / f"node-{node}" / "checkpoint").iterdir())


def test_one_id_twice_with_equal_versions_is_noticed() -> None:
    hub = Hub(SimulatedClock())
    share = Share(1, 0, b"a" * 32, 5)
    node = NetworkNode(
        0, (1,), InProcessTransport(hub, 0, (1,)), b"m" * 16, 5, clock=hub.clock, share=share
    )
    neighbour = InProcessTransport(hub, 1, (0,))
    twin = share._replace(start=2)

    def told(version: int) -> None:
        entries = {0: Entry(version, (1,), share=twin), 1: Entry(3, (0,))}
        payload = np.frombuffer(View(1, entries).pack(), dtype=np.uint8)
        neighbour.send(pack(Frame(VIEW, b"m" * 16, 1, 0, 0, 0, 0, 0, payload), BYTES))
        node.listen(1.0)

    while node.conflicts < MOST_CONFLICTS:
        told(node.view.own.version)
    with pytest.raises(ValueError, match="somebody else runs as node 0"):
        told(node.view.own.version)


# -- signatures ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    init_authority(folder)
    for node in range(3):
        issue(folder, node, ["127.0.0.1"])
    return folder


def signer(folder: Path, node: int, context: bytes = b"") -> CertificateSigner:
    return CertificateSigner(
        folder / "ca.pem", folder / f"node-{node}.pem", folder / f"node-{node}.key", context
    )


def test_a_member_cannot_speak_for_another(authority: Path, tmp_path: Path) -> None:
    """Entries that are forged, unsigned, altered or of another authority are dropped and counted; the others are used."""
    hub = Hub(SimulatedClock())
    node = NetworkNode(
        0,
        (1,),
        InProcessTransport(hub, 0, (1,)),
        b"m" * 16,
        5,
        clock=hub.clock,
        signer=signer(authority, 0),
    )
    member = InProcessTransport(hub, 1, (0,))
    one, two = signer(authority, 1), signer(authority, 2)
    other = tmp_path / "other"
    init_authority(other)
    issue(other, 2, ["127.0.0.1"])

    def told(entry: Entry, version: int) -> None:
        entries = {1: Entry(version, (0, 2)).signed(1, one), 2: entry}
        payload = np.frombuffer(View(1, entries).pack(), dtype=np.uint8)
        member.send(pack(Frame(VIEW, b"m" * 16, 1, 0, 0, 0, 0, 0, payload), BYTES))
        node.listen(1.0)

    told(Entry(3, (1,)).signed(2, two), 3)
    assert node.view.component == (0, 1, 2)
    good = Entry(9, (), left=True)
    altered = Entry(9, (1,)).signed(2, two)
    forged = [
        good,
        good.signed(2, one),
        good.signed(2, signer(other, 2)),
        Entry(9, (), left=True, signature=altered.signature, certificate=altered.certificate),
        Entry(9, (), left=True, signature=altered.signature, certificate=b"\x30\x82\xff\xff"),
        good.signed(2, signer(authority, 2, b"another cluster")),
    ]
    for number, entry in enumerate(forged, 1):
        told(entry, 3 + number)
        assert node.view.component == (0, 1, 2)
        assert node.view.entries[1].version == 3 + number
        assert node.counts.refused["entry of node 2 without its signature"] == number
    told(good.signed(2, two), 20)
    assert node.view.component == (0, 1)


def test_a_key_of_another_certificate_is_refused(authority: Path) -> None:
    with pytest.raises(ValueError, match="is not the key of"):
        CertificateSigner(authority / "ca.pem", authority / "node-1.pem", authority / "node-2.key")


# -- disks --------------------------------------------------------------------------------------


def test_a_full_disk_costs_the_checkpoint_and_nothing_else(
    make_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    original = dmfvi.storage.journal.save_checkpoint

    def full(path: Path, *rest: Any) -> Path:
        if "node-1" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(path, *rest)

    monkeypatch.setattr(dmfvi.storage.journal, "save_checkpoint", full)
    cluster = make_cluster(tmp_path, RING, SHARDS, timing=TIMING)
    cluster.start_all()
    notes: list[str] = []
    cluster.hooks[1] = lambda rounds: notes.extend(cluster.programs[1]._notes())
    cluster.wait()
    check(cluster, list(range(5)), SHARDS)
    assert "no checkpoint" in notes[-1]
    assert "No space left on device" in notes[-1]
    assert "Free space on the disk of" in notes[-1]
    assert sum("no checkpoint" in r.getMessage() for r in caplog.records) == 1


def test_a_result_that_cannot_be_written_is_kept_elsewhere(tmp_path: Path) -> None:
    from dmfvi import load
    from dmfvi.storage.models import save_or_keep

    model = BayesianPCA(2, random_state=0).fit(SHARDS[0])
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="The model is kept in") as caught:
        save_or_keep(model, tmp_path / "file" / "model.npz")
    kept = Path(str(caught.value).rpartition(" kept in ")[2])
    assert load(kept).posterior_.distance(model.posterior_) == 0.0


# -- limits -------------------------------------------------------------------------------------


def test_one_neighbour_cannot_crowd_out_another(caplog: Any) -> None:
    clock = SimulatedClock()
    limits = Limits(
        frame_bytes=1000, frames_per_second=100.0, bytes_per_second=5e4, queued_frames=50
    )
    inbox = Inbox([1, 2], limits, clock)
    for _ in range(10_000):
        if inbox.admits(1, 10):
            inbox.put(1, b"x" * 10)
    assert len(inbox.queues[1]) == 50
    assert inbox.admits(2, 10)
    inbox.put(2, b"y" * 10)
    assert [inbox.get(0.0)[0] for _ in range(3)] == [1, 2, 1]  # type: ignore[index]
    assert not inbox.admits(2, 1001)
    while inbox.get(0.0):
        pass
    admitted = 0
    for _ in range(100):  # ten seconds at a hundred frames a second, of a thousand that are sent
        clock.now += 0.1
        for _ in range(100):
            if inbox.admits(1, 10):
                admitted += 1
    assert 900 <= admitted <= 1300
    said = {record.getMessage() for record in caplog.records}
    assert "node 2 sends frames of more than 1000 bytes: they are dropped" in said
    assert "node 1 sends more than 100 frames a second: they are dropped" in said


def test_a_frame_above_the_limit_does_not_arrive(authority: Path) -> None:
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))

    def identity(node: int) -> Identity:
        return Identity(
            authority / "ca.pem", authority / f"node-{node}.pem", authority / f"node-{node}.key"
        )

    limits = Limits(frame_bytes=100_000)
    node = ZenohTransport(0, first, {1: second}, identity(0), limits=limits)
    peer = ZenohTransport(1, second, {0: first}, identity(1))
    try:
        got: list[bytes] = []
        while len(got) < 5:  # frames of the right size arrive around the long ones
            peer.send(b"l" * 30_000_000)
            peer.send(b"s" * 90_000)
            found = node.receive(0.05)
            if found is not None:
                got.append(found[1])
        assert {len(data) for data in got} == {90_000}
    finally:
        node.close()
        peer.close()


# -- configuration ------------------------------------------------------------------------------

NODE = '[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = "a.npy"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NODE + "[timing]\nsilence = nan", "silence in [timing] must lie between 0.1 and 86400"),
        (NODE + "[timing]\npatience = -1.0", "patience in [timing] must lie between"),
        (NODE + "[timing]\nlinger = inf", "linger in [timing] must lie between"),
        (NODE + "wait_seconds = -3.0", "wait_seconds in [node] must lie between"),
        (NODE + "wait_for = 0", "wait_for in [node] must lie between 1 and 4096"),
        (NODE + "checkpoint_every = 0", "checkpoint_every in [node] must lie between"),
        (NODE + 'cluster = "**"', "cluster in [node] must be 1 to 64 letters"),
        (NODE + 'cluster = "a/b"', "cluster in [node] must be 1 to 64 letters"),
        (NODE + '[peers]\n99999999999999 = "127.0.0.1:7001"', "maps node ids (0 to 4294967295)"),
        (NODE + '[peers]\n1 = "127.0.0.1:7001"\n01 = "127.0.0.1:7002"', "names node 1 twice"),
        (NODE + '[peers]\n1 = "127.0.0.1:7001"\n2 = "127.0.0.1:7001"', "to two nodes"),
        (NODE + '[peers]\n1 = "not a host!:7001"', "peer 1 needs host:port"),
        (NODE + '[peers]\n1 = "127.0.0.1:0"', "peer 1 needs host:port"),
        (NODE.replace("id = 0", "id = 5000000000"), "id in [node] must lie between"),
        (NODE.replace("id = 0", "id = -1"), "id in [node] must lie between"),
        (NODE.replace("id = 0", "id = true"), "id in [node] must be int"),
        (NODE + "[limits]\nframe_bytes = 1", "frame_bytes in [limits] must lie between"),
        (NODE + "[faults]\nloss = 1.0", "loss in [faults] must lie between"),
    ],
)
def test_numbers_and_names_out_of_range_are_named(tmp_path: Path, text: str, words: str) -> None:
    from dmfvi.deploy.config import read_config

    file = tmp_path / "node.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        read_config(file, insecure=True)
    assert "node.toml" in str(caught.value)
    assert (
        "received" in str(caught.value)
        or "names" in str(caught.value)
        or "to two" in str(caught.value)
    )


def test_a_table_with_infinite_cells_is_refused(tmp_path: Path) -> None:
    from dmfvi.readers.tables import read_table

    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,inf\n")
    with pytest.raises(ValueError, match="sample 2, column 'y' is infinite"):
        read_table(tmp_path / "a.csv")


# -- processes ----------------------------------------------------------------------------------


def test_a_node_that_is_told_to_end_says_so_and_the_others_end_partial(
    tmp_path: Path, authority: Path
) -> None:
    data = [shard[:, :4] for shard in SHARDS[:3]]
    timing = "patience = 0.5\nsilence = 300.0\nsettle = 1.0\nlinger = 60.0"
    cluster = Processes(
        tmp_path, Network.ring(3), data, authority, timing=timing, faults="latency = 0.1"
    )
    with running(cluster):
        cluster.until(lambda: all(cluster.rounds(node) > 0 for node in range(3)))
        cluster.running[1].send_signal(signal.SIGTERM)
        codes = [cluster.running[node].wait(HUNG) for node in range(3)]
    assert codes == [3, 143, 3], [cluster.said(node) for node in range(3)]
    assert cluster.status(1)["state"] == "left"
    for node in (0, 2):
        status = cluster.status(node)
        assert status["state"] == "done"
        assert [each["node"] for each in status["data"]] == [0, 2]
        assert [(each["node"], each["why"]) for each in status["missing"]] == [(1, "left")]
        assert "PARTIAL: the data of nodes [1] are not in it" in cluster.said(node)
        assert [each["node"] for each in cluster.saved(node).members_] == [0, 2]


def test_two_nodes_cannot_write_into_one_folder(tmp_path: Path) -> None:
    from dmfvi.deploy.program import only_one

    second = only_one(tmp_path)
    with only_one(tmp_path), pytest.raises(ValueError, match="another node is running with out"):
        second.__enter__()


def test_nobody_ends_alone_by_accident() -> None:
    hub = Hub(SimulatedClock())
    node = NetworkNode(0, (1,), InProcessTransport(hub, 0, (1,)), b"m" * 16, 5, clock=hub.clock)
    node.view = View(0, {0: Entry(5, ()), 1: Entry(3, (0,))})
    with pytest.raises(TimeoutError, match="waited 2 seconds for 2 nodes"):
        drive(node.gathering(2, 2.0, again=True), node.listen)
    node.view = View(0, {0: Entry(5, ()), 1: Entry(4, (), left=True)})
    assert drive(node.gathering(2, 2.0, again=True), node.listen).n_nodes == 1


def test_launched_nodes_end_with_their_parent(tmp_path: Path) -> None:
    """Whatever ends it: here SIGKILL, while the nodes wait for one that never comes."""
    cluster = Processes(tmp_path, Network.chain(2), SHARDS[:2], None, node="")
    for file in cluster.files:
        file.write_text(file.read_text().replace("wait_for = 2", "wait_for = 3"))
    command = [sys.executable, "-m", "dmfvi", "launch", str(tmp_path / "cluster.toml")]
    parent = subprocess.Popen(
        [*command, "--insecure"], stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 240
        while any(cluster.status(node).get("members") != [0, 1] for node in range(2)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        parent.kill()
        parent.wait()
        while any(cluster.status(node)["state"] != "left" for node in range(2)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        kill_session(parent.pid)
