"""Captures a cluster's binlogs into a change log: a Drainer that runs as a capture does, with its status, pages and upkeep."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tidemill import tso
from tidemill.binlog.blocks import Room
from tidemill.binlog.drainer.destination import Reads, Waits
from tidemill.binlog.drainer.drainer import Drainer
from tidemill.binlog.drainer.rows.spill import Spill
from tidemill.binlog.drainer.schemas import Schemas
from tidemill.binlog.drainer.settings import DrainerSettings
from tidemill.binlog.nodes import NodeEvent
from tidemill.binlog.source.outlet import LogOutlet
from tidemill.binlog.source.reading import LogEntry, LogReading
from tidemill.capture import clusterversion, rules
from tidemill.capture.config import DEFAULT_PARTITIONS, CaptureConfig
from tidemill.capture.heads import check_heads
from tidemill.capture.lifecycle import Lifecycle, in_thread, serving, stop_on_signals, together
from tidemill.capture.meta import read_meta
from tidemill.capture.status import CaptureStatus, start_of
from tidemill.capture.tikv.client.pd import PdClient
from tidemill.capture.worker import maintain
from tidemill.changelog.history import load_history
from tidemill.changelog.log_format import IDENTITY, LogIdentity, Source
from tidemill.changelog.options import LogOptions
from tidemill.changelog.ownership import check_free
from tidemill.changelog.place import check_place
from tidemill.changelog.reader import LogReader
from tidemill.changelog.spread import PARTITION_BY
from tidemill.changelog.storage.open import Storage, open_storage
from tidemill.changelog.storage.outcomes import storage_errors
from tidemill.changelog.storage.retry import START_S, StorageRetry
from tidemill.changelog.writer import LogWriter
from tidemill.errors import ConfigError, LogLocked, TidemillError, redact
from tidemill.metrics.http import PageServer
from tidemill.metrics.pages import json_page
from tidemill.metrics.samples import metrics_page
from tidemill.tidb.schema.metakeys import HISTORY_TABLE, JOB_TABLE, Subject, name_of
from tidemill.tidb.schema.model import TableInfo

NODE_ID = "drainer_id"
"""The field of log.json with the name that the Drainer of a log has in the registry."""
SAVE_S = 0.5
STATUS_S = 1.0

T = TypeVar("T")

_log = logging.getLogger(__name__)


class BinlogCapture:
    """Captures one cluster. Call `run` once. `addr`: HOST:PORT where Pumps and binlogctl reach its Drainer; port 0: any."""

    def __init__(self, config: CaptureConfig, addr: str, node_id: str = "") -> None:
        self.config, self._addr, self._node_id = config, addr, node_id
        self.status = CaptureStatus(log=redact(config.log))
        self._retry = StorageRetry()
        self._life: Lifecycle
        self.drainer: Drainer[LogEntry] | None = None
        self.outlet: LogOutlet | None = None

    async def run(self) -> None:
        """Capture until SIGTERM, SIGINT or `stop`. Raises TidemillError for errors that a retry does not fix."""
        self._life = Lifecycle()
        stop_on_signals(self.stop)
        folder = self.config.folder
        with storage_errors(str(folder), writing=True):
            folder.mkdir(parents=True, exist_ok=True)
        self.status.start_ts = start_of(folder, self.status.log)
        pages = PageServer({"/status": json_page(self._look), "/metrics": metrics_page(self._samples)})
        async with serving(pages, self.config.status_addr, lambda state, error: self._end(state, error, folder)):
            await self._life.lead(self._capture(folder))

    def stop(self) -> None:
        """End without an error; what was pulled is written first."""
        if self.drainer is None:
            self._life.stop()
            return
        self.drainer.ask(NodeEvent.PAUSE)
        if self.outlet is not None:
            self.outlet.end()

    async def _capture(self, folder: Path) -> None:
        pd = await PdClient.connect(self.config.pd, security=self.config.security)
        try:
            self.status.cluster_id = str(pd.cluster_id)
            writer = await self._reached(lambda: self._open(pd, folder))
        finally:
            await pd.close()
        self.outlet = LogOutlet(writer, self._retry)
        identity = writer.identity
        node_id = self._node_id or str(identity.extra.get(NODE_ID) or f"tidemill-{identity.cluster_id}")
        settings = DrainerSettings(
            addr=self._addr, pd_urls=",".join(self.config.pd), data_dir=str(folder), node_id=node_id,
            ssl_ca=_text(self.config.ca), ssl_cert=_text(self.config.cert), ssl_key=_text(self.config.key),
        ).checked()  # fmt: skip
        self.drainer = Drainer(settings, LogDestination(self.outlet, Spill(folder)))
        self.status.state = "running"
        _log.info("binlogs are captured by the Drainer %s, from %s", node_id, tso.describe(writer.resolved_ts))
        try:
            await _first(self.drainer.run(), self._upkeep(writer, folder))
        finally:
            self.status.state = "stopping"
            self.outlet.end()
            self._look()
            self.outlet.close()
            _log.info("the log is complete up to %s", tso.describe(self.outlet.resolved_ts))

    async def _upkeep(self, writer: LogWriter, folder: Path) -> None:
        pd = await PdClient.connect(self.config.pd, security=self.config.security)
        try:
            await together(
                maintain(pd, writer, lambda: writer.resolved_ts, self._retry),
                clusterversion.follow(pd, writer, self._retry),
                self._report(folder),
            )
        finally:
            await pd.close()

    # ---- the log

    async def _reached(self, work: Callable[[], Awaitable[T]]) -> T:
        """Work with the log at the start. An address that was never reached may be wrong, so the wait for it is limited."""
        return await self._retry.call_async(work, None if self.status.start_ts else START_S)

    async def _open(self, pd: PdClient, folder: Path) -> LogWriter:
        config = self.config
        options = LogOptions(compression=config.compression, retention_ms=config.retention_ms, low_water_bytes=config.low_water_bytes)
        storage = await in_thread(open_storage, config.log, folder / "scratch")
        now = await pd.tso()
        if await in_thread(storage.read, IDENTITY) is None:
            await in_thread(check_place, storage)
            writer = await self._create(pd, storage, options, now)
        else:
            if config.start_ts is not None:
                _log.info("%s exists already and continues where it ends; --start-ts is for new logs", self.status.log)
            await in_thread(check_free, storage)
            await in_thread(lambda: check_heads(LogReader(storage), now))
            opened = partial(LogWriter.open, storage, cluster_id=str(pd.cluster_id), partitions=config.partitions, source=Source.BINLOG)
            writer = await in_thread(partial(opened, options=options))
        try:
            await in_thread(rules.settle, writer, config.rules, _end_of(writer))
            await clusterversion.note_at_start(pd, writer, _end_of(writer), self._retry)
        except BaseException:
            writer.close()
            raise
        self.status.start_ts = writer.identity.start_ts
        return writer

    async def _create(self, pd: PdClient, storage: Storage, options: LogOptions, now: int) -> LogWriter:
        config = self.config
        start_ts = now if config.start_ts is None else tso.parse(config.start_ts, now)
        if start_ts > now:
            raise ConfigError(f"--start-ts {tso.describe(start_ts)} lies in the cluster's future: it is {tso.describe(now)} there")
        pairs = without_job_tables(await read_meta(pd, start_ts))
        identity = LogIdentity(
            cluster_id=str(pd.cluster_id),
            start_ts=start_ts,
            partitions=config.partitions or DEFAULT_PARTITIONS,
            source=Source.BINLOG,
            partition_by=PARTITION_BY,
            extra={NODE_ID: f"tidemill-{uuid.uuid4().hex[:16]}"},
        )
        if config.rules is not None and config.rules.rules != rules.EVERYTHING:
            identity = identity.with_rules(replace(config.rules, from_ts=start_ts))
        writer = await in_thread(partial(LogWriter.create, storage, identity, snapshot=pairs, options=options))
        _log.info("new log %s of the binlogs of cluster %s from %s", self.status.log, identity.cluster_id, tso.describe(start_ts))
        return writer

    # ---- status

    async def _report(self, folder: Path) -> None:
        while True:
            page = self._look()
            await in_thread(self._write_status, folder, page)
            await asyncio.sleep(STATUS_S)

    def _look(self) -> dict[str, Any]:
        """Bring the status up to date and return it."""
        status, outlet, outage = self.status, self.outlet, self._retry.outage
        status.storage = outage.as_dict() if outage is not None else None
        if outlet is not None and status.state in ("running", "stopping"):
            writer = outlet.writer
            status.heads, status.schema_head = [writer.partition(p).head for p in writer.partitions], writer.schema.head
            status.rows, status.bytes, status.segments = outlet.rows, outlet.bytes, outlet.segments
            status.paused, status.start_ts = outlet.paused, writer.identity.start_ts
            status.refresh(writer.resolved_ts)
        if self.drainer is not None and self.drainer.alive:
            status.binlog = {"Drainer": self.drainer.node_id, "Address": self.drainer.address, **self.drainer.status()}
        return status.as_dict()

    def _samples(self) -> Any:
        self._look()
        yield from self.status.samples()
        if self.drainer is not None and self.drainer.alive:
            yield from self.drainer.samples()

    def _write_status(self, folder: Path, page: dict[str, Any]) -> None:
        try:
            self.status.write(folder, page)
        except OSError as error:
            _log.warning("the status cannot be written; the capture goes on: %s", error)

    def _end(self, state: str, error: BaseException | None, folder: Path) -> None:
        self.status.state = state
        if error is not None:
            code = error.code if isinstance(error, TidemillError) else type(error).__name__
            self.status.error = {"code": code, "message": redact(str(error))}
        if isinstance(error, LogLocked):
            return  # another capture has the log, and the status is its own
        self.status.updated = time.time()
        self._write_status(folder, self.status.as_dict())


class LogDestination:
    """Where the Drainer delivers: a change log, which has the schemas too. `room`: memory for a large transaction."""

    name, save_s = "log", SAVE_S

    def __init__(self, outlet: LogOutlet, room: Room) -> None:
        self._outlet, self._room = outlet, room

    async def without_upstream(self) -> None:
        """Nothing: the log has all that was pulled."""

    async def open(self, pd: PdClient) -> LogOutlet:
        """Return the outlet, which is open."""
        return self._outlet

    async def schemas(self, pd: PdClient, ts: int, version: int, waits: Waits) -> Schemas:
        """Return the tables as of `ts`, from the log itself: TiKV may have collected that state."""
        history = await in_thread(lambda: load_history(LogReader(self._outlet.writer.storage), ts))
        return Schemas(pd, history.catalog, waits)

    def reading(self, schemas: Schemas) -> Reads[LogEntry]:
        """Read the tables that the log's rules want."""
        writer = self._outlet.writer
        wants = rules.wants_of(writer.identity.rules_above(tso.MAX_TS)[0])
        return LogReading(schemas, wants, lambda: writer.identity.layout, self._room)


def without_job_tables(pairs: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return meta key-values without the tables of DDL jobs: the log's jobs are those of TiDB's history in the meta range, as binlogs name
    them."""
    return {key: value for key, value in pairs.items() if not _is_job_table(key, value)}


def _is_job_table(key: bytes, value: bytes) -> bool:
    found = name_of(key)
    if found is None or found.subject is not Subject.TABLE or not any(name.encode() in value for name in (JOB_TABLE, HISTORY_TABLE)):
        return False
    return TableInfo.from_json(json.loads(value)).name in (JOB_TABLE, HISTORY_TABLE)


def _end_of(writer: LogWriter) -> int:
    return max(writer.schema.head, *(writer.partition(p).head for p in writer.partitions))


def _text(path: Path | None) -> str:
    return str(path) if path is not None else ""


async def _first(main: Awaitable[None], beside: Awaitable[None]) -> None:
    """Run both until `main` ends, or `beside` fails."""
    tasks = [asyncio.ensure_future(main), asyncio.ensure_future(beside)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
