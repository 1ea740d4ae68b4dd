"""The clock of a changefeed: a stream source without rows whose offset is a ts of the log.

Spark keeps the offsets (offset log, commit log): an interval is written down before it is run, so that a batch id means the same interval
after any crash. The methods run in a Python process of Spark's own, so the clock follows the schema history itself, and the barriers where
it cuts depend on the log alone. Spark also loads this module in three processes that never run the clock. So what the clock needs is
imported when it runs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tidemill.delivery.position import Position

if TYPE_CHECKING:
    from tidemill.delivery.clock import Clock

NAME = "tidemill-clock"
TABLE = "table"
"""The value of `progress` with which each log partition is delivered up to its own head."""
REMOTE_POLL_S, IDLE_POLL_S, AWAY_POLL_S = 0.5, 5.0, 30.0
"""Seconds between two looks at the heads: on an object store, where each look is a request; there, while heads do not move; and at storage
that is away. On a local disk a look is a small read, so it happens whenever Spark asks (about every 50 ms)."""

_log = logging.getLogger(__name__)


class Pace:
    """When to look at the heads next. Where each look costs a request (`first_s` > 0), looks that find nothing become rarer."""

    def __init__(self, first_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._first = self._pause = first_s
        self._away = 0.0
        self._clock = clock
        self.next_poll = 0.0

    def polled(self, *, moved: bool, begins: bool) -> None:
        """A look was answered. `moved`: the heads have got further. `begins`: a batch begins; the heads move on while it runs."""
        self._away = 0.0
        self._pause = self._first if moved else min(IDLE_POLL_S, 1.5 * self._pause)
        self.next_poll = 0.0 if begins else self._clock() + self._pause

    def failed(self) -> None:
        """The storage is away."""
        self._away = min(AWAY_POLL_S, max(1.0, 2 * self._away))
        self.next_poll = self._clock() + self._away


class OffsetSource(DataSource):
    """The stream source. Options: log, or log_file (a file with the log's address, because Spark shows options in plans and event logs);
    target_ts (0: none); trigger_ms; progress; sync_point_every_ms (0: never); start, a position as JSON; first_end, the position where the
    batch that begins at `start` has to end (null: anywhere)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "tick long"

    def streamReader(self, schema: Any) -> OffsetReader:
        file = self.options.get("log_file")
        log = Path(file).read_text(encoding="utf-8") if file else self.options["log"]
        start, first = (_position(json.loads(self.options[name])) for name in ("start", "first_end"))
        assert start is not None
        by_table = self.options["progress"] == TABLE
        every_ms = int(self.options.get("sync_point_every_ms", "0"))
        numbers = int(self.options["target_ts"]), int(self.options["trigger_ms"])
        return OffsetReader(log, start, *numbers, first, by_table=by_table, sync_point_every_ms=every_ms)


def _position(fields: dict[str, Any] | None) -> Position | None:
    return Position.from_dict(fields) if fields is not None else None


class OffsetReader(DataSourceStreamReader):
    """Offsets are ends of batches: `{"ts": …}`. With `by_table` each log partition is delivered up to its own head. An offset then says how
    far each is, if they are not equally far: `{"ts": the least, "parts": […]}`.
    """

    def __init__(
        self,
        log: str,
        start: Position,
        target_ts: int,
        trigger_ms: int,
        first_end: Position | None = None,
        *,
        by_table: bool = False,
        sync_point_every_ms: int = 0,
    ) -> None:
        self._log, self._start, self._first_end = log, start, first_end
        self._target, self._trigger_s = target_ts, trigger_ms / 1000
        self._by_table, self._sync_point_every_ms = by_table, sync_point_every_ms
        self._clock: Clock | None = None
        self._pace = Pace(0.0)

    def initialOffset(self) -> dict[str, Any]:
        return self._start.to_dict()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Where the batch after `start` ends; `start` itself if there is none yet, or if the log's storage is away. Nothing is raised then,
        because an error would end the query. The driver looks at the log as well, and reports that."""
        begin = Position.from_dict(start) if start else self._start
        from tidemill.errors import LogUnavailable

        if time.monotonic() < self._pace.next_poll:
            return begin.to_dict()
        try:
            clock = self._opened(begin.ts)
            found = clock.next(begin)
        except LogUnavailable as error:
            self._pace.failed()
            _log.warning("%s", error.message)
            found = begin
        else:
            self._pace.polled(moved=clock.moved, begins=found != begin)
        return found.to_dict()

    def _opened(self, from_ts: int) -> Clock:
        if self._clock is None:
            from tidemill.changelog.files.bounds import within
            from tidemill.changelog.history import load_history
            from tidemill.changelog.reader import LogReader
            from tidemill.delivery.clock import Clock

            reader = LogReader(self._log)
            self._pace = Pace(0.0 if reader.storage.local else min(REMOTE_POLL_S, self._trigger_s / 2))
            self._clock = Clock(
                reader,
                load_history(reader, from_ts=within(reader.start_ts, from_ts)),
                self._start,
                target_ts=self._target or None,
                trigger_s=self._trigger_s,
                first_end=self._first_end,
                by_table=self._by_table,
                sync_point_every_ms=self._sync_point_every_ms,
                seconds=time.monotonic,
            )
        return self._clock

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is done here: the checkpoint follows what the driver had acknowledged."""
