"""Who is a member: by whose word a node is out, and by whose sign it is in."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmfvi.engines.net import endpoint
from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.endpoint import MOST_REASONS, OTHER_REASONS, REPEATS, Timing
from dmfvi.engines.net.epochs import NetworkNode, drive
from dmfvi.engines.net.frames import BYTES, SETTINGS, VIEW, Frame, pack, pack_bytes, unpack
from dmfvi.engines.net.inproc import Hub, InProcessTransport
from dmfvi.engines.net.keys import init_authority, issue
from dmfvi.engines.net.membership import Entry, Share, View, read_entries
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
    before = Entry(
        own.version, own.receives_from, 7, 4711, own.share, peers=own.peers, begun_in=4711
    )
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


# -- what is said ---------------------------------------------------------------------------------


def received(pair: Pair) -> list[list[int]]:
    """Whose entries are in the frames that node 0 has sent since the last look."""
    frames = []
    while (got := pair.neighbour.receive(0.0)) is not None:
        frames.append(sorted(read_entries(unpack(got[1]).payload.tobytes())))
    return frames


def test_the_only_neighbour_is_not_told_what_it_has_said() -> None:
    pair = Pair()
    pair.told({1: Entry(3, (0, 2), share=share(1)), 2: Entry(3, (1,), share=share(2))})
    assert received(pair) == [[0], [0]]  # its first word, and that it receives from node 1
    pair.told({2: Entry(4, (1,), share=share(2))})
    assert received(pair) == []
    pair.hub.clock.sleep(0.6)
    pair.node.listen(0.0)
    assert received(pair) == [[0, 1, 2]]  # the heartbeat repeats all


def test_what_changes_at_once_is_said_in_one_frame_and_before_anything_else() -> None:
    pair = Pair()
    pair.node.neighbours = (1, 3)  # somebody who has to be told
    pair.node.tick()
    received(pair)
    payload = np.frombuffer(View(1, {1: Entry(3, (0,))}).pack(), dtype=np.uint8)
    pair.node.handle(1, pack(Frame(VIEW, MODEL, 1, 0, 0, 0, 0, 0, payload), BYTES))
    assert received(pair) == []
    pair.node.send(pack_bytes(SETTINGS, MODEL, 0, b""))
    assert received(pair) == [[0, 1], []]
    pair.node.tick()
    assert received(pair) == []


def test_last_words_are_said_some_time_apart_whatever_arrives() -> None:
    """All at once they would be lost at once."""
    pair = Pair()
    pair.node.tick()
    received(pair)
    pair.node.begin()
    said = []
    for _ in pair.node.finishing():
        said += [pair.hub.clock() for _ in received(pair)]
        pair.hub.clock.sleep(0.001)  # a frame ends the wait
    assert len(said) == REPEATS
    assert min(b - a for a, b in pairwise(said)) >= 0.1 * pair.node.timing.heartbeat


def test_a_view_that_is_repeated_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    said = {1: Entry(3, (0,), share=share(1))}
    pair.told(said)
    monkeypatch.setattr(endpoint, "unpack", None)  # calling it would raise
    pair.hub.clock.sleep(15.0)
    pair.told(said)
    assert pair.node.received_at[1] == pair.hub.clock()
    pair.hub.clock.sleep(15.0)
    pair.node.tick()
    assert pair.node.view.own.receives_from == (1,)  # it counts as a sign of life
    assert not pair.node.counts.refused


def test_a_neighbour_that_comes_back_from_another_model_is_read_again() -> None:
    pair = Pair()
    said = {1: Entry(3, (0,), share=share(1))}
    pair.told(said)
    pair.node.handle(1, pack_bytes(SETTINGS, b"o" * 16, 1, b"{}"))
    assert 1 in pair.node.differences
    pair.told(said)
    assert not pair.node.differences
