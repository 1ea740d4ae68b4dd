"""Runs a changefeed as a Structured Streaming query: foreachBatch over the clock (`offset_source.py`).

Spark writes down where a batch ends before the batch runs, and notes when it is done. The batch driver does the rest. A batch that was
delivered although Spark has not noted it is recognised by the changefeed's checkpoint, and is not delivered again.

Spark's checkpoint belongs to this machine and may be lost. If it is not there, or another machine has delivered since, a new one begins at
the changefeed's own checkpoint. The fence then says which interval the unfinished batch has.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.changelog.storage.retry import StorageRetry
from tidemill.delivery.batch import BatchDriver
from tidemill.delivery.epoch_fence import Interval
from tidemill.delivery.machine.actions import Report
from tidemill.delivery.machine.batch_machine import under_way
from tidemill.delivery.machine.failures import JobLost, Stopped
from tidemill.delivery.position import Position, Ranges
from tidemill.errors import FeedBroken, LogUnavailable, TidemillError, redact
from tidemill.spark.jobs import cause_of
from tidemill.spark.offset_source import NAME, TABLE, OffsetSource
from tidemill.tso import describe

log = logging.getLogger(__name__)

POLL_S = 0.25
"""How often to ask whether the query has ended: Spark does not say so by itself."""
CLOCK_STARTS = 6
"""How often a query is started whose clock is late."""
LOOK_S = 30.0
"""How often the log is looked at while no batch comes."""


class QueryFailed(TidemillError):
    """The streaming query ended by an error of Spark itself, or of the clock."""

    code = "TM:ErrQueryFailed"
    retryable = True


class ClockLate(QueryFailed):
    """Spark's Python process for the clock did not answer in time: on a busy machine it starts slowly, and Spark waits ten seconds."""


class Changefeed:
    """One running changefeed."""

    def __init__(
        self,
        session: SparkSession,
        driver: BatchDriver,
        *,
        log: str,
        checkpoint_folder: Path,
        start_ts: int,
        delivered: Position | None,
        target_ts: int | None,
        trigger_ms: int,
        on_report: Callable[[Report], None],
        planned: Interval | None = None,
        planned_ranges: Ranges = (),
        by_table: bool = False,
        check_storage: Callable[[], None] = lambda: None,
        sync_point_every_ms: int = 0,
    ) -> None:
        """`start_ts`: where the feed began; `delivered`: its checkpoint, if it has one. `on_report` makes a batch durable. `planned`:
        the interval of the newest attempt, by this driver or one before, with `planned_ranges` where log partitions were not equally far.
        `by_table`: each log partition is delivered up to its own head. `check_storage` is called now and then while no batch comes,
        because the offset source waits for storage that is away and reports nothing. `sync_point_every_ms`: see `log_source.next_end`."""
        self._check_storage, self._checking = check_storage, threading.Thread()
        self._session, self._driver, self._log = session, driver, log
        self._folder = checkpoint_folder
        self._begin = Position(start_ts) if delivered is None else delivered
        self._by_table, self._sync_point_every_ms = by_table, sync_point_every_ms
        self._target, self._trigger_ms, self._on_report = target_ts, trigger_ms, on_report
        self._planned = under_way(self._begin, planned, planned_ranges)
        self._busy = threading.Lock()
        self._over, self._ending = threading.Event(), threading.Event()  # the changefeed is over; the query is about to end
        self._error: TidemillError | None = None
        self._has_begun = False

    def run(self) -> bool:
        """Deliver until the target is reached (True) or the driver's stop event is set (False). Raises its error."""
        self._driver.keep_checkpoint(self._begin, self._target, lambda report: self._on_report(report))
        if self._driver.reached:
            return True
        self._session.dataSource.register(OffsetSource)
        try:
            StorageRetry(self._driver.stop).call(self._queries)  # waits for the file system of Spark's checkpoint
        except LogUnavailable:
            if not self._driver.stop.is_set():
                raise
        if self._error is not None and not isinstance(self._error, Stopped):
            raise self._error
        return self._driver.reached

    @property
    def _delivered(self) -> Position:
        return self._driver.delivered or self._begin

    def _queries(self) -> None:
        """Run a query, and another one where the clock was late: nothing was delivered then that the next one does not know of."""
        for left in range(CLOCK_STARTS - 1, -1, -1):
            try:
                self._query()
                return
            except ClockLate as error:
                if not left or self._driver.stop.is_set():
                    raise
                log.warning("%s; the query is started again", error.message)

    def _query(self) -> None:
        """Run one query until it is to end. Raises LogUnavailable if Spark could not read or write its own checkpoint."""
        with storage_errors(str(self._folder), writing=True):
            set_aside_broken(self._folder, self._delivered)
        self._ending.clear()
        query = self._start()
        try:
            self._watch(query)
        finally:
            self._end(query)

    def _start(self) -> StreamingQuery:
        source = self._session.readStream.format(NAME).options(**self._log_option()).option("start", _json(self._delivered))
        frame: Any = source.option("target_ts", str(self._target or 0)).option("trigger_ms", str(self._trigger_ms))
        frame = frame.option("sync_point_every_ms", str(self._sync_point_every_ms))
        frame = frame.option("progress", TABLE if self._by_table else "global").option("first_end", _json(self._planned)).load()
        writer = frame.writeStream.foreachBatch(self._batch).option("checkpointLocation", self._folder.absolute().as_uri())
        query: StreamingQuery = writer.queryName(f"tidemill-{self._driver.feed}").trigger(processingTime="0 seconds").start()
        return query

    def _log_option(self) -> dict[str, str]:
        """The option that tells the clock where the log is. An address with a secret goes through a file that only this user may read."""
        if redact(self._log) == self._log:
            return {"log": self._log}
        file = self._folder.absolute().with_name("log.url")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(self._log, encoding="utf-8")
        return {"log_file": str(file)}

    def _watch(self, query: StreamingQuery) -> None:
        """Return when the changefeed is over. Raises QueryFailed, LogUnavailable."""
        next_poll = time.monotonic() + LOOK_S
        try:
            while not self._over.wait(POLL_S) and not self._driver.stop.is_set():
                if time.monotonic() >= next_poll:
                    self._look_around()
                    next_poll = time.monotonic() + LOOK_S
                if not query.isActive:
                    failure = query.exception()
                    raise _query_error(str(failure) if failure is not None else "without an error")
        except Py4JError as error:
            raise _query_error(str(error)) from error

    def _look_around(self) -> None:
        """Look at the log, in a thread: storage that is away may take long to answer."""
        if not self._busy.locked() and not self._checking.is_alive():
            self._checking = threading.Thread(target=self._check_storage, name="check-storage", daemon=True)
            self._checking.start()

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query between two batches: within a batch, Spark would interrupt it half-way."""
        self._ending.set()
        with self._busy:
            pass
        try:
            query.stop()
        except (Py4JError, PySparkException) as error:
            log.debug("the query did not stop as asked: %s", error)

    def _batch(self, _: DataFrame, batch: int) -> None:
        """Called by Spark for each batch."""
        with self._busy:
            if self._ending.is_set() or self._over.is_set() or self._driver.stop.is_set():
                raise Stopped("no batch begins any more")
            with storage_errors(str(self._folder), writing=True):
                end = offset_of(self._folder, batch)
                begin = offset_of(self._folder, batch - 1) if batch else self._delivered
            if not self._has_begun:
                self._has_begun = True
                log.info("batch %d begins, the first since this start: up to %s", batch, describe(end.furthest))
            try:
                self._driver.deliver(batch, begin, end)
            except TidemillError as error:
                self._error = error
                raise
            finally:
                if self._driver.over:
                    self._over.set()


def _json(position: Position | None) -> str:
    return json.dumps(position.to_dict() if position is not None else None)


def offset_of(folder: Path, batch: int) -> Position:
    """The end of a batch, from Spark's offset log: its last line is the source's offset. Raises ValueError, FileNotFoundError."""
    text = (folder / "offsets" / str(batch)).read_text(encoding="utf-8")
    try:
        return Position.from_dict(json.loads(text.strip().splitlines()[-1]))
    except (ValueError, RecursionError, IndexError, FeedBroken) as error:
        raise ValueError(f"offset {batch} cannot be read: {error}") from None


def next_begin(folder: Path, delivered: Position) -> Position:
    """Where the first batch that Spark runs will begin: a planned one again, else the one after the last. Raises as `offset_of`."""
    planned = max((int(p.name) for p in (folder / "offsets").iterdir() if p.name.isdecimal()), default=-1)
    done = planned if (folder / "commits" / str(planned)).exists() else planned - 1
    return offset_of(folder, done) if done >= 0 else delivered


def set_aside_broken(folder: Path, delivered: Position) -> None:
    """Move Spark's checkpoint away if it cannot be continued; the changefeed's own says where to go on.

    It may be unreadable after a crash of the machine, because it is not synced. It may be ahead of ours, if ours was restored from a copy
    or the last batch was cut short at a target: what lies between would be lost. It may be behind ours, if another machine has gone on
    since: the log need not hold the rows that it would begin with.
    """
    offsets = folder / "offsets"
    if not offsets.is_dir():
        return
    newest = sorted((int(p.name) for p in offsets.iterdir() if p.name.isdecimal()), reverse=True)[:2]
    try:
        ends = [offset_of(folder, batch) for batch in newest]
        if ends and not ends[0].covers(delivered):
            raise ValueError(f"it ends at {ends[0]}, delivered is everything up to {delivered}")
        for name in (folder / "commits").glob("[0-9]*"):
            if not name.read_text(encoding="utf-8").startswith("v"):
                raise ValueError(f"{name} is not a commit")
        if not delivered.covers(begin := next_begin(folder, delivered)):
            raise ValueError(f"it goes on at {begin}, delivered is everything up to {delivered}")
    except (ValueError, KeyError, IndexError, TypeError, FileNotFoundError, IsADirectoryError) as error:
        number = 1 + sum(1 for _ in folder.parent.glob(f"{folder.name}.broken-*"))
        aside = folder.with_name(f"{folder.name}.broken-{number}")
        log.warning("Spark's checkpoint in %s cannot be used (%s); it is moved to %s and a new one begins", folder, error, aside.name)
        folder.rename(aside)


_DISK = re.compile(r"Input/output error|Stale (NFS )?file handle|No space left on device|Disk quota exceeded")
"""Found in Java's errors if the file system of Spark's checkpoint fails."""
_LATE = "Python worker failed to connect back"
"""Found in Java's errors if a Python process that runs a data source starts slowly."""
_RAISED = re.compile(r"tidemill\.[\w.]*\.(\w+): (.*)")


def _query_error(text: str) -> TidemillError:
    """The error of the clock, as it was raised in Spark's Python process; else JobLost, LogUnavailable or QueryFailed."""
    found = _RAISED.search(text)
    if found:
        kinds = [TidemillError]
        while kinds:
            kind = kinds.pop()
            if kind.__name__ == found[1] and kind.__init__ is TidemillError.__init__:
                return kind(found[2])
            kinds += kind.__subclasses__()
    if any(sign in text for sign in ("Answer from Java side is empty", "Error while sending or receiving", "network")):
        return JobLost("Spark's Java process is gone")
    if _DISK.search(text):
        return LogUnavailable(f"Spark cannot use its checkpoint now: {cause_of(text)}")
    if _LATE in text:
        return ClockLate("Spark's Python process for the clock did not answer within ten seconds; this machine is busy")
    return QueryFailed(f"the streaming query ended: {cause_of(text)}")
