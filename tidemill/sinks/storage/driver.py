"""The driver half of the storage sink: numbers the parts of a batch, writes schema files, publishes the batch, moves the checkpoint.

A batch is a publication (`sinks/publication.py`) of these steps:

    create   schema files of table versions that have rows for the first time
    place    data files, moved from the tasks' parts
    raise    index files
    create   schema files of the DDLs at the batch's end
    raise    metadata: {"checkpoint-ts": to_ts}

So after a crash a batch is published as a whole or not at all, a published batch is not written again when it is rerun, and a driver that
another one has replaced moves neither index nor metadata back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from tidemill import statefile
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.sinks import owner
from tidemill.sinks.base import BatchContext
from tidemill.sinks.publication import Create, Place, Plan, Position, Publisher, Raise, Step
from tidemill.sinks.storage import parts, paths, tables
from tidemill.sinks.storage.control import schema_files
from tidemill.sinks.storage.open import layout_of, store_of
from tidemill.tidb.schema.events import DdlEvent
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe

log = logging.getLogger(__name__)

_KEPT_NUMBERS = 100_000


@dataclass(slots=True)
class _Table:
    """A table version that is routed to this sink. `number` is the version in its paths, once it is known."""

    version: TableVersion
    apart: tuple[int, ...]  # physical ids with a folder each
    number: dict[str, int] = field(default_factory=dict)  # by the path before it


@dataclass(slots=True)
class _Files:
    """What a batch publishes."""

    schemas: dict[str, bytes] = field(default_factory=dict)  # of versions that have rows for the first time
    moves: list[tuple[str, str]] = field(default_factory=list)
    indexes: dict[str, bytes] = field(default_factory=dict)


class StorageDriverSink:
    """See `DriverSink`."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        assert uri.storage is not None
        self._layout, self._store, self._fresh = layout_of(uri), store_of(uri), fresh
        self._protocol = str(uri.protocol or "")
        self._options = uri.storage
        self._tables: dict[str, _Table] = {}  # by topic
        self._newest: dict[int, str] = {}  # topic by logical table id
        self._numbers: dict[str, int] = {}  # newest file by data folder
        self._ddls: dict[str, bytes] = {}
        self._publisher = Publisher(self._store)
        self._published: int | None = None
        self._first_ts = 0  # where this driver's first batch begins
        self._skip = False

    def place(self, version: TableVersion) -> str:
        """Return the topic of a table's rows, a name for its folder. Only the newest version of a table is kept."""
        if not self._layout.table_ids:
            paths.check_names(version.schema, version.table)
        topic = paths.topic_of(version)
        old = self._newest.get(version.table_id)
        if old != topic:
            self._tables.pop(old or "", None)
            self._newest[version.table_id] = topic
            self._tables[topic] = _Table(version, self._layout.rows_apart(version))
        return topic

    def ensure_topics(self, topics: set[str]) -> dict[str, int]:
        """Return one partition for each folder of a table's rows. Raises the store's errors."""
        if topics - self._tables.keys():
            self._store.read(paths.METADATA)
        return {topic: max(1, len(self._tables[topic].apart)) if topic in self._tables else 1 for topic in topics}

    def message_limits(self, topics: Set[str]) -> Mapping[str, int]:
        """Return no limits: lines may have any length."""
        return {}

    def begin_batch(self, ctx: BatchContext) -> None:
        self._ddls.clear()
        if len(self._numbers) > _KEPT_NUMBERS:
            self._numbers.clear()  # index files know them
        if self._published is None:
            self._published = self._open(ctx)
            self._first_ts = self._first_ts or ctx.from_ts
        self._skip = ctx.to_ts <= self._published
        if ctx.from_ts < self._published:
            log.warning(
                "%s holds everything up to %s already: what is at or below of (%d, %d] is not written again",
                *(self._store, describe(self._published), ctx.from_ts, ctx.to_ts),
            )
        parts.begin(self._store, ctx, self._published if ctx.from_ts < self._published else 0)

    def ddl(self, event: DdlEvent, topic: str) -> bool:
        """Take the schema files of a DDL."""
        files = schema_files(event, self._options)
        self._ddls |= files
        return bool(files)

    def resolved(self, ts: int) -> None:
        """Do nothing. The checkpoint file is written at the end of the batch."""

    def finish_batch(self, ctx: BatchContext) -> None:
        folder = parts.folder_of(ctx)
        if not self._skip:
            self._publisher.publish(ctx, self._plan(self._files(ctx), ctx))
            self._published = ctx.to_ts
        self._look_again()
        self._store.clear(folder)

    def discard(self, ctx: BatchContext) -> None:
        """Drop a failed attempt. If it failed while publishing, its files stay: who claims the note next finishes it first."""
        self._ddls.clear()
        self._published = None
        try:
            if not self._publisher.needs(parts.folder_of(ctx)):
                self._store.clear(parts.folder_of(ctx))
        except SinkError as error:
            log.debug("what a failed attempt left cannot be removed now: %s", error)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    # A batch

    def _plan(self, files: _Files, ctx: BatchContext) -> Plan:
        metadata = json.dumps({"checkpoint-ts": ctx.to_ts}, separators=(",", ":")).encode()
        steps: list[Step] = [Create(files.schemas)] if files.schemas else []
        if files.moves:
            steps += [Place(files.moves), *(Raise(name, data, Position.INDEX) for name, data in files.indexes.items())]
        if self._ddls:
            steps.append(Create(dict(self._ddls)))
        return Plan(ctx.from_ts, ctx.to_ts, parts.folder_of(ctx), steps, Raise(paths.METADATA, metadata, Position.CHECKPOINT))

    def _files(self, ctx: BatchContext) -> _Files:
        files = _Files()
        for part in parts.listed(self._store, ctx):
            table = self._tables.get(part.topic)
            if table is None:
                raise SinkError(f"{self._store}: rows of {part.topic} came, which nobody announced")
            physical = table.apart[part.partition] if table.apart else None
            base = self._layout.base(table.version, physical)
            number = self._version_number(table, base, files)
            folder = self._layout.folder(base, number, physical, part.date)
            file = self._layout.file(self._next_number(folder))
            files.moves.append((part.file, f"{folder}/{file}"))
            files.indexes[paths.index_file(folder)] = f"{file}\n".encode()
        return files

    def _version_number(self, table: _Table, base: str, files: _Files) -> int:
        """Return the version in a table's paths: that of its newest schema file with the same columns, which a DDL without effect on rows
        may have written. Without such a file it is the table's own version, but not less than the changefeed's start.
        """
        if base not in table.number:
            own = tables.of_table(table.version, column_ids=self._options.output_column_id)
            folder = f"{base}/meta"
            known = [n for name in self._store.names(folder) if (n := paths.version_in(name, own.checksum)) is not None]
            if known:
                number = max(known)
            else:
                number = max(table.version.from_ts, self._first_ts)
                first = tables.of_table(table.version, column_ids=self._options.output_column_id, ts=number)
                files.schemas[f"{folder}/{tables.file_name(number, own.checksum)}"] = first.text()
            table.number[base] = number
        return table.number[base]

    def _look_again(self) -> None:
        """Forget the versions of tables whose DDLs were published. Their next rows get the newest version."""
        changed = {path.rpartition("/meta/")[0] for path in self._ddls}
        for table in self._tables.values() if changed else ():
            for base in changed & table.number.keys():
                del table.number[base]
        self._ddls.clear()

    def _next_number(self, folder: str) -> int:
        """Return a number that no file of a folder has, also where a file lies beyond the index."""
        if folder not in self._numbers:
            name = paths.index_file(folder)
            text = self._store.read(name)
            indexed = paths.number_in(text.decode("utf-8", "replace"), f"{self._store}/{name}") if text is not None else 0
            self._numbers[folder] = max(indexed, *(paths.data_number(name) for name in self._store.names(folder)), 0)
        self._numbers[folder] += 1
        return self._numbers[folder]

    # The folder

    def _open(self, ctx: BatchContext) -> int:
        """Finish a batch that an earlier driver published in part. Returns the ts up to which everything is published."""
        self._numbers.clear()
        for table in self._tables.values():
            table.number.clear()
        self._own(ctx)
        self._publisher.claim(ctx)
        if self._fresh:
            self._empty()
            self._fresh = False
        parts.drop_old(self._store, ctx.epoch)
        text = self._store.read(paths.METADATA)
        return statefile.read(text, f"{self._store}/{paths.METADATA}", owner.NOTE).integer("checkpoint-ts") if text is not None else 0

    def _own(self, ctx: BatchContext) -> None:
        """Check that the folder belongs to this changefeed. A folder of TiCDC is continued."""
        owner.check_no_other(self._store.read(owner.MESSAGES_NOTE), str(self._store), self._protocol)
        if not owner.check(self._store.read(owner.TABLES_NOTE), str(self._store), ctx.feed, self._protocol):
            self._store.create(owner.TABLES_NOTE, owner.note(ctx.feed, self._protocol))

    def _empty(self) -> None:
        """Remove the files of an earlier replay."""
        self._publisher.forget()
        self._store.clear(parts.TRIES)
        for name in list(self._store.walk()):
            if paths.is_ours(name, self._layout.extension):
                self._store.delete(name)
