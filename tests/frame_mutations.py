"""Frames that an attacker may send."""

from __future__ import annotations

import random


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
