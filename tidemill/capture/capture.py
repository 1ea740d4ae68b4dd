"""Captures one TiDB cluster into one change log: what is started, in which order, and how it ends.

Everything may run in this process. Or groups (groups/), each a process or a Spark task, pull the partitions, and this process is their
coordinator. It keeps what exists once: PD, the GC safe point, log.json, the schema stream, retention and the status.

Threads: the event loop (PD, streams, region state machine, schema), the receiver's ingest and sealing threads, and sometimes one for the
log's maintenance. The start order matters: GC safe point, log, the spans' records, receiver, streams.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from tidemill import tso
from tidemill.capture import clusterversion, rules
from tidemill.capture.backfill import Backfills
from tidemill.capture.config import DEFAULT_PARTITIONS, LEAST_QUOTA, CaptureConfig
from tidemill.capture.groups.divide import divide
from tidemill.capture.groups.manager import GroupManager, Start
from tidemill.capture.groups.plan import groups_of
from tidemill.capture.growth import Change, Folders, Growth, Settled, change_layout
from tidemill.capture.heads import check_heads, durable_heads
from tidemill.capture.hot_tables import split_of
from tidemill.capture.initial_load import Loading, loading_of, plan_beginning, plan_what_is_asked
from tidemill.capture.lifecycle import Lifecycle, in_thread, serving, stop_on_signals, tick, together
from tidemill.capture.meta import read_meta
from tidemill.capture.rule_changes import Again, Parts, RuleChanges, Wanted
from tidemill.capture.status import FILE as STATUS_FILE
from tidemill.capture.status import CaptureStatus, LogHold, held_by, start_of
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.tikv.feed.puller import Puller
from tidemill.capture.tikv.gc import CAPTURE_ID, FIRST_TTL, GcGuard, service_id
from tidemill.capture.tikv.receive.ingest import Receiver
from tidemill.capture.tikv.sort.partition import Sealed
from tidemill.capture.tikv.tables import TableSpans
from tidemill.capture.worker import MAINTAIN_EVERY, Pulling, maintain
from tidemill.changelog import initial_load
from tidemill.changelog.history import follow, load_history
from tidemill.changelog.log_format import IDENTITY, CaptureRules, LogIdentity
from tidemill.changelog.options import LogOptions
from tidemill.changelog.ownership import check_free
from tidemill.changelog.place import check_place
from tidemill.changelog.reader import LogReader
from tidemill.changelog.spread import PARTITION_BY
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.changelog.storage.retry import START_S, TELL_EVERY_S, StorageRetry
from tidemill.changelog.writer import LogWriter, Share
from tidemill.errors import (
    ConfigError,
    DiskLow,
    LogError,
    LogLocked,
    TidemillError,
    UpstreamError,
    redact,
)
from tidemill.events import RAW_CHANGE
from tidemill.metrics.http import PageServer
from tidemill.metrics.pages import json_page
from tidemill.metrics.samples import metrics_page
from tidemill.metrics.ticdc import with_ticdc_names
from tidemill.process.descriptors import raise_limit
from tidemill.tidb.schema.tracking.history import SchemaHistory

STATUS_EVERY = 1.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Capture:
    """Captures one cluster. Call `run` once."""

    def __init__(self, config: CaptureConfig, start: Start | None = None, say: Callable[[bytes], None] = lambda line: None) -> None:
        """`start`: another way to start groups, for tests. `say`: takes lines for the server that started the capture."""
        self.config = config
        self.wanted = Wanted(config.rules, config.rules_number, say)
        self.status = CaptureStatus(log=redact(config.log))
        self.pd: PdClient
        self.writer: LogWriter
        self.history: SchemaHistory
        self.pulling: Pulling
        self.safe_point: GcGuard
        self.loading: Loading
        self.growth: Growth
        self.backfills: Backfills
        self.manager: GroupManager | None = None
        self.divided: list[tuple[int, ...]] = []  # partitions by group; empty: all are pulled here
        self._start = start
        self._log_hold = LogHold()
        self._status_told = 0.0  # when to log again that the status cannot be written
        self._retry = StorageRetry()  # with the log's storage
        self._life: Lifecycle
        self._schema_moved = asyncio.Event()
        self._known_heads: list[int] = []  # of partitions, when the capture began

    @property
    def receiver(self) -> Receiver:
        """The receiver of this process."""
        return self.pulling.receiver

    @property
    def puller(self) -> Puller:
        """The puller of this process."""
        return self.pulling.puller

    @property
    def spans(self) -> TableSpans:
        """The table spans of this process."""
        return self.pulling.spans

    @property
    def resolved_ts(self) -> int:
        """The log is complete up to here."""
        return min(self.writer.schema.head, *self.heads())

    # ------------------------------------------------------------------ life

    async def run(self) -> None:
        """Capture until SIGTERM, SIGINT or `stop`. Raises TidemillError for errors that a retry does not fix."""
        self._life = Lifecycle()
        raise_limit()
        stop_on_signals(self.stop)
        folder = self.config.folder
        with storage_errors(str(folder), writing=True):
            folder.mkdir(parents=True, exist_ok=True)
        self.status.start_ts = start_of(folder, self.status.log)
        pages = PageServer({"/status": json_page(self._look), "/metrics": metrics_page(self._samples)})
        async with serving(pages, self.config.status_addr, lambda state, error: self._end(state, error, folder)):
            await self._life.lead(self._capture(folder))

    def stop(self) -> None:
        """End without an error; what is resolved is sealed first."""
        self._life.stop()

    def fail(self, error: BaseException) -> None:
        """End with this error."""
        self._life.fail(error)

    def _end(self, state: str, error: BaseException | None, folder: Path) -> None:
        self.status.state = state
        if error is not None:
            code = error.code if isinstance(error, TidemillError) else type(error).__name__
            self.status.error = {"code": code, "message": redact(str(error))}
        if self.status.resolved_ts:
            self.status.updated = time.time()
            self._write_status(folder)
        elif not isinstance(error, LogLocked):  # else another capture has the log, and the status is its own
            self._write_status(folder, self.status.write_refused)

    def _write_status(self, folder: Path, write: Callable[[Path], None] | None = None) -> None:
        """Write the status. A failure is only logged: the capture does not depend on the file."""
        try:
            (write or self.status.write)(folder)
            self._status_told = 0.0
        except OSError as e:
            if time.monotonic() >= self._status_told:
                self._status_told = time.monotonic() + TELL_EVERY_S
                _log.warning("%s cannot be written; the capture goes on: %s", folder / STATUS_FILE, e)

    async def _reached(self, work: Callable[[], Awaitable[T]]) -> T:
        """Work with the log at the start. An address that this capture never reached may be wrong, so the wait for it is limited."""
        waiting = asyncio.ensure_future(self._tell_waiting())
        try:
            return await self._retry.call_async(work, None if self.status.start_ts else START_S)
        finally:
            waiting.cancel()

    async def _tell_waiting(self) -> None:
        while True:
            await asyncio.sleep(STATUS_EVERY)
            self._look()
            if self.status.storage is not None:
                self.status.updated = time.time()
                self._write_status(self.config.folder)

    async def _capture(self, folder: Path) -> None:
        while await self._captures(folder):
            self.status.state = "starting"
            self._life.gc_pause.rest_again()

    async def _captures(self, folder: Path) -> bool:
        """Capture until the log may have another layout, or groups have to take other tables (True)."""
        self.divided = await self._reached(partial(asyncio.to_thread, groups_of, self.config))
        self.pd = await PdClient.connect(self.config.pd, security=self.config.security)
        manager = None
        try:
            self.status.cluster_id = str(self.pd.cluster_id)
            await self.pd.check_versions()
            if self.divided:
                manager = GroupManager(
                    self.config, self.status.cluster_id, self.divided, folder / "scratch", self._life, self._schema_end, self._start
                )
                await manager.open()
            self.manager = manager  # from here on the status asks it
            await self._reached(self._open_log)
            try:
                return await self._pull(folder)
            finally:
                self.writer.close()
        finally:
            if manager is not None:
                await manager.close()
            await self.pd.close()

    # ------------------------------------------------------------------ the log

    @property
    def _share(self) -> Share | None:
        return Share(schema=True, partitions=frozenset()) if self.divided else None

    async def _open_log(self) -> None:
        config = self.config
        options = LogOptions(
            compression=config.compression, retention_ms=config.retention_ms, low_water_bytes=config.low_water_bytes, term=config.term
        )
        storage = await asyncio.to_thread(open_storage, config.log, config.folder / "scratch")
        has_writer = await asyncio.to_thread(storage.read, IDENTITY) is None
        if has_writer:
            await asyncio.to_thread(check_place, storage)
            await self._create_log(storage, options)
        else:
            if config.start_ts is not None:
                _log.info("%s exists already and continues where it ends; --start-ts is for new logs", self.status.log)
            if config.split_tables:
                _log.info("%s keeps its layout: --split-table is for new logs, `tidemill log split` for this one", self.status.log)
            await asyncio.to_thread(check_free, storage, config.term)
            await asyncio.to_thread(partial(LogWriter.check, storage, cluster_id=str(self.pd.cluster_id), partitions=config.partitions))
        try:
            reader = await asyncio.to_thread(LogReader, storage)
            identity = reader.identity
            self.status.start_ts = identity.start_ts
            capture_id = identity.extra.get(CAPTURE_ID)
            if not isinstance(capture_id, str):
                raise LogError(f"{self.status.log} was not written by a capture of TiKV: log.json has no {CAPTURE_ID}")
            if identity.partition_by != PARTITION_BY:
                raise LogError(f"{self.status.log} assigns tables by {identity.partition_by!r}; this capture does it by {PARTITION_BY!r}")
            self.safe_point = GcGuard(self.pd, service_id(self.pd.cluster_id, capture_id), config.gc_ttl, resumes=True)
            self.loading = loading_of(storage, config, self._retry)
            await self.loading.look()
            planned = await asyncio.to_thread(initial_load.timestamps, storage)
            if config.snapshot and not any(ts >= identity.start_ts for ts in planned):
                _log.warning("%s exists already, without an initial load; --snapshot is for new logs", self.status.log)
            now = await self.pd.tso()
            await asyncio.to_thread(check_heads, reader, now)
            heads = await asyncio.to_thread(durable_heads, reader)
            await self.safe_point.protect(self._not_loaded(min(heads)))
            self.history = await asyncio.to_thread(load_history, reader)
            if not has_writer:  # a running writer keeps the log until all other steps have succeeded
                await self._take(storage, options)
                has_writer = True
            await asyncio.to_thread(self.writer.sync_heads)  # the heads that the barrier protects, before newer ones replace them
            self._known_heads = (await asyncio.to_thread(durable_heads, reader))[1:]
            await asyncio.to_thread(follow, self.history, reader, self.writer.schema.head)  # where the schema stream goes on
            wanted, number = self.wanted.rules, self.wanted.number
            await asyncio.to_thread(rules.settle, self.writer, wanted, self._log_end)
            self.wanted.settled(number, self.writer.identity)
        except BaseException:
            if has_writer:
                self.writer.close()
            raise

    async def _take(self, storage: Storage, options: LogOptions) -> None:
        """Open the log for writing, as soon as the disk has room for that."""
        for attempt in itertools.count():
            try:
                self.writer = await self._opened(partial(self._open, storage, options))
                break
            except DiskLow as e:
                self.status.paused = f"disk low: {e.message}"
                if attempt % 6 == 0:
                    _log.warning("the capture waits for room on the disk before it begins: %s", e.message)
            await asyncio.sleep(MAINTAIN_EVERY)

    async def _opened(self, make: Callable[[], LogWriter]) -> LogWriter:
        """Run `make` in a thread, because storage takes time. If the caller is cancelled, close what `make` opened."""
        opening = asyncio.ensure_future(asyncio.to_thread(make))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            (await opening).close()
            raise

    def _open(self, storage: Storage, options: LogOptions) -> LogWriter:
        cluster_id, partitions = str(self.pd.cluster_id), self.config.partitions
        return LogWriter.open(storage, cluster_id=cluster_id, partitions=partitions, options=options, share=self._share)

    async def _create_log(self, storage: Storage, options: LogOptions) -> None:
        config = self.config
        now = await self.pd.tso()
        start_ts = now if config.start_ts is None else tso.parse(config.start_ts, now)
        if start_ts > now:
            raise ConfigError(f"--start-ts {tso.describe(start_ts)} lies in the cluster's future: it is {tso.describe(now)} there")
        capture_id = uuid.uuid4().hex[:16]
        guard = GcGuard(self.pd, service_id(self.pd.cluster_id, capture_id), config.gc_ttl)
        await guard.protect(start_ts, FIRST_TTL)
        try:
            await self._write_log(storage, options, start_ts, capture_id)
        except BaseException:
            with suppress(UpstreamError):  # the first error matters more than one during the cleanup
                await guard.remove()
            raise

    async def _write_log(self, storage: Storage, options: LogOptions, start_ts: int, capture_id: str) -> None:
        config = self.config
        pairs = await read_meta(self.pd, start_ts)
        identity = LogIdentity(
            cluster_id=str(self.pd.cluster_id),
            start_ts=start_ts,
            partitions=config.partitions or DEFAULT_PARTITIONS,
            partition_by=PARTITION_BY,
            extra={CAPTURE_ID: capture_id},
        )
        wanted = self.wanted.rules
        if wanted is not None and wanted.rules != rules.EVERYTHING:
            identity = identity.with_rules(replace(wanted, from_ts=start_ts))
        history = await asyncio.to_thread(SchemaHistory.bootstrap, start_ts, pairs.items())  # no log without readable schemas
        for name, over in config.split_tables:
            change = await split_of(self.pd, identity, history.snapshot(start_ts), name, over)
            identity = change.of(identity, start_ts)
        if config.snapshot:
            await plan_beginning(storage, self.pd, history.snapshot(start_ts), start_ts, rules.wants_of(wanted))
        create = partial(LogWriter.create, storage, identity, snapshot=pairs, options=options)
        self.writer = await self._opened(create)
        if self.divided:
            self.writer.close()
            self.writer = await self._opened(partial(self._open, self.writer.storage, options))
        _log.info("new log %s of cluster %s from %s", self.status.log, identity.cluster_id, tso.describe(start_ts))

    # ------------------------------------------------------------------ pulling

    async def _pull(self, folder: Path) -> bool:
        """Pull until the log may have another layout, or groups have to take other tables (True)."""
        writer, life = self.writer, self._life
        await clusterversion.note_at_start(self.pd, writer, self._log_end, self._retry)
        here = range(writer.identity.partitions) if not self.divided else ()
        config = replace(self.config, memory_quota=LEAST_QUOTA, workers=None) if self.divided else self.config
        pulling = Pulling(config, self.pd, writer, self.history, folder / "scratch", life, here, self._schema_sealed, self._retry)
        self.pulling = pulling
        folders = Folders(lambda: writer.identity, self._ends, pulling.freeze_at, self.pd.tso, self._split, self._split_names)
        freezing = asyncio.Lock()
        self.growth = Growth(writer.storage, self._retry, folders, freezing)
        rule_changes = RuleChanges(self.wanted, self._parts(pulling), freezing)
        self.backfills = Backfills(self.config, self.pd, writer, self.safe_point.service_id, folder / "scratch", self._retry)
        settled: Settled | None = None
        again = False
        try:
            await pulling.begin()
            self.status.state = "running"
            _log.info("capturing %s from %s", self._what(), tso.describe(self.resolved_ts))
            if self.manager is not None:
                self.divided = divide(writer.identity.partitions, len(self.divided), pulling.spans.counts())
                self.manager.begin(self.divided)
            await together(
                self._report(folder),
                maintain(self.pd, writer, lambda: self.resolved_ts, self._retry),
                clusterversion.follow(self.pd, writer, self._retry),
                pulling.watchdog.run(),
                pulling.watch_room(),
                self.safe_point.follow(self._needed_ts, lambda: self.loading.parts_missing, self._held_by),
                self._load(),
                self.growth.run(),
                rule_changes.run(),
                self.backfills.run(),
                *([self.manager.run()] if self.manager is not None else []),
            )
        except Settled as ready:
            settled = ready
        except Again:
            again = True
        finally:
            self.status.state = "stopping"
            if self.manager is not None:
                await self.manager.stop()
            await pulling.stop()
            self._look()
            _log.info("the log is complete up to %s", tso.describe(self.resolved_ts))
        if settled is not None:
            await in_thread(change_layout, writer, settled)
        return again or settled is not None

    def _parts(self, pulling: Pulling) -> Parts:
        """What a change of the rules needs."""

        def write(entry: CaptureRules) -> Awaitable[None]:
            return self._retry.in_thread(partial(self.writer.change_identity, lambda current: current.with_rules(entry)))

        return Parts(
            identity=lambda: self.writer.identity,
            known=lambda: self.history.resolved_ts,
            freeze_at=pulling.freeze_at,
            moved=self._schema_moved,
            now=self.pd.tso,
            write=write,
            take=None if self.divided else pulling.take_rules,
        )

    async def _split(self, name: str, over: int) -> Change:
        """How a table is to be split."""
        return await split_of(self.pd, self.writer.identity, self.history.snapshot(self.history.resolved_ts), name, over)

    def _split_names(self) -> dict[int, str]:
        """Return the names of the split tables that are still there."""
        tables = self.history.snapshot(self.history.resolved_ts).tables
        ids = (split.table_id for split in self.writer.identity.layout.split_tables)
        return {id_: f"{version.schema}.{version.table}" for id_ in ids if (version := tables.get(id_)) is not None}

    def _ends(self) -> list[int]:
        """Return the heads of the schema stream and of all partitions."""
        return [self.writer.schema.head, *self.heads()]

    async def _load(self) -> None:
        """Read initial loads when they are planned. Groups start first: a load may take all cores of the cluster that are left."""
        await together(self._let_load(), self.loading.run(self._plan_what_is_asked))

    async def _let_load(self) -> None:
        if self.manager is not None:
            await self.manager.assembled.wait()
        self.loading.begin.set()

    def _what(self) -> str:
        return f"{len(self.spans)} tables" if not self.divided else f"with {len(self.divided)} groups"

    @property
    def _log_end(self) -> int:
        """The ts that no row of the log was above when the capture began; groups do not get past the schema's head."""
        return max([*self._known_heads, self.history.resolved_ts])

    def heads(self) -> list[int]:
        """Return the heads of all partitions; for those of groups, what the groups last reported."""
        if not self.divided:
            return [self.writer.partition(p).head for p in self.writer.partitions]
        told = self.manager.heads if self.manager is not None else {}
        return [max(head, told.get(p, 0)) for p, head in enumerate(self._known_heads)]

    async def _needed_ts(self) -> int:
        """Return the ts from which on TiKV has to keep history: the durable end of the log, or the ts of an initial load that is not
        complete."""
        ends = [await asyncio.to_thread(self.writer.sync_heads)]
        if self.manager is not None:
            ends += [max(head, self.manager.synced.get(p, 0)) for p, head in enumerate(self._known_heads)]
        return self._not_loaded(min(ends))

    def _not_loaded(self, ts: int) -> int:
        oldest = self.loading.oldest_ts
        return ts if oldest is None else min(oldest, ts)

    def _held_by(self) -> str:
        """Return what holds the log, for messages."""
        if self.loading.parts_missing:
            return f"{self.loading.parts_missing} parts of tables that are still to be read"
        self._look()
        if self.status.paused:
            return f"a pause: {self.status.paused}"
        return held_by(self.status.holding) if self.status.holding else "nothing that is known"

    async def _plan_what_is_asked(self) -> None:
        """Plan the tables that `tidemill resync` asks for."""
        identity, history = self.writer.identity, self.history
        wants = rules.wants_of(identity.rules_above(tso.MAX_TS)[0])
        keep = self.loading.planning.append
        await plan_what_is_asked(
            *(self.writer.storage, self.pd, identity.partitions, lambda: history.snapshot(history.resolved_ts), wants, keep),
            self.backfills.take,
        )

    def _schema_sealed(self, done: Sealed) -> None:
        """Advance the history by the sealed schema changes, and let rows be sealed as far."""
        changes: pa.Table | Sequence[Any] = pa.Table.from_batches(done.batches, RAW_CHANGE) if done.batches else ()
        self.history.advance(changes, done.head)
        self.pulling.follow(done.head)
        if self.manager is not None:
            self.manager.follow()
        self._schema_moved.set()

    def _schema_end(self) -> tuple[int, int]:
        """Return how far groups may read: the schema's head as far as the history has followed, and the end of the last segment up to
        there."""
        return self.history.resolved_ts, min(self.writer.schema.last_to, self.history.resolved_ts)

    # ------------------------------------------------------------------ upkeep

    async def _report(self, folder: Path) -> None:
        while True:
            page = self._look()  # here, on the event loop: nothing else may change the status meanwhile
            await in_thread(self._write_status, folder, partial(self.status.write, content=page))
            self.pulling.tidy()
            self.history.forget(self.resolved_ts)
            await tick(STATUS_EVERY)

    def _look(self) -> dict[str, Any]:
        """Bring the status up to date and return it."""
        status = self.status
        outage = self._retry.outage
        status.storage = outage.as_dict() if outage is not None else None
        if status.state in ("running", "stopping"):
            groups = self.manager.sections() if self.manager is not None else []
            status.take([self.pulling.look(), *groups])
            status.groups = self.manager.look() if self.manager is not None else []
            status.heads, status.schema_head = self.heads(), self.writer.schema.head
            status.gc_service, status.gc_safe_point = self.safe_point.service_id, self.safe_point.safe_point
            status.growth = self.growth.text
            status.split_tables = {one.name: list(one.partitions) for one in self.writer.identity.layout.split_tables}
            status.parts_to_read = self.loading.parts_missing
            status.gc_seconds_left = round(self.safe_point.seconds_left)
            status.gc_ttl_used = round(self.safe_point.used, 3)
            status.start_ts = self.writer.identity.start_ts
            status.refresh(self.resolved_ts)
            status.holding = self._log_hold.look(status, self.pulling.held_at, time.monotonic())
        return status.as_dict()

    def _samples(self) -> Any:
        self._look()
        return with_ticdc_names(self.status.samples())
