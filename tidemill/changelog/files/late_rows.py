"""Late rows: those of tables that a log began to take after it had passed them, inserted into intervals that are published already.

No changefeed wanted these tables there, so none of those that have passed misses them. A segment is never changed: neighbours are joined,
as by compaction, into a larger one that has the late rows too. Between the last segment and the head, which is complete without a file,
they get a segment of their own. When all are there, log.json says that the tables are captured from the earlier ts on: only from then on
may a changefeed of them begin there. A crash before that leaves late rows that nobody asks for; inserting again leaves out what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.changelog.log_format import Interval
from tidemill.changelog.reader import LogReader
from tidemill.events import RAW_CHANGE

_ORDER = ("commit_ts", "start_ts", "table_id", "key")


@dataclass(frozen=True, slots=True)
class LateRows:
    """The rows of (from_ts, to_ts] of another log's partition, which has the same number in the log that they are inserted into."""

    reader: LogReader
    partition: int
    from_ts: int
    to_ts: int

    def between(self, from_ts: int, to_ts: int) -> Iterator[pa.RecordBatch]:
        """Yield those of (from_ts, to_ts], in order."""
        low, high = max(from_ts, self.from_ts), min(to_ts, self.to_ts)
        if low < high:
            for interval in self.reader.chain(self.partition, low, high):
                for batch in sorted_rows(self.reader, [interval]):
                    commit = batch.column("commit_ts")
                    yield batch.filter(pc.and_(pc.greater(commit, low), pc.less_equal(commit, high)))

    def times(self) -> np.ndarray[Any, Any]:
        """Return the commit ts of all, ascending."""
        found = [batch.column("commit_ts").to_numpy() for batch in self.between(self.from_ts, self.to_ts)]
        return np.concatenate(found) if found else np.empty(0, np.uint64)


def groups(chain: Sequence[Interval], wanted: Sequence[bool]) -> list[tuple[int, int]]:
    """Return ranges of neighbours, each of two at least, that include all that are wanted. `chain` has two at least."""
    found: list[tuple[int, int]] = []
    for at in (at for at, is_wanted in enumerate(wanted) if is_wanted):
        begin, end = found[-1] if found else (0, 0)
        if found and at < end:
            continue
        if at > end:  # the one before is in no group
            found.append((at - 1, at + 1))
        elif at + 1 < len(chain):
            found.append((at, at + 2))
        else:
            found[-1] = begin, at + 1
    return found


def sorted_rows(reader: LogReader, intervals: Iterable[Interval]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each interval, whose parts are merged."""
    for interval in intervals:
        batches = (batch for path in interval.parts for batch in reader.batches(path))
        yield from batches if len(interval.parts) == 1 else distinct(batches)


def distinct(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows in their order, each once."""
    table = pa.Table.from_batches(batches, RAW_CHANGE).sort_by([(name, "ascending") for name in _ORDER])
    if table.num_rows < 2:
        return list(table.to_batches())
    again = np.ones(table.num_rows - 1, np.bool_)
    for name in _ORDER[:-1]:
        values = table.column(name).to_numpy()
        again &= values[1:] == values[:-1]
    keys = table.column("key")
    again &= pc.equal(keys.slice(1), keys.slice(0, table.num_rows - 1)).to_numpy()
    return list(table.filter(pa.array(np.concatenate(([True], ~again)))).to_batches())
