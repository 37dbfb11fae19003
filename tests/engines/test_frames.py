"""The wire format: what is packed comes back, and nothing else gets through."""

from __future__ import annotations

import random
import re
import struct
import zlib

import numpy as np
import pytest

from dmfvi.engines.net import frames
from dmfvi.engines.net.clock import SimulatedClock
from dmfvi.engines.net.compression import COMPRESSIONS, KEY_EVERY, Compressor, References
from dmfvi.engines.net.epochs import NetworkNode
from dmfvi.engines.net.frames import (
    ASKED,
    BYTES,
    CHECKSUM,
    DIFFERENCE8,
    DIFFERENCE16,
    FINAL,
    FLOAT32,
    FLOAT64,
    HEADER,
    OVERHEAD,
    ROUND,
    SPARSE,
    VIEW,
    Difference,
    Frame,
    Malformed,
    pack,
    unpack,
)
from dmfvi.engines.net.inproc import Hub, InProcessTransport
from dmfvi.engines.net.membership import FIELDS, NODE, Entry, Share, View, read_entries
from frame_mutations import mutated

PAYLOAD = np.random.default_rng(0).standard_normal(40)
FRAME = Frame(ROUND, b"f" * 16, 3, 2**62, 4, 17, 2, 2**62, PAYLOAD)
SEEN = Entry(
    7, (1, 2), 3, 4, Share(5, 6, b"d" * 32, 8), True, (1, 2, 5), 9, b"signature", b"certificate"
)
SIGHT = Frame(
    VIEW, b"f" * 16, 3, 0, 0, 0, 0, 0, np.frombuffer(View(3, {3: SEEN}).pack(), dtype=np.uint8)
)

CHANGED = FRAME._replace(
    payload=np.empty(0), difference=Difference(9, 40, PAYLOAD[:3], None, PAYLOAD[3:])
)
SPARSELY = FRAME._replace(
    payload=np.empty(0),
    difference=Difference(9, 40, PAYLOAD[:3], np.array([0, 7, 36]), np.array([0.5, -2.0, 1.0])),
)


def test_frames_come_back() -> None:
    back = unpack(pack(FRAME))
    np.testing.assert_array_equal(back.payload, PAYLOAD)
    assert back._replace(payload=None) == FRAME._replace(payload=None)
    single = unpack(pack(FRAME, FLOAT32))
    np.testing.assert_array_equal(single.payload, PAYLOAD.astype(np.float32).astype(np.float64))
    (read,) = read_entries(unpack(pack(SIGHT, BYTES)).payload.tobytes()).values()
    assert read == SEEN
    assert (read.signature, read.certificate) == (b"signature", b"certificate")
    assert unpack(pack(FRAME._replace(final=True))).final
    assert len(pack(FRAME)) == OVERHEAD + 320


@pytest.mark.parametrize(("code", "accuracy"), [(DIFFERENCE8, 1e-2), (DIFFERENCE16, 1e-4)])
def test_differences_come_back_coarsely(code: int, accuracy: float) -> None:
    data = pack(CHANGED, code)
    assert len(data) < 0.8 * len(pack(FRAME))
    back = unpack(data).difference
    assert back is not None
    assert (back.reference, back.size) == (9, 40)
    np.testing.assert_array_equal(back.head, PAYLOAD[:3])
    np.testing.assert_allclose(back.values, PAYLOAD[3:], atol=accuracy * np.abs(PAYLOAD).max())


def test_sparse_differences_come_back() -> None:
    back = unpack(pack(SPARSELY, SPARSE)).difference
    whole = back.added_to(np.ones(40))
    np.testing.assert_array_equal(whole[:3], PAYLOAD[:3])
    np.testing.assert_array_equal(np.flatnonzero(whole[3:] != 1.0), [0, 7, 36])
    assert whole[10] == -1.0


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (SPARSE, {"positions": np.array([0, 7, 37])}),  # beyond the end
        (SPARSE, {"positions": np.array([7, 0, 36])}),  # out of order
        (SPARSE, {"positions": np.array([7, 7, 36])}),
        (SPARSE, {"size": 4}),  # fewer numbers than changes
        (SPARSE, {"values": np.array([1.0, np.inf, 2.0])}),
        (SPARSE, {"head": np.array([1.0, np.nan, 2.0])}),
        (SPARSE, {"size": 2}),  # fewer numbers than the head has
        (SPARSE, {"reference": -1}),
        (DIFFERENCE8, {"size": 41}),
        (DIFFERENCE16, {"size": 39}),
        (DIFFERENCE16, {"size": 2**32 - 1}),
    ],
)
def test_differences_that_make_no_sense_are_refused(code: int, changes: dict) -> None:
    base = SPARSELY if code == SPARSE else CHANGED
    with pytest.raises(Malformed, match=r"difference|not finite"):
        unpack(pack(base._replace(difference=base.difference._replace(**changes)), code))


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize("moving", [3, 300])
def test_a_receiver_holds_what_the_sender_thinks_it_holds(name: str, moving: int) -> None:
    """Over many rounds with loss: what arrives is what the compressor said, within the error that was allowed."""
    rng = np.random.default_rng(0)
    sender, receiver = Compressor(name), References()
    payload = rng.normal(size=300)
    arrived, shorter = 0, 0
    received: set[int] = set()
    for number in range(60):
        payload = payload.copy()
        payload[:moving] += 0.1 * rng.normal(size=moving)
        frame = FRAME._replace(round=number, payload=payload)
        data, arriving = sender.pack(frame, 1e-2, head=2)
        assert np.linalg.norm(arriving - payload) <= 1e-2
        shorter += len(data) < 0.4 * len(pack(frame))
        if rng.random() < 0.3:
            continue
        found = unpack(data)
        if found.difference is not None and found.difference.reference not in received:
            with pytest.raises(Malformed, match="no reference"):
                receiver.whole(found, {300})
            continue
        if found.difference is None:
            received.add(number)
        back = receiver.whole(found, {300})
        arrived += 1
        np.testing.assert_array_equal(back.payload, arriving)
    assert arrived > 15
    assert unpack(sender.pack(frame, 0.0, head=2)[0]).difference is None
    # few changes are what sparse differences are for; many small ones, 16 bits
    assert (shorter > 30) == (name == "quantized" or (name == "top-k" and moving == 3))
    sender.missed()
    assert unpack(sender.pack(frame, 1e-9, head=2)[0]).difference is None
    assert KEY_EVERY < 30


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b[:50], "short"),
        (lambda b: b"XXXX" + b[4:], "magic"),
        (lambda b: b[:4] + b"\x01" + b[5:], "version"),
        (lambda b: b[:5] + b"\x07" + b[6:], "kind"),
        (lambda b: b[:-8], "length"),
        (lambda b: b + b"\x00" * 8, "length"),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), "checksum"),
        (lambda b: b[:30] + bytes([b[30] ^ 1]) + b[31:], "checksum"),
    ],
)
def test_reasons_of_refusal(change, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        unpack(change(pack(FRAME)))


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(Malformed, match="not finite"):
        unpack(pack(FRAME._replace(payload=np.array([1.0, np.nan]))))
    with pytest.raises(Malformed, match="negative"):
        unpack(pack(FRAME._replace(round=-1)))
    with pytest.raises(Malformed, match="dtype"):
        unpack(pack(SIGHT, FLOAT64))


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_hostile_frames_do_no_harm(count: int) -> None:
    rng = random.Random(count)
    seeds = [pack(FRAME), pack(FRAME, FLOAT32), pack(SIGHT, BYTES), pack(SPARSELY, SPARSE)]
    seeds += [pack(CHANGED, DIFFERENCE8), pack(CHANGED, DIFFERENCE16)]
    good = set(seeds)
    passed = 0
    for _ in range(count):
        data = mutated(rng, seeds)
        try:
            frame = unpack(data)
            if frame.kind == VIEW:
                read_entries(frame.payload.tobytes())
            passed += data not in good
        except Malformed:
            pass
    assert passed == 0  # a frame that differs by anything is refused


GOOD = View(3, {3: SEEN}).pack()


@pytest.mark.parametrize(
    "view",
    [
        GOOD[:-1],
        GOOD[:40],
        GOOD + b"\0",
        GOOD + GOOD,  # one node twice
        GOOD + View(2, {2: SEEN}).pack(),  # not in ascending order
        View(1, {1: Entry(1, (1,))}).pack(),  # receives from itself
        View(1, {1: Entry(1, (3, 2))}).pack(),  # not ascending
        View(1, {1: Entry(2**60, ())}).pack(),
        GOOD[:92] + b"\7" + GOOD[93:],  # unknown flags
    ],
)
def test_views_that_make_no_sense_are_refused(view: bytes) -> None:
    with pytest.raises(Malformed):
        read_entries(view)


def test_entries_that_are_known_are_left_out_and_change_nothing_else() -> None:
    """Whatever a view is made of, it is refused with and without what is known, or gives the same entries."""
    rng = random.Random(3)
    entries = {node: Entry(5, (node + 1, node + 2), node, peers=(node + 1,)) for node in range(4)}
    view = View(0, entries)
    newer = View(0, entries | {2: Entry(6, (3, 4), 7), 3: Entry(5, (4, 5), 4, left=True)})
    assert read_entries(view.pack(), entries) == {}
    assert sorted(read_entries(newer.pack(), entries)) == [2, 3]
    outcomes = set()
    for _ in range(1000):
        data = bytearray(rng.choice((view, newer)).pack())
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 7, 255))
        payload = bytes(data)[: rng.choice((len(data), rng.randrange(len(data))))]
        try:
            wanted = read_entries(payload)
        except Malformed:
            with pytest.raises(Malformed):
                read_entries(payload, entries)
            outcomes.add("refused")
            continue
        found = read_entries(payload, entries)
        kept = {n: e for n, e in wanted.items() if n not in entries or not e.same_as(entries[n])}
        assert found == kept
        outcomes.add("new" if found else "known")
    assert outcomes == {"refused", "new", "known"}


def test_members_agree_on_network_and_epoch() -> None:
    entries = {0: Entry(1, (1, 2)), 1: Entry(4, (0,)), 2: Entry(2, (0, 3)), 3: Entry(1, ())}
    views = [View(node, entries) for node in (0, 1, 2)]
    assert {view.component for view in views} == {(0, 1, 2)}  # 3 does not hear 2
    assert len({view.epoch for view in views}) == 1
    assert views[0].network().n_edges == 2
    later, forged = views[0].merged({3: Entry(2, (2,))})
    assert not forged
    assert later.component == (0, 1, 2, 3)
    assert later.epoch != views[0].epoch
    assert later.merged({3: Entry(1, ())})[0] is later  # old news
    replaced = Entry(3, (2,), share=Share(1, 0, b"o" * 32, 9))
    assert later.merged({3: replaced})[0].epoch != later.epoch  # other data


@pytest.mark.parametrize("count", [3000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_hostile_differences_with_a_right_checksum(count: int) -> None:
    """Whoever can compute a checksum can claim anything: it is refused, or it is a difference of its own size."""
    rng = random.Random(count)
    seeds = [pack(CHANGED, DIFFERENCE8), pack(CHANGED, DIFFERENCE16), pack(SPARSELY, SPARSE)]
    for _ in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(OVERHEAD, len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(OVERHEAD, len(data)) :]
        data[64:68] = (len(data) - OVERHEAD).to_bytes(4, "little")
        head = bytes(data[: OVERHEAD - 4])
        data[68:72] = zlib.crc32(data[OVERHEAD:], zlib.crc32(head)).to_bytes(4, "little")
        try:
            found = unpack(bytes(data)).difference
        except Malformed:
            continue
        assert found.values.nbytes <= 8 * len(data)
        if found.size < 1000:
            assert np.isfinite(found.added_to(np.zeros(found.size))).all()


@pytest.mark.parametrize("name", [name for name in COMPRESSIONS if name != "none"])
@pytest.mark.parametrize("change", [1e3, 1e45])
def test_a_code_never_exceeds_the_error_it_is_allowed(name: str, change: float) -> None:
    sender = Compressor(name)
    payload = np.random.default_rng(0).normal(size=100)
    sender.pack(FRAME._replace(round=0, payload=payload), 0.0, head=2)
    moved = payload.copy()
    moved[5:9] += change / 3.0
    for allowed in (1e-8, 1e-2):
        _, arriving = sender.pack(FRAME._replace(round=1, payload=moved), allowed, head=2)
        assert np.linalg.norm(arriving - moved) <= allowed


def test_what_is_refused_is_not_kept() -> None:
    hub = Hub(SimulatedClock())
    transport = InProcessTransport(hub, 0, (1,))
    node = NetworkNode(0, (1,), transport, FRAME.fingerprint, version=5, clock=hub.clock)
    attacker = InProcessTransport(hub, 1, (0,))
    node.listen(0.0)
    node.begin()
    hostile = FRAME._replace(
        sender=1, epoch=node.epoch, phase=0, round=0, payload=np.full(9, 1e305)
    )
    attacker.send(pack(hostile))
    node.listen(0.1)
    assert node.counts.refused["payload"] == 1
    assert not node.references.kept


def test_a_node_that_came_back_is_referred_to() -> None:
    """Its rounds count from its checkpoint, below those that are kept of its earlier life."""
    references = References()
    for number in (100, 108, 90):
        references.whole(FRAME._replace(round=number, payload=np.ones(4)), {4})
    assert list(references.kept[FRAME.sender, FRAME.phase]) == [108, 90]


def test_the_documented_header_is_the_real_one() -> None:
    """Offsets and sizes in the docstring against the struct, field by field."""
    table = (frames.__doc__ or "").split("A round's message has")[0]
    rows = re.findall(r"^ *(\d+) +(\d+)  (\w+)", table, re.MULTILINE)
    documented = [(int(offset), int(size)) for offset, size, _ in rows]
    offset, real = 0, []
    for part in re.findall(r"\d*[a-zA-Z]", HEADER.format.lstrip("<")):
        real.append((offset, struct.calcsize(f"<{part}")))
        offset += real[-1][1]
    assert documented == [*real, (HEADER.size, CHECKSUM.size)]
    assert OVERHEAD == 72
    packed = pack(FRAME._replace(final=True, asked=True))
    assert (packed[4], packed[5], packed[6], packed[7]) == (
        frames.VERSION,
        ROUND,
        FLOAT64,
        FINAL + ASKED,
    )
    back = unpack(packed)
    assert back.final
    assert back.asked


def test_the_documented_entry_is_the_real_one() -> None:
    table = (frames.__doc__ or "").split("signed by its own node:")[1].split("The settings")[0]
    rows = re.findall(r"^ *(\d+) +(\d+)  ", table, re.MULTILINE)
    offset, real = 0, []
    for part in re.findall(r"\d*[a-zA-Z]", (NODE.format + FIELDS.format).replace("<", "")):
        for one in [part] if "s" in part else part:
            real.append((offset, struct.calcsize(f"<{one}")))
            offset += real[-1][1]
    assert [(int(at), int(size)) for at, size in rows] == real


@pytest.mark.parametrize(
    ("frame", "code", "size"),
    [
        (CHANGED, DIFFERENCE8, 16 + 8 * 3 + 4 * 2 + 37),
        (CHANGED, DIFFERENCE16, 16 + 8 * 3 + 4 * 2 + 2 * 37),
        (SPARSELY, SPARSE, 16 + 8 * 3 + 4 + 3 * (4 + 4)),
        (FRAME, FLOAT64, 8 * 40),
        (FRAME, FLOAT32, 4 * 40),
        (SIGHT, BYTES, 97 + 4 * (2 + 3) + 2 + 2 + len(b"signaturecertificate")),
    ],
)
def test_payloads_have_the_documented_size(frame: Frame, code: int, size: int) -> None:
    assert len(pack(frame, code)) == OVERHEAD + size
