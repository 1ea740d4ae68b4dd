"""The log, as all changefeeds of a host read it: one look at the heads, one listing of each folder, one reading of log.json for all.

A thread looks at the heads. A changefeed that waits for the log to grow is woken when the log is complete up to the ts that it waits for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from tidemill.changelog.log_format import Interval, LogIdentity
from tidemill.changelog.reader import LogReader, read_identity
from tidemill.errors import LogUnavailable, TidemillError
from tidemill.events import RAW_CHANGE

LOCAL_POLL_S, REMOTE_POLL_S = 0.05, 0.5
"""Seconds between two looks at the heads: on a disk, and on an object store, where each look is some requests."""
AWAY_POLL_S = 1.0
_NO_CHANGES = RAW_CHANGE.empty_table()


class SharedLog(LogReader):
    """A reader for many threads. Heads and log.json are as of the last look."""

    def __init__(self, location: str | Path) -> None:
        self._turn = threading.RLock()
        super().__init__(location)
        self._heads: list[int] = []
        self._schema_head = 0
        self._error: LogUnavailable | None = None
        self._waiting: dict[Waiter, None] = {}
        self.look()

    # ---- the looks

    @property
    def poll_s(self) -> float:
        """Seconds until the next look."""
        if self._error is not None:
            return AWAY_POLL_S
        return LOCAL_POLL_S if self.storage.local else REMOTE_POLL_S

    def look(self, *, fresh: bool = False) -> None:
        """Look at the heads, then at log.json: it is changed before a head passes the ts where a change counts. Then wake who waits.
        Raises LogCorrupt. `fresh`: read log.json also where no head has moved, because a changefeed begins: a backfill changes what is
        captured below the heads."""
        with self._turn:
            try:
                known = self._identity
                while True:
                    partitions = known.partitions
                    heads = [super(SharedLog, self).head(p) for p in range(partitions)]
                    schema = super().schema_head()
                    if not fresh and self._error is None and (heads, schema) == (self._heads, self._schema_head):
                        break
                    known = read_identity(self.storage)
                    if known.partitions == partitions:
                        break
            except LogUnavailable as error:
                self._error = error
            else:
                self._error = None
                # Together: threads that look meanwhile see the log as it was. In between, log.json may be the newer one; the heads that go
                # with it are then still below the ts from which its new layout holds.
                self._identity, self._heads, self._schema_head = known, heads, schema
        self._wake()

    def _wake(self) -> None:
        now, most = time.monotonic(), max(self._heads, default=0)
        for waiter in [*self._waiting]:
            if waiter.is_due(most, now):
                waiter.wake()

    def watch(self, stop: threading.Event, on_error: Callable[[TidemillError], None]) -> None:
        """Look until `stop` is set; to be run in a thread. `on_error`: the log is broken, and the watch is over."""
        while not stop.wait(self.poll_s):
            try:
                self.look()
            except TidemillError as error:
                on_error(error)
                return

    def waits(self, waiter: Waiter) -> None:
        """Wake it from now on."""
        self._waiting[waiter] = None

    def leaves(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    # ---- what a reader answers

    def identity_now(self) -> LogIdentity:
        return self._identity

    def laid_out(self, ts: int) -> bool:
        return False

    def head(self, partition: int) -> int:
        return self._known()[partition]

    def schema_head(self) -> int:
        self._known()
        return self._schema_head

    def heads(self) -> list[int]:
        return [min(head, self._schema_head) for head in self._known()]

    def resolved_ts(self) -> int:
        return min(*self._known(), self._schema_head)

    def resolved_ts_if_above(self, ts: int) -> int:
        return self.resolved_ts()

    def _known(self) -> list[int]:
        if self._error is not None:
            raise LogUnavailable(self._error.message, hint=self._error.hint)
        return self._heads

    def refresh(self) -> None:
        with self._turn:
            super().refresh()

    def read_schema(self, from_ts: int, to_ts: int) -> pa.Table:
        with self._turn:
            if not self.schema_chain(from_ts, to_ts):
                return _NO_CHANGES  # of most intervals, for each changefeed
            return super().read_schema(from_ts, to_ts)

    def _chain(self, folder: str, from_ts: int, to_ts: int) -> list[Interval]:
        with self._turn:
            return super()._chain(folder, from_ts, to_ts)


class Waiter:
    """One changefeed that waits for the log to grow. `loop.Heads`."""

    def __init__(self, log: SharedLog) -> None:
        self._log = log
        self._event = threading.Event()
        self._ts, self._until = 0, 0.0

    def wait(self, ts: int, seconds: float) -> None:
        """Return when some head is at `ts`, after some seconds, or when it is woken."""
        self._ts, self._until = ts, time.monotonic() + seconds
        self._event.wait(seconds)
        self._event.clear()

    def is_due(self, most: int, now: float) -> bool:
        """Whether a head has got as far as it waits for."""
        return most >= self._ts or now >= self._until

    def wake(self) -> None:
        self._event.set()
