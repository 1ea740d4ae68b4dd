"""DATE, DATETIME, TIMESTAMP and TIME: packed numbers, parts and text.

A packed time is `((((year*13 + month) << 5 | day) << 17) | hour << 12 | minute << 6 | second) << 24 | microsecond`. Month and day may
be 0. JSON documents use another layout of bits (`from_core`). A TIME is a number of nanoseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from tidemill.errors import MalformedBytes

MAX_FSP = 6
"""Digits after the point that MySQL's times can have."""

SECOND = 1_000_000_000
"""Nanoseconds."""

_TIME_TEXT = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?)?")
_DURATION_TEXT = re.compile(r"(-?)(?:(\d{1,2}) )?(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?")


class Moment(NamedTuple):
    """The parts of a DATE, DATETIME or TIMESTAMP. All parts are zero in the zero time."""

    year: int
    month: int
    day: int
    hour: int = 0
    minute: int = 0
    second: int = 0
    microsecond: int = 0

    @property
    def is_zero(self) -> bool:
        """0000-00-00 00:00:00."""
        return not any(self)


ZERO = Moment(0, 0, 0)


def _checked(moment: Moment, packed: int) -> Moment:
    limits = (9999, 12, 31, 23, 59, 59, 999_999)
    for name, part, limit in zip(moment._fields, moment, limits, strict=True):
        if part > limit:
            raise MalformedBytes(f"the packed time {packed:#x} has {name} {part}, at most {limit} is possible")
    return moment


def unpack_time(packed: int) -> Moment:
    """Unpack a stored time. Raises MalformedBytes for a part out of range (hour 25). 2021-02-31 and 2021-00-00 are valid."""
    micro, clock = packed & 0xFFFFFF, packed >> 24 & 0x1FFFF
    year, month = divmod(packed >> 46, 13)
    return _checked(Moment(year, month, packed >> 41 & 0x1F, clock >> 12, clock >> 6 & 0x3F, clock & 0x3F, micro), packed)


def pack_time(moment: Moment) -> int:
    """Return the inverse of unpack_time."""
    date = moment.year * 13 + moment.month << 5 | moment.day
    clock = moment.hour << 12 | moment.minute << 6 | moment.second
    return (date << 17 | clock) << 24 | moment.microsecond


def from_core(bits: int) -> Moment:
    """Unpack a time inside a JSON document: year 14 bits, month 4, day 5, hour 5, minute 6, second 6, microsecond 20, and 4 unused.

    Raises MalformedBytes.
    """
    parts = (bits >> 50, bits >> 46 & 0xF, bits >> 41 & 0x1F, bits >> 36 & 0x1F, bits >> 30 & 0x3F, bits >> 24 & 0x3F, bits >> 4 & 0xFFFFF)
    return _checked(Moment(*parts), bits)


def to_core(moment: Moment) -> int:
    """Return the inverse of from_core."""
    year, month, day, hour, minute, second, microsecond = moment
    return year << 50 | month << 46 | day << 41 | hour << 36 | minute << 30 | second << 24 | microsecond << 4


def in_zone(moment: Moment, zone: tzinfo) -> Moment:
    """Move a stored (UTC) timestamp to a zone. The zero time stays. Raises MalformedBytes for a day that no calendar has."""
    if moment.is_zero:
        return moment
    try:
        local = datetime(*moment, tzinfo=UTC).astimezone(zone)
    except (ValueError, OverflowError) as error:
        raise MalformedBytes(f"the timestamp {format_datetime(moment, MAX_FSP)} is not in the calendar: {error}") from None
    return Moment(local.year, local.month, local.day, local.hour, local.minute, local.second, local.microsecond)


def format_date(moment: Moment) -> str:
    """Format a date as `2021-02-28`."""
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"


def format_datetime(moment: Moment, fsp: int) -> str:
    """Format a time as `2021-02-28 11:22:33.123`, with `fsp` digits after the point. There is no point for 0 or less."""
    text = f"{format_date(moment)} {moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"
    return f"{text}.{moment.microsecond:06d}"[: len(text) + 1 + fsp] if fsp > 0 else text


def parse_datetime(text: str, fsp: int = MAX_FSP) -> Moment:
    """Parse what format_datetime or format_date returns. Raises ValueError.

    Digits beyond the sixth are cut off. Those beyond `fsp` must be zero, as in what TiDB stores.
    """
    match = _TIME_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:60]!r} is not a date or time")
    *parts, fraction = match.groups()
    micro = int((fraction or "")[:MAX_FSP].ljust(MAX_FSP, "0"))
    micro -= micro % 10 ** (MAX_FSP - max(fsp, 0))
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    moment = Moment(year, month, day, hour, minute, second, micro)
    try:
        return _checked(moment, pack_time(moment))
    except MalformedBytes:
        raise ValueError(f"{text[:60]!r} is not a date or time") from None


def format_duration(nanoseconds: int, fsp: int) -> str:
    """Format a TIME as `-838:59:59.123`, with `fsp` digits after the point."""
    seconds, rest = divmod(abs(nanoseconds), SECOND)
    minutes, second = divmod(seconds, 60)
    text = f"{'-' if nanoseconds < 0 else ''}{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    return f"{text}.{rest:09d}"[: len(text) + 1 + min(fsp, MAX_FSP)] if fsp > 0 else text


def parse_duration(text: str) -> int:
    """Parse a TIME, also with days before it. Returns nanoseconds. Raises ValueError."""
    match = _DURATION_TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:60]!r} is not a time")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds or 0)
    value = whole * SECOND + int((fraction or "").ljust(9, "0"))
    return -value if sign else value
