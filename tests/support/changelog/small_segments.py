"""Logs of many small segments."""

from __future__ import annotations

from tests.support.changelog.logs import START, Change, batch_of, changes_of, put
from tidemill.changelog.reader import LogReader
from tidemill.changelog.writer import LogWriter


def publish_small(log: LogWriter, segments: int, rows: int = 3, first: int = 1) -> list[Change]:
    """Segments of ten ticks each in partition 0."""
    found = []
    begin = log.partition(0).last_to
    for k in range(segments):
        changes = [put(7, first + k * rows + h, begin + 10 * k + 1 + h) for h in range(rows)]
        log.partition(0).publish(begin + 10 * (k + 1), [batch_of(changes)])
        found += changes
    return found


def read(reader: LogReader, from_ts: int = START, to_ts: int | None = None) -> list[Change]:
    end = reader.head(0) if to_ts is None else to_ts
    intervals = reader.chain(0, from_ts, end)
    return [c for i in intervals for p in i.parts for c in changes_of(reader.open_segment(p).read_all())]
