"""The wire format: one binary frame, little-endian, parsed defensively. Never pickle, never eval.

offset size
 0      4  magic "DMFV"
 4      1  version (3)
 5      1  kind: 0 a round's message, 1 a view of the membership, 2 the settings of a model
 6      1  code of the payload: 0 float64, 1 float32, 2 bytes, 3 and 4 differences in 8 and 16 bits, 5 sparse differences
 7      1  flags: 1 the sender's last message of this phase, 2 stop_at was asked for by an observer; 0 to 3
 8     16  fingerprint of model and settings (first half of a SHA-256)
24      4  sender, unsigned
28      8  membership epoch, unsigned; 0 in kinds 1 and 2
36      4  phase of the run, unsigned; 0 in kinds 1 and 2
40      8  round, signed but not negative, as are the next two; all three 0 in kinds 1 and 2
48      8  converged_rounds: for how many consecutive rounds the sender, and every node it has (transitively) received from, has converged
56      8  stop_at: the round in which all stop, 2^63 - 1 while none is named
64      4  payload length in bytes, unsigned, at most 2^31 - 1
68      4  CRC-32 of the 68 bytes before it and of the payload
72      .  payload

A round's message has a payload of finite numbers in any code but 2. A view has code 2, one entry after the other in
ascending order of their nodes, each signed by its own node:

 0      4  node, unsigned, as is all that follows
 4      8  version
12      8  news counter
20      8  epoch in which it has finished, 0: none
28      8  epoch that it takes part in, 0: none
36      8  random number of the program's start
44      8  attempt: how often the node has asked for a new fit
52      8  rows of its data
60     32  SHA-256 of its data and settings
92      1  1 if it has left for good, else 0
93      2  n: neighbours it receives frames from
95      2  m: neighbours in its configuration
97     4n  ids of the first, ascending
       4m  ids of the second, ascending
        2  s: bytes of the signature, 0 without certificates
        2  c: bytes of the certificate
        s  signature, by the key of the certificate, of "dmfvi membership entry", the cluster's name and the fingerprint,
           each followed by a zero byte, and all bytes of the entry before s
        c  certificate, DER, followed by those of authorities in between

The settings of a model are sent to a neighbour whose fingerprint is another one, so that both can name the difference:
code 2, a JSON object of texts in UTF-8.

A payload of differences (codes 3, 4 and 5) refers to an earlier message of the same sender and phase whose payload was
whole, and has its size:

 0      8  round of that message, signed but not negative
 8      4  n: numbers in the payload
12      4  h: leading numbers that are sent as they are
16     8h  those, float64

then the changes of the other n - h numbers. Codes 3 and 4: one float32 unit per block of 32 numbers (the last block
may be shorter), then n - h integers of 8 or 16 bits, signed, in units of their block. Code 5: how many have changed (4
bytes), their ascending indices after the head (4 bytes each), then their changes (float32 each).
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION = b"DMFV", 3
ROUND, VIEW, SETTINGS = 0, 1, 2
#: flags
FINAL, ASKED = 1, 2
HEADER = struct.Struct("<4sBBBB16sIQIqqqI")
CHECKSUM = struct.Struct("<I")
OVERHEAD = HEADER.size + CHECKSUM.size
DTYPES: tuple[Any, ...] = (np.dtype("<f8"), np.dtype("<f4"), np.dtype("u1"))
FLOAT64, FLOAT32, BYTES, DIFFERENCE8, DIFFERENCE16, SPARSE = range(6)
#: integers of a block of differences, and numbers in a block
INTEGERS: dict[int, Any] = {DIFFERENCE8: np.dtype("<i1"), DIFFERENCE16: np.dtype("<i2")}
BLOCK = 32
PREAMBLE = struct.Struct("<qII")
COUNT = struct.Struct("<I")
#: nothing longer is read, whatever the header claims
LARGEST_PAYLOAD = 2**31 - 1


class Difference(NamedTuple):
    """What has changed since an earlier message of the same sender and phase.

    The first numbers are sent as they are; of the others some have changed by so much. It takes no more memory than
    its bytes until it is added to that message.
    """

    reference: int  # round of the earlier message
    size: int
    head: NDArray[Any]
    positions: NDArray[Any] | None  # of the numbers that have changed, after the head; None: all
    values: NDArray[Any]

    def added_to(self, earlier: NDArray[Any]) -> NDArray[Any]:
        """The message itself."""
        whole = np.array(earlier, dtype=np.float64)
        whole[: len(self.head)] = self.head
        rest = whole[len(self.head) :]
        if self.positions is None:
            rest += self.values
        else:
            rest[self.positions] += self.values
        return whole


class Frame(NamedTuple):
    """One message."""

    kind: int
    fingerprint: bytes
    sender: int
    epoch: int
    phase: int
    round: int
    converged_rounds: int
    stop_at: int
    payload: NDArray[Any]  # empty where there is a difference
    final: bool = False
    difference: Difference | None = None
    asked: bool = False  # an observer has asked for stop_at


class Malformed(ValueError):
    """Bytes that are not a frame, with a short reason."""


def pack(frame: Frame, dtype: int = FLOAT64) -> bytes:
    """A frame as bytes."""
    body: Any
    if dtype in DIFFERENCES:
        assert frame.difference is not None
        body = pack_difference(frame.difference, dtype)
    else:
        body = np.ascontiguousarray(frame.payload, dtype=DTYPES[dtype]).view(np.uint8).data
    head = HEADER.pack(
        MAGIC,
        VERSION,
        frame.kind,
        dtype,
        FINAL * frame.final + ASKED * frame.asked,
        frame.fingerprint,
        frame.sender,
        frame.epoch,
        frame.phase,
        frame.round,
        frame.converged_rounds,
        frame.stop_at,
        len(body),
    )
    return _checked(head, body)


def pack_bytes(kind: int, fingerprint: bytes, sender: int, body: bytes) -> bytes:
    """A frame of a kind that has no numbers."""
    fields = (MAGIC, VERSION, kind, BYTES, 0, fingerprint, sender, 0, 0, 0, 0, 0, len(body))
    return _checked(HEADER.pack(*fields), body)


def _checked(head: bytes, body: Any) -> bytes:
    return b"".join([head, CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))), body])


def unpack(data: bytes) -> Frame:
    """Bytes as a frame; raises ``Malformed`` and nothing else."""
    if len(data) < OVERHEAD:
        raise Malformed("short")
    (
        magic,
        version,
        kind,
        dtype,
        flags,
        fingerprint,
        sender,
        epoch,
        phase,
        number,
        converged_rounds,
        stop_at,
        length,
    ) = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Malformed("magic")
    if version != VERSION:
        raise Malformed("version")
    if kind > SETTINGS or dtype > SPARSE or flags > FINAL + ASKED:
        raise Malformed("kind")
    itemsize = 1 if dtype in DIFFERENCES else DTYPES[dtype].itemsize
    if length > LARGEST_PAYLOAD or length != len(data) - OVERHEAD or length % itemsize:
        raise Malformed("length")
    (checksum,) = CHECKSUM.unpack_from(data, HEADER.size)
    body = memoryview(data)[OVERHEAD:]
    if checksum != zlib.crc32(body, zlib.crc32(data[: HEADER.size])):
        raise Malformed("checksum")
    if (kind != ROUND) != (dtype == BYTES):
        raise Malformed("dtype")
    difference = None
    if dtype in DIFFERENCES:
        difference, payload = unpack_difference(body, dtype), np.empty(0)
    else:
        payload = np.frombuffer(body, dtype=DTYPES[dtype])
    if dtype in (FLOAT64, FLOAT32):
        payload = payload.astype(np.float64, copy=False)
        if not np.isfinite(payload).all():
            raise Malformed("not finite")
    if number < 0 or converged_rounds < 0 or stop_at < 0:
        raise Malformed("negative")
    return Frame(
        kind,
        fingerprint,
        sender,
        epoch,
        phase,
        number,
        converged_rounds,
        stop_at,
        payload,
        bool(flags & FINAL),
        difference,
        bool(flags & ASKED),
    )


# -- differences ------------------------------------------------------------------------

DIFFERENCES = {*INTEGERS, SPARSE}


def quantized(values: NDArray[Any], dtype: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Units (float32) of blocks and whole multiples of them, nearest to ``values``."""
    integer = INTEGERS[dtype]
    most = np.iinfo(integer).max
    n_blocks = -(-len(values) // BLOCK)
    padded = np.zeros(n_blocks * BLOCK)
    padded[: len(values)] = values
    blocks = padded.reshape(n_blocks, BLOCK)
    units = np.abs(blocks).max(axis=1, initial=0.0) / most
    units = np.nextafter(units.astype("<f4"), np.float32(np.inf))  # rounded up: nothing overflows
    whole = np.rint(blocks / units[:, None]).astype(integer)
    return units, whole.ravel()[: len(values)]


def from_quantized(units: NDArray[Any], whole: NDArray[Any]) -> NDArray[Any]:
    """What the receiver of units and multiples makes of them."""
    return np.repeat(units.astype(np.float64), BLOCK)[: len(whole)] * whole


def pack_difference(difference: Difference, dtype: int) -> bytes:
    """A difference as bytes."""
    head = np.ascontiguousarray(difference.head, dtype="<f8")
    parts = [PREAMBLE.pack(difference.reference, difference.size, len(head)), head.tobytes()]
    if dtype == SPARSE:
        assert difference.positions is not None
        parts += [
            COUNT.pack(len(difference.positions)),
            difference.positions.astype("<u4").tobytes(),
        ]
        parts += [difference.values.astype("<f4").tobytes()]
    else:
        units, whole = quantized(difference.values, dtype)
        parts += [units.astype("<f4").tobytes(), whole.tobytes()]
    return b"".join(parts)


def unpack_difference(body: memoryview, dtype: int) -> Difference:
    """Inverse of ``pack_difference``; raises ``Malformed`` for anything else."""
    if len(body) < PREAMBLE.size:
        raise Malformed("difference")
    reference, size, n_head = PREAMBLE.unpack_from(body)
    rest = len(body) - PREAMBLE.size - 8 * n_head
    n = size - n_head
    if reference < 0 or n < 0 or rest < 0:
        raise Malformed("difference")
    head = np.frombuffer(body, dtype="<f8", count=n_head, offset=PREAMBLE.size)
    at = PREAMBLE.size + 8 * n_head
    positions: NDArray[Any] | None = None
    if dtype == SPARSE:
        positions, values = _sparse(body[at:], n)
    else:
        integer, n_blocks = INTEGERS[dtype], -(-n // BLOCK)
        if rest != 4 * n_blocks + integer.itemsize * n:
            raise Malformed("difference")
        units = np.frombuffer(body, dtype="<f4", count=n_blocks, offset=at)
        whole = np.frombuffer(body, dtype=integer, count=n, offset=at + 4 * n_blocks)
        if not np.isfinite(units).all():
            raise Malformed("not finite")
        values = from_quantized(units, whole)
    if not (np.isfinite(head).all() and np.isfinite(values).all()):
        raise Malformed("not finite")
    return Difference(reference, size, head, positions, values)


def _sparse(body: memoryview, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    if len(body) < COUNT.size:
        raise Malformed("difference")
    (count,) = COUNT.unpack_from(body)
    if count > n or len(body) != COUNT.size + 8 * count:
        raise Malformed("difference")
    positions = np.frombuffer(body, dtype="<u4", count=count, offset=COUNT.size).astype(np.int64)
    values = np.frombuffer(body, dtype="<f4", count=count, offset=COUNT.size + 4 * count)
    if count and (positions[-1] >= n or (np.diff(positions) <= 0).any()):
        raise Malformed("difference")
    return positions, values.astype(np.float64)
