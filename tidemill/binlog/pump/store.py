"""Takes binlogs and keeps them: a batch is appended and synced, then answered, then indexed, then passed through the order of commits.

The event loop owns the order and what waits; a thread each does the work of the value log and of the index. An index that is slow, behind
or missing holds up no write: when too much waits for it, it reads the value log instead, until it has caught up. It begins like that, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from tidemill.binlog.groups import Group, Groups
from tidemill.binlog.indexkeys import Pointer
from tidemill.binlog.messages import BinlogType, Head, read_head
from tidemill.binlog.order import Order, Stored
from tidemill.binlog.pump.faults import PumpFailed
from tidemill.binlog.pump.index import Index
from tidemill.binlog.pump.log import FILE_BYTES, ValueLog
from tidemill.binlog.valuelog import Skipped
from tidemill.errors import MalformedMessage
from tidemill.kernels.pump import layout as L

INDEX_FOLDER, VALUE_FOLDER = "kv", "value"

INDEX_AT_ONCE = 4096
"""Binlogs that are indexed at once."""

INDEX_EVERY_S = 0.01
"""Seconds between two batches for the index, unless as many wait as are indexed at once. Each batch costs two switches of threads."""
TELL_EVERY_S = 0.1
"""Seconds between two notes in the index of how far the order is. After a crash the value log is read from the last note on."""

CHAN_CAP = 1 << 20
"""Binlogs that may wait for the index (storage.kv_chan_cap)."""

SLOW_S = 1.0
"""A write that takes longer is logged (storage.slow_write_threshold)."""

_TYPES = tuple(BinlogType)

_log = logging.getLogger(__name__)


class Answerer(Protocol):
    """A connection that put binlogs into groups, with its slot in their marks."""

    def answer_marks(self, marks: Any) -> None:
        """They are on the disk."""

    def refuse_marks(self, marks: Any, text: str) -> None:
        """They could not be written."""


@dataclass(slots=True)
class Counts:
    """What was done since the start."""

    binlogs: int = 0
    bytes: int = 0
    syncs: int = 0
    seconds: float = 0.0
    slow: int = 0
    failures: int = 0
    caught_up: int = 0
    """Binlogs that were indexed from the value log."""


class Store:
    """The binlogs of one folder. Belongs to one event loop.

    `moved` is called when `max_commit_ts` has moved. `failed` is called once, when nothing can be written or indexed any more.
    """

    def __init__(
        self,
        folder: Path,
        *,
        sync: bool = True,
        chan_cap: int = CHAN_CAP,
        slow_s: float = SLOW_S,
        file_bytes: int = FILE_BYTES,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        """Open a folder, or make it. Raises OSError, PumpFailed."""
        self.index = Index(folder / INDEX_FOLDER)
        try:
            self.log = ValueLog(folder / VALUE_FOLDER, sync=sync, file_bytes=file_bytes)
        except OSError:
            self.index.close()
            raise
        self.order = Order(self.index.max_commit_ts())
        self._told: tuple[int, Pointer | None] = self.order.max_commit_ts, None
        self.counts = Counts()
        self.moved = moved
        self.written: Callable[[], None] = lambda: None
        """Called when a group was dealt with."""
        self._chan_cap, self._slow_s = chan_cap, slow_s
        self.groups = Groups()
        self.answerers: dict[int, Answerer] = {}
        """Connections by their slots."""
        self._to_index: deque[Stored] = deque()
        self._in_hand = 0  # how many are being indexed
        self._indexed_at = self._told_at = 0.0  # by the loop's clock
        self._timer: asyncio.TimerHandle | None = None  # wakes the indexer
        self._wake_writer, self._wake_indexer = asyncio.Event(), asyncio.Event()
        self._behind_at: Pointer | None = self.index.begin()  # from where the index reads the value log; None: it is up to date
        self._writing = ThreadPoolExecutor(1, "value-log")
        self._indexing = ThreadPoolExecutor(1, "index")
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Begin to write and to index."""
        self._tasks = [asyncio.ensure_future(self._write()), asyncio.ensure_future(self._index())]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    @property
    def behind(self) -> bool:
        """Whether the index reads the value log."""
        return self._behind_at is not None

    @property
    def waiting(self) -> int:
        """How many binlogs wait for the index."""
        return len(self._to_index) + self._in_hand

    async def write(self, payload: bytes, head: Head | None = None) -> None:
        """Keep a binlog; returns when it is on the disk. Raises MalformedMessage, OSError, PumpFailed."""
        self.check_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.groups.add(payload, head or read_head(payload), waiting=done)
        self.wake()
        await done

    def check_open(self) -> None:
        """Raises PumpFailed when nothing is written any more."""
        if self.failure.done() or self._closing:
            raise PumpFailed("this Pump is about to end, and writes no more")

    def wake(self) -> None:
        """There is something in `groups`."""
        self._wake_writer.set()

    def forget(self, start_ts: int) -> None:
        """A Prewrite will never be committed: let the order pass it."""
        if self.order.drop(start_ts):
            self.moved()
        self._wake_indexer.set()  # writes how far the order is

    async def close(self) -> None:
        """Write what waits, index it, and close the files. Raises OSError, PumpFailed."""
        self._closing = True
        self._wake_writer.set()
        self._wake_indexer.set()
        await asyncio.wait(self._tasks)
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        try:
            if not self.failure.done():
                await loop.run_in_executor(self._indexing, self.index.progress, self.order.max_commit_ts, self.order.passed)
                await loop.run_in_executor(self._writing, self.log.close)
        finally:
            self.index.close()
            self._writing.shutdown()
            self._indexing.shutdown()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task's failure is the store's, and that of whoever waits."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if not self.failure.done():
            self.failure.set_exception(error)
        while (group := self.groups.take()) is not None:
            self._refuse(group, PumpFailed(f"it was not written: {error}"))

    # the value log

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self._closing and self.groups.empty):
            group = self.groups.take()
            if group is None:
                self._wake_writer.clear()
                await self._wake_writer.wait()
                continue
            began = time.monotonic()
            try:
                start = await loop.run_in_executor(self._writing, self.log.append, group.records, group.greatest_ts)
            except (OSError, PumpFailed) as error:
                self.counts.failures += 1
                _log.error("%d binlogs could not be written: %s", group.count, error)
                self._refuse(group, error)
                if isinstance(error, PumpFailed):
                    raise
                continue
            now = time.monotonic()
            self._count(group, now - began)
            self._answer(group)
            rows = group.marks[: group.count, : L.M_AT + 1].tolist()
            self.groups.done(group)
            self.written()
            file, offset = start.file, start.offset
            self._feed([Stored(_TYPES[tp], start_ts, commit_ts, Pointer(file, offset + at), now) for tp, start_ts, commit_ts, at in rows])

    def _answer(self, group: Group) -> None:
        """The binlogs of a group are on the disk."""
        for done in group.waiting.values():
            if not done.done():
                done.set_result(None)
        marks = group.marks[: group.count]
        for slot in set(marks[:, L.M_SLOT].tolist()):
            if (answerer := self.answerers.get(slot)) is not None:
                answerer.answer_marks(marks)

    def _refuse(self, group: Group, error: OSError | PumpFailed) -> None:
        """They are not."""
        for done in group.waiting.values():
            if not done.done():
                done.set_exception(error)
        marks = group.marks[: group.count]
        for slot in set(marks[:, L.M_SLOT].tolist()):
            if (answerer := self.answerers.get(slot)) is not None:
                answerer.refuse_marks(marks, error.message if isinstance(error, PumpFailed) else unwritten(error))
        self.groups.done(group)

    def _count(self, group: Group, seconds: float) -> None:
        counts = self.counts
        counts.binlogs += group.count
        counts.bytes += group.size - L.RECORD_HEAD * group.count
        counts.syncs += 1
        counts.seconds += seconds
        if seconds > self._slow_s:
            counts.slow += 1
            _log.warning("a batch of %d binlogs took %.1f s to write", group.count, seconds)

    # the index

    def _feed(self, stored: list[Stored]) -> None:
        if self._behind_at is None:
            self._to_index.extend(stored)
            if len(self._to_index) > self._chan_cap:
                _log.warning("the index is slow: %d binlogs wait for it; it goes on from the value log", len(self._to_index))
                self._behind_at = self._to_index[0].at
                self._to_index.clear()
        self._wake_indexer.set()

    async def _index(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._behind_at is not None:
                await self._catch_up(self._behind_at)
            elif self._to_index and not self._early(self._indexed_at + INDEX_EVERY_S, enough=len(self._to_index) >= INDEX_AT_ONCE):
                batch = [self._to_index.popleft() for _ in range(min(INDEX_AT_ONCE, len(self._to_index)))]
                self._in_hand = len(batch)
                await loop.run_in_executor(self._indexing, self.index.put, batch)
                self._indexed_at = loop.time()
                await self._pass(batch)
                self._in_hand = 0
            elif self._closing and self._tasks[0].done() and not self._to_index:
                return
            else:
                self._wake_indexer.clear()
                if self._closing:  # the writer's last batch may be on its way
                    await asyncio.wait({self._tasks[0]})
                else:
                    await self._wake_indexer.wait()
                    await self._pass([])

    def _early(self, when: float, *, enough: bool = False) -> bool:
        """Whether it is too early for something; then the indexer is woken when it is time."""
        loop = asyncio.get_running_loop()
        if enough or self._closing or loop.time() >= when:
            return False
        if self._timer is None:
            self._timer = loop.call_at(when, self._ring)
        return True

    def _ring(self) -> None:
        self._timer = None
        self._wake_indexer.set()

    async def _pass(self, batch: list[Stored]) -> None:
        """Let the order go on, and write now and then how far it is."""
        if self.order.take(batch):
            self.moved()
        progress = self.order.max_commit_ts, self.order.passed
        if progress != self._told and not self._early(self._told_at + TELL_EVERY_S):
            self._told, self._told_at = progress, asyncio.get_running_loop().time()
            await asyncio.get_running_loop().run_in_executor(self._indexing, self.index.progress, *progress)

    async def _catch_up(self, start: Pointer) -> None:
        """Index from the value log, from a place on, until nothing is left there."""
        loop = asyncio.get_running_loop()
        while True:
            end = self.log.end  # what is appended after this is read in the next round
            entries = self._scanned(start, end)
            try:
                while batch := await loop.run_in_executor(self._indexing, _some, entries):
                    await loop.run_in_executor(self._indexing, self.index.put, batch)
                    self.counts.caught_up += len(batch)
                    await self._pass(batch)
            finally:
                await loop.run_in_executor(self._indexing, entries.close)
            start = end
            if self.log.end == end:
                self._behind_at = None
                return

    def _scanned(self, start: Pointer, end: Pointer) -> Generator[Stored, None, None]:
        """The binlogs of the value log between two places. Records that are not binlogs are logged."""
        now = time.monotonic()
        for found in self.log.scan(start, end):
            if isinstance(found, Skipped):
                continue
            number, record = found
            try:
                head = read_head(record.payload)
            except MalformedMessage as error:
                _log.error("file %d of the value log has a record at %d that is not a binlog: %s", number, record.offset, error.message)
                continue
            yield Stored(*_head(head), Pointer(number, record.offset), now)


def unwritten(error: OSError) -> str:
    """What a client is told of a binlog that the disk did not take."""
    return f"the binlog could not be written: {error}"


def _some(entries: Iterator[Stored]) -> list[Stored]:
    return list(islice(entries, INDEX_AT_ONCE))


def _head(head: Head) -> tuple[BinlogType, int, int]:
    return head.tp, head.start_ts, head.commit_ts
