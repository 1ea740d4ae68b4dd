"""The clock of a changefeed: where its next batch ends, by the heads of the log.

Where a batch ends depends on the log alone, and the fence keeps the end of a batch that is under way: a batch that is begun again after a
crash ends where it should.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidemill.changelog.history import follow
from tidemill.changelog.reader import LogReader
from tidemill.delivery.inputs.log_source import KEPT_HISTORY, next_end, next_position
from tidemill.delivery.position import Position, levelled
from tidemill.tidb.schema.tracking.history import SchemaHistory
from tidemill.tso import compose, physical_ms

TRIGGER_TOLERANCE = 0.9
"""A batch may begin after this part of a trigger: resolved ts come a trigger apart, give or take some milliseconds."""
FIRST_WAIT_S = 0.2


class Clock:
    """It sets the pace: at most one batch in a trigger while the changefeed keeps up with the log. If a batch had to end before the log's
    end, at a DDL or because it had enough bytes, the next one begins at once."""

    def __init__(
        self,
        reader: LogReader,
        history: SchemaHistory,
        start: Position,
        *,
        target_ts: int | None = None,
        trigger_s: float = 1.0,
        first_end: Position | None = None,
        by_table: bool = False,
        sync_point_every_ms: int = 0,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`first_end`: where the batch that begins at `start` has to end; None: anywhere. `by_table`: each log partition is delivered up to
        its own head. `sync_point_every_ms`: see `log_source.next_end`."""
        self._reader, self._history, self._start, self._target = reader, history, start, target_ts
        self._first_end, self._by_table, self._sync_point_every_ms = first_end, by_table, sync_point_every_ms
        self.trigger_s, self._seconds = trigger_s, seconds
        self._due = self._held = 0.0  # when the next batch may begin
        self.moved = False
        """Whether the heads were beyond the last batch at the last look."""

    def next(self, begin: Position) -> Position:
        """Where the batch after `begin` ends; `begin` itself if there is none yet. Raises LogUnavailable.

        The heads are read before the schemas: then every DDL at or below the heads is known.
        """
        reader, history = self._reader, self._history
        has_passed = self._seconds() >= self._due  # asked once: what is read of the heads depends on it
        ends = self._ends(begin, has_passed)
        ahead = max(end - begin.at(p) for p, end in enumerate(ends))
        self.moved = ahead > 0
        if ahead <= 0 and history.stopped is not None and not (self._target and begin.ts >= self._target):
            raise history.stopped  # the capture has stopped there: nothing more comes
        if self._target:
            ends = [min(end, self._target) for end in ends]
            ahead = max(end - begin.at(p) for p, end in enumerate(ends))
        if ahead <= 0 or not (has_passed or physical_ms(ahead) >= self._trigger_ms) or self._seconds() < self._held:
            return begin
        if history.resolved_ts < max(ends):
            follow(history, reader, may_stop=True)
        if history.stopped is not None:
            last = history.readable_to(begin.ts, max(ends))
            ends = [min(end, last) for end in ends]
        if begin.ts - history.start_ts > KEPT_HISTORY:
            history.forget(begin.ts)
        first = self._first_end
        if first is not None and begin == self._start != first and all(first.at(p) <= end for p, end in enumerate(ends)):
            return first
        found = self._cut(begin, ends)
        is_all = all(found.at(p) >= end for p, end in enumerate(ends))
        self._due = self._seconds() + self.trigger_s if is_all else 0.0
        if found == begin:  # tables are still being read, or partitions wait for one another
            self._held = self._seconds() + self.trigger_s
        return found

    @property
    def stops_for_sink(self) -> bool:
        """Whether batches also end where the sink writes something down."""
        return self._sync_point_every_ms > 0

    def until_due(self, begin: Position) -> tuple[int, float]:
        """When to ask again after `next` returned `begin`: once the heads are at a ts, and at the latest after some seconds."""
        now = self._seconds()
        ts = begin.furthest + compose(self._trigger_ms)
        wait = max(self._due, self._held) - now
        return ts, max(wait, FIRST_WAIT_S)

    @property
    def _trigger_ms(self) -> int:
        return int(TRIGGER_TOLERANCE * self.trigger_s * 1000)

    def _ends(self, begin: Position, has_passed: bool) -> list[int]:
        """How far each log partition may be delivered. `has_passed`: a trigger has, since the last batch began. Else only a head that is a
        trigger further counts, and the one that is behind is enough to know that none is."""
        if self._by_table:
            heads = self._reader.heads()  # first: it may bring a newer log.json
            return levelled(heads, self._reader.identity.units_at(begin.ts)[: len(heads)])  # see `next_position`
        beyond = begin.ts if has_passed else begin.ts + compose(self._trigger_ms) - 1
        least = self._reader.resolved_ts_if_above(beyond)
        return [least] * self._reader.partitions

    def _cut(self, begin: Position, ends: list[int]) -> Position:
        if begin.parts or self._by_table:
            return next_position(self._reader, self._history, begin, ends)
        return Position(next_end(self._reader, self._history, begin.ts, ends[0], self._sync_point_every_ms))
