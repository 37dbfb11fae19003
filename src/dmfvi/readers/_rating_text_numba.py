"""Numba code that reads ratings from text, a block of whole lines at a time.

Numbers are written by hand to stay in one pass over the bytes: a hundred million lines take seconds.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from dmfvi.jit import njit

NEWLINE, RETURN, QUOTE, COLON, COMMA, POINT, MINUS = 10, 13, 34, 58, 44, 46, 45
OK, TOO_FEW, NOT_WHOLE, NOT_NUMBER, NEGATIVE, NO_ITEM, TOO_LARGE = range(7)


@njit(cache=True, error_model="numpy")
def _line_end(text, at):
    while at < len(text) and text[at] != NEWLINE:
        at += 1
    return at


@njit(cache=True, error_model="numpy")
def _whole(text, begin, end):
    """A whole number and a status."""
    while begin < end and (text[begin] == 32 or text[begin] == QUOTE):
        begin += 1
    while end > begin and (text[end - 1] in (32, RETURN, QUOTE)):
        end -= 1
    if begin == end:
        return np.int64(0), TOO_FEW
    status = OK
    if text[begin] == MINUS:
        status = NEGATIVE
        begin += 1
    if begin == end or end - begin > 18:
        return np.int64(0), TOO_LARGE if end - begin > 18 else NOT_WHOLE
    value = np.int64(0)
    for at in range(begin, end):
        digit = np.int64(text[at]) - 48
        if digit < 0 or digit > 9:
            return np.int64(0), NOT_WHOLE
        value = 10 * value + digit
    return value, status


@njit(cache=True, error_model="numpy")
def _decimal(text, begin, end):
    """A number like 4, -0.5 or 3.50, and a status."""
    while begin < end and (text[begin] == 32 or text[begin] == QUOTE):
        begin += 1
    while end > begin and (text[end - 1] in (32, RETURN, QUOTE)):
        end -= 1
    if begin == end:
        return 0.0, TOO_FEW
    sign = 1.0
    if text[begin] == MINUS:
        sign = -1.0
        begin += 1
    value, unit, digits = 0.0, 1.0, 0
    seen_point = False
    for at in range(begin, end):
        byte = text[at]
        if byte == POINT and not seen_point:
            seen_point = True
            continue
        digit = np.int64(byte) - 48
        if digit < 0 or digit > 9:
            return 0.0, NOT_NUMBER
        value = 10.0 * value + digit
        digits += 1
        if seen_point:
            unit *= 10.0
    if digits == 0:
        return 0.0, NOT_NUMBER
    return sign * value / unit, OK


@njit(cache=True, error_model="numpy")
def parse_delimited(text, delimiter, places, users, items, ratings):  # noqa: PLR0912
    """Lines of fields; ``places`` are the positions of user, item and rating.

    Returns how many ratings, lines read, and the status of the line after them.
    """
    last = max(places[0], places[1], places[2])
    begins = np.empty(last + 1, np.int64)
    ends = np.empty(last + 1, np.int64)
    width = len(delimiter)
    at, count, lines = 0, 0, 0
    while at < len(text):
        end = _line_end(text, at)
        stop = end - 1 if end > at and text[end - 1] == RETURN else end
        if stop == at:  # an empty line
            at = end + 1
            lines += 1
            continue
        field, begin = 0, at
        here = at
        quoted = False
        while here <= stop and field <= last:
            if here < stop and text[here] == QUOTE:
                quoted = not quoted
            found = here == stop
            if not found and not quoted and here + width <= stop:
                found = True
                for i in range(width):
                    if text[here + i] != delimiter[i]:
                        found = False
            if found:
                begins[field], ends[field] = begin, here
                field += 1
                here += width
                begin = here
                if begin > stop:
                    break
            else:
                here += 1
        if field <= last:
            return count, lines, TOO_FEW
        user, status = _whole(text, begins[places[0]], ends[places[0]])
        if status != OK:
            return count, lines, status
        item, status = _whole(text, begins[places[1]], ends[places[1]])
        if status != OK:
            return count, lines, status
        rating, status = _decimal(text, begins[places[2]], ends[places[2]])
        if status != OK:
            return count, lines, status
        users[count], items[count], ratings[count] = user, item, rating
        count += 1
        lines += 1
        at = end + 1
    return count, lines, OK


@njit(cache=True, error_model="numpy")
def parse_netflix(text, item, with_ratings, users, items, ratings):
    """``film:`` followed by lines ``user,rating,date``, or ``user`` alone in a probe.

    Returns how many, lines read, the film that the next block goes on with, and a status.
    """
    at, count, lines = 0, 0, 0
    while at < len(text):
        end = _line_end(text, at)
        stop = end - 1 if end > at and text[end - 1] == RETURN else end
        if stop == at:
            at = end + 1
            lines += 1
            continue
        if text[stop - 1] == COLON:
            item, status = _whole(text, at, stop - 1)
            if status != OK:
                return count, lines, item, status
        else:
            if item < 0:
                return count, lines, item, NO_ITEM
            comma = at
            while comma < stop and text[comma] != COMMA:
                comma += 1
            user, status = _whole(text, at, comma)
            if status != OK:
                return count, lines, item, status
            rating = np.nan
            if with_ratings:
                if comma == stop:
                    return count, lines, item, TOO_FEW
                second = comma + 1
                while second < stop and text[second] != COMMA:
                    second += 1
                rating, status = _decimal(text, comma + 1, second)
                if status != OK:
                    return count, lines, item, status
            users[count], items[count], ratings[count] = user, item, rating
            count += 1
        lines += 1
        at = end + 1
    return count, lines, item, OK
