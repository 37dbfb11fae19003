"""Who is a member: by whose word a node is out, and by whose sign it is in."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simulation
from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.endpoint import MOST_REASONS, OTHER_REASONS, NetworkNode, Timing, drive
from dmfvi.engines.net.frames import BYTES, VIEW, Frame, pack
from dmfvi.engines.net.inproc import Hub, InProcessTransport
from dmfvi.engines.net.keys import init_authority, issue
from dmfvi.engines.net.membership import Entry, Share, View
from dmfvi.engines.net.signatures import UNSIGNED, CertificateSigner, Signer
from dmfvi.node import Message

MODEL = b"m" * 16


def share(node: int, start: int = 1) -> Share:
    return Share(start, 0, bytes([node]) * 32, 5)


class Pair:
    """Node 0 and its only neighbour 1, whose frames the test makes up; node 2 is behind it."""

    def __init__(self, signers: dict[int, Signer] | None = None, version: int = 5) -> None:
        self.signers = signers or dict.fromkeys(range(3), UNSIGNED)
        self.hub = Hub(SimulatedClock())
        timing = Timing(patience=0.1, silence=20.0, settle=0.5, linger=1.0)
        wire = InProcessTransport(self.hub, 0, (1,))
        self.node = NetworkNode(
            0,
            (1,),
            wire,
            MODEL,
            version,
            timing,
            clock=self.hub.clock,
            share=share(0, version),
            signer=self.signers[0],
        )
        self.neighbour = InProcessTransport(self.hub, 1, (0,))

    def signed(self, node: int, entry: Entry) -> Entry:
        return entry.signed(node, self.signers[node])

    def told(self, entries: dict[int, Entry]) -> None:
        payload = np.frombuffer(View(1, entries).pack(), dtype=np.uint8)
        self.neighbour.send(pack(Frame(VIEW, MODEL, 1, 0, 0, 0, 0, 0, payload), BYTES))
        self.node.listen(0.01)

    def gather(self, entries: Any, seconds: float = 1.0) -> Any:
        """Gathering, while the neighbour repeats what ``entries()`` gives."""
        steps = self.node.gathering(3, 30.0)

        def listen(_: float) -> None:
            self.told(entries())
            self.hub.clock.sleep(seconds)

        return drive(steps, listen)


# -- out ------------------------------------------------------------------------------------------


def star(n_neighbours: int, silent: Iterable[int] = ()) -> View:
    """Node 0 with neighbours that are also linked in a ring; those in ``silent`` do not receive from node 0."""
    others = range(1, n_neighbours + 1)
    entries = {0: Entry(1, tuple(others))}
    for node in others:
        beside = {1 + (node - 2) % n_neighbours, 1 + node % n_neighbours} - {node}
        heard = beside if node in set(silent) else beside | {0}
        entries[node] = Entry(1, tuple(sorted(heard)))
    return View(1, entries)


@pytest.mark.parametrize("degree", [1, 2, 3, 7])
def test_silence_takes_all_neighbours_and_none_of_them_can_expel_alone(degree: int) -> None:
    """Whoever still receives from a node keeps its data in; with one link its only neighbour decides."""
    for n_silent in range(degree):
        assert 0 in star(degree, range(1, n_silent + 1)).component
    silenced = star(degree, range(1, degree + 1))
    assert silenced.component == tuple(range(1, degree + 1))
    assert silenced.lost == (0,)


@pytest.mark.parametrize("degree", [2, 3, 7])
def test_what_a_member_says_of_links_that_are_not_its_own_counts_for_nothing(degree: int) -> None:
    view = star(degree)
    alone = Entry(2, ())  # it claims to receive from nobody
    after, _ = view.merged({2: alone})
    assert 0 in after.component
    assert 2 not in after.component


# -- in -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Signer]:
    folder = tmp_path_factory.mktemp("keys")
    init_authority(folder)
    found: dict[int, Signer] = {}
    for node in range(3):
        issue(folder, node, ["127.0.0.1"])
        files = (Path(folder / name) for name in ("ca.pem", f"node-{node}.pem", f"node-{node}.key"))
        found[node] = CertificateSigner(*files)
    return found


def test_an_entry_of_a_node_that_has_gone_is_no_member_of_a_later_fit(
    signers: dict[int, Signer],
) -> None:
    """Its only neighbour repeats what it had signed, and claims to receive from it: no fit begins, and it is named."""
    earlier = Pair(signers)
    entries = {
        1: earlier.signed(1, Entry(3, (0, 2), share=share(1))),
        2: earlier.signed(2, Entry(3, (1,), share=share(2))),
    }
    earlier.told(entries)
    epoch = earlier.node.view.epoch
    # what node 2 signed in its life: that it took part in, and finished, a fit with this very node
    last = earlier.signed(2, Entry(3, (1,), 2, epoch, share(2), begun_in=epoch))
    again = Pair(signers, version=9)  # node 0 was started again: a new epoch

    def claim() -> dict[int, Entry]:
        now = again.node.view.epoch
        own = Entry(3, (0, 2), again.node.view.own.news, share=share(1), begun_in=now)
        return {1: again.signed(1, own), 2: last}

    with pytest.raises(TimeoutError, match=r"no sign of node 2, which \[1\] claim to receive from"):
        again.gather(claim)
    assert again.node.view.component == (0, 1, 2)


def test_members_that_sign_the_epoch_begin_at_once(signers: dict[int, Signer]) -> None:
    pair = Pair(signers)

    def claim() -> dict[int, Entry]:
        now, news = pair.node.view.epoch, 1 + pair.node.view.own.news
        here = pair.node.view.component == (0, 1, 2)
        entries = {1: Entry(3, (0, 2), share=share(1)), 2: Entry(3, (1,), share=share(2))}
        if here:
            entries[1] = Entry(3, (0, 2), news, share=share(1), begun_in=now)
            entries[2] = Entry(3, (1,), news, share=share(2), begun_in=now)
        return {node: pair.signed(node, entry) for node, entry in entries.items()}

    assert pair.gather(claim).n_nodes == 3
    assert pair.hub.clock() < 10.0


def test_news_of_an_earlier_run_do_not_hide_those_of_the_next() -> None:
    """A node that goes on from its checkpoint has the version that others know, and must be believed again."""
    pair = Pair()
    pair.told({1: Entry(3, (0,), share=share(1))})
    own = pair.node.view.own
    before = Entry(own.version, own.hears, 7, 4711, own.share, peers=own.peers, begun_in=4711)
    pair.told({0: before, 1: Entry(3, (0,), share=share(1))})
    after = pair.node.view.own
    assert after.newer_than(before)
    assert after.done_in == 0
    assert after.version == own.version  # nobody has to begin anew
    pair.told({0: own})  # what it has said itself
    assert pair.node.view.own == after


def test_reasons_that_a_neighbour_makes_up_do_not_fill_the_memory(
    signers: dict[int, Signer],
) -> None:
    pair = Pair(signers)
    for number in range(5 * MOST_REASONS):
        pair.told({100 + number: Entry(1, ())})
    refused = pair.node.counts.refused
    assert len(refused) == MOST_REASONS + 1
    assert refused[OTHER_REASONS] == 4 * MOST_REASONS


def test_a_node_does_not_grow_with_the_epochs_it_has_seen() -> None:
    pair = Pair()

    def churn(first: int, last: int) -> None:
        for version in range(first, last):
            there = (0, 2) if version % 2 else (0,)
            entries = {
                1: Entry(version, there, share=share(1, version)),
                2: Entry(version, (1,), share=share(2)),
            }
            pair.told(entries)
            pair.node.begin()
            message = Message(0, 1, np.zeros(1000), 0, 0)
            pair.node.finals[version] = pair.node.frame_of(message, final=True)[0]
            while pair.neighbour.receive(0.0):
                pass

    logging.disable(logging.CRITICAL)  # pytest would keep it
    tracemalloc.start()
    try:
        churn(1, 600)  # caches are full after that
        before, _ = tracemalloc.get_traced_memory()
        churn(600, 1000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)
    assert after - before < 800_000  # 400 epochs of more than 8000 bytes each would be 3.2 million


# -- in the simulation ----------------------------------------------------------------------------


class Scripted(simulation.Simulation):
    """A schedule that is written down: a chain of three nodes, and what happens to them."""

    def __init__(self, script: Any, **settings: Any) -> None:
        super().__init__(0)
        self.n_nodes, self.edges, self.wait_for = 3, [(0, 1), (1, 2)], 3
        self.neighbours_of = [(1,), (0, 2), (1,)]
        self.loss = self.doubled = 0.0
        self.late = 0.001
        self.timings = [Timing(0.3, 3.0, 0.5, 4.0, 1.0)] * 3
        self.disks = [simulation.Disk() for _ in range(3)]
        self.wait_for = settings.get("wait_for", 3)
        self.faults["scripted"] = 1
        self.script = script

    def run(self) -> None:
        for node in range(3):
            self.start(node, float(node + 1))
        self.script(self)
        self.play()
        self.check()

    def members(self) -> list[list[int] | None]:
        return [p.outcome and sorted(p.outcome.members) for p in self.processes]


@pytest.mark.parametrize("moment", [0.3, 0.505, 0.512])
def test_two_nodes_that_come_back_with_each_others_data(moment: float) -> None:
    """While they meet, while they fit, and while they wait for each other."""

    def script(run: Scripted) -> None:
        run.at(moment, lambda: run.swap(run.processes[0], 0.2))

    run = Scripted(script)
    run.run()
    assert run.members()[-2:] == [[0, 1, 2], [0, 1, 2]]
    named = {p.outcome.members[0].digest for p in run.processes if p.outcome}
    assert len(named) == 1


def test_the_only_link_of_a_node_that_is_silent_decides_and_says_so() -> None:
    def script(run: Scripted) -> None:
        run.at(0.3, lambda: run.crash(run.processes[2]))

    run = Scripted(script)
    run.run()
    assert run.members() == [[0, 1], [0, 1], None]
    for process in run.processes[:2]:
        assert process.outcome is not None
        assert [(each.node, each.why) for each in process.outcome.missing] == [(2, "silent")]


def test_a_neighbour_that_claims_too_much_costs_time_and_no_result() -> None:
    """Node 2 has gone, node 1 goes on to say that it receives from it, and node 0 comes back with other data."""

    def script(run: Scripted) -> None:
        def claim() -> None:
            run.processes[1].endpoint.timing = Timing(0.3, 100.0, 0.5, 4.0, 1.0)
            run.crash(run.processes[2])
            run.crash(run.processes[0])

        run.at(0.3, claim)
        run.at(0.6, lambda: run.start(0, 9.0))

    run = Scripted(script)
    run.run()
    assert run.members() == [None, None, None, None]
    assert "no sign of node 2" in str(run.processes[3].error)
