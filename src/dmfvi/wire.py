"""The wire format: one binary frame, little-endian, parsed defensively. Never pickle, never eval.

offset size
 0      4  magic "DMFV"
 4      1  version (1)
 5      1  kind: 0 a round's message, 1 a view of who is there
 6      1  dtype of the payload: 0 float64, 1 float32, 2 int64
 7      1  reserved, 0
 8     16  fingerprint of model and settings (first half of a SHA-256)
24      4  sender
28      8  membership epoch
36      4  phase of the run
40      8  round
48      8  quiet: rounds for which the sender and all it has heard of have been calm
56      8  stop_at: the round in which all stop
64      4  payload length in bytes
68      4  CRC-32 of all bytes before it and of the payload
72      .  payload
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION = b"DMFV", 1
ROUND, VIEW = 0, 1
HEADER = struct.Struct("<4sBBBB16sIQIqqqI")
CHECKSUM = struct.Struct("<I")
OVERHEAD = HEADER.size + CHECKSUM.size
DTYPES: tuple[Any, ...] = (np.dtype("<f8"), np.dtype("<f4"), np.dtype("<i8"))
FLOAT64, FLOAT32, INT64 = range(3)
#: nothing longer is read, whatever the header says
LARGEST_PAYLOAD = 2**31 - 1


class Frame(NamedTuple):
    """One message."""

    kind: int
    fingerprint: bytes
    sender: int
    epoch: int
    phase: int
    round: int
    quiet: int
    stop_at: int
    payload: NDArray[Any]
    final: bool = False


class Malformed(ValueError):
    """Bytes that are not a frame, with the reason in one word."""


def pack(frame: Frame, dtype: int = FLOAT64) -> bytes:
    """A frame as bytes."""
    body = np.ascontiguousarray(frame.payload, dtype=DTYPES[dtype]).view(np.uint8).data
    head = HEADER.pack(
        MAGIC,
        VERSION,
        frame.kind,
        dtype,
        int(frame.final),
        frame.fingerprint,
        frame.sender,
        frame.epoch,
        frame.phase,
        frame.round,
        frame.quiet,
        frame.stop_at,
        len(body),
    )
    return b"".join([head, CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))), body])


def unpack(data: bytes) -> Frame:
    """Bytes as a frame; raises ``Malformed`` and nothing else."""
    if len(data) < OVERHEAD:
        raise Malformed("short")
    head = HEADER.unpack_from(data)
    magic, version, kind, dtype, flags, *fields, length = head
    if magic != MAGIC:
        raise Malformed("magic")
    if version != VERSION:
        raise Malformed("version")
    if kind not in (ROUND, VIEW) or dtype >= len(DTYPES) or flags > 1:
        raise Malformed("kind")
    if length > LARGEST_PAYLOAD or length != len(data) - OVERHEAD:
        raise Malformed("length")
    if length % DTYPES[dtype].itemsize:
        raise Malformed("length")
    (checksum,) = CHECKSUM.unpack_from(data, HEADER.size)
    body = memoryview(data)[OVERHEAD:]
    if checksum != zlib.crc32(body, zlib.crc32(data[: HEADER.size])):
        raise Malformed("checksum")
    if (kind == VIEW) != (dtype == INT64):
        raise Malformed("dtype")
    payload = np.frombuffer(body, dtype=DTYPES[dtype])
    if dtype != INT64:
        payload = payload.astype(np.float64, copy=False)
        if not np.isfinite(payload).all():
            raise Malformed("not finite")
    fingerprint, sender, epoch, phase, number, quiet, stop_at = fields
    if number < 0 or quiet < 0 or stop_at < 0:
        raise Malformed("negative")
    final = bool(flags)
    return Frame(kind, fingerprint, sender, epoch, phase, number, quiet, stop_at, payload, final)
