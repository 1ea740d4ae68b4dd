"""The driver half of the storage sink: numbers the parts of a batch, writes schema files, publishes the batch, moves the checkpoint.

A batch publishes in this order:

    schema files of table versions that have rows for the first time
    data files, moved from the tasks' parts
    index files
    schema files of the DDLs at the batch's end
    metadata: {"checkpoint-ts": to_ts}

The list of these files is written first (`.tidemill/publishing.json`). A driver that finds such a list finishes it before anything else. So
after a crash a batch is published as a whole or not at all, and a published batch is not written again when it is rerun.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from tidemill import statefile
from tidemill.config.uri import SinkUri
from tidemill.errors import SinkError
from tidemill.sinks import owner
from tidemill.sinks.base import BatchContext, Target
from tidemill.sinks.storage import parts, paths, tables
from tidemill.sinks.storage.open import layout_of, store_of
from tidemill.tidb.schema.tracking.versions import TableVersion
from tidemill.tso import describe

log = logging.getLogger(__name__)

_PUBLISHING = f"{paths.FOLDER}/publishing.json"
_KEPT_NUMBERS = 100_000


@dataclass(slots=True)
class _Table:
    """A table version that is routed to this sink. `number` is the version in its paths, once it is known."""

    version: TableVersion
    apart: tuple[int, ...]  # physical ids with a folder each
    number: dict[str, int] = field(default_factory=dict)  # by the path before it


@dataclass(slots=True)
class _Plan:
    """What a batch publishes."""

    before: dict[str, bytes] = field(default_factory=dict)
    moves: list[tuple[str, str]] = field(default_factory=list)
    indexes: dict[str, bytes] = field(default_factory=dict)
    after: dict[str, bytes] = field(default_factory=dict)
    metadata: int = 0

    def to_json(self, folder: str) -> bytes:
        """Return the list as JSON. `folder` is the attempt's, which is removed at the end."""
        texts = {name: {path: data.decode() for path, data in getattr(self, name).items()} for name in ("before", "indexes", "after")}
        return json.dumps({"format": 1, "folder": folder, "moves": self.moves, "metadata": self.metadata, **texts}).encode()

    @classmethod
    def from_json(cls, data: bytes, name: str) -> _Plan:
        """Read the JSON of `to_json`. Raises SinkError naming the file."""
        found = statefile.read(data, name, owner.NOTE)
        texts = {
            part: {paths.inside(path, name): text.encode() for path, text in found.part(part).members()}
            for part in ("before", "indexes", "after")
        }
        moves = [(paths.inside(old, name), paths.inside(new, name)) for old, new in found.text_pairs("moves")]
        return cls(moves=moves, metadata=found.integer("metadata"), **texts)


class StorageDriverSink:
    """See `DriverSink`."""

    def __init__(self, uri: SinkUri, *, fresh: bool) -> None:
        assert uri.storage is not None
        self._layout, self._store, self._fresh = layout_of(uri), store_of(uri), fresh
        self._protocol = uri.protocol.value if uri.protocol is not None else ""
        self._column_ids = uri.storage.output_column_id
        self._tables: dict[str, _Table] = {}  # by topic
        self._newest: dict[int, str] = {}  # topic by logical table id
        self._numbers: dict[str, int] = {}  # newest file by data folder
        self._ddls: dict[str, bytes] = {}
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

    def ddl(self, topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[int]) -> None:
        """Take the schema files of a DDL. `value` is made by control.py."""
        self._ddls |= {path: text.encode() for path, text in json.loads(value or b"{}").items()}

    def resolved(self, targets: Sequence[Target], key: bytes | None, value: bytes | None) -> None:
        """Do nothing. The checkpoint file is written at the end of the batch."""

    def finish_batch(self, ctx: BatchContext) -> None:
        folder = parts.folder_of(ctx)
        if not self._skip:
            plan = self._plan(parts.listed(self._store, ctx), ctx)
            ctx.check_fence(now=True)
            if plan.moves:
                self._store.write(_PUBLISHING, plan.to_json(folder))
            self._publish(plan)
            if plan.moves:
                self._store.delete(_PUBLISHING)
            self._published = ctx.to_ts
        self._look_again()
        self._store.clear(folder)

    def discard(self, ctx: BatchContext) -> None:
        """Drop a failed attempt. If it failed while publishing, its list stays, and the next driver finishes it first."""
        self._ddls.clear()
        self._published = None
        try:
            if self._store.read(_PUBLISHING) is None:
                self._store.clear(parts.folder_of(ctx))
        except SinkError as error:
            log.debug("what a failed attempt left cannot be removed now: %s", error)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    # A batch

    def _plan(self, found: Sequence[parts.Part], ctx: BatchContext) -> _Plan:
        plan = _Plan(after=dict(self._ddls), metadata=ctx.to_ts)
        for part in found:
            table = self._tables.get(part.topic)
            if table is None:
                raise SinkError(f"{self._store}: rows of {part.topic} came, which nobody announced")
            physical = table.apart[part.partition] if table.apart else None
            base = self._layout.base(table.version, physical)
            number = self._version_number(table, base, plan)
            folder = self._layout.folder(base, number, physical, part.date)
            file = self._layout.file(self._next_number(folder))
            plan.moves.append((part.file, f"{folder}/{file}"))
            plan.indexes[paths.index_file(folder)] = f"{file}\n".encode()
        return plan

    def _version_number(self, table: _Table, base: str, plan: _Plan) -> int:
        """Return the version in a table's paths: that of its newest schema file with the same columns, which a DDL without effect on rows
        may have written. Without such a file it is the table's own version, but not less than the changefeed's start.
        """
        if base not in table.number:
            own = tables.of_table(table.version, column_ids=self._column_ids)
            folder = f"{base}/meta"
            known = [n for name in self._store.names(folder) if (n := paths.version_in(name, own.checksum)) is not None]
            if known:
                number = max(known)
            else:
                number = max(table.version.from_ts, self._first_ts)
                first = tables.of_table(table.version, column_ids=self._column_ids, ts=number)
                plan.before[f"{folder}/{tables.file_name(number, own.checksum)}"] = first.text()
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
        if folder not in self._numbers:
            name = paths.index_file(folder)
            text = self._store.read(name)
            self._numbers[folder] = paths.number_in(text.decode("utf-8", "replace"), f"{self._store}/{name}") if text is not None else 0
        self._numbers[folder] += 1
        return self._numbers[folder]

    def _publish(self, plan: _Plan) -> None:
        """Publish the plan. It may be repeated from the start, also by another driver, until it has succeeded."""
        self._write(plan.before)
        self._store.move(plan.moves)
        self._write(plan.indexes)
        self._write(plan.after)
        self._store.write(paths.METADATA, json.dumps({"checkpoint-ts": plan.metadata}, separators=(",", ":")).encode())

    def _write(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self._store.write(name, data)

    # The folder

    def _open(self, ctx: BatchContext) -> int:
        """Finish a batch that an earlier driver published in part. Returns the ts up to which everything is published."""
        self._numbers.clear()
        for table in self._tables.values():
            table.number.clear()
        self._own(ctx)
        if self._fresh:
            self._empty()
            self._fresh = False
        listing = self._store.read(_PUBLISHING)
        if listing is not None:
            plan = _Plan.from_json(listing, f"{self._store}/{_PUBLISHING}")
            log.warning("%s: finishing a batch that was published in part", self._store)
            self._publish(plan)
            self._store.delete(_PUBLISHING)
        parts.drop_old(self._store, ctx.epoch)
        text = self._store.read(paths.METADATA)
        return statefile.read(text, f"{self._store}/{paths.METADATA}", owner.NOTE).integer("checkpoint-ts") if text is not None else 0

    def _own(self, ctx: BatchContext) -> None:
        """Check that the folder belongs to this changefeed. A folder of TiCDC is continued."""
        owner.check_no_other(self._store.read(owner.MESSAGES_NOTE), str(self._store), self._protocol)
        if not owner.check(self._store.read(owner.TABLES_NOTE), str(self._store), ctx.feed, self._protocol):
            self._store.write(owner.TABLES_NOTE, owner.note(ctx.feed, self._protocol))

    def _empty(self) -> None:
        """Remove the files of an earlier replay."""
        self._store.delete(_PUBLISHING)
        self._store.clear(parts.TRIES)
        for name in list(self._store.walk()):
            if paths.is_ours(name, self._layout.extension):
                self._store.delete(name)
