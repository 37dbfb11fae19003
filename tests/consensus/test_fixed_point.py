"""Exact sums of doubles: any order, any grouping, the same bits, and the right ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmfvi.consensus.exact_sum import ExactSum, _read
from dmfvi.consensus.fixed_point import Digits, decode, encode, normalised, total, total_of

SIMILAR = st.floats(-1e12, 1e12).filter(lambda v: v == 0 or abs(v) > 1e-30)
NUMBERS = st.floats(-1e60, 1e60, allow_nan=False, allow_infinity=False)


@given(st.lists(NUMBERS, min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_double_comes_back_unless_it_is_far_smaller_than_its_neighbours(
    values: list[float],
) -> None:
    vector = np.array(values)
    floor = np.abs(vector).max() * 2.0**-160
    np.testing.assert_array_equal(
        np.where(np.abs(vector) > floor, decode(encode(vector)), vector), vector
    )


@given(st.lists(SIMILAR, min_size=2, max_size=9), st.randoms())
@settings(max_examples=200, deadline=None)
def test_the_sum_does_not_depend_on_order_or_grouping(values: list[float], random: object) -> None:
    parts = [encode(np.array([v, -v, 1.0])) for v in values]
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    cut = len(parts) // 2
    grouped = total([normalised(total(shuffled[:cut] or [encode(np.zeros(3))])), *shuffled[cut:]])
    np.testing.assert_array_equal(decode(total(parts)), decode(grouped))
    at_once = total_of([np.array([v, -v, 1.0]) for v in values])
    np.testing.assert_array_equal(decode(total(parts)), decode(at_once))
    exact = float(sum(Fraction(v) for v in values))
    assert decode(total(parts))[0] == pytest.approx(exact, rel=3e-16, abs=1e-300)
    assert decode(total(parts))[2] == len(values)


@pytest.mark.parametrize("scale", [1e-300, 1e-50, 1.0, 1e50, 1e290])
def test_any_units_are_exact(scale: float) -> None:
    rng = np.random.default_rng(0)
    vectors = [scale * rng.normal(size=50) for _ in range(9)]
    found = decode(total(encode(v) for v in vectors))
    exact = [float(sum(Fraction(v[i]) for v in vectors)) for i in range(50)]
    np.testing.assert_allclose(found, exact, rtol=3e-16)


def test_numbers_cancel_exactly() -> None:
    big = np.array([1e17, 1.0])
    found = decode(total([encode(big), encode(np.array([0.25, 2.0])), encode(-big)]))
    np.testing.assert_array_equal(found, [0.25, 2.0])


def test_one_form_for_each_number() -> None:
    """Carries and empty digits do not show."""
    wide = Digits(-2, np.array([[0], [2**33], [-1], [0]]))
    narrow = normalised(wide)
    np.testing.assert_array_equal(narrow.digits, normalised(narrow).digits)
    assert decode(wide) == decode(narrow)


@pytest.mark.parametrize(
    "payload", [[], [0, 0], [0, 0, 5, 0, 0], [-1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, -7]]
)
def test_messages_of_the_wrong_shape_are_dropped(payload: list[float]) -> None:
    assert _read(np.array(payload, dtype=float), 3, 4) is None


def test_bad_settings_and_numbers_are_named() -> None:
    with pytest.raises(ValueError, match=r"transport must be one of .*received 'pigeon'"):
        ExactSum(transport="pigeon")  # type: ignore[arg-type]
