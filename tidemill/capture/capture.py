"""A capture of one TiDB cluster into one change log: what is started, in which order, and how it ends.

Threads: the event loop (PD, streams, region state machine, schema), the ingest thread and the sealing thread of the receiver, and
now and then one for the log's upkeep. The order of the start matters: GC safe point, log, spans' records, receiver, streams.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill import tso
from tidemill.capture import rules
from tidemill.capture.config import DEFAULT_PARTITIONS, CaptureConfig
from tidemill.capture.loading import Loading, answer, find_table, loading_of, plan_at_the_head, requests
from tidemill.capture.meta import read_meta
from tidemill.capture.status import CaptureStatus
from tidemill.capture.tikv.actions import Span
from tidemill.capture.tikv.matcher import FOREVER
from tidemill.capture.tikv.partition import PartitionLog, Sealed
from tidemill.capture.tikv.pd import PdClient
from tidemill.capture.tikv.puller import Puller
from tidemill.capture.tikv.receiver import Receiver
from tidemill.capture.tikv.regions import RegionMachine
from tidemill.capture.tikv.safepoint import CAPTURE_ID, FIRST_TTL, GcGuard, service_id
from tidemill.capture.tikv.tableread import plan_tables
from tidemill.capture.tikv.tables import PARTITION_BY, Moved, TableSpans
from tidemill.capture.tikv.watchdog import Watchdog
from tidemill.changelog import initial
from tidemill.changelog.history import load_history
from tidemill.changelog.layout import IDENTITY, LogIdentity, rows_folder
from tidemill.changelog.reader import LogReader, read_head
from tidemill.changelog.storage import open_storage
from tidemill.changelog.writer import LogOptions, LogWriter
from tidemill.errors import ConfigError, LogError, TidemillError, UpstreamError, UpstreamUnavailable, redact
from tidemill.events import RAW_CHANGE
from tidemill.server.http import PageServer, json_page
from tidemill.server.metrics import metrics_page
from tidemill.tidb.keys import encode_range
from tidemill.tidb.schema.history import SchemaHistory
from tidemill.tidb.schema.metakeys import capture_ranges, meta_filter

STATUS_EVERY = 1.0
MAINTAIN_EVERY = 10.0
SCHEMA_SPANS = -1_000_000  # ids of the schema's spans: from here upwards, below those of tables

_log = logging.getLogger(__name__)


class Capture:
    """See the module. `run` it once."""

    def __init__(self, config: CaptureConfig) -> None:
        self.config = config
        self.status = CaptureStatus(log=redact(config.log))
        self.pd: PdClient
        self.writer: LogWriter
        self.history: SchemaHistory
        self.receiver: Receiver
        self.puller: Puller
        self.watchdog: Watchdog
        self.spans: TableSpans
        self.safe_point: GcGuard
        self.loading: Loading
        self._machine: RegionMachine
        self._over: asyncio.Future[None]
        self._followed = 0  # schema changes up to here have become spans

    # ------------------------------------------------------------------ life

    async def run(self) -> None:
        """Capture until SIGTERM, SIGINT or `stop`. Raises TidemillError for what cannot be mended by trying again."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
        folder = self.config.folder
        folder.mkdir(parents=True, exist_ok=True)
        pages = PageServer({"/status": json_page(self._look), "/metrics": metrics_page(self._samples)})
        try:
            if self.config.status_addr:
                await pages.start(self.config.status_addr)
            await self._until_over(self._capture(folder))
            self._end("stopped", None, folder)
        except BaseException as e:
            self._end("failed", e, folder)
            raise
        finally:
            await pages.stop()

    def stop(self) -> None:
        """End cleanly: what is resolved is sealed first."""
        if not self._over.done():
            self._over.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End with this error."""
        if not self._over.done():
            self._over.set_exception(error)

    def _later(self, function: Callable[..., None], *arguments: Any) -> None:
        """From another thread: call it on the event loop."""
        self._over.get_loop().call_soon_threadsafe(function, *arguments)

    async def _until_over(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until it ends or `stop` or `fail` is called."""
        task = asyncio.ensure_future(work)
        await asyncio.wait([task, self._over], return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        if self._over.done():
            self._over.result()
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            raise ended

    def _end(self, state: str, error: BaseException | None, folder: Path) -> None:
        self.status.state = state
        if error is not None:
            code = error.code if isinstance(error, TidemillError) else type(error).__name__
            self.status.error = {"code": code, "message": redact(str(error))}
        self.status.write(folder)

    async def _capture(self, folder: Path) -> None:
        self.pd = await PdClient.connect(self.config.pd, security=self.config.security)
        try:
            self.status.cluster_id = str(self.pd.cluster_id)
            await self.pd.check_versions()
            await self._open_log()
            try:
                await self._pull(folder)
            finally:
                self.writer.close()
        finally:
            await self.pd.close()

    # ------------------------------------------------------------------ the log

    async def _open_log(self) -> None:
        config = self.config
        options = LogOptions(compression=config.compression, retention_ms=config.retention_ms, low_water_bytes=config.low_water_bytes)
        storage = open_storage(config.log)
        if storage.read(IDENTITY) is None:
            await self._create_log(options)
        else:
            if config.start_ts is not None:
                _log.info("%s is there already and goes on where it ends; --start-ts is for new logs", self.status.log)
            self.writer = LogWriter.open(storage, cluster_id=str(self.pd.cluster_id), partitions=config.partitions, options=options)
        identity = self.writer.identity
        self.status.start_ts = identity.start_ts
        try:
            capture_id = identity.extra.get(CAPTURE_ID)
            if not isinstance(capture_id, str):
                raise LogError(f"{self.status.log} was not written by a capture of TiKV: log.json has no {CAPTURE_ID}")
            if identity.partition_by != PARTITION_BY:
                raise LogError(f"{self.status.log} spreads tables by {identity.partition_by!r}; this capture does by {PARTITION_BY!r}")
            self.safe_point = GcGuard(self.pd, service_id(self.pd.cluster_id, capture_id), config.gc_ttl)
            self.loading = loading_of(storage, config)
            self.loading.look()
            if config.snapshot and not initial.plans(storage, identity.start_ts):
                _log.warning("%s is there already, without tables as of its start; --snapshot is for new logs", self.status.log)
            await self.safe_point.protect(self._needed_ts())
            self.history = load_history(LogReader(config.log))
        except BaseException:
            self.writer.close()
            raise

    async def _create_log(self, options: LogOptions) -> None:
        config = self.config
        now = await self.pd.tso()
        start_ts = now if config.start_ts is None else tso.parse(config.start_ts, now)
        if start_ts > now:
            raise ConfigError(f"--start-ts {tso.describe(start_ts)} lies in the cluster's future: it is {tso.describe(now)} there")
        capture_id = uuid.uuid4().hex[:16]
        guard = GcGuard(self.pd, service_id(self.pd.cluster_id, capture_id), config.gc_ttl)
        await guard.protect(start_ts, FIRST_TTL)
        try:
            await self._write_log(options, start_ts, capture_id)
        except BaseException:
            with suppress(UpstreamError):  # what went wrong is worth more than what cleaning up meets
                await guard.remove()
            raise

    async def _write_log(self, options: LogOptions, start_ts: int, capture_id: str) -> None:
        config = self.config
        pairs = await read_meta(self.pd, start_ts)
        identity = LogIdentity(
            cluster_id=str(self.pd.cluster_id),
            start_ts=start_ts,
            partitions=config.partitions or DEFAULT_PARTITIONS,
            partition_by=PARTITION_BY,
            extra={CAPTURE_ID: capture_id},
        )
        if config.rules is not None and config.rules.rules != rules.EVERYTHING:
            identity = identity.with_rules(replace(config.rules, from_ts=start_ts))
        history = SchemaHistory.bootstrap(start_ts, pairs.items())  # what cannot be read had better not become a log
        if config.snapshot:
            wants = rules.wants_of(config.rules)
            tables = [v for v in history.snapshot(start_ts).tables.values() if v.info.has_rows and wants(v)]
            initial.write_plan(open_storage(config.log), await plan_tables(self.pd, start_ts, tables))
        self.writer = LogWriter.create(config.log, identity, snapshot=pairs, options=options)
        _log.info("new log %s of cluster %s from %s", self.status.log, identity.cluster_id, tso.describe(start_ts))

    # ------------------------------------------------------------------ pulling

    async def _pull(self, folder: Path) -> None:
        writer = self.writer
        n = writer.identity.partitions
        scratch = folder / "scratch"
        scratch.mkdir(exist_ok=True)
        logs = [PartitionLog(writer.partition(p), scratch) for p in range(n)]
        logs.append(PartitionLog(writer.schema, scratch, key_filter=keeps))
        self.receiver = Receiver(
            logs,
            scratch,
            on_events=lambda events: self.puller.post(events),
            on_sealed=partial(self._later, self._sealed),
            on_failure=partial(self._later, self.fail),
            options=self.config.receiving,
        )
        self._machine = RegionMachine(n + 1)
        self.puller = Puller(self.pd, self.receiver, self._machine, self.config.transport, self.fail)
        self._begin()
        self.receiver.start()
        self.status.state = "running"
        _log.info("capturing %d tables from %s", len(self.spans), tso.describe(writer.resolved_ts))
        try:
            self.puller.start()
            await asyncio.gather(
                self._report(folder),
                self._maintain(),
                self.watchdog.run(),
                self.safe_point.follow(self._needed_ts),
                self.loading.run(self._plan_what_is_asked),
            )
        finally:
            self.status.state = "stopping"
            await self.puller.stop()
            await asyncio.to_thread(self.receiver.stop)
            self._look()
            if self.receiver.failure is not None and not self._over.done():
                self.fail(self.receiver.failure)
            _log.info("the log is complete up to %s", tso.describe(writer.resolved_ts))

    def _begin(self) -> None:
        """The first spans. No head can move before their records are placed."""
        n = self.writer.identity.partitions
        schema_head = self.writer.schema.head
        for i, (_, (start, end)) in enumerate(capture_ranges(self.history.job_table_ids)):
            low, high = encode_range(start, end)
            self.puller.add_span(Span(SCHEMA_SPANS + i, low, high, n, schema_head, "schema", urgent=True))
        self._begin_tables(n)
        self.puller.place_all()
        self._followed = self.history.resolved_ts
        self.receiver.set_ceiling(self._followed, range(n))

    def _begin_tables(self, n: int) -> None:
        """Spans of the tables that the rules want. Where these change, the rules before hold up to a ts that no partition is past."""
        heads = self._heads()
        wanted = self.config.rules
        if wanted is not None and not rules.same(rules.in_force(self.writer.identity, tso.MAX_TS)[0], wanted):
            changed_at = max(*heads, self.history.resolved_ts)
            self.writer.set_identity(self.writer.identity.with_rules(replace(wanted, from_ts=changed_at)))
            _log.info("from %s on tables are captured by the rules %s", tso.describe(changed_at), ", ".join(wanted.rules))
        entries = rules.in_force(self.writer.identity, min(heads))
        self.watchdog = Watchdog(self.puller, self.receiver, lambda id_: self.spans.label(id_), n + 1, self.config.patience)
        self.spans = TableSpans(n, self.puller.add_span, self.puller.remove_span, self._moved, rules.wants_of(*entries))
        self.spans.begin(self.history, heads)
        last = entries[-1]
        if len(entries) > 1 and last is not None:
            self.spans.narrow(rules.wants_of(last), self.history, last.from_ts)

    def _needed_ts(self) -> int:
        """What TiKV has to keep: the log's end, and where tables are still being read."""
        oldest = self.loading.oldest_ts
        return self.writer.resolved_ts if oldest is None else min(oldest, self.writer.resolved_ts)

    async def _plan_what_is_asked(self) -> None:
        """Plan the tables that `tidemill resync` asks for."""
        storage, n = self.writer.storage, self.writer.identity.partitions
        for request in requests(storage):
            version = find_table(self.history.snapshot(self.history.resolved_ts), request.table)
            if version is None:
                answer(storage, request, error=f"there is no table {request.table}")
                continue
            plan = await plan_at_the_head(storage, self.pd, version, lambda: [read_head(storage, rows_folder(p)) or 0 for p in range(n)])
            answer(storage, request, ts=plan.ts)
            _log.info("%s is read again at %s, in %d parts", request.table, tso.describe(plan.ts), len(plan.parts()))

    def _heads(self) -> list[int]:
        return [self.writer.partition(p).head for p in range(self.writer.identity.partitions)]

    def _moved(self, moved: Moved) -> None:
        logs = self.receiver.logs
        self.receiver.call(partial(logs[moved.old].moved_away, moved.physical_id, moved.ts, FOREVER))
        self.receiver.call(partial(logs[moved.new].came_back, moved.physical_id, moved.ts))

    def _sealed(self, partition: int, done: Sealed) -> None:
        n = self.writer.identity.partitions
        if partition < n or self._over.done():
            return
        try:
            self._schema_sealed(done, n)
        except BaseException as e:  # a callback of the loop: what it raises would only be logged
            self.fail(e)

    def _schema_sealed(self, done: Sealed, n: int) -> None:
        """The schema stream has got further: begin and end the spans that follow from it, then let rows come as far."""
        changes: pa.Table | Sequence[Any] = pa.Table.from_batches(done.batches, RAW_CHANGE) if done.batches else ()
        self.history.advance(changes, done.head)
        heads = self._heads()
        self.spans.follow(self.history.next_table_changes(self._followed, done.head), heads)
        self.spans.retire(heads)
        self._followed = done.head
        self.puller.act()
        self.receiver.call(partial(self.receiver.set_ceiling, done.head, range(n)))

    # ------------------------------------------------------------------ upkeep

    async def _report(self, folder: Path) -> None:
        while True:
            self._look()
            self.status.write(folder)
            self.spans.retire(self._heads())
            self.puller.act()
            self.history.forget(self.writer.resolved_ts)
            await asyncio.sleep(STATUS_EVERY)

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(MAINTAIN_EVERY)
            try:
                now = await self.pd.tso()
            except UpstreamUnavailable as e:
                _log.warning("%s", e.message)
                now = self.writer.resolved_ts  # nothing gets older meanwhile
            done = await asyncio.to_thread(self.writer.maintain, now)
            _log.debug("upkeep: %d files joined, %d removed; the log begins at %s", done.joined, done.removed, tso.describe(done.start_ts))

    def _look(self) -> dict[str, Any]:
        """Bring the status up to date."""
        status = self.status
        if status.state in ("running", "stopping"):
            stats, matcher = self.receiver.stats, self.receiver.matcher
            status.heads, status.schema_head = self._heads(), self.writer.schema.head
            status.tables, status.regions = len(self.spans), self._machine.counts()
            status.rows, status.bytes, status.segments = stats.sealed_rows, stats.sealed_bytes, stats.segments
            status.received_bytes, status.received_messages = stats.bytes, stats.messages
            status.spilled_rows, status.protocol_violations = stats.spilled_rows, stats.violations
            status.region_errors = dict(self._machine.errors)
            status.take_verdicts(self.watchdog.verdicts)
            status.waiting_bytes, status.prewrite_bytes = matcher.row_bytes(), matcher.prewrite_bytes()
            status.gc_service, status.gc_safe_point = self.safe_point.service_id, self.safe_point.safe_point
            status.parts_to_read = self.loading.parts_missing
            status.gc_seconds_left = round(self.safe_point.seconds_left)
            status.start_ts = self.writer.identity.start_ts
            status.refresh(self.writer.resolved_ts)
        return status.as_dict()

    def _samples(self) -> Any:
        self._look()
        return self.status.samples()


def keeps(key: bytes) -> bool:
    """Whether the schema stream keeps a key: rows of DDL jobs and the meta keys that schemas depend on."""
    return key.startswith(b"t") or meta_filter(key)
