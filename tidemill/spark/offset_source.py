"""The clock of a changefeed: a stream source without rows whose offset is a ts of the log.

Spark keeps it (offset log, commit log) and paces it: an interval is written down before it is run, so that a batch id means the same
interval after any crash. The methods run in a Python process of Spark's own, so the clock follows the schema history itself:
the barriers it cuts at are a function of the log alone. Spark loads this module in three more processes, only to look at it:
what the clock needs to run is imported when it does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tidemill.tso import physical_ms

if TYPE_CHECKING:
    from tidemill.changelog.reader import LogReader

NAME = "tidemill-clock"
TRIGGER_TOLERANCE = 0.9
"""Resolved timestamps come a trigger apart, give or take some milliseconds."""


REMOTE_LOOK_S, IDLE_LOOK_S, AWAY_LOOK_S = 0.5, 5.0, 30.0
"""How often heads are looked for: on an object store, where each look is a request; there, while they do not move; and on storage that is
away. On a local disk a look is a small read, and Spark's own pace (some 50 ms) is kept."""

_log = logging.getLogger(__name__)


class Pace:
    """When the heads are looked for next. Looks that find nothing come ever more rarely where each costs a request (`first_s` > 0)."""

    def __init__(self, first_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._first = self._pause = first_s
        self._away = 0.0
        self._clock = clock
        self.next_look = 0.0

    def looked(self, *, moved: bool, begins: bool) -> None:
        """A look was answered; `moved`: the heads have got further; `begins`: a batch does, and the heads move on meanwhile."""
        self._away = 0.0
        self._pause = self._first if moved else min(IDLE_LOOK_S, 1.5 * self._pause)
        self.next_look = 0.0 if begins else self._clock() + self._pause

    def failed(self) -> None:
        """The storage is away."""
        self._away = min(AWAY_LOOK_S, max(1.0, 2 * self._away))
        self.next_look = self._clock() + self._away


class Clock(DataSource):
    """Options: log, or log_file, a file that holds it: Spark shows options in plans and event logs. start_ts, target_ts (0: none),
    trigger_ms, first_end (where the batch that begins at start_ts has to end; 0: anywhere)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "tick long"

    def streamReader(self, schema: Any) -> ClockReader:
        names = ("start_ts", "target_ts", "trigger_ms", "first_end")
        file = self.options.get("log_file")
        log = Path(file).read_text(encoding="utf-8") if file else self.options["log"]
        return ClockReader(log, *(int(self.options[name]) for name in names))


class ClockReader(DataSourceStreamReader):
    """Offsets are `{"ts": …}`: ends of batches.

    The clock sets the pace, not Spark's trigger: at most one batch a `trigger_ms` while it keeps up with the log, and one after the other
    as long as a batch had to end before the log's end, at a DDL or because enough had come together.
    """

    def __init__(self, log: str, start_ts: int, target_ts: int, trigger_ms: int, first_end: int = 0) -> None:
        self._log, self._start, self._target, self._trigger_s = log, start_ts, target_ts, trigger_ms / 1000
        self._first_end = first_end
        self._state: tuple[LogReader, Any] | None = None
        self._pace, self._moved = Pace(0.0), False
        self._due = self._held = 0.0  # when the next batch may begin, in time.monotonic()

    def initialOffset(self) -> dict[str, int]:
        return {"ts": self._start}

    def latestOffset(self, start: dict[str, int] | None = None, limit: object = None) -> dict[str, int]:
        """Where the batch after `start` ends; `start` itself where there is none yet, or where the log's storage is away: what this raises
        ends the query. The driver looks at the log beside it, and tells."""
        from_ts = start["ts"] if start else self._start
        from tidemill.errors import LogUnavailable

        if time.monotonic() < self._pace.next_look:
            return {"ts": from_ts}
        try:
            found = self._next(from_ts)
        except LogUnavailable as error:
            self._pace.failed()
            _log.warning("%s", error.message)
            found = from_ts
        else:
            self._pace.looked(moved=self._moved, begins=found != from_ts)
        return {"ts": found}

    def _next(self, from_ts: int) -> int:
        """The resolved ts is read before the schemas: every DDL at or below it is then known."""
        from tidemill.changelog.history import follow
        from tidemill.delivery.inputs.log_upstream import KEPT_HISTORY, next_end

        reader, history = self._opened(from_ts)
        resolved = reader.resolved_beyond(from_ts)
        self._moved = resolved > from_ts
        end = min(resolved, self._target) if self._target else resolved
        if end <= from_ts or not self._is_due(from_ts, end) or time.monotonic() < self._held:
            return from_ts
        if history.resolved_ts < end:
            follow(history, reader)
        if from_ts - history.start_ts > KEPT_HISTORY:
            history.forget(from_ts)
        if from_ts == self._start and self._start < self._first_end <= end:
            return self._first_end
        to_ts = next_end(reader, history, from_ts, end)
        self._due = time.monotonic() + self._trigger_s if to_ts == end else 0.0
        if to_ts == from_ts:  # tables are still being read
            self._held = time.monotonic() + self._trigger_s
        return to_ts

    def _is_due(self, from_ts: int, end: int) -> bool:
        """The log has moved on by about a trigger, or so much time has passed: a steady resolved ts is not waited for twice."""
        return physical_ms(end) - physical_ms(from_ts) >= TRIGGER_TOLERANCE * self._trigger_s * 1000 or time.monotonic() >= self._due

    def _opened(self, from_ts: int) -> tuple[LogReader, Any]:
        if self._state is None:
            from tidemill.changelog.files.bounds import within
            from tidemill.changelog.history import load_history
            from tidemill.changelog.reader import LogReader

            reader = LogReader(self._log)
            self._pace = Pace(0.0 if reader.storage.local else min(REMOTE_LOOK_S, self._trigger_s / 2))
            self._state = reader, load_history(reader, from_ts=within(reader.start_ts, from_ts))
        return self._state

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter(())

    def commit(self, end: dict[str, int]) -> None:
        """Nothing: checkpoints follow what the driver has had acknowledged."""
