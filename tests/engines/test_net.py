"""A live node under attack, and links with certificates."""

from __future__ import annotations

import datetime as dt
import json
import random
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import sessions
from dmfvi import Federation, Network
from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.endpoint import MOST_CONFLICTS
from dmfvi.engines.net.epochs import NetworkNode, drive
from dmfvi.engines.net.frames import (
    BYTES,
    DIFFERENCE8,
    ROUND,
    SPARSE,
    VIEW,
    Difference,
    Frame,
    pack,
)
from dmfvi.engines.net.inproc import Hub, InProcessTransport
from dmfvi.engines.net.keys import init_authority, issue
from dmfvi.engines.net.membership import Entry, View
from dmfvi.engines.net.zenoh import Identity, ZenohTransport, check_loopback
from dmfvi.storage import details
from estimator_cases import CASES, N_NODES, changed, toml_of
from frame_mutations import mutated
from processes import Processes, free_ports, running


def view_frame(entries: dict[int, Entry], sender: int = 1, model: bytes = b"m" * 16) -> bytes:
    payload = np.frombuffer(View(sender, entries).pack(), dtype=np.uint8)
    return pack(Frame(VIEW, model, sender, 0, 0, 0, 0, 0, payload), BYTES)


def test_ten_thousand_hostile_frames_change_nothing_in_a_live_node() -> None:
    hub = Hub(SimulatedClock())
    node = NetworkNode(
        0, (1,), InProcessTransport(hub, 0, (1,)), b"m" * 16, version=5, clock=hub.clock
    )
    attacker = InProcessTransport(hub, 1, (0,))
    node.listen(0.0)
    node.begin()
    rng = random.Random(1)
    frames = [
        pack(Frame(ROUND, b"m" * 16, 1, node.epoch + 1, 0, 3, 0, 9, np.ones(5))),  # other epoch
        pack(Frame(ROUND, b"x" * 16, 1, node.epoch, 0, 3, 0, 9, np.ones(5))),  # other model
        pack(Frame(ROUND, b"m" * 16, 7, node.epoch, 0, 3, 0, 9, np.ones(5))),  # other sender
    ]
    before, epoch = node.view, node.epoch
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(10_000):
        attacker.send(frames[number % 3] if number % 5 == 0 else mutated(rng, frames))
        node.listen(0.0)
    assert sum(node.counts.refused.values()) == 10_000
    assert {"another model", "another sender", "checksum"} <= set(node.counts.refused)
    assert node.view.entries[0].receives_from in ((), (1,))
    assert (node.epoch, node.phase, node.mail) == (epoch, 0, {})
    assert set(node.view.entries) == set(before.entries)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown < 20_000  # kilobytes


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    init_authority(folder)
    for node in range(4):
        issue(folder, node, ["127.0.0.1", "localhost"])
    return folder


def identity(folder: Path, node: int, authority: Path | None = None) -> Identity:
    return Identity(
        (authority or folder) / "ca.pem", folder / f"node-{node}.pem", folder / f"node-{node}.key"
    )


def heard_while(node: ZenohTransport, friend: ZenohTransport, other: ZenohTransport) -> set[int]:
    """Whom ``node`` and ``other`` have heard by the time that it and its friend have heard each other often."""
    heard: set[int] = set()
    from_friend = to_friend = 0
    deadline = time.monotonic() + sessions.HUNG
    while min(from_friend, to_friend) < 10:
        assert time.monotonic() < deadline, "not even the friend is heard"
        for transport in (node, friend, other):
            transport.send(b"frame")
        for _ in range(3):
            got = node.receive(0.02)
            if got is not None:
                heard.add(got[0])
                from_friend += got[0] == FRIEND
        to_friend += friend.receive(0.02) is not None
        got = other.receive(0.0)
        if got is not None:
            heard.add(got[0])
    return heard


FRIEND = 3


def test_only_a_certificate_of_the_cluster_and_of_that_node_lets_in(
    authority: Path, tmp_path: Path
) -> None:
    """A stranger comes before a friend does, and is not heard by the time that the friend is."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(FRIEND + 1)]
    other = tmp_path / "other"
    init_authority(other)
    issue(other, 1, ["127.0.0.1"])
    late = tmp_path / "late"
    issue(authority, 1, ["127.0.0.1"], late, valid=dt.timedelta(minutes=-1))
    comers: dict[str, Identity | None] = {
        "none": None,
        "another authority": identity(other, 1),
        "another authority that trusts ours": identity(other, 1, authority),
        "expired": identity(late, 1, authority),
        "another node": identity(authority, 2),
        "another cluster": identity(authority, 1),
        "friend": identity(authority, 1),
    }
    peers = {1: addresses[1], FRIEND: addresses[FRIEND]}
    node = ZenohTransport(0, addresses[0], peers, identity(authority, 0))
    try:
        for name, shown in comers.items():
            cluster = "other" if name == "another cluster" else "dmfvi"
            comer = ZenohTransport(1, addresses[1], {0: addresses[0]}, shown, cluster)
            friend = ZenohTransport(
                FRIEND, addresses[FRIEND], {0: addresses[0]}, identity(authority, FRIEND)
            )
            heard = heard_while(node, friend, comer)
            comer.close()
            friend.close()
            assert heard == ({0, 1, FRIEND} if name == "friend" else {FRIEND}), name
    finally:
        node.close()


@pytest.mark.parametrize("address", ["10.0.0.1:7", "example.org:7", "0.0.0.0:7"])
def test_plain_text_stays_on_this_machine(address: str) -> None:
    with pytest.raises(ValueError, match="not on this machine"):
        check_loopback(address)
    check_loopback("127.0.0.1:7000")
    check_loopback("[::1]:7000")


@pytest.mark.parametrize(
    "kind",
    ["bayesian-pca", pytest.param("bayesian-gaussian-mixture", marks=pytest.mark.slow)],
)
def test_nodes_with_certificates_give_the_local_answer(
    tmp_path: Path, authority: Path, kind: str
) -> None:
    case, network = CASES[kind], Network.complete(N_NODES)
    cluster = Processes(
        tmp_path,
        network,
        case.shards,
        authority,
        model=toml_of(case.model),
        timing="patience = 300.0\nsettle = 1.0",
    )
    with running(cluster):
        cluster.wait()
    local = case.local(network=network)
    for node in range(N_NODES):
        saved = cluster.saved(node)
        assert details(cluster.folder / f"node-{node}")["kind"] == kind
        assert saved.posterior_.distance(local.node_posteriors_[node]) < 1e-9
        assert not list((tmp_path / f"node-{node}" / "checkpoint").iterdir())


def test_launch_runs_a_cluster_of_another_kind(tmp_path: Path) -> None:
    case = CASES["bayesian-logistic-regression"]
    cluster = Processes(
        tmp_path,
        Network.chain(N_NODES),
        case.shards,
        None,
        model=toml_of(case.model),
    )
    command = [sys.executable, "-m", "dmfvi", "launch", str(tmp_path / "cluster.toml")]
    done = sessions.run([*command, "--insecure"])
    assert done.returncode == 0, done.stderr
    pooled = case.local(tol=1e-10)
    for node in range(N_NODES):
        assert cluster.saved(node).posterior_.distance(pooled.posterior_) < 1e-6
        status = json.loads((tmp_path / f"node-{node}" / "status.json").read_text())
        assert status["state"] == "done"
        assert status["time"].startswith("20")
        assert status["converged"] is True
        assert [each["rows"] for each in status["data"]] == [len(rows) for rows in case.shards]
        assert status["missing"] == []


def test_launch_ends_when_a_node_never_began(tmp_path: Path) -> None:
    """The others would wait for it until the timeout: they are stopped, and the reason is said."""
    case = CASES["bayesian-pca"]
    Processes(tmp_path, Network.chain(N_NODES), case.shards, None, model=toml_of(case.model))
    broken = sorted(tmp_path.glob("*.npy"))[1]
    broken.write_bytes(b"no numbers")
    command = [sys.executable, "-m", "dmfvi", "launch", str(tmp_path / "cluster.toml")]
    done = sessions.run([*command, "--insecure", "--timeout", "100000"])
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "nodes failed" in said
    assert "is not a readable .npy file" in said
    assert "the other 2 nodes were stopped" in said


@pytest.mark.slow
def test_a_fit_that_has_not_converged_is_no_success(tmp_path: Path) -> None:
    case = CASES["bayesian-pca"]
    model = toml_of(changed(case.model, tol=1e-15, max_iter=1))
    cluster = Processes(tmp_path, Network.chain(N_NODES), case.shards, None, model=model)
    command = [sys.executable, "-m", "dmfvi", "launch", str(tmp_path / "cluster.toml")]
    done = sessions.run([*command, "--insecure"])
    assert done.returncode == 4
    assert "NOT converged: raise max_iter" in done.stderr
    assert not cluster.saved(0).converged_
    assert json.loads((tmp_path / "node-0" / "status.json").read_text())["converged"] is False


def test_a_neighbour_with_the_right_epoch_cannot_crash_or_fill_a_node() -> None:
    """Well-formed frames of a member: wrong sizes, phases, rounds and numbers, and views beyond reason."""
    hub = Hub(SimulatedClock())
    node = NetworkNode(
        0, (1,), InProcessTransport(hub, 0, (1,)), b"m" * 16, version=5, clock=hub.clock
    )
    attacker = InProcessTransport(hub, 1, (0,))
    attacker.send(view_frame({1: Entry(3, (0,))}))
    node.listen(0.1)
    node.begin()
    node.sizes[0] = {8}

    def send(**fields) -> None:
        base = Frame(ROUND, b"m" * 16, 1, node.epoch, 0, 3, 0, 9, np.ones(8))
        attacker.send(pack(base._replace(**fields)))
        node.listen(0.0)

    def send_difference(code: int, **fields) -> None:
        change = Difference(3, 8, np.empty(0), None, np.ones(8))
        frame = Frame(ROUND, b"m" * 16, 1, node.epoch, 0, 4, 0, 9, np.empty(0))
        attacker.send(pack(frame._replace(difference=change._replace(**fields)), code))
        node.listen(0.0)

    send_difference(DIFFERENCE8)  # of a message that this node has not seen
    send_difference(SPARSE, size=2**31, positions=np.array([2**30]), values=np.ones(1))
    send(payload=np.ones(5))
    send(payload=np.full(8, 1e308))
    send(round=2**62)
    for phase in range(2, 300):
        send(phase=phase, payload=np.ones(20_000))
    assert not node.mail
    for number in (2**63 - 1, 2**60):
        attacker.send(view_frame({0: Entry(number, ())}))
        node.listen(0.0)
    many = {k: Entry(1, ()) for k in range(10, 4000)}
    for start in (0, 4000, 8000):
        attacker.send(view_frame({k + start: e for k, e in many.items()}))
        node.listen(0.0)
    assert len(node.view.entries) <= 4096
    assert node.view.own.version < 10
    assert {"size", "payload", "round", "phase", "view"} <= set(node.counts.refused)
    send()
    assert (1, 0) in node.mail  # a good frame still comes through
    send_difference(DIFFERENCE8, size=7, values=np.ones(7))
    send_difference(SPARSE, size=2**31, positions=np.array([2**30]), values=np.ones(1))
    send_difference(DIFFERENCE8, values=np.full(8, 1e38))
    send_difference(DIFFERENCE8)
    assert set(node.mail[1, 0]) == {3, 4}
    np.testing.assert_allclose(node.mail[1, 0][4].payload, 2.0, rtol=1e-2)
    assert node.counts.refused["no reference"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peers = 5\n[node]\nid = 0", "peers must be a table"),
        (
            '[node]\nid = 0\nlisten = "127.0.0.1:99999"\ndata = "a.npy"',
            "listen in .node. needs host:port",
        ),
        ('[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = 5', "data in .node. must be str"),
        (
            '[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = "a.npy"\nspeed = 3',
            "unknown .'speed'.",
        ),
        ('[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = "a.npy"', "no .tls. table"),
        (
            '[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = "a.npy"\n[timing]\npatience = "x"',
            "patience in .timing. must be int or float",
        ),
        (
            '[node]\nid = 0\nlisten = "127.0.0.1:7000"\ndata = "a.npy"\ncompression = "zip"',
            "compression in .node. must be one of",
        ),
        ("[node\n", "not a TOML file"),
    ],
)
def test_bad_configurations_are_named(tmp_path: Path, text: str, message: str) -> None:
    from dmfvi.deploy.config import read_config

    file = tmp_path / "node.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_config(file, insecure="tls" not in message)
    assert "node.toml" in str(caught.value)


def test_who_has_finished_and_gone_is_told_from_who_has_only_gone() -> None:
    hub = Hub(SimulatedClock())
    node = NetworkNode(
        0, (1,), InProcessTransport(hub, 0, (1,)), b"m" * 16, version=5, clock=hub.clock
    )
    node.view = View(0, {0: Entry(5, (1,)), 1: Entry(3, (0,))})
    node.begin()
    epoch, members = node.epoch, node.members
    assert set(members) == {0, 1}
    assert not node.view.done(members, epoch)
    node.view = View(0, {0: Entry(6, ()), 1: Entry(3, (0,))})  # 1 is silent
    assert node.finished_and_gone(epoch, members) == []
    node.view = View(
        0, {0: Entry(6, ()), 1: Entry(3, (0,), 1, epoch)}
    )  # and had said that it is done
    assert node.finished_and_gone(epoch, members) == [1]
    assert not node.view.done(members, epoch)
    assert node.view.finished(epoch).done(members, epoch)


def test_a_second_node_with_the_same_id_is_noticed() -> None:
    """Each hears of the other's entry by way of a neighbour, and takes it for its own earlier life."""
    hub = Hub(SimulatedClock())
    node = NetworkNode(
        0, (1,), InProcessTransport(hub, 0, (1,)), b"m" * 16, version=5, clock=hub.clock
    )
    neighbour = InProcessTransport(hub, 1, (0,))

    def told(version: int) -> None:
        neighbour.send(view_frame({0: Entry(version, (1,)), 1: Entry(3, (0,))}))
        node.listen(1.0)

    for version in (9, 9, 12):  # of earlier lives: outlived, and that is that
        told(version)
        assert node.view.own.version > version
    while node.conflicts < MOST_CONFLICTS:
        told(node.view.own.version + 1)
    with pytest.raises(ValueError, match="somebody else runs as node 0"):
        told(node.view.own.version + 1)


def test_rules_that_need_every_message_are_refused() -> None:
    from dmfvi import BayesianPCA
    from dmfvi.engines.net.engine import NetworkEngine

    hub = Hub(SimulatedClock())
    node = NetworkNode(
        0, (1,), InProcessTransport(hub, 0, (1,)), b"m" * 16, version=5, clock=hub.clock
    )
    where = NetworkEngine(node)
    where.owned = lambda network: [0]  # nobody need be met for this
    pca = BayesianPCA(2, network=Federation(Network.ring(2), "all-reduce", where))
    with pytest.raises(ValueError, match="'all-reduce' needs reliable links"):
        pca.fit(np.random.default_rng(0).normal(size=(9, 4)))


def test_a_certificate_that_others_would_not_believe_is_refused_at_once(
    authority: Path, tmp_path: Path
) -> None:
    from dmfvi.engines.net.keys import check_identity

    check_identity(1, authority / "ca.pem", authority / "node-1.pem")
    with pytest.raises(ValueError, match="is for node-1, this is node 2"):
        check_identity(2, authority / "ca.pem", authority / "node-1.pem")
    init_authority(tmp_path / "other")
    with pytest.raises(ValueError, match="was not issued by"):
        check_identity(1, tmp_path / "other" / "ca.pem", authority / "node-1.pem")
    issue(authority, 1, ["127.0.0.1"], tmp_path / "late", valid=dt.timedelta(minutes=-1))
    with pytest.raises(ValueError, match="not now"):
        check_identity(1, authority / "ca.pem", tmp_path / "late" / "node-1.pem")


def test_a_neighbour_with_another_model_is_named_with_what_differs() -> None:
    hub = Hub(SimulatedClock())
    nodes = [
        NetworkNode(
            node,
            (1 - node, 2),
            InProcessTransport(hub, node, (1 - node, 2)),
            bytes([node]) * 16,
            version=5,
            clock=hub.clock,
            settings={"max_iter": str(100 + node), "kind": "bayesian-pca"},
        )
        for node in (0, 1)
    ]
    for _ in range(4):
        for node in nodes:
            node.listen(0.0)
    words = r"nothing received from \[2\]; node 1 has another model: max_iter is 100 here and 101 there; refused"
    with pytest.raises(TimeoutError, match=words):
        drive(nodes[0].gathering(3, 0.3), nodes[0].listen)


def test_what_happens_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Who comes, who is silent, and the first refused frame of each reason."""
    hub = Hub(SimulatedClock())
    transport = InProcessTransport(hub, 0, (1,))
    node = NetworkNode(0, (1,), transport, b"m" * 16, version=5, clock=hub.clock)
    other = InProcessTransport(hub, 1, (0,))
    with caplog.at_level("INFO", logger="dmfvi.engines.net"):
        other.send(view_frame({1: Entry(3, (0,))}))
        for _ in range(3):
            other.send(b"nonsense")
        for _ in range(4):
            node.listen(0.1)
        hub.clock.sleep(node.timing.silence + 1.0)
        node.listen(0.1)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "node 0: members are now [0, 1]",
        "node 0 refused a frame of node 1: short",
        "node 0: neighbours [1] were silent for 60 seconds",
        "node 0: members are now [0]",
    ]
    assert node.counts.refused["short"] == 3
