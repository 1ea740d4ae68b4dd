"""TiDB's timestamps (TSO): Unix milliseconds in the upper 46 bits, a counter in the lower 18."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

from tidemill.errors import ConfigError

LOGICAL_BITS = 18
MAX_TS = (1 << 63) - 1
SavedTs = NewType("SavedTs", int)
"""A checkpoint that is durable: whoever goes on begins there or further. Only what writes or reads it durably makes one."""

_RELATIVE = re.compile(r"([-+]?)(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def at_most(ts: int, saved: SavedTs) -> SavedTs:
    """Return the earlier of the two: below a checkpoint that is durable everything is."""
    return SavedTs(min(ts, saved))


def compose(physical_ms: int, logical: int = 0) -> int:
    """Return the ts of a moment in Unix milliseconds."""
    return physical_ms << LOGICAL_BITS | logical


def physical_ms(ts: int) -> int:
    """Return the Unix milliseconds of a ts."""
    return ts >> LOGICAL_BITS


def next_multiple(ts: int, every_ms: int) -> int:
    """Return the first ts above another at which the clock's milliseconds are a multiple of `every_ms`."""
    return compose((physical_ms(ts) // every_ms + 1) * every_ms)


def logical(ts: int) -> int:
    """Return the counter of a ts."""
    return ts & (1 << LOGICAL_BITS) - 1


def when(ts: int) -> datetime:
    """Return the moment of a ts, in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=physical_ms(ts))


def describe(ts: int) -> str:
    """Return a ts for messages: the number and its moment."""
    try:
        return f"{ts} ({when(ts):%Y-%m-%d %H:%M:%S}.{physical_ms(ts) % 1000:03d} UTC)"
    except OverflowError:
        return str(ts)


def parse(text: str, now: int | None = None) -> int:
    """Parse a ts given by a user: a TSO number, RFC 3339, `now`, or a distance from now such as `-2h` (units ms s m h d).

    `now` is the cluster's TSO, needed for `now` and distances. A number below 2^40 is rejected: it is not a TSO, but looks like seconds or
    milliseconds.

    Raises ConfigError.
    """
    text = text.strip()
    if text.isdecimal():
        ts = int(text)
        if ts > MAX_TS:
            raise ConfigError(f"timestamp {text} is larger than any TSO")
        if 0 < ts < 1 << 40:
            raise ConfigError(f"{text} is not a TSO: it stands for {describe(ts)}", hint="Give a TSO, an RFC 3339 time, `now` or `-2h`.")
        return ts
    if text == "now":
        return _present(text, now)
    relative = _RELATIVE.fullmatch(text)
    if relative:
        sign, amount, unit = relative.groups()
        distance = int(float(amount) * _UNIT_MS[unit]) << LOGICAL_BITS
        base = _present(text, now)
        return base - distance if sign == "-" else base + distance
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"timestamp {text!r} is not understood", hint="Give a TSO, an RFC 3339 time, `now` or `-2h`.") from None
    if moment.tzinfo is None:
        raise ConfigError(f"timestamp {text!r} has no time zone", hint="Write it as in 2026-11-21T10:00:00Z or 2026-11-21T10:00:00+08:00.")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = since // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ConfigError(f"timestamp {text!r} lies before 1970")
    return compose(milliseconds)


def is_relative(text: str) -> bool:
    """Return whether a ts given by a user is `now` or a distance from now."""
    return text.strip() == "now" or _RELATIVE.fullmatch(text.strip()) is not None


def _present(text: str, now: int | None) -> int:
    if now is None:
        raise ConfigError(f"timestamp {text!r} needs a running cluster", hint="Give a TSO or an RFC 3339 time here.")
    return now
