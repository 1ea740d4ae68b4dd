"""The time at which a DDL was run upstream. Pure.

Older rows have it in the columns that the DDL adds with DEFAULT CURRENT_TIMESTAMP; the catalogue keeps it as their origin default.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidemill.tidb.schema.codes import MySQLType
from tidemill.tidb.schema.model import ColumnInfo, TableInfo

_NOW = frozenset({"CURRENT_TIMESTAMP", "CURRENT_DATE"})
_DAYS = frozenset({MySQLType.DATE, MySQLType.NEWDATE})
_WITH_NOW = _DAYS | {MySQLType.TIMESTAMP, MySQLType.DATETIME}
_ZERO_DATE = "0000"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_QUARTER_MICROSECOND = 2.5e-7
"""Servers cut what is below a microsecond, TiDB rounds it in what older rows get, and a float may lie just below its digits."""


class Moment:
    """The time that the added column with the most digits tells; without one the time at which the statement was queued."""

    def __init__(self, before: TableInfo | None, after: TableInfo | None, queued_ms: int, zone: str) -> None:
        """`before`, `after`: the table around the DDL, None where there is none. `zone`: of the session that is to run the statement."""
        self._zone, self._queued = _zone_of(zone), _EPOCH + timedelta(milliseconds=queued_ms)
        known = {column.id for column in before.columns} if before is not None else set()
        self._changed = [column for column in (after.public_columns if after is not None else ()) if column.id not in known]
        self._told = _told(self._changed) if before is not None else None

    @property
    def now(self) -> float:
        """The time for the session's `timestamp`, in seconds since 1970."""
        return self._microseconds / 1_000_000 + _QUARTER_MICROSECOND

    @property
    def sql(self) -> str:
        """The same for a session whose zone is not known here, as SQL."""
        column, local = self._told or (None, None)
        if column is None or local is None or column.tp == MySQLType.TIMESTAMP:
            return f"{self._microseconds // 1_000_000}.{self._microseconds % 1_000_000:06d}25"
        return f"UNIX_TIMESTAMP('{local:%Y-%m-%d %H:%M:%S.%f}') + {_QUARTER_MICROSECOND:.8f}"

    @property
    def _microseconds(self) -> int:
        return (self._at - _EPOCH) // timedelta(microseconds=1)

    @property
    def _at(self) -> datetime:
        if self._told is None:
            return self._queued
        column, local = self._told
        if column.tp == MySQLType.TIMESTAMP:
            return local.replace(tzinfo=UTC)
        queued = self._queued.astimezone(self._zone)
        same_day = column.tp in _DAYS and queued.date() == local.date()
        return queued if same_day else local.replace(tzinfo=self._zone)

    @property
    def offset(self) -> str:
        """The zone's offset from UTC then, empty if a literal in the statement is a TIMESTAMP of another offset."""
        offset = self._at.astimezone(self._zone).utcoffset()
        for column in self._changed:
            text = str(column.default or "")
            if column.tp != MySQLType.TIMESTAMP or text.upper() in _NOW or not text or text.startswith(_ZERO_DATE):
                continue
            with contextlib.suppress(ValueError):
                if datetime.fromisoformat(text).replace(tzinfo=UTC).astimezone(self._zone).utcoffset() != offset:
                    return ""
        return offset_text(offset or timedelta())


def _told(added: list[ColumnInfo]) -> tuple[ColumnInfo, datetime] | None:
    """Return the column whose origin default tells most of the time, and its text as a time. That of a TIMESTAMP is in UTC."""
    found = []
    for column in added:
        if column.tp in _WITH_NOW and str(column.default).upper() in _NOW:
            with contextlib.suppress(ValueError):
                found.append((column, datetime.fromisoformat(str(column.origin_default))))
    return max(found, key=lambda pair: -1 if pair[0].tp in _DAYS else pair[0].decimal, default=None)


def _zone_of(text: str) -> tzinfo:
    """Return the zone of a `time_zone`; UTC for one that is not known here."""
    if found := re.fullmatch(r"([+-])(\d{1,2}):(\d{2})", text):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def offset_text(offset: timedelta) -> str:
    """Return an offset from UTC as MySQL writes it."""
    minutes = int(offset.total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
