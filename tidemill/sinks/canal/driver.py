"""The driver half of the sink canal:// : publishes a batch's segments and DDLs as an interval of the store, and keeps the store small."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from google.protobuf.message import DecodeError

from tidemill.changelog.storage.base import Storage
from tidemill.config.uri import SinkUri
from tidemill.errors import ConfigError, LogFenced, SinkError, TidemillError
from tidemill.protocols.canal.codes import EntryType
from tidemill.sinks.base import BatchContext, Target, taken_late
from tidemill.sinks.canal.place import options_of, storage_of
from tidemill.sinks.canal.store.names import SegmentName
from tidemill.sinks.canal.store.publish import StorePublisher
from tidemill.sinks.canal.store.retention import retain
from tidemill.sinks.canal.store.writer import SegmentWriter, index_of
from tidemill.sinks.event_messages import MessageDriver
from tidemill.tso import describe
from tidemill.wire import canal_entry_pb2 as pb

log = logging.getLogger(__name__)

RETENTION_EVERY_S = 60.0


class CanalDriverSink(MessageDriver):
    """See `DriverSink`. All tables have one target: the store has one order."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        self._options, self._fresh = options_of(uri), fresh
        self._uri = uri
        self._publisher: StorePublisher | None = None
        self._ddls: list[bytes] = []
        self._retained = time.monotonic()

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    @functools.cached_property
    def _storage(self) -> Storage:
        return storage_of(self._uri)

    def begin_batch(self, ctx: BatchContext) -> None:
        self._ddls.clear()
        with _owned(ctx):
            store = self._opened(ctx)
        if ctx.from_ts > store.head:
            raise ConfigError(
                f"the entry store {store} ends at {describe(store.head)}, and this batch begins at {describe(ctx.from_ts)}: what lies "
                "between would be missing",
                hint="Start the changefeed at the end of the store, or give it a new store.",
            )

    def _opened(self, ctx: BatchContext) -> StorePublisher:
        if self._publisher is None:
            self._publisher = StorePublisher(self._storage, ctx.feed, ctx.from_ts, fresh=self._fresh)
            self._fresh = False
        return self._publisher

    def send(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        if value is not None:
            self._ddls.append(value)

    def send_resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        """Do nothing: the head moves at the end of the batch."""

    def finish_batch(self, ctx: BatchContext) -> None:
        with _owned(ctx):
            self._finish(ctx, self._opened(ctx))

    def _finish(self, ctx: BatchContext, store: StorePublisher) -> None:
        if store.holds(ctx.from_ts, ctx.to_ts):
            store.clear_attempt(ctx.from_ts, ctx.to_ts, ctx.epoch)
            return
        written = store.attempt(ctx.from_ts, ctx.to_ts, ctx.epoch, ctx.acked)
        if self._ddls:
            written.append(self._write_ddls(ctx, store, written))
        store.publish(ctx.from_ts, ctx.to_ts, written, lambda: ctx.check_fence(now=True))
        self._ddls.clear()
        self._retain(store)

    def _write_ddls(self, ctx: BatchContext, store: StorePublisher, written: Sequence[SegmentName]) -> SegmentName:
        """Write a segment with the batch's DDLs, which stand at its end."""
        writer = SegmentWriter(self._storage, ctx.to_ts - 1, ctx.to_ts, ctx.epoch, store.next_position(ctx.to_ts, written))
        try:
            for data in self._ddls:
                index = index_of(1)
                head = _header(data)
                index["commit_ts"], index["size"], index["ddl"] = ctx.to_ts, len(data), True
                index["kind"], index["event"] = EntryType.ROWDATA, head.event_type
                index["name"] = writer.number(head.schema_name.decode("utf-8", "replace"), head.table_name.decode("utf-8", "replace"))
                writer.add(index, data)
            writer.seal()
            ctx.check_fence(now=True)
            writer.publish()
        except BaseException:
            writer.discard()
            raise
        return writer.name

    def _retain(self, store: StorePublisher) -> None:
        """Now and then remove what is not needed. That it cannot be done now is not a reason to stop delivery."""
        if store.fills or time.monotonic() < self._retained + RETENTION_EVERY_S:
            return
        self._retained = time.monotonic()
        before = store.begins
        try:
            retain(self._storage, store, self._options.age_ms, self._options.size)
        except TidemillError as error:
            log.warning("%s: what clients do not need any more cannot be removed now: %s", store, error)
        if store.begins > before:
            log.info("%s begins at %s", store, describe(store.begins))

    def discard(self, ctx: BatchContext) -> None:
        """Drop a failed attempt. The store is opened again for the next one: it may have been published in part."""
        self._ddls.clear()
        store, self._publisher = self._publisher, None
        if store is None:
            return
        try:
            store.clear_attempt(ctx.from_ts, ctx.to_ts, ctx.epoch)
        except TidemillError as error:
            log.debug("what a failed attempt left cannot be removed now: %s", error)

    def close(self) -> None:
        """Do nothing: nothing is open."""


@contextmanager
def _owned(ctx: BatchContext) -> Iterator[None]:
    """Let an attempt begin again whose store another driver has taken, unless that is a newer driver: one that was frozen may take the
    store late. Raises Fenced, SinkUnavailable."""
    try:
        yield
    except LogFenced as error:
        raise taken_late(ctx.check_fence, error.message) from error


def _header(data: bytes) -> pb.Header:
    try:
        return pb.Entry.FromString(data).header
    except DecodeError as error:
        raise SinkError(f"a DDL is not an entry: {error}") from None
