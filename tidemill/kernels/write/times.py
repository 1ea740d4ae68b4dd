"""Dates and times: packed integers → text, and the shift of a TIMESTAMP into a zone.

References: `tidemill.tidb.types` (time, duration). A packed time is
((((year·13 + month) << 5 | day) << 17) | hour << 12 | minute << 6 | second) << 24 | microsecond.
"""

from __future__ import annotations

import numpy as np

from tidemill.kernels.intrinsics import as_i, as_u, jit, ld16, ld64, st8, st16
from tidemill.kernels.write.numbers import U1E9, U100, w_2, w_pad, w_u64
from tidemill.kernels.write.tables import O_DIGITS2

U13, U60, U1000, U3600 = (np.uint64(i) for i in (13, 60, 1000, 3600))
MAX_MONTHS = 9999 * 13 + 12
MAX_DURATION = (838 * 3600 + 59 * 60 + 59) * 10**9 + 999_999_999


@jit
def bad_time(u):
    """Return whether a packed time has a part out of range. Zero months and days are allowed. There is one branch for all parts."""
    v = u >> 24
    spare = (59 - (v & 63)) | (59 - ((v >> 6) & 63)) | (23 - ((v >> 12) & 31)) | (999999 - (u & 0xFFFFFF)) | (MAX_MONTHS - (v >> 22))
    return (spare | u) < 0


@jit
def no_day(u):
    """Return whether the date of a packed time is outside the calendar: a zero part, or 2021-02-30."""
    ymd = u >> 41
    day = ymd & 31
    months = ymd >> 5
    year = as_i(as_u(months) // U13)
    month = months - year * 13
    if ((day - 1) | (month - 1) | (year - 1)) < 0:
        return True
    if day <= 28:
        return False
    if month == 2:
        return day > 29 or year % 4 != 0 or (year % 100 == 0 and year % 400 != 0)
    return day == 31 and (month == 4 or month == 6 or month == 9 or month == 11)


@jit
def w_date(T, p, ymd):
    """Write yyyy-mm-dd of the upper bits of a packed time, year ≤ 9999."""
    year = as_i(as_u(ymd >> 5) // U13)
    month = (ymd >> 5) - year * 13
    century = as_i(as_u(year) // U100)
    st16(p, ld16(T + O_DIGITS2 + 2 * century))
    st16(p + 2, ld16(T + O_DIGITS2 + 2 * (year - century * 100)))
    st8(p + 4, 45)
    w_2(T, p + 5, month)
    st8(p + 7, 45)
    return w_2(T, p + 8, ymd & 31)


@jit
def w_fraction(p, microseconds, fsp):
    """Write '.' and the first fsp of six digits."""
    st8(p, 46)
    w_pad(p + 1, as_u(microseconds), 6)
    return p + 1 + fsp


@jit
def w_datetime(T, p, u, fsp):
    """Write a packed time with fsp digits of fraction."""
    v = u >> 24
    p = w_date(T, p, v >> 17)
    st8(p, 32)
    w_2(T, p + 1, (v >> 12) & 31)
    st8(p + 3, 58)
    w_2(T, p + 4, (v >> 6) & 63)
    st8(p + 6, 58)
    p = w_2(T, p + 7, v & 63)
    return w_fraction(p, u & 0xFFFFFF, fsp) if fsp > 0 else p


@jit
def days_of(ymd):
    """Return the days since 1970-01-01 of a date in the calendar (the upper bits of a packed time)."""
    months = ymd >> 5
    day = ymd & 31
    year = months // 13
    month = months % 13
    y = year - (1 if month <= 2 else 0)
    era = y // 400
    of_era = y - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + day_of_year - 719468


@jit
def zone_shift(u, zone):
    """Convert a packed UTC time to local time; -1 outside the zone's table. The time must be in the calendar.

    zone: count, first and last second that the table covers, then (second from which it holds, offset) pairs, sorted.
    """
    v = u >> 24
    hms = v & 0x1FFFF
    second = days_of(v >> 17) * 86400 + (hms >> 12) * 3600 + ((hms >> 6) & 63) * 60 + (hms & 63)
    if second < ld64(zone + 8) or second > ld64(zone + 16):
        return -1
    low = 0
    high = ld64(zone)
    while high - low > 1:
        middle = (low + high) >> 1
        if ld64(zone + 24 + 16 * middle) <= second:
            low = middle
        else:
            high = middle
    second += ld64(zone + 32 + 16 * low)
    days = second // 86400
    rest = second - days * 86400
    z = days + 719468
    era = z // 146097
    of_era = z - era * 146097
    y = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    day_of_year = of_era - (365 * y + y // 4 - y // 100)
    m = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * m + 2) // 5 + 1
    month = m + (3 if m < 10 else -9)
    year = y + era * 400 + (1 if month <= 2 else 0)
    packed = (year * 13 + month) << 22 | day << 17 | (rest // 3600) << 12 | (rest // 60 % 60) << 6 | rest % 60
    return packed << 24 | (u & 0xFFFFFF)


@jit
def w_duration(T, p, nanoseconds, fsp):
    """Write a TIME value with fsp digits of fraction; hours may have three digits."""
    if nanoseconds < 0:
        st8(p, 45)
        p += 1
        nanoseconds = -nanoseconds
    u = as_u(nanoseconds)
    seconds = u // U1E9
    fraction = u - seconds * U1E9
    hours = seconds // U3600
    rest = as_i(seconds - hours * U3600)
    p = w_2(T, p, as_i(hours)) if hours < U100 else w_u64(p, hours)
    minutes = as_i(as_u(rest) // U60)
    st8(p, 58)
    w_2(T, p + 1, minutes)
    st8(p + 3, 58)
    w_2(T, p + 4, rest - minutes * 60)
    p += 6
    return w_fraction(p, as_i(fraction // U1000), fsp) if fsp > 0 else p
