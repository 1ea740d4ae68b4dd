"""Texts of columns that lie somewhere in memory → bytes of Arrow arrays and numbers. References: `mysqlvalues.py`, `typed.py`.

Texts are two arrays of int64: addresses, and lengths, -1 for NULL. What is out of the ordinary is for the reference: the result is -1.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.decode import canal_layout as L
from tidemill.kernels.decode.canal_parse import utf8
from tidemill.kernels.intrinsics import entry, jit, ld8, ld64, memcpy, same_bytes, st8, st32, st64

CANONICAL, DIGITS, MEMBER, FLOAT, UTF8 = range(5)
"""What `check_texts` checks: an integer as Python writes it; any integer; a member's number or name; a float; UTF-8."""

_DAY_US = 86_400_000_000


@entry(4)
def copy_texts(n, addresses, lengths, out):
    """Copy n texts one behind the other."""
    for i in range(n):
        size = ld64(lengths + 8 * i)
        if size > 0:
            memcpy(out, ld64(addresses + 8 * i), size)
            out += size
    return 0


@entry(5)
def copy_latin(n, addresses, lengths, offsets, out):
    """Bytes that are written as the characters of their numbers, in UTF-8. offsets: int32. Returns how many bytes there are."""
    at = 0
    st32(offsets, 0)
    for i in range(n):
        a = ld64(addresses + 8 * i)
        end = a + max(ld64(lengths + 8 * i), 0)
        while a < end:
            c = ld8(a)
            if c >= 0x80:
                if (c != 0xC2 and c != 0xC3) or end - a < 2 or ld8(a + 1) & 0xC0 != 0x80:
                    return -1
                c = (c & 3) << 6 | ld8(a + 1) & 0x3F
                a += 1
            st8(out + at, c)
            at += 1
            a += 1
        st32(offsets + 4 * i + 4, at)
    return at


@jit
def integer(a, n, canonical):
    """Return whether a text is an integer of 64 bits, signed or not."""
    sign = 1 if n > 0 and ld8(a) == 45 else 0
    digits = n - sign
    if digits < 1 or digits > 20:
        return False
    if canonical and ld8(a + sign) == 48 and (digits > 1 or sign):
        return False
    value = np.uint64(0)
    limit = np.uint64((1 << 63) // 10) if sign else np.uint64((1 << 64) // 10)
    rest = np.uint64(8 if sign else 5)
    for i in range(sign, n):
        c = ld8(a + i) - 48
        if c < 0 or c > 9 or value > limit or (value == limit and np.uint64(c) > rest):
            return False
        value = value * np.uint64(10) + np.uint64(c)
    return True


@jit
def looks_integer(a, n):
    """Return whether a text has a sign at most, and up to 20 digits."""
    sign = 1 if n > 0 and ld8(a) == 45 else 0
    if n - sign < 1 or n - sign > 20:
        return False
    for i in range(sign, n):
        if ld8(a + i) < 48 or ld8(a + i) > 57:
            return False
    return True


@jit
def digits_end(a, end):
    """Return the end of the digits here."""
    while a < end and 48 <= ld8(a) <= 57:
        a += 1
    return a


@jit
def floating(a, n):
    """Return whether a text is a float: digits, a point between digits, an exponent of up to four."""
    end = a + n
    if a < end and ld8(a) == 45:
        a += 1
    b = digits_end(a, end)
    if b == a or b - a > 300:
        return False
    if b < end and ld8(b) == 46:
        a = b + 1
        b = digits_end(a, end)
        if b == a or b - a > 300:
            return False
    if b < end and (ld8(b) == 69 or ld8(b) == 101):
        a = b + 1
        if a < end and (ld8(a) == 43 or ld8(a) == 45):
            a += 1
        b = digits_end(a, end)
        if b == a or b - a > 4:
            return False
    return b == end


@entry(4)
def check_texts(n, addresses, lengths, what):
    """Return 0 if all texts are of the kind, else -1."""
    for i in range(n):
        a = ld64(addresses + 8 * i)
        size = ld64(lengths + 8 * i)
        if size < 0:
            continue
        if what == UTF8:
            fine = utf8(a, size)
        elif what == FLOAT:
            fine = floating(a, size)
        elif what == MEMBER:
            fine = integer(a, size, True) if looks_integer(a, size) else utf8(a, size)
        else:
            fine = integer(a, size, what == CANONICAL)
        if not fine:
            return -1
    return 0


@jit
def number(a, n):
    """Return the number of n digits, -1 if they are none."""
    value = 0
    for i in range(n):
        c = ld8(a + i) - 48
        if c < 0 or c > 9:
            return -1
        value = 10 * value + c
    return value


@jit
def fraction(a, end):
    """Return the microseconds of a point and up to six digits, which end the text; 0 if there is nothing, -1 if it is something else."""
    if a == end:
        return 0
    n = end - a - 1
    if ld8(a) != 46 or n < 1 or n > 6:
        return -1
    value = number(a + 1, n)
    for _ in range(6 - n):
        value *= 10
    return value


@jit
def days(year, month, day):
    """Return the days since 1970 of a date, -1 << 40 if there is none such."""
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    short = month == 4 or month == 6 or month == 9 or month == 11
    longest = 30 if short else 31 if month != 2 else 29 if leap else 28
    if year < 1 or month < 1 or month > 12 or day < 1 or day > longest:
        return -1 << 40
    y = year - (1 if month <= 2 else 0)
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@entry(5)
def moments(n, addresses, lengths, out, valid):
    """Microseconds since 1970 of texts such as 2024-05-06 07:08:09.5 and 2024-05-06. Dates outside of the calendar are NULL."""
    for i in range(n):
        a = ld64(addresses + 8 * i)
        size = ld64(lengths + 8 * i)
        st8(valid + i, 0)
        st64(out + 8 * i, 0)
        if size < 0:
            continue
        if size != 10 and size < 19:
            return -1
        year, month, day = number(a, 4), number(a + 5, 2), number(a + 8, 2)
        if year < 0 or month < 0 or day < 0 or ld8(a + 4) != 45 or ld8(a + 7) != 45:
            return -1
        hour, minute, second, micros = 0, 0, 0, 0
        if size > 10:
            hour, minute, second = number(a + 11, 2), number(a + 14, 2), number(a + 17, 2)
            micros = fraction(a + 19, a + size)
            between = ld8(a + 10)
            if hour < 0 or minute < 0 or second < 0 or micros < 0 or ld8(a + 13) != 58 or ld8(a + 16) != 58:
                return -1
            if between != 32 and between != 84:
                return -1
        day_number = days(year, month, day)
        if day_number == -1 << 40 or hour > 23 or minute > 59 or second > 59:
            continue
        st8(valid + i, 1)
        st64(out + 8 * i, day_number * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)
    return 0


@entry(4)
def durations(n, addresses, lengths, out):
    """Microseconds of texts such as -838:59:59.5."""
    for i in range(n):
        a = ld64(addresses + 8 * i)
        size = ld64(lengths + 8 * i)
        st64(out + 8 * i, 0)
        if size < 0:
            continue
        end = a + size
        sign = 1
        if size > 0 and ld8(a) == 45:
            sign = -1
            a += 1
        b = digits_end(a, end)
        if b == a or b - a > 3 or end - b < 6 or ld8(b) != 58 or ld8(b + 3) != 58:
            return -1
        minute, second, micros = number(b + 1, 2), number(b + 4, 2), fraction(b + 6, end)
        if minute < 0 or second < 0 or micros < 0:
            return -1
        st64(out + 8 * i, sign * (((number(a, b - a) * 60 + minute) * 60 + second) * 1_000_000 + micros))
    return 0


@entry(5)
def type_ids(n, cells, types, after, ids):
    """A number for each column's type. Returns how many different ones there are, -1 for too many.

    types: room for MOST_TYPES addresses and lengths. after: as many int64 of 0: the type that mostly follows, plus 1. ids: int64.
    """
    count = 0
    last = 0
    for i in range(n):
        c = cells + 8 * L.C_WORDS * i
        a, size = ld64(c + 8 * L.C_TYPE), ld64(c + 8 * L.C_TYPE + 8)
        found = ld64(after + 8 * last) - 1
        if found < 0 or ld64(types + 16 * found + 8) != size or not same_bytes(ld64(types + 16 * found), a, size):
            found = 0
            while found < count and (ld64(types + 16 * found + 8) != size or not same_bytes(ld64(types + 16 * found), a, size)):
                found += 1
            if found == count:
                if count == L.MOST_TYPES:
                    return -1
                st64(types + 16 * count, a)
                st64(types + 16 * count + 8, size)
                count += 1
            st64(after + 8 * last, found + 1)
        st64(ids + 8 * i, found)
        last = found
    return count


@entry(7)
def find_columns(n, events, cells, name, name_len, image, out):
    """The column of this name in an image (0 before, 1 after) of n events: its number, -1 where it is absent. out: int64."""
    guess = 0
    for i in range(n):
        e = events + 8 * L.E_WORDS * i
        first = ld64(e + 8 * (L.E_MIDDLE if image else L.E_CELLS))
        size = ld64(e + 8 * (L.E_END if image else L.E_MIDDLE)) - first
        found = -1
        for j in range(-1, size):
            at = guess if j < 0 else j
            if at >= size:
                continue
            c = cells + 8 * L.C_WORDS * (first + at)
            if ld64(c + 8 * L.C_NAME + 8) == name_len and same_bytes(ld64(c + 8 * L.C_NAME), name, name_len):
                found = at
                break
        if found >= 0:
            guess = found
        st64(out + 8 * i, first + found if found >= 0 else -1)
    return 0
