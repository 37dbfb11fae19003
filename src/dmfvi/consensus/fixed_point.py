"""Exact sums of doubles: vectors as signed digits of 32 bits on a fixed grid, added as integers.

    x = sum_k d_k 2^(32 (low + k)),  |d_k| < 2^32

Integer addition does not depend on the order, the tree or the engine, so every node gets the same bits. The grid is the
same for all vectors, and a vector has as many digits as its entries need: every double is exact. Digits are kept as
doubles, which add whole numbers below 2^53 exactly: those of up to 2^20 vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dmfvi.linalg import FloatArray
from dmfvi.tags import stored_as

BITS = 32
BASE = np.int64(1) << BITS
#: a number with a digit of this weight or more is scaled down while its digits are added: the sum may be finite
LARGE_DIGIT = 30
#: bits of a double's mantissa
MANTISSA = 53
#: digits up to this place have weights, and one over them, that are doubles
FARTHEST_DIGIT = 31
#: digits of this many vectors add up to doubles that are exact
MOST_ADDED = 1 << (MANTISSA - BITS - 1)


@stored_as("digits", version=2)
class Digits(NamedTuple):
    """A vector of exact numbers: ``digits`` (K, n), the lowest first, of weight 2^(32 (low + k))."""

    low: int
    digits: FloatArray

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        return int(self.digits.shape[1])


def encode(vector: FloatArray) -> Digits:
    """The digits of a vector of finite doubles.

    From the highest digit down: what a digit stands for is subtracted, which is exact, until nothing is left.
    """
    largest = float(np.abs(vector).max(initial=0.0))
    if largest == 0.0:
        return Digits(0, np.zeros((1, len(vector))))
    place = (int(np.frexp(largest)[1]) - 1) // BITS
    rows, rest = [], vector
    while place >= -FARTHEST_DIGIT and place <= FARTHEST_DIGIT:
        digit = rest * 2.0 ** (-BITS * place)
        rows.append(np.trunc(digit, out=digit))
        known = digit * 2.0 ** (BITS * place)
        rest = np.subtract(rest, known, out=known)
        if not rest.any():
            return Digits(place, np.stack(rows[::-1]))
        place -= 1
    return _encode_extreme(vector)


def _encode_extreme(vector: FloatArray) -> Digits:
    """The same for numbers near the ends of what a double can be, by their mantissas."""
    fraction, exponent = np.frexp(vector)
    whole = np.ldexp(fraction, MANTISSA).astype(np.int64)
    lowest = exponent.astype(np.int64) - MANTISSA  # bit of each mantissa's last place
    used = whole != 0
    top = int((exponent[used].max() - 1) // BITS)
    low = int(lowest[used].min() // BITS)
    digits = np.zeros((top - low + 1, len(vector)))
    sign, size = np.sign(whole), np.abs(whole)
    place, offset = np.divmod(np.where(used, lowest - BITS * low, 0), BITS)
    # a mantissa of 53 bits, shifted by up to 31, touches three digits
    mask = BASE - 1
    first = (size << offset) & mask  # the bits that fall off the left are those of the next digits
    rest = size >> (BITS - offset)
    columns = np.arange(len(vector))
    for k, part in enumerate((first, rest & mask, rest >> BITS)):
        filled = np.flatnonzero(part)
        digits[place[filled] + k, columns[filled]] = sign[filled] * part[filled]
    return Digits(low, digits)


def total(parts: Iterable[Digits]) -> Digits:
    """The sum, exact; digits may grow beyond their base until ``normalised``."""
    given = list(parts)
    if len(given) == 1:
        return given[0]
    low = min(part.low for part in given)
    high = max(part.low + len(part.digits) for part in given)
    digits = np.zeros((high - low, given[0].size))
    for part in given:
        at = part.low - low
        digits[at : at + len(part.digits)] += part.digits
    return Digits(low, digits)


def total_of(vectors: Sequence[FloatArray]) -> Digits:
    """The exact sum of vectors of one length, digit by digit as ``encode`` has them."""
    rest = np.array(vectors, dtype=np.float64)
    largest = float(np.abs(rest).max(initial=0.0))
    if largest == 0.0:
        return Digits(0, np.zeros((1, rest.shape[1])))
    place = (int(np.frexp(largest)[1]) - 1) // BITS
    rows, digit = [], np.empty_like(rest)
    while len(vectors) <= MOST_ADDED and -FARTHEST_DIGIT <= place <= FARTHEST_DIGIT:
        np.multiply(rest, 2.0 ** (-BITS * place), out=digit)
        np.trunc(digit, out=digit)
        rows.append(digit.sum(axis=0))
        digit *= 2.0 ** (BITS * place)
        rest -= digit
        if not rest.any():
            return Digits(place, np.stack(rows[::-1]))
        place -= 1
    return total(encode(vector) for vector in vectors)


def normalised(value: Digits) -> Digits:
    """The same numbers with digits in [-2^31, 2^31): one form for each number, without empty digits at the ends."""
    rows = []
    carry = np.zeros(value.size, dtype=np.int64)
    half = BASE >> 1
    for digit in value.digits:
        whole = digit.astype(np.int64) + carry
        carry = (whole + half) >> BITS
        rows.append(whole - (carry << BITS))
    while carry.any():
        whole, carry = carry, (carry + half) >> BITS
        rows.append(whole - (carry << BITS))
    used = [k for k, row in enumerate(rows) if row.any()]
    if not used:
        return Digits(0, np.zeros((1, value.size)))
    return Digits(value.low + used[0], np.array(rows[used[0] : used[-1] + 1], dtype=np.float64))


def decode(value: Digits) -> FloatArray:
    """The nearest doubles, up to one unit in the last place; the same bits for the same numbers."""
    exact = normalised(value)
    scale = 2 * BITS if exact.low + len(exact.digits) > LARGE_DIGIT else 0
    result = np.zeros(value.size)
    for k, digit in enumerate(exact.digits):  # the smallest first
        power = BITS * (exact.low + k) - scale
        if abs(power) <= BITS * FARTHEST_DIGIT:
            result += digit * 2.0**power
        else:
            result += np.ldexp(digit, power)
    with np.errstate(over="ignore"):  # a sum beyond all doubles is infinite
        return np.asarray(np.ldexp(result, scale))
