"""The wire format: what is packed comes back, and nothing else gets through."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dmfvi.membership import Entry, View, read_entries
from dmfvi.wire import (
    FLOAT32,
    FLOAT64,
    INT64,
    OVERHEAD,
    ROUND,
    VIEW,
    Frame,
    Malformed,
    pack,
    unpack,
)

PAYLOAD = np.random.default_rng(0).standard_normal(40)
FRAME = Frame(ROUND, b"f" * 16, 3, 2**62, 4, 17, 2, 2**62, PAYLOAD)
SIGHT = Frame(VIEW, b"f" * 16, 3, 0, 0, 0, 0, 0, View(3, {3: Entry(7, (1, 2))}).pack())


def test_frames_come_back() -> None:
    back = unpack(pack(FRAME))
    np.testing.assert_array_equal(back.payload, PAYLOAD)
    assert back._replace(payload=None) == FRAME._replace(payload=None)
    single = unpack(pack(FRAME, FLOAT32))
    np.testing.assert_array_equal(single.payload, PAYLOAD.astype(np.float32).astype(np.float64))
    assert read_entries(unpack(pack(SIGHT, INT64)).payload) == {3: Entry(7, (1, 2))}
    assert unpack(pack(FRAME._replace(final=True))).final
    assert len(pack(FRAME)) == OVERHEAD + 320


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b[:50], "short"),
        (lambda b: b"XXXX" + b[4:], "magic"),
        (lambda b: b[:4] + b"\x02" + b[5:], "version"),
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


def mutated(rng: random.Random, seeds: list[bytes]) -> bytes:
    """Random bytes, or a real frame cut, stretched, flipped or spliced."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    data = bytearray(rng.choice(seeds))
    if kind == 1:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 2:
        return bytes(data) + rng.randbytes(rng.randrange(1, 50))
    if kind == 3:
        other = rng.choice(seeds)
        cut = rng.randrange(len(data))
        return bytes(data[:cut]) + other[cut:]
    for _ in range(rng.randrange(1, 9)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def test_a_hundred_thousand_hostile_frames_do_no_harm() -> None:
    rng = random.Random(0)
    seeds = [pack(FRAME), pack(FRAME, FLOAT32), pack(SIGHT, INT64)]
    good = set(seeds)
    passed = 0
    for _ in range(100_000):
        data = mutated(rng, seeds)
        try:
            frame = unpack(data)
            if frame.kind == VIEW:
                read_entries(frame.payload)
            passed += data not in good
        except Malformed:
            pass
    assert passed == 0  # a frame that differs by anything is refused


@pytest.mark.parametrize(
    "numbers",
    [[1, 2, 3], [1, 1, 0, 0, 2, 5], [1, 1, 0, 0, -1], [1, 1, 0, 0, 1, 1], [-1, 1, 0, 0, 0]],
)
def test_views_that_make_no_sense_are_refused(numbers: list[int]) -> None:
    with pytest.raises(Malformed):
        read_entries(np.array(numbers))


def test_members_agree_on_network_and_epoch() -> None:
    entries = {0: Entry(1, (1, 2)), 1: Entry(4, (0,)), 2: Entry(2, (0, 3)), 3: Entry(1, ())}
    views = [View(node, entries) for node in (0, 1, 2)]
    assert {view.component for view in views} == {(0, 1, 2)}  # 3 does not hear 2
    assert len({view.epoch for view in views}) == 1
    assert views[0].network().n_edges == 2
    later = views[0].merged({3: Entry(2, (2,))})
    assert later.component == (0, 1, 2, 3)
    assert later.epoch != views[0].epoch
    assert later.merged({3: Entry(1, ())}).epoch == later.epoch  # old news
