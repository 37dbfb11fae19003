"""Smaller messages; the result stays exact.

A payload is a running sum: each includes all earlier ones. So a frame may carry only what has changed since an
earlier one, coarsely: what it leaves out is part of the next difference again (error feedback without any memory of
errors), and the first exact frame supersedes all. Under loss a difference needs a reference that the receiver holds:
it is always a whole frame, named by its round, never another difference; whole frames come every few rounds, and at once
when messages have been missed. A receiver without the reference drops the difference and continues with what it has.

A code is used while its error is a small part of the nodes' disagreement, so that it cannot keep them from agreeing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dmfvi.engines.net.frames import (
    DIFFERENCE8,
    DIFFERENCE16,
    FLOAT32,
    FLOAT64,
    SPARSE,
    Difference,
    Frame,
    Malformed,
    from_quantized,
    pack,
    quantized,
)
from dmfvi.linalg import FloatArray

#: changes beyond this do not fit into single precision
LARGEST_CHANGE = 1e30
#: rounds between whole frames
KEY_EVERY = 8
#: whole frames of a neighbour that are kept to refer to
KEYS = 2

#: values of ``compression`` in [node], and the codes that are tried, the shortest first
COMPRESSIONS: dict[str, tuple[int, ...]] = {
    "none": (),
    "single": (FLOAT32,),
    "quantized": (DIFFERENCE8, DIFFERENCE16, FLOAT32),
    "top-k": (SPARSE, FLOAT32),
}


class Compressor:
    """A node's outgoing payloads, coded as ``compression`` allows."""

    def __init__(self, compression: str) -> None:
        if compression not in COMPRESSIONS:
            raise ValueError(
                f"compression must be one of {list(COMPRESSIONS)}, received {compression!r}"
            )
        self.codes = COMPRESSIONS[compression]
        self.phase = (-1, -1)
        self.key: tuple[int, FloatArray] | None = None
        self.since = 0

    def missed(self) -> None:
        """Messages are being lost: the next frame is a whole one, for receivers without a reference."""
        self.since = KEY_EVERY

    def pack(self, frame: Frame, allowed: float, head: int) -> tuple[bytes, FloatArray]:
        """The frame in the shortest code whose error is at most ``allowed``, and the payload as it arrives.

        The first numbers stay exact.
        """
        if self.phase != (frame.epoch, frame.phase):
            self.phase, self.key, self.since = (frame.epoch, frame.phase), None, 0
        if allowed > 0 and self.codes:
            self.since += 1
            for code in self.codes:
                coded = self._coded(frame, code, allowed, head)
                if coded is not None:
                    return coded
        self.key, self.since = (frame.round, frame.payload), 0
        return pack(frame, FLOAT64), frame.payload

    def _coded(
        self, frame: Frame, code: int, allowed: float, head: int
    ) -> tuple[bytes, FloatArray] | None:
        payload = frame.payload
        if code == FLOAT32:
            with np.errstate(over="ignore"):  # what does not fit is refused
                single = payload.astype(np.float32).astype(np.float64)
            if not (np.linalg.norm(single - payload) <= allowed):
                return None
            self.key, self.since = (frame.round, single), 0
            return pack(frame, FLOAT32), single
        if self.key is None or self.since > KEY_EVERY or self.key[1].size != payload.size:
            return None
        return self._difference(frame, code, allowed, head, *self.key)

    @staticmethod
    def _difference(
        frame: Frame, code: int, allowed: float, head: int, number: int, earlier: FloatArray
    ) -> tuple[bytes, FloatArray] | None:
        payload = frame.payload
        change = (payload - earlier)[head:]
        if not (np.abs(change).max(initial=0.0) < LARGEST_CHANGE):
            return None
        positions, arriving = None, change
        if code == SPARSE:
            positions = _largest(change, allowed)
            if 8 * len(positions) >= 4 * payload.size:  # not shorter than single precision
                return None
            change = arriving = change[positions].astype(np.float32).astype(np.float64)
        else:
            units, whole = quantized(change, code)
            arriving = from_quantized(units, whole)
        difference = Difference(number, payload.size, payload[:head], positions, change)
        received = difference._replace(values=arriving).added_to(earlier)
        if not (np.linalg.norm(received - payload) <= allowed):  # nor where it is not a number
            return None
        return pack(frame._replace(difference=difference), code), received


def _largest(change: FloatArray, allowed: float) -> Any:
    """Indices of the fewest changes without which the rest is at most ``allowed``, ascending."""
    order = np.argsort(np.abs(change))
    left_out = np.sqrt(np.cumsum(change[order] ** 2)) <= 0.9 * allowed
    return np.sort(order[int(left_out.sum()) :])


class References:
    """Whole frames of the neighbours, for the differences that refer to them."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], dict[int, FloatArray]] = {}

    def clear(self) -> None:
        """Forget all."""
        self.kept.clear()

    def whole(self, frame: Frame, known_sizes: set[int] | None) -> Frame:
        """The frame with its payload; a difference without its reference is refused."""
        where = (frame.sender, frame.phase)
        if frame.difference is None:
            if known_sizes is None or frame.payload.size in known_sizes:
                kept = self.kept.setdefault(where, {})
                kept.pop(
                    frame.round, None
                )  # the newest to arrive is the last to be dropped: a node may come back
                kept[frame.round] = frame.payload
                for number in list(kept)[:-KEYS]:
                    del kept[number]
                for old in [key for key in self.kept if key[1] < frame.phase - 1]:
                    del self.kept[old]
            return frame
        earlier = self.kept.get(where, {}).get(frame.difference.reference)
        if earlier is None:
            raise Malformed("no reference")
        if earlier.size != frame.difference.size:
            raise Malformed("size")
        return frame._replace(payload=frame.difference.added_to(earlier), difference=None)
